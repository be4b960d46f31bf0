"""Rows of the store as cells: a setting, a method and its runs; missing runs are listed."""

import csv
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from puorl import methods
from puorl.bench.settings import QUALITIES, SHIFTS, Setting
from puorl.bench.stats import SampleSummary, SettingScores, Spread, spread
from puorl.bench.store import Row
from puorl.bench.suites import BODIES, Budget
from puorl.core.errors import DataError
from puorl.envs.behaviour import standard_version
from puorl.rl.learner import LEARNERS

_LEARNERS = ("td3_bc", "iql")
_NAMES = {
    **{name: entry.title for name, entry in methods.METHODS.items() if entry.title},
    **LEARNERS,
    "hopper": "Hopper",
    "halfcheetah": "HalfCheetah",
    "walker2d": "Walker2d",
    "body_mass": "body mass",
    "entire_body": "entire body",
}


def display(name: str) -> str:
    """Return a name of the store as tables show it.

    >>> display("td3_bc"), display("my_own")
    ('TD3+BC', 'my own')
    """
    return _NAMES.get(name, name.replace("_", " "))


class Named(NamedTuple):
    """A method or a learner; ``variant`` lists settings that differ from the usual ones."""

    name: str
    variant: str = ""

    @property
    def title(self) -> str:
        """Name in tables."""
        return display(self.name) + (f" ({self.variant})" if self.variant else "")

    @property
    def entry(self) -> methods.MethodEntry:
        """Facts about the method; defaults for a name that is not registered."""
        return methods.METHODS.get(self.name, methods.MethodEntry(""))


FOCUS = Named(next(name for name, entry in methods.METHODS.items() if entry.has_filter))
"""The method that reports compare with all others."""


class Section(NamedTuple):
    """Settings that share a table; without a shift, those of all shifts."""

    learner: Named
    num_rows: int
    target_fraction: float
    num_steps: int
    labelled_fraction: float
    shift: str = ""

    @property
    def is_full_size(self) -> bool:
        """Whether rows, updates and the target's fraction are the benchmark's defaults."""
        size = (self.num_rows, self.num_steps, self.target_fraction)
        return size == (Setting.rows, Budget.steps, Setting.target_fraction)

    @property
    def title(self) -> str:
        """Fields that all settings share."""
        shift = f", {display(self.shift)} shift" if self.shift else ""
        text = f"{self.learner.title}{shift}, {100 * self.labelled_fraction:.3g}\u00a0% labelled"
        if self.is_full_size:
            return text
        size = f"{self.num_rows:,} rows, {self.num_steps:,} updates"
        return f"{text}, {size}, {100 * self.target_fraction:.3g}\u00a0% target"


class Task(NamedTuple):
    """A setting with any split seed, and the learner with its number of updates."""

    section: Section
    body: str
    quality: str
    policy_version: int = 1
    """Of the behaviour policies."""

    @property
    def title(self) -> str:
        """Name within its section."""
        usual = standard_version(self.body)
        version = f" (policies v{self.policy_version})" if self.policy_version != usual else ""
        return f"{display(self.body)} {self.quality}{version}"

    @property
    def setting(self) -> str:
        """Name of the setting, as `Setting.name`."""
        quality = self.quality.replace("/", "-")
        return f"{self.body}/{self.section.shift}/{quality}/{self.section.labelled_fraction:g}"


@dataclass(frozen=True)
class RunResult:
    """One run that was trained to its end."""

    seed: int
    split_seed: int
    value: float
    """Mean over its final episodes: a normalised score, or a return where there is no score."""
    training: str
    curve: tuple[tuple[float, float], ...]
    filter: Mapping[str, Any] | None


