"""How well scores part labelled from unlabelled rows: the area under the ROC curve, with interval.

Unlabelled rows hold the target's too, so the area of perfect scores is ``1 - alpha / 2``, not 1:
``area(P, U) = 1/2 + (1 - alpha) (area(target, others) - 1/2)``.

The interval is DeLong's, with placements summed over groups where rows come in groups (Obuchowski
1997), on the logit scale, so that it stays inside [0, 1].
"""

from typing import NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.pu.checks.clusters import critical_value, group_numbers
from puorl.pu.report import Measured


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
