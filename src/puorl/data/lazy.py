"""Lazy datasets: files that are read in partitions, so that they need not fit into memory.

`open` reads the keys of all rows once: episode ids, times, flags and other single columns. It cuts
the rows of all files, one after the other, into partitions that no episode crosses; an episode
that goes on in the next file stays whole. What depends on all rows is found then too: the median
step of the clock, the kinds of columns, the codes of actions. Every partition is afterwards read on
its own, and has the rows that `puorl.load` would give for one file with the content of all.

Text ids name the same episode in all files. Numbers do so only from the last row of a file to the
first of the next, unless a flag or the clock ends the episode there: many files number their
episodes from 0. Without ids, a border between files is a break unless the clock goes on.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.progress import progress_bar
from puorl.data.actions import MOST_CODES, take_codes
from puorl.data.dataset import Dataset
from puorl.data.formats import check_names, expand, finish, reader_of, searched
from puorl.data.missing import parse_missing
from puorl.data.transitions import Transitions, join_notes
from puorl.data.validate import SOURCE_ROW, Block, FieldNames, RawRows

PARTITION_ROWS = 262_144
"""Rows of a partition; it ends with the first episode that ends after so many."""
_MOST_ROWS = 16
"""Partitions' worth of rows that one partition may have, where episodes are long or interleaved."""
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

    def files_of(self, ids: np.ndarray) -> np.ndarray:
        """(n,) int64. The file in which the episode of each row began."""
        found = np.full(len(ids), self.number)
        if self.carried is not None:
            found[np.ravel(ids) == self.carried[0]] = self.carried[1]
        return found


@dataclass(frozen=True, eq=False)
class LazyDataset:
    """Rows of files, read partition by partition; `open` makes it.

    Iterating gives each partition as a `Dataset`. The column ``source_row`` of these counts the
    rows of all files, also those that are no transitions.
    """

    sources: tuple[Source, ...]
    names: FieldNames
    """Where fields are found; codes of actions are filled in."""
    partitions: tuple[Span, ...]
    step: float | None
    """Median step of the clock, None without one."""
    kinds: Mapping[str, str]
    """Field, or ``column/NAME``, to its dtype in all files, where parts differ."""
    fields: tuple[str, ...]
    columns: tuple[str, ...]
    """Extra columns that all files have."""
    numbered: bool
    """Whether episodes are numbered anew: ids are texts, absent, or used twice."""
    notes: tuple[str, ...] = ()
    domain: str | None = None

    def __len__(self) -> int:
        """Number of partitions."""
        return len(self.partitions)

    def __iter__(self) -> Iterator[Dataset]:
        return (self.read(i) for i in range(len(self)))

    def __repr__(self) -> str:
        files = "1 file" if len(self.sources) == 1 else f"{len(self.sources):,} files"
        return f"LazyDataset({self.num_rows:,} rows of {files} in {len(self):,} partitions)"

    @property
    def num_rows(self) -> int:
        """Rows of all files; those without a next state are not among the transitions."""
        return self.partitions[-1].stop

    @property
    def fingerprint(self) -> str:
        """Hash of names, sizes and dates of the files, and of everything that decides the rows.

        Unlike the fingerprint of a `Dataset` it does not hash the rows, which would be another
        pass over all of them.
        """
        content = dataclasses.asdict(self.names) | {
            "files": [_stamp(each.path) for each in self.sources],
            "partitions": [list(each) for each in self.partitions],
            "kinds": dict(self.kinds),
            "step": None if self.step is None else float(self.step).hex(),
        }
        return hashing.of_settings(content)

    def read(self, number: int) -> Dataset:
        """Read a partition.

        Raises:
            DataError: A file cannot be read, or was changed since `open`.
        """
        span = self.partitions[number]
        raw = self._raw(span, keys_only=False)
        data = finish(raw, self.names, next(self._pieces(span))[0].path, self.step)
        columns = {name: array for name, array in data.columns.items() if name != SOURCE_ROW}
        row = data.columns[SOURCE_ROW] if len(data) < span.num_rows else np.arange(len(data))
        columns[SOURCE_ROW] = row.astype(np.int64) + span.start
        rows = data.rows
        if rows.episode is not None and self.numbered:
            rows = dataclasses.replace(rows, episode=rows.episode + span.start)
        provenance = dataclasses.replace(data.provenance, domain=self.domain)
        return Dataset(rows, columns, provenance if self.domain else data.provenance)

    def keys(self, number: int) -> RawRows:
        """Read what is cheap to read: ids, times, flags and columns, of all rows of a partition."""
        return self._raw(self.partitions[number], keys_only=True)

    def to_dataset(self) -> Dataset:
        """Read all partitions into memory, as `puorl.load` reads one file with all the rows."""
        parts = list(self)
        made = Dataset.concatenate(parts)
        row = np.concatenate([part.columns[SOURCE_ROW] for part in parts])
        columns = {name: array for name, array in made.columns.items() if name != SOURCE_ROW}
        if len(row) < self.num_rows:
            columns[SOURCE_ROW] = row
        fields = made.rows.arrays()
        if "episode" in fields:
            ids = [part.episode for part in parts if part.episode is not None]
            fields["episode"] = np.concatenate(ids)
            if self.numbered:
                fields["episode"] = np.unique(fields["episode"], return_inverse=True)[1]
        notes = join_notes([*self.notes, *(n for part in parts for n in part.provenance.notes)])
        provenance = dataclasses.replace(made.provenance, notes=notes)
        return Dataset(Transitions(**fields), columns, provenance)

    def _pieces(self, span: Span) -> Iterator[tuple[Source, slice]]:
        """Yield the files of a span, and the rows of each."""
        for each in self.sources:
            begin, end = span.start - each.first, span.stop - each.first
            if begin < each.num_rows and end > 0:
                yield each, slice(max(0, begin), min(end, each.num_rows))

    def _raw(self, span: Span, *, keys_only: bool) -> RawRows:
        names, pieces, files = searched(self.names), [], []
        for source, rows in self._pieces(span):
            raw = _read_rows(source, names, rows, self.kinds, keys_only=keys_only)
            if "episode" in raw.arrays and raw.arrays["episode"].dtype.kind != "U":
                files.append(source.files_of(raw.arrays["episode"]))
            pieces.append(raw)
        made = _joined(pieces, self.fields, self.columns)
        if self.numbered and files:
            pairs = np.stack([np.concatenate(files), np.ravel(made.arrays["episode"])])
            made.arrays["episode"] = _by_appearance(pairs)
        return made


