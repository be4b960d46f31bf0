"""Units of decision: a transition, a window of steps, an episode, or all rows of one column value.

A unit larger than a transition is decided by the mean logit of its rows. Whole units are labelled
then: where a labelled row shares its unit with unlabelled ones, the whole unit counts as known.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.data.split import PUSplit

NUM_FOLDS = 5
"""At most; where few units are labelled, fewer."""
_GRID = 2_001
_LEAST_RECALL = 0.8
"""Labelled units that a threshold must keep, where one that is as good does."""


@dataclass(frozen=True)
class Unit:
    """What is decided about."""

    kind: str
    """``transition``, ``window``, ``episode`` or ``column``."""
    length: int = 1
    """Steps of a window."""
    column: str = ""
    """Name of the column."""


def parse_unit(text: str) -> Unit:
    """Read ``transition``, ``window:50``, ``episode`` or ``column:robot_id``.

    >>> parse_unit("window:50")
    Unit(kind='window', length=50, column='')

    Raises:
        ConfigError: None of these.
    """
    if text in ("transition", "episode"):
        return Unit(text)
    if re.fullmatch(r"window:0*[1-9]\d{0,8}", text):
        return Unit("window", length=int(text.partition(":")[2]))
    if text.startswith("column:") and len(text) > len("column:"):
        return Unit("column", column=text.partition(":")[2])
    raise ConfigError(
        "unit: expected transition, episode, window:N (N steps, such as window:50) or "
        f"column:NAME, got {text!r}"
    )


@dataclass(frozen=True, eq=False)
class Grouping:
    """The units of a split's pool."""

    number: np.ndarray
    """(n,) int64. Unit of each pool row, from 0."""
    known: np.ndarray
    """(n,) bool. Rows of units with a labelled row."""
    together: np.ndarray
    """(n,) int64. Rows that depend on each other: episodes, also where windows are decided."""
    fold: np.ndarray
    """(n,) int64. Lane that holds the row out."""
    num_scattered: int
    """Unlabelled rows that are known because a row of their unit is labelled."""

    def mean(self, value: np.ndarray) -> np.ndarray:
        """(n,) float64. The mean over each row's unit; rows with NaN do not count."""
        counted = np.isfinite(value)
        size = int(self.number.max()) + 1
        total = np.bincount(self.number, np.where(counted, value, 0.0), minlength=size)
        count = np.bincount(self.number, counted, minlength=size)
        with np.errstate(invalid="ignore"):
            return (total / count)[self.number]


def group(split: PUSplit, unit: Unit, seed: int) -> Grouping:
    """Number the units of a split and put them into folds.

    Windows of an episode share its fold: neighbours know too much of each other.

    Raises:
        DataError: The rows have no episodes, or no such column, or too few units are labelled.
    """
    if unit.kind == "column":
        together = _numbered(_column(split, unit.column))
        number = together
    else:
        if split.pool.episode is None:
            raise DataError(
                f"unit {unit.kind}: expected rows with episode ids, got none; give an episode "
                "column, split whole episodes (unit='episode'), or decide by transition"
            )
        together = _numbered(split.pool.episode)
        number = together if unit.kind == "episode" else _windows(together, split, unit.length)
    is_labelled = np.zeros(len(number), bool)
    is_labelled[split.labelled] = True
    known = np.bincount(number, is_labelled)[number] > 0
    touched = np.bincount(together, known)[together] > 0
    count = len(np.unique(together[touched])), len(np.unique(together[~known]))
    if together.max() == 0:
        raise DataError(
            f"unit {unit.kind}: expected rows of several {_several(unit)}, got all in one; name "
            "the column that tells them apart, or decide by transition"
        )
    if min(count) < 2:
        raise DataError(
            f"unit {unit.kind}: expected at least 2 {_several(unit)} with labelled rows and 2 "
            f"without, so that some can be held out, got {count[0]} and {count[1]}; label rows in "
            "more of them, or decide by transition"
        )
    fold = _folds(together, touched, min(NUM_FOLDS, *count), seed)
    return Grouping(number, known, together, fold, int((known & ~is_labelled).sum()))