@dataclass(frozen=True)
class CellResult:
    """Runs of one method in one setting."""

    runs: tuple[RunResult, ...]
    """On the split of the tables, by training seed."""
    on_splits: Mapping[int, Sequence[float]]
    """Split seed to the values of its runs, the split of the tables included."""
    holes: Mapping[str, tuple[int, ...]]
    """Reason to the training seeds that are missing on the split of the tables."""

    @cached_property
    def summary(self) -> SampleSummary | None:
        """Over training seeds; None where there is no run."""
        return SampleSummary.of([run.value for run in self.runs]) if self.runs else None

    @cached_property
    def spread(self) -> Spread:
        """Spread by training seed and by split seed."""
        return spread(self.on_splits)

    @property
    def scores(self) -> SettingScores:
        """The runs as aggregates take them."""
        values = np.array([run.value for run in self.runs], np.float64)
        return SettingScores(values, tuple(run.training for run in self.runs))

    @property
    def filter(self) -> dict[str, float]:
        """Numbers about the filter; the mean where there are several filters."""
        found = {json.dumps(run.filter, sort_keys=True): run.filter for run in self.runs}
        known: dict[str, list[float]] = defaultdict(list)
        for each in found.values():
            for name, value in (each or {}).items():
                if isinstance(value, int | float) and math.isfinite(value):
                    known[name].append(float(value))
        return {name: float(np.mean(values)) for name, values in known.items()}


@dataclass(frozen=True)
class Reference:
    """Published numbers that a report compares with its own.

    A reference is a CSV file with a header and the columns ``setting`` (as `Setting.name`),
    ``learner``, ``method``, ``measure`` (``score`` or ``accuracy``, in percent), ``mean``, ``num``
    (of runs), and ``half_width`` of Student's 95 % interval or ``std``. Its numbers are of the
    benchmark's full size.
    """

    name: str
    """Name of the file, without its suffix."""
    scores: Mapping[tuple[str, str, str], SampleSummary]
    """Setting, learner and method to the scores of its runs."""
    accuracies: Mapping[str, SampleSummary]
    """Setting to the filter's accuracy in percent."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Reference":
        """Read a file; ``paper`` is the file of this package with the paper's numbers.

        >>> reference = Reference.load("paper")
        >>> len(reference.scores), reference.accuracies["hopper/body_mass/ME-ME/0.01"].mean
        (468, 99.54)

        Raises:
            DataError: The file cannot be read, or is of another kind.
        """
        path = Path(path)
        shipped = files("puorl.bench") / "paper.csv"
        try:
            text = (shipped if path == Path("paper") else path).read_text(encoding="utf-8")
            scores: dict[tuple[str, str, str], SampleSummary] = {}
            accuracies: dict[str, SampleSummary] = {}
            for row in csv.DictReader(text.splitlines()):
                if row["measure"] == "accuracy":
                    accuracies[row["setting"]] = _published(row)
                else:
                    scores[row["setting"], row["learner"], row["method"]] = _published(row)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: expected a CSV file with the columns setting, learner, method, measure, "
                f"mean, half_width, std, num; got: {error!r}"
            ) from error
        return cls(path.stem, scores, accuracies)

    def summary(self, task: Task, method: Named) -> SampleSummary | None:
        """Return the scores of a method in a setting, if there are any."""
        return self.scores.get((task.setting, task.section.learner.name, method.name))

    def accuracy(self, task: Task) -> float | None:
        """Return the accuracy of the filter in a setting, if there is one."""
        found = self.accuracies.get(task.setting)
        return None if found is None else found.mean / 100


def _published(row: Mapping[str, str]) -> SampleSummary:
    num = int(row["num"])
    if row["std"]:
        return SampleSummary(num, float(row["mean"]), float(row["std"]))
    return SampleSummary.from_interval(float(row["mean"]), float(row["half_width"]), num)


@dataclass(frozen=True)
class Results:
    """All cells of a store."""

    tasks: tuple[Task, ...]
    methods: tuple[Named, ...]
    cells: Mapping[tuple[Task, Named], CellResult]
    split_seed: int
    """Seed of the split of the tables: the one with most runs."""
    in_returns: frozenset[Section]
    """Sections whose domain has no normalised score: their numbers are returns."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def sections(self) -> tuple[Section, ...]:
        """Sections in the order of their tables."""
        return tuple(dict.fromkeys(task.section for task in self.tasks))

    def tasks_of(self, section: Section) -> tuple[Task, ...]:
        """List the settings of a section, in order."""
        return tuple(task for task in self.tasks if task.section == section)

    def methods_of(self, tasks: Iterable[Task]) -> tuple[Named, ...]:
        """List the methods with a row in one of these settings."""
        tasks = tuple(tasks)
        return tuple(m for m in self.methods if any((task, m) in self.cells for task in tasks))

    def summary(self, task: Task, method: Named) -> SampleSummary | None:
        """Summarise a cell over training seeds; None where there is no run."""
        cell = self.cells.get((task, method))
        return cell.summary if cell else None


