"""Claims: which process works on what, so that several can share one folder of results.

A claim is a locked file. The system lets go of it when its process ends, however that happens, so
no claim outlives its owner.
"""

import contextlib
import fcntl
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from puorl.bench import group as groups
from puorl.bench import rows
from puorl.bench.group import Group, Key, LaneOf
from puorl.bench.plan import (
    MOST_LANES,
    Cell,
    Crew,
    Outlook,
    Plan,
    Run,
    make_crews,
    missing,
    needed_sources,
    outlook,
)
from puorl.bench.prepare import Prepared, collect_all, prepare
from puorl.bench.rows import Opened
from puorl.bench.store import Store
from puorl.core.errors import ConfigError, DataError
from puorl.core.progress import Advance, progress_bar, quiet


class Claims:
    """A folder of lock files; they stay, since a name that vanished could be locked twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def held(self, name: str, *, wait: bool = False) -> Iterator[bool]:
        """Hold a claim while the block runs; yields whether it is ours.

        Args:
            name: What is claimed; letters, digits and dashes.
            wait: Wait for whoever has it, instead of yielding False.

        Raises:
            DataError: The folder cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{name}.lock"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataError(
                f"{self._folder}: expected a folder that can be written, got: {error}"
            ) from error
        try:
            yield _lock(handle, wait)
        finally:
            os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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


def survey(plan: Plan, out: Path, *, retry: bool = False, lanes: int | None = None) -> Outlook:
    """Where a plan stands in a store, if `run` were called with these; nothing is changed."""
    store = Store(out)
    return outlook(
        plan,
        store.rows(),
        store.latest(),
        rows.device(),
        retry_before=rows.now() if retry else "",
        crews=[crew.cells for crew in _crews(plan, lanes)],
        most_lanes=lanes or MOST_LANES,
    )


