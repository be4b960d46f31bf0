"""Run tasks: in this process, in processes of this machine, or on Ray.

A worker that is lost is replaced, and its task is done again. A task that fails twice is named, and
the rest goes on. Results are in the order of the tasks, whichever ended first.

A task on a partition writes its files into a folder, and its record last. What has a record is not
done again, so a run resumes at the last finished partition. Such a task depends on nothing but its
partition, and its process computes with one thread: the bytes are the same for any number of
workers and any engine.
"""

import contextlib
import multiprocessing
import os
import signal
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, get_args

from puorl.core import hashing
from puorl.core.errors import GOES_ON, ConfigError, DataError, PuorlError, require
from puorl.core.files import read_json, write_json
from puorl.core.formatting import check_choice
from puorl.core.progress import Advance, progress_bar, quiet
from puorl.core.resources import num_threads

Engine = Literal["local", "ray"]
Task = Callable[[int, Path], dict[str, Any]]
"""Writes the files of a partition, under `part_path`, and returns its record, JSON-ready."""
_MOST_FAILED, _MOST_LOST = 2, 5
"""Most errors of a task, and most losses of its worker."""
_FILES = "files"
"""Key of a record: hashes of the files of its partition, by suffix."""
_LAYOUT, _NEWEST = "layout", 2
"""Key of a record: which entries tasks write. Partitions with those of before are done again."""
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment of a worker on partitions: as many processes as cores, each with one thread."""


@dataclass(frozen=True)
class Workers:
    """The engine and the number of processes that run tasks."""

    engine: Engine = "local"
    number: int | None = None
    """Processes on this machine; all cores by default, or all those of the cluster."""
    address: str | None = None
    """Of a Ray cluster; by default Ray is started on this machine."""
    num_gpus: float = 0.0
    """GPUs of each task on Ray; partitions are read and scored without."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_choice("engine", self.engine, get_args(Engine))
        num_threads(self.number)
        if not self.num_gpus >= 0:
            raise ConfigError(f"num_gpus: expected 0 or more, got {self.num_gpus}")
        if self.engine != "ray" and (self.address is not None or self.num_gpus):
            name = "num_gpus" if self.address is None else "address"
            raise ConfigError(f"{name}: expected engine ray with it, got local")


def part_path(folder: Path, number: int, suffix: str) -> Path:
    """Return the path of a file of a partition."""
    return folder / f"part-{number:06d}{suffix}"


def call_all(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    workers: Workers | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    advance: Advance = quiet,
) -> list[Any]:
    """Call a function with every item; return the results in order.

    Args:
        function: It, the items and the results can be pickled.
        items: Arguments.
        workers: Where; None is here, one call after the other, and an error ends all.
        environment: Variables of the workers; None where they compute as this process does.
        advance: Callback for every finished item.

    Raises:
        DataError: Calls failed twice; all others were made.
    """
    if workers is None:
        made = []
        for item in items:
            made.append(function(item))
            advance(1)
        return made
    made, failed = try_all(function, items, workers, environment=environment, advance=advance)
    check_failed(failed, [f"task {i}" for i in range(len(items))], "tasks")
    return made


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
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    todo = [i for i in range(count) if not _is_whole(folder, i)]
    own = Workers(workers.engine, workers.number, workers.address)
    with progress_bar(title, total=count, unit="partitions", show=progress) as advance:
        advance(count - len(todo), earlier=True)
        failed = try_all(
            partial(finish, task, folder), todo, own, environment=ONE_THREAD, advance=advance
        )[1]
    check_failed({todo[i]: text for i, text in failed.items()}, list(map(describe, range(count))))
    records = [read_json(part_path(folder, i, ".json")) for i in range(count)]
    return [{k: v for k, v in each.items() if k not in (_FILES, _LAYOUT)} for each in records]


def finish(task: Task, folder: Path, number: int) -> None:
    """Run a task, and write its record, with hashes of its files, when all of these are there."""
    record = task(number, folder)
    files = [path for path in _files(folder, number) if path.suffix != ".json"]
    hashes = {path.suffix: hashing.of_bytes(path) for path in files}
    content = {**record, _FILES: hashes, _LAYOUT: _NEWEST}
    write_json(part_path(folder, number, ".json"), content, force=True)


def _is_whole(folder: Path, number: int) -> bool:
    """Return whether a partition was finished and its files are as they were written."""
    try:
        record = read_json(part_path(folder, number, ".json"))
        stored = record.get(_FILES, {})
        return record.get(_LAYOUT) == _NEWEST and all(
            hashing.of_bytes(part_path(folder, number, suffix)) == stored[suffix]
            for suffix in stored
        )
    except (DataError, OSError):
        return False


def _files(folder: Path, number: int) -> list[Path]:
    return sorted(folder.glob(f"{part_path(folder, number, '').name}.*"))


def try_all(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    workers: Workers,
    *,
    environment: Mapping[str, str] | None = None,
    advance: Advance = quiet,
) -> tuple[list[Any], dict[int, str]]:
    """Do as `call_all`; return the results, and the errors of calls that failed twice."""
    made, failed = [None] * len(items), dict[int, str]()
    function = partial(_in_step, function) if environment is None else function
    run = _on_ray if workers.engine == "ray" else _locally
    if items:
        with contextlib.closing(run(function, items, workers, environment or {})) as outcomes:
            for number, result, error in outcomes:
                made[number] = result
                if error is not None:
                    failed[number] = error
                advance(1)
    return made, failed


