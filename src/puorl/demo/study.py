"""The demo's computation in three stages: data, filter, training.

Every stage is a function whose result the next one takes, so that a command can print between
them. Nothing here prints or writes.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from puorl.bench.settings import Setting
from puorl.bench.stats import SampleSummary, difference
from puorl.core.errors import TrainingError
from puorl.core.progress import progress_bar
from puorl.core.stats import Estimate, mean_estimate
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.envs.evaluate import Evaluator
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
"""Methods, in the order in which they are shown."""
_SEEDS_APART = 1_000
"""Training seeds of two demo seeds differ."""
_CURVE_STARTS, _FINAL_STARTS = 1, 0
"""Seeds of the start states: the final ones are not those of the learning curves."""


@dataclass(frozen=True)
class DemoSettings:
    """All sizes of the demo."""

    setting: Setting = Setting("entire_body", "halfcheetah", "M/R", rows=40_000, horizon=200)
    """Its seeds follow from the demo's."""
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
    filter_config: FilterConfig = FilterConfig()

    def seeded(self, seed: int) -> "DemoSettings":
        """Return the same with rows, labels and simulation of this seed."""
        return dataclasses.replace(
            self, setting=dataclasses.replace(self.setting, split_seed=seed, data_seed=seed)
        )


SETTINGS = DemoSettings()
"""Settings of `puorl demo`."""


@dataclass(frozen=True, eq=False)
class Data:
    """Stage one: rows of several domains, mixed, with their domains hidden."""

    sources: tuple[Dataset, ...]
    """The target's is the first."""
    split: PUSplit
    seconds: float


@dataclass(frozen=True)
class Truth:
    """The truth about the unlabelled rows, which the filter does not know."""

    alpha: float
    recall: float
    precision: float
    purity: float
    accuracy: float
    score_edge: tuple[float, ...]
    score_target: tuple[float, ...]
    """Fraction of the target's unlabelled rows in each bin of scores."""
    score_other: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Filtered:
    """Stage two: the filter, its label-free report, and the truth."""

    filter: DomainFilter
    report: FilterReport
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


def make_data(settings: DemoSettings, *, show: bool = False) -> Data:
    """Collect the rows of seeded settings, or read them from the cache, and mix them."""
    began = time.perf_counter()
    sources = [source.collect(progress=show) for source in settings.setting.sources]
    split = settings.setting.split(sources[0], sources[1:])
    return Data(tuple(sources), split, time.perf_counter() - began)


def fit_filter(settings: DemoSettings, data: Data, *, show: bool = False) -> Filtered:
    """Fit the filter, check it without labels, then compare it with the truth."""
    began = time.perf_counter()
    seed = settings.setting.split_seed
    own = None if settings.filter_config == FilterConfig() else settings.filter_config
    flt = DomainFilter(config=own)
    flt.fit(data.split, seed=seed, progress=show)
    report = flt.report(data.split, seed=seed, progress=show)
    assert isinstance(report, FilterReport)  # rows are decided about
    return Filtered(flt, report, _truth(flt, data.split, report), time.perf_counter() - began)


def train(settings: DemoSettings, data: Data, filtered: Filtered, *, show: bool = False) -> Trained:
    """Train all policies of all methods side by side, and evaluate them in the target's domain.

    Raises:
        TrainingError: Every policy of a method was given up.
    """
    began = time.perf_counter()
    seed = settings.setting.split_seed
    chosen = {name: methods.make(name) for name in TITLES} | {"pu": PU(filter=filtered.filter)}
    sets = {name: method.prepare(data.split, seed=seed) for name, method in chosen.items()}
    learner = learners.make(
        "td3_bc", num_steps=settings.steps, hidden=settings.hidden, batch_size=settings.batch_size
    )
    numbers = [_SEEDS_APART * seed + k for k in range(settings.num_seeds)]
    lanes = [Lane(line, number) for line in range(len(sets)) for number in numbers]
    training = _Training(settings, trainer.prepare(learner, list(sets.values()), lanes), show)
    found = training.run()
    is_target = data.split.reveal("benchmark") == 0
    return Trained(
        policies=found,
        num_rows={name: len(chosen) for name, chosen in sets.items()},
        target_fraction={
            name: float(is_target[chosen.rows].mean()) for name, chosen in sets.items()
        },
        steps=tuple(training.steps),
        curves=training.curves,
        scores=training.scores,
        stopped=training.stopped,
        seconds=time.perf_counter() - began,
    )


