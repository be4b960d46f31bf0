"""From a suite and seeds to runs: what is to do, what is done, and how long the rest will take.

A cell is one pool and one learner; its runs are methods x seeds, and they train together.
"""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from puorl.bench.prepare import method_settings
from puorl.bench.settings import Setting, Source
from puorl.bench.suites import Budget, LearnerChoice, MethodChoice, Suite
from puorl.core import hashing
from puorl.core.errors import ConfigError
from puorl.core.hashing import checked_seed
from puorl.envs.bodies import body as body_of
from puorl.rl import learner as learners
from puorl.rl.learner import Learner
from puorl.rl.trainer import check_steps

MOST_LANES = 40
"""Lanes that train together."""
_DIGITS = 16
Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """Runs that share a pool and a learner."""

    setting: Setting
    learner: LearnerChoice
    methods: tuple[MethodChoice, ...]
    budget: Budget

    @cached_property
    def made(self) -> Learner:
        """The learner itself."""
        return learners.make(
            self.learner.name,
            num_steps=self.budget.steps,
            preset=self.learner.preset,
            **self.learner.settings,
        )

    @cached_property
    def config(self) -> dict[str, Any]:
        """All settings of the learner, JSON-ready."""
        return json.loads(json.dumps(dataclasses.asdict(self.made.config)))

    @cached_property
    def id(self) -> str:
        """Name by which processes claim it: it leaves methods and seeds out."""
        return _short({"setting": self.setting.to_dict(), **self.training})

    @cached_property
    def training(self) -> dict[str, Any]:
        """What decides a training beside its set and its seed, and how it is judged."""
        return {
            "learner": self.made.name,
            "config": self.config,
            "steps": self.budget.steps,
            "episodes": self.budget.episodes,
        }

    @property
    def title(self) -> str:
        """For people."""
        split = f" split {self.setting.split_seed}" if self.setting.split_seed else ""
        return f"{self.setting.name} {self.learner.name}{split}"

    def run(self, method: MethodChoice, seed: int) -> "Run":
        """One of its runs."""
        settings = self._method_settings[method.label]
        decided = {"method": method.name, "method_settings": settings, "seed": seed}
        setting = self.setting.to_dict()
        name = _short({"setting": setting, **self.training, **decided})
        return Run(name, self, method, settings, seed)

    def shared_key(self, method: MethodChoice) -> str | None:
        """Equal for trainings that will turn out to be the same; None for one that stands alone.

        A guess from the settings, for plans and claims. What a run's set really contains decides.
        """
        setting = self.setting
        seen: dict[str, Any] = {"target": setting.target.to_dict()}
        if method.name == "olp":
            seen |= {"labelled": setting.num_labelled, "split_seed": setting.split_seed}
        elif method.name != "oracle":
            return None
        if self.made.scale_rewards:  # by returns of all rows, the others' too
            seen["others"] = [source.to_dict() for source, _ in setting.others]
        return _short({"method": method.name, **self.training, **seen})

    @cached_property
    def _method_settings(self) -> dict[str, dict[str, Any]]:
        return {method.label: method_settings(method) for method in self.methods}


@dataclass(frozen=True, eq=False)
class Run:
    """One row of the store to be: a setting, a method, a learner, a seed."""

    id: str
    cell: Cell
    method: MethodChoice
    method_settings: dict[str, Any]
    seed: int

    @property
    def expected_training(self) -> str:
        """Equal for runs that should be one training."""
        shared = self.cell.shared_key(self.method)
        return f"{shared}-{self.seed}" if shared else self.id


@dataclass(frozen=True, eq=False)
class Plan:
    """All runs of a suite, cell by cell."""

    name: str
    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]

    def runs_of(self, cell: Cell) -> list[Run]:
        """Its runs, method by method."""
        return [run for run in self.runs if run.cell is cell]

    @property
    def sources(self) -> tuple[Source, ...]:
        """All datasets it needs, each once."""
        return needed_sources(self.cells)


@dataclass(frozen=True)
class Outlook:
    """What is done and what is to do."""

    num_runs: int
    num_done: int
    num_failed: int
    """Of those done, how many have an error and will not be tried again."""
    num_trainings: int
    """Distinct ones that are still to be trained."""
    lane_steps: int
    """Updates of all of them together."""
    seconds: float
    """An estimate."""
    measured: bool
    """Whether it rests on earlier groups of this store, on this device."""


_MOST_RUNS = 100_000


