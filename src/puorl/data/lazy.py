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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path
from puorl.core.progress import progress_bar
from puorl.core.tasks import ONE_THREAD, Workers, call_all
from puorl.data.dataset import Dataset
from puorl.data.formats import check_names, expand, finish, reader_of, save, searched
from puorl.data.label_values import absent_everywhere, check_absent, may_hold
from puorl.data.partitions import ChunkKeys, Index, Source, Span
from puorl.data.transitions import Transitions, join_notes
from puorl.data.validate import (
    SOURCE_ROW,
    FieldNames,
    RawRows,
    check_needed,
    is_empty,
    parse_missing,
)

FIRST_PART = "part-000000.parquet"
"""Identifies a folder of partitions."""
PARTITION_ROWS = 262_144
"""Rows of a partition; it ends with the first episode that ends after so many."""
_MANY_ROWS = 20_000_000
"""Rows whose keys are worth the start of workers."""
_CHUNKS_AT_ONCE = 64
"""Keys of so many chunks are held before they are joined; each may be some megabytes."""


@dataclass(frozen=True, eq=False)
class LazyDataset:
    """Rows of files, read partition by partition; `open` makes it.

    Iterating gives each partition as a `Dataset`. The column ``source_row`` of these counts the
    rows of all files, also those that are no transitions.
    """

    sources: tuple[Source, ...]
    names: FieldNames
    """Names of the fields, with the codes of actions filled in."""
    partitions: tuple[Span, ...]
    step: float | None
    """Median step of the clock, None without one."""
    kinds: Mapping[str, str]
    """Field, or ``column/NAME``, to its dtype in all files, where parts differ."""
    fields: tuple[str, ...]
    columns: tuple[str, ...]
    """Extra columns that all files have."""
    numbered: bool
    """Whether episodes are renumbered: ids are texts, absent, or used twice."""
    notes: tuple[str, ...] = ()
    domain: str | None = None
    verified: tuple[str | None, ...] = ()
    """Fingerprints of the files, compared with their hashes; None of those that have none."""

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
        names = dataclasses.asdict(self.names)
        if not self.names.needed:
            del names["needed"]  # where no cell is empty, as older versions have it
        content = names | {
            "files": [_stamp(each.path) for each in self.sources],
            "partitions": [list(each) for each in self.partitions],
            "kinds": dict(self.kinds),
            "step": None if self.step is None else float(self.step).hex(),
        }
        return hashing.of_settings(content)

    def read(self, number: int) -> Dataset:
        """Read a partition, of which there may be no usable row."""
        span = self.partitions[number]
        source, rows = next(self._pieces(span))
        try:
            raw = self._raw(span, keys_only=False)
            data = finish(raw, self.names, source.path, self.step, is_part=True)
        except DataError as error:
            first = source.block_start(rows.start)
            text = f"{error}; rows are counted from row {first:,} of {source.path} on"
            raise DataError(text if first else str(error)) from error
        columns = {name: array for name, array in data.columns.items() if name != SOURCE_ROW}
        row = data.columns[SOURCE_ROW] if len(data) < span.num_rows else np.arange(len(data))
        columns[SOURCE_ROW] = row.astype(np.int64) + span.start
        made = data.rows
        if made.episode is not None and self.numbered:
            made = dataclasses.replace(made, episode=made.episode + span.start)
        provenance = dataclasses.replace(data.provenance, domain=self.domain)
        return Dataset(made, columns, provenance if self.domain else data.provenance)

    def require_rows(self, num_rows: int) -> None:
        """Refuse data of which no partition has a usable row.

        Raises:
            DataError: ``num_rows``, the usable rows of all partitions, are none.
        """
        if not num_rows:
            raise DataError(
                f"{self.sources[0].path}: expected rows without missing cells and with a next "
                f"state, got none of these in {self.num_rows:,} rows; check the columns of obs and "
                "action, and the episode and time keys"
            )

    def keys(self, number: int) -> RawRows:
        """Read what is cheap to read: ids, times, flags and columns, of all rows of a partition."""
        return self._raw(self.partitions[number], keys_only=True)

    def to_dataset(self) -> Dataset:
        """Read all partitions into memory, as `puorl.load` reads one file with all the rows."""
        parts = list(self)
        made = Dataset.concatenate(parts)
        self.require_rows(len(made))
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
    workers: Workers | None = None,
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
        workers: Where the keys of 20 million rows or more are read; here by default.
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
        blocks = tuple(reader.blocks(place, searched(given)))
        first = sources[-1].first + sources[-1].num_rows if sources else 0
        if blocks:
            sources.append(Source(place, reader.__name__, blocks, first, number=len(sources)))
    if not sources:
        raise DataError(f"{path}: expected at least one row, found none")
    index, own = Index(), list[Source]()
    total = sum(each.num_rows for each in sources)
    read = partial(_read_keys, sources, searched(given), keys_only=how == "error")
    chunks = [(each.number, rows) for each in sources for rows in _chunks(each, partition_rows)]
    workers = workers if total >= _MANY_ROWS else None
    with progress_bar("reading keys", total=len(chunks), unit="chunks", show=progress) as advance:
        size = 1 if workers is None else _CHUNKS_AT_ONCE
        for first in range(0, len(chunks), size):
            some = chunks[first : first + size]
            found = call_all(read, some, workers, environment=ONE_THREAD, advance=advance)
            for (number, rows), chunk in zip(some, found, strict=True):
                if rows.start == 0:
                    sources[number] = index.begin(sources[number], chunk)
                    own += [sources[number]] * (chunk.about.provenance is not None)
                index.add(chunk, sources[number])
    with progress_bar("comparing hashes", total=len(own), unit="files", show=progress) as advance:
        hashes = call_all(_verify, own, workers, environment=ONE_THREAD, advance=advance)
    check_needed(given.needed_columns, index.known)
    verified = dict(zip((each.number for each in own), hashes, strict=True))
    if how == "error" and index.unnamed:
        listed = ", ".join(f"{name} {number:,}" for name, number in index.unnamed.items())
        raise DataError(
            f"missing: expected a value in every row of a needed column, got empty cells: "
            f"{listed}; repair them, leave out those rows with --missing drop (missing= in "
            "Python), or carry the last value of the episode on with hold"
        )
    for name, number in index.unnamed.items():
        if number == total:
            raise DataError(
                f"missing: expected a value in some rows of the needed column {name!r}, got "
                f"{total:,} empty cells in {total:,} rows; fill them, or name another column"
            )
    if given.label is not None:
        absent = absent_everywhere(index.absent)
        index.notes += check_absent(absent, "label", holds=may_hold(given.label, absent))
    if how == "hold" and "episode" not in index.fields:
        raise DataError("missing: expected episode ids to hold values within, and found none")
    return LazyDataset(
        sources=tuple(sources),
        names=dataclasses.replace(
            given, discrete_actions=index.codes(given, total), needed=tuple(index.unnamed)
        ),
        partitions=tuple(index.cut(total, partition_rows, given.gap)),
        step=index.median_step(),
        kinds=index.differing(),
        fields=tuple(index.fields),
        columns=tuple(index.columns),
        numbered=index.numbered,
        notes=tuple(index.notes),
        domain=domain,
        verified=tuple(verified.get(each.number) for each in sources),
    )


