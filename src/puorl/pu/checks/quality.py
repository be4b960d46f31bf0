"""A second opinion on alpha, from the densities of the same scores instead of their best bin."""

import dataclasses

import numpy as np

from puorl.core.errors import DataError
from puorl.pu.alpha import AlphaEstimate, dedpul
from puorl.pu.checks.auroc import Z95, critical_value, group_numbers, mean_error
from puorl.pu.cross_fit import HeldOutScores
from puorl.pu.intervals import bootstrap_interval
from puorl.pu.report import Measured, Quality

_MAX_ROWS = 100_000
_NUM_RESAMPLES = 40
AGREE_WITHIN = 0.03
"""Estimates no further apart than this agree, however narrow their intervals."""


def second_alpha(judged: HeldOutScores, *, rng: np.random.Generator) -> AlphaEstimate:
    """DEDPUL with the spread over resamples, of whole groups where there are groups."""
    score_p, group_p = _sampled(judged.score_p, judged.group_p, rng)
    score_u, group_u = _sampled(judged.score_u, judged.group_u, rng)
    value = dedpul(score_p, score_u).value
    again = [
        dedpul(_resampled(score_p, group_p, rng), _resampled(score_u, group_u, rng)).value
        for _ in range(_NUM_RESAMPLES)
    ]
    num_groups = min(int(group_p.max()), int(group_u.max())) + 1
    reach = critical_value(num_groups) * float(np.std(again, ddof=1))
    return AlphaEstimate(value, (value - reach, value + reach), "dedpul")


def estimates_agree(one: AlphaEstimate, other: AlphaEstimate) -> bool:
    """Are two estimates near each other, or do their intervals meet?"""
    low, high = one.interval or (one.value, one.value)
    other_low, other_high = other.interval or (other.value, other.value)
    meet = max(low, other_low) <= min(high, other_high)
    return meet or abs(one.value - other.value) <= AGREE_WITHIN


