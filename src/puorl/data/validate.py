"""Raw rows, as readers return them, and the checks that make them canonical arrays.

Cells that are missing or no numbers are refused in one message, or repaired. A row with such a cell
is no transition, and neither is the step from the row before it: ``drop`` removes the row and cuts
the episode there. ``hold`` first carries the last value of the same column and episode over at most
some steps, and drops what is left.
"""

import contextlib
import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.data.transitions import FLAGS, MATRICES, MAX_STEP, Note, Provenance

SOURCE_ROW = "source_row"
"""Column with each row's number in its file, where loading dropped rows of the file."""
LABELLED = "labelled"
"""Column that `puorl.data.formats.load` adds for ``label=``: rows known to be the target's."""


@dataclass(frozen=True, kw_only=True)
class FieldNames:
    """Options of `puorl.load`, which describes them: where fields are found, and how they are read.

    For each field its key in an array file, or its column names and patterns in a table.
    """

    obs: str | Sequence[str] | None = None
    action: str | Sequence[str] | None = None
    reward: str | None = None
    next_obs: str | Sequence[str] | None = None
    terminal: str | None = None
    timeout: str | None = None
    episode: str | None = None
    time: str | None = None
    next_action: str | Sequence[str] | None = None
    label: str | None = None
    needed: str | Sequence[str] = ()
    missing: str = "error"
    gap: float = MAX_STEP
    unused: tuple[str, ...] = ()
    """Fields that are declared absent, whatever columns have their usual names; no option."""
    decimal: str = "."
    encoding: str | None = None
    time_format: str | None = None
    time_zone: str | None = None
    discrete_actions: bool | Sequence[str | int] | None = None

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns in which an empty cell counts as missing."""
        return (self.needed,) if isinstance(self.needed, str) else tuple(self.needed)


FIELDS = tuple(FieldNames.__dataclass_fields__)[:9]
"""Fields of a row, in the order in which they are listed."""


class Block(NamedTuple):
    """Some rows of a file that are read together, where a file is read in parts."""

    num_rows: int
    place: int
    """Row group, first row, first byte or first episode, by format."""
    extent: int = 1
    """Lines before it, or episodes in it, by format."""


class BadCells(NamedTuple):
    """Cells of one column that are missing or no numbers."""

    number: int
    row: int
    """The first of them."""
    text: str
    """Its place and what is wrong with it."""


@dataclass(kw_only=True)
class RawRows:
    """Content of one file: arrays under the names of our fields, not checked yet."""

    format: str
    """Short name of the format, e.g. ``"csv"``."""
    arrays: dict[str, np.ndarray]
    """Field to array, with shape and dtype as in the file."""
    keys: dict[str, str] = field(default_factory=dict)
    """Field with one value a row to its name in the file; conditions may use either."""
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """Other columns with one value a row: ids, labels, text."""
    obs_names: tuple[str, ...] = ()
    """Names of the state columns, if the file has them."""
    action_names: tuple[str, ...] = ()
    """Names of the action columns, if the file has them."""
    action_range: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Smallest and largest value of each action component, if the file states them."""
    action_codes: tuple[str, ...] | None = None
    """Codes of discrete actions, if the file states them."""
    clock: str | None = None
    """``dates`` where the file's clock shows dates."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user about how the file was read."""
    bad: dict[str, BadCells] = field(default_factory=dict)
    """Column of a table to its cells that are missing or no numbers; in the arrays they are NaN."""
    lost: np.ndarray | None = None
    """(n,) bool. Rows whose episode id is missing."""
    unnamed: dict[str, np.ndarray] = field(default_factory=dict)
    """Other column that is needed to its empty cells, (n,) bool."""
    provenance: Provenance | None = None
    """Stored in a file that puorl wrote; such a file is restored as it was."""

    @property
    def fingerprint(self) -> str:
        """Hash of all values, as `Dataset.fingerprint` has it."""
        codes = None if self.provenance is None else self.provenance.action_codes
        return fingerprint(self.arrays, self.columns, codes)

    @property
    def names(self) -> list[str]:
        """Names of columns in the file, those of no field first."""
        origin = self.provenance or self
        return [*self.columns, *self.keys.values(), *origin.obs_names, *origin.action_names]

    def note_bad(self, column: str, count: int, row: int, text: str) -> None:
        """Count bad cells of a column; the first call for it has the first of them."""
        known = self.bad.get(column)
        self.bad[column] = (
            BadCells(count, row, text)
            if known is None
            else known._replace(number=known.number + count)
        )

    def note_unnamed(self, needed: Sequence[str]) -> None:
        """Find rows without a text id of their episode, or without a value of a needed column.

        A second call finds nothing more.
        """
        episode, key = self.arrays.get("episode"), self.keys.get("episode", "episode")
        if episode is not None and episode.dtype.kind in "SU":
            empty = np.ravel(is_empty(episode))
            before = np.zeros(len(empty), bool) if self.lost is None else self.lost
            if self._note_empty(f"{key}", "episode", empty & ~before):
                self.lost = before | empty
        for name in needed:
            if name in self.columns and name != key and name not in self.unnamed:
                empty = np.ravel(is_empty(self.columns[name]))
                if self._note_empty(name, "needed", empty):
                    self.unnamed[name] = empty

    def _note_empty(self, column: str, purpose: str, empty: np.ndarray) -> bool:
        if empty.any():
            row = int(np.argmax(empty))
            text = f"column {column} ({purpose}): row {row} is empty"
            self.note_bad(column, int(empty.sum()), row, text)
        return bool(empty.any())

    def note_skipped(self, keys: Sequence[str]) -> None:
        """Note the keys of the file that do not hold one plain value a row."""
        if keys:
            self.notes.append(f"not read (not one plain value a row): {listed(keys)}")


