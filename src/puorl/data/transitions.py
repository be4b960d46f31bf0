"""Transitions, their provenance (where rows came from, how they were read), and their copies."""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from puorl.core.errors import DataError

MAX_STEP = 1.5
"""A time step longer than this many median steps is a gap."""
MATRICES = ("obs", "action", "next_obs", "next_action")
"""Fields with several values a row; the others have one."""
FLAGS = ("terminal", "timeout")
_NOTES = {
    "time_gaps": f"time: {{}} gaps (over {MAX_STEP} x the median step); no transition was built "
    "across them",
    "clock_resets": "time: {} clock resets; no transition was built across them",
    "repeated_times": "time: {} stamps repeat the one before; taken as steps of a coarse clock "
    "(`puorl inspect` counts duplicated rows)",
    "unknown_next_obs": "next_obs: unknown (NaN) in {} terminal rows: the end state was not logged",
    "dropped_rows": "next_obs: {} last rows before a break have none and were dropped",
    "copied_rows": "{} rows repeat another row exactly; copies are held out together, but each "
    "counts: if a log was joined twice, remove them",
    "missing_rows": "missing: {} rows with cells that are missing or no numbers were dropped; no "
    "transition was built across them",
    "held_cells": "missing: cells filled with the last value of their column and episode: {}",
    "no_breaks": "episode: no episode key, flags or time; all rows are taken as one episode in "
    "order (name the key with episode=)",
    "no_timeouts": "episode: no episode key or timeout flags; cut only at terminals and breaks of "
    "the clock (name the key with episode=)",
}
"""Kinds of notes that the program reads again, and their texts; ``{}`` is the count."""
_OLD_GAPS = re.compile(r"time: ([0-9]{1,15}) gaps .* and ([0-9]{1,15}) clock resets; .*")