def check_failed(failed: Mapping[int, str], names: Sequence[str], what: str = "partitions") -> None:
    """Raise an error that names the first task that failed."""
    if failed:
        first = min(failed)
        raise DataError(
            f"{len(failed)} of {len(names)} {what} failed, the first is {names[first]}: "
            f"{failed[first]}; {GOES_ON}"
        )


def _message(error: BaseException) -> str:
    return str(error) if isinstance(error, PuorlError) else f"{type(error).__name__}: {error}"


class _Tries:
    """Tasks that are left, and how often each was tried."""

    def __init__(self, count: int) -> None:
        self.left = deque(range(count))
        self._failed: Counter[tuple[int, bool]] = Counter()

    def failed(self, number: int, *, lost: bool) -> bool:
        """Note a failure; return whether it was the last, else the task is done again."""
        self._failed[number, lost] += 1
        if self._failed[number, lost] >= (_MOST_LOST if lost else _MOST_FAILED):
            return True
        self.left.append(number)
        return False


Outcomes = Generator[tuple[int, Any, str | None]]
"""Number of a task, its result, and its error."""

# ---------------------------------------------------------------------------------- local


def _locally(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    workers: Workers,
    environment: Mapping[str, str],
) -> Outcomes:
    """Run tasks in processes of this machine."""
    tries, busy = _Tries(len(items)), dict[Connection, tuple[int, Any]]()
    idle: list[tuple[Connection, Any]] = []
    try:
        while tries.left or busy:
            while tries.left and len(busy) < min(num_threads(workers.number), len(items)):
                line, process = idle.pop() if idle else _start(function, environment)
                with contextlib.suppress(OSError):  # lost just now: seen below
                    line.send(items[tries.left[0]])
                busy[line] = (tries.left.popleft(), process)
            for line in wait(list(busy)):
                assert isinstance(line, Connection)
                number, process = busy.pop(line)
                try:
                    result, error = line.recv()
                except (EOFError, OSError):
                    process.join()
                    line.close()
                    if tries.failed(number, lost=True):
                        text = f"its worker was lost {_MOST_LOST} times ({process.exitcode})"
                        yield number, None, text
                    continue
                idle.append((line, process))
                if error is None or tries.failed(number, lost=False):
                    yield number, result, error
    finally:
        for line, process in [*idle, *((line, process) for line, (_, process) in busy.items())]:
            line.close()
            process.kill()
            process.join()


def _start(function: Callable[[Any], Any], environment: Mapping[str, str]) -> tuple[Any, Any]:
    """Start a worker; spawned, as a process that has computed with JAX cannot be forked."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, function), daemon=True)
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        process.start()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    theirs.close()  # so that a lost worker ends the line
    return ours, process


def _work(line: Connection, function: Callable[[Any], Any]) -> None:
    """Do tasks until the line ends, as it does when the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends its workers
    with contextlib.suppress(EOFError, OSError):
        while True:
            item = line.recv()
            try:
                outcome = function(item), None
            except Exception as caught:
                outcome = None, _message(caught)
            line.send(outcome)


# ------------------------------------------------------------------------------------- Ray


@contextlib.contextmanager
def started(workers: Workers | None) -> Iterator[Any]:
    """Start Ray, or connect to it, for all tasks of the block; elsewhere each job does so.

    Without engine ray, or inside of such a block, nothing is done.
    """
    if workers is None or workers.engine != "ray":
        yield None
        return
    ray: Any = require("ray", extra="ray", purpose="engine ray")
    if ray.is_initialized():
        yield ray
        return
    with warnings.catch_warnings():
        # Of jax; what Ray forks is replaced by another program at once.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        ray.init(
            address=workers.address,
            num_cpus=None if workers.address else num_threads(workers.number),
            include_dashboard=None if workers.address else False,
            log_to_driver=False,
            logging_level="error",
        )
    try:
        yield ray
    finally:
        ray.shutdown()


def _on_ray(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    workers: Workers,
    environment: Mapping[str, str],
) -> Outcomes:
    """Run tasks on Ray."""
    tries, busy = _Tries(len(items)), dict[Any, int]()
    with started(workers) as ray:
        try:
            # More than one in flight for each core, so that none waits; not more, so that memory
            # is kept.
            cores = workers.number or int(ray.cluster_resources().get("CPU", 1))
            do = ray.remote(_call).options(
                num_cpus=1,
                num_gpus=workers.num_gpus,
                max_retries=_MOST_LOST,
                runtime_env={"env_vars": dict(environment)},
            )
            shared = ray.put(function)
            while tries.left or busy:
                while tries.left and len(busy) < cores + 1:
                    number = tries.left.popleft()
                    busy[do.remote(shared, items[number])] = number
                for done in ray.wait(list(busy), num_returns=1)[0]:
                    number, result, error = busy.pop(done), None, None
                    try:
                        result = ray.get(done)
                    except ray.exceptions.RayTaskError as caught:
                        error = _message(caught.cause)
                    except ray.exceptions.RayError as caught:
                        error = f"its worker was lost: {_message(caught).splitlines()[0]}"
                    if error is None or tries.failed(number, lost=False):
                        yield number, result, error
        finally:
            for one in busy:
                ray.cancel(one, force=True)


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)


def _in_step(function: Callable[[Any], Any], item: Any) -> Any:
    """Call a function that may use jax, which waits for each computation on a CPU.

    With many of them in flight it may hang (jax-ml/jax issue 25861).
    """
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return function(item)
