"""A film strip: a policy runs an episode in another process, and a few pictures come back.

Drawing needs the graphics of the machine, and those may crash: here that costs a sentence.
"""

import base64
import json
import re
import struct
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from puorl.cli.doctor_trials import run_python, try_rendering
from puorl.cli.evaluate import check_fits
from puorl.core.errors import DataError
from puorl.envs.domains import DomainSpec
from puorl.html.page import Markup, escape, figure
from puorl.report.run_folders import Evaluated, Material
from puorl.rl.policy import Policy

NUM_FRAMES, NUM_EPISODES = 8, 5
_SHRINK = 2  # pictures of half the size do for a strip
_PROGRAM = "import sys; from puorl.report.filmstrip import record; record(*sys.argv[1:])"
_SAID = re.compile(r"^PUORL (.*)$", re.MULTILINE)
_GRID = "display:grid;grid-template-columns:repeat(auto-fit,minmax(4.4rem,1fr));gap:.4rem"
_PICTURE = "display:block;width:100%;height:auto;border-radius:.3rem"
_STEP = "color:var(--muted);font-size:.8rem;font-variant-numeric:tabular-nums"


@dataclass(frozen=True)
class Choice:
    """The policy to show, and why this one."""

    name: str
    file: Path
    why: str


@dataclass(frozen=True)
class Film:
    """Pictures of one episode."""

    choice: Choice
    env: str
    steps: tuple[int, ...]
    """At which each picture was taken."""
    pictures: tuple[bytes, ...]
    """PNG files."""
    length: int
    total: float
    """The episode's return."""


def choose(material: Material, spec: DomainSpec) -> Choice | None:
    """The best policy in that domain, as far as anything is recorded; None without policies.

    Raises:
        DataError: No policy has the states and actions of the domain.
    """
    fitting, misfit = [], None
    for training in material.trainings:
        for name, file in training.policies.items():
            policy = Policy.load(file)
            try:
                check_fits(spec, policy.obs_dim, policy.act_dim, f"{file}: the policy")
            except DataError as error:
                misfit = misfit or error
                continue
            course = training.metrics.get("return", {}).get(name, [])
            fitting.append((file, _measured(material.evaluations, spec, file), course))
    if not fitting:
        if misfit is not None:
            raise misfit
        return None
    measured = [(mean, file) for file, mean, _ in fitting if mean is not None]
    if measured:
        mean, file = max(measured, key=lambda pair: pair[0])
        return Choice(_name(file), file, f"the best of {len(measured)} by mean return, {mean:,.1f}")
    trained = [(course[-1][1], file) for file, _, course in fitting if course]
    trained = [pair for pair in trained if np.isfinite(pair[0])]
    if trained:
        last, file = max(trained, key=lambda pair: pair[0])
        why = f"the best of {len(trained)} by the return at the end of training, {last:,.1f}"
        return Choice(_name(file), file, why)
    file = fitting[0][0]
    return Choice(_name(file), file, "the first one: nothing says which is best")


def shoot(choice: Choice, spec: DomainSpec) -> Film | str:
    """Pictures of an episode, or why there are none."""
    way, problem = try_rendering()
    if way is None:
        return f"MuJoCo draws no pictures here: {problem}"
    with tempfile.TemporaryDirectory() as folder:
        words = (str(choice.file.resolve()), spec.text, folder)
        tried = run_python(_PROGRAM, *words, MUJOCO_GL=way)
        said = _SAID.search(tried.said)
        if tried.problem is not None or said is None:
            return f"drawing the episode {tried.problem or 'ends without pictures'}"
        about = json.loads(said[1])
        pictures = tuple((Path(folder) / f"{step}.png").read_bytes() for step in about["steps"])
    steps, total = tuple(about["steps"]), about["return"]
    return Film(choice, spec.text, steps, pictures, about["length"], total)


def record(policy_file: str, env: str, folder: str) -> None:
    """Run a few episodes, and the one in the middle by return again to draw it.

    Args:
        policy_file: The policy.
        env: The domain.
        folder: Where ``STEP.png`` goes; stdout says which steps, the length and the return.
    """
    from puorl.envs.gymnasium_envs import make_env

    policy = Policy.load(policy_file)
    stage = make_env(env, render_mode="rgb_array")

    def play(seed: int, drawn: Sequence[int] = ()) -> tuple[float, int]:
        (obs, _), step, total, ended = stage.reset(seed=seed), 0, 0.0, False
        while True:
            if step in drawn:
                picture = stage.render()
                assert picture is not None
                (Path(folder) / f"{step}.png").write_bytes(png(shrunk(picture)))
            if ended:
                return total, step
            action = policy.act(np.asarray(obs, np.float32)[None])[0]
            obs, reward, terminated, truncated, _ = stage.step(action)
            step, total, ended = step + 1, total + reward, terminated or truncated

    played = sorted((*play(seed), seed) for seed in range(NUM_EPISODES))
    total, length, seed = played[NUM_EPISODES // 2]
    steps = sorted({int(at) for at in np.linspace(0, length, NUM_FRAMES).round()})
    play(seed, steps)
    stage.close()
    content = json.dumps({"steps": steps, "length": length, "return": total})
    # One line among whatever the graphics may have to say.
    sys.stdout.write(f"\nPUORL {content}\n")


def shrunk(picture: np.ndarray) -> np.ndarray:
    """(h, w, 3) uint8 at half the size, each pixel the mean of four."""
    height, width = (side // _SHRINK for side in picture.shape[:2])
    cut = picture[: height * _SHRINK, : width * _SHRINK]
    blocks = cut.reshape(height, _SHRINK, width, _SHRINK, 3)
    return blocks.mean(axis=(1, 3)).round().astype(np.uint8)


def png(picture: np.ndarray) -> bytes:
    r"""(h, w, 3) uint8 as a PNG file.

    >>> png(np.zeros((2, 3, 3), np.uint8))[:4]
    b'\x89PNG'
    """
    height, width, _ = picture.shape
    # Each byte as its difference to the pixel before it: what is even becomes zeros.
    before = np.zeros_like(picture)
    before[:, 1:] = picture[:, :-1]
    lines = (picture - before).reshape(height, 3 * width)  # modulo 256, as the format wants it
    marked = np.concatenate([np.ones((height, 1), np.uint8), lines], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(marked.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def strip(film: Film) -> Markup:
    """The pictures in a row, as many in each as there is room for."""
    items = []
    for step, picture in zip(film.steps, film.pictures, strict=True):
        data = base64.b64encode(picture).decode()
        items.append(
            f'<div><img src="data:image/png;base64,{data}" alt="{escape(film.env)} after {step} '
            f'steps" style="{_PICTURE}"><span style="{_STEP}">step {step:,}</span></div>'
        )
    caption = (
        f"{film.choice.name} in {film.env}, {film.choice.why}. Of {NUM_EPISODES} episodes the one "
        f"in the middle by return: {film.length:,} steps, return {film.total:,.1f}."
    )
    return figure(Markup(f'<div style="{_GRID}">{"".join(items)}</div>'), caption)


def _measured(seen: list[Evaluated], spec: DomainSpec, file: Path) -> float | None:
    """Mean return in this domain by all evaluations of that file."""
    own = file.resolve().parts[-3:]
    returns = [
        value
        for each in seen
        if each.env == spec.text
        for scored in each.policies
        if Path(scored.policy).resolve().parts[-3:] == own
        for value in scored.returns
    ]
    return float(np.mean(returns)) if returns else None


def _name(file: Path) -> str:
    return f"{file.resolve().parts[-3]}/{file.stem}"


def _chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )
