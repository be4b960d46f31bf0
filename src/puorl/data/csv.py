"""CSV and TSV, also compressed: a header line with column names, then one row a line.

NumPy's tokenizer reads blocks of lines. Only a block that it refuses is parsed again cell by cell;
cells that are missing or no numbers are counted and become NaN.
"""

import codecs
import contextlib
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from puorl.core.errors import ConfigError, DataError, require
from puorl.core.files import lines_of
from puorl.core.resources import require_readable
from puorl.data import columns as cells
from puorl.data.columns import Claims, has_decimal_comma, is_number, require_distinct
from puorl.data.transitions import MATRICES
from puorl.data.validate import Block, FieldNames, RawRows

_DELIMITERS = (",", ";", "\t", "|")
_EXCEL = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""First line that gives Excel the delimiter."""
_UNNAMED = "unnamed_"
_BLOCK_LINES = 20_000
_BLOCK_CHARACTERS = 2**26
"""Largest block; one of long lines has fewer lines."""
_NUL = "\0"  # refused in files, so it can separate the cells of a column in one text
_NUMERIC = (*MATRICES, "reward")
_MAY_BE_EMPTY = ("next_obs", "next_action")
_LOOKED_AT = 1_000
"""Rows that decide whether actions are texts."""


@dataclass(frozen=True)
class _Block:
    lines: list[str]
    first_line: int
    """Line of the file, from 1, on which the block starts."""
    first_row: int
    """Rows before the block."""


@dataclass
class _Table:
    """Structure of the file, and the cells read so far."""

    source: str
    delimiter: str
    header: list[str]
    claims: Claims
    decimal: str = "."
    numbers: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Numeric field to its blocks, each (rows, columns)."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Other column to its blocks, each a text of cells joined by NUL."""
    num_rows: int = 0
    coded: bool = False
    """Whether the action is one column of texts."""
    rows: RawRows = field(default_factory=lambda: RawRows(format="csv", arrays={}))

    @property
    def numeric(self) -> dict[str, tuple[str, ...]]:
        texts = ("action", "next_action") if self.coded else ()
        fields = self.claims.fields.items()
        return {f: names for f, names in fields if f in _NUMERIC and f not in texts}


def read(path: Path, names: FieldNames) -> RawRows:
    """Read a CSV or TSV file; the header determines the delimiter."""
    with reading_text(path, "CSV file"), open_text(path, names.encoding) as text:
        delimiter, header, num_lines = read_header(text.lines, str(path))
        rows = read_table(
            text.lines, delimiter, header, num_lines + 1, names, str(path), text.fraction
        )
    unnamed = [name for name in header if name.startswith(_UNNAMED) and name in rows.columns]
    if unnamed:
        rows.notes.append(f"columns without a name in the header: {', '.join(unnamed)}")
    return rows


def blocks(path: str, names: FieldNames) -> list[Block]:
    """Find the places in a text table at which parts of it can be read."""
    encoding = _encoding(path, names)
    found: list[Block] = []
    with reading_text(Path(path), "CSV file"), open_text(Path(path), names.encoding) as text:
        with open(path, "rb") as raw:
            is_marked = encoding == "utf-8" and raw.read(3) == codecs.BOM_UTF8
        counted = _Counted(text.lines, encoding, len(codecs.BOM_UTF8) * is_marked)
        delimiter, header, num_lines = read_header(counted, path)
        table = _Table(path, delimiter, header, Claims({}))
        line, place = num_lines + 1, counted.num_bytes
        for block in _blocks(counted, line, table):
            found.append(Block(_num_rows(block, delimiter), place, block.first_line))
            place = counted.num_bytes
    return [block for block in found if block.num_rows]


def read_blocks(
    path: str,
    names: FieldNames,
    chosen: Sequence[Block],
    *,
    keys_only: bool = False,
    as_text: Collection[str] = (),
) -> RawRows:
    """Read some rows of a text table: all columns, those of ``as_text`` as they are written."""
    del keys_only
    encoding, total = _encoding(path, names), sum(block.num_rows for block in chosen)
    with reading_text(Path(path), "CSV file"), open_text(Path(path), names.encoding) as text:
        delimiter, header, _ = read_header(text.lines, path)
    with reading_text(Path(path), "CSV file"), open(path, encoding=encoding, newline="") as file:
        file.seek(chosen[0].place)
        lines = lines_of(file, path)
        table = _Table(path, delimiter, header, Claims({}))
        several = islice(_blocks(lines, chosen[0].extent, table), len(chosen))
        mine = (line for block in several for line in block.lines)
        rows = read_table(
            mine, delimiter, header, chosen[0].extent, names, path, lambda: 1.0, as_text
        )
    if len(rows.arrays["obs"]) != total:
        raise DataError(
            f"{path}: expected {total:,} rows, as before; the file was changed meanwhile"
        )
    return rows


