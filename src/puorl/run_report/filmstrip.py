"""A filmstrip: pictures of one episode of a policy, drawn in another process.

Drawing needs the graphics of the machine, which may crash: then the page has a sentence instead.
"""

import base64
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from puorl.core.errors import DataError
from puorl.core.installation import find_renderer, run_python
from puorl.envs.domains import DomainSpec
from puorl.envs.evaluate import check_sizes
from puorl.html.page import Markup, escape, figure
from puorl.rl.policy import Policy
from puorl.run_report.folders import Evaluated, Material

NUM_FRAMES, NUM_EPISODES = 8, 5
_SHRINK = 2  # pictures of half the size suffice for a strip
_PROGRAM = "import sys; from puorl.run_report.filmstrip import record; record(*sys.argv[1:])"
_GRID = "display:grid;grid-template-columns:repeat(auto-fit,minmax(4.4rem,1fr));gap:.4rem"
_PICTURE = "display:block;width:100%;height:auto;border-radius:.3rem"
_STEP = "color:var(--muted);font-size:.8rem;font-variant-numeric:tabular-nums"


@dataclass(frozen=True)
class Choice:
    """The policy to show, and the reason."""

    name: str
    file: Path
    why: str


@dataclass(frozen=True)
class Filmstrip:
    """Pictures of one episode."""

    choice: Choice
    env: str
    steps: tuple[int, ...]
    """The step at which each picture was taken."""
    pictures: tuple[bytes, ...]
    """PNG files."""
    length: int
    total: float
    """The episode's return."""

    def to_dict(self) -> dict[str, object]:
        """Return the content but for the pictures, JSON-ready."""
        policy, steps = str(self.choice.file), list(self.steps)
        return {"policy": policy, "env": self.env, "steps": steps, "return": self.total}


def make_filmstrip(material: Material, spec: DomainSpec | None) -> Filmstrip | str:
    """Draw the best policy, or return why there is no strip; empty where none is expected."""
    if spec is None:
        needs = "it needs --env, a simulated domain to run the policy in"
        return needs if material.trainings else ""
    choice = choose(material, spec)
    if choice is None:
        return "no folder named here holds a policy whose training has ended"
    return draw(choice, spec)


def choose(material: Material, spec: DomainSpec) -> Choice | None:
    """Choose the best policy in a domain by what is recorded; None without policies.

    Raises:
        DataError: No policy has the states and actions of the domain.
    """
    fitting, misfit = [], None
    for training in material.trainings:
        for name, file in training.policies.items():
            policy = Policy.load(file)
            try:
                sizes = policy.obs_dim, policy.act_dim, policy.codes
                check_sizes(spec, *sizes, f"{file}: the policy")
            except DataError as error:
                misfit = misfit or error
                continue
            curve = training.metrics.get("return", {}).get(name, [])
            fitting.append((file, _mean_return(material.evaluations, spec, file), curve))
    if not fitting:
        if misfit is not None:
            raise misfit
        return None
    measured = [(mean, file) for file, mean, _ in fitting if mean is not None]
    if measured:
        mean, file = max(measured, key=lambda pair: pair[0])
        return Choice(_name(file), file, f"the best of {len(measured)} by mean return, {mean:,.1f}")
    trained = [(curve[-1][1], file) for file, _, curve in fitting if curve]
    trained = [pair for pair in trained if np.isfinite(pair[0])]
    if trained:
        last, file = max(trained, key=lambda pair: pair[0])
        why = f"the best of {len(trained)} by the return at the end of training, {last:,.1f}"
        return Choice(_name(file), file, why)
    file = fitting[0][0]
    return Choice(_name(file), file, "the first one: nothing says which is best")


def draw(choice: Choice, spec: DomainSpec) -> Filmstrip | str:
    """Draw an episode, or return why that is not possible."""
    renderer, problem = find_renderer()
    if renderer is None:
        return f"MuJoCo draws no pictures here: {problem}"
    with tempfile.TemporaryDirectory() as folder:
        words = (str(choice.file.resolve()), spec.text, folder)
        tried = run_python(_PROGRAM, *words, MUJOCO_GL=renderer)
        if tried.problem is not None or not tried.answers:
            return f"drawing the episode {tried.problem or 'ends without pictures'}"
        seen = json.loads(tried.answers[0])
        pictures = tuple((Path(folder) / f"{step}.png").read_bytes() for step in seen["steps"])
    return Filmstrip(
        choice, spec.text, tuple(seen["steps"]), pictures, seen["length"], seen["return"]
    )


def record(policy_file: str, env: str, folder: str) -> None:
    """Run a few episodes, then run and draw again the one with the median return.

    Args:
        policy_file: The policy.
        env: The domain.
        folder: Folder for ``STEP.png``; steps, length and return go to stdout.
    """
    from puorl.envs.gymnasium_envs import make_env

    policy = Policy.load(policy_file)
    simulator = make_env(env, render_mode="rgb_array")

    def play(seed: int, drawn: Sequence[int] = ()) -> tuple[float, int]:
        (obs, _), step, total, ended = simulator.reset(seed=seed), 0, 0.0, False
        while True:
            if step in drawn:
                picture = simulator.render()
                assert picture is not None
                (Path(folder) / f"{step}.png").write_bytes(png(shrink(picture)))
            if ended:
                return total, step
            action = policy.act(np.asarray(obs, np.float32)[None])[0]
            obs, reward, terminated, truncated, _ = simulator.step(action)
            step, total, ended = step + 1, total + reward, terminated or truncated

    played = sorted((*play(seed), seed) for seed in range(NUM_EPISODES))
    total, length, seed = played[NUM_EPISODES // 2]
    steps = sorted({int(at) for at in np.linspace(0, length, NUM_FRAMES).round()})
    play(seed, steps)
    simulator.close()
    content = json.dumps({"steps": steps, "length": length, "return": total})
    sys.stdout.write(f"\nPUORL {content}\n")


def shrink(picture: np.ndarray) -> np.ndarray:
    """Halve the size of (h, w, 3) uint8; each pixel is the mean of four."""
    height, width = (side // _SHRINK for side in picture.shape[:2])
    cut = picture[: height * _SHRINK, : width * _SHRINK]
    blocks = cut.reshape(height, _SHRINK, width, _SHRINK, 3)
    return blocks.mean(axis=(1, 3)).round().astype(np.uint8)


def png(picture: np.ndarray) -> bytes:
    """Encode (h, w, 3) uint8 as a PNG file."""
    from imageio.v3 import imwrite  # part of the extra sim, as MuJoCo is

    return imwrite("<bytes>", picture, extension=".png")


def as_html(strip: Filmstrip) -> Markup:
    """Lay the pictures out in a row, as many in each as fit."""
    items = []
    for step, picture in zip(strip.steps, strip.pictures, strict=True):
        data = base64.b64encode(picture).decode()
        items.append(
            f'<div><img src="data:image/png;base64,{data}" alt="{escape(strip.env)} after {step} '
            f'steps" style="{_PICTURE}"><span style="{_STEP}">step {step:,}</span></div>'
        )
    caption = (
        f"{strip.choice.name} in {strip.env}, {strip.choice.why}. Of {NUM_EPISODES} episodes, the "
        f"one with the median return: {strip.length:,} steps, return {strip.total:,.1f}."
    )
    return figure(Markup(f'<div style="{_GRID}">{"".join(items)}</div>'), caption)


def _mean_return(seen: list[Evaluated], spec: DomainSpec, file: Path) -> float | None:
    """Average the returns in this domain over all evaluations of that file."""
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
