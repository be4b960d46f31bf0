"""Rows of the store as cells: a setting, a method, and its runs; what is missing is named."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from puorl.bench.stats import Runs, Spread, Summary, spread
from puorl.bench.store import Row
from puorl.core.errors import DataError

METHODS = ("olp", "sharing_all", "dara", "igdf", "pu", "oracle")
_SHIFTS = ("body_mass", "mixture", "entire_body", "reward")
_BODIES = ("hopper", "halfcheetah", "walker2d")
_QUALITIES = ("ME/ME", "ME/R", "M/M", "M/R")
_LEARNERS = ("td3_bc", "iql")
_NAMES = {
    "olp": "OLP",
    "sharing_all": "Sharing-All",
    "dara": "DARA",
    "igdf": "IGDF",
    "pu": "PU",
    "oracle": "Oracle",
    "td3_bc": "TD3+BC",
    "iql": "IQL",
    "cql": "CQL",
    "bc": "BC",
    "rebrac": "ReBRAC",
    "td7": "TD7",
    "hopper": "Hopper",
    "halfcheetah": "HalfCheetah",
    "walker2d": "Walker2d",
    "body_mass": "body mass",
    "entire_body": "entire body",
}


def display(name: str) -> str:
    """A name of the store as people write it.

    >>> display("td3_bc"), display("my_own")
    ('TD3+BC', 'my own')
    """
    return _NAMES.get(name, name.replace("_", " "))


class Named(NamedTuple):
    """A method or a learner; ``variant`` says in which settings it differs from the usual one."""

    name: str
    variant: str = ""

    @property
    def title(self) -> str:
        """For a person."""
        return display(self.name) + (f" ({self.variant})" if self.variant else "")


class Group(NamedTuple):
    """Settings that share a table."""

    learner: Named
    num_rows: int
    target_fraction: float
    num_steps: int
    labelled_fraction: float
    shift: str


class Task(NamedTuple):
    """A setting, whatever the seed of its split, with the learner and its number of updates."""

    group: Group
    body: str
    quality: str

    @property
    def title(self) -> str:
        """Within its group."""
        return f"{display(self.body)} {self.quality}"


@dataclass(frozen=True)
class Run:
    """One run that came to an end."""

    seed: int
    split_seed: int
    value: float
    """Mean over its final episodes: a normalised score, or a return where there is no score."""
    training: str
    curve: tuple[tuple[float, float], ...]
    filter: Mapping[str, Any] | None


@dataclass(frozen=True)
class Cell:
    """A method in a setting."""

    runs: tuple[Run, ...]
    """On the split that the tables are about, by training seed."""
    on_splits: Mapping[int, tuple[float, ...]]
    """Split seed to the runs' values, that split included."""
    holes: Mapping[str, tuple[int, ...]]
    """Why, to the training seeds that are missing on that split."""

    @cached_property
    def summary(self) -> Summary | None:
        """Over training seeds; None where there is no run."""
        return Summary.of([run.value for run in self.runs]) if self.runs else None

    @cached_property
    def spread(self) -> Spread:
        """Both variances."""
        return spread(self.on_splits)

    @property
    def sample(self) -> Runs:
        """The runs as the aggregates take them."""
        values = np.array([run.value for run in self.runs], np.float64)
        return Runs(values, tuple(run.training for run in self.runs))

    @property
    def filter(self) -> dict[str, float]:
        """Findings about the filters used, averaged where there are several."""
        found = {json.dumps(run.filter, sort_keys=True): run.filter for run in self.runs}
        known: dict[str, list[float]] = defaultdict(list)
        for each in found.values():
            for name, value in (each or {}).items():
                if isinstance(value, int | float) and math.isfinite(value):
                    known[name].append(float(value))
        return {name: float(np.mean(values)) for name, values in known.items()}