def collect_results(rows: Iterable[Row], notes: Iterable[str] = ()) -> Results:
    """Sort the valid rows (`Store.latest`) into cells.

    Args:
        rows: One row a run.
        notes: Notes of the store.

    Raises:
        DataError: There is no row that can be read.
    """
    entries, skipped = _read_all(rows)
    if not entries:
        raise DataError("results: expected rows of puorl bench run, got none that can be read")
    learners = _variants(entries, "learner")
    names = _variants(entries, "method")
    in_returns = _without_scores(entries, learners)
    split_seed = _busiest_split(entries)
    placed: dict[tuple[Task, Named], dict[tuple[int, int], _Entry]] = defaultdict(dict)
    for entry in entries:
        key = (entry.task(learners[entry.learner_key]), names[entry.method_key])
        where = (entry.split_seed, entry.seed)
        if where in placed[key]:
            skipped.append(
                f"{entry.row['run']}: takes the place of an earlier run with the same setting, "
                "method and seed"
            )
        placed[key][where] = entry
    wanted: dict[Section, set[int]] = defaultdict(set)
    for (task, _), found in placed.items():
        wanted[task.section] |= {seed for split, seed in found if split == split_seed}
    cells = {
        (task, method): _cell(
            found, split_seed, wanted[task.section], in_returns=task.section in in_returns
        )
        for (task, method), found in placed.items()
    }
    return Results(
        tasks=tuple(sorted({task for task, _ in cells}, key=_task_order)),
        methods=tuple(sorted({method for _, method in cells}, key=_method_order)),
        cells=cells,
        split_seed=split_seed,
        in_returns=frozenset(in_returns),
        rows=tuple(entry.row for entry in entries),
        notes=(*notes, *skipped),
    )


@dataclass(frozen=True)
class _Entry:
    """A row, and the values that decide its cell."""

    row: Row
    place: Task
    """With a learner without a name."""
    seed: int
    split_seed: int

    @property
    def method_key(self) -> tuple[str, str]:
        return self.row["method"], _canonical(self.row.get("method_settings"))

    @property
    def learner_key(self) -> tuple[str, str]:
        return self.row["learner"], _canonical(self.row.get("config"))

    def task(self, learner: Named) -> Task:
        return self.place._replace(section=self.place.section._replace(learner=learner))


def _read_all(rows: Iterable[Row]) -> tuple[list[_Entry], list[str]]:
    entries, skipped = [], []
    for row in rows:
        try:
            entries.append(_entry(row))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            skipped.append(
                f"{row.get('run')}: not a row of the benchmark, it is skipped ({error!r})"
            )
    return entries, skipped


def _entry(row: Row) -> _Entry:
    setting = row["setting"]
    section = Section(
        Named(""),
        int(setting["rows"]),
        float(setting["target_fraction"]),
        int(row["steps"]),
        float(setting["labelled_fraction"]),
        str(setting["shift"]),
    )
    if not (isinstance(row["method"], str) and isinstance(row["learner"], str)):
        raise TypeError("method and learner must be text")
    version = int(setting.get("policy_version", 1))
    place = Task(section, str(setting["body"]), str(setting["quality"]), version)
    return _Entry(row, place, int(row["seed"]), int(setting["split_seed"]))


