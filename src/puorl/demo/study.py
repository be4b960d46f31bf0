"""The demo as a story in four chapters: data, filter, training, and what came of it.

Every chapter is a function that hands its result to the next, so that whoever tells the story may
speak in between. Nothing here prints or writes.
"""

import dataclasses
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from puorl import __version__
from puorl.bench.settings import Setting
from puorl.bench.stats import SampleSummary, difference
from puorl.core.errors import TrainingError
from puorl.core.progress import progress_bar
from puorl.core.stats import Estimate
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.envs.evaluate import evaluate
from puorl.methods import base as methods
from puorl.methods.pu import PU
from puorl.pu.config import FilterConfig
from puorl.pu.filter import DomainFilter
from puorl.pu.report import FilterReport
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.policy import Policy
from puorl.rl.trainer import Lane, TrainJob

TITLES = {"olp": "OLP", "sharing_all": "Sharing-All", "pu": "PU", "oracle": "Oracle"}
"""Methods in the order of the story."""
_SEEDS_APART = 1_000
"""Training seeds of two demo seeds never meet."""
_CURVE_STARTS, _FINAL_STARTS = 1, 0
"""Seeds of the start states: what is reported was never looked at on the way."""


@dataclass(frozen=True)
class Plan:
    """How large everything is."""

    setting: Setting = Setting("entire_body", "halfcheetah", "M/R", rows=40_000, horizon=200)
    """Its seeds are set by the demo's own."""
    steps: int = 6_000
    num_seeds: int = 5
    """Policies trained for each method."""
    hidden: tuple[int, ...] = (64, 64)
    batch_size: int = 64
    points: int = 5
    """Of the learning curves, the last update included."""
    curve_episodes: int = 2
    episodes: int = 5
    """Of every policy after the last update."""
    filter_config: FilterConfig = FilterConfig()

    def seeded(self, seed: int) -> "Plan":
        """The same with rows, labels and simulation of this seed."""
        return dataclasses.replace(
            self, setting=dataclasses.replace(self.setting, split_seed=seed, data_seed=seed)
        )


PLAN = Plan()
"""What `puorl demo` runs; how it was chosen is told in docs/design.md."""


@dataclass(frozen=True, eq=False)
class Data:
    """Chapter one: rows of several domains, mixed, and the labels hidden."""

    sources: tuple[Dataset, ...]
    """The target's first."""
    split: PUSplit
    seconds: float


@dataclass(frozen=True)
class Truth:
    """What the filter could not know: shares over the unlabelled rows."""

    alpha: float
    recall: float
    precision: float
    purity: float
    accuracy: float
    score_edge: tuple[float, ...]
    score_target: tuple[float, ...]
    """Share of the target's unlabelled rows in each bin of scores."""
    score_other: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Filtered:
    """Chapter two: what the filter kept, what it says of that, and the truth."""

    filter: DomainFilter
    report: FilterReport
    truth: Truth
    seconds: float


@dataclass(frozen=True, eq=False)
class Trained:
    """Chapter three: policies of all methods, and their scores on the way and at the end."""

    policies: dict[str, list[Policy]]
    num_rows: dict[str, int]
    target_fraction: dict[str, float]
    """Of each method's rows, how many truly are the target's."""
    steps: tuple[int, ...]
    curves: dict[str, list[list[float]]]
    """Method to mean scores by point and policy."""
    scores: dict[str, list[float]]
    """Method to each policy's mean score over the final episodes."""
    stopped: dict[str, list[str]]
    """Method to why policies were given up, where any was."""
    seconds: float

    def summary(self, method: str) -> SampleSummary:
        """Mean and spread over the method's policies."""
        return SampleSummary.of(self.scores[method])

    def against(self, method: str) -> Estimate:
        """PU minus the method, with Welch's interval."""
        return difference(self.summary("pu"), self.summary(method))


def make_data(plan: Plan, *, show: bool = False) -> Data:
    """Collect the rows of a seeded plan (or read them from the cache), mix and hide them."""
    began = time.perf_counter()
    sources = [source.collect(progress=show) for source in plan.setting.sources]
    split = plan.setting.split(sources[0], sources[1:])
    return Data(tuple(sources), split, time.perf_counter() - began)


