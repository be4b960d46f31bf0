"""`puorl train`: train policies on rows, offline."""

import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import RenderableType

from puorl.cli import options as opt
from puorl.cli.evaluate import return_lines
from puorl.core.errors import ConfigError, TrainingError, require
from puorl.core.formatting import check_positive
from puorl.core.hashing import checked_seed
from puorl.core.run_folder import partition_folder
from puorl.data.training_files import open_training_rows, read_training_set
from puorl.data.training_set import TrainingSet
from puorl.envs.domains import DomainSpec
from puorl.envs.evaluate import Evaluation, Evaluator, check_sizes, find_env, require_room
from puorl.rl import learner as learners
from puorl.rl.learner import DISCRETE_LEARNERS, LEARNERS, Learner
from puorl.rl.metrics import Tracker
from puorl.rl.run import (
    RunSpec,
    TrainProgress,
    TrainResult,
    checkpoint_interval,
    run,
    train_folder,
)
from puorl.rl.settings import parse_settings
from puorl.scale.store import make_store

_MOST_SEEDS = 10_000
"""More is a slip: each policy has a file of its own."""
_Trained = tuple[Learner, TrainResult, TrainProgress, Evaluation | None]


@dataclass(frozen=True)
class Train(opt.Command):
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

    paths: opt.Paths
    """Files, globs, folders of Parquet or Minari, or folders of puorl filter."""
    out: Path
    """Folder to write."""
    learner: Annotated[str, opt.choice(*learners.NAMES)] = "iql"
    """Learning algorithm. If actions are codes, bc, iql and cql take their discrete forms, and bcq
    the place of td3_bc."""
    seeds: opt.Int = 1
    """How many policies to train."""
    seed: opt.Int = 0
    """Seed of the first; the others count on from it."""
    steps: opt.Count = 100_000
    """Updates of each policy; the papers make a million."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "default"
    """Named settings of the learner to start from."""
    settings: opt.Settings = ()
    """Settings of the learner that are to differ, e.g. gamma=0.98 hidden=64,64."""
    action_bounds: Annotated[tuple[float, ...], opt.unset("LOW HIGH...")] = ()
    """Bounds of actions, or a pair for each column; else as stated in the data, or as seen."""
    hold_out: opt.Condition = None
    """Rows to leave out of the training, e.g. "run == 'R-7'": whole labelled episodes, from which
    puorl evaluate --offline judges."""
    resume: opt.Flag = False
    """Has no effect, as every run resumes; accepted for commands of version 0.1."""
    env: opt.Env = None
    """Where to evaluate the policies: a simulated domain such as hopper or hopper/body_mass, or a
    gymnasium id such as CartPole-v1."""
    eval_every: opt.OptionalCount = None
    """Updates between two evaluations there; by default one at the end."""
    eval_episodes: opt.Count = 10
    """Episodes of each policy in an evaluation."""
    logger: Literal["none", "tensorboard", "wandb", "mlflow"] = "none"
    """Also log the metrics there."""
    chunk_rows: opt.OptionalCount = None
    """Rows in memory at a time, for data larger than memory: such as 2M."""
    data: opt.DataOptions = opt.DataOptions()

    def run(self) -> None:
        """Read, train, and print what was made."""
        env = self._check_arguments()
        self._check_learner()
        with train_folder(self.out), self._rows() as chosen:
            trained = self._train(env, chosen)
        result = trained[1]
        for name, stop in result.stopped.items():
            sys.stderr.write(f"puorl: given up: {name} at step {stop.step:,}: {stop.reason}\n")
        if not result.policies:
            raise TrainingError(
                f"{self.out}: every policy was given up; look at the size of the rewards with "
                "puorl inspect, or lower the learning rate with --set"
            )
        self._show(trained)

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
        self.compute_synchronously()
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

        words = opt.setting_words(self.settings)
        settings = parse_settings(form, words) if words else {}
        made = learners.make(form, num_steps=self.steps, preset=self.preset, **settings)
        check_steps(made, steps=self.steps)
        return made

    @contextlib.contextmanager
    def _rows(self) -> Iterator[TrainingSet]:
        """Read all rows, or deal them into chunks, which stay until the training is done."""
        usual = learners.make(self.learner, num_steps=2) if self.learner in LEARNERS else None
        needs_next = usual is not None and usual.needs_next_action
        if self.chunk_rows is None:
            yield read_training_set(
                self.paths, next_action=needs_next, hold_out=self.hold_out, **self.data.arguments()
            )
            return
        if self.hold_out is not None:
            raise ConfigError(
                "--hold-out: expected rows that are read whole, got --chunk-rows; leave these rows "
                "out of the files, or leave out --chunk-rows"
            )
        from puorl.core.tasks import Workers

        check_positive("--chunk-rows", self.chunk_rows)
        lazy, returns = open_training_rows(self.paths, **self.data.arguments())
        basis = {"rows": lazy.fingerprint, "chunk": self.chunk_rows, "seed": self.seed}
        with partition_folder(self.out, basis) as folder:
            options: dict[str, Any] = {"chunk_rows": self.chunk_rows, "seed": self.seed}
            options |= {"next_action": needs_next, "returns": returns, "progress": True}
            store = make_store(lazy, folder, Workers(), **options)
            form = learners.form_of(self.learner, store.provenance.action_codes)
            interval = checkpoint_interval(
                self._learner(form), self.steps, eval_interval=self.eval_every
            )
            self.console.print(store.describe(self.steps, interval))
            files = [source.path for source in lazy.sources]
            part = {"files": files, "num_rows": store.num_rows, "fingerprint": lazy.fingerprint}
            yield dataclasses.replace(store.chunk(0), metadata={"parts": [part]})

    def _train(self, env: Any, chosen: TrainingSet) -> _Trained:
        from puorl.rl.pool import check_rows, notes_on, with_action_bounds

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
        progress, console = TrainProgress(self.out, run_spec), self.console
        opt.show_notes(notes_on(learner, chosen), console)
        rows = f"{len(chosen):,} rows" + ("" if chosen.weight is None else " with weights")
        text = f"{opt.count_policies(self.seeds)} by {learner.name}, {self.steps:,} steps"
        console.print(f"{rows}; {text}{' each' if self.seeds > 1 else ''}")
        if progress.resumed_step:
            console.print(f"resuming an unfinished run from step {progress.resumed_step:,}")
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
            then = progress.on_checkpoint
            result = run(self.out, run_spec, sinks=sinks, evaluate=evaluator, on_checkpoint=then)
        seen = evaluator.final(result.policies) if evaluator and result.policies else None
        return learner, result, progress, seen

    def _invocation(self, chosen: TrainingSet, env: Any) -> dict[str, Any]:
        """Collect, for the record, the arguments that a resumed run may change."""
        fields = {n: v for n, v in dataclasses.asdict(self.data).items() if v is not None}
        return {
            "paths": list(self.paths),
            "fields": fields,
            "parts": chosen.metadata["parts"],
            "hold_out": self.hold_out,
            "env": env.text if isinstance(env, DomainSpec) else self.env,
            "eval_every": self.eval_every,
            "eval_episodes": None if self.env is None else self.eval_episodes,
        }

    def _show(self, trained: _Trained) -> None:
        learner, result, progress, seen = trained
        folder = self.out / "policies"
        files = {name: str(folder / f"{name}.safetensors") for name in result.policies}
        names, groups = list(files.values()), [str(self.out)] * len(files)
        content = {
            "folder": str(self.out),
            "learner": learner.name,
            "config": dataclasses.asdict(learner.config),
            "steps": self.steps,
            "policies": files,
            "stopped": {name: stop._asdict() for name, stop in result.stopped.items()},
            "resumed_step": progress.resumed_step,
            "seconds": progress.seconds,
            "steps_per_second": progress.pace,
            "evaluation": None if seen is None else seen.to_dict(names, groups, self.seed),
        }
        lines: list[RenderableType] = []
        if seen is not None:
            lines.append(f"in {seen.env}, {self.eval_episodes:,} episodes each:")
            lines += return_lines(seen, names, groups)
        last = f"{folder}: {opt.count_policies(len(files))}, {self.steps:,} steps; {progress}"
        self.answer(content, *lines, last)
