"""The first pass over files that are read in parts: what depends on all rows, and partitions.

Keys of all rows are seen once, chunk by chunk. What is kept of them is small: where episodes begin
and end, how often the clock made each step, kinds of columns, and the values of an action of one
column. Partitions are cut where no episode is open.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.data.actions import MOST_CODES, take_codes
from puorl.data.label_values import Absent, absent_values
from puorl.data.validate import Block, FieldNames, RawRows

_MOST_ROWS = 16
"""Partitions' worth of rows that one partition may have, where episodes are long or interleaved."""
_PERHAPS_A_GAP = 1.2
"""Steps longer than so many median steps are remembered until the median of all is known."""
_MOST_STEPS = 2**20
"""Different steps of the clock that are counted one by one; more are counted in classes."""


class Span(NamedTuple):
    """The rows of a partition, counted over all files."""

    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        """Rows of the files, also those that are no transitions."""
        return self.stop - self.start


@dataclass(frozen=True)
class Source:
    """One file."""

    path: str
    module: str
    """Of the reader."""
    blocks: tuple[Block, ...]
    first: int
    """Rows of the files before it."""
    carried: tuple[int, int] | None = None
    """Id of the episode that goes on from the file before, and the file in which it began."""
    number: int = 0
    """Of the file."""

    @property
    def num_rows(self) -> int:
        """Rows of the file, also those that are no transitions."""
        return sum(block.num_rows for block in self.blocks)

    def block_of(self, row: int) -> int:
        """Return the number of the block that holds a row of the file."""
        ends = np.cumsum([block.num_rows for block in self.blocks])
        return int(np.searchsorted(ends, row, side="right"))

    def block_start(self, row: int) -> int:
        """Return the first row of that block."""
        return sum(block.num_rows for block in self.blocks[: self.block_of(row)])

    def files_of(self, ids: np.ndarray) -> np.ndarray:
        """(n,) int64. The file in which the episode of each row began."""
        found = np.full(len(ids), self.number)
        if self.carried is not None:
            found[np.ravel(ids) == self.carried[0]] = self.carried[1]
        return found


