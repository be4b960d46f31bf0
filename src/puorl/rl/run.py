"""A training run in a folder: begun, resumed after a kill, or returned once finished.

``run.json`` holds what the run trains, ``record.json`` what happened to it, ``metrics.jsonl`` its
metrics, ``policies/`` the policies, ``checkpoints/`` the state of the group in training. Importing
this module does not import JAX, so that these files can be read without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puorl.core import formatting, hashing
from puorl.core.errors import ConfigError, DataError, TrainingError
from puorl.core.files import make_folder, read_json, sync, write_json
from puorl.core.progress import Advance, progress_bar, quiet
from puorl.core.run_folder import Checkpoint, announce_resume, decode, exclusive_beside
from puorl.data.dataset import Dataset
from puorl.data.training_set import COLUMNS, TrainingSet
from puorl.rl.learner import Learner
from puorl.rl.metrics import LOGGER_IDS, Sink
from puorl.rl.policy import Policy, stored_config, upgrade_config

if TYPE_CHECKING:
    from puorl.rl.trainer import Lane, Progress, Stopped, TrainJob, TrainState

SPEC, RECORD, METRICS = "run.json", "record.json", "metrics.jsonl"
_VERSION = 2
CHECKPOINT_INTERVAL = 5_000
"""Most updates between two checkpoints, if nothing else is said."""
_MOST_NAMED = 5
_DECIDING = ("learner", "steps", "data", "action_bounds")
_REPAIR = "take another copy, or train in another folder"

EvaluateCallback = Callable[[int, int, Mapping[str, Policy]], Mapping[str, Mapping[str, float]]]
"""(previous step, step, policies by lane) -> more metrics by lane; see `puorl.envs.Evaluator`."""
CheckpointCallback = Callable[["Progress", int], None]
"""(progress of a group, number of its lanes) -> None."""


@dataclass(frozen=True)
class TrainSettings:
    """Settings that decide the policies: the content of ``run.json``."""

    learner: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    steps: int = 0
    data: str = ""
    """Fingerprint of the rows."""
    sets: dict[str, str] = dataclasses.field(default_factory=dict)
    """Fingerprint of each training set."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Names of the lanes, by the group in which they train."""

    @property
    def lanes(self) -> list[str]:
        """Names of all policies that were to be trained."""
        return [name for group in self.groups for name in group]


@dataclass(frozen=True)
class Stop:
    """When and why the training of a policy was given up."""

    step: int
    reason: str


@dataclass(frozen=True)
class InputFiles:
    """Files that were read together."""

    files: tuple[str, ...]
    num_rows: int
    fingerprint: str


@dataclass(frozen=True)
class Invocation:
    """Inputs and evaluation of one command; empty where a run began from Python."""

    paths: tuple[str, ...] = ()
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: tuple[InputFiles, ...] = ()
    env: str | None = None
    eval_every: int | None = None
    eval_episodes: int | None = None


@dataclass(frozen=True)
class Finished:
    """Lines of ``metrics.jsonl`` up to the end of a group."""

    metrics_bytes: int = 0
    metrics_hash: str | None = None
    """None in folders of version 0.1."""


@dataclass(frozen=True)
class TrainRecord:
    """Events of a run: the content of ``record.json``."""

    invocations: tuple[Invocation, ...] = ()
    """The first command, then those that resumed with other paths or evaluations."""
    stopped: dict[str, Stop] = dataclasses.field(default_factory=dict)
    finished: tuple[Finished, ...] = ()
    """Groups whose training ended."""
    resumed: tuple[dict[str, Any], ...] = ()
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def last(self) -> Invocation:
        """The last command; an empty one where none is recorded."""
        return self.invocations[-1] if self.invocations else Invocation()


