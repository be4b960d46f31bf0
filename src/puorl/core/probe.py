"""Probe in another process what works here, so that a crash there ends nothing here."""

import importlib.util
import os
import re
import subprocess
import sys
from typing import NamedTuple

_SECONDS = 60.0
"""Time after which a program counts as hanging."""
_ANSWER = re.compile(r"^PUORL (.*)$", re.MULTILINE)
_DRAW = """
import mujoco
scene = "<mujoco><worldbody><light pos='0 0 3'/><geom size='.3'/></worldbody></mujoco>"
model = mujoco.MjModel.from_xml_string(scene)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(data)
    if not renderer.render().any():
        raise SystemExit("the picture is black")
"""


class Outcome(NamedTuple):
    """How a program ended."""

    answers: list[str]
    """The rest of every line of its output that began with ``PUORL``."""
    problem: str | None
    """What went wrong, as the end of a sentence; None if nothing did."""


def run_python(code: str, *words: str, **variables: str) -> Outcome:
    """Run a small Python program.

    Args:
        code: The program; it prints its answers as lines that begin with ``PUORL``.
        words: Its arguments.
        variables: Environment variables to set.
    """
    try:
        run = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **variables},
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        return Outcome(_ANSWER.findall(text), f"does not come back within {_SECONDS:g} s")
    answers, problem = _ANSWER.findall(run.stdout), None
    if run.returncode < 0:
        problem = f"is ended by signal {-run.returncode}"
    elif run.returncode > 0:
        lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
        problem = f"fails: {lines[-1] if lines else f'exit code {run.returncode}'}"
    return Outcome(answers, problem)


def is_installed(module: str) -> bool:
    """Whether a module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def find_renderer() -> tuple[str | None, str | None]:
    """Find a value of MUJOCO_GL with which MuJoCo draws a picture; else return why none does."""
    if not is_installed("mujoco"):
        return None, "MuJoCo is not installed"
    chosen = os.environ.get("MUJOCO_GL")
    names = (
        [chosen] if chosen else ["egl", "osmesa", *(["glfw"] if "DISPLAY" in os.environ else [])]
    )
    problems = []
    for name in names:
        problem = run_python(_DRAW, MUJOCO_GL=name).problem
        if problem is None:
            return name, None
        problems.append(f"MUJOCO_GL={name} {problem}")
    return None, "; ".join(problems)
