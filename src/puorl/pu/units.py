"""Units of decision: a transition, a window of steps, an episode, or all rows of one column value.

A unit larger than a transition is decided by the mean logit of its rows. Whole units are labelled
then: where a labelled row shares its unit with unlabelled ones, the whole unit counts as known.
"""

import re
from dataclasses import dataclass

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.prng import generator
from puorl.data.split import PUSplit

NUM_FOLDS = 5


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
    fold = _folds(together, np.bincount(together, known)[together] > 0, seed)
    if len(np.unique(together[known])) < NUM_FOLDS or known.all():
        raise DataError(
            f"unit {unit.kind}: expected labelled rows in at least {NUM_FOLDS} {_several(unit)} "
            f"and some without, got {len(np.unique(together[known]))} of {together.max() + 1}; "
            "label more of them, or decide by transition"
        )
    return Grouping(number, known, together, fold, int((known & ~is_labelled).sum()))


def best_threshold(mean_p: np.ndarray, mean_u: np.ndarray, alpha: float) -> float:
    """The threshold of least estimated error, which needs no negative labels.

    With G the share at or above t: error(t) = G_u(t) + alpha (1 - 2 G_p(t)). Where many are as
    good, the middle of the widest gap is taken.
    """
    value = np.unique(np.concatenate([mean_p, mean_u]))
    if len(value) < 2:
        return float(value[0])
    above_p = 1 - np.searchsorted(np.sort(mean_p), value, side="left") / len(mean_p)
    above_u = 1 - np.searchsorted(np.sort(mean_u), value, side="left") / len(mean_u)
    error = above_u + alpha * (1 - 2 * above_p)
    gap = np.diff(value, prepend=value[0] - (value[-1] - value[0]) * 1e-6)
    good = np.flatnonzero(error <= error.min() + 1e-3)
    chosen = good[np.argmax(gap[good])]
    return float(value[chosen] - gap[chosen] / 2)


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


def _folds(together: np.ndarray, known: np.ndarray, seed: int) -> np.ndarray:
    fold = np.empty(int(together.max()) + 1, np.int64)
    for name, mask in (("labelled", known), ("unlabelled", ~known)):
        ids = np.unique(together[mask])
        order = generator(seed, "filter", "folds", name).permutation(len(ids))
        fold[ids[order]] = np.arange(len(ids)) % NUM_FOLDS
    return fold[together]


def _several(unit: Unit) -> str:
    return f"values of {unit.column}" if unit.kind == "column" else "episodes"
