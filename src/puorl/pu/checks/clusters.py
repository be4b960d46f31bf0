"""Standard errors of means over rows that come in groups (episodes, windows).

Rows of one group say less than as many independent ones, so sums over groups are what varies.
"""

from statistics import NormalDist

import numpy as np

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