def open(
    path: Any,
    *,
    format: str | None = None,
    domain: str | None = None,
    partition_rows: int | None = None,
    progress: bool = False,
    **names: Any,
) -> LazyDataset:
    """Open files without loading them; see the module's docstring for what is one episode.

    Args:
        path: Parquet files or folders, in which ``robot=A7/`` gives a column, CSV, HDF5 and Minari
            (not what puorl wrote as such), globs and lists of these. Parquet may be at an address
            such as ``s3://bucket/rows``.
        format: As for `puorl.load`.
        domain: As for `puorl.load`.
        partition_rows: Rows of a partition, about; `PARTITION_ROWS` by default.
        progress: Show a bar.
        **names: All other options of `puorl.load`.

    Raises:
        DataError: A file cannot be read in parts, or an episode is too long for a partition.
        ConfigError: A wrong option.
    """
    given = FieldNames(**names)
    check_names(given)
    partition_rows = PARTITION_ROWS if partition_rows is None else partition_rows
    if partition_rows < 1:
        raise ConfigError(f"partition_rows: expected 1 or more, got {partition_rows}")
    how, _ = parse_missing(given.missing)
    sources: list[Source] = []
    for place in places(path, ids=format == "minari"):
        reader = reader_at(place, format)
        if not hasattr(reader, "blocks"):
            raise DataError(
                f"{place}: expected Parquet, CSV, HDF5 or Minari, which can be read in parts; "
                "convert it first with puorl export"
            )
        blocks = tuple(reader.blocks(place, searched(given)))
        first = sources[-1].first + sources[-1].num_rows if sources else 0
        if blocks:
            sources.append(Source(place, reader.__name__, blocks, first, number=len(sources)))
    if not sources:
        raise DataError(f"{path}: expected at least one row, found none")
    index = _Index()
    total = sum(each.num_rows for each in sources)
    with progress_bar("reading keys", total=total, show=progress) as advance:
        for number, source in enumerate(sources):
            for rows in _chunks(source, partition_rows):
                raw = _read_rows(source, searched(given), rows, {}, keys_only=how == "error")
                if rows.start == 0:
                    sources[number] = source = index.begin(source, raw)
                index.add(raw, source, rows.start)
                advance(rows.stop - rows.start)
    if how == "hold" and "episode" not in index.fields:
        raise DataError("missing: expected episode ids to hold values within, and found none")
    return LazyDataset(
        sources=tuple(sources),
        names=dataclasses.replace(given, discrete_actions=index.codes(given)),
        partitions=tuple(index.cut(total, partition_rows, given.gap)),
        step=index.median_step(),
        kinds=index.differing(),
        fields=tuple(index.fields),
        columns=tuple(index.columns),
        numbered=index.numbered,
        notes=tuple(index.notes),
        domain=domain,
    )


