"""Held-out scores of labelled and unlabelled rows: their AUROC, and the doubtful episodes.

Unlabelled rows contain the target's too, so perfect scores have the AUROC ``1 - alpha / 2``, not 1:
``auroc(P, U) = 1/2 + (1 - alpha) (auroc(target, others) - 1/2)``.

The interval is DeLong's, with placements summed over groups where rows come in groups (Obuchowski
1997), on the logit scale, so that it stays inside [0, 1].

alpha is unknown where the domains overlap: its estimate goes to 1 and explains any AUROC. So a
second domain counts as detectable if one of two things holds, neither of which needs alpha:

- the AUROC is large: at `DETECTABLE_AUROC` target and others separate with 0.67 for alpha = 0.3,
  and 0.7 for alpha = 0.4;
- some unlabelled rows are certainly others: below a score that few target rows stay under, the
  unlabelled rows are `CERTAIN_LIFT` times as frequent, so that at most one in `CERTAIN_LIFT` of
  them can be the target's. This detects a few others that separate well (alpha near 1), where the
  AUROC is small. Others that look like the target may remain: the precision is an upper estimate.

Gaussian, wider and partly overlapping scores, alpha 0.3, 100 to 8,000 labelled rows: detectable in
0.3 % of draws whose domains separate with 0.6 or less, in all of those with 0.9 or more. Where one
fifth of the others separates perfectly and the rest not at all (also 0.6) it counts as detectable.
Either must be beyond chance: an interval that reaches one half, as with few labelled episodes, is
not enough.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.core.stats import Z95, Estimate, clustered_error, group_numbers, student_t
from puorl.data.split import PUSplit
from puorl.pu.units import Unit, number_units

CHANCE = 0.5
"""AUROC of scores that carry no information."""
DETECTABLE_AUROC = 0.62
"""AUROC from which scores look separated."""
CERTAIN_LIFT = 4.0
_QUANTILES = (0.02, 0.05, 0.1)
"""Quantiles of the labelled scores below which unlabelled rows are counted."""
_LEAST_ROWS = 10
MOST_DOUBTFUL = 12
_SURE = 0.4
"""Distance from the threshold (at most 0.5) from which an episode is not doubtful."""


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Scores and decisions about labelled and unlabelled rows by networks not trained on them.

    Rows without a next state cannot be scored and are left out; all arrays with the same suffix
    have the same length.
    """

    position_p: np.ndarray
    """(p,) int64 pool positions of the labelled rows."""
    position_u: np.ndarray
    """(u,) int64 pool positions of the unlabelled rows."""
    score_p: np.ndarray
    """(p,) float32. Probability that each labelled row is the target's."""
    score_u: np.ndarray
    """(u,) float32. The same for unlabelled rows."""
    kept_p: np.ndarray
    """(p,) bool. Whether the rule for unlabelled rows would keep the row."""
    kept_u: np.ndarray
    """(u,) bool."""
    group_p: np.ndarray | None
    """(p,) int64. Rows of one group (an episode) are not independent; None if all rows are."""
    group_u: np.ndarray | None
    """(u,) int64."""
    alpha: Estimate
    """Fraction of target rows among the unlabelled, from these scores."""

    @property
    def auroc(self) -> Estimate:
        """AUROC of the scores."""
        return auroc(self.score_p, self.score_u, group_p=self.group_p, group_u=self.group_u)


class Placements(NamedTuple):
    """For each row, the fraction of the other set's rows that it is ordered correctly with."""

    labelled: np.ndarray
    """(p,) float64. Fraction of unlabelled rows below, ties counted half."""
    unlabelled: np.ndarray
    """(u,) float64. Fraction of labelled rows above, ties counted half."""


def auroc(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    group_p: np.ndarray | None = None,
    group_u: np.ndarray | None = None,
) -> Estimate:
    """Estimate the probability that a labelled row scores above an unlabelled one.

    Args:
        score_p: (p,) float. Held-out labelled rows.
        score_u: (u,) float. Unlabelled rows.
        group_p: (p,) int. Rows of one number are not independent; None if all are.
        group_u: (u,) int. The same for U; a number may be in both.

    Raises:
        DataError: One set is empty.
    """
    if len(score_p) == 0 or len(score_u) == 0:
        raise DataError(
            f"auroc: expected rows in both sets, got {len(score_p)} labelled and {len(score_u)} "
            "unlabelled; the report needs some of each"
        )
    return auroc_of(placements(score_p, score_u), group_p=group_p, group_u=group_u)


def placements(score_p: np.ndarray, score_u: np.ndarray) -> Placements:
    """Place every row in the other set; O(n log n)."""
    return Placements(_fraction_below(score_p, score_u), 1 - _fraction_below(score_u, score_p))