def fit_filter(plan: Plan, data: Data, *, show: bool = False) -> Filtered:
    """Learn which rows are the target's, judge that without labels, then open the truth."""
    began = time.perf_counter()
    seed = plan.setting.split_seed
    own = None if plan.filter_config == FilterConfig() else plan.filter_config
    flt = DomainFilter(config=own)
    flt.fit(data.split, seed=seed, progress=show)
    report = flt.report(data.split, seed=seed, progress=show)
    return Filtered(flt, report, _truth(flt, data.split, report), time.perf_counter() - began)


def train(plan: Plan, data: Data, filtered: Filtered, *, show: bool = False) -> Trained:
    """Train all policies of all methods side by side, and run them in the target's domain.

    Raises:
        TrainingError: Every policy of a method was given up.
    """
    began = time.perf_counter()
    seed = plan.setting.split_seed
    sets = {name: _training_set(name, data.split, filtered, seed) for name in TITLES}
    learner = learners.make(
        "td3_bc", num_steps=plan.steps, hidden=plan.hidden, batch_size=plan.batch_size
    )
    numbers = [_SEEDS_APART * seed + k for k in range(plan.num_seeds)]
    lanes = [Lane(line, number) for line in range(len(sets)) for number in numbers]
    work = trainer.prepare(learner, list(sets.values()), lanes)
    course = _Course(plan, work, show)
    found = course.run()
    is_target = data.split.reveal("benchmark") == 0
    return Trained(
        policies={name: found[name] for name in TITLES},
        num_rows={name: len(chosen) for name, chosen in sets.items()},
        target_fraction={
            name: float(is_target[chosen.rows].mean()) for name, chosen in sets.items()
        },
        steps=tuple(course.steps),
        curves=course.curves,
        scores=course.scores,
        stopped=course.stopped,
        seconds=time.perf_counter() - began,
    )


def to_dict(plan: Plan, data: Data, filtered: Filtered, trained: Trained) -> dict[str, Any]:
    """The whole story, JSON-ready; what depends on the machine's pace is under ``seconds``."""
    return {
        "puorl_demo": 1,
        "seed": plan.setting.split_seed,
        "plan": {
            "setting": plan.setting.to_dict(),
            **{f: getattr(plan, f) for f in ("steps", "num_seeds", "batch_size", "episodes")},
            "hidden": list(plan.hidden),
            "learner": "td3_bc",
            "filter": filtered.report.settings["preset"],
        },
        "data": {
            "sources": [_source(each) for each in data.sources],
            "num_labelled": len(data.split.labelled),
            "num_unlabelled": len(data.split.unlabelled),
            "split": data.split.fingerprint,
        },
        "filter": {
            "report": filtered.report.to_dict(),
            "truth": dataclasses.asdict(filtered.truth),
        },
        "methods": {name: _method(trained, name) for name in TITLES},
        "pu_minus": {name: trained.against(name).to_dict() for name in TITLES if name != "pu"},
        "versions": versions(),
        "seconds": {
            "data": round(data.seconds, 1),
            "filter": round(filtered.seconds, 1),
            "training": round(trained.seconds, 1),
        },
    }


def versions() -> dict[str, str]:
    """Of all that decides the numbers."""
    return {
        "puorl": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "mujoco": version("mujoco"),
        "device": jax.default_backend(),
    }


