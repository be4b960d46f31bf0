"""`puorl evaluate`: run policies in a simulated domain, or judge them from a log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from rich.text import Text

from puorl.cli import options as opt
from puorl.core.errors import ConfigError
from puorl.core.files import check_free, write_json
from puorl.core.formatting import check_positive
from puorl.core.hashing import checked_seed
from puorl.core.stats import Estimate, mean_estimate
from puorl.envs.evaluate import Evaluation, check_sizes, evaluate, find_env
from puorl.ope.config import OPEConfig
from puorl.ope.held_out import read_held_out
from puorl.rl.run import RECORD, SPEC, StoredPolicy, read_policies
from puorl.rl.settings import parse_fields

if TYPE_CHECKING:  # importing it loads jax
    from puorl.ope.values import OfflineEvaluation


@dataclass(frozen=True)
class Evaluate(opt.Command):
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

    paths: opt.RunPaths
    """Folders of puorl train, or policy files."""
    env: opt.Env = None
    """Body, or body/domain: hopper, hopper/body_mass, walker2d/gravity=0.5; or a gymnasium id:
    CartPole-v1."""
    offline: opt.Flag = False
    """Judge from the log --data, without an environment."""
    log: Annotated[tuple[str, ...], opt.unset("PATH...", name="data")] = ()
    """Files, globs and folders of held-out episodes."""
    labelled: opt.Labelled = None
    """Rows of --data that are your machine's, as for puorl filter; all by default."""
    estimators: opt.Names = None
    """Among blend, fqe, model, dr, pdis, wis, with commas; by default all that can be computed."""
    gamma: opt.Float = 0.99
    """Discount of a step, for --offline."""
    action_noise: opt.OptionalFloat = None
    """Noise with which dr, pdis and wis value a deterministic policy; an action's range is 2."""
    settings: opt.Settings = ()
    """Settings of --offline that are to differ, e.g. updates=5000 critics=3."""
    episodes: opt.Count = 100
    """Episodes of each policy."""
    seed: opt.Int = 0
    """Seed of the start states and of the domain's noise."""
    threads: opt.OptionalInt = None
    """Cores to use; all by default."""
    out: opt.OptionalPath = None
    """File to write, .json, with what --json prints; puorl report finds it in the run's folder."""
    force: opt.Flag = False
    """Replace the file if it exists."""
    data: opt.DataOptions = opt.DataOptions()
    where: opt.EngineOptions = opt.EngineOptions()

    def run(self) -> None:
        """Load the policies, simulate or judge, write, print."""
        given = {"--env": self.env is not None, "--offline": self.offline, "--data": self.log}
        if self.offline == given["--env"] or self.offline != bool(self.log):
            got = " and ".join(name for name, has in given.items() if has) or "neither"
            raise ConfigError(
                "evaluate: expected --env ENV, or --offline with --data and without --env; got "
                + got
            )
        if self.out is not None:
            _check_out(self.out, force=self.force)  # before the work
        content, lines = self._simulate() if self.env else self._judge()
        if self.out is not None:
            write_json(self.out, content, force=self.force)
            lines = [*lines, f"wrote {self.out}"]
        self.answer(content, *lines)

    def _simulate(self) -> tuple[dict[str, Any], list[RenderableType]]:
        env = find_env(str(self.env))
        checked_seed(self.seed)
        check_positive("--episodes", self.episodes)
        stored = read_policies(self.paths)
        for name, _, policy in stored:
            sizes = policy.obs_dim, policy.act_dim, policy.codes
            check_sizes(env, *sizes, f"{name}: the policy")
        if not self.json:
            text = f"{opt.count_policies(len(stored))} in {getattr(env, 'text', self.env)}"
            self.console.print(f"{text}, {self.episodes:,} episodes each")
        seen = evaluate(
            [each.policy for each in stored],
            self.env,
            episodes=self.episodes,
            seed=self.seed,
            threads=self.threads,
        )
        names, groups = [each.name for each in stored], [each.group for each in stored]
        lines = [*_column_lines(stored), *return_lines(seen, names, groups)]
        return seen.to_dict(names, groups, self.seed), lines

    def _judge(self) -> tuple[dict[str, Any], list[RenderableType]]:
        """Read the episodes that judge, and estimate."""
        settings = parse_fields("--offline", OPEConfig, opt.setting_words(self.settings))
        stored = read_policies(self.paths)
        groups = [each.group for each in stored]
        rows, notes = read_held_out(
            self.log,
            self.labelled,
            [group for group in dict.fromkeys(groups) if group],
            lambda fields: opt.DataOptions(**fields).arguments(),
            **self.data.arguments(),
        )
        self.compute_synchronously()
        from puorl import ope

        seen = ope.evaluate(
            {each.name: each.policy for each in stored},
            rows,
            gamma=self.gamma,
            estimators=self.estimators and self.estimators.replace(" ", "").split(","),
            action_noise=self.action_noise,
            seed=self.seed,
            progress=True,
            engine=self.where.tasks(),
            **settings,
        )
        content, notes = seen.to_dict(), [*notes, *seen.notes]
        for each, group in zip(content["policies"], groups, strict=True):
            each["group"] = group
        lines = [*_column_lines(stored), *opt.note_lines(notes), *offline_lines(seen, groups)]
        return content | {"notes": notes}, lines