@dataclass(frozen=True, eq=False)
class RunSpec:
    """Specification of a run: a lane for every training set and seed."""

    learner: Learner
    sets: Mapping[str, TrainingSet]
    """Training sets of one pool, by name."""
    seeds: Mapping[str, Sequence[int]]
    """Seeds of each training set, by its name."""
    steps: int
    checkpoint_interval: int
    """Updates between two checkpoints of a new run; a resumed one keeps its own."""
    most_lanes: int | None = None
    """Lanes that train together in a new run; what suits the device if None."""
    invocation: Mapping[str, Any] | None = None
    """Paths of the rows and the like, JSON-ready; recorded and never compared."""

    @property
    def lanes(self) -> dict[str, Lane]:
        """Every lane by name; the name of a single training set is left out."""
        from puorl.rl.trainer import Lane

        return {
            (f"seed-{seed}" if len(self.sets) == 1 else f"{name}-seed-{seed}"): Lane(line, seed)
            for line, name in enumerate(self.sets)
            for seed in self.seeds[name]
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``run.json`` of a new run."""
        from puorl.rl.trainer import most_lanes

        lanes = list(self.lanes)
        most = self.most_lanes or most_lanes()
        config = stored_config(self.learner.config)
        return {
            "version": _VERSION,
            "learner": self.learner.name,
            "config": {k: list(v) if isinstance(v, tuple) else v for k, v in config.items()},
            "steps": self.steps,
            "checkpoint_interval": self.checkpoint_interval,
            "data": next(iter(self.sets.values())).pool.fingerprint,
            "sets": {name: set_fingerprint(chosen) for name, chosen in self.sets.items()},
            "groups": [lanes[i : i + most] for i in range(0, len(lanes), most)],
            **_stated_bounds(next(iter(self.sets.values())).pool),
        }


def _stated_bounds(pool: Dataset) -> dict[str, Any]:
    """Return bounds of actions that the rows alone do not give: they decide the policies too."""
    from puorl.rl.pool import action_range

    bounds = action_range(pool.action, pool.provenance.action_range)
    same = np.array_equal(bounds, action_range(pool.action))
    return {} if same else {"action_bounds": np.stack(bounds).tolist()}


@dataclass(frozen=True, eq=False)
class TrainResult:
    """Result of a training: the policy of each lane by name, or why the lane was given up."""

    policies: dict[str, Policy]
    stopped: dict[str, Stopped]

    def check(self) -> None:
        """Warn of lanes that were given up.

        Raises:
            TrainingError: All were.
        """
        reasons = "; ".join(
            f"{name} at step {stop.step:,}: {stop.reason}" for name, stop in self.stopped.items()
        )
        if not self.policies:
            raise TrainingError(
                f"training was given up ({reasons}); look at the rewards' size with `puorl "
                "inspect`, or lower the learning rate"
            )
        if self.stopped:
            warnings.warn(f"given up: {reasons}", stacklevel=4)


def run(
    folder: str | os.PathLike[str],
    spec: RunSpec,
    *,
    keep: int = 2,
    sinks: Sequence[Sink] = (),
    evaluate: EvaluateCallback | None = None,
    on_checkpoint: CheckpointCallback | None = None,
    in_background: bool = False,
) -> TrainResult:
    """Train in a folder of its own; resume the run that is there, or return it if it is finished.

    Args:
        folder: Where everything is kept.
        spec: What to train.
        keep: Checkpoints to keep of the group in training.
        sinks: Where metrics go besides ``metrics.jsonl``.
        evaluate: Is called at every checkpoint and adds to its metrics.
        on_checkpoint: Is called after every checkpoint is stored.
        in_background: Evaluate and store a checkpoint in a thread while training goes on. It takes
            another copy of the states on the device, and is no gain where training needs all cores.

    Raises:
        ConfigError: The folder holds another run; the message names the settings that differ.
        DataError: The folder cannot be used, or another process or thread trains in it.
    """
    from puorl.rl import trainer

    with exclusive_beside(folder := Path(folder)):
        interval = spec.checkpoint_interval
        trainer.check_steps(spec.learner, steps=spec.steps, checkpoint_interval=interval)
        stored = _begin(folder, spec)
        identity = hashing.of_settings(read_json(folder / SPEC))
        spec = dataclasses.replace(spec, checkpoint_interval=stored["checkpoint_interval"])
        record = _Record(folder)
        check_metrics(folder, record.content)
        if spec.invocation is not None and spec.invocation not in record.content["invocations"]:
            record.content["invocations"].append(spec.invocation)
        if "versions" not in record.content:
            record.write()
        for number, names in enumerate(stored["groups"]):
            group = _Group(folder, spec, number, names, identity)
            if number < len(record.content["finished"]):
                group.remove_checkpoints()
                continue
            with trainer.compilation_cache(folder / "compiled"):
                group.train(record, keep, sinks, evaluate, on_checkpoint, in_background)
        lost = {name: trainer.Stopped(**stop) for name, stop in record.content["stopped"].items()}
        left = [name for group in stored["groups"] for name in group if name not in lost]
        files = {name: folder / "policies" / f"{name}.safetensors" for name in left}
        return TrainResult({name: Policy.load(file) for name, file in files.items()}, lost)


def run_in_memory(
    spec: RunSpec,
    *,
    evaluate: EvaluateCallback | None = None,
    on_checkpoint: CheckpointCallback,
) -> TrainResult:
    """Train all lanes together and keep nothing; what ``evaluate`` returns is not used."""
    from puorl.rl import trainer

    lanes = spec.lanes
    job = trainer.prepare(spec.learner, list(spec.sets.values()), list(lanes.values()))
    train_state, done = trainer.fresh(job), 0
    for progress in trainer.train(
        job, steps=spec.steps, interval=spec.checkpoint_interval, train_state=train_state
    ):
        train_state = progress.train_state
        if evaluate is not None:
            evaluate(done, progress.step, _policies(job, lanes, train_state, progress.step))
        on_checkpoint(progress, len(lanes))
        done = progress.step
    lost = zip(lanes, trainer.stopped(job, train_state), strict=True)
    return TrainResult(
        _policies(job, lanes, train_state, spec.steps),
        {name: stop for name, stop in lost if stop is not None},
    )


def _policies(
    job: TrainJob, names: Iterable[str], train_state: TrainState, step: int
) -> dict[str, Policy]:
    """Return the policies of the lanes that train still, by name."""
    from puorl.rl import trainer

    made = zip(names, trainer.policies(job, train_state, steps=step), strict=True)
    return {name: policy for name, policy in made if policy is not None}


def checkpoint_interval(
    learner: Learner, steps: int, *, eval_interval: int | None = None, per_eval: int | None = None
) -> int:
    """Return the updates between two checkpoints: whole cycles, so that evaluations fall on them.

    Args:
        learner: What is trained.
        steps: Updates in all.
        eval_interval: Updates between two evaluations; one at the end if None.
        per_eval: Checkpoints for each evaluation; as many as `CHECKPOINT_INTERVAL` needs if None.
    """
    if per_eval is not None:
        length = (steps if eval_interval is None else eval_interval) // per_eval
    elif eval_interval is None or eval_interval >= steps:
        length = min(steps, CHECKPOINT_INTERVAL)
    else:
        length = eval_interval // -(-eval_interval // CHECKPOINT_INTERVAL)
    return max(learner.cycle, length - length % learner.cycle)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that `run` would refuse, before rows are read.

    Raises:
        DataError: It is a file, or holds other files than those of a run.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: expected a folder, found a file; choose another name")
    if not (folder / SPEC).exists():
        found = folder.iterdir() if folder.exists() else ()
        if not all(path.match(f".{SPEC}.*.part") for path in found):  # a kill may leave that
            raise DataError(
                f"{folder}: expected a new or empty folder, or one with {SPEC}; choose another name"
            )


@contextlib.contextmanager
def train_folder(folder: Path) -> Iterator[None]:
    """Hold a folder while a command reads rows and trains there.

    When the block fails before the first checkpoint, the files of a run that began here are
    removed: nothing is lost, and the corrected command must find the folder free.

    Raises:
        DataError: Another process trains there, or it holds other files than those of a run.
    """

    def has_progress() -> bool:
        try:
            return resume_point(folder) != (0, 0)
        except DataError:
            return True  # a run with a damaged record is not removed

    with exclusive_beside(folder):
        check_folder(folder)
        begins, existed = not (folder / SPEC).exists(), folder.exists()
        try:
            with announce_resume(has_progress):
                yield
        except BaseException:
            if begins and not has_progress():
                _clear(folder, keep=existed)
            raise


def _clear(folder: Path, *, keep: bool) -> None:
    """Remove the files of a run that has no checkpoint, and no others."""
    for name in (SPEC, RECORD, METRICS, LOGGER_IDS):
        (folder / name).unlink(missing_ok=True)
    for name in ("checkpoints", "compiled", "policies", "tensorboard", "wandb"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if not keep:
        with contextlib.suppress(OSError):
            folder.rmdir()


def read_spec(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return ``run.json`` under today's names, whichever version wrote it; None without a run.

    Raises:
        DataError: The file holds something else.
    """
    path = Path(folder) / SPEC
    if not path.exists():
        return None
    content = read_json(path, repair=_REPAIR)
    decode(TrainSettings, content, path)
    if "point_every" in content:
        content["checkpoint_interval"] = content.pop("point_every")
    if "config" in content:
        content["config"] = upgrade_config(content["config"])
    return content


def read_record(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return ``record.json`` under today's names, whichever version wrote it.

    Raises:
        DataError: The file holds something else.
    """
    content: dict[str, Any] = {"finished": [], "stopped": {}, "resumed": [], "invocations": []}
    path = Path(folder) / RECORD
    if path.exists():
        stored = read_json(path, repair=_REPAIR)
        if isinstance(stored, dict) and "asked" in stored:
            stored["invocations"] = stored.pop("asked")
        decode(TrainRecord, stored, path)
        content |= stored
    return content


class StoredPolicy(NamedTuple):
    """A policy of a run, or of a file."""

    name: str
    """The path of its file."""
    group: str
    """The folder with whose other policies it is averaged; empty for a single file."""
    policy: Policy


def read_policies(paths: Sequence[str]) -> list[StoredPolicy]:
    """Load the policies of folders of `puorl train`, and those of single files.

    Raises:
        DataError: No path, a file that is no policy, or a folder without policies.
    """
    if not paths:
        raise DataError("expected a folder of puorl train or a policy file, got none")
    found: list[StoredPolicy] = []
    for text in paths:
        path = Path(text)
        files = _policy_files(path) if path.is_dir() else []
        found += [StoredPolicy(str(file), str(path), Policy.load(file)) for file in files]
        if not files:
            found.append(StoredPolicy(text, "", Policy.load(path)))
    names = [each.name for each in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{twice[0]}: is named twice, so it would count twice; name it once")
    return found


def _policy_files(folder: Path) -> list[Path]:
    """List the policies of a run, in its order; those that were given up have no file."""
    settings = read_spec(folder)
    if settings is None:
        raise DataError(
            f"{folder}: expected a folder that puorl train wrote, found no {SPEC} in it; name such "
            "a folder, or the policy files themselves"
        )
    names = [name for group in settings.get("groups", []) for name in group]
    files = [folder / "policies" / f"{name}.safetensors" for name in names]
    found = [file for file in files if file.is_file()]
    if not found:
        raise DataError(
            f"{folder}: expected policies, found none: the run has not ended; the same puorl train "
            "command resumes it"
        )
    return found


def resume_point(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the number of finished groups, and the last checkpoint of the one in training."""
    finished = len(read_record(folder)["finished"])
    stages = (Path(folder) / "checkpoints" / f"group-{finished}").glob("step-*.safetensors")
    return finished, max((int(path.stem.removeprefix("step-")) for path in stages), default=0)


def set_fingerprint(chosen: TrainingSet) -> str:
    """Return the hash of everything in a training set but the pool's own values."""
    arrays = {n: getattr(chosen, n) for n in COLUMNS if getattr(chosen, n) is not None}
    groups = None if chosen.groups is None else dataclasses.asdict(chosen.groups)
    settings = {"arrays": hashing.of_arrays(arrays), "groups": groups}
    return hashing.of_settings(settings | {"returns": chosen.returns})


def describe_differences(stored: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Name the settings that differ between two runs, with both values; empty for the same run.

    Groups and checkpoints are not compared: they are chosen for the device, when a run begins.
    """
    # The settings of two learners have little in common: their names say enough.
    same = stored.get("learner") == spec.get("learner")
    settings = [_comparable(each, config=same) for each in (stored, spec)]
    before, now = _lane_names(stored), _lane_names(spec)
    parts = [
        formatting.describe_changes(*settings),
        _some("the run has also", before - now),
        _some("the run has no", now - before),
    ]
    return "; ".join(part for part in parts if part)


def _comparable(content: Mapping[str, Any], *, config: bool) -> dict[str, Any]:
    """Return the settings that decide the result, under the names that users know."""
    plain = {k: content[k] for k in _DECIDING if k in content}
    rows = {f"rows of {name}": mark for name, mark in content.get("sets", {}).items()}
    return plain | (dict(content.get("config", {})) if config else {}) | rows


def _lane_names(content: Mapping[str, Any]) -> set[str]:
    return {name for group in content.get("groups", []) for name in group}


def _some(text: str, names: set[str]) -> str:
    shown = sorted(names)[:_MOST_NAMED]
    more = ", ..." if len(names) > len(shown) else ""
    return f"{text} {', '.join(shown)}{more}" if names else ""


def _begin(folder: Path, spec: RunSpec) -> dict[str, Any]:
    check_folder(folder)
    content = spec.to_dict()
    if not content["groups"]:
        raise ConfigError("train: expected at least one seed, got none")
    stored = read_spec(folder)
    if stored is None:
        make_folder(folder)
    elif differences := describe_differences(stored, content):
        raise ConfigError(
            f"{folder}: the folder holds another run: {differences}; give the same settings, or "
            "choose another folder"
        )
    for part in list(folder.rglob(".*.part")):  # left by a kill in the middle of writing
        shutil.rmtree(part, ignore_errors=True)
    if stored is None:
        write_json(folder / SPEC, content)
    return stored or content


def check_metrics(folder: Path, record: Mapping[str, Any]) -> None:
    """Compare ``metrics.jsonl`` with the hash that the record has of its finished groups.

    Raises:
        DataError: The file is damaged.
    """
    # Without the file nothing is shown, which is not wrong.
    for group in record["finished"][-1:] if (folder / METRICS).exists() else ():
        _check_metrics(folder, group.get("metrics_bytes", 0), group.get("metrics_hash"))


def _check_metrics(folder: Path, size: int, stored: str | None) -> None:
    path = folder / METRICS
    if stored is None:
        return  # of version 0.1
    try:
        found = hashing.of_bytes(path, size)
    except OSError as error:
        raise DataError(f"{path}: expected a readable file, got: {error}") from error
    hashing.check(path, stored, found, repair=_REPAIR)


class _Record:
    """``record.json``: rewritten as a whole after every event."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORD
        self.content = read_record(folder)

    def add(self, name: str, value: Any) -> None:
        if isinstance(self.content[name], list):
            self.content[name].append(value)
        else:
            self.content[name] |= value
        self.write()

    def write(self) -> None:
        from puorl.rl.trainer import versions

        self.content["versions"] = versions()
        write_json(self._path, self.content, force=True)


class _Group:
    """Lanes that train together; a resumed run trains the same lanes together again."""

    def __init__(
        self, folder: Path, spec: RunSpec, number: int, names: Sequence[str], identity: str
    ) -> None:
        lanes = spec.lanes
        self._folder, self._spec, self._number, self._names = folder, spec, number, list(names)
        self._lanes = [lanes[name] for name in names]
        self._metrics = folder / METRICS
        self._states = folder / "checkpoints" / f"group-{number}"
        self._checkpoint = Checkpoint(self._states, identity)

    def train(
        self,
        record: _Record,
        keep: int,
        sinks: Sequence[Sink],
        evaluate: EvaluateCallback | None,
        on_checkpoint: CheckpointCallback | None,
        in_background: bool,
    ) -> None:
        from puorl.rl import trainer

        spec = self._spec
        job = trainer.prepare(spec.learner, list(spec.sets.values()), self._lanes)
        (train_state, size), done = self._restore(job, record)
        metrics = JsonLines(self._metrics, length=int(size))
        with contextlib.closing(metrics), background_task() as task:

            def checkpoint(progress: Progress, previous: int, found: dict[str, Policy]) -> None:
                more = {} if evaluate is None else evaluate(previous, progress.step, found)
                self._write(progress, previous, more, [metrics, *sinks])
                self._store(progress, keep)
                if on_checkpoint is not None:
                    on_checkpoint(progress, len(self._names))

            for progress in trainer.train(
                job,
                steps=spec.steps,
                interval=spec.checkpoint_interval,
                train_state=train_state,
                done=done,
            ):
                found = {}
                if evaluate is not None:
                    found = _policies(job, self._names, progress.train_state, progress.step)
                if in_background:
                    task.wait()  # one copy at a time, and no name holds it afterwards
                    task.start(partial(checkpoint, trainer.copied(progress), done, found))
                else:
                    checkpoint(progress, done, found)
                train_state, done = progress.train_state, progress.step
        self._finish(job, train_state, record)

    def remove_checkpoints(self) -> None:
        shutil.rmtree(self._states, ignore_errors=True)

    def _restore(self, job: TrainJob, record: _Record) -> tuple[tuple[TrainState, np.ndarray], int]:
        """Return the state, the length of the metrics file, and the updates made before."""
        from puorl.rl import trainer

        size = record.content["finished"][-1]["metrics_bytes"] if self._number else 0
        fresh = (trainer.fresh(job), np.asarray(size, np.int64))
        stages = sorted(path.stem for path in self._states.glob("step-*.safetensors"))
        if not stages:
            return fresh, 0
        restored, done = self._checkpoint.restore(stages[-1], fresh)
        notes, size = self._checkpoint.notes, int(restored[1])
        _check_metrics(self._folder, size, notes.get("metrics"))
        is_verified = hashing.HASH in notes
        same = is_verified and trainer.repeats_exactly(
            self._folder / "compiled", record.content["versions"]
        )
        exact = "bitwise" if same else "not bitwise"
        record.add("resumed", {"group": self._number, "step": done, "resumed": exact})
        return restored, done

    def _write(
        self,
        progress: Progress,
        previous: int,
        more: Mapping[str, Mapping[str, float]],
        sinks: Sequence[Sink],
    ) -> None:
        for i, name in enumerate(self._names):
            stop = progress.stopped[i]
            if stop is not None and stop.step <= previous:
                continue  # its last line was that of the interval in which it stopped
            values = progress.metrics[i] | dict(more.get(name, {}))
            for sink in sinks:
                sink.write(progress.step, name, values)

    def _store(self, progress: Progress, keep: int) -> None:
        size = self._metrics.stat().st_size
        tree = (progress.train_state, np.asarray(size, np.int64))
        sync(self._metrics)  # first: a checkpoint counts on these lines
        stage, noted = f"step-{progress.step:010d}", hashing.of_bytes(self._metrics, size)
        self._checkpoint.store(stage, tree, progress.step, now=True, metrics=noted)
        for old in sorted(self._states.glob("step-*.safetensors"))[:-keep]:
            old.unlink()

    def _finish(self, job: TrainJob, train_state: TrainState, record: _Record) -> None:
        from puorl.rl import trainer

        made = _policies(job, self._names, train_state, self._spec.steps)
        for name, policy in made.items():
            policy.save(self._folder / "policies" / f"{name}.safetensors", force=True)
        pairs = zip(self._names, trainer.stopped(job, train_state), strict=True)
        record.add("stopped", {name: stop._asdict() for name, stop in pairs if stop is not None})
        size = self._metrics.stat().st_size
        noted = hashing.of_bytes(self._metrics, size)
        record.add("finished", {"lanes": self._names, "metrics_bytes": size, "metrics_hash": noted})
        self.remove_checkpoints()


class TrainProgress:
    """Progress and pace of a run over all its groups of lanes."""

    def __init__(self, folder: Path | None, spec: RunSpec) -> None:
        """Read how far the run in the folder is, if there is one."""
        stored = None if folder is None else read_spec(folder)
        finished, step = (0, 0) if folder is None or stored is None else resume_point(folder)
        self.resumed_step = None if stored is None else step
        """Updates already made of the group in training; None for a new run."""
        self.seconds = 0.0
        """Duration of the block of `bar`."""
        self._num_groups = 1 if folder is None else len((stored or spec.to_dict())["groups"])
        self._total = self._num_groups * spec.steps
        self._before = min(finished * spec.steps + step, self._total)
        self._step = step
        self._made: list[int] = []
        self._took: list[float] = []
        self._advance: Advance = quiet
        self._has_bar = sys.stderr.isatty()

    @property
    def logged_until(self) -> int | None:
        """The update after which a tracker's points are void; None if all stay valid."""
        # Steps of several groups overlap, and those of a finished one must stay.
        return self.resumed_step if self._num_groups == 1 else None

    @contextlib.contextmanager
    def bar(self, *, show: bool = True) -> Iterator[None]:
        """Show a bar while the block runs, which begins at what an earlier run has done."""
        began, total = time.perf_counter(), self._total
        with progress_bar("training", total=total, unit="steps", show=show) as self._advance:
            if self._before:
                self._advance(self._before, earlier=True)
            yield
        self.seconds = time.perf_counter() - began

    def on_checkpoint(self, point: Progress, lanes: int) -> None:
        """Advance to a checkpoint of the group in training."""
        # The next group begins at 0 again.
        made = point.step - self._step if point.step > self._step else point.step
        self._step = point.step
        self._made.append(made)
        self._took.append(point.seconds)
        note = f"per lane, {lanes} lanes" if lanes > 1 else "per lane"
        if not self._has_bar:  # the bar has a column for the pace
            note = f"{made / point.seconds:,.0f} steps/s {note}"
        self._advance(made, note)

    @property
    def pace(self) -> float | None:
        """Updates a second of each lane; None before the first checkpoint."""
        # The first interval includes compilation: it counts only if it is the only one.
        since = 1 if len(self._made) > 1 else 0
        return sum(self._made[since:]) / sum(self._took[since:]) if self._made else None

    def __str__(self) -> str:
        if self.pace is None:
            return "already finished, nothing to do"
        resumed = f" from step {self.resumed_step:,} on" if self.resumed_step else ""
        took = formatting.describe_time(self.seconds)
        return f"trained{resumed} in {took} at {self.pace:,.0f} steps/s per lane"


class JsonLines:
    """One JSON object a line: step, lane and the values; NaN and infinity become null.

    Every line is with the operating system before `write` returns, so a killed run keeps its lines.
    """

    def __init__(self, path: str | os.PathLike[str], *, length: int | None = None) -> None:
        """Open the file to append to it.

        Args:
            path: The file; it and its folder are made if missing.
            length: Bytes to keep of a longer file: lines written after the restored state are
                dropped, since they will be written again. None keeps all lines.

        Raises:
            DataError: The file cannot be written.
        """
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "ab")
            if length is not None and self._path.stat().st_size > length:
                os.truncate(self._path, length)
        except OSError as error:
            raise self._unwritable(error) from error

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Append a line.

        Raises:
            ConfigError: A value is named ``step`` or ``lane``.
            DataError: The file cannot be written, e.g. because the disk is full.
        """
        taken = sorted({"step", "lane"} & set(values))
        if taken:
            raise ConfigError(f"metrics: expected other names than step and lane, got {taken[0]}")
        numbers = {k: float(v) if math.isfinite(v) else None for k, v in values.items()}
        line = json.dumps({"step": int(step), "lane": lane, **numbers}, allow_nan=False)
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _unwritable(self, error: OSError) -> DataError:
        return DataError(f"{self._path}: expected a file that can be written, got: {error}")


class BackgroundTask:
    """A thread for one task at a time; a task starts once the one before is done."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._last: Future[None] | None = None

    def start(self, task: Callable[[], None]) -> None:
        """Start a task after the one before; an error of that one is raised here."""
        self.wait()
        self._last = self._threads.submit(task)

    def wait(self) -> None:
        """Wait for the task; an error of it is raised here."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


@contextlib.contextmanager
def background_task() -> Iterator[BackgroundTask]:
    """Open a thread for tasks; a task that was started is done at the end, even after an error."""
    with ThreadPoolExecutor(max_workers=1) as threads:
        task = BackgroundTask(threads)
        try:
            yield task
        except Exception:
            task.wait()  # an error in there came first
            raise
        task.wait()
