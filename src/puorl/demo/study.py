"""The demo's computation in three stages: data, filter, training.

A fleet of robots of one kind, some with a weak motor; one robot is known to be sound. Every stage
is a function whose result the next one takes, so that a command can print between them. Nothing
here prints or writes.
"""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from puorl.bench.stats import SampleSummary, difference
from puorl.core.errors import TrainingError
from puorl.core.hashing import generator
from puorl.core.progress import progress_bar
from puorl.core.stats import Estimate, mean_estimate
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.envs.collect import collect
from puorl.envs.evaluate import Evaluator
from puorl.pu.config import FilterConfig, MachineConfig
from puorl.pu.filter import DomainFilter
from puorl.pu.machines.report import MachineReport
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.policy import Policy
from puorl.rl.run import RunSpec, TrainProgress, run_in_memory

TITLES = {"olp": "OLP", "sharing_all": "Sharing-All", "pu": "PU", "oracle": "Oracle"}
"""Methods, in the order in which they are shown."""
UNIT = "column:robot"
_WORN = ("mass", "friction", "strength")
_SEEDS_APART = 1_000
"""Training seeds of two demo seeds differ, and so do seeds of two robots."""
_CURVE_STARTS, _FINAL_STARTS = 1, 0
"""Seeds of the start states: the final ones are not those of the learning curves."""


class Controller(NamedTuple):
    """A controller that drives a robot in a run."""

    name: str
    quality: str
    policy_domain: str
    """Domain in which it was trained."""


A = Controller("controller A", "medium", "nominal")
B = Controller("controller B", "medium", "joint_noise")
TEST = Controller("test signal", "random", "nominal")
CONTROLLERS = (A, B, TEST)


@dataclass(frozen=True)
class DemoSettings:
    """All sizes of the demo."""

    seed: int = 0
    body: str = "halfcheetah"
    weakness: str = "strength:bthigh=0.7"
    """Defect of the other robots, as a shift."""
    wear: float = 0.02
    """Masses, friction and motors of every robot differ by up to this."""
    num_sound: int = 15
    num_weak: int = 15
    sound_runs: tuple[int, ...] = (2, 2, 0)
    """Runs of a sound robot with each of the controllers."""
    weak_runs: tuple[int, ...] = (1, 1, 3)
    horizon: int = 200
    """Steps of a run."""
    steps: int = 6_000
    num_seeds: int = 5
    """Policies for each method."""
    hidden: tuple[int, ...] = (64, 64)
    batch_size: int = 64
    points: int = 5
    """Points of the learning curves, the last update included."""
    curve_episodes: int = 2
    episodes: int = 5
    """Episodes of every policy after the last update."""
    machines: MachineConfig = MachineConfig(
        latent_sizes=(1, 2),
        num_seeds=1,
        num_steps=1_000,
        batch_size=256,
        num_lags=0,
        horizons=(1, 4),
    )
    """Fewer and smaller models than by default: a simulator logs the whole state, without noise."""

    def seeded(self, seed: int) -> "DemoSettings":
        """Return the same with robots, simulation and training of this seed."""
        return dataclasses.replace(self, seed=seed)

    @property
    def num_rows(self) -> int:
        """Rows of the whole log."""
        sound = self.num_sound * sum(self.sound_runs)
        return self.horizon * (sound + self.num_weak * sum(self.weak_runs))


SETTINGS = DemoSettings()
"""Settings of `puorl demo`."""


@dataclass(frozen=True)
class Robot:
    """One robot of the fleet, and the truth about it."""

    name: str
    domain: str
    is_sound: bool
    runs: tuple[int, ...]
    """Runs with each of the controllers."""


@dataclass(frozen=True, eq=False)
class Data:
    """Stage one: the log of the whole fleet, and one robot that is known to be sound."""

    robots: tuple[Robot, ...]
    """By name."""
    known: str
    split: PUSplit
    seconds: float

    @property
    def is_sound(self) -> np.ndarray:
        """(n,) bool. The truth about the rows."""
        sound = [robot.name for robot in self.robots if robot.is_sound]
        return np.isin(self.split.pool.columns["robot"], sound)


@dataclass(frozen=True)
class Truth:
    """The truth about the robots that are not known, which the filter does not have."""

    alpha: float
    recall: float
    precision: float
    num_right: int
    """Robots, of those that are not known, about which the filter is right."""
    num_asked: int


@dataclass(frozen=True, eq=False)
class Filtered:
    """Stage two: the filter, its label-free report, and the truth."""

    filter: DomainFilter
    report: MachineReport
    truth: Truth
    seconds: float