@dataclass(frozen=True, eq=False, kw_only=True)
class Transitions:
    """Rows (s, a, r, s') and where tasks and records ended.

    All arrays are read-only. Floats keep the width of their source: float32 or float64.
    """

    obs: np.ndarray
    """(n, d) float. State before the action."""
    action: np.ndarray
    """(n, m) float. Action that the controller intended."""
    next_obs: np.ndarray
    """(n, d) float. State after the action; NaN in a terminal row whose end was not recorded."""
    reward: np.ndarray | None = None
    """(n,) float, or None where none was logged: the filter works without, training does not."""
    terminal: np.ndarray
    """(n,) bool. The task ended here; the only flag that stops bootstrapping."""
    timeout: np.ndarray
    """(n,) bool. The record was cut after this row although the task went on."""
    episode: np.ndarray | None = None
    """(n,) int64. Which episode a row belongs to."""
    time: np.ndarray | None = None
    """(n,) float64. Time stamp, in the log's own unit."""
    next_action: np.ndarray | None = None
    """(n, m) float. Action that followed; NaN where there was none."""

    def __post_init__(self) -> None:
        """Freeze every array; refuse shapes and kinds that do not fit together."""
        for name, array in self.arrays().items():
            ndim = 2 if name in MATRICES else 1
            if array.ndim != ndim or len(array) != len(self.obs):
                raise DataError(
                    f"{name}: expected {ndim}-dimensional with {len(self.obs)} rows (as obs), "
                    f"got shape {array.shape}"
                )
            kind = "bool" if name in FLAGS else "int" if name == "episode" else "float"
            if array.dtype.kind != kind[0]:
                raise DataError(f"{name}: expected {kind}, got dtype {array.dtype}")
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        for name, twin in (("next_obs", self.obs), ("next_action", self.action)):
            array = getattr(self, name)
            if array is not None and array.shape != twin.shape:
                raise DataError(f"{name}: expected shape {twin.shape}, got {array.shape}")

    def __len__(self) -> int:
        return len(self.obs)

    def __getitem__(self, rows: slice | np.ndarray) -> "Transitions":
        """Select rows by slice (a view), by mask or by index array (a copy)."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
        return Transitions(**{name: array[rows] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fields that are present, by name, in their declared order."""
        every = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: array for name, array in every.items() if array is not None}

    @property
    def next_known(self) -> np.ndarray:
        """(n,) bool. The row's next state was recorded."""
        return np.logical_not(np.isnan(self.next_obs).any(axis=1))

    @property
    def nbytes(self) -> int:
        """Bytes held by all arrays."""
        return sum(array.nbytes for array in self.arrays().values())

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle through the constructor, so that the copy is frozen as well."""
        return _rebuilt, (self.arrays(),)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k}: {v.shape} {v.dtype}" for k, v in self.arrays().items())
        return f"Transitions({shapes})"


def _rebuilt(arrays: dict[str, np.ndarray]) -> Transitions:
    return Transitions(**arrays)


class Note(str):
    """A sentence about how rows were read, with a kind and a number that programs can use.

    >>> note = Note("dropped_rows", 14)
    >>> str(note), note.kind, note.number
    ('next_obs: 14 last rows before a break have none and were dropped', 'dropped_rows', 14)
    """

    kind: str
    number: int

    def __new__(cls, kind: str, number: int = 0) -> "Note":
        """Build the sentence of a kind in the table of notes."""
        note = super().__new__(cls, _NOTES[kind].format(number))
        note.kind, note.number = kind, number
        return note

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        """Rebuild copies from the kind and the number."""
        return self.kind, self.number


def join_notes(notes: Iterable[str]) -> tuple[str, ...]:
    """Merge the notes of several datasets: each once, counts of one kind added up.

    >>> join_notes(["a", Note("dropped_rows", 14), "a", Note("dropped_rows", 14)])
    ('a', 'next_obs: 28 last rows before a break have none and were dropped')
    """
    notes = list(notes)
    counts: Counter[str] = Counter()
    for note in notes:
        if isinstance(note, Note):
            counts[note.kind] += note.number
    joined = (Note(n.kind, counts[n.kind]) if isinstance(n, Note) else n for n in notes)
    return tuple(dict.fromkeys(joined))


def _stored_notes(notes: Iterable[Any]) -> tuple[Any, ...]:
    """Read notes from JSON; older files hold the sentences of all kinds as plain text."""
    found = []
    for note in notes:
        if isinstance(note, Mapping) and note.get("kind") in _NOTES:
            count = note.get("count")
            found.append(Note(note["kind"], count) if isinstance(count, int) else note)
        elif isinstance(note, str):
            found += _from_sentence(note)
        else:
            found.append(note)
    return tuple(found)


def _from_sentence(text: str) -> list[str]:
    if match := _OLD_GAPS.fullmatch(text):
        counts = zip(("time_gaps", "clock_resets"), map(int, match.groups()), strict=True)
        return [Note(kind, count) for kind, count in counts if count]
    for kind, form in _NOTES.items():
        pattern = re.escape(form).replace(r"\{\}", "([0-9]{1,15})")
        if match := re.fullmatch(pattern, text):
            return [Note(kind, *map(int, match.groups()))]
    return [text]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Source of rows, and how they were read; never part of the fingerprint."""

    source: tuple[str, ...] = ()
    """Files or generators, in order."""
    format: str = "arrays"
    domain: str | None = None
    """Name of the domain, where it is known."""
    behaviour: str | None = None
    """Name of the policy that acted, where it is known."""
    recipe: Mapping[str, Any] | None = None
    """All that is needed to generate the rows again, for data that puorl generates."""
    obs_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    action_range: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Smallest and largest value of each action component, where the source states them."""
    action_codes: tuple[str, ...] | None = None
    """Codes of one-hot action columns; None for continuous actions."""
    clock: str | None = None
    """``dates`` where time is in seconds since 1970; None where its unit is not known."""
    keys: tuple[tuple[str, str], ...] = dataclasses.field(default=(), compare=False)
    """Fields with one value a row, each with its name in the source, or a formula; not stored, as a
    copy has names of its own."""
    missing: tuple[str, ...] = ()
    """Fields that the source did not have."""
    emptied: tuple[tuple[str, str], ...] = ()
    """Columns of texts or whole numbers, each with a value none of whose rows is usable."""
    notes: tuple[str, ...] = ()
    """Notes for the user about how the rows were read; some are of class `Note`."""

    def count(self, kind: str) -> int:
        """Add up the counts of the notes of one kind."""
        return sum(n.number for n in self.notes if isinstance(n, Note) and n.kind == kind)

    @property
    def left_out(self) -> dict[str, int]:
        """Kind of note to its count, of notes on rows of the source that became no transitions."""
        return {kind: self.count(kind) for kind in ("missing_rows", "dropped_rows")}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready content; `from_dict` is its inverse."""
        content = dataclasses.asdict(self)
        del content["keys"]
        content["notes"] = [
            {"kind": n.kind, "count": n.number} if isinstance(n, Note) else n for n in self.notes
        ]
        for name in ("action_range", "action_codes", "clock", "emptied"):
            if not content[name]:
                del content[name]  # as in files written before the field existed
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Provenance":
        """Build from the output of `to_dict`; unknown keys and wrong values are an error.

        Raises:
            DataError: The content is not what `to_dict` returns.
        """
        if not isinstance(content, Mapping):
            raise DataError(f"provenance: expected named values, got {type(content).__name__}")
        lists = {name: _tuples(value) for name, value in content.items()}
        if isinstance(lists.get("notes"), tuple):
            lists["notes"] = _stored_notes(lists["notes"])
        try:
            made = cls(**lists)
        except TypeError as error:
            raise DataError(
                f"provenance: expected the fields of this version, got: {error}"
            ) from error
        for name, value in vars(made).items():
            if not _fits(name, value):
                raise DataError(f"provenance: {name} cannot be {value!r}; the record is damaged")
        return made

    def to_json(self) -> str:
        """Return one line of JSON, as stored inside the files that puorl writes.

        Raises:
            DataError: The recipe holds values that JSON cannot.
        """
        try:
            return json.dumps(self.to_dict())
        except (TypeError, ValueError) as error:
            raise DataError(
                f"provenance: expected plain values in the recipe, got: {error}"
            ) from error

    @classmethod
    def from_json(cls, text: Any, *, source: str) -> "Provenance":
        """Build from the output of `to_json` as found in a file.

        Raises:
            DataError: The content is not what `to_json` writes.
        """
        if not isinstance(text, str):
            raise DataError(f"{source}: provenance: expected JSON text, got {type(text).__name__}")
        try:
            return cls.from_dict(json.loads(text))
        except (DataError, ValueError, RecursionError) as error:
            raise DataError(
                f"{source}: expected the origin that puorl wrote, got: {error}"
            ) from error


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _fits(name: str, value: Any) -> bool:
    if name == "action_codes" and value is None:
        return True
    if name in ("source", "obs_names", "action_names", "action_codes", "missing", "notes"):
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    if name in ("emptied", "keys"):
        pairs = isinstance(value, tuple) and all(isinstance(pair, tuple) for pair in value)
        return pairs and all(len(p) == 2 and all(isinstance(x, str) for x in p) for p in value)
    if name == "action_range":
        return value is None or _is_range(value)
    if name == "recipe":
        return value is None or isinstance(value, Mapping)
    return isinstance(value, str) or (value is None and name != "format")


