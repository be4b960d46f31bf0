"""Recall, precision and purity of the kept rows, from held-out labelled rows and alpha.

The number of kept rows is that of the filter itself (`of_filter`); their quality is estimated with
networks that were not trained on them (`measure_quality`). Recall is the fraction of held-out
labelled rows that are kept, and ``precision = alpha x recall / kept fraction``. Uncertain are:

- recall: labelled rows are few and come in groups. Draws are from the beta distribution of as many
  independent rows as these groups are worth (Korn and Graubard 1998), and the target's rows in U
  are a sample too;
- recall again: the held-out networks are not the filter. They keep as many rows, but not the same.
  If they dispute a fraction d of U, recall can differ by d / (2 alpha) at most, and does by about a
  seventh of that (`DISPUTE_FACTOR`), or more with fewer labels than `MANY_LABELS`;
- alpha: its interval is not symmetric; each side is half of a normal distribution with the
  interval's end as its quantile, widened for few groups as Student's t is.

Both are drawn independently, although a high recall comes with a low alpha from the same rows, so
the intervals of the precision are wide rather than narrow.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from puorl.core.errors import DataError
from puorl.core.stats import Z95, Estimate, clustered_error, group_numbers, student_t
from puorl.pu.alpha import ESTIMATORS, NO_LOWER_END, alpha_estimate
from puorl.pu.checks.auroc import HeldOutScores

_ANY = 0.9
"""An interval of a fraction wider than this carries no information."""


@dataclass(frozen=True)
class Quality:
    """Numbers of kept rows, and their estimated quality."""

    num_labelled: int
    num_unlabelled: int
    num_kept: int
    """Unlabelled rows that the filter keeps; in the mode soft, those of weight 0.5 or more."""
    recall: Estimate
    """Fraction of the target's rows that is kept."""
    precision: Estimate
    """Fraction of the kept unlabelled rows that is the target's."""
    purity: Estimate
    """Fraction of the target's rows in the whole training set, labelled rows included."""
    precision_is_upper: bool
    """Whether alpha, and so the precision, is only bounded from above."""
    mean_weight: float | None = None
    """Of the unlabelled rows in the mode soft, which keeps them all; None in other modes."""
    disputed: float = 0.0
    """Fraction of the unlabelled rows that held-out networks decide otherwise than the filter; the
    larger, the less certain is recall."""

    @property
    def is_soft(self) -> bool:
        """Whether all rows are kept with weights; recall and precision are of `num_kept` then."""
        return self.mean_weight is not None

    @property
    def precision_is_open(self) -> bool:
        """Whether any precision is possible; then estimates of it and of purity mean nothing."""
        return 2 * self.precision.half_width > _ANY

    @property
    def precision_is_known(self) -> bool:
        """Whether there is a precision with an informative interval."""
        return bool(np.isfinite(self.precision.value)) and not self.precision_is_open


_MAX_ROWS = 100_000
_NUM_RESAMPLES = 40
AGREE_WITHIN = 0.03
"""Estimates this close agree, however narrow their intervals."""


def second_alpha(scores: HeldOutScores, *, rng: np.random.Generator) -> Estimate:
    """Estimate alpha from the same scores with DEDPUL (or BBE where the first is DEDPUL's).

    The interval is the spread over resamples, of whole groups where there are groups.
    """
    method = "bbe" if scores.alpha.method == "dedpul" else "dedpul"
    estimator = ESTIMATORS[method]
    score_p, group_p = _sampled(scores.score_p, scores.group_p, rng)
    score_u, group_u = _sampled(scores.score_u, scores.group_u, rng)
    value = estimator(score_p, score_u).value
    again = [
        estimator(_resampled(score_p, group_p, rng), _resampled(score_u, group_u, rng)).value
        for _ in range(_NUM_RESAMPLES)
    ]
    num_groups = min(int(group_p.max()), int(group_u.max())) + 1
    reach = _critical_value(num_groups) * float(np.std(again, ddof=1))
    return alpha_estimate(value, (value - reach, value + reach), method=method)


def estimates_agree(one: Estimate, other: Estimate) -> bool:
    """Return whether two estimates are close, or their intervals overlap."""
    overlap = max(one.low, other.low) <= min(one.high, other.high)
    return overlap or abs(one.value - other.value) <= AGREE_WITHIN


