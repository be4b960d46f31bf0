"""Parquet and Arrow files, Parquet files that puorl writes, and tables in memory (DataFrames).

Arrow columns become NumPy arrays as CSV columns do: a null is NaN among numbers and flags and ""
among text; dates, times and stamps become seconds. Files that puorl writes have a column for each
number, under its name in the source where it has one, and a record in the schema, from which they
are restored exactly.
"""

import json
import os
import zlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from puorl.core import hashing
from puorl.core.errors import DataError, require
from puorl.core.formatting import code_values
from puorl.core.resources import require_readable
from puorl.data.actions import base_name
from puorl.data.columns import Claims, claim, named, require_distinct, seconds, typed
from puorl.data.dataset import Dataset
from puorl.data.formats import FRAME
from puorl.data.transitions import MATRICES, Provenance
from puorl.data.validate import FIELDS, Block, FieldNames, RawRows, fingerprint, reading

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_KEY = b"puorl"
_CHECKSUM = b"puorl.crc32"
_REPAIR = (
    f"take another copy; if it was changed on purpose, remove the schema entry {_KEY.decode()!r} "
    "to read it as any other table"
)
_VERSION = 1
_BASES = {"obs": "obs", "action": "act"}
_CLASH = "column/"
_PLAIN_DTYPES = "biufU"
_MAY_BE_UNKNOWN = ("next_obs", "next_action")
_VALUES = ("obs", "reward", *_MAY_BE_UNKNOWN)
"""Fields that say nothing about the order of rows."""
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_EXACT_IN_FLOAT = 2**53
_READ_AHEAD = 2**24
"""Bytes of columns that are read together."""
_ARROW, _ARROW_MAGIC = (".arrow", ".feather"), b"ARROW1"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def read(path: Path, names: FieldNames) -> RawRows:
    """Read a Parquet file, or an Arrow file as Hugging Face's datasets and Feather write it."""
    if path.suffix.lower() in _ARROW:
        return _read_arrow(path, names)
    parquet = require("pyarrow.parquet", extra="parquet", purpose="reading Parquet files")
    with (
        reading(path, "Parquet file", "check that the file is whole"),
        parquet.ParquetFile(path, page_checksum_verification=True) as file,
    ):
        _check_record(file, str(path))
        return _rows(file, names, str(path))


def blocks(path: str, names: FieldNames) -> list[Block]:
    """List the row groups of a Parquet file, which may be at an address such as ``s3://``."""
    del names
    with reading(path, "Parquet file", "check that the file is whole"), _opened(path) as file:
        found = file.metadata
        _check_record(file, path)
        sizes = [found.row_group(i).num_rows for i in range(found.num_row_groups)]
        return [Block(size, i) for i, size in enumerate(sizes) if size]


def read_blocks(
    path: str, names: FieldNames, chosen: Sequence[Block], *, keys_only: bool = False
) -> RawRows:
    """Read row groups; with ``keys_only`` no matrices of several columns and no rewards."""
    with reading(path, "Parquet file", "check that the file is whole"), _opened(path) as file:
        return _rows(
            _RowGroups(file, [each.place for each in chosen], path), names, path, keys_only
        )