def auroc_of(
    placed: Placements, *, group_p: np.ndarray | None = None, group_u: np.ndarray | None = None
) -> Estimate:
    """Return the mean placement with its interval; placements may come from several folds."""
    value = float(placed.labelled.mean())
    number_p, num_groups_p = group_numbers(group_p, len(placed.labelled))
    number_u, num_groups_u = group_numbers(group_u, len(placed.unlabelled))
    num_groups = min(num_groups_p, num_groups_u)
    if num_groups < 2:
        return Estimate(value, 0.0, 1.0)
    influence_p = (placed.labelled - value) / len(placed.labelled)
    influence_u = (placed.unlabelled - placed.unlabelled.mean()) / len(placed.unlabelled)
    sum_p = np.bincount(number_p, influence_p, num_groups_p)
    sum_u = np.bincount(number_u, influence_u, num_groups_u)
    variance = sum(float(len(s) / (len(s) - 1) * np.sum(s**2)) for s in (sum_p, sum_u))
    if group_p is not None and group_u is not None:
        # Covariance through groups with labelled and unlabelled rows.
        groups = np.unique(group_p), np.unique(group_u)
        _, in_p, in_u = np.intersect1d(*groups, return_indices=True)
        variance += 2 * float(sum_p[in_p] @ sum_u[in_u])
    low, high = _ends(value, variance, num_groups)
    return Estimate(value, min(low, value), max(high, value))


def second_domain_detectable(scores: HeldOutScores, found: Estimate) -> bool:
    """Return whether scores show rows of another domain among the unlabelled.

    Args:
        scores: Labelled and unlabelled rows.
        found: AUROC of the scores.
    """
    if found.low <= CHANCE:
        return False
    return found.value >= DETECTABLE_AUROC or certain_lift(scores) >= CERTAIN_LIFT


def certain_lift(scores: HeldOutScores) -> float:
    """Return how much more frequent unlabelled rows are among the lowest scores, at least."""
    ends = [0.0]
    for score in np.quantile(scores.score_p, _QUANTILES):
        below_p, below_u = scores.score_p <= score, scores.score_u <= score
        if np.count_nonzero(below_p) < _LEAST_ROWS or not below_u.any():
            continue
        fraction_p, fraction_u = float(below_p.mean()), float(below_u.mean())
        error = np.hypot(
            clustered_error(below_p.astype(np.float64), scores.group_p) / fraction_p,
            clustered_error(below_u.astype(np.float64), scores.group_u) / fraction_u,
        )
        ends.append(float(fraction_u / fraction_p * np.exp(-Z95 * error)))
    return max(ends)


def _ends(value: float, variance: float, num_groups: int) -> tuple[float, float]:
    reach = student_t(num_groups - 1)
    if variance < 1e-12:
        # Perfect order has no spread; Wilson's interval of this many trials has one.
        extra = reach**2 / num_groups
        half = np.sqrt(value * (1 - value) * extra + extra**2 / 4)
        middle = value + extra / 2
        return float((middle - half) / (1 + extra)), float((middle + half) / (1 + extra))
    centre = float(np.clip(value, 1e-9, 1 - 1e-9))
    logit = np.log(centre) - np.log1p(-centre)
    half = reach * np.sqrt(variance) / (centre * (1 - centre))
    low, high = 1 / (1 + np.exp(-np.clip([logit - half, logit + half], -50, 50)))
    return float(low), float(high)


def _fraction_below(score: np.ndarray, others: np.ndarray) -> np.ndarray:
    others = np.sort(others)
    # Sorted needles make the search access memory in order.
    order = np.argsort(score)
    needles = score[order]
    both = np.searchsorted(others, needles, side="left").astype(np.float64)
    both += np.searchsorted(others, needles, side="right")
    fraction = np.empty(len(score))
    fraction[order] = both / (2 * len(others))
    return fraction


@dataclass(frozen=True)
class DoubtfulEpisode:
    """An episode about which the filter is unsure, to be checked by a person."""

    episode: str
    """Its id, a text id where a column has one; or the value of the column that is decided by."""
    num_rows: int
    mean_score: float
    kept_fraction: float


def doubtful_episodes(
    split: PUSplit, scores: HeldOutScores, kept: np.ndarray, *, unit: Unit
) -> tuple[DoubtfulEpisode, ...]:
    """List episodes of unlabelled rows by the distance of their mean score from the threshold.

    Scores are held out; the kept fraction follows from the filter's own decisions (``kept``, over
    the unlabelled rows). Empty where rows carry no episode, or where all episodes are clear. Where
    the unit is a column, its values are listed instead.
    """
    if (unit.kind != "column" and split.pool.episode is None) or len(scores.position_u) == 0:
        return ()
    found = number_units(split.pool, unit if unit.kind == "column" else Unit("episode"))
    ids, number = found.name, found.number
    present, number = np.unique(number[scores.position_u], return_inverse=True)
    ids = ids[present]
    num_rows = np.bincount(number)
    mean = np.bincount(number, scores.score_u) / num_rows
    is_kept = np.zeros(len(split.pool), bool)
    is_kept[split.unlabelled] = kept
    fraction = np.bincount(number, is_kept[scores.position_u]) / num_rows
    # The score above which as many rows lie as are kept; 0.5 where that is none or all.
    threshold, num_left = 0.5, int(np.count_nonzero(~scores.kept_u))
    if 0 < num_left < len(scores.kept_u):
        around = np.sort(scores.score_u)[num_left - 1 : num_left + 1]
        threshold = float(np.clip((around[0] + around[1]) / 2, 1e-6, 1 - 1e-6))
    distance = np.abs(np.interp(mean, [0.0, threshold, 1.0], [0.0, 0.5, 1.0]) - 0.5)
    order = np.argsort(distance, kind="stable")[:MOST_DOUBTFUL]
    return tuple(
        DoubtfulEpisode(str(ids[i]), int(num_rows[i]), float(mean[i]), float(fraction[i]))
        for i in order
        if distance[i] < _SURE
    )
