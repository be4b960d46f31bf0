"""Statistics of one column: range, rounding, stuck values and values at the bounds."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

STUCK_RUN = 10
"""A run of this many equal values is suspicious in a column that otherwise changes every row."""
MAX_DECIMALS = 6
"""Largest number of decimals for which rounding is detected."""
_SAMPLE = 4096
_MANY_VALUES = 16
"""A column with at most this many different values is a choice, not a measurement."""
_ENOUGH_TO_JUDGE = 8
_COMMON_TEXTS = 3


@dataclass(frozen=True)
class ColumnProfile:
    """Statistics of one column; None where they are not defined."""

    name: str
    kind: str
    """``number``, ``flag`` or ``text``."""
    num_unknown: int = 0
    """Values that are NaN."""
    num_infinite: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    constant: bool = False
    longest_run: int | None = None
    """Longest run of equal values inside an episode, values at the column's bounds excluded."""
    stuck: bool = False
    """The column usually changes from row to row, but has a run of at least `STUCK_RUN`."""
    stuck_fraction: float | None = None
    """Fraction of rows inside such runs."""
    bound_fraction: float | None = None
    """Fraction of rows exactly at the column's minimum or maximum."""
    decimals: int | None = None
    """All values have at most this many decimals."""
    step: float | None = None
    """All values of a rounded column differ by whole multiples of this."""
    num_distinct: int | None = None
    """Number of different values of a text column."""
    common: tuple[str, ...] = ()
    """Most frequent values of a text column."""


def profile_column(name: str, values: np.ndarray, follows: np.ndarray | None) -> ColumnProfile:
    """Compute the statistics of one column.

    Args:
        name: Name of the column.
        values: (n,) numbers, flags or text, in the order of `follows`.
        follows: (n - 1,) bool. The next value is the next step of the same episode; None where
            the order has no meaning.
    """
    if values.dtype.kind == "U":
        counts = Counter(values.tolist())
        common = tuple(str(text) for text, _ in counts.most_common(_COMMON_TEXTS))
        num = len(counts)
        return ColumnProfile(name, "text", constant=num == 1, num_distinct=num, common=common)
    if values.dtype.kind == "b":
        fraction = float(values.mean())
        return ColumnProfile(
            name,
            "flag",
            min=float(values.min()),
            max=float(values.max()),
            mean=fraction,
            std=float(np.sqrt(fraction * (1 - fraction))),
            constant=fraction in (0.0, 1.0),
        )
    return _profile_numbers(name, values, follows)


def _profile_numbers(name: str, values: np.ndarray, follows: np.ndarray | None) -> ColumnProfile:
    eps = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
    x = np.ascontiguousarray(values, dtype=np.float64)
    finite = x if np.isfinite(x.sum()) else x[np.isfinite(x)]
    num_unknown = int(np.isnan(x).sum()) if finite is not x else 0
    num_infinite = len(x) - len(finite) - num_unknown
    if len(finite) == 0:
        return ColumnProfile(name, "number", num_unknown=num_unknown, num_infinite=num_infinite)
    low, high = float(finite.min()), float(finite.max())
    constant = low == high and len(finite) == len(x)
    longest = stuck_fraction = decimals = step = None
    stuck = False
    if follows is not None and not constant:
        longest, stuck_fraction, stuck = _runs(x, follows, low, high)
    if low != high:
        decimals, step = _rounding(finite, eps, max(abs(low), abs(high)))
    at_bound = np.count_nonzero(finite == low) + np.count_nonzero(finite == high)
    return ColumnProfile(
        name,
        "number",
        num_unknown=num_unknown,
        num_infinite=num_infinite,
        min=low,
        max=high,
        mean=float(finite.mean()),
        std=float(finite.std()),
        constant=constant,
        longest_run=longest,
        stuck=stuck,
        stuck_fraction=stuck_fraction,
        bound_fraction=None if low == high else at_bound / len(x),
        decimals=decimals,
        step=step,
    )


def _runs(x: np.ndarray, follows: np.ndarray, low: float, high: float) -> tuple[int, float, bool]:
    """Return the longest run, the fraction of rows in long runs, and if these look stuck."""
    # Runs at the column's bounds are saturation (a clipped action), not a dead sensor.
    starts = np.append(0, np.flatnonzero(~((x[1:] == x[:-1]) & follows)) + 1)
    lengths = np.diff(starts, append=len(x))
    inner = (x[starts] != low) & (x[starts] != high)
    if not inner.any():
        return 1, 0.0, False
    longest = int(lengths[inner].max())
    long_rows = int(lengths[inner & (lengths >= STUCK_RUN)].sum())
    usually_changes = np.count_nonzero(lengths == 1) >= 0.5 * len(lengths)
    is_measured = len(np.unique(_sample(x))) > _MANY_VALUES
    stuck = bool(longest >= STUCK_RUN and usually_changes and is_measured)
    return longest, long_rows / len(x), stuck


def _sample(x: np.ndarray) -> np.ndarray:
    return x[:: max(1, len(x) // _SAMPLE)]


def _rounding(x: np.ndarray, eps: float, largest: float) -> tuple[int | None, float | None]:
    """Return the fewest decimals that hold every value and their step; None if not rounded."""
    for decimals in range(MAX_DECIMALS + 1 if len(x) >= _ENOUGH_TO_JUDGE else 0):
        scale = 10.0**decimals
        # Beyond this the spacing of floats would count as rounding.
        if max(eps, np.finfo(np.float64).eps) * largest * scale > 0.01:
            break
        if _are_multiples(_sample(x), scale, eps) and _are_multiples(x, scale, eps):
            whole = np.rint(x * scale).astype(np.int64)
            return decimals, float(np.gcd.reduce(whole - whole[0]) / scale)
    return None, None


def _are_multiples(x: np.ndarray, scale: float, eps: float) -> bool:
    scaled = x * scale
    allowed = 2 * max(eps, np.finfo(np.float64).eps) * np.abs(scaled)
    return bool((np.abs(scaled - np.rint(scaled)) <= allowed).all())
