"""`puorl evaluate`: how good policies are in a simulated domain."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from puorl.bench.stats import SampleSummary
from puorl.cli.options import Count, Flag
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import check_free, read_json, write_json
from puorl.core.hashing import checked_seed
from puorl.envs.bodies import body
from puorl.envs.domains import DomainSpec, parse_domain
from puorl.envs.evaluate import Evaluation, evaluate
from puorl.rl.policy import Policy

_PLAN, _RECORD, _POLICIES = "run.json", "record.json", "policies"
_APART = "  "


class Member(NamedTuple):
    """A policy, and with which others it is averaged."""

    name: str
    group: str
    policy: Policy


@dataclass(frozen=True)
class Evaluate:
    """Run policies in a simulated domain, all of them from the same start states.

    A folder that puorl train wrote stands for all its policies. Their mean comes with a 95 %
    interval over seeds (Student's t) from two policies on; files that are named one by one are
    averaged together. Scores are D4RL's: 0 is its random policy, 100 its expert.

    Examples:
      puorl evaluate run --env hopper
      puorl evaluate run --env hopper --out run/hopper.json
      puorl evaluate run-iql run-bc --env hopper/body_mass --episodes 20 --seed 1
      puorl evaluate run/policies/seed-0.safetensors --env hopper/gravity=0.5 --json
    """

    paths: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR|FILE...", help_behavior_hint="")]
    ]
    """Folders of puorl train, or policy files."""
    env: Annotated[str, tyro.conf.arg(metavar="ENV")]
    """Body, or body/domain: hopper, hopper/body_mass, walker2d/gravity=0.5."""
    episodes: Count = 100
    """Episodes of each policy."""
    seed: int = 0
    """Seed of the start states and of the domain's noise."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Cores to use; all by default."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """File to write, .json: what --json prints. In the folder of the run puorl report finds it."""
    force: Flag = False
    """Replace the file if it exists."""
    json: Flag = False
    """Print one JSON object on stdout, with every return, and nothing else."""

    def run(self) -> None:
        """Load, simulate, write, print."""
        spec = parse_domain(self.env)
        if self.out is not None:
            check_out(self.out, force=self.force)  # before the work
        checked_seed(self.seed)
        check_episodes("--episodes", self.episodes)
        members = read_members(self.paths)
        for member in members:
            policy = member.policy
            check_fits(spec, policy.obs_dim, policy.act_dim, f"{member.name}: the policy")
        console = Console(highlight=False, soft_wrap=True)
        if not self.json:
            count = f"{len(members)} policies" if len(members) > 1 else "1 policy"
            console.print(f"{count} in {spec.text}, {self.episodes:,} episodes each")
        seen = evaluate(
            [member.policy for member in members],
            spec,
            episodes=self.episodes,
            seed=self.seed,
            threads=self.threads,
        )
        names, groups = [m.name for m in members], [m.group for m in members]
        content = as_json(seen, names, groups, self.seed)
        if self.out is not None:
            write_json(self.out, content, force=self.force)
        if self.json:
            sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
            return
        show(seen, names, groups, console)
        if self.out is not None:
            console.print(Text(f"wrote {self.out}"))


def check_out(path: Path, *, force: bool) -> None:
    """Refuse a file that may not be written, or under whose name nobody would look for it.

    Raises:
        ConfigError: Another suffix than .json, or the name of a file of `puorl train`.
        DataError: Something is there, or nothing can be written there.
    """
    if path.suffix != ".json" or path.name in (_PLAN, _RECORD):
        raise ConfigError(
            f"--out: expected a name that ends in .json, other than {_PLAN} and {_RECORD} of "
            f"puorl train, got {str(path)!r}"
        )
    check_free(path, force=force)


def check_episodes(option: str, episodes: int) -> None:
    """Refuse to run no episode.

    Raises:
        ConfigError: Fewer than one.
    """
    if episodes < 1:
        raise ConfigError(f"{option}: expected 1 or more episodes, got {episodes}")


def check_fits(spec: DomainSpec, obs_dim: int, act_dim: int, subject: str) -> None:
    """Refuse a domain whose states or actions have other sizes.

    Raises:
        DataError: They differ.
    """
    robot = body(spec.body)
    if (obs_dim, act_dim) != (robot.obs_dim, robot.act_dim):
        raise DataError(
            f"{subject} has {obs_dim} state and {act_dim} action components, but {spec.text} has "
            f"{robot.obs_dim} and {robot.act_dim}; choose another --env"
        )


def read_members(paths: Sequence[str]) -> list[Member]:
    """All policies that the paths mean.

    Raises:
        DataError: No path, a file that is no policy, or a folder without policies.
    """
    if not paths:
        raise DataError("expected a folder of puorl train or a policy file, got none")
    members: list[Member] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            files = _policy_files(path)
            members += [Member(str(file), str(path), Policy.load(file)) for file in files]
        else:
            members.append(Member(text, "", Policy.load(path)))
    names = [member.name for member in members]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"{twice[0]}: is named twice, so it would count twice; name it once")
    return members