def verify(path: str) -> str | None:
    """Compare a file that puorl wrote with its hash, some rows at a time.

    Page checksums alone do not cover the headers of pages.

    Returns:
        The fingerprint of its rows; None for a file of other origin.
    """
    with reading(path, "Parquet file", "check that the file is whole"), _opened(path) as file:
        schema, num_rows = file.schema_arrow, file.metadata.num_rows
        stored = _stored(schema.metadata or {}, path)
        if stored is None:
            return None
        claims, origin, restored = _own(stored, schema.names, FieldNames(), num_rows, path)
        groups = [_RowGroups(file, [i], path) for i in range(file.metadata.num_row_groups)]

        def field(name: str, group: _RowGroups) -> np.ndarray:
            rows, columns = RawRows(format="parquet", arrays={}), claims.fields[name]
            _add_field(_Columns(group, columns), name, columns, rows, path, FieldNames())
            return rows.arrays[name]

        def column(stored_name: str, dtype: np.dtype, group: _RowGroups) -> np.ndarray:
            array = _plain_values(_Columns(group, [stored_name])[stored_name])
            return _restored(array, dtype, stored_name, path)

        def pieces(read: Callable[[_RowGroups], np.ndarray], *width: int) -> hashing.Pieces:
            return hashing.Pieces((num_rows, *width), lambda: map(read, groups))

        fields = {
            name: pieces(partial(field, name), *([len(columns)] if name in MATRICES else []))
            for name, columns in claims.fields.items()
        }
        columns = {
            name: pieces(partial(column, stored_name, dtype))
            for stored_name, (name, dtype) in restored.items()
        }
        found = fingerprint(fields, columns, origin.action_codes)
        hashing.check(path, stored["fingerprint"], found, repair=_REPAIR)
        return found


def _opened(path: str) -> Any:
    parquet = require("pyarrow.parquet", extra="parquet", purpose="reading Parquet files")
    if "://" not in path:
        return parquet.ParquetFile(path, page_checksum_verification=True)
    system, place = file_system(path)
    source = system.open_input_file(place)
    return parquet.ParquetFile(source, page_checksum_verification=True)


def file_system(address: str) -> tuple[Any, str]:
    """Return pyarrow's file system of an address such as ``s3://bucket/rows``, and its path."""
    fs = require("pyarrow.fs", extra="parquet", purpose="reading from an object store")
    with reading(address, "address", "check the name, and the settings of the object store"):
        return fs.FileSystem.from_uri(address)


def fingerprint_of_parts(folder: Path) -> str:
    """Hash the fingerprints of the files of a folder, in the order of their names."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        with reading(path, "Parquet file", "check that the file is whole"), _opened(str(path)) as f:
            found.append((_stored(f.schema_arrow.metadata or {}, str(path)) or {})["fingerprint"])
    return hashing.of_settings({"parts": found})


def hive_columns(path: str) -> dict[str, str]:
    """Return the columns that a path names, as in ``robot=A7/2024=1/part-0.parquet``.

    >>> hive_columns("logs/robot=A7/day=2/part-0.parquet")
    {'robot': 'A7', 'day': '2'}
    """
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    found = {name: unquote(value) for name, equals, value in pairs if name and equals}
    return {name: "" if value == _HIVE_NULL else value for name, value in found.items()}


def _read_arrow(path: Path, names: FieldNames) -> RawRows:
    ipc = require("pyarrow.ipc", extra="parquet", purpose="reading Arrow files")
    with reading(path, "Arrow file", "check that the file is whole"), open(path, "rb") as file:
        is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        file.seek(0)
        table = (ipc.open_file if is_file else ipc.open_stream)(file).read_all()
        # puorl writes files; streams are of Hugging Face's datasets, which may keep a stale record.
        table = table if is_file else table.replace_schema_metadata(None)
        return _rows(_InMemory(table), names, str(path))


def read_frame(frame: Any, names: FieldNames) -> RawRows:
    """Read a DataFrame of pandas or polars, an Arrow table, or any other Arrow stream."""
    pa = require("pyarrow", extra="parquet", purpose="reading DataFrames")
    with reading(FRAME, "table", "convert columns of objects to numbers or text"):
        rows = _rows(_InMemory(pa.table(frame)), names, FRAME)
    rows.format = "frame"
    return rows


def to_table(dataset: Dataset) -> Any:
    """Return all fields and columns as an Arrow table, under their names in the source."""
    pa = require("pyarrow", extra="parquet", purpose="making tables")
    codes, held = dataset.action_codes, {}
    names = _field_names(dataset)
    for field, array in dataset.rows.arrays().items():
        if codes is not None and "action" in field:
            base = base_name(dataset.provenance.action_names, codes)
            known = np.isfinite(array).all(axis=1)
            values = np.array(code_values(codes))[array.argmax(axis=1)].tolist()
            held[_free("next_" * (field != "action") + base, held)] = pa.array(values, mask=~known)
            continue
        for name, column in zip(names[field], array.T if array.ndim == 2 else [array], strict=True):
            held[_free(name, held)] = pa.array(np.ascontiguousarray(column))
    for name, array in dataset.columns.items():
        held[_free(name, held)] = _stored_column(pa, name, array)
    return pa.table(held)


def _field_names(dataset: Dataset) -> dict[str, list[str]]:
    """Name the columns of all fields: as in the source where its names are known."""
    given, arrays = dataset.provenance, dataset.rows.arrays()
    found = {field: [field] for field, array in arrays.items() if array.ndim == 1}
    taken = set(found)
    for field in (each for each in arrays if each not in found):
        base, width = field.removeprefix("next_"), arrays[field].shape[1]
        known = given.obs_names if base == "obs" else given.action_names
        plain = [f"{_BASES[base]}_{i}" for i in range(width)]
        found[field] = []
        for name in known if len(known) == width else plain:
            found[field].append(_free("next_" * (field != base) + name, taken))
            taken.add(found[field][-1])
    return {field: found[field] for field in arrays}


def _free(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken."""
    while name in taken:
        name = _CLASH + name
    return name