def _sampled(
    score: np.ndarray, group: np.ndarray | None, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """At most so many rows, and their groups numbered from 0."""
    if len(score) > _MAX_ROWS:
        chosen = rng.choice(len(score), _MAX_ROWS, replace=False)
        score, group = score[chosen], None if group is None else group[chosen]
    return score, group_numbers(group, len(score))[0]


def _resampled(score: np.ndarray, number: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    num_groups = int(number.max()) + 1
    times = np.bincount(rng.integers(num_groups, size=num_groups), minlength=num_groups)
    return np.repeat(score, times[number])


_NUM_DRAWS = 4000
DISPUTE_SHARE = 0.15
"""Deviation of recall between networks that keep equally many rows, as a share of the most that
the rows in dispute allow. Root mean square 0.16 on six draws of 100,000 collected rows (three of
them chosen as the worst known), 0.13 and 0.18 on 102 and 75 synthetic ones."""
_NO_LOWER_END = 1e-3
"""A lower end below it is none: the scores bound alpha from above only."""


def measure_quality(
    judged: HeldOutScores, *, decided: np.ndarray | None = None, rng: np.random.Generator
) -> Quality:
    """What is kept of the judged rows, and how good it is likely to be, with 95 % intervals.

    Args:
        judged: What networks say of rows that they did not learn from.
        decided: (u,) bool. What the filter itself keeps of the judged unlabelled rows; None where
            it is the same.
        rng: Makes the draws.

    Raises:
        DataError: No labelled or no unlabelled row could be judged.
    """
    num_p, num_u = len(judged.kept_p), len(judged.kept_u)
    if num_p == 0 or num_u == 0:
        raise DataError(
            f"report: expected judged rows of both kinds, got {num_p} labelled and {num_u} "
            "unlabelled; rows without a next state cannot be judged"
        )
    alpha, (low, high) = judged.alpha.value, alpha_interval(judged.alpha, judged, rng=rng)
    recall = float(judged.kept_p.mean())
    num_kept = int(np.count_nonzero(judged.kept_u))
    disputed = 0.0 if decided is None else float(np.mean(judged.kept_u != decided))
    recall_drawn = _draw_recall(judged, alpha, disputed, rng)
    _, num_groups = group_numbers(judged.group_p, num_p)
    alpha_drawn = _draw_alpha(alpha, low, high, critical_value(num_groups), rng)
    if num_kept == 0:
        precision, purity = Measured(np.nan, np.nan, np.nan), Measured(1.0, 1.0, 1.0)
    else:
        share = num_kept / num_u
        drawn = np.clip(alpha_drawn * recall_drawn / share, 0, 1)
        precision = _measured(min(alpha * recall / share, 1.0), drawn)
        purity = _of_both(precision, num_p, num_kept)
    return Quality(
        num_labelled=num_p,
        num_unlabelled=num_u,
        num_kept=num_kept,
        recall=_measured(recall, recall_drawn),
        precision=precision,
        purity=purity,
        precision_is_upper=low <= _NO_LOWER_END,
        disputed=disputed,
    )


def of_filter(
    quality: Quality, *, num_labelled: int, kept: np.ndarray, weight: np.ndarray | None
) -> Quality:
    """The same quality, of the rows that the filter really keeps.

    Args:
        quality: Of the judged rows, from `measure_quality`.
        num_labelled: All labelled rows, also those that could not be judged.
        kept: (u,) bool. What the filter decides about every unlabelled row.
        weight: (u,) float. Weights of these rows in the mode soft; None in other modes.
    """
    num_kept = int(np.count_nonzero(kept))
    precision, purity = quality.precision, Measured(1.0, 1.0, 1.0)
    if num_kept == 0:
        precision = Measured(np.nan, np.nan, np.nan)
    else:
        purity = _of_both(precision, num_labelled, num_kept)
    return dataclasses.replace(
        quality,
        num_labelled=num_labelled,
        num_unlabelled=len(kept),
        num_kept=num_kept,
        precision=precision,
        purity=purity,
        mean_weight=None if weight is None else float(np.mean(weight)),
    )


def alpha_interval(
    alpha: AlphaEstimate, judged: HeldOutScores, *, rng: np.random.Generator
) -> tuple[float, float]:
    """The estimate's own interval, or one from the scores where it has none."""
    if alpha.interval is not None:
        return alpha.interval
    low, high = bootstrap_interval(
        None, judged.score_p, judged.score_u, rng=rng, groups_p=judged.group_p
    )
    return min(low, alpha.value), max(high, alpha.value)


def _draw_recall(
    judged: HeldOutScores, alpha: float, disputed: float, rng: np.random.Generator
) -> np.ndarray:
    kept = judged.kept_p.astype(np.float64)
    recall, num_rows = float(kept.mean()), len(kept)
    _, num_groups = group_numbers(judged.group_p, num_rows)
    if recall in (0.0, 1.0) or num_groups < 2:
        # All alike: how much groups agree within themselves cannot be seen, so they agree wholly.
        worth = float(num_groups)
    else:
        error = max(mean_error(kept, judged.group_p), 1e-12)
        worth = float(np.clip(recall * (1 - recall) / error**2, 1.0, num_rows))
        worth *= (Z95 / critical_value(num_groups)) ** 2
    worth /= 1 + num_rows / max(alpha * len(judged.kept_u), 1.0)
    drawn = rng.beta(worth * recall + 0.5, worth * (1 - recall) + 0.5, size=_NUM_DRAWS)
    spread = DISPUTE_SHARE * min(disputed / (2 * max(alpha, 1e-9)), 1.0)
    return np.clip(drawn + spread * rng.standard_normal(_NUM_DRAWS), 0, 1)


def _draw_alpha(
    value: float, low: float, high: float, critical: float, rng: np.random.Generator
) -> np.ndarray:
    draw = rng.standard_normal(_NUM_DRAWS) * critical / Z95**2
    return np.clip(value + np.where(draw < 0, draw * (value - low), draw * (high - value)), 0, 1)


def _measured(value: float, drawn: np.ndarray) -> Measured:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Measured(value, float(min(low, value)), float(max(high, value)))


def _of_both(precision: Measured, num_p: int, num_kept: int) -> Measured:
    """Share of target rows in labelled and kept rows together."""

    def share(of_kept: float) -> float:
        return (num_p + of_kept * num_kept) / (num_p + num_kept)

    return Measured(share(precision.value), share(precision.low), share(precision.high))
