"""Estimates with intervals: one type for all rooms, and the quantiles that intervals need.

scipy is imported where a quantile is computed, so that a command that computes none starts fast.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

LEVEL = 0.95
"""Confidence level of every interval."""
Z95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; both ends are NaN where none was computed.

    >>> Estimate(2.0, 1.0, 3.0).half_width
    1.0
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    method: str = ""
    """Name of the estimator, where there are several."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, or None where no interval was computed."""
        known = math.isfinite(self.low) and math.isfinite(self.high)
        return (self.low, self.high) if known else None

    @property
    def half_width(self) -> float:
        """Half the width of the interval; NaN without one."""
        return (self.high - self.low) / 2

    @property
    def is_above_zero(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low > 0

    @property
    def is_below_zero(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.high < 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content: numbers that are not finite become None."""
        content = asdict(self)
        return {
            name: None if isinstance(v, float) and not math.isfinite(v) else v
            for name, v in content.items()
            if name != "method" or v
        }


@cache
def student_t(freedom: float, level: float = LEVEL) -> float:
    """Return the t that |T| stays below with probability ``level``.

    >>> round(student_t(4), 3), round(student_t(1), 2)
    (2.776, 12.71)
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def mean_estimate(values: Sequence[float] | np.ndarray) -> Estimate:
    """Mean of independent values with Student's interval; no interval for a single value.

    >>> found = mean_estimate([1.0, 2.0, 3.0])
    >>> found.value, round(found.half_width, 3)
    (2.0, 2.484)
    """
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Estimate(mean)
    half = student_t(len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return Estimate(mean, mean - half, mean + half)


def binomial_upper_bound(count: np.ndarray, num_trials: int, delta: float) -> np.ndarray:
    """Clopper-Pearson: the p for which at most ``count`` successes have probability ``delta``.

    Args:
        count: (t,) int. Successes, each between 0 and ``num_trials``.
        num_trials: Number of trials.
        delta: Probability that the bound fails.

    Returns:
        (t,) float64; 1 where every trial succeeded.

    >>> round(float(binomial_upper_bound(np.array([0]), 10, 0.1)[0]), 6) == round(1 - 0.1**0.1, 6)
    True
    """
    from scipy.special import betaincinv

    count = np.asarray(count, np.float64)
    remaining = np.maximum(num_trials - count, 1.0)
    return np.where(count < num_trials, betaincinv(count + 1, remaining, 1 - delta), 1.0)


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


def clustered_error(values: np.ndarray, group: np.ndarray | None) -> float:
    """Standard error of the mean over rows that come in groups; infinite for a single group.

    Rows of one group carry less information than as many independent rows, so that sums over groups
    are what varies.
    """
    sums = group_sums(values - values.mean(), group)
    if len(sums) < 2:
        return math.inf
    return float(np.sqrt(len(sums) / (len(sums) - 1) * np.sum(sums**2))) / len(values)