def _check_out(path: Path, *, force: bool) -> None:
    """Refuse a file that may not be written, or that puorl report would not find by its name."""
    if path.suffix != ".json" or path.name in (SPEC, RECORD):
        raise ConfigError(
            f"--out: expected a name that ends in .json, other than {SPEC} and "
            f"{RECORD} of puorl train, got {str(path)!r}"
        )
    check_free(path, force=force)


# ------------------------------------------------------------------------------- output


def _column_lines(stored: Sequence[StoredPolicy]) -> Iterator[Text]:
    """Say which columns policies take and give, as far as that is known."""
    for text in dict.fromkeys(each.policy.columns_text for each in stored):
        if text:
            yield Text(f"columns: {text}", style="dim")


def return_lines(
    seen: Evaluation, names: Sequence[str], groups: Sequence[str]
) -> Iterator[RenderableType]:
    """Yield a line for each policy, and one for the mean of each group of several.

    Args:
        seen: Returns of p policies.
        names: Names of the policies.
        groups: Group of each policy; policies of one group are averaged.
    """
    has_score = [] if seen.mean_score is None else ["score"]
    cells = [["return", "std", *has_score, "length", "policy"]]
    for row, name in enumerate(names):
        numbers = [f"{seen.mean[row]:,.1f}", f"± {seen.std[row]:,.1f}"]
        numbers += [] if seen.mean_score is None else [f"{seen.mean_score[row]:.1f}"]
        cells.append([*numbers, f"{seen.lengths[row].mean():,.0f}", name])
    yield from opt.aligned(cells, left=1)
    for group, num, returns, scores in seen.means(groups):
        text = f"{f'{group}: ' if group else ''}mean of {num} policies: return {_text(returns)}"
        text += "" if scores is None else f"; score {_text(scores)}"
        yield f"{text} (95 % interval over policies)"


def offline_lines(seen: "OfflineEvaluation", groups: Sequence[str]) -> Iterator[RenderableType]:
    """Yield a line for each policy and estimator, the ranking, and what to mind."""
    from puorl.ope.values import text_of

    yield (
        f"discounted return ({seen.gamma:g} a step) from {seen.num_episodes:,} logged starts; "
        f"the behaviour policy: {text_of(seen.behaviour.estimate)}"
    )
    cells, warnings = [["estimate", "by", "effective size", "policy"]], []
    for (policy, values), group in zip(seen.values.items(), groups, strict=True):
        for name, value in values.items():
            mark = " (doubtful)" if value.is_doubtful else ""
            size = f"{value.effective_size:,.1f} episodes"
            cells.append([text_of(value.estimate), f"{name}{mark}", size, policy])
            short = f"{Path(group).name}/{Path(policy).stem}" if group else policy
            warnings += [f"{short}, {name}: {value.trust}"] if mark else []
    yield from opt.aligned(cells, left=4)
    yield from (Text(warning, style="yellow") for warning in warnings)
    for group in dict.fromkeys(filter(None, groups)):
        pairs = zip(seen.values.values(), groups, strict=True)
        values = [each[seen.default].estimate.value for each, own in pairs if own == group]
        if len(values) > 1:
            mean = f"mean of {len(values)} policies by {seen.default}"
            text = f"{group}: {mean}: {text_of(mean_estimate(values))}"
            yield f"{text} (95 % interval over policies)"
    if len(seen.values) > 1:
        yield f"by {seen.default}: {seen.ranking().sentence}"


def _text(mean: Estimate) -> str:
    return f"{mean.value:,.1f} [{mean.low:,.1f}, {mean.high:,.1f}]"
