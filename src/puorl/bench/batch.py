"""The work on one batch of cells: prepare its sets, train its groups, make its rows."""

import datetime
import os
import platform
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from puorl import __version__
from puorl.bench import group as groups
from puorl.bench.group import Group, Key, LaneResult, RunLane
from puorl.bench.plan import CellBatch, Run, missing
from puorl.bench.prepare import PreparedSet, SettingData, prepare
from puorl.bench.store import Store
from puorl.core.errors import machine_fault
from puorl.core.progress import Advance, quiet
from puorl.envs.evaluate import normalised_score

_LONGEST_ERROR = 500
_OF_TRAINING = (
    "training", "returns", "scores", "curve", "error", "seconds", "group", "versions", "hardware",
)  # fmt: skip


@dataclass(eq=False)
class RunContext:
    """Folders and options of a call of `puorl.bench.run`."""

    out: Path
    """Folder of prepared sets, groups and locks."""
    store: Store
    most_lanes: int
    """Most lanes of one group."""
    retry: frozenset[str]
    """Runs whose errors are run again, each once."""
    on_message: Callable[[str], None]
    """Callback for one line about every failure."""
    advance: Advance = quiet
    """Callback for progress, in updates of all lanes."""

    def __post_init__(self) -> None:
        """Count the rows that are there: a clock may be set back, their number is not."""
        self._num_before = len(self.store.rows())

    @property
    def to_retry(self) -> frozenset[str]:
        """Runs of ``retry`` that have no row since this call began."""
        return self.retry - {row["run"] for row in self.store.rows()[self._num_before :]}

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        """List the runs that have no valid row yet."""
        return missing(runs, self.store.latest(), retry=self.to_retry)

    def unfinished_groups(self, batch: CellBatch) -> list[Group]:
        """List the killed groups of a batch."""
        return groups.unfinished_groups(self.out / "groups", batch)


class BatchWork:
    """Trains the missing runs of one batch; requires the locks of its cells."""

    def __init__(self, batch: CellBatch, context: RunContext) -> None:
        """Begin with nothing prepared."""
        self._batch, self._context = batch, context
        self._data: dict[str, SettingData] = {}
        self._sets: dict[Key, PreparedSet] = {}

    def do(self, todo: list[Run]) -> None:
        """Append one row for each of these runs."""
        for key in dict.fromkeys(run.key for run in todo):
            self._prepare([run for run in todo if run.key == key])
        for group in self._context.unfinished_groups(self._batch):
            # After a kill between the last row and the end of a group, no lane is missing.
            wanted = {run.id for run in self._context.missing(todo)}
            if wanted & {lane.run for lane in group.lanes}:
                self._resume(group)
        left = [run for run in self._context.missing(todo) if run.key in self._sets]
        left = [run for run in left if not self._copy(run)]
        first: dict[str, RunLane] = {}
        for run in left:
            lane = self._lane(run)
            first.setdefault(lane.training, lane)
        lanes = list(first.values())
        for start in range(0, len(lanes), self._context.most_lanes):
            self._train(self._begin(lanes[start : start + self._context.most_lanes]))
        for run in self._context.missing(left):
            self._copy(run)

    def trainings(self, runs: Sequence[Run]) -> dict[str, str]:
        """Prepare sets; return the training of each run whose set could be prepared."""
        for run in runs:
            self._prepare([run], record=False)
        return {run.id: self._lane(run).training for run in runs if run.key in self._sets}

    def _prepare(self, runs: Sequence[Run], *, record: bool = True) -> None:
        """Prepare the set of runs with one key; if that fails, append their failed rows."""
        cell, method = runs[0].cell, runs[0].method
        if runs[0].key in self._sets:
            return
        self._context.advance(0, f"{cell.title}: {method.label}")
        stage, folder = "data", self._context.out / "prepared"
        try:
            if cell.id not in self._data:
                self._data[cell.id] = SettingData.load(cell.setting)
            stage, data = "prepare", self._data[cell.id]
            seed = cell.setting.split_seed
            self._sets[runs[0].key] = prepare(folder, data, method, seed=seed)
        except Exception as error:
            self._fail(runs if record else [], stage, error, self._data.get(cell.id))

    def _lane(self, run: Run) -> RunLane:
        return RunLane.of(run, self._sets[run.key])

    def _begin(self, lanes: Sequence[RunLane]) -> Group:
        return groups.begin_group(self._context.out / "groups", self._batch, lanes)

    def _runs(self, group: Group) -> list[tuple[RunLane, Run]]:
        """Pair the lanes of a group with their runs, except where the method is gone."""
        pairs = []
        for lane in group.lanes:
            cell = self._batch.cell(lane.cell)
            if (method := cell.method(lane.method)) is not None:
                pairs.append((lane, cell.run(method, lane.seed)))
        return pairs

    def _resume(self, group: Group) -> None:
        """Go on with a killed group, if its lanes are still the same trainings."""
        pairs = self._runs(group)
        for _, run in pairs:
            self._prepare([run], record=False)
        is_same = len(pairs) == len(group.lanes) and all(
            run.key in self._sets and self._lane(run) == lane for lane, run in pairs
        )
        if is_same:
            self._train(group)
        else:
            group.remove()

    def _copy(self, run: Run) -> bool:
        """Append the row of a run whose training is in the store; return whether it is."""
        training = self._lane(run).training
        latest = self._context.store.latest().values()
        same = [row for row in latest if row.get("training") == training]
        again = self._context.to_retry
        same = [row for row in same if row.get("error") is None] or [
            row for row in same if row["run"] not in again and not machine_fault(row["error"])
        ]
        if same:
            data, prepared = self._data[run.cell.id], self._sets[run.key]
            self._context.store.append(copied_row(run, data, prepared, same[0]))
        return bool(same)

    def _train(self, group: Group) -> None:
        try:
            found = groups.train_group(group, self._batch, self._sets, self._context.advance)
        except Exception as error:
            self._divide(group, error)
            return
        for lane, run in self._runs(group):
            if self._context.missing([run]):
                result, data = found[lane.run], self._data[run.cell.id]
                if result.error is not None:
                    self._context.on_message(f"{run.cell.title} {lane.method}: {result.error}")
                self._context.store.append(
                    finished_row(run, data, self._sets[run.key], lane.training, result, group.name)
                )
        group.finish()

    def _divide(self, group: Group, error: Exception) -> None:
        """Train the methods of a failed group one by one, so that only the faulty one fails."""
        if _is_machine_fault(error):
            raise error
        _free_frames(error)
        if len(group.keys) == 1:
            runs = self._context.missing([run for _, run in self._runs(group)])
            self._fail(runs, "train", error, self._data[group.keys[0][0]])
            group.remove()
            return
        # The parts first: a kill in between must find either the whole group or all of them.
        parts = [
            self._begin([lane for lane in group.lanes if lane.key == key]) for key in group.keys
        ]
        group.remove()
        for part in parts:
            self._train(part)

    def _fail(
        self, runs: Sequence[Run], stage: str, error: Exception, data: SettingData | None
    ) -> None:
        """Append failed rows; a fault of the machine is raised instead."""
        if _is_machine_fault(error):
            raise error
        text = f"{stage}: {type(error).__name__}: {error}"[:_LONGEST_ERROR]
        for run in runs[:1]:
            self._context.on_message(f"{run.cell.title} {run.method.label}: failed: {text}")
        for run in runs:
            self._context.store.append(failed_row(run, data, text))