# ---------------------------------------------------------------------------- the first pass


@dataclass
class _Index:
    """What is known of all rows, chunk by chunk."""

    fields: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    """Those that all chunks have."""
    notes: list[str] = field(default_factory=list)
    _kinds: dict[str, set[str]] = field(default_factory=dict)
    _spans: list[np.ndarray] = field(default_factory=list)
    """(episodes, 3) int64, of a chunk: file of its beginning, first and last row of each."""
    _ids: list[np.ndarray] = field(default_factory=list)
    _breaks: list[np.ndarray] = field(default_factory=list)
    """First rows after a break, where there are no ids."""
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
    def numbered(self) -> bool:
        """Whether episodes are numbered anew."""
        if not self._ids or self._ids[0].dtype.kind == "U":
            return True
        pairs = np.unique(
            np.stack([np.concatenate(self._spans)[:, 0], np.concatenate(self._ids)]), axis=1
        )
        return len(np.unique(pairs[1])) < pairs.shape[1]

    def begin(self, source: Source, raw: RawRows) -> Source:
        """Go on to a file that begins with ``raw``; return it with what it carries on."""
        last, head = self._last, _Row.of(raw, 0)
        if last is None:
            return source
        goes_on = not last.ended and not head.time < last.time
        if head.id is None:
            if not goes_on or np.isnan(head.time):  # no clock
                self._breaks.append(np.array([source.first]))
            return source
        if not goes_on or head.id != last.id or isinstance(head.id, str):
            return source
        self.notes.append(f"episode {head.id} goes on from one file to {source.path}")
        return dataclasses.replace(source, carried=(head.id, last.file))

    def add(self, raw: RawRows, source: Source, start: int) -> None:
        """Take the rows of a chunk into account; ``start`` is its first row in the file."""
        if self._first is None:
            self._first, self.fields, self.columns = raw, list(raw.arrays), list(raw.columns)
        self.fields = [name for name in self.fields if name in raw.arrays]
        self.columns = [name for name in self.columns if name in raw.columns]
        held = raw.arrays | {f"column/{name}": array for name, array in raw.columns.items()}
        for name, array in held.items():
            kind = "U" if array.dtype.kind in "SU" else array.dtype.str
            self._kinds.setdefault(name, set()).add(kind)
        action = raw.arrays.get("action")
        if action is not None and action.shape[1:] in ((), (1,)) and len(action):
            before = () if self._actions is None else (self._actions,)
            if not before or len(before[0]) <= MOST_CODES:
                self._actions = np.unique(np.concatenate([*before, np.ravel(action)]))
        self._add_episodes(raw, source, source.first + start)
        self._last = _Row.of(raw, -1, source)

    def _add_episodes(self, raw: RawRows, source: Source, start: int) -> None:
        ended, ids = _ended(raw), raw.arrays.get("episode")
        number, order = np.arange(len(ended)), None
        if ids is not None:
            ids = np.ravel(ids)
            usable = np.ones(len(ids), bool) if raw.lost is None else ~raw.lost
            mine, first, code = np.unique(ids[usable], return_index=True, return_inverse=True)
            last = np.zeros(len(mine), np.int64)
            last[code] = number[usable]  # later rows overwrite earlier ones
            file = np.zeros(len(mine), np.int64) if ids.dtype.kind == "U" else source.files_of(mine)
            self._spans.append(
                np.stack([file, start + number[usable][first], start + last], axis=1)
            )
            self._ids.append(mine)
            order = np.argsort(ids, kind="stable")
        time = raw.arrays.get("time")
        step = (
            None
            if time is None
            else np.diff(_seconds(time) if order is None else _seconds(time)[order])
        )
        if ids is None:
            cut = ended[:-1] if step is None else ended[:-1] | (step < 0)
            self._breaks.append(start + 1 + np.flatnonzero(np.append(cut, ended[-1:])))
            if step is not None and len(step):
                long = np.flatnonzero(step > np.median(step))  # perhaps a gap
                self._long.append(np.stack([start + 1 + long, step[long]]))
        if step is not None:
            follows = ~(ended if order is None else ended[order])[:-1]
            if ids is not None:
                follows &= ids[order][1:] == ids[order][:-1]
            self._count(step[follows & (step > 0)])

    def _count(self, step: np.ndarray) -> None:
        """Count steps of the clock; where they are too many, steps that are almost equal as one."""
        bits = np.concatenate([self._steps, step.view(np.int64) >> self._shift])
        counts = np.concatenate([self._counts, np.ones(len(step), np.int64)])
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

    def codes(self, given: FieldNames) -> Any:
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
            arrays={"action": np.repeat(values, 2)[:, None]},
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
        """Yield partitions that no episode crosses.

        Raises:
            DataError: An episode, or several that are interleaved, are too long.
        """
        if self._ids:
            ids, spans = np.concatenate(self._ids), np.concatenate(self._spans)
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
        start = 0
        while start < total:
            place = np.searchsorted(free, start + size)
            stop = int(free[place]) if place < len(free) else total
            if stop - start > _MOST_ROWS * size and "next_obs" in self.fields and not self._ids:
                stop = start + size  # every row has its next state beside it
            if stop - start > _MOST_ROWS * size:
                raise DataError(
                    f"episode: expected episodes that end within {_MOST_ROWS * size:,} rows, got "
                    f"none that does from row {start:,} on; sort the rows by episode, name a "
                    "column that divides them with --episode (episode=), or raise partition_rows"
                )
            yield Span(start, min(stop, total))
            start = stop


