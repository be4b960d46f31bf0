"""Files appear whole or not at all, and nothing is overwritten by accident."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from puorl.core.errors import DataError


def check_free(path: str | os.PathLike[str], *, force: bool) -> Path:
    """Return the path if it may be written, else say what stands there.

    Raises:
        DataError: Something is at ``path`` and ``force`` is off.
    """
    path = Path(path)
    if path.exists() and not force:
        raise DataError(
            f"{path}: already exists; choose another name, or overwrite it with --force "
            "(force=True in Python)"
        )
    return path


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary place of the same name; on success it becomes ``path``, on failure it goes.

    Works for a file and for a folder (create it at the yielded path). A kill leaves at most a
    hidden ``.name.*.part`` folder beside the target, never a half file under the real name.
    """
    path = check_free(path, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A folder of its own, so that writers see the real name and suffix.
    shelter = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    shelter.mkdir()
    part = shelter / path.name
    try:
        yield part
        if part.is_dir():
            _replace_folder(part, path, aside=shelter / "old")
        else:
            _sync(part)
            check_free(path, force=force)
            os.replace(part, path)
    finally:
        shutil.rmtree(shelter, ignore_errors=True)


def write_json(path: str | os.PathLike[str], content: Any, *, force: bool = False) -> None:
    """Write JSON atomically, keys in their given order, floats exact."""
    with atomic_path(path, force=force) as part:
        part.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file, or say that it is none.

    Raises:
        DataError: Missing, unreadable, or not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected a JSON file, got: {error}") from error


def _sync(part: Path) -> None:
    with open(part, "rb") as handle:
        os.fsync(handle.fileno())


def _replace_folder(part: Path, path: Path, *, aside: Path) -> None:
    # A folder cannot be renamed over a full one: the old one steps aside first, and only then goes.
    if path.exists():
        os.replace(path, aside)
    os.replace(part, path)
