"""`puorl train`: train policies on rows, offline."""

import contextlib
import dataclasses
import secrets
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from puorl.cli import evaluate as evaluation
from puorl.cli.options import (
    Count,
    DataOptions,
    Flag,
    Int,
    OptionalCount,
    Paths,
    Settings,
    choice,
    compute_synchronously,
    make_console,
    partition_folder,
    print_json,
    setting_words,
)
from puorl.cli.train_inputs import open_training_rows, parse_settings, read_training_set
from puorl.core.errors import ConfigError, DataError, TrainingError, require
from puorl.core.files import read_json, write_json
from puorl.core.formatting import check_positive, describe_time
from puorl.core.hashing import checked_seed
from puorl.core.progress import Advance, progress_bar, quiet
from puorl.core.run_folder import announce_resume, exclusive_beside
from puorl.data.training_set import TrainingSet
from puorl.envs.domains import DomainSpec
from puorl.envs.evaluate import Evaluation, Evaluator, check_sizes, find_env, require_room
from puorl.rl import learner as learners
from puorl.rl.learner import DISCRETE_LEARNERS, LEARNERS, Learner
from puorl.rl.metrics import MLflow, Sink, TensorBoard, WandB
from puorl.rl.run import (
    METRICS,
    RECORD,
    SPEC,
    RunSpec,
    TrainResult,
    check_folder,
    checkpoint_interval,
    read_spec,
    resume_point,
    run,
)
from puorl.scale.engine import Workers
from puorl.scale.store import make_store

if TYPE_CHECKING:  # importing it loads jax
    from puorl.rl.trainer import Progress

_MOST_SEEDS = 10_000
"""More is a slip: each policy has a file of its own."""
_LOGGER_IDS = "logger.json"
"""In the run's folder: the tracker's id of the run, so that a resumed run goes on there."""
_POLICIES = "policies"
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