def write(dataset: Dataset, path: Path) -> None:
    """Write a Parquet or Arrow file that `read` restores exactly."""
    pa = require("pyarrow", extra="parquet", purpose="writing Parquet files")
    parquet = require("pyarrow.parquet", extra="parquet", purpose="writing Parquet files")
    fields, held = _field_names(dataset), {}
    for field, array in dataset.rows.arrays().items():
        matrix = array if array.ndim == 2 else array[:, None]
        held |= {name: pa.array(matrix[:, i]) for i, name in enumerate(fields[field])}
    columns = {}
    for name, array in dataset.columns.items():
        stored = name
        while stored in held or (stored != name and stored in dataset.columns):
            stored = _CLASH + stored
        held[stored] = _stored_column(pa, name, array)
        columns[name] = {"stored": stored, "dtype": array.dtype.str}
    content = {
        "version": _VERSION,
        "num_rows": len(dataset),
        "fingerprint": dataset.fingerprint,
        "fields": fields,
        "columns": columns,
        "provenance": dataset.provenance.to_json(),
    }
    text = json.dumps(content).encode()
    schema = pa.schema(
        [(name, array.type) for name, array in held.items()],
        metadata={_KEY: text, _CHECKSUM: str(zlib.crc32(text)).encode()},
    )
    table = pa.Table.from_arrays(list(held.values()), schema=schema)
    if path.suffix.lower() in _ARROW:
        ipc = require("pyarrow.ipc", extra="parquet", purpose="writing Arrow files")
        with ipc.new_file(str(path), schema) as file:
            file.write_table(table)
        return
    # Only for text: a dictionary of floats would merge NaNs of different bits.
    texts = [c["stored"] for c in columns.values() if np.dtype(c["dtype"]).kind == "U"]
    parquet.write_table(
        table, path, compression="zstd", use_dictionary=texts, write_page_checksum=True
    )


def _stored_column(pa: Any, name: str, array: np.ndarray) -> Any:
    kind = array.dtype.kind
    if kind not in _PLAIN_DTYPES or array.dtype == np.longdouble or not array.dtype.isnative:
        raise DataError(
            f"column {name}: dtype {array.dtype} cannot be held in Parquet; convert it first"
        )
    name.encode()  # fails here, not inside pyarrow
    return pa.array(array.tolist(), pa.string()) if kind == "U" else pa.array(array)