class _Counted:
    """Lines, and the bytes of those that were taken."""

    def __init__(self, lines: Iterator[str], encoding: str, start: int) -> None:
        self._lines, self._encoding, self.num_bytes = lines, encoding, start

    def __iter__(self) -> "_Counted":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.num_bytes += len(line) if line.isascii() else len(line.encode(self._encoding))
        return line


def _encoding(path: str, names: FieldNames) -> str:
    encoding = codecs.lookup(names.encoding or "utf-8").name.replace("utf-8-sig", "utf-8")
    if Path(path).suffix.lower() in (".gz", ".zst") or encoding.startswith(("utf-16", "utf-32")):
        raise DataError(
            f"{path}: expected a text table that can be read in parts, got one that is compressed "
            "or in UTF-16; unpack it as UTF-8, or store it as Parquet"
        )
    return encoding


def _num_rows(block: _Block, delimiter: str) -> int:
    if any('"' in line for line in block.lines):
        return sum(bool(row) for row in csv.reader(block.lines, delimiter=delimiter))
    return sum(bool(line.strip("\r\n")) for line in block.lines)


class Text(NamedTuple):
    """An open text file."""

    lines: Iterator[str]
    fraction: Callable[[], float]
    """The fraction of the file that has been read."""


@contextlib.contextmanager
def open_text(path: Path, encoding: str | None = None) -> Iterator[Text]:
    """Open a text file, which may be compressed (.gz, .zst), by lines of bounded length."""
    size = max(1, path.stat().st_size)
    with open(path, "rb") as raw, contextlib.ExitStack() as stack:
        source: Any = raw
        if path.suffix.lower() == ".gz":
            source = stack.enter_context(gzip.GzipFile(fileobj=raw))
        elif path.suffix.lower() == ".zst":
            arrow = require("pyarrow", extra="parquet", purpose="reading .zst files")
            source = stack.enter_context(arrow.input_stream(raw, compression="zstd"))
        try:
            file = io.TextIOWrapper(source, encoding or "utf-8-sig", newline="")
        except (LookupError, ValueError) as error:
            raise ConfigError(
                f"encoding: expected the name of a text encoding, such as latin-1 or utf-16, got "
                f"{encoding!r}"
            ) from error
        stack.enter_context(file)
        yield Text(lines_of(file, str(path)), lambda: max(1, raw.tell()) / size)