@dataclass(frozen=True)
class Results:
    """All that tables, pictures and answers are made from."""

    tasks: tuple[Task, ...]
    methods: tuple[Named, ...]
    cells: Mapping[tuple[Task, Named], Cell]
    split_seed: int
    """Of the split that the tables are about: the one with most runs."""
    in_returns: frozenset[Group]
    """Groups whose domain has no normalised score: their numbers are returns."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """In the order of their tables."""
        return tuple(dict.fromkeys(task.group for task in self.tasks))

    def tasks_of(self, group: Group) -> tuple[Task, ...]:
        """The group's settings in order."""
        return tuple(task for task in self.tasks if task.group == group)

    def methods_of(self, tasks: Iterable[Task]) -> tuple[Named, ...]:
        """Methods with a row in one of these settings."""
        tasks = tuple(tasks)
        return tuple(m for m in self.methods if any((task, m) in self.cells for task in tasks))

    def summary(self, task: Task, method: Named) -> Summary | None:
        """Over training seeds; None where there is no run."""
        cell = self.cells.get((task, method))
        return cell.summary if cell else None


def collect_results(rows: Iterable[Row], notes: Iterable[str] = ()) -> Results:
    """Sort the rows that count (`Store.latest`) into cells.

    Args:
        rows: One row a run.
        notes: What is to be said about the store.

    Raises:
        DataError: There is no row that can be read.
    """
    entries, said = _read_all(rows)
    if not entries:
        raise DataError("results: expected rows of puorl bench run, got none that can be read")
    learners = _variants(entries, "learner")
    methods = _variants(entries, "method")
    in_returns = _without_scores(entries, learners)
    split_seed = _busiest_split(entries)
    placed: dict[tuple[Task, Named], dict[tuple[int, int], _Entry]] = defaultdict(dict)
    for entry in entries:
        key = (entry.task(learners[entry.learner_key]), methods[entry.method_key])
        where = (entry.split_seed, entry.seed)
        if where in placed[key]:
            said.append(
                f"{entry.row['run']}: takes the place of an earlier run with the same setting, "
                "method and seed"
            )
        placed[key][where] = entry
    wanted: dict[Group, set[int]] = defaultdict(set)
    for (task, _), found in placed.items():
        wanted[task.group] |= {seed for split, seed in found if split == split_seed}
    cells = {
        (task, method): _cell(
            found, split_seed, wanted[task.group], in_returns=task.group in in_returns
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
        notes=(*notes, *said),
    )


@dataclass(frozen=True)
class _Entry:
    """A row, with what decides where it belongs."""

    row: Row
    place: tuple[Any, ...]
    """The setting's values and the number of updates."""
    seed: int
    split_seed: int

    @property
    def method_key(self) -> tuple[str, str]:
        return self.row["method"], _canonical(self.row.get("method_settings"))

    @property
    def learner_key(self) -> tuple[str, str]:
        return self.row["learner"], _canonical(self.row.get("config"))

    def task(self, learner: Named) -> Task:
        shift, body, quality, share, num_rows, target_fraction, num_steps = self.place
        return Task(
            Group(learner, num_rows, target_fraction, num_steps, share, shift), body, quality
        )


def _read_all(rows: Iterable[Row]) -> tuple[list[_Entry], list[str]]:
    entries, said = [], []
    for row in rows:
        try:
            entries.append(_entry(row))
        except (KeyError, TypeError, ValueError) as error:
            said.append(f"{row.get('run')}: not a row of the benchmark, it is skipped ({error!r})")
    return entries, said


def _entry(row: Row) -> _Entry:
    setting = row["setting"]
    place = (
        str(setting["shift"]),
        str(setting["body"]),
        str(setting["quality"]),
        float(setting["labelled_fraction"]),
        int(setting["rows"]),
        float(setting["target_fraction"]),
        int(row["steps"]),
    )
    if not (isinstance(row["method"], str) and isinstance(row["learner"], str)):
        raise TypeError("method and learner must be text")
    return _Entry(row, place, int(row["seed"]), int(setting["split_seed"]))


def _variants(entries: list[_Entry], kind: str) -> dict[tuple[str, str], Named]:
    """Names for all (name, settings): plain, unless one name was run in two ways in one setting.

    Settings may well differ from one setting to the next; only where two ways meet must they be
    told apart, and then everywhere.
    """
    ways: dict[tuple[str, str], int] = Counter()
    spoken: dict[tuple[str, str], str] = {}
    met: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for entry in entries:
        key = entry.method_key if kind == "method" else entry.learner_key
        other = entry.learner_key if kind == "method" else entry.method_key
        ways[key] += 1
        if kind == "method" and entry.row.get("variant"):
            spoken[key] = str(entry.row["variant"])
        met[(key[0], entry.place, entry.split_seed, other)].add(key[1])
    doubled = {name for (name, *_), found in met.items() if len(found) > 1}
    usual: dict[str, str] = {}
    for name, settings in sorted(ways, key=lambda key: -ways[key]):
        usual.setdefault(name, settings)
    names = {}
    for name, settings in ways:
        own = settings != usual[name] and name in doubled
        said = spoken.get((name, settings)) or _differences(settings, usual[name])
        names[name, settings] = Named(name, said if own else "")
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


def _without_scores(entries: list[_Entry], learners: Mapping[tuple[str, str], Named]) -> set[Group]:
    scored: dict[Group, bool] = defaultdict(bool)
    has_returns: set[Group] = set()
    for entry in entries:
        group = entry.task(learners[entry.learner_key]).group
        scored[group] |= bool(entry.row.get("scores"))
        if entry.row.get("returns"):
            has_returns.add(group)
    return {group for group in has_returns if not scored[group]}


def _busiest_split(entries: list[_Entry]) -> int:
    count = Counter(e.split_seed for e in entries if e.row.get("error") is None)
    count = count or Counter(entry.split_seed for entry in entries)
    return min(count, key=lambda seed: (-count[seed], seed))


def _cell(
    found: Mapping[tuple[int, int], _Entry],
    split_seed: int,
    wanted: set[int],
    *,
    in_returns: bool,
) -> Cell:
    runs, why = [], {}
    for (split, seed), entry in sorted(found.items()):
        outcome = _outcome(entry, in_returns=in_returns)
        if isinstance(outcome, Run):
            runs.append(outcome)
        elif split == split_seed:
            why[seed] = outcome
    chosen = tuple(run for run in runs if run.split_seed == split_seed)
    on_splits: dict[int, tuple[float, ...]] = {}
    for run in runs:
        on_splits[run.split_seed] = (*on_splits.get(run.split_seed, ()), run.value)
    holes: dict[str, tuple[int, ...]] = {}
    for seed in sorted(wanted - {run.seed for run in chosen}):
        reason = why.get(seed, "not run")
        holes[reason] = (*holes.get(reason, ()), seed)
    return Cell(chosen, on_splits, holes)


def _outcome(entry: _Entry, *, in_returns: bool) -> Run | str:
    """The run, or why there is none."""
    row = entry.row
    if row.get("error") is not None:
        return " ".join(str(row["error"]).split()) or "failed"
    numbers = row.get("returns" if in_returns else "scores") or []
    if not numbers or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        return "no finite score"
    curve = [point for point in row.get("curve") or [] if None not in point]
    return Run(
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
    group = task.group
    return (
        _rank(group.learner.name, _LEARNERS),
        group.learner.variant,
        # The largest first: a smoke run comes after what it rehearses.
        (-group.num_rows, -group.num_steps, group.target_fraction),
        group.labelled_fraction,
        _rank(group.shift, _SHIFTS),
        _rank(task.body, _BODIES),
        _rank(task.quality, _QUALITIES),
    )


def _method_order(method: Named) -> tuple[Any, ...]:
    return (*_rank(method.name, METHODS), method.variant)