def _variants(entries: list[_Entry], kind: str) -> dict[tuple[str, str], Named]:
    """Name all (name, settings): plain, unless one name has two versions in one setting.

    Settings of a method may differ from one setting to the next. A variant is shown only where
    two versions of one name meet in a setting, and then everywhere.
    """
    versions: dict[tuple[str, str], int] = Counter()
    given: dict[tuple[str, str], str] = {}
    met: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for entry in entries:
        key = entry.method_key if kind == "method" else entry.learner_key
        other = entry.learner_key if kind == "method" else entry.method_key
        versions[key] += 1
        if kind == "method" and entry.row.get("variant"):
            given[key] = str(entry.row["variant"])
        met[(key[0], entry.place, entry.split_seed, other)].add(key[1])
    doubled = {name for (name, *_), found in met.items() if len(found) > 1}
    usual: dict[str, str] = {}
    for name, settings in sorted(versions, key=lambda key: -versions[key]):
        usual.setdefault(name, settings)
    names = {}
    for name, settings in versions:
        is_variant = settings != usual[name] and name in doubled
        variant = given.get((name, settings)) or _differences(settings, usual[name])
        names[name, settings] = Named(name, variant if is_variant else "")
    return names


def _differences(settings: str, usual: str) -> str:
    one, other = _flat(json.loads(settings)), _flat(json.loads(usual))
    keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return ", ".join(f"{key}={one.get(key, 'none')}" for key in keys)


def _flat(settings: Any, prefix: str = "") -> dict[str, str]:
    if not isinstance(settings, dict):
        return {prefix.rstrip("."): str(settings)}
    flat: dict[str, str] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.")
    return flat


def _canonical(settings: Any) -> str:
    return json.dumps(settings or {}, sort_keys=True)


def _without_scores(
    entries: list[_Entry], learners: Mapping[tuple[str, str], Named]
) -> set[Section]:
    found: dict[str, set[Section]] = {"returns": set(), "scores": set()}
    for entry in entries:
        for name, sections in found.items():
            if entry.row.get(name):
                sections.add(entry.task(learners[entry.learner_key]).section)
    return found["returns"] - found["scores"]


def _busiest_split(entries: list[_Entry]) -> int:
    done = [entry for entry in entries if entry.row.get("error") is None]
    count = Counter(entry.split_seed for entry in done or entries)
    return min(count, key=lambda seed: (-count[seed], seed))


def _cell(
    found: Mapping[tuple[int, int], _Entry],
    split_seed: int,
    wanted: set[int],
    *,
    in_returns: bool,
) -> CellResult:
    runs, why, on_splits = [], dict.fromkeys(sorted(wanted), "not run"), defaultdict(list)
    for (split, seed), entry in sorted(found.items()):
        outcome = _outcome(entry, in_returns=in_returns)
        if isinstance(outcome, RunResult):
            on_splits[split].append(outcome.value)
        if split == split_seed and isinstance(outcome, RunResult):
            runs.append(outcome)
            del why[seed]
        elif split == split_seed:
            why[seed] = str(outcome)
    holes = defaultdict(list)
    for seed, reason in why.items():
        holes[reason].append(seed)
    return CellResult(tuple(runs), on_splits, {name: tuple(s) for name, s in holes.items()})


def _outcome(entry: _Entry, *, in_returns: bool) -> RunResult | str:
    """Return the run, or the reason why there is none."""
    row = entry.row
    if row.get("error") is not None:
        return " ".join(str(row["error"]).split()) or "failed"
    numbers = row.get("returns" if in_returns else "scores") or []
    if not numbers or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        return "no finite score"
    curve = [point for point in row.get("curve") or [] if None not in point]
    return RunResult(
        seed=entry.seed,
        split_seed=entry.split_seed,
        value=float(np.mean(np.asarray(numbers, np.float64))),
        training=str(row.get("training") or row["run"]),
        curve=tuple(sorted((float(step), float(score)) for step, score in curve)),
        filter=row.get("filter"),
    )


def _rank(name: str, order: tuple[str, ...]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)


def _task_order(task: Task) -> tuple[Any, ...]:
    section = task.section
    return (
        _rank(section.learner.name, _LEARNERS),
        section.learner.variant,
        # The largest first: a smoke run comes after the full one.
        (-section.num_rows, -section.num_steps, section.target_fraction),
        section.labelled_fraction,
        _rank(section.shift, SHIFTS),
        _rank(task.body, BODIES),
        tuple(_rank(word, tuple(QUALITIES)) for word in task.quality.split("/")),
        task.policy_version,
    )


def _method_order(method: Named) -> tuple[Any, ...]:
    return (*_rank(method.name, tuple(methods.METHODS)), method.variant)
