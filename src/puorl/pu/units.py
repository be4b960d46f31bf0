"""Units of decision: a transition, a window of steps, an episode, or all rows of one column value.

A unit larger than a transition is decided by the mean logit of its rows. Whole units are labelled
then: where a unit has a labelled row, all its rows count as labelled.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.transitions import merge_copies
from puorl.data.validate import LABELLED, SOURCE_ROW, is_empty

_KINDS = ("transition", "window", "episode", "column")
NUM_FOLDS = 5
"""At most; fewer where few units are labelled."""
_GRID = 2_001
_LEAST_RECALL = 0.8
"""Fraction of labelled units that a threshold must keep, where an equally good one does."""


@dataclass(frozen=True)
class Unit:
    """Kind of the units that decisions are about."""

    kind: str
    """``transition``, ``window``, ``episode`` or ``column``."""
    length: int = 1
    """Steps of a window."""
    column: str = ""
    """Name of the column."""

    def __str__(self) -> str:
        if self.kind == "window":
            return f"window:{self.length}"
        return f"column:{self.column}" if self.kind == "column" else self.kind

    @property
    def is_row(self) -> bool:
        """Whether single rows are decided about."""
        return self.kind == "transition"

    @property
    def groups_name(self) -> str:
        """Plural name of the groups of rows that depend on each other."""
        return f"values of {self.column}" if self.kind == "column" else "episodes"


def parse_unit(text: str) -> Unit:
    """Read ``transition``, ``window:50``, ``episode`` or ``column:robot_id``.

    >>> parse_unit("window:50").length, str(parse_unit("column:robot_id"))
    (50, 'column:robot_id')

    Raises:
        ConfigError: None of these.
    """
    if text in ("transition", "episode"):
        return Unit(text)
    if re.fullmatch(r"window:0*[1-9]\d{0,8}", text):
        return Unit("window", length=int(text.partition(":")[2]))
    if text.startswith("column:") and len(text) > len("column:"):
        return Unit("column", column=text.partition(":")[2])
    known = difflib.get_close_matches(text.lower(), _KINDS, n=1)
    hint = ""
    if text and ":" not in text and text not in _KINDS:
        hint = f"; did you mean {known[0] if known else f'column:{text}'}?"
    raise ConfigError(
        "unit: expected transition, episode, window:N (N steps, such as window:50) or "
        f"column:NAME, got {text!r}{hint}"
    )


def uses_dynamics(evidence: str, unit: Unit) -> bool:
    """Return whether units are decided by how they move (`puorl.pu.machines`).

    Raises:
        ConfigError: Single rows have no dynamics of their own.
    """
    if evidence == "dynamics" and unit.is_row:
        raise ConfigError(
            "evidence 'dynamics': expected units of several rows, got single rows; name them with "
            "unit='episode', 'window:N' or 'column:NAME'"
        )
    return evidence != "rows" and not unit.is_row


def held_out_unit(evidence: str, unit: Unit) -> Literal["transition", "episode"]:
    """Return what is held out together for the checks."""
    if uses_dynamics(evidence, unit):
        return "transition"  # nothing is held out, so that one episode is enough
    return "episode" if unit.kind in ("window", "episode") else "transition"


@dataclass(frozen=True, eq=False)
class Grouping:
    """The units of a split's pool."""

    number: np.ndarray
    """(n,) int64. Unit of each pool row, from 0."""
    labelled: np.ndarray
    """(n,) bool. Rows of units with a labelled row."""
    cluster: np.ndarray
    """(n,) int64. Rows that depend on each other: episodes, also where windows are decided."""
    fold: np.ndarray
    """(n,) int64. Lane that holds the row out."""
    num_scattered: int
    """Unlabelled rows that count as labelled because a row of their unit is."""

    def mean(self, value: np.ndarray) -> np.ndarray:
        """(n,) float64. Mean over each row's unit, without NaN."""
        return mean_over(self.number, value)


