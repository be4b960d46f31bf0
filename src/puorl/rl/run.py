"""Whether the plan of a kept run is the one that is asked for, and if not, in which settings."""

import contextlib
import dataclasses
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from puorl import __version__
from puorl.core import formatting, hashing
from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import read_json, write_json
from puorl.data.training_set import TrainingSet
from puorl.rl import trainer
from puorl.rl.learner import Learner
from puorl.rl.metrics import JsonLines, Sink, cut
from puorl.rl.policy import Policy
from puorl.rl.trainer import Lane, Progress, Stopped, TrainJob, TrainState

_MOST_NAMED = 5


def differing(kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The settings that differ with both values; empty for one and the same run.

    Which lanes train together is no matter: that is chosen for the device, as a run begins.
    """
    # The settings of two learners have little in common: that they are two says it all.
    same = kept.get("learner") == wanted.get("learner")
    told = formatting.describe_changes(_settings(kept, config=same), _settings(wanted, config=same))
    before, now = _lanes(kept), _lanes(wanted)
    parts = [told, _some("the run has also", before - now), _some("the run has no", now - before)]
    return "; ".join(part for part in parts if part)


def _settings(plan: Mapping[str, Any], *, config: bool) -> dict[str, Any]:
    """Setting by setting, under the names that users know them by."""
    plain = {k: v for k, v in plan.items() if k not in ("config", "sets", "groups")}
    if config:
        plain |= _named(plan, "config")
    return plain | {f"rows of {name}": mark for name, mark in _named(plan, "sets").items()}


def _lanes(plan: Mapping[str, Any]) -> set[str]:
    groups = plan.get("groups")
    return {name for group in groups for name in group} if isinstance(groups, list) else set()


def _some(what: str, names: set[str]) -> str:
    shown = sorted(names)[:_MOST_NAMED]
    more = ", ..." if len(names) > len(shown) else ""
    return f"{what} {', '.join(shown)}{more}" if names else ""


def _named(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = plan.get(name)
    return dict(found) if isinstance(found, Mapping) else {name: found}


class BackgroundTask:
    """Does what it is given in a thread; what comes next waits until that is done."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Begin it, once the last thing is done; an error of that is raised here."""
        self.wait()
        self._last = self._threads.submit(work)

    def wait(self) -> None:
        """Until the last thing is done; an error of it is raised here."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


@contextlib.contextmanager
def background_task() -> Iterator[BackgroundTask]:
    """A thread for a while; at the end, even after an error, what it has begun is done."""
    with ThreadPoolExecutor(max_workers=1) as threads:
        made = BackgroundTask(threads)
        try:
            yield made
        except Exception:
            made.wait()  # an error in there came first
            raise
        made.wait()


@contextlib.contextmanager
def compilation_cache(folder: Path) -> Iterator[None]:
    """On a GPU, compile into a folder and take from it what was compiled before."""
    if jax.default_backend() != "gpu":
        yield
        return
    from jax.experimental.compilation_cache import compilation_cache as cache

    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    earlier = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    cache.reset_cache()
    try:
        yield
    finally:
        for name, value in earlier.items():
            jax.config.update(name, value)
        cache.reset_cache()


PLAN = "run.json"
RECORD = "record.json"
METRICS = "metrics.jsonl"
_VERSION = 1
_MOST_LANES = {"gpu": 64, "tpu": 64, "cpu": 16}

Measure = Callable[[int, Mapping[str, Policy]], Mapping[str, Mapping[str, float]]]
"""(step, policies by lane) -> more numbers by lane, e.g. returns in an environment."""


@dataclass(frozen=True, eq=False)
class Job:
    """What a run trains."""

    learner: Learner
    sets: Mapping[str, TrainingSet]
    """Training sets of one pool, by name."""
    seeds: Mapping[str, Sequence[int]]
    """Seeds of each training set, by its name."""
    steps: int
    point_every: int
    most_lanes: int | None = None
    """Lanes that train together; what suits the device if None."""
    asked: Mapping[str, Any] | None = None
    """Where the rows were read and the like, JSON-ready: for the record, and never compared."""

    @property
    def lanes(self) -> dict[str, Lane]:
        """Every lane by name; a single training set goes without saying."""
        return {
            (f"seed-{seed}" if len(self.sets) == 1 else f"{name}-seed-{seed}"): Lane(line, seed)
            for line, name in enumerate(self.sets)
            for seed in self.seeds[name]
        }

    def plan(self) -> dict[str, Any]:
        """The plan of a new run, JSON-ready."""
        lanes = list(self.lanes)
        most = self.most_lanes or _MOST_LANES.get(jax.default_backend(), _MOST_LANES["cpu"])
        return {
            "version": _VERSION,
            "learner": self.learner.name,
            "config": _as_json(dataclasses.asdict(self.learner.config)),
            "steps": self.steps,
            "point_every": self.point_every,
            "data": next(iter(self.sets.values())).pool.fingerprint,
            "sets": {name: set_fingerprint(chosen) for name, chosen in self.sets.items()},
            "groups": [lanes[i : i + most] for i in range(0, len(lanes), most)],
        }


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run left: a policy for each lane, or why it was given up."""

    policies: dict[str, Policy]
    stopped: dict[str, Stopped]


def set_fingerprint(chosen: TrainingSet) -> str:
    """Hash of everything in a training set but the pool's own values."""
    columns = ("rows", "weight", "reward", "critic_weight", "score")
    arrays = {n: getattr(chosen, n) for n in columns if getattr(chosen, n) is not None}
    groups = None if chosen.groups is None else dataclasses.asdict(chosen.groups)
    settings = {"arrays": hashing.of_arrays(arrays), "groups": groups}
    return hashing.of_settings(settings | {"returns": chosen.returns})


def run(
    folder: str | os.PathLike[str],
    job: Job,
    *,
    resume: bool = False,
    keep: int = 2,
    sinks: Sequence[Sink] = (),
    measure: Measure | None = None,
    on_point: Callable[[Progress, int], None] | None = None,
    while_training: bool = False,
) -> Outcome:
    """Train a job in a folder of its own, or go on with one that was killed.

    Args:
        folder: Where everything is kept.
        job: What to train.
        resume: Go on with the run in the folder; a folder without one begins.
        keep: Checkpoints to keep of the group in training.
        sinks: Where metrics go besides ``metrics.jsonl``.
        measure: Adds numbers to the metrics of a point.
        on_point: Is told every point and the number of lanes in it, once the point is kept.
        while_training: Measure and keep a point in a thread, while training goes on. It takes
            another copy of the states on the device, and is no gain where training needs all cores.

    Raises:
        ConfigError: The folder holds a run of another job.
        DataError: The folder cannot be used.
    """
    folder = Path(folder)
    trainer.check_steps(job.learner, steps=job.steps, point_every=job.point_every)
    plan = _begin(folder, job, resume)
    record = _Record(folder / RECORD)
    if job.asked is not None and job.asked not in record.content["asked"]:
        record.content["asked"].append(job.asked)
    if "versions" not in record.content:
        record.write()
    for number, names in enumerate(plan["groups"]):
        group = _Group(folder, job, number, names, hashing.of_settings(plan))
        if number < len(record.content["finished"]):
            group.forget()
            continue
        with compilation_cache(folder / "compiled"):
            group.train(record, keep, sinks, measure, on_point, while_training)
    return _outcome(folder, plan, record)


class _Record:
    """``record.json``: written anew, whole, whenever something happened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content: dict[str, Any] = {"finished": [], "stopped": {}, "resumed": [], "asked": []}
        if path.exists():
            self.content |= read_json(path)

    def add(self, name: str, value: Any) -> None:
        if isinstance(self.content[name], list):
            self.content[name].append(value)
        else:
            self.content[name] |= value
        self.write()

    def write(self) -> None:
        self.content["versions"] = _versions()
        write_json(self._path, self.content, force=True)


class _Group:
    """Lanes that train together; a resumed run trains the same lanes together again."""

    def __init__(
        self, folder: Path, job: Job, number: int, names: Sequence[str], identity: str
    ) -> None:
        lanes = job.lanes
        self.names = list(names)
        self._folder, self._job, self._number = folder, job, number
        self._lanes = [lanes[name] for name in names]
        self._states = folder / "checkpoints" / f"group-{number}"
        self._checkpoint = Checkpoint(self._states, identity)

    def train(
        self,
        record: _Record,
        keep: int,
        sinks: Sequence[Sink],
        measure: Measure | None,
        on_point: Callable[[Progress, int], None] | None,
        while_training: bool,
    ) -> None:
        work = trainer.prepare(self._job.learner, list(self._job.sets.values()), self._lanes)
        (train_state, size), done = self._restore(work, record)
        path = self._folder / METRICS
        cut(path, int(size))
        with contextlib.closing(JsonLines(path)) as metrics, background_task() as other:

            def look(point: Progress, made: dict[str, Policy], last: int) -> None:
                self._write(point, last, made, [metrics, *sinks], measure)
                self._store(point, path, keep)
                if on_point is not None:
                    on_point(point, len(self.names))

            for point in trainer.train(
                work,
                steps=self._job.steps,
                point_every=self._job.point_every,
                train_state=train_state,
                done=done,
            ):
                due = measure is not None
                made = self._policies(work, point.train_state, point.step) if due else {}
                if while_training:
                    other.wait()  # one copy at a time; and no name keeps it when that is done
                    other.do(partial(look, _copy(point), made, done))
                else:
                    look(point, made, done)
                train_state, done = point.train_state, point.step
        self._finish(work, train_state, record, path)

    def forget(self) -> None:
        shutil.rmtree(self._states, ignore_errors=True)

    def _restore(
        self, work: TrainJob, record: _Record
    ) -> tuple[tuple[TrainState, np.ndarray], int]:
        begun = record.content["finished"][-1]["metrics_bytes"] if self._number else 0
        fresh = (trainer.fresh(work), np.asarray(begun, np.int64))
        stages = sorted(path.stem for path in self._states.glob("step-*.safetensors"))
        if not stages:
            return fresh, 0
        (train_state, size), done = self._checkpoint.restore(stages[-1], fresh)
        same = jax.default_backend() == "cpu" or any((self._folder / "compiled").glob("*"))
        told = "bitwise" if same and record.content["versions"] == _versions() else "not bitwise"
        record.add("resumed", {"group": self._number, "step": done, "resumed": told})
        return (train_state, size), done

    def _write(
        self,
        point: Progress,
        last: int,
        made: Mapping[str, Policy],
        sinks: Sequence[Sink],
        measure: Measure | None,
    ) -> None:
        more = {} if measure is None else measure(point.step, made)
        for i, name in enumerate(self.names):
            stop = point.stopped[i]
            if stop is not None and stop.step <= last:
                continue  # its last line says why it ended
            values = point.metrics[i] | dict(more.get(name, {}))
            for sink in sinks:
                sink.write(point.step, name, values)

    def _store(self, point: Progress, path: Path, keep: int) -> None:
        tree = (point.train_state, np.asarray(path.stat().st_size, np.int64))
        self._checkpoint.store(f"step-{point.step:010d}", tree, point.step, now=True)
        for old in sorted(self._states.glob("step-*.safetensors"))[:-keep]:
            old.unlink()

    def _finish(self, work: TrainJob, train_state: TrainState, record: _Record, path: Path) -> None:
        for name, policy in self._policies(work, train_state, self._job.steps).items():
            policy.save(self._folder / "policies" / f"{name}.safetensors", force=True)
        pairs = zip(self.names, trainer.stopped(work, train_state), strict=True)
        lost = {name: stop._asdict() for name, stop in pairs if stop is not None}
        record.add("stopped", lost)
        record.add("finished", {"lanes": self.names, "metrics_bytes": path.stat().st_size})
        self.forget()

    def _policies(self, work: TrainJob, train_state: TrainState, step: int) -> dict[str, Policy]:
        made = policies(work, train_state, steps=step)
        return {n: policy for n, policy in zip(self.names, made, strict=True) if policy is not None}


def _copy(point: Progress) -> Progress:
    """One with states of its own: training uses the memory of a point again."""
    state = jax.tree.map(jnp.copy, point.train_state.state)
    return dataclasses.replace(point, train_state=point.train_state._replace(state=state))


def policies(work: TrainJob, train_state: TrainState, *, steps: int) -> list[Policy | None]:
    """The policy of every lane, on the host; None for one that was given up."""
    # One lane's function, so that it may name axes as the learner's file does.
    params = jax.device_get(jax.vmap(work.learner.actor)(train_state.state))
    lost = trainer.stopped(work, train_state)
    about = {
        "learner": work.learner.name,
        "config": _as_json(dataclasses.asdict(work.learner.config)),
        "steps": steps,
        "versions": _versions(),
    }
    made: list[Policy | None] = []
    for i, lane in enumerate(work.lanes):
        if lost[i] is not None:
            made.append(None)
            continue
        mean, scale = work.scaling[lane.line] or (None, None)
        made.append(
            Policy.of(
                work.learner.actor_kind,
                jax.tree.map(lambda leaf, i=i: leaf[i], params),
                mean=mean,
                scale=scale,
                low=work.actions.low,
                high=work.actions.high,
                metadata=about | {"seed": lane.seed},
            )
        )
    return made


def check_folder(folder: str | os.PathLike[str], *, resume: bool) -> None:
    """Say now, before rows are read, that `run` would refuse the folder.

    Raises:
        DataError: It holds other files, or a run that is not to be resumed.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: expected a folder, found a file; choose another name")
    if not (folder / PLAN).exists():
        found = folder.iterdir() if folder.exists() else ()
        if not all(path.match(f".{PLAN}.*.part") for path in found):  # a kill may leave that
            raise DataError(
                f"{folder}: expected a new or empty folder, or one with {PLAN}; choose another name"
            )
    elif not resume:
        raise DataError(
            f"{folder}: a run is kept here; go on with it with --resume (resume=True in Python), "
            "or choose another name"
        )


def resume_point(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Groups of the run in a folder that are finished, and updates behind the one in training."""
    folder = Path(folder)
    finished = len(_Record(folder / RECORD).content["finished"])
    stages = (folder / "checkpoints" / f"group-{finished}").glob("step-*.safetensors")
    return finished, max((int(path.stem.removeprefix("step-")) for path in stages), default=0)


def _begin(folder: Path, job: Job, resume: bool) -> dict[str, Any]:
    check_folder(folder, resume=resume)
    stored, wanted = folder / PLAN, job.plan()
    if not wanted["groups"]:
        raise ConfigError("train: expected at least one seed, got none")
    if not stored.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _remove_parts(folder)
        write_json(stored, wanted)
        return wanted
    plan = read_json(stored)
    told = differing(plan, wanted)
    if told:
        raise ConfigError(
            f"{folder}: the run kept here is another: {told}; give the same command, or "
            "choose another folder"
        )
    _remove_parts(folder)
    return plan


def _remove_parts(folder: Path) -> None:
    """Remove what a kill in the middle of writing left of our files."""
    for part in list(folder.rglob(".*.part")):
        shutil.rmtree(part, ignore_errors=True)


def _outcome(folder: Path, plan: dict[str, Any], record: _Record) -> Outcome:
    stopped = {name: Stopped(**about) for name, about in record.content["stopped"].items()}
    names = [name for group in plan["groups"] for name in group if name not in stopped]
    load = Policy.load
    return Outcome({n: load(folder / "policies" / f"{n}.safetensors") for n in names}, stopped)


def _versions() -> dict[str, str]:
    device = jax.devices()[0]
    return {
        "puorl": __version__,
        "jax": version("jax"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind}",
    }


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in content.items()}