def make_plan(
    suite: Suite,
    *,
    seeds: int,
    split_seeds: int = 1,
    only: str = "",
    steps: int | None = None,
) -> Plan:
    """All runs of a suite.

    Args:
        suite: What to run.
        seeds: Number of training seeds, from 0.
        split_seeds: Number of split seeds, from 0: each draws its labels anew and fits anew.
        only: Keep runs in whose setting, learner and method all words of this text occur; or all
            of one of several texts, with commas between them.
        steps: Updates of every training, instead of the suite's.

    Raises:
        ConfigError: Numbers that make no sense, or a text that leaves nothing.
    """
    for name, number in (("seeds", seeds), ("split_seeds", split_seeds)):
        if number < 1:
            raise ConfigError(f"{name}: expected 1 or more, got {number}")
        checked_seed(number - 1)
    if seeds * split_seeds > _MOST_RUNS:
        raise _too_many(suite, seeds, split_seeds)
    _check_only(suite, only)
    budget = suite.budget if steps is None else dataclasses.replace(suite.budget, steps=steps)
    cells, runs = [], []
    for split_seed in range(split_seeds):
        for part in suite.parts:
            setting = dataclasses.replace(part.setting, split_seed=split_seed)
            chosen = [m for m in part.methods if _matches(only, setting, part.learner, m)]
            if not chosen:
                continue
            # All methods: a killed group may have lanes of others than are asked for now.
            cell = Cell(setting, part.learner, part.methods, budget)
            check_steps(cell.made, steps=budget.steps)
            if len(runs) + len(chosen) * seeds > _MOST_RUNS:
                raise _too_many(suite, seeds, split_seeds)
            cells.append(cell)
            runs += [cell.run(method, seed) for method in chosen for seed in range(seeds)]
    return Plan(suite.name, tuple(cells), tuple(runs))


def _check_only(suite: Suite, only: str) -> None:
    """Every text must keep something: a slip in one of several would go unseen else."""
    kept = [(part.setting, part.learner, m) for part in suite.parts for m in part.methods]
    for text in only.split(",") if only.strip() else ():
        if not text.strip() or not any(_matches(text, *each) for each in kept):
            known = ", ".join(sorted({part.setting.name for part in suite.parts}))
            raise ConfigError(
                f"only: expected words of a setting, a learner or a method of {suite.name}, got "
                f"{text!r}; its settings: {known}"
            )


def _too_many(suite: Suite, seeds: int, split_seeds: int) -> ConfigError:
    return ConfigError(
        f"expected a plan of at most {_MOST_RUNS:,} runs, got {seeds:,} seeds and "
        f"{split_seeds:,} split seeds of {suite.name}; take fewer"
    )


def needed_sources(cells: Iterable[Cell]) -> tuple[Source, ...]:
    """The datasets of some cells, each once."""
    return tuple(dict.fromkeys(source for cell in cells for source in cell.setting.sources))


def missing(runs: Iterable[Run], latest: Mapping[str, Row], *, retry_before: str = "") -> list[Run]:
    """Runs that have no row yet, or an error that is older than a time (ISO 8601)."""
    return [
        run
        for run in runs
        if (row := latest.get(run.id)) is None
        or (row["error"] is not None and row["time"] < retry_before)
    ]


def outlook(
    plan: Plan,
    rows: Sequence[Row],
    latest: Mapping[str, Row],
    device: str,
    *,
    retry_before: str,
    crews: Iterable[Sequence[Cell]] | None = None,
    most_lanes: int = MOST_LANES,
) -> Outlook:
    """Where a plan stands, by the rows of a store.

    Args:
        plan: What is to be run.
        rows: All that the store has.
        latest: The last row of every run.
        device: Where it will run, as the rows call it.
        retry_before: Errors older than this are tried again; none if empty.
        crews: Cells of one learner and budget that will train together; None: each alone.
        most_lanes: Of a crew, how many train side by side.
    """
    todo = missing(plan.runs, latest, retry_before=retry_before)
    # A training that some row has already is only copied.
    again = {run.id for run in todo}
    have = {run.expected_training for run in plan.runs if run.id not in again}
    wanted = {run.expected_training: run for run in todo if run.expected_training not in have}
    done = [latest[run.id] for run in plan.runs if run.id in latest]
    num_failed = sum(row["error"] is not None for row in done)
    retried = sum(run.id in latest for run in todo)
    paces, wanted_of = _paces(rows, device), Counter(run.cell for run in wanted.values())
    seconds, measured = 0.0, True
    for cells in crews or [(cell,) for cell in plan.cells]:
        if num := sum(wanted_of[cell] for cell in cells):
            name = cells[0].made.name
            pace = _nearest(paces.get(name, {}), min(num, most_lanes))
            measured &= pace is not None
            seconds += num * cells[0].budget.steps / (pace or _usual_pace(name, device))
    seconds += sum(_prepare_seconds(rows, name) for name in _prepared_names(wanted.values()))
    return Outlook(
        num_runs=len(plan.runs),
        num_done=len(plan.runs) - len(todo),
        num_failed=num_failed - retried,
        num_trainings=len(wanted),
        lane_steps=sum(run.cell.budget.steps for run in wanted.values()),
        seconds=seconds,
        measured=measured and bool(wanted),
    )


