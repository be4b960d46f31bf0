"""Were the values of one set rounded, and those of the other not?

Three kinds are looked for: a number of decimals, half or single precision, and an even grid of any
step (an encoder's). Values at the column's bounds and at 0 are left out: a saturated action is
behaviour.
"""

from collections.abc import Iterator

import numpy as np

from puorl.pu.checks.two_sets import MANY_VALUES, Side, clear_difference, is_measured

_MAX_DECIMALS = 6
_GRID_SAMPLE = 4096
_GRID_TOLERANCE = 0.1
"""Values that lie on no grid fall on one by chance at twice this share."""


def find_rounding(p: Side, u: Side) -> tuple[float, str] | None:
    """How clearly rounding tells the sets apart (0.5 to 1), and in words; None if it does not."""
    low = min(p.value.min(), u.value.min())
    high = max(p.value.max(), u.value.max())
    p, u = _inner(p, low, high), _inner(u, low, high)
    if len(p.value) == 0 or len(u.value) == 0:
        return None
    best: tuple[float, str] | None = None
    for text, holds_p, holds_u in _roundings(p.value, u.value):
        difference = clear_difference(p, u, holds_p, holds_u)
        if difference is None or (best is not None and abs(difference) <= 2 * best[0] - 1):
            continue
        rounded = p.value[holds_p] if difference > 0 else u.value[holds_u]
        if not is_measured(rounded):
            continue
        words = (
            f"{holds_p.mean():.0%} of labelled values {text}, {holds_u.mean():.0%} of unlabelled"
        )
        best = (0.5 + abs(difference) / 2, words)
    return best


def _inner(side: Side, low: float, high: float) -> Side:
    value = side.value
    return side.where((value != low) & (value != high) & (value != 0))


def _roundings(p: np.ndarray, u: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Every kind of rounding, in words, and the rows of both sets that are rounded so."""
    eps = max(float(np.finfo(a.dtype).eps) for a in (p, u))
    p, u = p.astype(np.float64), u.astype(np.float64)
    largest = max(np.abs(p).max(), np.abs(u).max())
    for decimals in range(_MAX_DECIMALS + 1):
        scale = 10.0**decimals
        # Beyond this the spacing of floats themselves would pass for rounding.
        if eps * largest * scale > 0.01:
            break
        plural = "decimal" if decimals == 1 else "decimals"
        words = f"have at most {decimals} {plural}" if decimals else "are whole numbers"
        yield words, _multiples(p, scale, eps), _multiples(u, scale, eps)
    for name, kind in (("half", np.float16), ("single", np.float32)):
        info = np.finfo(kind)
        if eps < float(info.eps) and largest < float(info.max):
            yield f"are of {name} precision", p.astype(kind) == p, u.astype(kind) == u
    for values in (p, u):
        grid = _grid(values, eps)
        if grid is not None:
            words = f"lie on a grid of step {grid[1]:.3g}"
            yield words, _on_grid(p, *grid), _on_grid(u, *grid)


def _multiples(x: np.ndarray, scale: float, eps: float) -> np.ndarray:
    scaled = x * scale
    return np.abs(scaled - np.rint(scaled)) <= 2 * eps * np.abs(scaled)


def _grid(x: np.ndarray, eps: float) -> tuple[float, float] | None:
    """Origin and step of an even grid that holds all values; None if there is none."""
    sample = x[:_GRID_SAMPLE]
    distinct = np.unique(sample)
    # Where hardly a value occurs twice a grid cannot be told from none.
    if not MANY_VALUES < len(distinct) < len(sample) / 2:
        return None
    gap = np.diff(distinct)
    if eps * np.abs(distinct).max() > 0.02 * gap.min():
        return None
    times = np.rint(gap / gap.min())
    step = float((distinct[-1] - distinct[0]) / times.sum())
    if np.abs(gap / step - times).max() > _GRID_TOLERANCE:
        return None
    return float(distinct[0]), step


def _on_grid(x: np.ndarray, origin: float, step: float) -> np.ndarray:
    place = (x - origin) / step
    return np.abs(place - np.rint(place)) <= _GRID_TOLERANCE