@dataclass(frozen=True)
class Train:
    """Train policies on rows, offline: one for each seed, side by side.

    A folder that puorl filter wrote stands for its kept rows. In the mode soft
    their weights count; a column 'weight' of any other file does not. Of anything
    else, all rows are used.

    Writes a folder: policies/ (one file a seed), metrics.jsonl, run.json,
    record.json and, while it trains, checkpoints/. After an interruption the same
    command resumes, and gives the same policies.

    Examples:
      puorl train kept --learner iql --seeds 5 --steps 1e6 --out run
      puorl train logs.csv --reward gain --set hidden=64,64 gamma=0.98 --out run
      puorl train medium.hdf5 --learner rebrac --preset hopper-medium --out run
      puorl train medium.hdf5 --env hopper --eval-every 10k --out run
    """

    paths: Paths
    """Files, globs, folders of Parquet or Minari, or folders of puorl filter."""
    out: Path
    """Folder to write."""
    learner: Annotated[str, choice(*learners.NAMES)] = "iql"
    """Learning algorithm. If actions are codes, bc, iql and cql take their discrete forms, and bcq
    the place of td3_bc."""
    seeds: Int = 1
    """How many policies to train."""
    seed: Int = 0
    """Seed of the first; the others count on from it."""
    steps: Count = 100_000
    """Updates of each policy; the papers make a million."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "default"
    """Named settings of the learner to start from."""
    settings: Settings = ()
    """Settings of the learner that are to differ, e.g. gamma=0.98 hidden=64,64."""
    action_bounds: Annotated[
        tuple[float, ...], tyro.conf.arg(metavar="LOW HIGH...", help_behavior_hint="")
    ] = ()
    """Bounds of actions, or a pair for each column; else as stated in the data, or as seen."""
    resume: Flag = False
    """Has no effect, as every run resumes; accepted for commands of version 0.1."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ENV", help_behavior_hint="")] = None
    """Where to evaluate the policies: a simulated domain such as hopper or hopper/body_mass, or a
    gymnasium id such as CartPole-v1."""
    eval_every: OptionalCount = None
    """Updates between two evaluations there; by default one at the end."""
    eval_episodes: Count = 10
    """Episodes of each policy in an evaluation."""
    logger: Literal["none", "tensorboard", "wandb", "mlflow"] = "none"
    """Also log the metrics there."""
    chunk_rows: OptionalCount = None
    """Rows in memory at a time, for data larger than memory: such as 2M."""
    json: Flag = False
    """Print one JSON object on stdout and nothing else."""
    data: DataOptions = DataOptions()

    def run(self) -> None:
        """Read, train, and print what was made."""
        env = self._check_arguments()
        self._check_learner()
        with exclusive_beside(self.out):
            outcome = self._in_folder(env)
        for name, stop in outcome.result.stopped.items():
            sys.stderr.write(f"puorl: given up: {name} at step {stop.step:,}: {stop.reason}\n")
        if not outcome.result.policies:
            raise TrainingError(
                f"{self.out}: every policy was given up; look at the size of the rewards with "
                "puorl inspect, or lower the learning rate with --set"
            )
        self._show(outcome)

    def _check_arguments(self) -> Any:
        """Refuse wrong arguments before anything is loaded; return the environment of ``--env``."""
        check_positive("--steps", self.steps)
        check_positive("--seeds", self.seeds)
        check_positive("--eval-episodes", self.eval_episodes)
        check_positive("--eval-every", self.eval_every)
        if self.seeds > _MOST_SEEDS:
            raise ConfigError(f"--seeds: expected at most {_MOST_SEEDS:,}, got {self.seeds:,}")
        checked_seed(self.seed)
        checked_seed(self.seed + self.seeds - 1)
        if len(self.action_bounds) % 2:
            raise ConfigError(
                f"--action-bounds: expected pairs of low and high, got {len(self.action_bounds)} "
                "numbers"
            )
        if self.env is None:
            if self.eval_every is not None:
                raise ConfigError("--eval-every: expected an --env to evaluate in, got none")
            return None
        require_room(1, self.eval_episodes)
        env = find_env(self.env)
        if isinstance(env, DomainSpec):
            require("mujoco", extra="sim", purpose="--env")
        return env

    def _check_learner(self) -> None:
        """Refuse settings that no form of the learner has, before rows are read."""
        compute_synchronously()
        known = {**LEARNERS, **DISCRETE_LEARNERS}
        forms = [name for name in (self.learner, f"discrete_{self.learner}") if name in known]
        for form in reversed(forms):
            try:
                self._learner(form)
                return
            except ConfigError:
                if form == forms[0]:
                    raise

    def _learner(self, form: str) -> Learner:
        from puorl.rl.trainer import check_steps

        settings = parse_settings(form, setting_words(self.settings))
        made = learners.make(form, num_steps=self.steps, preset=self.preset, **settings)
        check_steps(made, steps=self.steps)
        return made

    def _in_folder(self, env: Any) -> "_Outcome":
        check_folder(self.out)
        begins, existed = not (self.out / SPEC).exists(), self.out.exists()
        try:
            with announce_resume(self._has_progress), self._rows() as chosen:
                return self._train(env, chosen)
        except BaseException:
            if begins and not self._has_progress():
                # Nothing is lost, and the corrected command must find the folder free.
                _clear(self.out, keep=existed)
            raise

    def _has_progress(self) -> bool:
        try:
            return resume_point(self.out) != (0, 0)
        except DataError:
            return True  # a run with a damaged record is not removed

    @contextlib.contextmanager
    def _rows(self) -> Iterator[TrainingSet]:
        """Read all rows, or deal them into chunks, which stay until the training is done."""
        usual = learners.make(self.learner, num_steps=2) if self.learner in LEARNERS else None
        needs_next = usual is not None and usual.needs_next_action
        if self.chunk_rows is None:
            yield read_training_set(self.paths, self.data, next_action=needs_next)
            return
        check_positive("--chunk-rows", self.chunk_rows)
        lazy, returns = open_training_rows(self.paths, **self.data.arguments())
        basis = {"rows": lazy.fingerprint, "chunk": self.chunk_rows, "seed": self.seed}
        with partition_folder(self.out, basis) as folder:
            store = make_store(
                lazy,
                folder,
                Workers(),
                chunk_rows=self.chunk_rows,
                seed=self.seed,
                next_action=needs_next,
                returns=returns,
                progress=True,
            )
            form = learners.form_of(self.learner, store.provenance.action_codes)
            interval = checkpoint_interval(
                self._learner(form), self.steps, eval_interval=self.eval_every
            )
            make_console(json=self.json).print(store.describe(self.steps, interval))
            files = [source.path for source in lazy.sources]
            part = {"files": files, "num_rows": store.num_rows, "fingerprint": lazy.fingerprint}
            yield dataclasses.replace(store.chunk(0), metadata={"parts": [part]})

    def _train(self, env: Any, chosen: TrainingSet) -> "_Outcome":
        from puorl.rl.pool import with_action_bounds
        from puorl.rl.train import check_rows

        if self.action_bounds:
            bounds = self.action_bounds[::2], self.action_bounds[1::2]
            chosen = with_action_bounds(chosen, bounds)
        codes = chosen.pool.action_codes
        learner = self._learner(learners.form_of(self.learner, codes))
        if env is not None:
            sizes = chosen.pool.obs.shape[1], chosen.pool.action.shape[1]
            check_sizes(env, *sizes, codes, "the data")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_rows(learner, chosen)
        for warning in caught:
            sys.stderr.write(f"puorl: warning: {warning.message}\n")
        run_spec = RunSpec(
            learner,
            {"data": chosen},
            {"data": range(self.seed, self.seed + self.seeds)},
            self.steps,
            checkpoint_interval(learner, self.steps, eval_interval=self.eval_every),
            invocation=self._invocation(chosen, env),
        )
        progress = TrainProgress(self.out, run_spec)
        self._announce(learner, chosen, progress)
        evaluator = None
        if self.env is not None:
            domain = env if isinstance(env, DomainSpec) else self.env
            evaluator = Evaluator(
                domain, self.eval_episodes, self.seed, self.steps, self.eval_every
            )
        with contextlib.ExitStack() as stack:
            sinks = []
            if self.logger != "none":
                sink = Tracker(self.logger, self.out, from_step=progress.logged_until)
                sinks.append(stack.enter_context(contextlib.closing(sink)))
            stack.enter_context(progress.bar())
            result = run(
                self.out,
                run_spec,
                sinks=sinks,
                evaluate=evaluator,
                on_checkpoint=progress.on_checkpoint,
            )
        seen = evaluator.final(result.policies) if evaluator and result.policies else None
        return _Outcome(result, learner, progress, seen)

    def _invocation(self, chosen: TrainingSet, env: Any) -> dict[str, Any]:
        """Collect, for the record, the arguments that a resumed run may change."""
        fields = {n: v for n, v in dataclasses.asdict(self.data).items() if v is not None}
        return {
            "paths": list(self.paths),
            "fields": fields,
            "parts": chosen.metadata["parts"],
            "env": env.text if isinstance(env, DomainSpec) else self.env,
            "eval_every": self.eval_every,
            "eval_episodes": None if self.env is None else self.eval_episodes,
        }

    def _announce(self, learner: Learner, chosen: TrainingSet, progress: "TrainProgress") -> None:
        from puorl.rl.pool import constant_states

        console = make_console(json=self.json)
        notes = list(chosen.pool.provenance.notes)
        still = np.flatnonzero(constant_states(chosen)) if learner.normalise_states else ()
        if len(still):
            listed = ", ".join(map(str, still[:10])) + (", ..." if len(still) > 10 else "")
            notes.append(f"state {listed}: never changes, so it is centred but not scaled")
        if chosen.pool.reward is None:
            notes.append(f"no rewards: {self.learner} copies the actions of all rows, good or bad")
        for note in notes:
            console.print(Text(f"note: {note}", style="dim"))
        rows = f"{len(chosen):,} rows" + ("" if chosen.weight is None else " with weights")
        count, each = (f"{self.seeds} policies", " each") if self.seeds > 1 else ("1 policy", "")
        console.print(f"{rows}; {count} by {learner.name}, {self.steps:,} steps{each}")
        if progress.resumed_step:
            console.print(f"going on from step {progress.resumed_step:,} of an unfinished run")

    def _show(self, outcome: "_Outcome") -> None:
        progress, seen = outcome.progress, outcome.evaluation
        files = {
            name: str(self.out / _POLICIES / f"{name}.safetensors")
            for name in outcome.result.policies
        }
        names, groups = list(files.values()), [str(self.out)] * len(files)
        if self.json:
            evaluated = None
            if seen is not None:
                evaluated = evaluation.as_json(seen, names, groups, self.seed)
            content = {
                "folder": str(self.out),
                "learner": outcome.learner.name,
                "config": dataclasses.asdict(outcome.learner.config),
                "steps": self.steps,
                "policies": files,
                "stopped": {n: stop._asdict() for n, stop in outcome.result.stopped.items()},
                "resumed_step": progress.resumed_step,
                "seconds": progress.seconds,
                "steps_per_second": progress.pace,
                "evaluation": evaluated,
            }
            print_json(content)
            return
        console = make_console()
        if seen is not None:
            console.print(f"in {seen.env}, {self.eval_episodes:,} episodes each:")
            evaluation.show(seen, names, groups, console)
        count = f"{len(files)} policies" if len(files) > 1 else "1 policy"
        console.print(f"{self.out / _POLICIES}: {count}, {self.steps:,} steps; {progress}")


