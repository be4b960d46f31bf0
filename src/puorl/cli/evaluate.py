"""`puorl evaluate`: run policies in a simulated domain, or judge them from a log."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from puorl.cli import offline_evaluation
from puorl.cli.options import (
    Count,
    DataOptions,
    EngineOptions,
    Flag,
    Float,
    Int,
    OptionalInt,
    OptionalPath,
    RunPaths,
    Settings,
    compute_synchronously,
    make_console,
    parse_fields,
    print_json,
    setting_words,
)
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import check_free, write_json
from puorl.core.formatting import check_positive
from puorl.core.hashing import checked_seed
from puorl.core.stats import Estimate, mean_estimate
from puorl.envs.evaluate import Evaluation, check_sizes, evaluate, find_env
from puorl.ope.config import OPEConfig
from puorl.rl.policy import Policy
from puorl.rl.run import RECORD, SPEC, read_spec


@dataclass(frozen=True)
class Evaluate:
    """Run policies in a simulated domain, all of them from the same start states.

    A folder that puorl train wrote stands for all its policies. From two policies
    on, their mean has a 95 % interval over seeds (Student's t); files that are
    named one by one are averaged together. Scores are D4RL's: 0 is its random
    policy, 100 its expert.

    With --offline, policies are judged from a log instead: --data names labelled
    episodes of your machine that no policy was trained on. Each estimate has an
    interval, the number of episodes it rests on, and a warning where it must not
    be trusted.

    Examples:
      puorl evaluate run --env hopper
      puorl evaluate run --env hopper --out run/hopper.json
      puorl evaluate run-iql run-bc --env hopper/body_mass --episodes 20 --seed 1
      puorl evaluate run/policies/seed-0.safetensors --env hopper --json
      puorl evaluate run --env CartPole-v1
      puorl evaluate run --offline --data heldout.csv --episode run --reward gain
      puorl evaluate a b --offline --data all.csv --labelled "pump == 'P-01'"
    """

    paths: RunPaths
    """Folders of puorl train, or policy files."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ENV", help_behavior_hint="")] = None
    """Body, or body/domain: hopper, hopper/body_mass, walker2d/gravity=0.5; or a gymnasium id:
    CartPole-v1."""
    offline: Flag = False
    """Judge from the log --data, without an environment."""
    log: Annotated[
        tuple[str, ...], tyro.conf.arg(name="data", metavar="PATH...", help_behavior_hint="")
    ] = ()
    """Files, globs and folders of held-out episodes."""
    labelled: Annotated[str | None, tyro.conf.arg(metavar="EXPR|FILE", help_behavior_hint="")] = (
        None
    )
    """Rows of --data that are your machine's, as for puorl filter; all by default."""
    estimators: Annotated[str | None, tyro.conf.arg(metavar="NAMES", help_behavior_hint="")] = None
    """Among blend, fqe, model, dr, pdis, wis, with commas; by default all that can be computed."""
    gamma: Float = 0.99
    """Discount of a step, for --offline."""
    action_noise: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = (
        None
    )
    """Noise with which dr, pdis and wis value a deterministic policy; an action's range is 2."""
    settings: Settings = ()
    """Settings of --offline that are to differ, e.g. updates=5000 critics=3."""
    episodes: Count = 100
    """Episodes of each policy."""
    seed: Int = 0
    """Seed of the start states and of the domain's noise."""
    threads: OptionalInt = None
    """Cores to use; all by default."""
    out: OptionalPath = None
    """File to write, .json, with what --json prints; puorl report finds it in the run's folder."""
    force: Flag = False
    """Replace the file if it exists."""
    json: Flag = False
    """Print one JSON object on stdout, with every return, and nothing else."""
    data: DataOptions = DataOptions()
    where: EngineOptions = EngineOptions()

    def run(self) -> None:
        """Load the policies, simulate or judge, write, print."""
        if self.offline != (self.env is None) or self.offline != bool(self.log):
            raise ConfigError(
                "evaluate: expected --env ENV, or --offline with --data and without --env; got "
                f"{self._given()}"
            )
        if self.env is None:
            self._offline()
            return
        env = find_env(self.env)
        if self.out is not None:
            _check_out(self.out, force=self.force)  # before the work
        checked_seed(self.seed)
        check_positive("--episodes", self.episodes)
        members = read_members(self.paths)
        for name, _, policy in members:
            sizes = policy.obs_dim, policy.act_dim, policy.codes
            check_sizes(env, *sizes, f"{name}: the policy")
        console = make_console()
        if not self.json:
            count = f"{len(members)} policies" if len(members) > 1 else "1 policy"
            name = getattr(env, "text", self.env)
            console.print(f"{count} in {name}, {self.episodes:,} episodes each")
            show_columns(members, console)
        seen = evaluate(
            [member.policy for member in members],
            self.env,
            episodes=self.episodes,
            seed=self.seed,
            threads=self.threads,
        )
        names, groups = [m.name for m in members], [m.group for m in members]
        content = as_json(seen, names, groups, self.seed)
        if self.out is not None:
            write_json(self.out, content, force=self.force)
        if self.json:
            print_json(content)
            return
        show(seen, names, groups, console)
        if self.out is not None:
            console.print(Text(f"wrote {self.out}"))

    def _given(self) -> str:
        given = {"--env": self.env is not None, "--offline": self.offline, "--data": self.log}
        return " and ".join(name for name, has in given.items() if has) or "neither"

    def _offline(self) -> None:
        """Read the episodes that judge, estimate, write, print."""
        if self.out is not None:
            _check_out(self.out, force=self.force)  # before the work
        settings = parse_fields("--offline", OPEConfig, setting_words(self.settings))
        members = read_members(self.paths)
        groups = [member.group for member in members]
        runs = [group for group in dict.fromkeys(groups) if group]
        held_out = offline_evaluation.read_held_out(self.log, self.labelled, self.data, runs)
        compute_synchronously()
        from puorl import ope

        names = None if self.estimators is None else self.estimators.replace(" ", "").split(",")
        seen = ope.evaluate(
            {member.name: member.policy for member in members},
            held_out.dataset,
            gamma=self.gamma,
            estimators=names,
            action_noise=self.action_noise,
            seed=self.seed,
            progress=True,
            engine=self.where.tasks(),
            **settings,
        )
        content = offline_evaluation.as_json(seen, groups, held_out.notes)
        if self.out is not None:
            write_json(self.out, content, force=self.force)
        if self.json:
            print_json(content)
            return
        console = make_console()
        show_columns(members, console)
        offline_evaluation.show(seen, groups, held_out.notes, console)
        if self.out is not None:
            console.print(Text(f"wrote {self.out}"))