def write(lazy: LazyDataset, path: Path, *, format: str | None = None, force: bool = False) -> Path:
    """Write a folder of Parquet files, one for each partition."""
    if format not in (None, "parquet") or path.suffix:
        raise ConfigError(
            f"{path}: expected the name of a folder of Parquet files, without a suffix, for data "
            "that is read in partitions"
        )
    with atomic_path(path, force=force, marker=FIRST_PART) as part:
        part.mkdir()
        for number, data in enumerate(lazy):
            if len(data):
                save(data, part / f"part-{number:06d}.parquet")
        lazy.require_rows(len(list(part.iterdir())))
    return path


# --------------------------------------------------------------------------------- reading


def _read_rows(
    source: Source, names: FieldNames, rows: slice, kinds: Mapping[str, str], *, keys_only: bool
) -> RawRows:
    """Read some rows of a file, with dtypes that fit the other files."""
    one, other = source.block_of(rows.start), source.block_of(rows.stop - 1)
    before = source.block_start(rows.start)
    reader, options = import_module(source.module), {}
    if source.module.endswith(".csv"):
        options["as_text"] = [name.removeprefix("column/") for name in kinds if kinds[name] == "U"]
    chosen = source.blocks[one : other + 1]
    raw: RawRows = reader.read_blocks(source.path, names, chosen, keys_only=keys_only, **options)
    part = slice(rows.start - before, rows.stop - before)
    raw.arrays = {k: _cast(a[part] if len(a) else a, kinds.get(k)) for k, a in raw.arrays.items()}
    raw.columns = {k: _cast(a[part], kinds.get(f"column/{k}")) for k, a in raw.columns.items()}
    raw.lost = None if raw.lost is None else raw.lost[part]
    raw.note_unnamed(names.needed_columns)
    if kinds.get("episode") == "U" and "episode" in raw.keys:
        raw.columns.setdefault(raw.keys["episode"], raw.arrays["episode"])
    return raw


def _read_keys(
    sources: Sequence[Source], names: FieldNames, chunk: tuple[int, slice], *, keys_only: bool
) -> ChunkKeys:
    """Read the keys of a chunk, which is the number of a file and rows of it."""
    source, rows = sources[chunk[0]], chunk[1]
    raw = _read_rows(source, names, rows, {}, keys_only=keys_only)
    return ChunkKeys.of(raw, source.first + rows.start, names.label)


def _verify(source: Source) -> str | None:
    """Compare a file that puorl wrote with its hash; return the fingerprint of its rows."""
    return import_module(source.module).verify(source.path)


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
    unnamed = dict.fromkeys(k for p in pieces for k in p.unnamed)
    made.unnamed = {k: is_empty(made.columns[k]) for k in unnamed if k in made.columns}
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
    twice, count = next(iter(Counter(found).most_common(1)), ("", 0))
    if count > 1:
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
    place, _, options = rest.partition("?")
    user = "".join(place.partition("/")[0].rpartition("@")[:2])  # such as anonymous@
    return [f"{scheme}://{user}{name}" + (f"?{options}" if options else "") for name in kept]


def reader_at(place: str, format: str | None = None) -> Any:
    """Return the module that reads a file in parts; at an address only Parquet is read."""
    if "://" in place:
        return import_module("puorl.data.parquet")
    reader = reader_of(Path(place), format)
    if not hasattr(reader, "blocks"):
        raise DataError(
            f"{place}: expected Parquet, CSV, HDF5 or Minari, which can be read in parts; convert "
            "it first with puorl export"
        )
    return reader


def _stamp(path: str) -> list[Any]:
    """Return what changes when a file is changed."""
    if "://" in path:
        system, place = reader_at(path).file_system(path)
        found = system.get_file_info(place)
        return [path, found.size, found.mtime_ns]
    status = os.stat(path)
    return [os.path.abspath(path), status.st_size, status.st_mtime_ns]