@dataclass
class Index:
    """Keys of all rows, chunk by chunk."""

    fields: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    """Those that all chunks have."""
    known: dict[str, None] = field(default_factory=dict)
    """Names of columns that some chunk has, in order."""
    notes: list[str] = field(default_factory=list)
    unnamed: dict[str, int] = field(default_factory=dict)
    """Column that is needed to its empty cells, where it has some."""
    absent: list[list[Absent]] = field(default_factory=list)
    """Values that the label names and a chunk lacks, of every chunk."""
    _kinds: dict[str, set[str]] = field(default_factory=dict)
    _spans: list[np.ndarray] = field(default_factory=list)
    """(episodes, 3) int64, of a chunk: file of its beginning, first and last row of each."""
    _ids: list[np.ndarray] = field(default_factory=list)
    _breaks: list[np.ndarray] = field(default_factory=list)
    """First rows after a break, where there are no ids."""
    _borders: list[int] = field(default_factory=list)
    """First rows of files that no id and no clock joins to the file before."""
    _long: list[np.ndarray] = field(default_factory=list)
    """Rows after a long step of the clock, and the step, where there are no ids."""
    _steps: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """Bits of the steps of the clock that were seen, ascending, without the last `_shift`."""
    _counts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    _shift: int = 0
    _actions: np.ndarray | None = None
    """Values of an action of one column."""
    _first: RawRows | None = None
    _last: "_Row | None" = None

    @property
    def _are_texts(self) -> bool:
        """Whether some ids are texts, so that all of them are."""
        return any(each.dtype.kind == "U" for each in self._ids)

    @property
    def numbered(self) -> bool:
        """Whether episodes are renumbered."""
        if not self._ids or self._are_texts:
            return True
        pairs = np.unique(
            np.stack([np.concatenate(self._spans)[:, 0], np.concatenate(self._ids)]), axis=1
        )
        return len(np.unique(pairs[1])) < pairs.shape[1]

    def begin(self, source: Source, chunk: "ChunkKeys") -> Source:
        """Go on to a file that begins with a chunk; return it with what it carries on."""
        last, head = self._last, chunk.head
        if last is None:
            return source
        goes_on = not last.ended and not head.time < last.time
        if head.id is None:
            if np.isnan(head.time):  # no clock
                self._borders.append(source.first)
            return source
        if not goes_on or head.id != last.id or isinstance(head.id, str):
            return source
        self.notes.append(f"episode {head.id} goes on from one file to {source.path}")
        return dataclasses.replace(source, carried=(head.id, last.file))

    def add(self, chunk: "ChunkKeys", source: Source) -> None:
        """Take the rows of a chunk into account."""
        if self._first is None:
            self._first, self.fields, self.columns = chunk.about, chunk.fields, chunk.columns
        held = {*chunk.fields}, {*chunk.columns}  # sets: some tables have very many columns
        self.fields = [name for name in self.fields if name in held[0]]
        self.columns = [name for name in self.columns if name in held[1]]
        self.known |= dict.fromkeys([*chunk.columns, *chunk.about.names])
        self.absent.append(chunk.absent)
        for name, number in chunk.unnamed.items():
            self.unnamed[name] = self.unnamed.get(name, 0) + number
        for name, kind in chunk.kinds.items():
            self._kinds.setdefault(name, set()).add(kind)
        if chunk.actions is not None:
            before = () if self._actions is None else (self._actions,)
            if not before or len(before[0]) <= MOST_CODES:
                self._actions = np.unique(np.concatenate([*before, chunk.actions]))
        file, ids = 0, chunk.ids
        if ids is not None:
            is_text = ids.dtype.kind == "U"
            files = np.zeros(len(ids), np.int64) if is_text else source.files_of(ids)
            self._spans.append(np.column_stack([files, chunk.spans]))
            self._ids.append(ids)
            if not is_text:
                file = int(source.files_of(np.array([chunk.last.id]))[0])
        self._breaks += chunk.breaks
        self._long += chunk.long
        self._count(*chunk.steps)
        self._last = chunk.last._replace(file=file)

    def _count(self, step: np.ndarray, number: np.ndarray) -> None:
        """Count steps of the clock; where they are too many, steps that are almost equal as one."""
        bits = np.concatenate([self._steps, step >> self._shift])
        counts = np.concatenate([self._counts, number])
        while True:
            self._steps, code = np.unique(bits, return_inverse=True)
            self._counts = np.bincount(code, counts, len(self._steps)).astype(np.int64)
            if len(self._steps) <= _MOST_STEPS:
                return
            bits, counts, self._shift = self._steps >> 1, self._counts, self._shift + 1

    def median_step(self) -> float | None:
        """Return the median step of the clock: exactly, unless there are millions of different."""
        if "time" not in self.fields:
            return None
        if not len(self._steps):
            return np.inf
        seen, values = np.cumsum(self._counts), (self._steps << self._shift).view(np.float64)
        middle = [(seen[-1] - 1) // 2, seen[-1] // 2]
        return float(values[np.searchsorted(seen, middle, side="right")].mean())

    def codes(self, given: FieldNames, total: int) -> Any:
        """Decide for all rows whether actions are discrete; return the codes, or the option."""
        first, option = self._first, given.discrete_actions
        assert first is not None
        values = self._actions
        if not isinstance(option, bool | None) or first.provenance is not None or values is None:
            return option
        if option is None and len(values) > MOST_CODES:
            return False
        look = RawRows(
            format=first.format,
            arrays={"action": np.resize(values, min(total, 2 * len(values)))[:, None]},
            action_names=first.action_names,
            action_codes=first.action_codes,
        )
        take_codes(look, option, source="action")
        self.notes += look.notes
        return False if look.action_codes is None else list(look.action_codes)

    def differing(self) -> dict[str, str]:
        """Return the dtype of what is not of one dtype in all chunks."""
        found = {}
        for name, kinds in self._kinds.items():
            if len(kinds) > 1:
                is_text = "U" in kinds or ("|b1" in kinds and not kinds <= {"|b1", "<f8"})
                found[name] = "U" if is_text else np.result_type(*kinds).str
        if found.get("episode") == "U" and self._first is not None:
            key = self._first.keys["episode"]
            found[f"column/{key}"] = "U"
            self.columns += [] if key in self.columns else [key]
        return found

    def cut(self, total: int, size: int, gap: float) -> Iterator[Span]:
        """Yield partitions that no episode crosses."""
        if self._ids and "episode" not in self.fields:
            raise DataError("episode: expected ids in all files or in none; name the column")
        if self._ids:
            ids, spans = np.concatenate(self._ids), np.concatenate(self._spans)
            if self._are_texts:
                spans[:, 0] = 0  # they name the same episode in all files
            code = np.unique(ids, return_inverse=True)[1]
            order = np.lexsort((code, spans[:, 0]))
            same = (np.diff(code[order]) == 0) & (np.diff(spans[order, 0]) == 0)
            begin = np.flatnonzero(np.append(True, ~same))
            first = np.minimum.reduceat(spans[order, 1], begin)
            last = np.maximum.reduceat(spans[order, 2], begin)
            by_row = np.argsort(first)
            first, furthest = first[by_row], np.maximum.accumulate(last[by_row])
            free = first[1:][first[1:] > furthest[:-1]]
        else:
            row, step = np.concatenate([np.empty((2, 0)), *self._long], axis=1)
            gaps = row[step > gap * (self.median_step() or np.inf)].astype(np.int64)
            free = np.unique(np.concatenate([*self._breaks, gaps]))
        start, borders = 0, np.array([*self._borders, total])
        while start < total:
            place = np.searchsorted(free, start + size)
            stop = int(free[place]) if place < len(free) else total
            if stop - start > _MOST_ROWS * size and "next_obs" in self.fields and not self._ids:
                stop = start + size  # every row has its own next state
            if stop - start > _MOST_ROWS * size:
                raise DataError(
                    f"episode: expected episodes that end within {_MOST_ROWS * size:,} rows, got "
                    f"none that does from row {start:,} on; sort the rows by episode, name a "
                    "column that divides them with --episode (episode=), or raise partition_rows"
                )
            stop = min(stop, int(borders[np.searchsorted(borders, start, side="right")]))
            yield Span(start, stop)
            start = stop


class _Row(NamedTuple):
    """Values that decide whether another row follows."""

    id: Any
    time: float
    ended: bool
    file: int = 0
    """In which its episode began."""

    @classmethod
    def of(cls, raw: RawRows, place: int) -> "_Row":
        ids, time = raw.arrays.get("episode"), raw.arrays.get("time")
        one = None if ids is None else np.ravel(ids)[place].item()
        clock = np.nan if time is None else float(_seconds(time)[place])
        return cls(one, clock, bool(_ended(raw)[place]))


class ChunkKeys(NamedTuple):
    """Summary of the keys of a chunk of one file's rows; chunks may be read in any order."""

    about: RawRows
    """Without its rows."""
    fields: list[str]
    columns: list[str]
    kinds: dict[str, str]
    actions: np.ndarray | None
    ids: np.ndarray | None
    """Of the episodes, each once."""
    spans: np.ndarray
    """(episodes, 2) int64. First and last row of each, counted over all files."""
    breaks: list[np.ndarray]
    long: list[np.ndarray]
    steps: tuple[np.ndarray, np.ndarray]
    """Bits of the steps of the clock, and how often each was made."""
    head: _Row
    last: _Row
    unnamed: dict[str, int]
    """Number of empty cells of columns that are needed."""
    absent: list[Absent]
    """Texts that the label names and these rows lack."""

    @classmethod
    def of(cls, raw: RawRows, start: int, label: str | None = None) -> "ChunkKeys":
        """Look at the rows of a chunk, the first of which is ``start``, over all files."""
        held = raw.arrays | {f"column/{name}": array for name, array in raw.columns.items()}
        action = raw.arrays.get("action", np.empty((0, 2)))
        is_single = action.shape[1:] in ((), (1,)) and len(action) > 0
        ids, spans = None, np.empty((0, 2), np.int64)
        ended, breaks, long = _ended(raw), [], []
        number = order = np.arange(len(ended))
        if "episode" in raw.arrays:
            every = np.ravel(raw.arrays["episode"])
            usable = np.ones(len(every), bool) if raw.lost is None else ~raw.lost
            ids, first, code = np.unique(every[usable], return_index=True, return_inverse=True)
            last = np.zeros(len(ids), np.int64)
            last[code] = number[usable]  # later rows overwrite earlier ones
            spans = start + np.stack([number[usable][first], last], axis=1)
            order = np.argsort(every, kind="stable")
            goes_on = every[order][1:] == every[order][:-1]
        else:
            breaks.append(start + 1 + np.flatnonzero(ended))
            goes_on = np.ones(max(0, len(ended) - 1), bool)
        steps = np.empty(0)
        if "time" in raw.arrays:
            step = np.diff(_seconds(raw.arrays["time"])[order])
            if ids is None and len(step):
                breaks.append(start + 1 + np.flatnonzero(step < 0))
                far = np.flatnonzero(step > _PERHAPS_A_GAP * np.median(step))
                long.append(np.stack([start + 1 + far, step[far]]))
            steps = step[~ended[order][:-1] & goes_on & (step > 0)]
        return cls(
            about=dataclasses.replace(raw, arrays={}, columns={}, lost=None, unnamed={}),
            fields=list(raw.arrays),
            columns=list(raw.columns),
            kinds={k: "U" if a.dtype.kind in "SU" else a.dtype.str for k, a in held.items()},
            actions=np.unique(action)[: MOST_CODES + 1] if is_single else None,
            ids=ids,
            spans=spans,
            breaks=breaks,
            long=long,
            steps=np.unique(steps.view(np.int64), return_counts=True),
            head=_Row.of(raw, 0),
            last=_Row.of(raw, -1),
            unnamed={name: int(empty.sum()) for name, empty in raw.unnamed.items()},
            absent=[] if label is None else _absent(label, raw.columns),
        )


def _absent(label: str, columns: dict[str, np.ndarray]) -> list[Absent]:
    """Return the texts that a label names and these rows lack; a wrong label is refused later."""
    try:
        return [each for each in absent_values(label, columns) if isinstance(each.value, str)]
    except ConfigError:
        return []


def _seconds(time: np.ndarray) -> np.ndarray:
    return np.ravel(time).astype(np.float64)


def _ended(raw: RawRows) -> np.ndarray:
    """(n,) bool. Rows at which the task ended or the record was cut."""
    number = next(
        len(array) for array in (*raw.arrays.values(), *raw.columns.values()) if len(array)
    )
    flags = [raw.arrays[name] for name in ("terminal", "timeout") if name in raw.arrays]
    ended = np.zeros(number, bool)
    for flag in flags:
        ended |= np.nan_to_num(np.ravel(flag).astype(np.float64)) == 1
    return ended
