"""Which packages work: each is imported in another process, whatever may come of that.

A package that crashes or hangs is then a line of the doctor's answer, and not the end of it.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

_SECONDS = 60.0  # until what does not come back counts as broken


class Part(NamedTuple):
    """A distribution, and the module by which it is imported."""

    package: str
    module: str


@dataclass(frozen=True)
class Package:
    """How one package fares."""

    name: str
    state: Literal["works", "missing", "broken"]
    version: str | None = None
    problem: str | None = None
    """Why it does not work, as the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class Device:
    """What jax computes on."""

    used: str | None
    """``cpu``, ``gpu`` or ``tpu``; None where jax does not work."""
    devices: tuple[str, ...]
    gpu_seen: bool
    """Whether the system has an NVIDIA GPU, whatever jax makes of it."""
    why: str


class _Tried(NamedTuple):
    """How a small program ended."""

    said: str
    problem: str | None


def run_python(code: str, *words: str, **variables: str) -> _Tried:
    """Run a small Python program: what it printed, and what went wrong in one line."""
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
        said = late.stdout or b""
        text = said if isinstance(said, str) else said.decode(errors="replace")
        return _Tried(text, f"does not come back within {_SECONDS:g} s")
    if run.returncode == 0:
        return _Tried(run.stdout, None)
    if run.returncode < 0:
        return _Tried(run.stdout, f"is ended by signal {-run.returncode}")
    lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
    return _Tried(run.stdout, f"fails: {lines[-1] if lines else f'exit code {run.returncode}'}")


# ------------------------------------------------------------------------------ packages

_IMPORT = """
import importlib, json, sys
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
        problem = None
    except BaseException as error:
        text = " ".join(str(error).split()) or "no reason given"
        problem = f"cannot be imported: {type(error).__name__}: {text}"
    print("\\nPUORL " + json.dumps([module, problem]), flush=True)
"""
_SAID = re.compile(r"^PUORL (.*)$", re.MULTILINE)


def try_packages(parts: Iterable[Part], oldest: Mapping[str, str]) -> tuple[Package, ...]:
    """Missing, working or broken; what is not there is not tried.

    Args:
        parts: Which.
        oldest: Package to the oldest version that will do, as `oldest_versions` gives it.
    """
    parts = tuple(parts)
    there = [part.module for part in parts if is_installed(part.module)]
    problems = _import_all(there)
    return tuple(
        judge(part.package, problems[part.module], oldest)
        if part.module in problems
        else Package(part.package, "missing")
        for part in parts
    )


def is_installed(module: str) -> bool:
    """Whether there is such a module, without running any of it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _import_all(modules: Sequence[str]) -> dict[str, str | None]:
    """Module to why it cannot be imported, or None.

    One process does all of them, as starting it and what they share is most of the time; where one
    ends the process, the next process goes on behind it.
    """
    problems: dict[str, str | None] = {}
    left = list(modules)
    while left:
        tried = run_python(_IMPORT, *left)
        problems |= dict(json.loads(line) for line in _SAID.findall(tried.said))
        left = [module for module in left if module not in problems]
        if left:
            problems[left.pop(0)] = tried.problem or "ends the process that imports it"
    return problems


def judge(name: str, problem: str | None, oldest: Mapping[str, str]) -> Package:
    """How a package that is there fares: one that works may still be too old."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = None
    need = oldest.get(_plain(name))
    if problem is None and version and need and _numbers(version) < _numbers(need):
        problem = f"is too old: expected {need} or later, got {version}"
    return Package(name, "works" if problem is None else "broken", version, problem)


def oldest_versions() -> dict[str, str]:
    """Package to the oldest version that puorl takes, as its own installation says."""
    try:
        lines = importlib.metadata.requires("puorl") or []
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        return {}
    found = [re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*>=\s*([\d.]+)", line) for line in lines]
    return {_plain(match[1]): match[2] for match in found if match}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    """The first three numbers, so that 2.0 is 2.0.0.

    >>> _numbers("2.0") == _numbers("2.0.0rc1") < _numbers("2.10.1")
    True
    """
    found = [int(digits) for digits in re.findall(r"\d+", version.partition("+")[0])]
    return tuple((found + [0, 0, 0])[:3])


# -------------------------------------------------------------------------------- device

_JAX = """
import json, jax
devices = [f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()]
print("\\nPUORL " + json.dumps({"used": jax.default_backend(), "devices": devices}))
"""
_CUDA_MODULES = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def try_jax(oldest: Mapping[str, str], *, install: str) -> tuple[Package, Device]:
    """How jax fares, and what it computes on.

    Args:
        oldest: As for `try_packages`.
        install: The line that installs what jax needs for a GPU.
    """
    seen = gpu_seen()
    if not is_installed("jax"):
        return Package("jax", "missing"), Device(None, (), seen, "jax is not installed")
    tried = run_python(_JAX)
    package = judge("jax", tried.problem, oldest)
    said = _SAID.search(tried.said)
    if said is None:
        return package, Device(None, (), seen, "jax does not work")
    answer = json.loads(said[1])
    used, devices = answer["used"], tuple(answer["devices"])
    return package, Device(used, devices, seen, reason(used, len(devices), seen, install))


def reason(used: str, num_devices: int, seen: bool, install: str) -> str:
    """Why jax computes on ``used``."""
    chosen = os.environ.get("JAX_PLATFORMS")
    if chosen:
        return f"the variable JAX_PLATFORMS={chosen} says so"
    if used == "gpu":
        return "jax sees " + ("a GPU" if num_devices == 1 else f"{num_devices} GPUs")
    if used != "cpu":
        return f"jax sees a {used}"
    if not seen:
        return f"no NVIDIA GPU is seen here, so {install} would add nothing"
    if not any(map(is_installed, _CUDA_MODULES)):
        return f"there is an NVIDIA GPU, but jax has no CUDA; {install} would use it"
    return "there is an NVIDIA GPU, but jax cannot use it; its driver may be too old for CUDA"


def gpu_seen() -> bool:
    """Whether the system has an NVIDIA GPU."""
    # The driver's own list; where a container hides it, the files of the devices.
    listed = Path("/proc/driver/nvidia/gpus").glob("*")
    return any(listed) or any(Path("/dev").glob("nvidia[0-9]*"))


# ----------------------------------------------------------------------------- rendering

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


def try_rendering() -> tuple[str | None, str | None]:
    """A value of MUJOCO_GL with which MuJoCo draws a picture; else why it draws none."""
    if not is_installed("mujoco"):
        return None, "MuJoCo is not installed"
    own = os.environ.get("MUJOCO_GL")
    ways = [own] if own else ["egl", "osmesa", *(["glfw"] if "DISPLAY" in os.environ else [])]
    problems = []
    for way in ways:
        problem = run_python(_DRAW, MUJOCO_GL=way).problem
        if problem is None:
            return way, None
        problems.append(f"MUJOCO_GL={way} {problem}")
    return None, "; ".join(problems)
