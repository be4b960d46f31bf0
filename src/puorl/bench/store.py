"""The store: one JSON object a line, appended by any number of processes, never rewritten.

A row is one run: a setting, a method, a learner, a training seed. A failed run is a row with an
``error``. A kill can leave an incomplete last line; readers skip it with a note, and the next row
starts on a line of its own. A row has the hash of its content; a line whose hash differs, or of
another shape, is skipped with a note. Rows of version 0.1.0 have none and names of their own.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from puorl.bench.settings import RENAMED_COLUMNS, RENAMED_FIELDS, rename_fields
from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import lock_handle, make_folder, sync
from puorl.core.run_folder import decode

FILE = "runs.jsonl"
_LONGEST_ROW = 2**26
"""Bytes; a row with all its returns has some thousands."""
_DEEPEST = 20
"""Levels of a row; settings within settings have five."""
Row = dict[str, Any]
_Numbers = tuple[float, ...]


@dataclass(frozen=True)
class _Shape:
    """Types of a row's fields; what else it holds is not read."""

    run: str
    training: str | None = None
    setting: dict[str, Any] | None = None
    method: str = ""
    variant: str | None = None
    method_settings: dict[str, Any] | None = None
    learner: str = ""
    config: dict[str, Any] | None = None
    steps: int = 0
    seed: int = 0
    versions: dict[str, Any] | None = None
    hardware: dict[str, Any] | None = None
    returns: _Numbers | None = None
    scores: _Numbers | None = None
    curve: tuple[_Numbers, ...] | None = None
    error: str | None = None
    seconds: dict[str, float] | None = None
    same_as: str | None = None
    filter: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    time: str = ""


class Contents(NamedTuple):
    """Rows of a store, and notes on what was skipped."""

    rows: list[Row]
    """In the order in which they were added."""
    notes: list[str]


class Store:
    """Rows of ``folder/runs.jsonl``; a path that ends in ``.jsonl`` is taken as the file itself.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.append({"run": "9f2c41", "error": None, "scores": [98.3]})
    >>> store.find("9f2c41")["scores"]
    [98.3]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        path = Path(folder)
        self.path = path if path.suffix == ".jsonl" else path / FILE
        self._reset()

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row; it is on the disk when this returns.

        Args:
            row: JSON-like, with the run's id under ``run``.

        Raises:
            ConfigError: The row is not JSON, or has no id.
            DataError: Nothing can be written there.
        """
        if not _has_id(row):
            raise ConfigError(f"row: expected a text under 'run', got {row.get('run')!r}")
        try:
            plain = json.loads(json.dumps(dict(row), allow_nan=False))
            plain[hashing.HASH] = hashing.of_settings(plain)
            line = json.dumps(plain).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise ConfigError(f"row {row['run']}: expected JSON values, got: {error}") from error
        try:
            make_folder(self.path.parent)
            _append_line(self.path, line)
        except OSError as error:
            raise DataError(
                f"{self.path}: expected a file that can be written, got: {error}"
            ) from error

    def read(self) -> Contents:
        """Read all complete rows, with notes on skipped lines; an absent file is an empty store.

        Raises:
            DataError: The file cannot be read.
        """
        rest = self._read_new_lines()
        notes = list(self._notes)
        if rest.strip():
            notes.append(f"{self.path.name}: the last line is not whole, it is skipped")
        return Contents(list(self._rows), notes)

    def rows(self) -> list[Row]:
        """Read all complete rows, in the order in which they were added."""
        return self.read().rows

    def latest(self) -> dict[str, Row]:
        """Map every run to its valid row: the last one without an error, else the last one."""
        chosen: dict[str, Row] = {}
        for row in self.rows():
            before = chosen.get(row["run"])
            if before is None or row.get("error") is None or before.get("error") is not None:
                chosen[row["run"]] = row
        return chosen

    def find(self, run: str) -> Row | None:
        """Return the valid row of a run, if there is one."""
        return self.latest().get(run)

    def _read_new_lines(self) -> bytes:
        """Read the lines added since the last call; return the start of an incomplete one."""
        try:
            with open(self.path, "rb") as handle:
                if os.fstat(handle.fileno()).st_size < self._offset:
                    self._reset()  # the file was replaced by another
                handle.seek(self._offset)
                while (line := handle.readline(_LONGEST_ROW)).endswith(b"\n"):
                    self._offset += len(line)
                    self._num_lines += 1
                    self._add_line(line)
        except FileNotFoundError:
            self._reset()
            return b""
        except NotADirectoryError as error:
            raise DataError(
                f"{self.path.parent}: expected a folder of puorl bench run or a .jsonl file of its "
                "rows, found another file"
            ) from error
        except OSError as error:
            raise DataError(f"{self.path}: expected a readable file, got: {error}") from error
        if len(line) == _LONGEST_ROW:
            raise DataError(
                f"{self.path}: line {self._num_lines + 1}: expected a row of puorl bench run, got "
                f"no line break in {_LONGEST_ROW:,} bytes; the file is damaged or of another kind"
            )
        return line

    def _add_line(self, line: bytes) -> None:
        if not line.strip():
            return
        where = f"{self.path.name}: line {self._num_lines}"
        try:
            row = json.loads(line)
            if not (isinstance(row, dict) and _has_id(row) and _is_shallow(row)):
                raise ValueError
            hashing.check(where, row.pop(hashing.HASH, None), hashing.of_settings(row))
            row = rename_fields(row, RENAMED_FIELDS | RENAMED_COLUMNS)
            decode(_Shape, row, Path(where))
        except DataError as error:
            self._notes.append(f"{error}; it is skipped")
        except (ValueError, RecursionError):  # also raised for bytes that are not UTF-8
            self._notes.append(f"{where} is not a whole row, it is skipped")
        else:
            self._rows.append(row)

    def _reset(self) -> None:
        self._rows: list[Row] = []
        self._notes: list[str] = []
        self._offset = 0
        self._num_lines = 0


def _has_id(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("run"), str) and bool(row["run"])


def _is_shallow(value: Any, levels: int = _DEEPEST) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


def _append_line(path: Path, line: bytes) -> None:
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        lock_handle(handle, wait=True)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line  # the incomplete line of a killed writer stays on its own
        if os.write(handle, line) < len(line):
            raise OSError("the disk took only a part of the row")
        os.fsync(handle)
    finally:
        os.close(handle)
    if not size:
        sync(path.parent)  # the name of a new file