@dataclass(frozen=True, eq=False)
class Trained:
    """Stage three: policies of all methods, with their scores during and after training."""

    policies: dict[str, list[Policy]]
    num_rows: dict[str, int]
    target_fraction: dict[str, float]
    """Fraction of each method's rows that is truly the target's."""
    steps: tuple[int, ...]
    curves: dict[str, list[list[float]]]
    """Method to mean scores, by point and policy."""
    scores: dict[str, list[float]]
    """Method to each policy's mean score over the final episodes."""
    stopped: dict[str, list[str]]
    """Method to why policies were given up, where any was."""
    seconds: float

    def mean(self, method: str) -> Estimate:
        """Average the scores of a method's policies."""
        return mean_estimate(self.scores[method])

    def against(self, method: str) -> Estimate:
        """Estimate PU minus the method, with Welch's interval."""
        one, other = (SampleSummary.of(self.scores[name]) for name in ("pu", method))
        return difference(one, other)


def draw_robots(settings: DemoSettings) -> tuple[Robot, ...]:
    """Draw the wear of every robot; names say nothing about the rest."""
    rng = generator(settings.seed, "demo", "robots")
    count = settings.num_sound + settings.num_weak
    made = []
    for number, place in enumerate(rng.permutation(count)):
        is_sound = number < settings.num_sound
        factor = 1.0 + settings.wear * rng.uniform(-1.0, 1.0, len(_WORN))
        parts = [f"{name}={f:.4f}" for name, f in zip(_WORN, factor, strict=True)]
        domain = "+".join(parts if is_sound else [settings.weakness, *parts])
        runs = settings.sound_runs if is_sound else settings.weak_runs
        made.append(Robot(f"R-{place + 1:02d}", domain, is_sound, runs))
    return tuple(sorted(made, key=lambda robot: robot.name))


def make_data(settings: DemoSettings, *, show: bool = False) -> Data:
    """Record all runs of all robots, or read them from the cache, and label one robot."""
    began = time.perf_counter()
    robots = draw_robots(settings)
    parts: list[Dataset] = []
    with progress_bar("robots", total=len(robots), show=show) as advance:
        for number, robot in enumerate(robots):
            parts += [
                _record(settings, robot, controller, runs, number)
                for controller, runs in zip(CONTROLLERS, robot.runs, strict=True)
                if runs
            ]
            advance(1)
    log = Dataset.concatenate(parts)
    known = next(robot.name for robot in robots if robot.is_sound)
    split = PUSplit.from_mask(log, log.columns["robot"] == known)
    return Data(robots, known, split, time.perf_counter() - began)


def _record(
    settings: DemoSettings, robot: Robot, controller: Controller, runs: int, number: int
) -> Dataset:
    played = collect(
        settings.body,
        robot.domain,
        controller.quality,
        runs * settings.horizon,
        _SEEDS_APART * settings.seed + number,
        policy_domain=controller.policy_domain,
        horizon=settings.horizon,
    )
    return dataclasses.replace(played, columns={"robot": np.full(len(played), robot.name)})


def fit_filter(settings: DemoSettings, data: Data, *, show: bool = False) -> Filtered:
    """Fit the filter to the log with one known robot, then compare it with the truth."""
    began = time.perf_counter()
    config = FilterConfig(machines=settings.machines)
    flt = DomainFilter(unit=UNIT, config=None if config == FilterConfig() else config)
    flt.fit(data.split, seed=settings.seed, progress=show)
    report = flt.report(data.split)
    assert isinstance(report, MachineReport)  # units are decided about
    return Filtered(flt, report, _truth(flt, data), time.perf_counter() - began)


