"""One column at a time: its range, and the marks that sensors and loggers leave in it."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

STUCK_RUN = 10
"""So many equal values in a row are suspicious in a column that otherwise changes every row."""
MAX_DECIMALS = 6
"""Finer rounding than this is not looked for."""
_SAMPLE = 4096
_MANY_VALUES = 16
"""A column with no more different values than this is a choice, not a measurement."""
_ENOUGH_TO_JUDGE = 8
_COMMON_TEXTS = 3


@dataclass(frozen=True)
class ColumnProfile:
    """What one column of numbers or text looks like; None where a thing cannot be said."""

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
    """Most equal values one after the other inside an episode, bounds of the column left out."""
    stuck: bool = False
    """The column usually changes from row to row, and yet has a run of at least `STUCK_RUN`."""
    stuck_share: float | None = None
    """Share of rows inside such runs."""
    bound_share: float | None = None
    """Share of rows that stand exactly at the column's minimum or maximum."""
    decimals: int | None = None
    """All values have at most so many decimals."""
    step: float | None = None
    """All values of a rounded column differ by whole multiples of this."""
    num_distinct: int | None = None
    """Of a text column."""
    common: tuple[str, ...] = ()
    """Most frequent values of a text column."""


def profile_column(name: str, values: np.ndarray, follows: np.ndarray | None) -> ColumnProfile:
    """Look at one column.

    Args:
        name: How to call it.
        values: (n,) numbers, flags or text, in the order of `follows`.
        follows: (n - 1,) bool. Whether the next value is the next step of the same episode; None
            where the order says nothing.
    """
    if values.dtype.kind == "U":
        return _profile_text(name, values)
    if values.dtype.kind == "b":
        share = float(values.mean())
        return ColumnProfile(
            name,
            "flag",
            min=float(values.min()),
            max=float(values.max()),
            mean=share,
            std=float(np.sqrt(share * (1 - share))),
            constant=share in (0.0, 1.0),
        )
    return _profile_numbers(name, values, follows)


def _profile_text(name: str, values: np.ndarray) -> ColumnProfile:
    counts = Counter(values.tolist())
    common = tuple(str(text) for text, _ in counts.most_common(_COMMON_TEXTS))
    constant = len(counts) == 1
    return ColumnProfile(name, "text", constant=constant, num_distinct=len(counts), common=common)


def _profile_numbers(name: str, values: np.ndarray, follows: np.ndarray | None) -> ColumnProfile:
    eps = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
    x = np.ascontiguousarray(values, dtype=np.float64)
    finite = x
    num_unknown = num_infinite = 0
    if not np.isfinite(x.sum()):
        known = np.isfinite(x)
        num_unknown = int(np.isnan(x).sum())
        num_infinite = int(len(x) - known.sum() - num_unknown)
        finite = x[known]
    if len(finite) == 0:
        return ColumnProfile(name, "number", num_unknown=num_unknown, num_infinite=num_infinite)
    low, high = float(finite.min()), float(finite.max())
    constant = low == high and len(finite) == len(x)
    longest = share = None
    stuck = False
    if follows is not None and not constant:
        longest, share, stuck = _runs(x, follows, low, high)
    rounded = None if low == high else _rounding(finite, eps, max(abs(low), abs(high)))
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
        stuck_share=share,
        bound_share=None if low == high else at_bound / len(x),
        decimals=None if rounded is None else rounded[0],
        step=None if rounded is None else rounded[1],
    )


def _runs(x: np.ndarray, follows: np.ndarray, low: float, high: float) -> tuple[int, float, bool]:
    """Longest run, share of rows in long runs, and whether that is suspicious."""
    # Runs at the column's own bounds are saturation (a clipped action), not a dead sensor.
    changes = ~((x[1:] == x[:-1]) & follows)
    ends = np.flatnonzero(changes)
    starts = np.concatenate([[0], ends + 1])
    lengths = np.diff(np.concatenate([starts, [len(x)]]))
    inner = (x[starts] != low) & (x[starts] != high)
    if not inner.any():
        return 1, 0.0, False
    longest = int(lengths[inner].max())
    long_rows = int(lengths[inner & (lengths >= STUCK_RUN)].sum())
    usually_changes = np.count_nonzero(lengths == 1) >= 0.5 * len(lengths)
    stuck = bool(longest >= STUCK_RUN and usually_changes and _is_measured(x))
    return longest, long_rows / len(x), stuck


def _is_measured(x: np.ndarray) -> bool:
    return len(np.unique(_sample(x))) > _MANY_VALUES


def _sample(x: np.ndarray) -> np.ndarray:
    return x[:: max(1, len(x) // _SAMPLE)]


def _rounding(x: np.ndarray, eps: float, largest: float) -> tuple[int, float] | None:
    """Fewest decimals that hold every value, and the step between values; None if not rounded."""
    if len(x) < _ENOUGH_TO_JUDGE:
        return None
    for decimals in range(MAX_DECIMALS + 1):
        scale = 10.0**decimals
        # Beyond this the spacing of floats themselves would pass for rounding.
        if max(eps, np.finfo(np.float64).eps) * largest * scale > 0.01:
            return None
        if _are_multiples(_sample(x), scale, eps) and _are_multiples(x, scale, eps):
            whole = np.rint(x * scale).astype(np.int64)
            return decimals, float(np.gcd.reduce(whole - whole[0]) / scale)
    return None


def _are_multiples(x: np.ndarray, scale: float, eps: float) -> bool:
    scaled = x * scale
    allowed = 2 * max(eps, np.finfo(np.float64).eps) * np.abs(scaled)
    return bool((np.abs(scaled - np.rint(scaled)) <= allowed).all())
