"""JSON lines: one object a line, as loggers write them; read through the reader of CSV tables.

Lists become columns ``name_0``, ``name_1`` and objects ``name.key``; a key that a line does not
have, and null, is a missing cell.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from puorl.core.errors import DataError
from puorl.data.csv import open_text, read_table, reading_text
from puorl.data.validate import FieldNames, RawRows

_MOST_COLUMNS = 100_000


def read(path: Path, names: FieldNames) -> RawRows:
    """Read a file of JSON lines, which may be compressed (.gz, .zst)."""
    with reading_text(path, "file of JSON lines"):
        header: dict[str, None] = {}
        with open_text(path, names.encoding) as text:
            for cells in _objects(text.lines, str(path)):
                header |= dict.fromkeys(cells)
                if len(header) > _MOST_COLUMNS:
                    raise DataError(
                        f"{path}: expected at most {_MOST_COLUMNS:,} columns, got more; do its "
                        "lines use ids as keys?"
                    )
        if not header:
            raise DataError(f"{path}: expected one JSON object a line, got none")
        with open_text(path, names.encoding) as text:
            lines = _lines(_objects(text.lines, str(path)), list(header))
            rows = read_table(lines, ",", list(header), 1, names, str(path), text.fraction)
    rows.format = "jsonl"
    return rows


def _objects(lines: Iterator[str], source: str) -> Iterator[dict[str, str]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            if not isinstance(content, dict):
                raise ValueError(f"a JSON {type(content).__name__}")
            cells: dict[str, str] = {}
            for key, value in content.items():
                _flatten(key, value, cells)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{source}: line {number}: expected one JSON object a line, got: {error}"
            ) from error
        yield cells


def _flatten(key: str, value: Any, cells: dict[str, str]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(f"{key}.{name}", inner, cells)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _flatten(f"{key}_{i}", inner, cells)
    elif key in cells:
        raise ValueError(f"two values for {key!r}")
    else:
        plain = {None: "", True: "true", False: "false"}
        is_plain = value is None or isinstance(value, bool)
        cells[key] = plain[value] if is_plain else value if isinstance(value, str) else repr(value)


def _lines(objects: Iterator[dict[str, str]], header: list[str]) -> Iterator[str]:
    """Write the cells as lines of a CSV table."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for cells in objects:
        writer.writerow([cells.get(name, "") for name in header])
        # One item a row, though quoted cells may hold line breaks: numbers of lines stay right.
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