# Lane-steps a second where nothing was measured yet: one H200, or two cores.
_USUAL_PACE = {"gpu": {"td3_bc": 80_000, "iql": 60_000}, "cpu": {"td3_bc": 700, "iql": 500}}
_OTHER_PACE = {"gpu": 30_000, "cpu": 300}
_EVALUATION = 1.15  # looking at policies takes this much on top
_USUAL_PREPARE = {"pu": 60.0, "dara": 20.0, "igdf": 20.0}


def _usual_pace(learner: str, device: str) -> float:
    kind = "cpu" if device.startswith("cpu") else "gpu"
    return _USUAL_PACE[kind].get(learner, _OTHER_PACE[kind]) / _EVALUATION


def _paces(rows: Sequence[Row], device: str) -> dict[str, dict[int, float]]:
    """Lane-steps a second on this device: of every learner, by the lanes of a group, the last."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        seconds = row.get("seconds") or {}
        here = (row.get("hardware") or {}).get("device") == device
        # A copy is made here of what may have been trained elsewhere.
        if here and not row.get("same_as") and seconds.get("group"):
            lanes = seconds["lanes"]
            paces = found.setdefault(row["learner"], {})
            paces[lanes] = row["steps"] * lanes / seconds["group"]
    return found


def _nearest(paces: Mapping[int, float], lanes: int) -> float | None:
    """The pace of the group whose number of lanes is nearest, as a ratio."""
    if not paces:
        return None
    return paces[min(paces, key=lambda other: abs(math.log(other / lanes)))]


def _prepared_names(runs: Iterable[Run]) -> list[str]:
    """The method's name for every set that is to be prepared."""
    sets = {(run.cell.setting, run.method.label): run.method.name for run in runs}
    return list(sets.values())


def _prepare_seconds(rows: Sequence[Row], method: str) -> float:
    took = [
        row["seconds"]["prepare"]
        for row in rows
        if row["method"] == method and (row.get("seconds") or {}).get("prepare") is not None
    ]
    return took[-1] if took else _USUAL_PREPARE.get(method, 0.0)


def _matches(only: str, setting: Setting, learner: LearnerChoice, method: MethodChoice) -> bool:
    text = f"{setting.name} {learner.name} {method.label}"
    return any(all(word in text for word in words.split()) for words in only.split(","))


def _short(settings: Mapping[str, Any]) -> str:
    return hashing.of_settings(settings)[:_DIGITS]


@dataclass(frozen=True, eq=False)
class Crew:
    """Cells with one learner, one budget and rows of one shape; a single cell is a crew, too."""

    cells: tuple[Cell, ...]

    @cached_property
    def id(self) -> str:
        """Name of its groups."""
        names = [cell.id for cell in self.cells]
        return names[0] if len(names) == 1 else hashing.of_settings({"cells": names})[:16]

    @property
    def title(self) -> str:
        """For people."""
        first, *more = self.cells
        return first.title + (f" and {len(more)} more" if more else "")

    def cell(self, name: str) -> Cell:
        """Its cell of that id."""
        return next(cell for cell in self.cells if cell.id == name)


def make_crews(plan: Plan, most_lanes: int | None) -> tuple[Crew, ...]:
    """The cells of a plan in its order, as crews.

    Args:
        plan: What is to be run.
        most_lanes: Neighbours of one shape are joined while their trainings are at most this many;
            None leaves every cell alone.
    """
    crews: list[list[Cell]] = []
    lanes: set[str] = set()
    for cell in plan.cells:
        own = {run.expected_training for run in plan.runs_of(cell)}
        fits = most_lanes is not None and len(lanes | own) <= most_lanes
        # Of one claim there is one holder: a crew that needs it twice would wait for itself.
        claimed = bool(crews) and cell.id in {other.id for other in crews[-1]}
        if crews and fits and not claimed and _shape(crews[-1][0]) == _shape(cell):
            crews[-1].append(cell)
            lanes |= own
        else:
            crews.append([cell])
            lanes = own
    return tuple(Crew(tuple(cells)) for cells in crews)


def _shape(cell: Cell) -> tuple:
    body = body_of(cell.setting.body)
    return cell.training, cell.budget, body.obs_dim, body.act_dim
