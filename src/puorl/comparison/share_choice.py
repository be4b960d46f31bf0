"""`choose_share`: how much of the others' rows to use, from evidence that needs no further labels.

For each amount a few policies are trained, and off-policy evaluation judges all of them by labelled
episodes that nobody trained on. 0, which is PU, is always a candidate and stays the choice unless
another amount is clearly better: the interval of the difference lies above 0, at a level that is
corrected for the number of amounts tried.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puorl.comparison.result import Comparison, Outcome
from puorl.core.errors import ConfigError
from puorl.core.formatting import check_positive, parse_count
from puorl.core.stats import Estimate
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.methods.base import find
from puorl.ope.offline import DEFAULT
from puorl.ope.offline import evaluate as judge_offline
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.run import RunSpec, checkpoint_interval, run_in_memory

SHARES = (0.25, 0.5, 0.75)
_LEVEL = 0.95


@dataclass(frozen=True)
class ShareChoice:
    """The chosen amount, and what each amount was judged to be worth."""

    share: float
    differences: Mapping[float, Estimate]
    """Value of each amount minus that of PU; the level of intervals is corrected for their
    number."""
    comparison: Comparison
    """All amounts, 0 first."""

    @property
    def verdict(self) -> str:
        """Say what was chosen and why."""
        if self.share == 0.0:
            return "No amount of sharing is clearly better than none: use PU (share 0)."
        gain = self.differences[self.share]
        return (
            f"Share {self.share:g} is judged clearly better than PU: {gain.value:+.4g} "
            f"[{gain.low:+.4g}, {gain.high:+.4g}]."
        )


def choose_share(
    split: PUSplit,
    judge: Dataset,
    *,
    shares: Sequence[float] = SHARES,
    learner: str = "td3_bc",
    seeds: int = 3,
    steps: int | str = 20_000,
    gamma: float = 0.99,
    seed: int = 0,
    method: Mapping[str, Any] | None = None,
    ope: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ShareChoice:
    """Choose the setting ``share`` of the method ``pu_share``.

    Args:
        split: Rows to train on.
        judge: Labelled episodes that are not in the split.
        shares: Amounts to try besides 0.
        learner: Learning algorithm.
        seeds: Policies for each amount; at least two.
        steps: Updates of each policy.
        gamma: Discount of off-policy evaluation.
        seed: Decides all randomness.
        method: Other settings of ``pu_share``.
        ope: Settings of off-policy evaluation, fields of `puorl.ope.OPEConfig`.
        **settings: Fields of the learner's config.

    Raises:
        ConfigError: Fewer than two seeds, or an amount out of range.
    """
    total = parse_count(steps, name="steps")
    check_positive("seeds", seeds)
    if seeds < 2:
        raise ConfigError(f"seeds: expected two or more, to tell chance from gain, got {seeds}")
    kind, given = find("pu_share"), dict(method or {})
    wanted = {share: kind.configured(given | {"share": share}) for share in (0.0, *shares)}
    sets = {f"{share:g}": each.prepare(split, seed=seed) for share, each in wanted.items()}
    made = learners.make(learner, num_steps=total, **settings)
    trainer.check_steps(made, steps=total)
    spec = RunSpec(
        made,
        sets,
        {name: range(seed, seed + seeds) for name in sets},
        total,
        checkpoint_interval(made, total),
    )
    policies = run_in_memory(spec, on_checkpoint=lambda point, lanes: None).policies
    seen = judge_offline(
        policies, judge, gamma=gamma, estimators=[DEFAULT], seed=seed, **(ope or {})
    )
    outcomes = []
    for name, chosen in sets.items():
        own = [lane for lane in policies if lane.rpartition("-seed-")[0] == name]
        values = [seen.values[lane][DEFAULT] for lane in own]
        outcomes.append(
            Outcome(
                method="pu_share",
                title=f"share {name}",
                num_rows=len(chosen),
                scores=tuple(value.estimate.value for value in values),
                draws=tuple(np.mean([v.draws for v in values], axis=0).tolist()) if own else (),
                num_doubtful=sum(value.is_doubtful for value in values),
                num_stopped=seeds - len(own),
            )
        )
    compared = Comparison(
        tuple(outcomes),
        judged_by=f"{DEFAULT} from {seen.num_episodes} held-out labelled episodes",
        unit=f"discounted return ({gamma:g} a step)",
        behaviour=seen.behaviour.estimate,
        notes=seen.notes,
        settings={"learner": learner, "steps": total, "seeds": seeds, "seed": seed},
    )
    return choose(compared, list(wanted))


def choose(compared: Comparison, shares: Sequence[float]) -> ShareChoice:
    """Choose among judged amounts, of which the first is 0.

    An amount of which a policy was given up, or of whose values most must not be trusted, is not
    chosen.
    """
    none, *others = compared.outcomes
    differences, best = {}, 0.0
    for share, each in zip(shares[1:], others, strict=True):
        if not (none.scores and each.scores):
            continue
        # Intervals are widened for the number of amounts (Bonferroni).
        level = 1.0 - (1.0 - _LEVEL) / len(others)
        found = differences[share] = compared.difference(each, none, level=level)
        sound = not each.num_stopped and 2 * each.num_doubtful <= len(each.scores)
        ahead = best == 0.0 or found.low > differences[best].low
        if sound and found.is_above_zero and ahead:
            best = share
    return ShareChoice(best, differences, compared)
