"""Labelled and unlabelled values of one column side by side, and when a difference is clear.

Many columns are looked at in many ways, so a difference counts only if it is large for a person and
far outside of chance: five standard errors, over groups where rows come in groups.
"""

from dataclasses import dataclass

import numpy as np

LEAST_DIFFERENCE = 0.1
"""Smaller differences of two shares give a learner next to nothing."""
NUM_ERRORS = 5.0
MANY_VALUES = 16
"""A column with no more different values than this is a choice, not a measurement."""


@dataclass(frozen=True, eq=False)
class Side:
    """Values of one set, with the group of each row numbered from 0."""

    value: np.ndarray
    number: np.ndarray
    num_groups: int

    def where(self, rows: np.ndarray) -> "Side":
        """Some of the rows."""
        return Side(self.value[rows], self.number[rows], self.num_groups)

    def share_and_error(self, holds: np.ndarray) -> tuple[float, float]:
        """Share of rows for which something holds, and its standard error."""
        share = float(holds.mean())
        present = int(np.count_nonzero(np.bincount(self.number, minlength=self.num_groups)))
        sums = np.bincount(self.number, holds - share, self.num_groups)
        spread = np.sqrt(np.sum(sums**2) * present / max(present - 1, 1)) / len(holds)
        # Groups that all agree show no spread; that they are few still counts.
        inner = (share * present + 0.5) / (present + 1)
        return share, float(max(spread, np.sqrt(inner * (1 - inner) / present)))


def clear_difference(p: Side, u: Side, holds_p: np.ndarray, holds_u: np.ndarray) -> float | None:
    """Share in P minus share in U, or None if it is small or may be chance."""
    if len(holds_p) == 0 or len(holds_u) == 0:
        return None
    if abs(float(holds_p.mean()) - float(holds_u.mean())) < LEAST_DIFFERENCE:
        return None
    (share_p, error_p), (share_u, error_u) = p.share_and_error(holds_p), u.share_and_error(holds_u)
    difference = share_p - share_u
    return difference if abs(difference) > NUM_ERRORS * np.hypot(error_p, error_u) else None


def is_measured(values: np.ndarray) -> bool:
    """Does a column hold more different values than a choice would?"""
    return len(np.unique(values[:: max(1, len(values) // 4096)])) > MANY_VALUES