class _Row(NamedTuple):
    """What decides whether another row follows."""

    id: Any
    time: float
    ended: bool
    file: int = 0
    """In which its episode began."""

    @classmethod
    def of(cls, raw: RawRows, place: int, source: Source | None = None) -> "_Row":
        ids, time = raw.arrays.get("episode"), raw.arrays.get("time")
        one = None if ids is None else np.ravel(ids)[place].item()
        file = (
            0
            if source is None or ids is None or isinstance(one, str)
            else (int(source.files_of(np.ravel(ids)[[place]])[0]))
        )
        clock = np.nan if time is None else float(_seconds(time)[place])
        return cls(one, clock, bool(_ended(raw)[place]), file)


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


# --------------------------------------------------------------------------------- reading


def _read_rows(
    source: Source, names: FieldNames, rows: slice, kinds: Mapping[str, str], *, keys_only: bool
) -> RawRows:
    """Read some rows of a file, with dtypes that fit the other files."""
    ends = np.cumsum([block.num_rows for block in source.blocks])
    one, other = np.searchsorted(ends, [rows.start, rows.stop - 1], side="right")
    before = int(ends[one] - source.blocks[one].num_rows)
    reader, options = import_module(source.module), {}
    if source.module.endswith(".csv"):
        options["as_text"] = [name.removeprefix("column/") for name in kinds if kinds[name] == "U"]
    chosen = source.blocks[one : other + 1]
    raw: RawRows = reader.read_blocks(source.path, names, chosen, keys_only=keys_only, **options)
    part = slice(rows.start - before, rows.stop - before)
    raw.arrays = {k: _cast(a[part] if len(a) else a, kinds.get(k)) for k, a in raw.arrays.items()}
    raw.columns = {k: _cast(a[part], kinds.get(f"column/{k}")) for k, a in raw.columns.items()}
    raw.lost = None if raw.lost is None else raw.lost[part]
    if kinds.get("episode") == "U" and "episode" in raw.keys:
        raw.columns.setdefault(raw.keys["episode"], raw.arrays["episode"])
    return raw