def _free_frames(error: BaseException | None) -> None:
    """Free what the frames of a failed training hold, which may fill the device."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _is_machine_fault(error: BaseException) -> bool:
    """Return whether a full disk or a lost device is the cause: the same command resumes."""
    if isinstance(error, jax.errors.JaxRuntimeError):
        return "RESOURCE_EXHAUSTED" not in str(error)
    by_system = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
    return by_system or machine_fault(error) is not None


def finished_row(
    run: Run,
    data: SettingData,
    prepared: PreparedSet,
    training: str,
    result: LaneResult,
    group: str,
) -> dict[str, Any]:
    """Make the row of a run that was trained, to its end or until it was stopped."""
    returns = scores = None
    if result.returns is not None:
        returns = [float(value) for value in result.returns]
        scores = [float(s) for s in normalised_score(run.cell.setting.body, result.returns)]
    return _row(
        run,
        data,
        prepared,
        training=training,
        returns=returns,
        scores=scores,
        curve=result.curve,
        error=result.error,
        seconds={**result.seconds, "prepare": prepared.seconds},
        group=group,
    )


def copied_row(
    run: Run, data: SettingData, prepared: PreparedSet, source: Mapping[str, Any]
) -> dict[str, Any]:
    """Make the row of a run whose training another row has already."""
    found = {name: source[name] for name in _OF_TRAINING if name in source}
    return _row(run, data, prepared, **found, same_as=source.get("same_as") or source["run"])


def failed_row(run: Run, data: SettingData | None, error: str) -> dict[str, Any]:
    """Make the row of a run that was not trained."""
    return _row(run, data, None, error=error)


def now() -> str:
    """Return the time of a row."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


@cache
def device() -> str:
    """Return the name of the device that computes."""
    found = jax.devices()[0]
    return f"{found.platform}: {found.device_kind}"


def _row(
    run: Run, data: SettingData | None, prepared: PreparedSet | None, **found: Any
) -> dict[str, Any]:
    budget = run.cell.budget
    return {
        "run": run.id,
        "training": None,
        "setting": run.cell.setting.to_dict(),
        "method": run.method.name,
        "variant": run.method.variant,
        "method_settings": run.method.all_settings,
        "learner": run.cell.built_learner.name,
        "config": run.cell.config,
        "steps": budget.steps,
        "seed": run.seed,
        "evaluation": {"episodes": budget.episodes, "curve_episodes": budget.curve_episodes},
        "versions": _versions(),
        "hardware": {"device": device(), "cores": os.cpu_count()},
        "returns": None,
        "scores": None,
        "curve": [],
        "error": None,
        "seconds": {},
        "group": None,
        "same_as": None,
        **found,
        "filter": prepared and prepared.filter,
        "metadata": dict(prepared.set.metadata) if prepared else {},
        "num_rows": len(prepared.set) if prepared else None,
        "content_hash": prepared and prepared.content_hash,
        "data": data.fingerprints if data else {},
        "time": now(),
    }


@cache
def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("jax", "numpy", "mujoco")}
    return {"puorl": __version__, "python": platform.python_version(), **packages}