@contextlib.contextmanager
def reading_text(path: Path, kind: str) -> Iterator[None]:
    """Turn errors of the system, of the encoding and of damaged archives into a `DataError`."""
    try:
        yield
    except UnicodeDecodeError as error:
        byte = error.object[error.start : error.start + 1]
        known = "UTF-8" if error.encoding.startswith("utf-8") else error.encoding
        likely = "utf-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
        raise DataError(
            f"{path}: expected {known} text, got the byte {byte!r} ({error.reason}); save the file "
            f"as UTF-8, or name its encoding, such as --encoding {likely} (encoding= in Python)"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: expected a readable {kind}, got: {reason}") from error


def read_table(
    lines: Iterator[str],
    delimiter: str,
    header: list[str],
    first_line: int,
    names: FieldNames,
    source: str,
    fraction: Callable[[], float],
    as_text: Collection[str] | None = None,
) -> RawRows:
    """Read the rows of a table.

    Args:
        lines: Rows of the table, with quoted cells where needed.
        delimiter: Between cells.
        header: Column names.
        first_line: Number of the first of these lines in the file.
        names: Names that the user gave.
        source: The file; messages start with it.
        fraction: Returns the fraction of the file that has been read.
        as_text: For a part of a table: columns that hold text elsewhere in it.
    """
    require_distinct(header, source)
    table = _Table(source, delimiter, header, cells.claim(header, names, source), names.decimal)
    for block in _blocks(lines, first_line, table):
        if block.first_row == 0 and names.discrete_actions is not False:
            table.coded = _has_text_actions(block, table)
        _add(block, table)
        if block.first_row == 0:
            _check_size(table, fraction())
    fields = table.claims.fields
    arrays: dict[str, np.ndarray] = {}
    for name, columns in table.numeric.items():
        pieces = table.numbers.pop(name, [])
        matrix = np.concatenate(pieces) if pieces else np.empty((0, len(columns)))
        arrays[name] = matrix if name in MATRICES else matrix[:, 0]
    rows = table.rows
    rows.arrays = arrays
    rows.keys = {name: found[0] for name, found in fields.items() if name not in MATRICES}
    rows.obs_names, rows.action_names = fields["obs"], fields["action"]
    rows.notes = list(table.claims.notes)
    for name in ("terminal", "timeout", "episode", "time"):
        if name in fields:
            _add_single(name, fields[name][0], table, names, as_text)
    for name in ("action", "next_action"):
        if table.coded and name in fields:
            rows.arrays[name] = np.array(_cells(table, fields[name][0]), dtype=str)
    for name in table.claims.rest(header):
        found = _cells(table, name)
        if name in (as_text or ()):
            rows.columns[name] = np.array(found)
            continue
        array = cells.typed(found if table.decimal == "." else cells.with_points(found))
        rows.columns[name] = np.array(found) if array.dtype.kind == "U" else array
    return rows


def _has_text_actions(block: _Block, table: _Table) -> bool:
    """Look at the first rows: an action of one column with more texts than numbers is coded."""
    columns = table.claims.fields["action"]
    if len(columns) != 1:
        return False
    place, seen = table.header.index(columns[0]), []
    with contextlib.suppress(csv.Error):  # what cannot be read is explained later
        for line in islice(csv.reader(block.lines, delimiter=table.delimiter), _LOOKED_AT):
            seen += [line[place].strip()] if len(line) > place else []
    filled = [cell for cell in seen if cell]
    # A number with a decimal comma is no code: a message names the option for it.
    return 2 * sum(is_number(cell.replace(",", ".")) for cell in filled) < len(filled)


def _check_size(table: _Table, fraction: float) -> None:
    """Refuse a file whose numbers, extrapolated from the first block, exceed the free memory."""
    num_cells = sum(len(names) for names in table.numeric.values())
    num_rows = int(table.num_rows / fraction)
    require_readable(8 * num_cells * num_rows, f"{table.source}: about {num_rows:,} rows")


def read_header(lines: Iterator[str], source: str) -> tuple[str, list[str], int]:
    """Return the delimiter, the column names and the number of lines up to here."""
    first, skipped, named = next(lines, ""), 0, None
    while first and (not first.strip() or first.startswith("#") or _EXCEL.fullmatch(first)):
        named = _EXCEL.fullmatch(first) or named
        first, skipped = next(lines, ""), skipped + 1
    if _NUL in first:
        raise DataError(f"{source}: expected text, got a NUL byte in line 1; it is not a CSV file")
    try:
        delimiter = named[1] if named else max(_DELIMITERS, key=lambda d: _num_cells(first, d))
        reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(f"{source}: expected a header line, got: {error}") from error
    if not any(header):
        raise DataError(
            f"{source}: expected a first line with column names, got an empty one; add a header"
        )
    if any(_NUL in name for name in header):
        raise DataError(f"{source}: expected text, got a NUL byte in the header")
    # pandas leaves its index unnamed, and a sign at the end of every line makes a last column.
    header = [name or f"{_UNNAMED}{i}" for i, name in enumerate(header, 1)]
    if all(is_number(name) for name in header):
        raise DataError(
            f"{source}: expected column names in the first line, got only numbers "
            f"({', '.join(header[:3])}, ...); add a header"
        )
    return delimiter, header, skipped + reader.line_num


def _num_cells(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:  # a cell too long, as the whole line is with a wrong delimiter
        return 0


def _blocks(source: Iterator[str], line: int, table: _Table) -> Iterator[_Block]:
    """Yield the rest of the file in blocks of whole rows."""
    while lines := _next_lines(source):
        if any('"' in text for text in lines):
            _finish_last_row(lines, source, line, table)
        for i, text in enumerate(lines):
            if _NUL in text:
                raise DataError(
                    f"{table.source}: line {line + i}: expected text, got a NUL byte; "
                    "the file is damaged or not a CSV file"
                )
        if any(text.strip("\r\n") for text in lines):
            yield _Block(lines, line, table.num_rows)
        line += len(lines)


def _next_lines(source: Iterator[str]) -> list[str]:
    """Return the next lines, up to a number and a total length."""
    lines: list[str] = []
    length = 0
    for text in islice(source, _BLOCK_LINES):
        lines.append(text)
        length += len(text)
        if length > _BLOCK_CHARACTERS:
            break
    return lines


def _finish_last_row(lines: list[str], source: Iterator[str], line: int, table: _Table) -> None:
    """Add lines until a quoted cell at the end is closed."""
    more: list[str] = []

    def each_line() -> Iterator[str]:
        yield from lines
        for text in source:
            more.append(text)
            yield text

    reader = csv.reader(each_line(), delimiter=table.delimiter, strict=True)
    try:
        while reader.line_num < len(lines):
            next(reader)
    except csv.Error as error:
        raise DataError(
            f"{table.source}: line {line + max(reader.line_num - 1, 0)}: expected every quoted "
            f"cell to be closed, got: {error}; close the quote, or double it inside a quoted cell"
        ) from error
    lines += more


def _add(block: _Block, table: _Table) -> None:
    """Read one block into the table."""
    optional = {c for f in _MAY_BE_EMPTY for c in table.claims.fields.get(f, ())}
    numeric = [c for names in table.numeric.values() for c in names]
    strict: list[str] = []
    if table.decimal != ".":
        numeric = []  # all as text
    # Most blocks hold numbers only, or next states that were not recorded at an episode's end.
    for strict in (numeric, [c for c in numeric if c not in optional], []):
        try:
            record = _tokenized(block, table, strict)
            break
        except ValueError as error:
            if not strict:
                _explain(block, table, str(error))
    else:
        raise AssertionError("the last attempt either reads or explains")
    place = {name: i for i, name in enumerate(table.header)}
    parsed = set(strict)
    for name, columns in table.numeric.items():
        matrix = np.empty((len(record), len(columns)))
        for j, column in enumerate(columns):
            values = record[str(place.pop(column))]
            if column not in parsed:
                values = _numbers(values.tolist(), f"{column} ({name})", block, table)
            elif name not in _MAY_BE_EMPTY and np.isnan(values).any():
                _note_bad(
                    np.flatnonzero(np.isnan(values)), "NaN", f"{column} ({name})", block, table
                )
            matrix[:, j] = values
        table.numbers.setdefault(name, []).append(matrix)
    for name, i in place.items():
        table.texts.setdefault(name, []).append(_NUL.join(record[str(i)].tolist()))
    table.num_rows += len(record)


def _numbers(texts: list[str], column: str, block: _Block, table: _Table) -> np.ndarray:
    """(n,) float64. Parse cells; count those that are missing or no numbers, which become NaN."""
    may_be_empty = column.rpartition(" ")[2][1:-1] in _MAY_BE_EMPTY
    values, bad = np.full(len(texts), np.nan), []
    for i, cell in enumerate(texts if table.decimal == "." else cells.with_points(texts)):
        if is_number(cell):
            values[i] = float(cell)
        if np.isnan(values[i]) and not (may_be_empty and cell.strip().lower() in ("", "nan")):
            bad.append(i)
    if bad:
        _note_bad(bad, texts[bad[0]], column, block, table)
    return values


def _note_bad(
    bad: Sequence[int] | np.ndarray, first: str, column: str, block: _Block, table: _Table
) -> None:
    """Count bad cells of a column; ``first`` is the text of the first of them."""
    name, _, owner = column.rpartition(" ")
    row = block.first_row + int(bad[0])
    line = _lines_of_rows(block, table)[int(bad[0])]
    place = f"row {row} (line {line}), column {column}: "
    table.rows.note_bad(name, len(bad), row, place + _wrong(first, owner[1:-1]))


def _wrong(cell: str, owner: str) -> str:
    if not cell.strip():
        return "expected a number, got an empty cell"
    if has_decimal_comma(cell):
        return (
            f"expected a number with a decimal point, got {cell!r}; if that is its decimal comma, "
            "read it with --decimal , (decimal=',' in Python)"
        )
    return f"expected a number, got {cell[:40]!r} (or name other columns with {owner}=)"


def _lines_of_rows(block: _Block, table: _Table) -> list[int]:
    reader = csv.reader(block.lines, delimiter=table.delimiter)
    lines = []
    with contextlib.suppress(csv.Error):  # the tokenizer has read it: only a cell too long
        lines = [block.first_line + reader.line_num - 1 for line in reader if line]
    return lines + [block.first_line] * (len(block.lines) - len(lines))


def _tokenized(block: _Block, table: _Table, strict: Sequence[str]) -> np.ndarray:
    """(rows,) record array: float64 for the strict columns, text objects for the others."""
    kinds = {name: "f8" for name in strict}
    dtype = np.dtype([(str(i), kinds.get(name, "O")) for i, name in enumerate(table.header)])
    return np.loadtxt(
        block.lines, dtype, comments=None, delimiter=table.delimiter, quotechar='"', ndmin=1
    )


def _explain(block: _Block, table: _Table, reason: str) -> NoReturn:
    """Raise an error that names the first row which the tokenizer refused."""
    reader = csv.reader(block.lines, delimiter=table.delimiter)
    row = block.first_row
    try:
        for line in reader:
            if line and len(line) != len(table.header):
                raise DataError(
                    f"{table.source}: row {row} (line {block.first_line + reader.line_num - 1}): "
                    f"expected {len(table.header)} cells as in the header, found {len(line)}; "
                    f"cells that hold {table.delimiter!r} or a line break stand in quotes"
                )
            row += bool(line)
    except csv.Error as error:
        reason = str(error)
    raise DataError(
        f"{table.source}: expected CSV rows after line {block.first_line - 1}, got: {reason}"
    )


def _cells(table: _Table, name: str) -> list[str]:
    pieces = table.texts.pop(name, [])
    return _NUL.join(pieces).split(_NUL) if pieces else []


def _add_single(
    name: str, column: str, table: _Table, names: FieldNames, as_text: Collection[str] | None
) -> None:
    """Convert the column of a flag, the episode or the time."""
    rows, found = table.rows, _cells(table, column)
    if name == "time" and table.decimal != ".":
        found = cells.with_points(found)
    where = f"{table.source}: column {column} ({name})"
    is_empty = np.fromiter((not cell.strip() for cell in found), bool, len(found))
    if is_empty.any():
        first = int(np.argmax(is_empty))
        text = f"column {column} ({name}): row {first} is empty"
        rows.note_bad(column, int(is_empty.sum()), first, text)
    array = cells.typed(found)
    if name == "episode":
        rows.lost = is_empty if is_empty.any() else None
        texts, lost = {cell.strip() for cell in found}, rows.lost is not None
        if as_text is None and (lost or len(texts) > len(np.unique(array))):
            array = np.array([cell.strip() for cell in found])
        elif as_text is not None and array.dtype.kind != "U":
            # A part: 1.0 or +1 may be 1 elsewhere.
            is_plain = texts == {str(each) for each in np.unique(array).tolist()}
            if lost or column in as_text or array.dtype.kind in "fb" or not is_plain:
                array = np.array(found)
        if len(texts) > len(np.unique(cells.typed(sorted(texts)))):
            # 10 and 1e1 may be two episodes, and joined rows would be transitions that never were.
            rows.notes.append(
                f"{column}: some ids are equal as numbers only (such as 1 and 1.0); they are kept "
                "apart, as texts"
            )
        if array.dtype.kind == "U":
            rows.columns[column] = array
    elif array.dtype.kind == "U" and name == "time":
        are_numbers = [is_number(cell) for cell in found]
        if 2 * sum(are_numbers) >= len(found):
            array = np.array(
                [float(c) if ok else np.nan for c, ok in zip(found, are_numbers, strict=True)]
            )
            wrong = [i for i, ok in enumerate(are_numbers) if not (ok or is_empty[i])]
        else:
            zone, form = names.time_zone, names.time_format
            array, wrong, notes = cells.seconds(found, where, zone, form)
            rows.notes, rows.clock = [*rows.notes, *notes], "dates"
        if wrong:
            text = f"column {column} ({name}): row {wrong[0]}: expected a number or a time stamp"
            rows.note_bad(column, len(wrong), wrong[0], f"{text}, got {found[wrong[0]][:40]!r}")
    elif array.dtype.kind == "U":
        known = ("", "0", "1")
        row, cell = next((i, c) for i, c in enumerate(found) if c.strip() not in known)
        raise DataError(f"{where}: expected only 0/1 or only true/false, got {cell!r} in row {row}")
    rows.arrays[name] = array
