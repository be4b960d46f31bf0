"""`puorl train`: policies from rows, one a seed, in a folder from which a killed run goes on."""

import contextlib
import dataclasses
import json
import shutil
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from puorl.cli import evaluate as evaluation
from puorl.cli.learner_settings import parse_settings
from puorl.cli.main import INTERRUPTED
from puorl.cli.options import Count, DataOptions, Flag, Paths
from puorl.cli.train_course import Course
from puorl.cli.train_loggers import TRACKED, LateSink, Logger
from puorl.cli.training_data import read_training_set
from puorl.core.errors import ConfigError, DataError, TrainingError, require
from puorl.core.hashing import checked_seed
from puorl.core.run_folder import locked
from puorl.data.training_set import TrainingSet
from puorl.envs.domains import DomainSpec, parse_domain
from puorl.envs.evaluate import Evaluation, Evaluator, require_room

if TYPE_CHECKING:  # importing these loads jax
    from puorl.rl.learner import Learner
    from puorl.rl.run import TrainResult

Name = Literal["td3_bc", "iql", "bc", "cql", "rebrac", "td7"]
_MOST_SEEDS = 10_000
"""Beyond it, a slip: each has a file of its own."""
_Env = Annotated[str | None, tyro.conf.arg(metavar="ENV", help_behavior_hint="")]
_Every = Annotated[Count | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")]
_Settings = Annotated[
    tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]],
    tyro.conf.arg(name="set", metavar="NAME=VALUE...", help_behavior_hint=""),
]