def check_needed(needed: Sequence[str], known: Collection[str]) -> None:
    """Refuse needed columns that no file has.

    Raises:
        DataError: A name is none of the known ones.
    """
    for name in needed:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "name one of these"
            raise DataError(
                f"needed: expected a column {name!r} (--unit column:NAME, or needed= in Python), "
                f"found: {listed(known, near=name)}; {hint}"
            )


def is_empty(ids: np.ndarray) -> np.ndarray:
    """(n,) bool. Ids that name nothing: empty, blank or NaN, which NumPy writes as a text, too.

    >>> is_empty(np.array(["A7", "", " ", "nan"])).tolist()
    [False, True, True, True]
    """
    if ids.dtype.kind not in "SU":
        return np.isnan(ids) if ids.dtype.kind == "f" else np.zeros(ids.shape, bool)
    flat, kind = np.ravel(ids), ids.dtype.kind
    # Rows of one machine mostly follow each other: only the first of each run is looked at.
    starts = np.flatnonzero(np.append(True, flat[1:] != flat[:-1])[: len(flat)])
    stripped = np.strings.lower(np.strings.strip(flat[starts]))
    empty = (stripped == np.array("", kind)) | (stripped == np.array("nan", kind))
    return np.repeat(empty, np.diff(starts, append=len(flat))).reshape(ids.shape)


def fingerprint(
    arrays: hashing.Arrays, columns: hashing.Arrays, codes: Sequence[str] | None
) -> str:
    """Hash all values of rows and columns, and what one-hot actions stand for."""
    held = {**arrays, **{f"column/{name}": array for name, array in columns.items()}}
    return hashing.of_arrays(held if codes is None else held | {"action_codes": np.array(codes)})


_MOST_LISTED = 20
_MOST_EXACT = 2**53
_MAY_BE_UNKNOWN = ("next_obs", "next_action")
"""Fields where NaN means 'not recorded': a next state in terminal rows, a next action anywhere."""


@contextlib.contextmanager
def reading(source: Path | str, kind: str, advice: str) -> Iterator[None]:
    """Turn all errors of a reading library into a `DataError` that names the file.

    Libraries raise almost any exception on damaged files.
    """
    if kind.endswith("file") and os.path.isdir(source):
        raise DataError(f"{source}: expected one {kind}, got a folder; name a file inside it")
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise DataError(
            f"{source}: expected a readable {kind}, got {type(error).__name__}: {reason}; {advice}"
        ) from error


def canonical(arrays: Mapping[str, np.ndarray], *, source: str) -> dict[str, np.ndarray]:
    """Check every array and convert it to the shape and kind of its field.

    Returns:
        (n, d) float32/float64 matrices; (n,) floats, bools, int64 episode ids, float64 time.
    """
    for name in ("obs", "action"):
        if name not in arrays:
            raise DataError(
                f"{source}: expected {name}, found only {listed(arrays)}; name it with {name}="
            )
    fields = {name: _field(name, np.asarray(array), source) for name, array in arrays.items()}
    n = len(fields["obs"])
    for name, array in fields.items():
        if len(array) != n:
            raise DataError(
                f"{source}: {name} has {len(array)} rows where obs has {n}; they must match"
            )
    if n == 0:
        raise DataError(f"{source}: expected at least one row, found none")
    for name, twin in (("next_obs", "obs"), ("next_action", "action")):
        if name not in fields:
            continue
        if fields[name].shape != fields[twin].shape:
            raise DataError(
                f"{source}: {name} has shape {fields[name].shape} where {twin} has "
                f"{fields[twin].shape}; they must match"
            )
        if not sums_to_finite(fields[name]):
            _check_unknown(fields, name, source)
        wide = np.result_type(fields[name], fields[twin])
        fields |= {k: fields[k].astype(wide, copy=False) for k in (name, twin)}
    return fields


