"""The store: one JSON object a line, added to by any number of processes, never rewritten.

A row is one run: a setting, a method, a learner, a training seed. A failed run is a row with an
``error``. A kill can tear the last line; readers skip it with a note, and the next append starts
on a line of its own.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from puorl.core.errors import ConfigError, DataError

FILE = "runs.jsonl"
_LONGEST_ROW = 2**26
"""Bytes; a row with all its returns has some thousands."""
Row = dict[str, Any]


class Contents(NamedTuple):
    """What a store holds."""

    rows: list[Row]
    """In the order in which they were added."""
    notes: list[str]
    """What was skipped, and why."""


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
        self._forget()

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; when this returns, it is on the disk.

        Args:
            row: JSON-like, with the run's id under ``run``.

        Raises:
            ConfigError: The row is not JSON, or has no id.
            DataError: Nothing can be written there.
        """
        if not _has_id(row):
            raise ConfigError(f"row: expected a text under 'run', got {row.get('run')!r}")
        try:
            line = json.dumps(dict(row), allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise ConfigError(f"row {row['run']}: expected JSON values, got: {error}") from error
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _add(self.path, line)
        except OSError as error:
            raise DataError(
                f"{self.path}: expected a file that can be written, got: {error}"
            ) from error

    def read(self) -> Contents:
        """All whole rows, and notes on lines that are none; an absent file is an empty store.

        Raises:
            DataError: The file cannot be read.
        """
        rest = self._take_new_lines()
        notes = list(self._notes)
        if rest.strip():
            notes.append(f"{self.path.name}: the last line is not whole, it is skipped")
        return Contents(list(self._rows), notes)

    def rows(self) -> list[Row]:
        """All whole rows, in the order in which they were added."""
        return self.read().rows

    def latest(self) -> dict[str, Row]:
        """Run id to the row that counts: its last one without an error, else its last one."""
        chosen: dict[str, Row] = {}
        for row in self.rows():
            before = chosen.get(row["run"])
            if before is None or row.get("error") is None or before.get("error") is not None:
                chosen[row["run"]] = row
        return chosen

    def find(self, run: str) -> Row | None:
        """The row that counts of this run, if there is one."""
        return self.latest().get(run)

    def _take_new_lines(self) -> bytes:
        """Read what was added since the last time; the start of an unfinished line is returned."""
        try:
            with open(self.path, "rb") as handle:
                if os.fstat(handle.fileno()).st_size < self._offset:
                    self._forget()  # another file has taken its place
                handle.seek(self._offset)
                while (line := handle.readline(_LONGEST_ROW)).endswith(b"\n"):
                    self._offset += len(line)
                    self._num_lines += 1
                    self._take(line)
        except FileNotFoundError:
            self._forget()
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

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            row = json.loads(line)
        except ValueError:  # bytes that are no UTF-8 are among these
            row = None
        if isinstance(row, dict) and _has_id(row):
            self._rows.append(row)
        else:
            where = f"{self.path.name}: line {self._num_lines}"
            self._notes.append(f"{where} is not a whole row, it is skipped")

    def _forget(self) -> None:
        self._rows: list[Row] = []
        self._notes: list[str] = []
        self._offset = 0
        self._num_lines = 0


def _has_id(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("run"), str) and bool(row["run"])


def _add(path: Path, line: bytes) -> None:
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # goes with the descriptor, however the process ends
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line  # a killed writer's torn line stays, on its own
        if os.write(handle, line) < len(line):
            raise OSError("the disk took only a part of the row")
        os.fsync(handle)
    finally:
        os.close(handle)