@dataclass(frozen=True)
class Train:
    """Train policies on rows, offline: one for each seed, side by side.

    A folder that puorl filter wrote stands for its kept rows. In the mode soft their weights count;
    a column 'weight' of any other file does not. Of anything else, all rows are used.

    Writes a folder: policies/ (one file a seed), metrics.jsonl, run.json, record.json and, while it
    trains, checkpoints/. A killed run goes on with --resume, and gives the same policies.

    Examples:
      puorl train kept --learner iql --seeds 5 --steps 1e6 --out run
      puorl train 'logs/*.csv' --reward gain --set hidden=64,64 gamma=0.98 --out run
      puorl train medium.hdf5 --learner rebrac --preset hopper-medium --out run
      puorl train medium.hdf5 --env hopper --eval-every 10k --out run
      puorl train kept --learner iql --seeds 5 --steps 1e6 --out run --resume
    """

    paths: Paths
    """Files, globs, folders of Parquet or Minari, or folders of puorl filter."""
    out: Path
    """Folder to write."""
    learner: Name = "iql"
    """How to learn."""
    seeds: int = 1
    """How many policies to train."""
    seed: int = 0
    """Seed of the first; the others count on from it."""
    steps: Count = 100_000
    """Updates of each policy; the papers make a million."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "default"
    """Named settings of the learner to start from."""
    settings: _Settings = ()
    """Settings of the learner that are to differ, e.g. gamma=0.98 hidden=64,64."""
    resume: Flag = False
    """Go on with the run in the folder; where there is none, begin."""
    env: _Env = None
    """Simulated domain to try the policies in, such as hopper or hopper/body_mass."""
    eval_every: _Every = None
    """Updates between two evaluations there; by default one at the end."""
    eval_episodes: Count = 10
    """Episodes of each policy in an evaluation."""
    logger: Logger = "none"
    """Log the metrics there, too."""
    json: Flag = False
    """Print one JSON object on stdout and nothing else."""
    data: DataOptions = DataOptions()

    def run(self) -> None:
        """Read, train, and say what was made."""
        spec = self._checked_env()
        learner = self._learner()
        own = self.out.resolve()
        lock = own.with_name(f".{own.name}.lock")
        with locked(lock, self.out):
            try:
                result = self._in_folder(learner, spec)
            finally:
                lock.unlink(missing_ok=True)
        for name, stop in result.outcome.stopped.items():
            sys.stderr.write(f"puorl: given up: {name} at step {stop.step:,}: {stop.reason}\n")
        if not result.outcome.policies:
            raise TrainingError(
                f"{self.out}: every policy was given up; look at the size of the rewards with "
                "puorl inspect, or lower the learning rate with --set"
            )
        self._say(result)

    def _checked_env(self) -> DomainSpec | None:
        """Wrong numbers and words are refused before anything is loaded."""
        for option, number in (("--steps", self.steps), ("--seeds", self.seeds)):
            if number < 1:
                raise ConfigError(f"{option}: expected 1 or more, got {number}")
        if self.seeds > _MOST_SEEDS:
            raise ConfigError(f"--seeds: expected at most {_MOST_SEEDS:,}, got {self.seeds:,}")
        checked_seed(self.seed)
        checked_seed(self.seed + self.seeds - 1)
        evaluation.check_episodes("--eval-episodes", self.eval_episodes)
        require_room(1, self.eval_episodes)
        if self.eval_every is not None and self.eval_every < 1:
            raise ConfigError(f"--eval-every: expected 1 or more, got {self.eval_every}")
        if self.env is None:
            if self.eval_every is not None:
                raise ConfigError("--eval-every: expected an --env to evaluate in, got none")
            return None
        require("mujoco", extra="sim", purpose="--env")
        return parse_domain(self.env)

    def _learner(self) -> "Learner":
        from puorl.rl import learner as learners
        from puorl.rl.trainer import check_steps

        if () in self.settings:
            raise ConfigError("--set: expected name=value, got nothing")
        words = [word for given in self.settings for word in given]
        settings = parse_settings(self.learner, words)
        made = learners.make(self.learner, num_steps=self.steps, preset=self.preset, **settings)
        check_steps(made, steps=self.steps)
        return made

    def _in_folder(self, learner: "Learner", spec: DomainSpec | None) -> "_Result":
        from puorl.rl.run import SPEC, check_folder

        check_folder(self.out)
        begins = not (self.out / SPEC).exists()
        existed = self.out.exists()
        try:
            return self._train(learner, spec)
        except BaseException as error:
            if self._has_progress():
                self._say_how_to_go_on(error)
            elif begins:
                # Nothing is lost, and the repaired command must find the folder free.
                _clear(self.out, keep=existed)
            raise

    def _has_progress(self) -> bool:
        from puorl.rl.run import resume_point

        try:
            return resume_point(self.out) != (0, 0)
        except DataError:
            return True  # a damaged record is still somebody's run

    def _say_how_to_go_on(self, error: BaseException) -> None:
        how = "the same command"
        if isinstance(error, KeyboardInterrupt):
            sys.stderr.write(f"puorl: interrupted; {how} goes on from there\n")
            raise SystemExit(INTERRUPTED) from None
        # A full disk, say: what is done stays, and the user may count on it.
        by_system = isinstance(error, DataError) and isinstance(error.__cause__, OSError)
        if isinstance(error, OSError) or by_system:
            raise DataError(f"{error}; once repaired, {how} goes on") from error

    def _train(self, learner: "Learner", spec: DomainSpec | None) -> "_Result":
        from puorl.rl.run import RunSpec, checkpoint_interval, run
        from puorl.rl.train import check_rewards

        chosen = read_training_set(self.paths, self.data, next_action=learner.needs_next_action)
        if spec is not None:
            sizes = chosen.pool.obs.shape[1], chosen.pool.action.shape[1]
            evaluation.check_fits(spec, *sizes, "the data")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_rewards(learner, chosen)
        for warning in caught:
            sys.stderr.write(f"puorl: warning: {warning.message}\n")
        interval = checkpoint_interval(learner, self.steps, eval_interval=self.eval_every)
        seeds = range(self.seed, self.seed + self.seeds)
        run_spec = RunSpec(
            learner,
            {"data": chosen},
            {"data": seeds},
            self.steps,
            interval,
            invocation=self._asked(chosen, spec),
        )
        course = Course(self.out, run_spec)
        self._tell(chosen, course)
        trial = None
        if spec is not None:
            trial = Evaluator(spec, self.eval_episodes, self.seed, self.steps, self.eval_every)
        with contextlib.ExitStack() as stack:
            sinks = []
            if self.logger != "none":
                sink = LateSink(self.logger, self.out, from_step=course.logged_until)
                sinks.append(stack.enter_context(contextlib.closing(sink)))
            stack.enter_context(course.shown())
            outcome = run(
                self.out,
                run_spec,
                sinks=sinks,
                evaluate=trial,
                on_checkpoint=course.on_point,
            )
        seen = trial.final(outcome.policies) if trial and outcome.policies else None
        return _Result(outcome, learner, course, seen)

    def _asked(self, chosen: TrainingSet, spec: DomainSpec | None) -> dict[str, Any]:
        """What the record keeps: all that may differ from one resume to the next."""
        fields = {n: v for n, v in dataclasses.asdict(self.data).items() if v is not None}
        return {
            "paths": list(self.paths),
            "fields": fields,
            "parts": chosen.about["parts"],
            "env": None if spec is None else spec.text,
            "eval_every": self.eval_every,
            "eval_episodes": None if spec is None else self.eval_episodes,
        }

    def _tell(self, chosen: TrainingSet, course: Course) -> None:
        """What is learnt from; on stderr where stdout is for JSON."""
        console = Console(stderr=self.json, highlight=False, markup=False, soft_wrap=True)
        for note in chosen.pool.provenance.notes:
            console.print(Text(f"note: {note}", style="dim"))
        rows = f"{len(chosen):,} rows" + ("" if chosen.weight is None else " with weights")
        count, each = (f"{self.seeds} policies", " each") if self.seeds > 1 else ("1 policy", "")
        console.print(f"{rows}; {count} by {self.learner}, {self.steps:,} steps{each}")
        if self.resume and course.resumed_step is None:
            console.print(f"no run in {self.out} yet: beginning one")

    def _say(self, result: "_Result") -> None:
        policies, course = result.outcome.policies, result.course
        files = {name: str(self.out / "policies" / f"{name}.safetensors") for name in policies}
        names, groups = list(files.values()), [str(self.out)] * len(files)
        seen = result.evaluation
        if self.json:
            content = {
                "folder": str(self.out),
                "learner": self.learner,
                "config": dataclasses.asdict(result.learner.config),
                "steps": self.steps,
                "policies": files,
                "stopped": {n: stop._asdict() for n, stop in result.outcome.stopped.items()},
                "resumed_step": course.resumed_step,
                "seconds": course.seconds,
                "steps_per_second": course.pace,
                "evaluation": None
                if seen is None
                else evaluation.as_json(seen, names, groups, self.seed),
            }
            sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
            return
        console = Console(highlight=False, markup=False, soft_wrap=True)
        if seen is not None:
            console.print(f"in {seen.env}, {self.eval_episodes:,} episodes each:")
            evaluation.show(seen, names, groups, console)
        count = f"{len(files)} policies" if len(files) > 1 else "1 policy"
        console.print(f"{self.out / 'policies'}: {count}, {self.steps:,} steps; {course.told()}")


def _clear(folder: Path, *, keep: bool) -> None:
    """Remove what a run that came to nothing has put into its folder, and no other file."""
    from puorl.rl.run import METRICS, RECORD, SPEC

    for name in (SPEC, RECORD, METRICS, TRACKED):
        (folder / name).unlink(missing_ok=True)
    for name in ("checkpoints", "compiled", "policies", "tensorboard", "wandb"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if not keep:
        with contextlib.suppress(OSError):
            folder.rmdir()


@dataclass(frozen=True, eq=False)
class _Result:
    """What training came to."""

    outcome: "TrainResult"
    learner: "Learner"
    course: Course
    evaluation: Evaluation | None