def _policy_files(folder: Path) -> list[Path]:
    """In the order of the run's seeds; those of lanes that were given up are not there."""
    if not (folder / _PLAN).is_file():
        raise DataError(
            f"{folder}: expected a folder that puorl train wrote, found no {_PLAN} in it; name "
            "such a folder, or the policy files themselves"
        )
    plan = read_json(folder / _PLAN)
    groups = plan.get("groups", []) if isinstance(plan, Mapping) else []
    files = [folder / _POLICIES / f"{name}.safetensors" for group in groups for name in group]
    found = [file for file in files if file.is_file()]
    if not found:
        raise DataError(
            f"{folder}: expected policies, found none: the run has not ended; go on with it by "
            "puorl train ... --resume"
        )
    return found


# ------------------------------------------------------------------------------- what is said


class Mean(NamedTuple):
    """Mean over policies, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def mean_over_seeds(values: np.ndarray) -> Mean:
    """Mean of (p,) float, two or more, with Student's t interval.

    >>> [round(x, 1) for x in mean_over_seeds(np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.5, 4.5]
    """
    found = SampleSummary.of(values.tolist()).estimate
    return Mean(found.value, found.low, found.high)


def show(seen: Evaluation, names: Sequence[str], groups: Sequence[str], console: Console) -> None:
    """Print a line for each policy, and one for the mean of each group of several.

    Args:
        seen: Returns of p policies.
        names: Of the policies.
        groups: With which others each policy is averaged.
        console: Where to.
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
        line = _APART.join([*aligned, name])
        console.print(Text(line, style="bold" if numbers is cells[0] else ""), soft_wrap=True)
    for means in _means(seen, groups):
        title = f"{means['group']}: " if means["group"] else ""
        text = f"{title}mean of {means['num_policies']} policies: return {_told(means['return'])}"
        text += f"; score {_told(means['score'])}" if means["score"] else ""
        console.print(Text(f"{text} (95 % interval over policies)"))


def as_json(
    seen: Evaluation, names: Sequence[str], groups: Sequence[str], seed: int
) -> dict[str, Any]:
    """Everything that was measured, JSON-ready."""
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
        "means": _means(seen, groups),
    }


def _means(seen: Evaluation, groups: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for group in dict.fromkeys(groups):
        rows = np.array([other == group for other in groups])
        if rows.sum() < 2:
            continue
        score = None if seen.mean_score is None else mean_over_seeds(seen.mean_score[rows])
        found.append(
            {
                "group": group,
                "num_policies": int(rows.sum()),
                "return": mean_over_seeds(seen.mean[rows])._asdict(),
                "score": None if score is None else score._asdict(),
            }
        )
    return found


def _told(mean: dict[str, float]) -> str:
    return f"{mean['value']:,.1f} [{mean['low']:,.1f}, {mean['high']:,.1f}]"