def to_dict(
    settings: DemoSettings, data: Data, filtered: Filtered, trained: Trained
) -> dict[str, Any]:
    """Collect all results, JSON-ready; ``seconds`` depends on the speed of the machine."""
    return {
        "puorl_demo": 1,
        "seed": settings.setting.split_seed,
        "settings": {
            "setting": settings.setting.to_dict(),
            **{f: getattr(settings, f) for f in ("steps", "num_seeds", "batch_size", "episodes")},
            "hidden": list(settings.hidden),
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
        "versions": trainer.versions() | {"mujoco": version("mujoco")},
        "seconds": {
            "data": round(data.seconds, 1),
            "filter": round(filtered.seconds, 1),
            "training": round(trained.seconds, 1),
        },
    }


class _Training:
    """Training of all lanes, with evaluations at intervals."""

    def __init__(self, settings: DemoSettings, job: TrainJob, show: bool) -> None:
        self._settings, self._job, self._show = settings, job, show
        self.steps: list[int] = []
        self.curves: dict[str, list[list[float]]] = {name: [] for name in TITLES}
        self.scores: dict[str, list[float]] = {}
        self.stopped: dict[str, list[str]] = {name: [] for name in TITLES}

    def run(self) -> dict[str, list[Policy]]:
        """Train to the end; return the policies of each method that reached it."""
        settings, cycle = self._settings, self._job.learner.cycle
        every = max(cycle, settings.steps // settings.points // cycle * cycle)
        state = trainer.fresh(self._job)
        total = settings.steps * len(self._job.lanes)
        with progress_bar("training", total=total, unit="updates", show=self._show) as advance:
            for point in trainer.train(self._job, steps=settings.steps, interval=every):
                state, last = point.train_state, self.steps[-1] if self.steps else 0
                self.steps.append(point.step)
                found = self._policies(state, point.step)
                for name, scores in self._evaluate(found, settings.curve_episodes, _CURVE_STARTS):
                    self.curves[name].append(scores)
                done = (point.step - last) * len(self._job.lanes)
                advance(done, f"{done / point.seconds:,.0f} updates/s while training")
        for lane, stop in zip(self._job.lanes, trainer.stopped(self._job, state), strict=True):
            if stop is not None:
                text = f"seed {lane.seed} at step {stop.step:,}: {stop.reason}"
                self.stopped[list(TITLES)[lane.line]].append(text)
        found = self._policies(state, settings.steps)
        with progress_bar("final episodes", total=len(found), show=self._show) as advance:
            for name, made in found.items():
                [(_, scores)] = self._evaluate({name: made}, settings.episodes, _FINAL_STARTS)
                self.scores[name] = scores
                advance(1)
        return found

    def _evaluate(
        self, found: Mapping[str, list[Policy]], episodes: int, seed: int
    ) -> Iterator[tuple[str, list[float]]]:
        """Evaluate all policies together; yield each method with the scores of its policies."""
        lanes = {f"{name}-{k}": p for name, made in found.items() for k, p in enumerate(made)}
        body = self._settings.setting.body
        seen = Evaluator(body, episodes, seed, self._settings.steps).evaluate(lanes)
        assert seen.mean_score is not None
        scores = iter(seen.mean_score.tolist())
        for name, made in found.items():
            yield name, [next(scores) for _ in made]

    def _policies(self, state: trainer.TrainState, step: int) -> dict[str, list[Policy]]:
        found: dict[str, list[Policy]] = {name: [] for name in TITLES}
        made = trainer.policies(self._job, state, steps=step)
        for lane, policy in zip(self._job.lanes, made, strict=True):
            if policy is not None:
                found[list(TITLES)[lane.line]].append(policy)
        lost = [name for name, kept in found.items() if not kept]
        if lost:
            raise TrainingError(
                f"training of {', '.join(lost)} was given up for all seeds by step {step:,}; try "
                "another --seed"
            )
        return found


def _truth(flt: DomainFilter, split: PUSplit, report: FilterReport) -> Truth:
    is_target = split.reveal("benchmark")[split.unlabelled] == 0
    kept, score = flt.predict(split), flt.predict_proba(split)
    num_kept, num_right = int(kept.sum()), int((kept & is_target).sum())
    num_labelled = len(split.labelled)
    edge = np.asarray(report.histogram.edge)
    fractions = [
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
        score_target=tuple(fractions[0].tolist()),
        score_other=tuple(fractions[1].tolist()),
    )


def _source(dataset: Dataset) -> dict[str, Any]:
    provenance, episode = dataset.provenance, dataset.episode
    return {
        "domain": provenance.domain,
        "behaviour": provenance.behaviour,
        "rows": len(dataset),
        "episodes": 0 if episode is None else len(np.unique(episode)),
        "fingerprint": dataset.fingerprint,
    }


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
