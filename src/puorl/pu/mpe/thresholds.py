"""The thresholds that can be best for an estimator that looks at the highest scores."""

from typing import NamedTuple

import numpy as np


class Thresholds(NamedTuple):
    """Rows at or above each threshold, thresholds descending."""

    num_p: np.ndarray
    """(t,) int64. Labelled rows at or above the threshold, at least two."""
    num_u: np.ndarray
    """(t,) int64. Unlabelled rows at or above it, at least three."""


def best_thresholds(score_p: np.ndarray, score_u: np.ndarray) -> Thresholds:
    """One threshold for each number of labelled rows above it: the one with fewest unlabelled.

    Thresholds are scores of unlabelled rows; a run of equal scores counts as one, and the lowest
    score is never used. An estimate that grows with ``num_u`` and is fixed by ``num_p`` otherwise
    has its minimum here, so at most ``len(score_p)`` thresholds need looking at. May be empty.
    """
    ascending_p, ascending_u = np.sort(score_p), np.sort(score_u)
    if len(ascending_u) < 4:
        return Thresholds(np.zeros(0, np.int64), np.zeros(0, np.int64))
    # With three rows above it a threshold has at least the third highest score.
    ceiling = np.minimum(ascending_p[::-1], ascending_u[-3])
    below = np.searchsorted(ascending_u, ceiling, side="right") - 1
    threshold = ascending_u[np.maximum(below[below >= 0], 0)]
    threshold = np.unique(threshold[threshold > ascending_u[0]])[::-1]
    num_u = len(ascending_u) - np.searchsorted(ascending_u, threshold, side="left")
    num_p = len(ascending_p) - np.searchsorted(ascending_p, threshold, side="left")
    enough = num_p >= 2
    return Thresholds(num_p[enough], num_u[enough])
