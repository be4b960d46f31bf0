"""Run one task on every partition: in local processes or on Ray, resumed after a kill.

A task writes its files into a folder, and its record last. What has a record is not done again, so
a run resumes at the last finished partition. A task depends on nothing but its partition, and every
process computes with one thread: the bytes are the same for any number of workers and any engine.
A worker that is lost is replaced, and its partition is done again. A task that fails twice is
named, and the rest goes on.
"""

import contextlib
import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, get_args

from puorl.core.errors import GOES_ON, ConfigError, DataError, PuorlError, require
from puorl.core.files import read_json, write_json
from puorl.core.formatting import check_choice
from puorl.core.progress import progress_bar
from puorl.core.resources import num_threads

Engine = Literal["local", "ray"]
Task = Callable[[int, Path], dict[str, Any]]
"""Writes the files of a partition, under `part_path`, and returns its record, JSON-ready."""
_MOST_FAILED, _MOST_LOST = 2, 5
"""How often a task may raise an error, and how often its worker may be lost."""
_ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment of a worker: as many processes as cores, each with one thread."""


@dataclass(frozen=True)
class Workers:
    """Where tasks run."""

    engine: Engine = "local"
    number: int | None = None
    """Processes on this machine; all cores by default, or all those of the cluster."""
    address: str | None = None
    """Of a Ray cluster; by default Ray is started on this machine."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: An engine that is unknown, or less than one worker.
        """
        check_choice("engine", self.engine, get_args(Engine))
        num_threads(self.number)
        if self.address is not None and self.engine != "ray":
            raise ConfigError("address: expected engine ray with it, got local")


def part_path(folder: Path, number: int, suffix: str) -> Path:
    """Return the path of a file of a partition."""
    return folder / f"part-{number:06d}{suffix}"


def run_tasks(
    task: Task,
    count: int,
    folder: Path,
    workers: Workers,
    *,
    title: str = "partitions",
    progress: bool = False,
    describe: Callable[[int], str] = "partition {}".format,
) -> list[dict[str, Any]]:
    """Run a task on the partitions 0 to ``count - 1`` that have no record yet; return all records.

    Args:
        task: The task; it and what it holds can be pickled.
        count: Number of partitions.
        folder: Where files and records are written; Ray's nodes must share it.
        workers: Where tasks run.
        title: Name of the job, for the bar.
        progress: Show a bar.
        describe: Names a partition in messages.

    Raises:
        DataError: Tasks failed twice, or lost their workers again and again; all others are done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    todo = [i for i in range(count) if not part_path(folder, i, ".json").exists()]
    failed: dict[int, str] = {}
    with progress_bar(title, total=count, unit="partitions", show=progress) as advance:
        advance(count - len(todo), earlier=True)
        run = _on_ray if workers.engine == "ray" else _locally
        with contextlib.closing(run(task, todo, folder, workers)) as outcomes:
            for number, error in outcomes if todo else ():
                if error is not None:
                    failed[number] = error
                advance(1)
    if failed:
        first = min(failed)
        raise DataError(
            f"{len(failed)} of {count} partitions failed, the first is {describe(first)}: "
            f"{failed[first]}; {GOES_ON}"
        )
    return [read_json(part_path(folder, i, ".json")) for i in range(count)]


def finish(task: Task, number: int, folder: Path) -> None:
    """Run a task, and write its record when all its files are there."""
    write_json(part_path(folder, number, ".json"), task(number, folder), force=True)


def _message(error: BaseException) -> str:
    return str(error) if isinstance(error, PuorlError) else f"{type(error).__name__}: {error}"


class _Tries:
    """Tasks that are left, and how often each was tried."""

    def __init__(self, todo: Sequence[int]) -> None:
        self.left = deque(todo)
        self._failed: Counter[tuple[int, bool]] = Counter()

    def failed(self, number: int, *, lost: bool) -> bool:
        """Note a failure; return whether it was the last, else the task is done again."""
        self._failed[number, lost] += 1
        if self._failed[number, lost] >= (_MOST_LOST if lost else _MOST_FAILED):
            return True
        self.left.append(number)
        return False