class Member(NamedTuple):
    """A policy."""

    name: str
    group: str
    """The folder with whose other policies it is averaged; empty for a single file."""
    policy: Policy


def read_members(paths: Sequence[str]) -> list[Member]:
    """Load all policies that the paths mean.

    Raises:
        DataError: No path, a file that is no policy, or a folder without policies.
    """
    if not paths:
        raise DataError("expected a folder of puorl train or a policy file, got none")
    members: list[Member] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            files = _files_in(path)
            members += [Member(str(file), str(path), Policy.load(file)) for file in files]
        else:
            members.append(Member(text, "", Policy.load(path)))
    names = [member.name for member in members]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"{twice[0]}: is named twice, so it would count twice; name it once")
    return members


def show_columns(members: Sequence[Member], console: Console) -> None:
    """Print which columns policies take and give, as far as that is known."""
    for text in dict.fromkeys(member.policy.columns_text for member in members):
        if text:
            console.print(Text(f"columns: {text}", style="dim"))


def _files_in(folder: Path) -> list[Path]:
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


def _check_out(path: Path, *, force: bool) -> None:
    """Refuse a file that may not be written, or that puorl report would not find by its name."""
    if path.suffix != ".json" or path.name in (SPEC, RECORD):
        raise ConfigError(
            f"--out: expected a name that ends in .json, other than {SPEC} and "
            f"{RECORD} of puorl train, got {str(path)!r}"
        )
    check_free(path, force=force)


# ------------------------------------------------------------------------------- output


def show(seen: Evaluation, names: Sequence[str], groups: Sequence[str], console: Console) -> None:
    """Print a line for each policy, and one for the mean of each group of several.

    Args:
        seen: Returns of p policies.
        names: Names of the policies.
        groups: Group of each policy; policies of one group are averaged.
        console: Where to print.
    """
    cells = [["return", "std", *(["score"] if seen.mean_score is not None else []), "length"]]
    for row in range(len(names)):
        numbers = [f"{seen.mean[row]:,.1f}", f"± {seen.std[row]:,.1f}"]
        numbers += [f"{seen.mean_score[row]:.1f}"] if seen.mean_score is not None else []
        cells.append([*numbers, f"{seen.lengths[row].mean():,.0f}"])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    # Paths come last: they may be long, and one that is broken in the middle cannot be copied.
    for numbers, name in zip(cells, ["policy", *names], strict=True):
        aligned = [text.rjust(width) for text, width in zip(numbers, widths, strict=True)]
        line = "  ".join([*aligned, name])
        console.print(Text(line, style="bold" if numbers is cells[0] else ""), soft_wrap=True)
    for group, num, returns, scores in _means(seen, groups):
        text = f"{f'{group}: ' if group else ''}mean of {num} policies: return {_text(returns)}"
        text += "" if scores is None else f"; score {_text(scores)}"
        console.print(Text(f"{text} (95 % interval over policies)"))


def as_json(
    seen: Evaluation, names: Sequence[str], groups: Sequence[str], seed: int
) -> dict[str, Any]:
    """Collect everything that was measured, JSON-ready."""
    scores = None if seen.scores is None else seen.scores.tolist()
    return {
        "env": seen.env,
        "episodes": seen.returns.shape[1],
        "seed": seed,
        "policies": [
            {
                "policy": name,
                "group": groups[row],
                "returns": seen.returns[row].tolist(),
                "lengths": seen.lengths[row].tolist(),
                "scores": None if scores is None else scores[row],
            }
            for row, name in enumerate(names)
        ],
        "means": [
            {
                "group": group,
                "num_policies": num,
                "return": returns.to_dict(),
                "score": None if score is None else score.to_dict(),
            }
            for group, num, returns, score in _means(seen, groups)
        ],
    }


class _Mean(NamedTuple):
    group: str
    num_policies: int
    returns: Estimate
    scores: Estimate | None


def _means(seen: Evaluation, groups: Sequence[str]) -> list[_Mean]:
    """Average the policies of each group of two or more."""
    found = []
    for group in dict.fromkeys(groups):
        rows = np.array([other == group for other in groups])
        if rows.sum() > 1:
            scores = None if seen.mean_score is None else mean_estimate(seen.mean_score[rows])
            found.append(_Mean(group, int(rows.sum()), mean_estimate(seen.mean[rows]), scores))
    return found


def _text(mean: Estimate) -> str:
    return f"{mean.value:,.1f} [{mean.low:,.1f}, {mean.high:,.1f}]"