def by_episode(split: PUSplit, num_folds: int, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Fold and episode of every pool row; None where too few episodes are labelled or not."""
    assert split.pool.episode is not None
    together = _numbered(split.pool.episode)
    touched = np.bincount(together[split.labelled], minlength=int(together.max()) + 1)[together] > 0
    count = len(np.unique(together[touched])), len(np.unique(together[~touched]))
    if min(count) < 2:
        return None
    return _folds(together, touched, min(num_folds, *count), seed), together


class Turn(NamedTuple):
    """Where decisions about units turn, and what share of the unlabelled rows lies above."""

    threshold: float
    alpha: float


def find_threshold(
    mean_p: np.ndarray, mean_u: np.ndarray, num_rows: np.ndarray, *, alpha: float
) -> Turn:
    """The threshold between target units and others, which needs no negative labels.

    With G the share at or above t, error(t) = G_u(t) + alpha (1 - 2 G_p(t)). Labelled units are
    few, so their lowest mean is known badly: every t whose error is within one labelled unit of the
    least is as good. Among these the one where unlabelled units are rarest is taken: the valley.

    Args:
        mean_p: (p,) mean logit of each labelled unit, held out.
        mean_u: (u,) mean logit of each unlabelled unit, held out.
        num_rows: (u,) rows of each unlabelled unit.
        alpha: Share of target units among the unlabelled ones, roughly.
    """
    low, high = min(mean_p.min(), mean_u.min()), max(mean_p.max(), mean_u.max())
    if not high > low:
        return Turn(float(low), 1.0)
    t = np.linspace(low, high, _GRID)
    above_p = 1 - np.searchsorted(np.sort(mean_p), t, side="left") / len(mean_p)
    above_u = 1 - np.searchsorted(np.sort(mean_u), t, side="left") / len(mean_u)
    good = np.zeros(len(t), bool)
    # Few labelled units bound alpha badly, and mostly from below: both ends have their say.
    for share in (alpha, alpha * (1 + 4.0 / np.sqrt(len(mean_p)))):
        error = above_u + share * (1 - 2 * above_p)
        good |= error <= error.min() + 2 * share / (len(mean_p) + 1)
    # Above the labelled units' bulk unlabelled ones are rare as well; that is no valley.
    good &= (above_p >= _LEAST_RECALL) | ~np.any(good & (above_p >= _LEAST_RECALL))
    density = _density(mean_u, t)
    threshold = float(t[np.argmin(np.where(good, density, np.inf))])
    share_p = float((mean_p >= threshold).mean())
    share_u = float(num_rows[mean_u >= threshold].sum() / num_rows.sum())
    return Turn(threshold, min(share_u / share_p, 1.0) if share_p > 0 else alpha)


def _density(value: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Gaussian kernel estimate on a grid, with Silverman's robust bandwidth."""
    quartile = np.subtract(*np.quantile(value, [0.75, 0.25]))
    spread = min(float(value.std()), quartile / 1.34) or float(value.std()) or 1.0
    width = 0.9 * spread * len(value) ** -0.2
    step = at[1] - at[0]
    count = np.histogram(value, np.append(at - step / 2, at[-1] + step / 2))[0]
    reach = np.arange(-len(at) + 1, len(at)) * step
    return np.convolve(count, np.exp(-0.5 * np.square(reach / max(width, step))), mode="valid")


def _column(split: PUSplit, name: str) -> np.ndarray:
    columns = split.pool.columns
    if name not in columns:
        raise DataError(
            f"unit column:{name}: expected one of {', '.join(columns) or 'the columns (none)'}, "
            f"got {name!r}"
        )
    return columns[name]


def _numbered(value: np.ndarray) -> np.ndarray:
    return np.unique(value, return_inverse=True)[1].reshape(-1)


def _windows(episode: np.ndarray, split: PUSplit, length: int) -> np.ndarray:
    time = split.pool.rows.time
    order = np.lexsort((np.arange(len(episode)) if time is None else time, episode))
    ordered = episode[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    size = np.diff(starts, append=len(ordered))
    place = np.arange(len(ordered)) - np.repeat(starts, size)
    # A rest shorter than half a window joins the one before it.
    last = np.maximum((size + length // 2) // length - 1, 0)
    within = np.minimum(place // length, np.repeat(last, size))
    number = np.empty(len(episode), np.int64)
    begins = (np.diff(ordered, prepend=-1) != 0) | (np.diff(within, prepend=0) != 0)
    number[order] = np.cumsum(begins) - 1
    return number


def _folds(together: np.ndarray, known: np.ndarray, num_folds: int, seed: int) -> np.ndarray:
    fold = np.empty(int(together.max()) + 1, np.int64)
    for name, mask in (("labelled", known), ("unlabelled", ~known)):
        ids = np.unique(together[mask])
        order = generator(seed, "filter", "folds", name).permutation(len(ids))
        fold[ids[order]] = np.arange(len(ids)) % num_folds
    return fold[together]


def _several(unit: Unit) -> str:
    return f"values of {unit.column}" if unit.kind == "column" else "episodes"