# ---------------------------------------------------------------------------------- local


def _locally(
    task: Task, todo: Sequence[int], folder: Path, workers: Workers
) -> Generator[tuple[int, str | None]]:
    """Run tasks in processes of this machine; yield each with its error."""
    tries, busy = _Tries(todo), dict[Connection, tuple[int, Any]]()
    idle: list[tuple[Connection, Any]] = []
    try:
        while tries.left or busy:
            while tries.left and len(busy) < min(num_threads(workers.number), len(todo)):
                line, process = idle.pop() if idle else _start(task, folder)
                with contextlib.suppress(OSError):  # lost just now: seen below
                    line.send(tries.left[0])
                busy[line] = (tries.left.popleft(), process)
            for line in wait(list(busy)):
                assert isinstance(line, Connection)
                number, process = busy.pop(line)
                try:
                    error = line.recv()
                except (EOFError, OSError):
                    process.join()
                    line.close()
                    if tries.failed(number, lost=True):
                        yield number, f"its worker was lost {_MOST_LOST} times ({process.exitcode})"
                    continue
                idle.append((line, process))
                if error is None or tries.failed(number, lost=False):
                    yield number, error
    finally:
        for line, process in [*idle, *((line, process) for line, (_, process) in busy.items())]:
            line.close()
            process.kill()
            process.join()


def _start(task: Task, folder: Path) -> tuple[Any, Any]:
    """Start a worker; spawned, as a process that has computed with JAX cannot be forked."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, task, folder), daemon=True)
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        process.start()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    theirs.close()  # so that a lost worker ends the line
    return ours, process


def _work(line: Connection, task: Task, folder: Path) -> None:
    """Do tasks until the line ends, as it does when the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends its workers
    with contextlib.suppress(EOFError, OSError):
        while True:
            number = line.recv()
            try:
                finish(task, number, folder)
                error = None
            except Exception as caught:
                error = _message(caught)
            line.send(error)


# ------------------------------------------------------------------------------------- Ray


def _on_ray(
    task: Task, todo: Sequence[int], folder: Path, workers: Workers
) -> Generator[tuple[int, str | None]]:
    """Run tasks on Ray; yield each with its error."""
    ray: Any = require("ray", extra="ray", purpose="engine ray")
    is_own = not ray.is_initialized()
    if is_own:
        number = None if workers.address else num_threads(workers.number)
        ray.init(
            address=workers.address,
            num_cpus=number,
            include_dashboard=None if workers.address else False,
            log_to_driver=False,
            logging_level="error",
        )
    # More than one in flight for each core, so that none waits; not more, so that memory is kept.
    cores = workers.number or int(ray.cluster_resources().get("CPU", 1))
    do = ray.remote(finish).options(
        num_cpus=1, max_retries=_MOST_LOST, runtime_env={"env_vars": _ONE_THREAD}
    )
    tries, shared, busy = _Tries(todo), ray.put(task), dict[Any, int]()
    try:
        while tries.left or busy:
            while tries.left and len(busy) < cores + 1:
                number = tries.left.popleft()
                busy[do.remote(shared, number, folder.absolute())] = number
            for done in ray.wait(list(busy), num_returns=1)[0]:
                number = busy.pop(done)
                try:
                    ray.get(done)
                    error = None
                except ray.exceptions.RayTaskError as caught:
                    error = _message(caught.cause)
                except ray.exceptions.RayError as caught:
                    error = f"its worker was lost: {_message(caught).splitlines()[0]}"
                if error is None or tries.failed(number, lost=False):
                    yield number, error
    finally:
        for one in busy:
            ray.cancel(one, force=True)
        if is_own:
            ray.shutdown()