def _is_range(value: Any) -> bool:
    if not (isinstance(value, tuple) and len(value) == 2):
        return False
    if not all(isinstance(end, tuple) for end in value) or len(value[0]) != len(value[1]):
        return False
    return all(isinstance(x, float) and math.isfinite(x) for end in value for x in end)


# ------------------------------------------------------------------------------ copies
#
# A network that was trained on a row knows its copies: held-out scores of copies would look better
# than those of new rows. So copies of a row, and copies of a whole episode, are held out together.
# Rows are compared by 64-bit hashes of their values: the chance that any two different rows of a
# million share a hash is about 3 in 10^8.

MOST_COPIES = 100
"""A row or an episode that is found more often is a state in which a machine rests, not a copy.

All of it in one fold would leave the others without that state.
"""
_CHUNK = 65_536
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def row_hashes(rows: Transitions) -> np.ndarray:
    """(n,) uint64. Hash state, action, next state, reward and terminal flag by their values."""
    parts = [rows.obs, rows.action, rows.next_obs, rows.terminal[:, None]]
    parts += [] if rows.reward is None else [rows.reward[:, None]]
    hashes = np.zeros(len(rows), np.uint64)
    for start in range(0, len(rows), _CHUNK):
        mine = hashes[start : start + _CHUNK]
        for part in parts:
            # Adding zero makes -0.0 and 0.0 the same value, as they are.
            values = part[start : start + _CHUNK].astype(np.float64) + 0.0
            for column in np.ascontiguousarray(values.T).view(np.uint64):
                mine[:] = _mixed(mine ^ column)
    return hashes


def find_originals(rows: Transitions, order: np.ndarray | None = None) -> np.ndarray | None:
    """(n,) int64. Find the first row with the same values; None where all rows differ."""
    hashes = row_hashes(rows)
    if _num_different(hashes) == len(rows):
        return None
    order = np.arange(len(rows)) if order is None else order
    same = _first_of_each(hashes[order])
    found = np.empty(len(rows), np.int64)
    found[order] = order[same]
    return found


def merge_copies(group: np.ndarray, rows: Transitions) -> np.ndarray:
    """(n,) int64. Give groups of rows with the same values, in the same order, one number."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    content = _mixed(row_hashes(rows)[order] ^ _mixed(place.astype(np.uint64)))
    ids = group[order][starts]
    number = np.empty(int(group.max()) + 1, np.int64)
    number[ids] = ids[_first_of_each(np.add.reduceat(content, starts))]
    return number[group]


def count_copies(rows: Transitions) -> int:
    """Count the rows that repeat an earlier one."""
    return len(rows) - _num_different(row_hashes(rows))


def _num_different(values: np.ndarray) -> int:
    ordered = np.sort(values)  # several times faster than np.unique
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, len(values))


def _first_of_each(values: np.ndarray) -> np.ndarray:
    """(n,) int64. Place of the first equal value; of values at rest, the place itself."""
    _, first, codes, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True
    )
    return np.where(counts[codes] > MOST_COPIES, np.arange(len(values)), first[codes])


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values + np.uint64(1)) * _MULTIPLIER  # wraps around
    return values ^ (values >> _SHIFT)
