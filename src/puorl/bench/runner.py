"""Run what is missing of a plan: collect, prepare, train in groups, append one row a run.

Several processes may share one folder. Each works on the batches of cells whose locks it holds; the
system releases the locks of a process that ends, even after a kill. A killed group is trained from
its last checkpoint by the next process. On Ray every batch is a task, which calls `run` for its
runs: rows are made and stored as in any other process.
"""

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from puorl.bench import plan as plans
from puorl.bench.batch import BatchWork, RunContext, device
from puorl.bench.plan import MOST_LANES, Cell, CellBatch, Plan, PlanStatus, Run
from puorl.bench.prepare import collect_all
from puorl.bench.store import Row, Store
from puorl.core.files import lock
from puorl.core.formatting import check_positive
from puorl.core.progress import progress_bar
from puorl.core.tasks import Workers, check_failed, started, try_all

_POLL_SECONDS = 1.0
"""Between two attempts, while other processes hold the locks of all that is left."""


@dataclass(frozen=True)
class RunOutcome:
    """Numbers of rows that a call of `run` appended, and its time."""

    num_trained: int
    num_copied: int
    """Rows of trainings that another row has already."""
    num_failed: int
    """Rows with an error."""
    seconds: float


def survey(plan: Plan, out: Path, *, retry: bool = False, lanes: int | None = None) -> PlanStatus:
    """Compare a plan with a store, as `run` with these arguments would; nothing is changed."""
    store = Store(out)
    latest = store.latest()
    return plans.plan_status(
        plan,
        store.rows(),
        latest,
        device(),
        retry=_failed(latest) if retry else frozenset(),
        batches=_batches(plan, lanes),
        most_lanes=lanes or MOST_LANES,
    )


def run(
    plan: Plan,
    out: Path,
    *,
    retry: bool = False,
    lanes: int | None = None,
    workers: int = 1,
    engine: Workers | None = None,
    show: bool = False,
    on_message: Callable[[str], None] = lambda _: None,
) -> RunOutcome:
    """Run what is missing of a plan.

    Args:
        plan: From `make_plan`.
        out: Folder of the store, of prepared sets, of groups in training and of locks.
        retry: Also run again what ended in an error before.
        lanes: Most lanes that train together, of one setting or of several; `MOST_LANES` if None.
            On a CPU, where more lanes are not faster, None trains every setting alone.
        workers: Processes that collect data side by side.
        engine: Where batches are prepared, trained and evaluated; None is here, one after the
            other. Nodes of a cluster must share ``out``.
        show: Show progress bars.
        on_message: Callback for one line about every failure.

    Raises:
        ConfigError: Fewer than one lane.
        DataError: The folder cannot be written, or batches failed twice; all others are done.
    """
    check_positive("lanes", lanes)
    start = time.perf_counter()
    status = survey(plan, out, retry=retry)
    store = _CountingStore(out)
    for note in store.read().notes:
        on_message(f"{note}; its run counts as missing")
    again = _failed(store.latest()) if retry else frozenset()
    context = RunContext(out, store, lanes or MOST_LANES, again, on_message)
    batches = _batches(plan, lanes, engine)
    session = _Session(plan, batches, context)
    session.collect(workers, show)
    if engine is not None:
        counts = _run_on(engine, plan, batches, context, lanes=lanes, retry=retry, show=show)
        return RunOutcome(*counts, seconds=time.perf_counter() - start)
    total = max(1, status.lane_steps)
    with progress_bar("training", total=total, unit="lane-steps", show=show) as advance:
        context.advance = advance
        while pending := session.pending_batches():
            # A list, so that every batch is tried.
            if not any([session.work_on(batch) for batch in pending]):
                time.sleep(_POLL_SECONDS)
    counts = [store.counts[kind] for kind in ("trained", "copied", "failed")]
    return RunOutcome(*counts, seconds=time.perf_counter() - start)


def _failed(latest: Mapping[str, Row]) -> frozenset[str]:
    return frozenset(run for run, row in latest.items() if row.get("error") is not None)


def _batches(plan: Plan, lanes: int | None, engine: Workers | None = None) -> tuple[CellBatch, ...]:
    has_gpu = jax.default_backend() != "cpu" if engine is None else engine.num_gpus > 0
    is_joined = lanes is not None or has_gpu
    return plans.make_batches(plan, (lanes or MOST_LANES) if is_joined else None)


def _run_on(
    engine: Workers,
    plan: Plan,
    batches: tuple[CellBatch, ...],
    context: RunContext,
    *,
    lanes: int | None,
    retry: bool,
    show: bool,
) -> list[int]:
    """Run all batches as tasks; return the numbers of rows of `RunOutcome`.

    First all sets are prepared. What is the same training in several batches is then known, and is
    the first one's, as where they are run in turn; the others copy it in the end.
    """
    out, counts, failed, names = context.out.absolute(), [0, 0, 0], dict[int, str](), list[str]()
    parts = [part for batch in batches if (part := _part(plan, batch, context)).runs]
    with started(engine):
        with progress_bar("preparing", total=len(parts), unit="batches", show=show) as advance:
            # What fails here is tried again below, and named there.
            prepared, _ = try_all(partial(_trainings, out), parts, engine, advance=advance)
        waves = _waves(parts, prepared)
        total = sum(map(len, waves))
        with progress_bar("training", total=total, unit="batches", show=show) as advance:
            for wave in waves:
                task = partial(_run_part, out, retry, lanes)
                made, lost = try_all(task, wave, engine, advance=advance)
                failed |= {len(names) + i: text for i, text in lost.items()}
                names += [CellBatch(part.cells).title for part in wave]
                for done, messages in filter(None, made):
                    for line in messages:
                        context.on_message(line)
                    added = done.num_trained, done.num_copied, done.num_failed
                    counts = [a + b for a, b in zip(counts, added, strict=True)]
    check_failed(failed, names, "batches")
    return counts


