"""From a suite and seeds to runs: which are to do, which are done, and how long the rest will take.

A cell is one pool and one learner; its runs are methods x seeds, and they train together.
"""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from puorl import methods
from puorl.bench.settings import Setting, Source, settings_id
from puorl.bench.suites import Budget, LearnerChoice, MethodChoice, Suite
from puorl.core.errors import ConfigError, machine_fault
from puorl.core.formatting import check_positive, describe_time
from puorl.core.hashing import checked_seed
from puorl.envs.bodies import body as body_of
from puorl.rl import learner as learners
from puorl.rl.learner import Learner
from puorl.rl.policy import stored_config
from puorl.rl.trainer import check_steps

MOST_LANES = 40
"""Lanes that train together."""
_MOST_RUNS = 100_000
Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """Runs with one pool and one learner."""

    setting: Setting
    learner: LearnerChoice
    methods: tuple[MethodChoice, ...]
    budget: Budget

    @cached_property
    def built_learner(self) -> Learner:
        """The learner with its settings."""
        return learners.make(
            self.learner.name,
            num_steps=self.budget.steps,
            preset=self.learner.preset,
            **self.learner.settings,
        )

    @cached_property
    def config(self) -> dict[str, Any]:
        """All settings of the learner, JSON-ready."""
        return json.loads(json.dumps(stored_config(self.built_learner.config)))

    @cached_property
    def id(self) -> str:
        """Name of its lock; independent of methods and seeds."""
        return settings_id({"setting": self.setting.to_dict(), **self.training})

    @cached_property
    def training(self) -> dict[str, Any]:
        """Settings of a training and of its evaluation, without its training set and its seed."""
        return {
            "learner": self.built_learner.name,
            "config": self.config,
            "steps": self.budget.steps,
            "episodes": self.budget.episodes,
        }

    @property
    def title(self) -> str:
        """Setting and learner, for messages."""
        split = f" split {self.setting.split_seed}" if self.setting.split_seed else ""
        return f"{self.setting.name} {self.learner.name}{split}"

    def method(self, label: str) -> MethodChoice | None:
        """Return the method with that label, if the cell has one."""
        return next((method for method in self.methods if method.label == label), None)

    def run(self, method: MethodChoice, seed: int) -> "Run":
        """Make one of its runs."""
        fields = {"method": method.name, "method_settings": method.all_settings, "seed": seed}
        run_id = settings_id({"setting": self.setting.to_dict(), **self.training, **fields})
        return Run(run_id, self, method, seed)

    def shared_key(self, method: MethodChoice) -> str | None:
        """Return a key that is equal for equal trainings; None for a training of one run alone.

        It follows from the settings, for plans and locks. Whether trainings are equal is decided
        by the content of the prepared sets.
        """
        setting = self.setting
        inputs: dict[str, Any] = {"target": setting.target.to_dict()}
        rows = methods.METHODS[method.name].shares_training_by
        if rows is None:
            return None
        if rows == "labelled":
            inputs |= {"labelled": setting.num_labelled, "split_seed": setting.split_seed}
        if setting.record is not None:
            inputs["record"] = setting.record
        if self.built_learner.scale_rewards:  # by returns of all rows, the others' too
            inputs["others"] = [source.to_dict() for source, _ in setting.others]
        return settings_id({"method": method.name, **self.training, **inputs})

    @cached_property
    def shape(self) -> tuple[Any, ...]:
        """Equal for cells whose lanes can train together."""
        body = body_of(self.setting.body)
        return self.training, self.budget, body.obs_dim, body.act_dim


@dataclass(frozen=True, eq=False)
class Run:
    """One row of the store: a setting, a method, a learner, a seed."""

    id: str
    cell: Cell
    method: MethodChoice
    seed: int

    @property
    def key(self) -> tuple[str, str]:
        """The cell's id and the method's label: runs with one key share a prepared set."""
        return self.cell.id, self.method.label

    @property
    def shared_key(self) -> str | None:
        """See `Cell.shared_key`."""
        return self.cell.shared_key(self.method)

    @property
    def expected_training(self) -> str:
        """Equal for runs that are expected to be one training."""
        return f"{self.shared_key}-{self.seed}" if self.shared_key else self.id


@dataclass(frozen=True, eq=False)
class Plan:
    """All runs of a suite, cell by cell."""

    name: str
    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]

    def runs_of(self, *cells: Cell) -> list[Run]:
        """List the runs of some cells, method by method."""
        return [run for cell in cells for run in self.runs if run.cell is cell]

    @property
    def sources(self) -> tuple[Source, ...]:
        """All datasets that its runs need, each once."""
        return needed_sources(self.cells)


