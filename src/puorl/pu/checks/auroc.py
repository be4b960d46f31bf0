"""Standard errors of means over rows that come in groups (episodes, windows).

Rows of one group say less than as many independent ones, so sums over groups are what varies.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.pu.cross_fit import HeldOutScores
from puorl.pu.report import VISIBLE_AREA, Measured

Z95 = NormalDist().inv_cdf(0.975)


def group_numbers(group: np.ndarray | None, num_rows: int) -> tuple[np.ndarray, int]:
    """Number every row's group from 0, and count them; without groups each row is its own."""
    if group is None:
        return np.arange(num_rows), num_rows
    ids, number = np.unique(group, return_inverse=True)
    return number, len(ids)


def group_sums(values: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    """(groups,) float64. Sum of the values in every group; the values themselves without groups."""
    if group is None:
        return values.astype(np.float64)
    number, num_groups = group_numbers(group, len(values))
    return np.bincount(number, values, num_groups)


def mean_error(values: np.ndarray, group: np.ndarray | None) -> float:
    """Standard error of the mean over all rows; infinite where one group is all there is."""
    sums = group_sums(values - values.mean(), group)
    if len(sums) < 2:
        return float("inf")
    return float(np.sqrt(len(sums) / (len(sums) - 1) * np.sum(sums**2))) / len(values)


def critical_value(num_groups: int) -> float:
    """How many standard errors a 95 % interval reaches: Student's t for few groups.

    >>> round(critical_value(1000), 2), round(critical_value(6), 1)
    (1.96, 2.6)
    """
    free = max(num_groups - 1, 1)
    z = Z95
    # Cornish-Fisher: exact to two digits from five degrees of freedom on.
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


class Placements(NamedTuple):
    """For each row, the share of the other set's rows that it is ordered rightly with."""

    labelled: np.ndarray
    """(p,) float64. Share of unlabelled rows below, ties counted half."""
    unlabelled: np.ndarray
    """(u,) float64. Share of labelled rows above, ties counted half."""


def separation(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    group_p: np.ndarray | None = None,
    group_u: np.ndarray | None = None,
) -> Measured:
    """Chance that a labelled row scores above an unlabelled one, ties counted half.

    Args:
        score_p: (p,) float. Held-out labelled rows.
        score_u: (u,) float. Unlabelled rows.
        group_p: (p,) int. Rows of one number are not independent; None if all are.
        group_u: (u,) int. The same for U; a number may stand in both.

    Raises:
        DataError: One set is empty.
    """
    if len(score_p) == 0 or len(score_u) == 0:
        raise DataError(
            f"separation: expected rows in both sets, got {len(score_p)} labelled and "
            f"{len(score_u)} unlabelled; the report needs some of each"
        )
    return area(placements(score_p, score_u), group_p=group_p, group_u=group_u)


def placements(score_p: np.ndarray, score_u: np.ndarray) -> Placements:
    """Place every row in the other set; O(n log n)."""
    return Placements(_share_below(score_p, score_u), 1 - _share_below(score_u, score_p))


def area(
    placed: Placements, *, group_p: np.ndarray | None = None, group_u: np.ndarray | None = None
) -> Measured:
    """The mean placement with its interval; placements may come from several folds."""
    value = float(placed.labelled.mean())
    number_p, num_groups_p = group_numbers(group_p, len(placed.labelled))
    number_u, num_groups_u = group_numbers(group_u, len(placed.unlabelled))
    num_groups = min(num_groups_p, num_groups_u)
    if num_groups < 2:
        return Measured(value, 0.0, 1.0)
    influence_p = (placed.labelled - value) / len(placed.labelled)
    influence_u = (placed.unlabelled - placed.unlabelled.mean()) / len(placed.unlabelled)
    sum_p = np.bincount(number_p, influence_p, num_groups_p)
    sum_u = np.bincount(number_u, influence_u, num_groups_u)
    variance = _scaled(sum_p) + _scaled(sum_u) + 2 * _shared(sum_p, sum_u, group_p, group_u)
    low, high = _ends(value, variance, num_groups)
    return Measured(value, min(low, value), max(high, value))


def _ends(value: float, variance: float, num_groups: int) -> tuple[float, float]:
    reach = critical_value(num_groups)
    if variance < 1e-12:
        # No pair in the wrong order shows no spread; Wilson's interval of so many trials has one.
        extra = reach**2 / num_groups
        half = np.sqrt(value * (1 - value) * extra + extra**2 / 4)
        middle = value + extra / 2
        return float((middle - half) / (1 + extra)), float((middle + half) / (1 + extra))
    centre = float(np.clip(value, 1e-9, 1 - 1e-9))
    logit = np.log(centre) - np.log1p(-centre)
    half = reach * np.sqrt(variance) / (centre * (1 - centre))
    low, high = 1 / (1 + np.exp(-np.clip([logit - half, logit + half], -50, 50)))
    return float(low), float(high)


def _share_below(score: np.ndarray, others: np.ndarray) -> np.ndarray:
    others = np.sort(others)
    # Sorted needles make the search walk through memory in order.
    order = np.argsort(score)
    needles = score[order]
    both = np.searchsorted(others, needles, side="left").astype(np.float64)
    both += np.searchsorted(others, needles, side="right")
    share = np.empty(len(score))
    share[order] = both / (2 * len(others))
    return share


def _scaled(sums: np.ndarray) -> float:
    return float(len(sums) / (len(sums) - 1) * np.sum(sums**2))


def _shared(
    sum_p: np.ndarray,
    sum_u: np.ndarray,
    group_p: np.ndarray | None,
    group_u: np.ndarray | None,
) -> float:
    """Covariance through groups that hold labelled and unlabelled rows."""
    if group_p is None or group_u is None:
        return 0.0
    _, in_p, in_u = np.intersect1d(np.unique(group_p), np.unique(group_u), return_indices=True)
    return float(sum_p[in_p] @ sum_u[in_u])


CERTAIN_LIFT = 4.0
_SHARES = (0.02, 0.05, 0.1)
"""Shares of the labelled rows below the scores that are looked at."""
_LEAST_ROWS = 10


def second_domain_detectable(judged: HeldOutScores, separation: Measured) -> bool:
    """Do the scores show rows of another domain among the unlabelled?

    Args:
        judged: Labelled and unlabelled rows.
        separation: Of its scores.
    """
    if separation.low <= 0.5:
        return False
    return separation.value >= VISIBLE_AREA or certain_lift(judged) >= CERTAIN_LIFT


def certain_lift(judged: HeldOutScores) -> float:
    """Lower end of how much more frequent unlabelled rows are among the lowest scores; the best."""
    ends = [0.0]
    for score in np.quantile(judged.score_p, _SHARES):
        below_p, below_u = judged.score_p <= score, judged.score_u <= score
        if np.count_nonzero(below_p) < _LEAST_ROWS or not below_u.any():
            continue
        share_p, share_u = float(below_p.mean()), float(below_u.mean())
        error = np.hypot(
            mean_error(below_p.astype(np.float64), judged.group_p) / share_p,
            mean_error(below_u.astype(np.float64), judged.group_u) / share_u,
        )
        ends.append(float(share_u / share_p * np.exp(-Z95 * error)))
    return max(ends)