def _cast(array: np.ndarray, kind: str | None) -> np.ndarray:
    return array if kind is None else array.astype(kind)


def _joined(pieces: Sequence[RawRows], fields: Sequence[str], columns: Sequence[str]) -> RawRows:
    """Join rows of several files, of which only what all have is used."""
    first = pieces[0]
    made = dataclasses.replace(
        first,
        arrays={
            k: np.concatenate([p.arrays[k] for p in pieces]) for k in fields if k in first.arrays
        },
        columns={k: np.concatenate([p.columns[k] for p in pieces]) for k in columns},
        notes=list(dict.fromkeys(note for piece in pieces for note in piece.notes)),
    )
    if any(piece.lost is not None for piece in pieces):
        sizes = [len(piece.arrays["obs"]) for piece in pieces]
        lost = zip(pieces, sizes, strict=True)
        made.lost = np.concatenate(
            [np.zeros(n, bool) if p.lost is None else p.lost for p, n in lost]
        )
    for piece in pieces[1:]:
        for name, cells in piece.bad.items():
            made.note_bad(name, *cells)
    return made


def _chunks(source: Source, size: int) -> Iterator[slice]:
    """Yield ranges of rows that consist of whole blocks, of about some size."""
    start = stop = 0
    for block in source.blocks:
        stop += block.num_rows
        if stop - start >= size:
            yield slice(start, stop)
            start = stop
    if stop > start:
        yield slice(start, stop)


def _by_appearance(pairs: np.ndarray) -> np.ndarray:
    """(n,) int64. Number the columns of ``pairs`` (2, n) in the order in which they appear."""
    _, first, code = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[code.reshape(-1)]


def places(path: Any, *, ids: bool) -> list[str]:
    """List the files that are named, in a stable order, each once."""
    found: list[str] = []
    for one in path if isinstance(path, list | tuple) and path else [path]:
        if isinstance(one, str) and "://" in one:
            found += _remote(one)
        elif isinstance(one, str | os.PathLike):
            found += [str(each) for each in expand(one, ids=ids)]
        else:
            raise ConfigError(f"path: expected paths of files, got {type(one).__name__}")
    twice = next((each for i, each in enumerate(found) if each in found[:i]), None)
    if twice is not None:
        raise DataError(f"{twice}: is named twice, so its rows would count twice; name it once")
    return found


def _remote(address: str) -> list[str]:
    """List the Parquet files at an address, which may end in options (``?region=...``)."""
    fs = import_module("pyarrow.fs")
    system, place = reader_at(address).file_system(address)
    scheme, _, rest = address.partition("://")
    if system.get_file_info(place).is_file:
        return [address]
    chosen = fs.FileSelector(place, recursive=True, allow_not_found=True)
    names = sorted(each.path for each in system.get_file_info(chosen) if each.is_file)
    kept = [n for n in names if n.endswith(".parquet") and Path(n).name[0] not in "._"]
    if not kept:
        raise DataError(f"{address}: expected a folder of .parquet files, found none there")
    options = rest.partition("?")[2]
    return [f"{scheme}://{name}" + (f"?{options}" if options else "") for name in kept]


def reader_at(place: str, format: str | None = None) -> Any:
    """Return the module that reads a file; at an address only Parquet is read."""
    if "://" in place:
        return import_module("puorl.data.parquet")
    return reader_of(Path(place), format)


def _stamp(path: str) -> list[Any]:
    """Return what changes when a file is changed."""
    if "://" in path:
        system, place = reader_at(path).file_system(path)
        found = system.get_file_info(place)
        return [path, found.size, found.mtime_ns]
    status = os.stat(path)
    return [os.path.abspath(path), status.st_size, status.st_mtime_ns]