def _part(plan: Plan, batch: CellBatch, context: RunContext) -> Plan:
    """Return what is missing of one batch as a plan, with cells that hold nothing cached."""
    cells = {cell: dataclasses.replace(cell) for cell in batch.cells}
    todo = context.missing(plan.runs_of(*batch.cells))
    runs = tuple(dataclasses.replace(run, cell=cells[run.cell]) for run in todo)
    return Plan(plan.name, tuple(cells.values()), runs)


def _waves(
    parts: Sequence[Plan], prepared: Sequence[Mapping[str, str] | None]
) -> tuple[list[Plan], list[Plan]]:
    """Divide parts into trainings, and copies of these."""
    waves, begun = ([], []), set[str]()
    for part, trainings in zip(parts, prepared, strict=True):
        mine = {run: (trainings or {}).get(run.id, run.id) for run in part.runs}
        for wave, is_copy in zip(waves, (False, True), strict=True):
            runs = tuple(run for run, training in mine.items() if (training in begun) == is_copy)
            if runs:
                wave.append(dataclasses.replace(part, runs=runs))
        begun.update(mine.values())
    return waves


def _trainings(out: Path, plan: Plan) -> dict[str, str]:
    """Prepare the sets of a part; return the training of each run whose set could be prepared."""
    context = RunContext(out, Store(out), MOST_LANES, frozenset(), lambda _: None)
    return BatchWork(CellBatch(plan.cells), context).trainings(plan.runs)


def _run_part(
    out: Path, retry: bool, lanes: int | None, plan: Plan
) -> tuple[RunOutcome, list[str]]:
    """Run a part in a process of a worker; return also what it had to tell."""
    messages: list[str] = []
    return run(plan, out, retry=retry, lanes=lanes, on_message=messages.append), messages


class _CountingStore(Store):
    """A store that counts the rows that this process appends."""

    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self.counts: Counter[str] = Counter()

    def append(self, row: Mapping[str, Any]) -> None:
        super().append(row)
        kind = "copied" if row["same_as"] else "trained"
        self.counts[kind if row["error"] is None else "failed"] += 1


class _Session:
    """One process at work on a store."""

    def __init__(self, plan: Plan, batches: tuple[CellBatch, ...], context: RunContext) -> None:
        self._plan, self._batches, self._context = plan, batches, context

    def _lock(self, name: str, *, wait: bool = False) -> contextlib.AbstractContextManager[bool]:
        return lock(self._context.out / "locks" / f"{name}.lock", wait=wait)

    def pending_batches(self) -> list[CellBatch]:
        cells = self._pending_cells()
        return [batch for batch in self._batches if any(cell in cells for cell in batch.cells)]

    def _pending_cells(self) -> list[Cell]:
        return list(dict.fromkeys(run.cell for run in self._context.missing(self._plan.runs)))

    def collect(self, workers: int, show: bool) -> None:
        if pending := self._pending_cells():
            # One process collects and the others wait: they would make the same rows.
            with self._lock("collect", wait=True):
                collect_all(plans.needed_sources(pending), workers=workers, show=show)

    def work_on(self, batch: CellBatch) -> bool:
        """Do what can be done of a batch now; return whether that was anything."""
        with contextlib.ExitStack() as held:
            for cell in batch.cells:
                if not held.enter_context(self._lock(f"cell-{cell.id}")):
                    return False
            todo = self._context.missing(self._plan.runs_of(*batch.cells))
            todo = self._without_begun(todo, batch, held) if todo else []
            if todo:
                BatchWork(batch, self._context).do(todo)
        return bool(todo)

    def _without_begun(
        self, todo: list[Run], batch: CellBatch, held: contextlib.ExitStack
    ) -> list[Run]:
        """Leave out runs whose training was begun in another batch: they will be copied."""
        is_free = {
            key: held.enter_context(self._lock(f"shared-{key}"))
            for key in dict.fromkeys(run.shared_key for run in todo)
            if key is not None
        }
        begun = self._begun_elsewhere(batch) if is_free else set()
        chosen = [
            run
            for run in todo
            if (key := run.shared_key) is None or (is_free[key] and (key, run.seed) not in begun)
        ]
        return self._context.missing(chosen)  # another process may have finished them just now

    def _begun_elsewhere(self, batch: CellBatch) -> set[tuple[str | None, int]]:
        """List shared trainings in killed groups of other batches and not of this one.

        Only those that the plan will resume: waiting for others would never end.
        """
        wanted = {run.id for run in self._context.missing(self._plan.runs)}
        begun = {
            each.id: {
                (lane.shared, lane.seed)
                for group in self._context.unfinished_groups(each)
                for lane in group.lanes
                if lane.run in wanted
            }
            for each in self._batches
        }
        return set().union(*begun.values()) - begun[batch.id]