@dataclass(frozen=True)
class PlanStatus:
    """Runs that are done and trainings that are to do."""

    num_runs: int
    num_done: int
    num_failed: int
    """Done runs with an error, which will not be run again."""
    num_trainings: int
    """Distinct trainings that are to do."""
    lane_steps: int
    """Updates of all these trainings."""
    seconds: float
    """Estimated time."""
    measured: bool
    """Whether the estimate follows from earlier groups of this store on this device."""

    def __str__(self) -> str:
        failed = ""
        if self.num_failed:
            failed = f", {self.num_failed} of them with an error (--retry runs them again)"
        done = f"{self.num_runs:,} runs, {self.num_done:,} done{failed}"
        if not self.num_trainings:
            left = self.num_runs - self.num_done
            return f"{done}; " + (f"{left:,} to be copied" if left else "nothing to do")
        how = "a guess, nothing was measured here yet"
        how = "by earlier groups here" if self.measured else how
        return (
            f"{done}; {self.num_trainings:,} trainings to do, {self.lane_steps:,} lane-steps, "
            f"about {describe_time(self.seconds)} ({how})"
        )


@dataclass(frozen=True, eq=False)
class CellBatch:
    """Cells with one learner, one budget and rows of one shape: their lanes train together."""

    cells: tuple[Cell, ...]

    @cached_property
    def id(self) -> str:
        """Prefix of the names of its groups."""
        names = [cell.id for cell in self.cells]
        return names[0] if len(names) == 1 else settings_id({"cells": names})

    @property
    def title(self) -> str:
        """Its first cell and the number of the others, for messages."""
        first, *more = self.cells
        return first.title + (f" and {len(more)} more" if more else "")

    def cell(self, cell_id: str) -> Cell:
        """Return its cell with that id."""
        return next(cell for cell in self.cells if cell.id == cell_id)


def make_plan(
    suite: Suite,
    *,
    seeds: int,
    split_seeds: int = 1,
    only: str = "",
    steps: int | None = None,
) -> Plan:
    """List all runs of a suite.

    Args:
        suite: Parts to run.
        seeds: Number of training seeds, from 0.
        split_seeds: Number of split seeds, from 0; each has its own labels and its own filters.
        only: Keep runs whose setting, learner and method contain all words of this text, or of
            one of several texts separated by commas.
        steps: Updates of every training, instead of the suite's.

    Raises:
        ConfigError: A number out of range, or a text that matches no run.
    """
    for name, number in (("seeds", seeds), ("split_seeds", split_seeds)):
        check_positive(name, number)
        checked_seed(number - 1)
    _check_size(seeds * split_seeds, suite, seeds, split_seeds)
    _check_only(suite, only)
    budget = suite.budget if steps is None else dataclasses.replace(suite.budget, steps=steps)
    cells, runs = [], []
    for split_seed in range(split_seeds):
        for part in suite.parts:
            setting = dataclasses.replace(part.setting, split_seed=split_seed)
            chosen = [m for m in part.methods if _matches(only, setting, part.learner, m)]
            if not chosen:
                continue
            # All methods of the part: a killed group may have lanes of methods not chosen now.
            cell = Cell(setting, part.learner, part.methods, budget)
            check_steps(cell.built_learner, steps=budget.steps)
            _check_size(len(runs) + len(chosen) * seeds, suite, seeds, split_seeds)
            cells.append(cell)
            runs += [cell.run(method, seed) for method in chosen for seed in range(seeds)]
    return Plan(suite.name, tuple(cells), tuple(runs))


def make_batches(plan: Plan, most_lanes: int | None) -> tuple[CellBatch, ...]:
    """Divide the cells of a plan into batches, in order.

    Args:
        plan: Cells to divide.
        most_lanes: Join neighbours of one shape while they have at most this many trainings; None
            leaves every cell alone.
    """
    batches: list[list[Cell]] = []
    trainings: set[str] = set()
    for cell in plan.cells:
        own = {run.expected_training for run in plan.runs_of(cell)}
        fits = most_lanes is not None and len(trainings | own) <= most_lanes
        # A lock has one holder: a batch with the same cell twice would wait for itself.
        is_twin = bool(batches) and cell.id in {other.id for other in batches[-1]}
        if batches and fits and not is_twin and batches[-1][0].shape == cell.shape:
            batches[-1].append(cell)
            trainings |= own
        else:
            batches.append([cell])
            trainings = own
    return tuple(CellBatch(tuple(cells)) for cells in batches)


def needed_sources(cells: Iterable[Cell]) -> tuple[Source, ...]:
    """List the datasets of some cells, each once."""
    return tuple(dict.fromkeys(source for cell in cells for source in cell.setting.sources))


def missing(
    runs: Iterable[Run], latest: Mapping[str, Row], *, retry: Container[str] = ()
) -> list[Run]:
    """List the runs without a row, with an error and in ``retry``, or whose machine failed.

    Earlier versions stored a full disk as a result; today's raise it.
    """
    return [
        run
        for run in runs
        if (row := latest.get(run.id)) is None
        or (
            (error := row.get("error")) is not None
            and (run.id in retry or machine_fault(error) is not None)
        )
    ]


