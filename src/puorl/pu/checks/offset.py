"""Is a column of the labelled rows shifted by a constant?

Another domain may well have other states, so other means say nothing. A shift is reported only if

- labelled values reach where next to no unlabelled one is: were they a random draw of the target's,
  less than `_LARGEST_ALPHA` of the unlabelled rows could be the target's;
- moved by one constant, the labelled values have the shape of the unlabelled ones;
- the steps from row to row, which a constant leaves alone, are like those of the unlabelled.

A shift that is small against the spread of the column stays unseen.
"""

import numpy as np

from puorl.pu.checks.separation import placements
from puorl.pu.checks.two_sets import Side, is_measured

_LARGEST_ALPHA = 0.05
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of the labelled rows that may reach out."""
_LEAST_ROWS = 20
_LEAST_GROUPS = 5
_LIKE = 0.1
"""Distributions that differ by less are alike ..."""
_MUCH_NEARER = 0.25
"""... if that is also so much less than before the shift was taken off."""


def find_offset(
    p: Side, u: Side, step_p: np.ndarray | None, step_u: np.ndarray | None
) -> tuple[float, str] | None:
    """How clearly the shift tells the sets apart (0.5 to 1), and in words; None if there is none.

    Args:
        p: Labelled values.
        u: Unlabelled values.
        step_p: Change of the column in each labelled row, where there is one.
        step_u: The same for unlabelled rows.
    """
    if not (is_measured(p.value) and is_measured(u.value) and _reaches_out(p, u)):
        return None
    shift = float(np.median(p.value) - np.median(u.value))
    before = largest_distance(p.value, u.value)
    noise = 1.36 * np.sqrt(1 / len(p.value) + 1 / len(u.value))
    allowed = min(_LIKE, max(_MUCH_NEARER * before, noise))
    if before < 2 * allowed or largest_distance(p.value - shift, u.value) > allowed:
        return None
    if step_p is not None and step_u is not None:
        if largest_distance(step_p, step_u) > max(_LIKE, _MUCH_NEARER * before):
            return None
    chance = float(placements(p.value, u.value).labelled.mean())
    words = f"labelled values are shifted by {shift:.3g} against unlabelled ones of the same shape"
    return max(chance, 1 - chance), words


def largest_distance(x: np.ndarray, y: np.ndarray) -> float:
    """Kolmogorov and Smirnov's distance: the largest one of the distribution functions."""
    x, y = np.sort(x), np.sort(y)
    at = np.concatenate([x, y])
    below_x = np.searchsorted(x, at, side="right") / len(x)
    below_y = np.searchsorted(y, at, side="right") / len(y)
    return float(np.abs(below_x - below_y).max())


def _reaches_out(p: Side, u: Side) -> bool:
    for share in _SHARES:
        for sign in (1, -1):
            edge = np.quantile(sign * p.value, 1 - share)
            out_p, out_u = sign * p.value > edge, sign * u.value > edge
            num_p, num_u = np.count_nonzero(out_p), np.count_nonzero(out_u)
            most_u = (num_u + 3 * np.sqrt(num_u + 1)) / len(u.value)
            if num_p < _LEAST_ROWS or len(np.unique(p.number[out_p])) < _LEAST_GROUPS:
                continue
            if most_u < _LARGEST_ALPHA * num_p / len(p.value):
                return True
    return False