class _RowGroups:
    """Some row groups of a file, read like a file, with the columns that its path names."""

    def __init__(self, file: "ParquetFile", groups: list[int], path: str) -> None:
        self._file, self._groups = file, groups
        self._pa = require("pyarrow", extra="parquet", purpose="reading Parquet files")
        self.num_rows = sum(file.metadata.row_group(i).num_rows for i in groups)
        self.metadata, own = self, file.schema_arrow
        named = hive_columns(path).items()
        one = {name: self._pa.array(typed([text])) for name, text in named}
        self._hive = {name: value for name, value in one.items() if name not in own.names}
        self.schema_arrow = own
        for name, value in self._hive.items():
            self.schema_arrow = self.schema_arrow.append(self._pa.field(name, value.type))

    def read(self, columns: list[str]) -> Any:
        stored = [name for name in columns if name not in self._hive]
        table = self._file.read_row_groups(self._groups, columns=stored, use_threads=False)
        for name in columns:
            if name in self._hive:
                values = self._pa.repeat(self._hive[name][0], self.num_rows)
                table = table.append_column(name, values)
        return table


class _InMemory:
    """A table in memory, read like a file."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.schema_arrow, self.metadata = table.schema, table  # both have num_rows

    def read(self, columns: list[str]) -> Any:
        return self._table.select(columns)


def _rows(
    file: "ParquetFile | _InMemory | _RowGroups",
    names: FieldNames,
    source: str,
    keys_only: bool = False,
) -> RawRows:
    schema, is_part = file.schema_arrow, isinstance(file, _RowGroups)
    header = list(schema.names)
    require_distinct(header, source)
    num_rows = file.metadata.num_rows
    require_readable(num_rows * len(header), f"{source}: {num_rows:,} rows")  # a byte a cell
    stored = _stored(schema.metadata or {}, source)
    is_named = any(getattr(names, field) is not None for field in FIELDS)
    if stored is not None and is_part:
        stored["num_rows"] = num_rows
    elif stored is not None and is_named:
        _rows(file, FieldNames(), source)  # under their own names, to compare the hash
    if stored is None:
        claims, provenance, restored = claim(header, names, source), None, {}
    else:
        claims, provenance, restored = _own(stored, header, names, num_rows, source)
    rows = RawRows(format="parquet", arrays={}, provenance=provenance, notes=list(claims.notes))
    rows.keys = {f: names[0] for f, names in claims.fields.items() if f not in MATRICES}
    plain, skipped = [], []
    for name in claims.rest(header):
        kind = schema.field(name).type
        (plain if _is_plain(kind) else skipped).append(name)
    found = claims.fields.items()
    if keys_only:
        unread = [f for f, c in found if f in _VALUES or (f == "action" and len(c) > 1)]
        rows.arrays = {f: _without_rows(schema, claims.fields[f]) for f in unread}
        rows.obs_names, rows.action_names = claims.fields["obs"], claims.fields["action"]
        found = [(f, c) for f, c in found if f not in unread]
    content = _Columns(file, [c for _, columns in found for c in columns] + plain)
    for field, columns in found:
        _add_field(content, field, columns, rows, source, names)
    for name in plain:
        own_name, dtype = restored.get(name, (name, None))
        array = _plain_values(content[name])
        rows.columns[own_name] = array if dtype is None else _restored(array, dtype, name, source)
    rows.note_skipped([f"{name} ({schema.field(name).type})" for name in skipped])
    if stored is not None and not is_named and not is_part:
        # Page checksums do not cover the headers of pages.
        hashing.check(source, stored["fingerprint"], rows.fingerprint, repair=_REPAIR)
    return rows


def _without_rows(schema: Any, columns: Sequence[str]) -> np.ndarray:
    """Return an empty array of the dtype that the columns have together."""
    kinds = [getattr(each := schema.field(name).type, "value_type", each) for name in columns]
    plain = [np.dtype(k.to_pandas_dtype()) for k in kinds]
    plain = [np.dtype(float) if kind.hasobject else kind for kind in plain]  # such as decimals
    return np.empty((0, len(columns)), np.result_type(*plain))


class _Columns:
    """Columns of a file, some read ahead: every single read looks at all columns of the file."""

    def __init__(self, file: "ParquetFile | _InMemory | _RowGroups", order: Sequence[str]) -> None:
        self._file, self._order = file, order
        self._place = {name: i for i, name in enumerate(order)}
        self._ahead: dict[str, Any] = {}
        self._size = max(1, _READ_AHEAD // (8 * max(1, file.metadata.num_rows)))

    def __getitem__(self, name: str) -> Any:
        """Return a column as an Arrow array."""
        if name not in self._ahead:
            start = self._place[name]
            block = self._order[start : start + self._size]
            # Reading "a" also returns "a.b", which pyarrow regards as a part of it.
            table = self._file.read(columns=list(block))
            self._ahead = {each: table.column(each) for each in block}
        return _decoded(self._ahead.pop(name))


def _decoded(column: Any) -> Any:
    if not _types().is_dictionary(column.type):
        return column
    if not _types().is_string_view(column.type.value_type):
        return column.cast(column.type.value_type)
    pa = require("pyarrow", extra="parquet", purpose="reading Parquet files")
    # Arrow has no such cast for views, as which polars stores its categories.
    pieces = [chunk.dictionary.cast("string").take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(pieces, "string")


def _add_field(
    content: _Columns,
    field: str,
    columns: Sequence[str],
    rows: RawRows,
    source: str,
    names: FieldNames,
) -> None:
    if field in MATRICES:
        _add_matrix(content, field, columns, rows, source)
        return
    name = columns[0]
    where, values = f"{source}: column {name} ({field})", content[name]
    if field == "reward":
        rows.arrays[field] = _numbers(values, where)
        _note_empty(rows, name, field, values, rows.arrays[field])
        return
    if not _is_plain(values.type):
        raise DataError(f"{where}: expected one plain value a row, got {values.type}")
    array = _plain_values(values)
    if field == "time" and (_types().is_timestamp(values.type) or _types().is_date(values.type)):
        rows.clock = "dates"
    if values.null_count:
        is_null = values.is_null().to_numpy()
        _note_empty(rows, name, field, values, np.where(is_null, np.nan, 0.0))
        if field == "episode":
            rows.lost = is_null
            array = np.where(is_null, 0, array) if array.dtype.kind == "f" else array
    if field == "time" and array.dtype.kind == "U":
        texts = array.tolist()
        array, wrong, notes = seconds(texts, where, names.time_zone, names.time_format)
        rows.notes, rows.clock = [*rows.notes, *notes], "dates"
        if wrong:
            text = f"column {name} ({field}): row {wrong[0]}: expected a number or a stamp"
            rows.note_bad(name, len(wrong), wrong[0], f"{text}, got {texts[wrong[0]][:40]!r}")
    if field == "episode" and array.dtype.kind == "U":
        rows.columns[name] = array
    rows.arrays[field] = array


def _add_matrix(
    content: _Columns, field: str, columns: Sequence[str], rows: RawRows, source: str
) -> None:
    blocks, labels = [], []
    for name in columns:
        where = f"{source}: column {name} ({field})"
        values = content[name]
        if "action" in field and len(columns) == 1 and _is_text(values.type):
            block = _text(values)  # codes
        else:
            block = _numbers(values, where)
        if field not in _MAY_BE_UNKNOWN:
            _note_empty(rows, name, field, values, block)
        if block.ndim == 2 and len(columns) > 1:
            raise DataError(
                f"{where}: expected one number a row, as in the other columns, got a list; "
                f"name one list column or several plain ones for {field}"
            )
        labels += [name] if block.ndim == 1 else [f"{name}[{i}]" for i in range(block.shape[1])]
        blocks.append(block)
    rows.arrays[field] = blocks[0] if blocks[0].ndim == 2 else np.column_stack(blocks)
    if field in ("obs", "action"):
        setattr(rows, f"{field}_names", tuple(labels))


def _has_record(metadata: Mapping[bytes, bytes]) -> bool:
    return _KEY in metadata or _CHECKSUM in metadata


def _check_record(file: "ParquetFile", path: str) -> None:
    """Refuse a file of this machine whose footer names puorl's record where none can be read."""
    if _has_record(file.schema_arrow.metadata or {}) or "://" in path:
        return
    if _CHECKSUM in _footer(path):
        raise DataError(
            f"{path}: puorl's entries in the schema cannot be read; the file is damaged; "
            "take another copy"
        )