def column(name: str, array: np.ndarray, *, source: str) -> np.ndarray:
    """Check an extra column: one plain value a row (number, bool or text)."""
    array = np.asarray(array)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind == "S":
        array = _decoded(array, name, source)
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise DataError(
            f"{source}: column {name}: expected one number, flag or text a row, "
            f"got shape {array.shape}, dtype {array.dtype}"
        )
    if array.dtype.kind == "b":
        _require_true_or_false(f"column {name}", array, source)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def require_finite(name: str, array: np.ndarray, *, source: str) -> None:
    """Refuse NaN and infinity."""
    if sums_to_finite(array):
        return
    bad = ~np.isfinite(array)
    rows = np.flatnonzero(bad.any(axis=1) if bad.ndim == 2 else bad)
    if len(rows):
        raise DataError(
            f"{source}: {name}: {len(rows)} of {len(array)} rows are NaN or infinite "
            f"(first: row {rows[0]}); repair those rows, or leave them out with --missing drop "
            "(missing= in Python)"
        )


def sums_to_finite(array: np.ndarray) -> bool:
    """Return True only if all values are finite; one pass without temporary arrays."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.add.reduce(array, axis=None)))


def _field(name: str, array: np.ndarray, source: str) -> np.ndarray:
    where = f"{source}: {name}"
    if name in MATRICES:
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise DataError(
                f"{where}: expected (rows, values), got shape {array.shape}; flatten images or "
                "nested values before loading"
            )
        if array.shape[1] == 0:
            raise DataError(f"{where}: expected at least one value a row, got shape {array.shape}")
    elif array.ndim == 2 and array.shape[1] == 1:  # DARA files hold (n, 1)
        array = array[:, 0]
    if name not in MATRICES and array.ndim != 1:
        raise DataError(f"{where}: expected one value a row, got shape {array.shape}")
    if name in FLAGS:
        return _flag(name, array, source)
    if name == "episode":
        return _episode(array, source)
    array = _time(array, source) if name == "time" else _float(name, array, source)
    if name not in _MAY_BE_UNKNOWN:
        require_finite(name, array, source=source)
    return array


def _float(name: str, array: np.ndarray, source: str) -> np.ndarray:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        _require_true_or_false(name, array, source)
    if kind == "f" and size in (4, 8):
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if (kind == "f" and size < 4) or (kind in "iub" and size <= 2):
        return array.astype(np.float32)  # exact
    if kind in "iu":
        if array.size and (array.max() > _MOST_EXACT or array.min() < -_MOST_EXACT):
            raise DataError(
                f"{source}: {name}: expected numbers that float64 holds exactly, got integers "
                "above 2^53; subtract the first value or use a coarser unit"
            )
        return array.astype(np.float64)
    raise DataError(f"{source}: {name}: expected numbers, got dtype {array.dtype}")


def _time(array: np.ndarray, source: str) -> np.ndarray:
    if array.dtype.kind == "M":
        seconds = array.astype("datetime64[ns]").astype(np.int64) / 1e9
        array = np.where(np.isnat(array), np.nan, seconds)
    if array.dtype.kind in "iu":
        # Rounds nanoseconds since 1970 by a quarter of a microsecond, shorter than any step.
        return array.astype(np.float64)
    return _float("time", array, source).astype(np.float64, copy=False)


def _flag(name: str, array: np.ndarray, source: str) -> np.ndarray:
    if array.dtype.kind == "b":
        _require_true_or_false(name, array, source)
        return array
    expected = f"{source}: {name}: expected 0/1 or true/false"
    if array.dtype.kind not in "iuf":
        raise DataError(f"{expected}, got dtype {array.dtype}")
    bad = np.flatnonzero(~((array == 0) | (array == 1)))
    if len(bad):
        raise DataError(f"{expected} in every row, got {array[bad[0]]!r} in row {bad[0]}")
    return array == 1


def _require_true_or_false(name: str, array: np.ndarray, source: str) -> None:
    # A damaged file can hold bytes other than 0 and 1, which NumPy handles inconsistently.
    values = array.view(np.uint8)
    if values.size and values.max() > 1:
        raise DataError(
            f"{source}: {name}: expected true/false in every row, got the byte {values.max()}; "
            "the file is damaged"
        )


def _episode(array: np.ndarray, source: str) -> np.ndarray:
    kind = array.dtype.kind
    if kind in "iub":
        if kind == "u" and array.dtype.itemsize == 8 and len(array) and array.max() > 2**63 - 1:
            raise DataError(f"{source}: episode: ids above 2^63 - 1 cannot be held; renumber them")
        return array.astype(np.int64, copy=False)
    if kind == "f":
        require_finite("episode", array, source=source)
        # As float64: float16 cannot be compared with a number that it cannot hold.
        if (
            np.array_equal(np.trunc(array), array)
            and (np.abs(array, dtype=float) <= _MOST_EXACT).all()
        ):
            return array.astype(np.int64)
        raise DataError(f"{source}: episode: expected whole numbers up to 2^53 or text, got others")
    if kind == "S":
        array = _decoded(array, "episode", source)
    if array.dtype.kind == "U":
        # Text ids are numbered in order of appearance; readers keep the text as a column.
        _, first, codes = np.unique(array, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[codes].astype(np.int64)
    raise DataError(f"{source}: episode: expected numbers or text, got dtype {array.dtype}")


def _decoded(array: np.ndarray, name: str, source: str) -> np.ndarray:
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{source}: {name}: expected UTF-8 text, got {error.object[:20]!r}"
        ) from error


def _check_unknown(fields: dict[str, np.ndarray], name: str, source: str) -> None:
    infinite = np.flatnonzero(np.isinf(fields[name]).any(axis=1))
    if len(infinite):
        raise DataError(
            f"{source}: {name}: row {infinite[0]} is infinite; remove or repair it before loading"
        )
    if name != "next_obs":
        return
    unknown = np.flatnonzero(np.isnan(fields[name]).any(axis=1))
    bad = unknown[~fields["terminal"][unknown]] if "terminal" in fields else unknown
    if len(bad):
        raise DataError(
            f"{source}: {name}: {len(bad)} of {len(fields[name])} rows are NaN without being "
            f"terminal (first: row {bad[0]}); remove them, or leave next_obs out to take it from "
            "the next row"
        )


def listed(keys: Iterable[str], *, near: str = "") -> str:
    """List keys as text, those spelt most like ``near`` first; cut when there are many."""
    keys = list(keys)
    close = difflib.get_close_matches(near, keys, n=_MOST_LISTED, cutoff=0.4)
    every = list(dict.fromkeys([*close, *keys]))
    more = f" and {len(every) - _MOST_LISTED} more" if len(every) > _MOST_LISTED else ""
    return (", ".join(every[:_MOST_LISTED]) or "nothing") + more


# ------------------------------------------------------- cells that are missing or no numbers

HOLD_STEPS = 5
"""Steps over which ``hold`` carries a value, unless ``hold:N`` says otherwise."""
_MOST_NAMED = 8
_HELD = ("obs", "action", "reward")
_NEEDED = (*_HELD, "time", *FLAGS)


@dataclass(frozen=True)
class Usable:
    """Rows after the repair, and which of them can be used."""

    arrays: dict[str, np.ndarray]
    valid: np.ndarray | None = None
    """(n,) bool; None if all rows can."""
    lost: np.ndarray | None = None
    """(n,) bool. Rows of unknown episode: any episode may have lost a row there."""
    notes: list[str] = field(default_factory=list)


def parse_missing(text: str) -> tuple[str, int]:
    """Read ``error``, ``drop``, ``hold`` or ``hold:N``.

    >>> parse_missing("hold:3"), parse_missing("drop")
    (('hold', 3), ('drop', 0))
    """
    if text in ("error", "drop"):
        return text, 0
    if match := re.fullmatch(r"hold(?::([1-9]\d{0,8}))?", text):
        return "hold", int(match[1] or HOLD_STEPS)
    raise ConfigError(
        f"missing: expected error, drop, hold or hold:N (N steps, such as hold:3), got {text!r}"
    )


def repair(raw: RawRows, missing: str, *, source: str, is_part: bool = False) -> Usable:
    """Treat the cells of a file that are missing or no numbers; of a part no row may be left."""
    how, steps = parse_missing(missing)
    arrays = dict(raw.arrays)
    if how == "error" and raw.bad:
        raise DataError(_refusal(raw, source))
    num_rows = {len(array) if array.ndim else -1 for array in arrays.values()}
    if how == "error" or "obs" not in arrays or len(num_rows) != 1:
        return Usable(arrays)  # what are no rows is refused later, with a better message
    num_held = 0
    if how == "hold":
        group = _groups(arrays, raw.lost)
        for name in _HELD:
            if name in arrays and arrays[name].dtype.kind == "f":
                before = np.isfinite(arrays[name]).sum()
                arrays[name] = _held(arrays[name], group, steps)
                num_held += int(np.isfinite(arrays[name]).sum() - before)
        for name, empty in raw.unnamed.items():
            values, code = np.unique(raw.columns[name], return_inverse=True)
            held = _held(np.where(empty, np.nan, code.reshape(-1)), group, steps)
            raw.unnamed[name] = np.isnan(held)
            raw.columns[name] = values[np.where(np.isnan(held), code.reshape(-1), held).astype(int)]
            num_held += int((empty & ~raw.unnamed[name]).sum())
    valid = np.ones(len(arrays["obs"]), bool)
    if raw.lost is not None:
        valid &= ~raw.lost
    for empty in raw.unnamed.values():
        valid &= ~empty
    for name in (*_NEEDED, "next_obs"):
        if name in arrays and arrays[name].dtype.kind == "f":
            fits = np.asarray(np.isfinite(arrays[name])).reshape(len(arrays[name]), -1).all(axis=1)
            if name == "next_obs" and "terminal" in arrays:
                fits |= np.nan_to_num(np.ravel(arrays["terminal"])) == 1
            valid &= fits
    notes = [_describe(column, cells) for column, cells in raw.bad.items()]
    if num_held:
        notes.append(Note("held_cells", num_held))
    if valid.all():
        return Usable(arrays, notes=notes)
    if not valid.any() and not is_part:
        raise DataError(
            f"{source}: expected rows without missing cells, got none; {_counts(raw)}; name other "
            "columns for obs and action"
        )
    for name in (*_NEEDED, "next_obs"):
        if name in arrays and arrays[name].dtype.kind == "f":
            arrays[name] = arrays[name].copy()
            arrays[name][~valid] = 0  # they leave before anything is computed with them
    notes.append(Note("missing_rows", int((~valid).sum())))
    return Usable(arrays, valid, raw.lost, notes)


def _refusal(raw: RawRows, source: str) -> str:
    first = min(raw.bad.values(), key=lambda cells: ("--decimal" not in cells.text, cells.row))
    return (
        f"{source}: {first.text}; {_counts(raw)}; repair them, or leave out those rows with "
        "--missing drop, or carry the last value on with --missing hold (missing= in Python)"
    )


def _counts(raw: RawRows) -> str:
    columns = sorted(raw.bad, key=lambda name: -raw.bad[name].number)
    listed = ", ".join(f"{name} {raw.bad[name].number:,}" for name in columns[:_MOST_NAMED])
    more = f" and {len(columns) - _MOST_NAMED} more columns" if len(columns) > _MOST_NAMED else ""
    total = sum(cells.number for cells in raw.bad.values())
    return f"{total:,} bad cell{'s' * (total > 1)} in all: {listed}{more}"


def _describe(column: str, cells: BadCells) -> str:
    number = f"{cells.number:,} cells are" if cells.number > 1 else "1 cell is"
    return f"{column}: {number} missing or no number (first: {cells.text})"


def _groups(arrays: dict[str, np.ndarray], lost: np.ndarray | None) -> np.ndarray:
    """(n,) int64. Number the episodes; rows of unknown episode are one of their own."""
    if "episode" not in arrays:
        return np.zeros(len(arrays["obs"]), np.int64)
    group = np.unique(np.ravel(arrays["episode"]), return_inverse=True)[1].reshape(-1)
    return group if lost is None else np.where(lost, -1, group)


def _held(array: np.ndarray, group: np.ndarray, steps: int) -> np.ndarray:
    """Carry the last finite value of each column on, inside its group, over at most ``steps``."""
    order = np.argsort(group, kind="stable")
    matrix = array.reshape(len(array), -1)[order]
    place = np.arange(len(order))[:, None]
    known = np.isfinite(matrix)
    last = np.maximum.accumulate(np.where(known, place, -1), axis=0)
    begin = np.maximum.accumulate(
        np.where(np.diff(group[order], prepend=group[order[:1]] - 1) != 0, place[:, 0], 0)
    )
    usable = ~known & (last >= begin[:, None]) & (place - last <= steps)
    matrix = np.where(usable, np.take_along_axis(matrix, np.maximum(last, 0), axis=0), matrix)
    held = np.empty_like(matrix)
    held[order] = matrix
    return held.reshape(array.shape).astype(array.dtype, copy=False)