class _Course:
    """Training with rests, at which the policies are looked at."""

    def __init__(self, plan: Plan, work: TrainJob, show: bool) -> None:
        self._plan, self._work, self._show = plan, work, show
        self.steps: list[int] = []
        self.curves: dict[str, list[list[float]]] = {name: [] for name in TITLES}
        self.scores: dict[str, list[float]] = {}
        self.stopped: dict[str, list[str]] = {name: [] for name in TITLES}

    def run(self) -> dict[str, list[Policy]]:
        """Train to the end; the policies of each method that reached it."""
        plan, cycle = self._plan, self._work.learner.cycle
        every = max(cycle, plan.steps // plan.points // cycle * cycle)
        standing = trainer.fresh(self._work)
        total = plan.steps * len(self._work.lanes)
        with progress_bar("training", total=total, unit="updates", show=self._show) as advance:
            for point in trainer.train(self._work, steps=plan.steps, interval=every):
                standing, last = point.train_state, self.steps[-1] if self.steps else 0
                self._look(self._policies(standing, point.step), point.step)
                done = (point.step - last) * len(self._work.lanes)
                advance(done, f"{done / point.seconds:,.0f} updates/s while training")
        self._note_stopped(standing)
        found = self._policies(standing, plan.steps)
        with progress_bar("final episodes", total=len(found), show=self._show) as advance:
            for name, made in found.items():
                seen = self._score(made, self._plan.episodes, _FINAL_STARTS)
                self.scores[name] = [float(score) for score in seen]
                advance(1)
        return found

    def _look(self, found: Mapping[str, list[Policy]], step: int) -> None:
        self.steps.append(step)
        everyone = [policy for made in found.values() for policy in made]
        seen = iter(self._score(everyone, self._plan.curve_episodes, _CURVE_STARTS))
        for name, made in found.items():
            self.curves[name].append([float(next(seen)) for _ in made])

    def _score(self, made: list[Policy], episodes: int, starts: int) -> np.ndarray:
        seen = evaluate(made, self._plan.setting.body, episodes=episodes, seed=starts)
        assert seen.mean_score is not None
        return seen.mean_score

    def _policies(self, standing: trainer.TrainState, step: int) -> dict[str, list[Policy]]:
        made = trainer.policies(self._work, standing, steps=step)
        found: dict[str, list[Policy]] = {name: [] for name in TITLES}
        for lane, policy in zip(self._work.lanes, made, strict=True):
            if policy is not None:
                found[list(TITLES)[lane.line]].append(policy)
        lost = [name for name, kept in found.items() if not kept]
        if lost:
            raise TrainingError(
                f"training of {', '.join(lost)} was given up for all seeds by step {step:,}; try "
                "another --seed"
            )
        return found

    def _note_stopped(self, standing: trainer.TrainState) -> None:
        for lane, stop in zip(self._work.lanes, trainer.stopped(self._work, standing), strict=True):
            if stop is not None:
                self.stopped[list(TITLES)[lane.line]].append(
                    f"seed {lane.seed} at step {stop.step:,}: {stop.reason}"
                )


def _training_set(name: str, split: PUSplit, filtered: Filtered, seed: int) -> TrainingSet:
    method = PU(filter=filtered.filter) if name == "pu" else methods.make(name)
    return method.prepare(split, seed=seed)


def _truth(flt: DomainFilter, split: PUSplit, report: FilterReport) -> Truth:
    is_target = split.reveal("benchmark")[split.unlabelled] == 0
    kept, score = flt.predict(split), flt.score(split)
    num_kept, num_right = int(kept.sum()), int((kept & is_target).sum())
    num_labelled = len(split.labelled)
    edge = np.asarray(report.histogram.edge)
    shares = [
        np.histogram(score[rows], edge)[0] / max(1, int(rows.sum()))
        for rows in (is_target, ~is_target)
    ]
    return Truth(
        alpha=float(is_target.mean()),
        recall=num_right / max(1, int(is_target.sum())),
        precision=num_right / max(1, num_kept),
        purity=(num_right + num_labelled) / (num_kept + num_labelled),
        accuracy=float((kept == is_target).mean()),
        score_edge=tuple(edge.tolist()),
        score_target=tuple(shares[0].tolist()),
        score_other=tuple(shares[1].tolist()),
    )


def _source(dataset: Dataset) -> dict[str, Any]:
    about = dataset.provenance
    episode = dataset.episode
    return {
        "domain": about.domain,
        "behaviour": about.behaviour,
        "rows": len(dataset),
        "episodes": 0 if episode is None else len(np.unique(episode)),
        "fingerprint": dataset.fingerprint,
    }


def _method(trained: Trained, name: str) -> dict[str, Any]:
    summary = trained.summary(name)
    return {
        "rows": trained.num_rows[name],
        "target_fraction": trained.target_fraction[name],
        "mean": summary.mean,
        **_finite({"low": summary.estimate.low, "high": summary.estimate.high}),
        "scores": trained.scores[name],
        "curve": {
            "steps": list(trained.steps),
            "scores": trained.curves[name],
        },
        "policies": [policy.fingerprint for policy in trained.policies[name]],
        "stopped": trained.stopped[name],
    }


def _finite(numbers: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no NaN: the interval of a single run is null."""
    return {name: value if np.isfinite(value) else None for name, value in numbers.items()}
