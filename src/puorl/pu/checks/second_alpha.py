"""A second opinion on alpha, from the densities of the same scores instead of their best bin."""

import numpy as np

from puorl.pu.checks.clusters import critical_value, group_numbers
from puorl.pu.judgement import Judgement
from puorl.pu.mpe.dedpul import dedpul
from puorl.pu.mpe.estimate import AlphaEstimate

_MAX_ROWS = 100_000
_NUM_RESAMPLES = 40
AGREE_WITHIN = 0.03
"""Estimates no further apart than this agree, however narrow their intervals."""


def second_alpha(judged: Judgement, *, rng: np.random.Generator) -> AlphaEstimate:
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