def _footer(path: str) -> bytes:
    """Return the bytes with schema and metadata, which have no checksum in Parquet."""
    with open(path, "rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-min(8 + length, file.tell() + 4), os.SEEK_END)
        return file.read(length)


def _stored(metadata: Mapping[bytes, bytes], source: str) -> dict[str, Any] | None:
    """Return the record of `write` in the schema, or None for a file of other origin."""
    if not _has_record(metadata):
        return None
    text = metadata.get(_KEY, b"")
    if metadata.get(_CHECKSUM) != str(zlib.crc32(text)).encode():
        raise DataError(
            f"{source}: the entry {_KEY.decode()!r} does not fit its checksum; the file is damaged"
        )
    content = json.loads(text)
    if content.get("version") != _VERSION:
        raise DataError(
            f"{source}: expected puorl's Parquet version {_VERSION}, got {content.get('version')}; "
            "read it with the puorl that wrote it"
        )
    return content


def _own(
    stored: Mapping[str, Any], header: Sequence[str], names: FieldNames, num_rows: int, source: str
) -> tuple[Claims, Provenance, dict[str, tuple[str, np.dtype]]]:
    """Return fields, provenance and extra columns of a file that `write` made."""
    restored = {
        entry["stored"]: (name, np.dtype(entry["dtype"]))
        for name, entry in stored["columns"].items()
    }
    ours = [*restored, *(name for columns in stored["fields"].values() for name in columns)]
    lost = [name for name in ours if name not in header]
    if lost or num_rows != stored["num_rows"]:
        missing = f" without {', '.join(lost[:3])}" if lost else ""
        raise DataError(
            f"{source}: expected the columns and {stored['num_rows']} rows that puorl wrote, got "
            f"{num_rows} rows{missing}; {_REPAIR}"
        )
    chosen = named(header, names, source)
    taken = {name for columns in chosen.values() for name in columns}
    fields = {f: tuple(c) for f, c in stored["fields"].items() if not taken & set(c)} | chosen
    provenance = Provenance.from_json(stored["provenance"], source=source)
    for field in ("obs", "action"):
        if field not in chosen or (field == "action" and provenance.action_codes is not None):
            continue
        provenance = replace(provenance, **{f"{field}_names": tuple(chosen[field])})
        own, after = stored["fields"][field], f"next_{field}"
        if after in fields and after not in chosen and set(chosen[field]) <= set(own):
            # The next values of the chosen columns alone.
            following = dict(zip(own, stored["fields"][after], strict=True))
            fields[after] = tuple(following[name] for name in chosen[field])
    claims = Claims({field: fields[field] for field in FIELDS if field in fields})
    return claims, provenance, restored


def _restored(array: np.ndarray, dtype: np.dtype, name: str, source: str) -> np.ndarray:
    # Text is read as wide as its longest value; other columns must be as written.
    same = dtype.kind == "U" == array.dtype.kind and array.dtype.itemsize <= dtype.itemsize
    if not same and array.dtype != dtype:
        raise DataError(
            f"{source}: column {name}: expected {dtype}, got {array.dtype}; the file is damaged"
        )
    return array.astype(dtype, copy=False)


def _is_plain(kind: Any) -> bool:
    """Return whether a column of this Arrow type has one number, flag, text or time a row."""
    types = _types()
    if types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    return _is_numeric(kind) or _is_text(kind) or types.is_temporal(kind) or types.is_null(kind)


def _plain_values(column: Any) -> np.ndarray:
    """(n,) bool, int, float or text. Return the values of a plain column."""
    types, kind = _types(), column.type
    if _is_text(kind):
        return _text(column)
    if types.is_temporal(kind):
        return _seconds(column)
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if types.is_decimal(kind):
        column = column.cast("string").cast("float64")  # Arrow's direct cast misses the last digit
    elif column.null_count and types.is_integer(kind):
        known = column.drop_null().to_numpy()
        if len(known) and max(-int(known.min()), int(known.max())) > _EXACT_IN_FLOAT:
            return _text(column.cast("string"))  # ids, which neither NaN nor rounding can represent
        column = column.cast("float64", safe=False)
    elif column.null_count and types.is_boolean(kind):
        column = column.cast("int8").cast("float64")
    return column.to_numpy()


def _numbers(column: Any, where: str) -> np.ndarray:
    """Return a column as (n,) numbers, or (n, k) for a list column; null is NaN."""
    types, kind = _types(), column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _matrix(column, where)
    if not _is_numeric(kind):
        row, value = next(((i, v.as_py()) for i, v in enumerate(column) if v.is_valid), (0, None))
        raise DataError(
            f"{where}: expected numbers, got {kind}, in row {row} {str(value)[:40]!r}; "
            "name other columns, or convert it"
        )
    values = _plain_values(column)
    if values.dtype.kind == "U":
        raise DataError(f"{where}: whole numbers above 2^53 with empty cells cannot be held")
    return values


def _note_empty(rows: RawRows, name: str, field: str, column: Any, values: np.ndarray) -> None:
    """Count the cells that are null, which are NaN among the values, also inside lists."""
    if values.dtype.kind != "f" or not (column.null_count or values.ndim == 2):
        return
    is_bad = np.isnan(values).reshape(len(values), -1)
    if is_bad.any():
        row = int(np.argmax(is_bad.any(axis=1)))
        text = f"column {name} ({field}): row {row} is empty"
        rows.note_bad(name, int(is_bad.sum()), row, text)


def _matrix(column: Any, where: str) -> np.ndarray:
    compute = require("pyarrow.compute", extra="parquet", purpose="reading Parquet files")
    filled = np.flatnonzero(column.is_valid().to_numpy())
    lengths = compute.list_value_length(column.drop_null()).to_numpy()
    odd = np.flatnonzero(lengths != lengths[0]) if len(lengths) else lengths
    if len(odd):
        raise DataError(
            f"{where}: expected lists of equal length, got {lengths[0]} values in row {filled[0]} "
            f"and {lengths[odd[0]]} in row {filled[odd[0]]}"
        )
    flat = _decoded(compute.list_flatten(column))
    inner = _numbers(flat, f"{where}, list values")
    if inner.ndim != 1:
        raise DataError(f"{where}: expected lists of numbers, got {column.type}; flatten it first")
    width = int(lengths[0]) if len(lengths) else 1
    if len(filled) == len(column):
        return inner.reshape(len(column), width)
    matrix = np.full((len(column), width), np.nan, np.result_type(inner, np.float32))
    matrix[filled] = inner.reshape(len(filled), width)
    return matrix


def _text(column: Any) -> np.ndarray:
    codes = column.dictionary_encode().combine_chunks()
    # The last entry is for null.
    values = np.array([*codes.dictionary.to_pylist(), ""], dtype=str)
    return values[codes.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)]


def _seconds(column: Any) -> np.ndarray:
    types, kind = _types(), column.type
    if types.is_date(kind):
        column = column.cast("timestamp[ms]")
        kind = column.type
    scale = _PER_SECOND[kind.unit]
    ticks = column.cast("int32" if types.is_time32(kind) else "int64")
    whole = ticks.fill_null(0).to_numpy()
    # Whole seconds separately: the ticks of a nanosecond clock exceed float64's 2^53.
    result = whole // scale + (whole % scale) / scale
    result[ticks.is_null().to_numpy()] = np.nan
    return result


def _is_numeric(kind: Any) -> bool:
    types = _types()
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(is_one(kind) for is_one in numeric)


def _is_text(kind: Any) -> bool:
    types = _types()
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


@cache
def _types() -> Any:
    return require("pyarrow.types", extra="parquet", purpose="reading Parquet files")