def _sampled(
    score: np.ndarray, group: np.ndarray | None, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `_MAX_ROWS` scores, and their groups numbered from 0."""
    if len(score) > _MAX_ROWS:
        chosen = rng.choice(len(score), _MAX_ROWS, replace=False)
        score, group = score[chosen], None if group is None else group[chosen]
    return score, group_numbers(group, len(score))[0]


def _resampled(score: np.ndarray, number: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    num_groups = int(number.max()) + 1
    times = np.bincount(rng.integers(num_groups, size=num_groups), minlength=num_groups)
    return np.repeat(score, times[number])


_NUM_DRAWS = 4000
DISPUTE_FACTOR = 0.15
"""Deviation of recall between networks that keep equally many rows, relative to the largest that
the disputed rows allow. Root mean square 0.16 on six draws of 100,000 collected rows (three of them
chosen as the worst known), 0.13 and 0.18 on 102 and 75 synthetic ones."""
MANY_LABELS = 1000
"""With fewer the factor grows as their inverse root: with 200 it was 0 to 0.18 on three sets of 12
synthetic fits, and 0.45 on 7 with larger networks (benchmarks/filter/coverage_fits.py)."""


def measure_quality(
    scores: HeldOutScores, *, decided: np.ndarray | None = None, rng: np.random.Generator
) -> Quality:
    """Estimate the quality of what is kept of the scored rows, with 95 % intervals.

    Args:
        scores: Held-out scores and decisions.
        decided: (u,) bool. What the filter itself keeps of the scored unlabelled rows; None where
            it is the same.
        rng: Makes the draws.

    Raises:
        DataError: No labelled or no unlabelled row could be scored.
    """
    num_p, num_u = len(scores.kept_p), len(scores.kept_u)
    if num_p == 0 or num_u == 0:
        raise DataError(
            f"report: expected scored rows of both kinds, got {num_p} labelled and {num_u} "
            "unlabelled; rows without a next state cannot be scored"
        )
    alpha, low, high = scores.alpha.value, scores.alpha.low, scores.alpha.high
    recall = float(scores.kept_p.mean())
    num_kept = int(np.count_nonzero(scores.kept_u))
    disputed = 0.0 if decided is None else float(np.mean(scores.kept_u != decided))
    recall_drawn = _draw_recall(scores, alpha, disputed, rng)
    _, num_groups = group_numbers(scores.group_p, num_p)
    side = rng.standard_normal(_NUM_DRAWS) * _critical_value(num_groups) / Z95**2
    away = np.where(side < 0, side * (alpha - low), side * (high - alpha))
    alpha_drawn = np.clip(alpha + away, 0, 1)
    precision = Estimate(np.nan)
    if num_kept > 0:
        kept = num_kept / num_u
        drawn = np.clip(alpha_drawn * recall_drawn / kept, 0, 1)
        precision = _estimate(min(alpha * recall / kept, 1.0), drawn)
    return Quality(
        num_labelled=num_p,
        num_unlabelled=num_u,
        num_kept=num_kept,
        recall=_estimate(recall, recall_drawn),
        precision=precision,
        purity=_purity(precision, num_p, num_kept),
        precision_is_upper=low <= NO_LOWER_END,
        disputed=disputed,
    )


def of_filter(
    quality: Quality, *, num_labelled: int, kept: np.ndarray, weight: np.ndarray | None
) -> Quality:
    """Return the same quality for the rows that the filter itself keeps.

    Args:
        quality: Of the scored rows, from `measure_quality`.
        num_labelled: All labelled rows, also those that could not be scored.
        kept: (u,) bool. What the filter decides about every unlabelled row.
        weight: (u,) float. Weights of these rows in the mode soft; None in other modes.
    """
    num_kept = int(np.count_nonzero(kept))
    precision = quality.precision if num_kept else Estimate(np.nan)
    return dataclasses.replace(
        quality,
        num_labelled=num_labelled,
        num_unlabelled=len(kept),
        num_kept=num_kept,
        precision=precision,
        purity=_purity(precision, num_labelled, num_kept),
        mean_weight=None if weight is None else float(np.mean(weight)),
    )


def _draw_recall(
    scores: HeldOutScores, alpha: float, disputed: float, rng: np.random.Generator
) -> np.ndarray:
    kept = scores.kept_p.astype(np.float64)
    recall, num_rows = float(kept.mean()), len(kept)
    _, num_groups = group_numbers(scores.group_p, num_rows)
    if recall in (0.0, 1.0) or num_groups < 2:
        # Without variation the agreement within groups is unknown: assume it complete.
        worth = float(num_groups)
    else:
        error = max(clustered_error(kept, scores.group_p), 1e-12)
        worth = float(np.clip(recall * (1 - recall) / error**2, 1.0, num_rows))
        worth *= (Z95 / _critical_value(num_groups)) ** 2
    worth /= 1 + num_rows / max(alpha * len(scores.kept_u), 1.0)
    drawn = rng.beta(worth * recall + 0.5, worth * (1 - recall) + 0.5, size=_NUM_DRAWS)
    factor = DISPUTE_FACTOR * np.sqrt(max(MANY_LABELS / num_rows, 1.0))
    spread = factor * min(disputed / (2 * max(alpha, 1e-9)), 1.0)
    return np.clip(drawn + spread * rng.standard_normal(_NUM_DRAWS), 0, 1)


def _estimate(value: float, drawn: np.ndarray) -> Estimate:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value, float(min(low, value)), float(max(high, value)))


def _purity(precision: Estimate, num_p: int, num_kept: int) -> Estimate:
    """Fraction of target rows in labelled and kept rows together."""
    if num_kept == 0:
        return Estimate(1.0, 1.0, 1.0)
    numbers = np.array([precision.value, precision.low, precision.high])
    value, low, high = ((num_p + numbers * num_kept) / (num_p + num_kept)).tolist()
    return Estimate(value, low, high)


def _critical_value(num_groups: int) -> float:
    return student_t(max(num_groups - 1, 1))