@dataclass(frozen=True, eq=False)
class _Outcome:
    result: TrainResult
    learner: Learner
    progress: "TrainProgress"
    evaluation: Evaluation | None


def _clear(folder: Path, *, keep: bool) -> None:
    """Remove the files of a run that has no checkpoint, and no others."""
    for name in (SPEC, RECORD, METRICS, _LOGGER_IDS):
        (folder / name).unlink(missing_ok=True)
    for name in ("checkpoints", "compiled", _POLICIES, "tensorboard", "wandb"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if not keep:
        with contextlib.suppress(OSError):
            folder.rmdir()


# ----------------------------------------------------------------------- while it trains


class TrainProgress:
    """Progress and pace of a run over all its groups of lanes."""

    def __init__(self, out: Path, spec: RunSpec) -> None:
        """Read how far the run in the folder is, if there is one."""
        stored = read_spec(out)
        finished, step = (0, 0) if stored is None else resume_point(out)
        self.resumed_step = None if stored is None else step
        """Updates already made of the group in training; None for a new run."""
        self.seconds = 0.0
        """Duration of the block of `bar`."""
        self._num_groups = len((stored or spec.to_dict()).get("groups", []))
        self._total = self._num_groups * spec.steps
        self._before = min(finished * spec.steps + step, self._total)
        self._step = step
        self._made: list[int] = []
        self._took: list[float] = []
        self._advance: Advance = quiet
        self._has_bar = Console(stderr=True).is_terminal

    @property
    def logged_until(self) -> int | None:
        """The update after which a tracker's points are void; None if all stay valid."""
        # Steps of several groups overlap, and those of a finished one must stay.
        return self.resumed_step if self._num_groups == 1 else None

    @contextlib.contextmanager
    def bar(self) -> Iterator[None]:
        """Show a bar while the block runs, which begins at what an earlier run has done."""
        began = time.perf_counter()
        with progress_bar("training", total=self._total, unit="steps") as self._advance:
            if self._before:
                self._advance(self._before, earlier=True)
            yield
        self.seconds = time.perf_counter() - began

    def on_checkpoint(self, point: "Progress", lanes: int) -> None:
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
        took = describe_time(self.seconds)
        return f"trained{resumed} in {took} at {self.pace:,.0f} steps/s per lane"


class Tracker:
    """A sink that opens its tracker at the first write: until then the folder must stay empty."""

    def __init__(self, name: str, folder: Path, *, from_step: int | None) -> None:
        """Choose where to log to.

        Args:
            name: tensorboard, wandb or mlflow.
            folder: The run's folder; its name is the run's name there.
            from_step: Updates of a restored state: points logged later are logged again.

        Raises:
            MissingExtraError: The tracker's package is not installed.
        """
        require(_PACKAGES[name], extra=name, purpose=f"--logger {name}")
        self._name, self._folder, self._from_step = name, folder, from_step
        self._sink: Sink | None = None

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Log the values of ``lane`` after ``step`` updates."""
        if self._sink is None:
            self._sink = self._open()
        self._sink.write(step, lane, values)

    def close(self) -> None:
        """Close the tracker, if it was opened."""
        if self._sink is not None:
            self._sink.close()

    def _open(self) -> Sink:
        if self._name == "tensorboard":
            return TensorBoard(self._folder / "tensorboard", from_step=self._from_step)
        path, name = self._folder / _LOGGER_IDS, self._folder.resolve().name
        ids = read_json(path) if path.exists() else {}
        known = ids.get(self._name)
        if self._name == "wandb":
            known = known or secrets.token_hex(4)
            sink = WandB(project="puorl", name=name, dir=str(path.parent), id=known, resume="allow")
        else:
            sink = MLflow(name=name, run_id=known)
            known = sink.run_id
        write_json(path, {**ids, self._name: known}, force=True)
        return sink