def mean_over(number: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(n,) float64. Mean over all rows of the same number, without NaN."""
    counted = np.isfinite(value)
    size = int(number.max()) + 1
    total = np.bincount(number, np.where(counted, value, 0.0), minlength=size)
    count = np.bincount(number, counted, minlength=size)
    with np.errstate(invalid="ignore"):
        return (total / count)[number]


class Units(NamedTuple):
    """The units of a dataset."""

    name: np.ndarray
    """(units,) str."""
    number: np.ndarray
    """(n,) int64. Unit of each row."""
    cluster: np.ndarray
    """(n,) int64. Rows that depend on each other: episodes, also where windows are decided."""

    @property
    def num_rows(self) -> np.ndarray:
        """(units,) int64. Rows of each unit."""
        return np.bincount(self.number, minlength=len(self.name))


def number_units(data: Dataset, unit: Unit) -> Units:
    """Number and name the units of a dataset.

    Raises:
        DataError: The rows have no episodes, or no such column, or empty cells in it.
    """
    if unit.kind == "column":
        columns = data.columns
        if unit.column not in columns:
            own = ", ".join(columns_of_log(data)) or "the columns (none)"
            raise DataError(f"unit {unit}: expected one of {own}, got {unit.column!r}")
        ids, number = np.unique(columns[unit.column], return_inverse=True)
        if is_empty(ids).any():
            _require_names(data, unit)
        number = number.reshape(-1)
        return Units(ids.astype(str), number, number)
    if data.episode is None:
        raise DataError(
            f"unit {unit.kind}: expected rows with episode ids, got none; give an episode "
            "column, split whole episodes (unit='episode'), or decide by transition"
        )
    name, cluster = episode_names(data)
    if unit.kind == "episode":
        return Units(name, cluster, cluster)
    number = _windows(cluster, data, unit.length)
    first = np.unique(number, return_index=True)[1]
    begin = np.unique(cluster[first], return_index=True)[1]
    place = np.arange(len(first)) - begin[cluster[first]]
    text = [f"{name[e]} [{k + 1}]" for e, k in zip(cluster[first], place, strict=True)]
    return Units(np.array(text), number, cluster)


def columns_of_log(data: Dataset) -> list[str]:
    """Return the names of extra columns without those that puorl adds."""
    return [name for name in data.columns if name not in (SOURCE_ROW, LABELLED)]


def needed_columns(unit: Unit) -> tuple[str, ...]:
    """Return the columns in which an empty cell counts as missing: ``needed`` of `puorl.load`."""
    return (unit.column,) if unit.kind == "column" else ()


def _require_names(data: Dataset, unit: Unit) -> None:
    """Refuse rows that belong to no unit: together they would be one that mixes all others."""
    column = data.columns[unit.column]
    num_empty = int(is_empty(column).sum())
    if num_empty:
        raise DataError(
            f"unit {unit}: expected a value in every row, got {num_empty:,} empty cells in "
            f"{len(column):,} rows of column {unit.column!r}, whose rows belong to no unit; fill "
            f"these cells, or load with missing='drop' and needed={unit.column!r} to leave their "
            "rows out"
        )


def require_column(data: Dataset, unit: Unit) -> None:
    """Refuse data without the column whose values are units, in the words of the command line.

    Raises:
        DataError: No such column, or empty cells in it.
    """
    if unit.kind == "column" and unit.column in data.columns:
        _require_names(data, unit)
    if unit.kind == "column" and unit.column not in data.columns:
        own = columns_of_log(data)
        near = difflib.get_close_matches(unit.column, own, n=1)
        hint = f"did you mean column:{near[0]}? " if near else ""
        listed = ", ".join(own) or "none"
        raise DataError(f"--unit column:{unit.column}: no such column; {hint}columns: {listed}")


def unusable_units(data: Dataset, unit: Unit) -> list[str]:
    """Return the values of a unit's column none of whose rows is usable, so that none is decided.

    A row is not usable where its next state was not recorded.
    """
    names = data.columns.get(unit.column, np.empty(0)).astype(str)
    lost = {value for column, value in data.provenance.emptied if column == unit.column}
    kept = lost - set(names)
    return sorted(name for name in kept if not is_empty(np.array(name)))


def describe_unusable(names: Sequence[str]) -> str:
    """Say that units have no usable rows.

    >>> describe_unusable(["P-24"])
    '1 unit has no usable rows and is not decided: P-24'
    """
    has, is_not = ("has", "is not") if len(names) == 1 else ("have", "are not")
    return (
        f"{count_units(len(names))} {has} no usable rows and {is_not} decided: {few_names(names)}"
    )


def count_units(number: int) -> str:
    """Return a number of units in words.

    >>> count_units(1), count_units(2_000)
    ('1 unit', '2,000 units')
    """
    return f"{number:,} unit{'s' * (number != 1)}"


def few_names(names: Sequence[str], most: int = 3) -> str:
    """Name some units, and say how many more there are.

    >>> few_names(["a", "b"]), few_names(list("abcde"))
    ('a, b', 'a, b, c and 2 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def episode_names(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return a name for each episode, and the number of the episode of each row.

    A text column that names each episode gives the names, else they are the numbers.
    """
    assert data.episode is not None
    ids, first, number = np.unique(data.episode, return_index=True, return_inverse=True)
    number = number.reshape(-1)
    for column in data.columns.values():
        if column.dtype.kind != "U":
            continue
        name = column[first]
        if len(np.unique(name)) == len(name) and np.array_equal(name[number], column):
            return name, number
    return ids.astype(str), number


def count_scattered(split: PUSplit, unit: Unit, seed: int, *, by_dynamics: bool) -> int:
    """Count unlabelled rows that count as labelled because a row of their unit is."""
    if by_dynamics:
        number = number_units(split.pool, unit).number
        return int(np.isin(number, number[split.labelled]).sum()) - len(split.labelled)
    grouping = group(split, unit, seed)
    return 0 if grouping is None else grouping.num_scattered


def group(split: PUSplit, unit: Unit, seed: int) -> Grouping | None:
    """Number the units of a split and assign folds; None where units are single rows.

    Windows of an episode have the same fold, since neighbouring windows are alike.

    Raises:
        DataError: The rows have no episodes, or no such column, or too few units are labelled.
    """
    if unit.is_row:
        return None
    found = number_units(split.pool, unit)
    number, cluster = found.number, _clusters(found.cluster, split)
    is_labelled = np.zeros(len(number), bool)
    is_labelled[split.labelled] = True
    labelled = np.bincount(number, is_labelled)[number] > 0
    touched = np.bincount(cluster, labelled)[cluster] > 0
    count = len(np.unique(cluster[touched])), len(np.unique(cluster[~labelled]))
    if cluster.max() == 0:
        raise DataError(
            f"unit {unit.kind}: expected rows of several {unit.groups_name}, got all in one; name "
            "the column that distinguishes them, or decide by transition"
        )
    if min(count) < 2:
        raise DataError(
            f"unit {unit.kind}: expected at least 2 {unit.groups_name} with labelled rows and 2 "
            f"without, so that some can be held out, got {count[0]} and {count[1]}; label rows in "
            "more of them, or decide by transition"
        )
    fold = _folds(cluster, touched, min(NUM_FOLDS, *count), seed)
    return Grouping(number, labelled, cluster, fold, int((labelled & ~is_labelled).sum()))


def by_episode(split: PUSplit, num_folds: int, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Fold and episode of every pool row; None without episodes, or with too few of a kind."""
    if split.pool.episode is None:
        return None
    cluster = _clusters(_numbered(split.pool.episode), split)
    touched = np.bincount(cluster[split.labelled], minlength=int(cluster.max()) + 1)[cluster] > 0
    count = len(np.unique(cluster[touched])), len(np.unique(cluster[~touched]))
    if min(count) < 2:
        return None
    return _folds(cluster, touched, min(num_folds, *count), seed), cluster


class Threshold(NamedTuple):
    """The logit above which units are kept, and the alpha that follows from it."""

    logit: float
    alpha: float


def find_threshold(
    mean_p: np.ndarray, mean_u: np.ndarray, num_rows: np.ndarray, *, alpha: float
) -> Threshold:
    """Find the threshold between target units and others, without negative labels.

    With G the fraction at or above t, error(t) = G_u(t) + alpha (1 - 2 G_p(t)). Labelled units are
    few, so their lowest mean is uncertain: every t whose error is within one labelled unit of the
    least is as good. Among these, take the one with the lowest density of unlabelled units.

    Args:
        mean_p: (p,) mean logit of each labelled unit, held out.
        mean_u: (u,) mean logit of each unlabelled unit, held out.
        num_rows: (u,) rows of each unlabelled unit.
        alpha: Rough fraction of target units among the unlabelled ones.
    """
    low, high = min(mean_p.min(), mean_u.min()), max(mean_p.max(), mean_u.max())
    if not high > low:
        return Threshold(float(low), 1.0)
    t = np.linspace(low, high, _GRID)
    above_p = 1 - np.searchsorted(np.sort(mean_p), t, side="left") / len(mean_p)
    above_u = 1 - np.searchsorted(np.sort(mean_u), t, side="left") / len(mean_u)
    good = np.zeros(len(t), bool)
    # With few labelled units alpha is uncertain, mostly upwards: allow for both ends.
    for fraction in (alpha, alpha * (1 + 4.0 / np.sqrt(len(mean_p)))):
        error = above_u + fraction * (1 - 2 * above_p)
        good |= error <= error.min() + 2 * fraction / (len(mean_p) + 1)
    # The density is low above the bulk of the labelled units as well: exclude that.
    good &= (above_p >= _LEAST_RECALL) | ~np.any(good & (above_p >= _LEAST_RECALL))
    density = _density(mean_u, t)
    threshold = float(t[np.argmin(np.where(good, density, np.inf))])
    kept_p = float((mean_p >= threshold).mean())
    kept_u = float(num_rows[mean_u >= threshold].sum() / num_rows.sum())
    return Threshold(threshold, min(kept_u / kept_p, 1.0) if kept_p > 0 else alpha)


def _density(value: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Gaussian kernel estimate on a grid, with Silverman's robust bandwidth."""
    quartile = np.subtract(*np.quantile(value, [0.75, 0.25]))
    spread = min(float(value.std()), quartile / 1.34) or float(value.std()) or 1.0
    width = 0.9 * spread * len(value) ** -0.2
    step = at[1] - at[0]
    count = np.histogram(value, np.append(at - step / 2, at[-1] + step / 2))[0]
    reach = np.arange(-len(at) + 1, len(at)) * step
    return np.convolve(count, np.exp(-0.5 * np.square(reach / max(width, step))), mode="valid")


def _numbered(value: np.ndarray) -> np.ndarray:
    return np.unique(value, return_inverse=True)[1].reshape(-1)


def _clusters(group: np.ndarray, split: PUSplit) -> np.ndarray:
    """(n,) int64. Number groups of rows from 0, exact copies of a group like the group itself."""
    return _numbered(merge_copies(group, split.pool.rows))


def _windows(episode: np.ndarray, data: Dataset, length: int) -> np.ndarray:
    time = data.rows.time
    order = np.lexsort((np.arange(len(episode)) if time is None else time, episode))
    ordered = episode[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    size = np.diff(starts, append=len(ordered))
    place = np.arange(len(ordered)) - np.repeat(starts, size)
    # A remainder shorter than half a window joins the window before it.
    last = np.maximum((size + length // 2) // length - 1, 0)
    within = np.minimum(place // length, np.repeat(last, size))
    number = np.empty(len(episode), np.int64)
    begins = (np.diff(ordered, prepend=-1) != 0) | (np.diff(within, prepend=0) != 0)
    number[order] = np.cumsum(begins) - 1
    return number


def _folds(cluster: np.ndarray, labelled: np.ndarray, num_folds: int, seed: int) -> np.ndarray:
    fold = np.empty(int(cluster.max()) + 1, np.int64)
    for name, mask in (("labelled", labelled), ("unlabelled", ~labelled)):
        ids = np.unique(cluster[mask])
        order = generator(seed, "filter", "folds", name).permutation(len(ids))
        fold[ids[order]] = np.arange(len(ids)) % num_folds
    return fold[cluster]