def train(settings: DemoSettings, data: Data, filtered: Filtered, *, show: bool = False) -> Trained:
    """Train all policies of all methods side by side, and evaluate them on a sound robot.

    Raises:
        TrainingError: Every policy of a method was given up.
    """
    began = time.perf_counter()
    split = data.split
    rows = {
        "olp": split.labelled,
        "sharing_all": np.arange(len(split.pool)),
        "pu": filtered.filter.filter(split).rows,
        "oracle": np.flatnonzero(data.is_sound),
    }
    sets = {name: TrainingSet(split.pool, rows[name], returns=split.returns) for name in TITLES}
    learner = learners.make(
        "td3_bc", num_steps=settings.steps, hidden=settings.hidden, batch_size=settings.batch_size
    )
    cycle = learner.cycle
    interval = max(cycle, settings.steps // settings.points // cycle * cycle)
    numbers = [_SEEDS_APART * settings.seed + k for k in range(settings.num_seeds)]
    spec = RunSpec(learner, sets, dict.fromkeys(sets, numbers), settings.steps, interval)
    steps: list[int] = []
    curves: dict[str, list[list[float]]] = {name: [] for name in TITLES}

    def evaluate(previous: int, step: int, policies: Mapping[str, Policy]) -> dict[str, Any]:
        del previous
        steps.append(step)
        seen = _evaluate(settings, _by_method(policies), settings.curve_episodes, _CURVE_STARTS)
        for name, scores in seen:
            curves[name].append(scores)
        return {}

    progress = TrainProgress(None, spec)
    with progress.bar(show=show):
        result = run_in_memory(spec, evaluate=evaluate, on_checkpoint=progress.on_checkpoint)
    found = _by_method(result.policies)
    scores: dict[str, list[float]] = {}
    with progress_bar("final episodes", total=len(found), show=show) as advance:
        for name, made in found.items():
            scores |= _evaluate(settings, {name: made}, settings.episodes, _FINAL_STARTS)
            advance(1)
    stopped: dict[str, list[str]] = {name: [] for name in TITLES}
    for name, stop in result.stopped.items():
        method, _, seed = name.partition("-seed-")
        stopped[method].append(f"seed {seed} at step {stop.step:,}: {stop.reason}")
    return Trained(
        policies=found,
        num_rows={name: len(chosen) for name, chosen in sets.items()},
        target_fraction={name: float(data.is_sound[rows[name]].mean()) for name in TITLES},
        steps=tuple(steps),
        curves=curves,
        scores=scores,
        stopped=stopped,
        seconds=time.perf_counter() - began,
    )


def _by_method(policies: Mapping[str, Policy]) -> dict[str, list[Policy]]:
    """Sort the policies of all lanes by method.

    Raises:
        TrainingError: Every policy of a method was given up.
    """
    found: dict[str, list[Policy]] = {name: [] for name in TITLES}
    for name, policy in policies.items():
        found[name.partition("-seed-")[0]].append(policy)
    if lost := [name for name, kept in found.items() if not kept]:
        raise TrainingError(
            f"training of {', '.join(lost)} was given up for all seeds; try another --seed"
        )
    return found


def _evaluate(
    settings: DemoSettings, found: Mapping[str, list[Policy]], episodes: int, seed: int
) -> list[tuple[str, list[float]]]:
    """Evaluate all policies together; return each method with the scores of its policies."""
    lanes = {f"{name}-{k}": p for name, made in found.items() for k, p in enumerate(made)}
    seen = Evaluator(settings.body, episodes, seed, settings.steps).evaluate(lanes)
    assert seen.mean_score is not None
    scores = iter(seen.mean_score.tolist())
    return [(name, [next(scores) for _ in made]) for name, made in found.items()]


def to_dict(
    settings: DemoSettings, data: Data, filtered: Filtered, trained: Trained
) -> dict[str, Any]:
    """Collect all results, JSON-ready; ``seconds`` depends on the speed of the machine."""
    return {
        "puorl_demo": 2,
        "seed": settings.seed,
        "settings": {
            **dataclasses.asdict(settings),
            "learner": "td3_bc",
            "filter": filtered.report.settings["preset"],
        },
        "data": {
            "robots": [dataclasses.asdict(robot) for robot in data.robots],
            "known": data.known,
            "rows": len(data.split.pool),
            "num_labelled": len(data.split.labelled),
            "num_unlabelled": len(data.split.unlabelled),
            "fingerprint": data.split.pool.fingerprint,
            "split": data.split.fingerprint,
        },
        "filter": {
            "report": filtered.report.to_dict(),
            "truth": dataclasses.asdict(filtered.truth),
        },
        "methods": {name: _method(trained, name) for name in TITLES},
        "pu_minus": {name: trained.against(name).to_dict() for name in TITLES if name != "pu"},
        "versions": trainer.versions() | {"mujoco": version("mujoco")},
        "seconds": {
            "data": round(data.seconds, 1),
            "filter": round(filtered.seconds, 1),
            "training": round(trained.seconds, 1),
        },
    }


def _truth(flt: DomainFilter, data: Data) -> Truth:
    is_sound = data.is_sound[data.split.unlabelled]
    kept = flt.predict(data.split)
    num_right = int((kept & is_sound).sum())
    sound = [robot.name for robot in data.robots if robot.is_sound]
    units = flt.units_
    right = (units.keep == np.isin(units.name, sound))[~units.labelled]
    return Truth(
        alpha=float(is_sound.mean()),
        recall=num_right / max(1, int(is_sound.sum())),
        precision=num_right / max(1, int(kept.sum())),
        num_right=int(right.sum()),
        num_asked=len(right),
    )


def _method(trained: Trained, name: str) -> dict[str, Any]:
    mean = trained.mean(name).to_dict()
    return {
        "rows": trained.num_rows[name],
        "target_fraction": trained.target_fraction[name],
        "mean": mean.pop("value"),
        **mean,
        "scores": trained.scores[name],
        "curve": {"steps": list(trained.steps), "scores": trained.curves[name]},
        "policies": [policy.fingerprint for policy in trained.policies[name]],
        "stopped": trained.stopped[name],
    }