def plan_status(
    plan: Plan,
    rows: Sequence[Row],
    latest: Mapping[str, Row],
    device: str,
    *,
    retry: Container[str] = (),
    batches: Iterable[CellBatch] | None = None,
    most_lanes: int = MOST_LANES,
) -> PlanStatus:
    """Compare a plan with the rows of a store, and estimate the time of the rest.

    Args:
        plan: Runs to do.
        rows: All rows of the store.
        latest: The valid row of every run.
        device: Name of the device as rows have it.
        retry: Ids of runs whose errors are run again.
        batches: Cells that will train together; None: each alone.
        most_lanes: Most lanes of a batch that train side by side.
    """
    todo = missing(plan.runs, latest, retry=retry)
    # A training that some row has already is only copied.
    todo_ids = {run.id for run in todo}
    done = {run.expected_training for run in plan.runs if run.id not in todo_ids}
    wanted = {run.expected_training: run for run in todo if run.expected_training not in done}
    num_failed = sum(
        latest[run.id].get("error") is not None for run in plan.runs if run.id not in todo_ids
    )
    paces, num_wanted = _paces(rows, device), Counter(run.cell for run in wanted.values())
    seconds, measured = 0.0, True
    for batch in batches or [CellBatch((cell,)) for cell in plan.cells]:
        if num := sum(num_wanted[cell] for cell in batch.cells):
            first = batch.cells[0]
            pace = _nearest(paces.get(first.built_learner.name, {}), min(num, most_lanes))
            measured &= pace is not None
            pace = pace or _usual_pace(first.built_learner.name, device)
            seconds += num * first.budget.steps / pace
    sets = {(run.cell.setting, run.method.label): run.method.name for run in wanted.values()}
    seconds += sum(_prepare_seconds(rows, name) for name in sets.values())
    return PlanStatus(
        num_runs=len(plan.runs),
        num_done=len(plan.runs) - len(todo),
        num_failed=num_failed,
        num_trainings=len(wanted),
        lane_steps=sum(run.cell.budget.steps for run in wanted.values()),
        seconds=seconds,
        measured=measured and bool(wanted),
    )


# Lane-steps a second where nothing was measured yet: one H200, or two cores.
_USUAL_PACE = {"gpu": {"td3_bc": 80_000, "iql": 60_000}, "cpu": {"td3_bc": 700, "iql": 500}}
_OTHER_PACE = {"gpu": 30_000, "cpu": 300}
_EVALUATION = 1.15  # time with evaluations, relative to training alone


def _usual_pace(learner: str, device: str) -> float:
    kind = "cpu" if device.startswith("cpu") else "gpu"
    return _USUAL_PACE[kind].get(learner, _OTHER_PACE[kind]) / _EVALUATION


def _paces(rows: Sequence[Row], device: str) -> dict[str, dict[int, float]]:
    """Map learner and number of lanes to lane-steps a second of the last such group here."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        seconds = row.get("seconds") or {}
        here = (row.get("hardware") or {}).get("device") == device
        # A copied row may be of a training on another device.
        if here and not row.get("same_as") and seconds.get("group"):
            lanes, steps = seconds.get("lanes"), row.get("steps")
            if lanes and steps:
                paces = found.setdefault(row.get("learner", ""), {})
                paces[lanes] = steps * lanes / seconds["group"]
    return found


def _nearest(paces: Mapping[int, float], lanes: int) -> float | None:
    """Return the pace of the group with the nearest number of lanes, by ratio."""
    if not paces:
        return None
    return paces[min(paces, key=lambda other: abs(math.log(other / lanes)))]


def _prepare_seconds(rows: Sequence[Row], method: str) -> float:
    took = [
        row["seconds"]["prepare"]
        for row in rows
        if row.get("method") == method and (row.get("seconds") or {}).get("prepare") is not None
    ]
    return took[-1] if took else methods.METHODS[method].default_seconds


def _check_only(suite: Suite, only: str) -> None:
    """Check that every text matches something: a typing error in one of several must be seen."""
    choices = [(part.setting, part.learner, m) for part in suite.parts for m in part.methods]
    for text in only.split(",") if only.strip() else ():
        if not text.strip() or not any(_matches(text, *choice) for choice in choices):
            known = ", ".join(sorted({part.setting.name for part in suite.parts}))
            raise ConfigError(
                f"only: expected words of a setting, a learner or a method of {suite.name}, got "
                f"{text!r}; its settings: {known}"
            )


def _check_size(num_runs: int, suite: Suite, seeds: int, split_seeds: int) -> None:
    if num_runs > _MOST_RUNS:
        raise ConfigError(
            f"expected a plan of at most {_MOST_RUNS:,} runs, got {seeds:,} seeds and "
            f"{split_seeds:,} split seeds of {suite.name}; take fewer"
        )


def _matches(only: str, setting: Setting, learner: LearnerChoice, method: MethodChoice) -> bool:
    text = f"{setting.name} {learner.name} {method.label}"
    return any(all(word in text for word in words.split()) for words in only.split(","))