def run(
    plan: Plan,
    out: Path,
    *,
    retry: bool = False,
    lanes: int | None = None,
    workers: int = 1,
    show: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Summary:
    """Run what is missing of a plan.

    Args:
        plan: From `make_plan`.
        out: Folder of the store; prepared sets, groups in training and claims lie there, too.
        retry: Also run again what ended in an error before.
        lanes: Most lanes that train together, of one setting or of several; `MOST_LANES` if None,
            and on a CPU, which has no gain from more, every setting is trained apart then.
        workers: Processes that collect data side by side.
        show: Show progress bars.
        tell: Is told a line when something happened that is worth one.

    Raises:
        ConfigError: Fewer than one lane.
        DataError: The folder cannot be written.
    """
    if lanes is not None and lanes < 1:
        raise ConfigError(f"lanes: expected 1 or more, got {lanes}")
    crews = _crews(plan, lanes)
    return _Session(plan, crews, lanes or MOST_LANES, out, retry, tell).run(workers, show)


def _crews(plan: Plan, lanes: int | None) -> tuple[Crew, ...]:
    joined = lanes is not None or jax.default_backend() != "cpu"
    return make_crews(plan, (lanes or MOST_LANES) if joined else None)


class _Session:
    """One process at work on a store."""

    def __init__(
        self,
        plan: Plan,
        crews: tuple[Crew, ...],
        most_lanes: int,
        out: Path,
        retry: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._plan, self._crews, self.most_lanes = plan, crews, most_lanes
        self.out, self.tell = out, tell
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
            while pending := self._pending():
                # A list, since every crew is to be tried.
                if not any([self._work(crew) for crew in pending]):
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
        took = time.perf_counter() - began
        counts = {f"num_{name}": count for name, count in self._counts.items()}
        return Summary(**counts, seconds=took)

    def _pending(self) -> list[Crew]:
        cells = self._pending_cells()
        return [crew for crew in self._crews if any(cell in cells for cell in crew.cells)]

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

    def _work(self, crew: Crew) -> bool:
        """Do all that can be done of a crew's cells now; whether that was anything."""
        with contextlib.ExitStack() as held:
            for cell in crew.cells:
                if not held.enter_context(self._claims.held(f"cell-{cell.id}")):
                    return False
            todo = self.missing([run for cell in crew.cells for run in self._plan.runs_of(cell)])
            todo = self._free(todo, crew, held) if todo else []
            if todo:
                _Work(self, crew).do(todo)
        return bool(todo)

    def _free(self, todo: list[Run], crew: Crew, held: contextlib.ExitStack) -> list[Run]:
        """Without runs whose training is begun elsewhere: another crew will have it."""
        keys = {run.id: run.cell.shared_key(run.method) for run in todo}
        free = {
            key: held.enter_context(self._claims.held(f"shared-{key}"))
            for key in dict.fromkeys(keys.values())
            if key is not None
        }
        begun = self._begun_elsewhere(crew) if free else set()
        chosen = [
            run
            for run in todo
            if (key := keys[run.id]) is None or (free[key] and (key, run.seed) not in begun)
        ]
        return self.missing(chosen)  # somebody may just have finished

    def _begun_elsewhere(self, crew: Crew) -> set[tuple[str | None, int]]:
        """Shared trainings that stand in killed groups of other crews, and not in this one's.

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
            for each in self._crews
        }
        return set().union(*begun.values()) - begun[crew.id]

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
    """What is done in one crew, while the claims of its cells are held."""

    def __init__(self, session: _Session, crew: Crew) -> None:
        self._session, self._crew = session, crew
        self._root = session.out / "groups"
        self._opened: dict[str, Opened] = {}
        self._sets: dict[Key, Prepared] = {}

    def do(self, todo: list[Run]) -> None:
        for cell, label in dict.fromkeys((run.cell, run.method.label) for run in todo):
            runs = [run for run in todo if run.cell is cell and run.method.label == label]
            self._prepare(cell, label, runs)
        for group in groups.unfinished(self._root, self._crew):
            # A kill may have left a group of which all rows are in the store.
            wanted = {run.id for run in self._session.missing(todo)}
            if wanted & {lane.run for lane in group.lanes}:
                self._resume(group)
        left = [run for run in self._session.missing(todo) if _key(run) in self._sets]
        left = [run for run in left if not self._copy(run)]
        first: dict[str, LaneOf] = {}
        for run in left:
            lane = self._lane(run)
            first.setdefault(lane.training, lane)
        lanes, most = list(first.values()), self._session.most_lanes
        for start in range(0, len(lanes), most):
            chosen = lanes[start : start + most]
            self._train(groups.begin(self._root, self._crew, chosen))
        for run in self._session.missing(left):
            self._copy(run)

    def _prepare(self, cell: Cell, label: str, runs: list[Run]) -> None:
        """Prepare a method once; if that fails, these runs do."""
        if (cell.id, label) in self._sets:
            return
        choice = next(method for method in cell.methods if method.label == label)
        self._session.advance(0, f"{cell.title}: {label}")
        try:
            opened = self._open(cell)
        except Exception as error:
            self._session.fail(runs, "data", error, None)
            return
        try:
            self._sets[cell.id, label] = prepare(
                self._session.out / "prepared",
                opened.split,
                opened.mark,
                choice,
                seed=cell.setting.split_seed,
            )
        except Exception as error:
            self._session.fail(runs, "prepare", error, opened)

    def _open(self, cell: Cell) -> Opened:
        if cell.id not in self._opened:
            self._opened[cell.id] = Opened.of(cell)
        return self._opened[cell.id]

    def _lane(self, run: Run) -> LaneOf:
        training = rows.training_id(run, self._sets[_key(run)])
        shared = run.cell.shared_key(run.method)
        return LaneOf(run.id, run.cell.id, training, run.method.label, run.seed, shared)

    def _resume(self, group: Group) -> None:
        """Go on with a group that was killed, if its lanes are still what they were."""
        runs = [self._run(lane) for lane in group.lanes]
        known = [run for run in runs if run is not None]
        for run in known:
            self._prepare(run.cell, run.method.label, [])
        same = len(known) == len(runs) and all(
            _key(run) in self._sets and self._lane(run) == lane
            for run, lane in zip(known, group.lanes, strict=True)
        )
        if same:
            self._train(group)
        else:
            group.abandon()

    def _run(self, lane: LaneOf) -> Run | None:
        """The run of a lane; None where its method is no longer there."""
        cell = self._crew.cell(lane.cell)
        choices = [method for method in cell.methods if method.label == lane.method]
        return cell.run(choices[0], lane.seed) if choices else None

    def _copy(self, run: Run) -> bool:
        """Write the row of a run whose training is in the store; whether there was one."""
        training = self._lane(run).training
        latest = self._session.store.latest().values()
        same = [row for row in latest if row["training"] == training]
        same = [row for row in same if row["error"] is None] or [
            row for row in same if row["time"] >= self._session.retry_before
        ]
        if same:
            opened = self._opened[run.cell.id]
            self._session.append(rows.copied(run, opened, self._sets[_key(run)], same[0]))
        return bool(same)

    def _train(self, group: Group) -> None:
        try:
            found = groups.train(group, self._crew, self._sets, self._session.advance)
        except Exception as error:
            self._divide(group, error)
            return
        latest = self._session.store.latest()
        for lane, run in self._runs(group):
            if missing([run], latest, retry_before=self._session.retry_before):
                prepared, opened = self._sets[_key(run)], self._opened[run.cell.id]
                result = found[lane.run]
                row = rows.finished(run, opened, prepared, lane.training, result, group.name)
                if result.error is not None:
                    self._session.tell(f"{run.cell.title} {lane.method}: {result.error}")
                self._session.append(row)
        group.finish()

    def _runs(self, group: Group) -> list[tuple[LaneOf, Run]]:
        pairs = [(lane, self._run(lane)) for lane in group.lanes]
        return [(lane, run) for lane, run in pairs if run is not None]

    def _divide(self, group: Group, error: Exception) -> None:
        """A group failed: train its methods one by one, so that only the culprit's runs fail."""
        if _is_the_machines(error):
            raise error
        _let_go(error)
        keys = list(dict.fromkeys((lane.cell, lane.method) for lane in group.lanes))
        if len(keys) == 1:
            runs = [run for _, run in self._runs(group)]
            opened = self._opened[keys[0][0]]
            self._session.fail(self._session.missing(runs), "train", error, opened)
            group.abandon()
            return
        # The parts first: a kill in between must find either the whole or all of them.
        parts = [
            groups.begin(
                self._root,
                self._crew,
                [lane for lane in group.lanes if (lane.cell, lane.method) == key],
            )
            for key in keys
        ]
        group.abandon()
        for part in parts:
            self._train(part)


def _key(run: Run) -> Key:
    return run.cell.id, run.method.label


def _let_go(error: BaseException | None) -> None:
    """Free what the frames of a failed training hold: a device that was full stays full else."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _is_the_machines(error: BaseException) -> bool:
    """A full disk or a dead device: to be repaired, and then gone on from."""
    if isinstance(error, jax.errors.JaxRuntimeError):
        return "RESOURCE_EXHAUSTED" not in str(error)
    return isinstance(error, OSError | MemoryError) or isinstance(error.__cause__, OSError)
