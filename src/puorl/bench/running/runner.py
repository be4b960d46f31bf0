"""The runner: a plan becomes rows. Killed at any time, it goes on; nothing is done twice or lost.

Cells are claimed one by one, so that several processes can share a store. Within a cell every
method is prepared once, lanes train together, and rows are written when a group ends. What fails
becomes a row with an error, and the rest goes on.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from puorl.bench.plan import MOST_LANES, Cell, Outlook, Plan, Run, missing, needed_sources, outlook
from puorl.bench.running import group as groups
from puorl.bench.running import rows
from puorl.bench.running.claims import Claims
from puorl.bench.running.collecting import collect_all
from puorl.bench.running.group import Group, LaneOf
from puorl.bench.running.prepared import Prepared, prepare
from puorl.bench.running.rows import Opened
from puorl.bench.store import Store
from puorl.core.progress import Advance, progress_bar, quiet

_SECONDS_BETWEEN_LOOKS = 1.0
"""While other processes have all that is left."""
_LONGEST_ERROR = 500


@dataclass(frozen=True)
class Summary:
    """What a call of `run` did."""

    num_trained: int
    num_copied: int
    """Rows of trainings that were there already."""
    num_failed: int
    """Rows with an error."""
    seconds: float


def survey(plan: Plan, out: Path, *, retry: bool = False) -> Outlook:
    """Where a plan stands in a store; nothing is changed."""
    store = Store(out)
    before = rows.now() if retry else ""
    return outlook(plan, store.rows(), store.latest(), rows.device(), retry_before=before)


def run(
    plan: Plan,
    out: Path,
    *,
    retry: bool = False,
    workers: int = 1,
    show: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Summary:
    """Run what is missing of a plan.

    Args:
        plan: From `make_plan`.
        out: Folder of the store; prepared sets, groups in training and claims lie there, too.
        retry: Also run again what ended in an error before.
        workers: Processes that collect data side by side.
        show: Show progress bars.
        tell: Is told a line when something happened that is worth one.

    Raises:
        DataError: The folder cannot be written.
    """
    return _Session(plan, out, retry, tell).run(workers, show)


class _Session:
    """One process at work on a store."""

    def __init__(self, plan: Plan, out: Path, retry: bool, tell: Callable[[str], None]) -> None:
        self._plan, self.out, self.tell = plan, out, tell
        self.store = Store(out)
        self._claims = Claims(out / "claims")
        self.retry_before = rows.now() if retry else ""
        self._counts = {"trained": 0, "copied": 0, "failed": 0}
        self.advance: Advance = quiet

    def run(self, workers: int, show: bool) -> Summary:
        began = time.perf_counter()
        ahead = survey(self._plan, self.out, retry=bool(self.retry_before))
        self._collect(workers, show)
        total = max(1, ahead.lane_steps)
        with progress_bar("training", total=total, unit="lane-steps", show=show) as advance:
            self.advance = advance
            while pending := self._pending_cells():
                # A list, since every cell is to be tried.
                if not any([self._work(cell) for cell in pending]):
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
        took = time.perf_counter() - began
        counts = {f"num_{name}": count for name, count in self._counts.items()}
        return Summary(**counts, seconds=took)

    def _pending_cells(self) -> list[Cell]:
        todo = self.missing(self._plan.runs)
        return list(dict.fromkeys(run.cell for run in todo))

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        return missing(runs, self.store.latest(), retry_before=self.retry_before)

    def _collect(self, workers: int, show: bool) -> None:
        pending = self._pending_cells()
        if pending:
            # One process collects, the others wait: they would make the same rows.
            with self._claims.held("collect", wait=True):
                collect_all(needed_sources(pending), workers=workers, show=show)

    def _work(self, cell: Cell) -> bool:
        """Do all that can be done of a cell now; whether that was anything."""
        with contextlib.ExitStack() as held:
            if not held.enter_context(self._claims.held(f"cell-{cell.id}")):
                return False
            todo = self.missing(self._plan.runs_of(cell))
            todo = self._free(todo, held) if todo else []
            if not todo:
                return False
            try:
                opened = Opened.of(cell)
            except Exception as error:
                self.fail(todo, "data", error, None)
                return True
            _Work(self, cell, opened).do(todo)
        return True

    def _free(self, todo: list[Run], held: contextlib.ExitStack) -> list[Run]:
        """Without runs whose training is begun elsewhere: another cell will have it."""
        keys = {run.id: run.cell.shared_key(run.method) for run in todo}
        free = {
            key: held.enter_context(self._claims.held(f"shared-{key}"))
            for key in dict.fromkeys(keys.values())
            if key is not None
        }
        begun = self._begun_elsewhere(todo[0].cell) if free else set()
        chosen = [
            run
            for run in todo
            if (key := keys[run.id]) is None or (free[key] and (key, run.seed) not in begun)
        ]
        return self.missing(chosen)  # somebody may just have finished

    def _begun_elsewhere(self, cell: Cell) -> set[tuple[str | None, int]]:
        """Shared trainings that stand in killed groups of other cells, and not in this one's.

        Only where the plan will go on with them: to leave anything else would be to wait for ever.
        """
        wanted = {run.id for run in self.missing(self._plan.runs)}
        begun = {
            each.id: {
                (lane.shared, lane.seed)
                for group in groups.unfinished(self.out / "groups", each)
                for lane in group.lanes
                if lane.run in wanted
            }
            for each in self._plan.cells
        }
        return set().union(*begun.values()) - begun[cell.id]

    def append(self, row: Mapping[str, Any]) -> None:
        self.store.append(row)
        if row["error"] is not None:
            self._counts["failed"] += 1
        else:
            self._counts["copied" if row["same_as"] else "trained"] += 1

    def fail(
        self, runs: Sequence[Run], stage: str, error: Exception, opened: Opened | None
    ) -> None:
        """Rows for runs that cannot be done; a fault of the machine is not theirs, and raised."""
        if _is_the_machines(error):
            raise error
        text = f"{stage}: {type(error).__name__}: {error}"[:_LONGEST_ERROR]
        for run in runs[:1]:
            self.tell(f"{run.cell.title} {run.method.label}: failed: {text}")
        for run in runs:
            self.append(rows.failed(run, text, opened))


class _Work:
    """What is done in one cell, while its claim is held."""

    def __init__(self, session: _Session, cell: Cell, opened: Opened) -> None:
        self._session, self._cell, self._opened = session, cell, opened
        self._root = session.out / "groups"
        self._choices = {method.label: method for method in cell.methods}
        self._sets: dict[str, Prepared] = {}

    def do(self, todo: list[Run]) -> None:
        for label in dict.fromkeys(run.method.label for run in todo):
            self._prepare(label, [run for run in todo if run.method.label == label])
        for group in groups.unfinished(self._root, self._cell):
            # A kill may have left a group of which all rows are in the store.
            wanted = {run.id for run in self._session.missing(todo)}
            if wanted & {lane.run for lane in group.lanes}:
                self._resume(group)
        left = [run for run in self._session.missing(todo) if run.method.label in self._sets]
        left = [run for run in left if not self._copy(run)]
        lanes = [self._lane(run) for run in left]
        for start in range(0, len(lanes), MOST_LANES):
            chosen = lanes[start : start + MOST_LANES]
            self._train(groups.begin(self._root, self._cell, chosen))

    def _prepare(self, label: str, runs: list[Run]) -> bool:
        """Prepare a method once; whether that worked."""
        if label in self._sets:
            return True
        seed = self._cell.setting.split_seed
        folder = self._session.out / "prepared"
        self._session.advance(0, f"{self._cell.title}: {label}")
        try:
            self._sets[label] = prepare(
                folder, self._opened.split, self._opened.mark, self._choices[label], seed=seed
            )
        except Exception as error:
            self._session.fail(runs, "prepare", error, self._opened)
            return False
        return True

    def _lane(self, run: Run) -> LaneOf:
        label = run.method.label
        training = rows.training_id(run, self._sets[label])
        return LaneOf(run.id, training, label, run.seed, self._cell.shared_key(run.method))

    def _resume(self, group: Group) -> None:
        """Go on with a group that was killed, if its lanes are still what they were."""
        known = [lane for lane in group.lanes if lane.method in self._choices]
        for label in dict.fromkeys(lane.method for lane in known):
            self._prepare(label, [])
        same = len(known) == len(group.lanes) and all(
            lane.method in self._sets and self._lane(self._run(lane)) == lane for lane in known
        )
        if same:
            self._train(group)
        else:
            group.abandon()

    def _run(self, lane: LaneOf) -> Run:
        return self._cell.run(self._choices[lane.method], lane.seed)

    def _copy(self, run: Run) -> bool:
        """Write the row of a run whose training is in the store; whether there was one."""
        training = self._lane(run).training
        latest = self._session.store.latest().values()
        same = [row for row in latest if row["training"] == training]
        same = [row for row in same if row["error"] is None] or [
            row for row in same if row["time"] >= self._session.retry_before
        ]
        if same:
            label = run.method.label
            self._session.append(rows.copied(run, self._opened, self._sets[label], same[0]))
        return bool(same)

    def _train(self, group: Group) -> None:
        try:
            found = groups.train(group, self._cell, self._sets, self._session.advance)
        except Exception as error:
            self._divide(group, error)
            return
        latest = self._session.store.latest()
        for lane in group.lanes:
            run = self._run(lane)
            if missing([run], latest, retry_before=self._session.retry_before):
                prepared = self._sets[lane.method]
                result = found[lane.run]
                row = rows.finished(run, self._opened, prepared, lane.training, result, group.name)
                if result.error is not None:
                    self._session.tell(f"{self._cell.title} {lane.method}: {result.error}")
                self._session.append(row)
        group.finish()

    def _divide(self, group: Group, error: Exception) -> None:
        """A group failed: train its methods one by one, so that only the culprit's runs fail."""
        if _is_the_machines(error):
            raise error
        labels = list(dict.fromkeys(lane.method for lane in group.lanes))
        if len(labels) == 1:
            runs = [self._run(lane) for lane in group.lanes]
            self._session.fail(self._session.missing(runs), "train", error, self._opened)
            group.abandon()
            return
        # The parts first: a kill in between must find either the whole or all of them.
        parts = [
            groups.begin(self._root, self._cell, [x for x in group.lanes if x.method == label])
            for label in labels
        ]
        group.abandon()
        for part in parts:
            self._train(part)


def _is_the_machines(error: BaseException) -> bool:
    """A full disk or a dead device: to be repaired, and then gone on from."""
    if isinstance(error, jax.errors.JaxRuntimeError):
        return "RESOURCE_EXHAUSTED" not in str(error)
    return isinstance(error, OSError | MemoryError) or isinstance(error.__cause__, OSError)
