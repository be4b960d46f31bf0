"""Files: atomic writing, no accidental overwriting, JSON with its hash, bounded lines, locks."""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from puorl.core import hashing
from puorl.core.errors import DataError, PuorlError, machine_fault

_LONGEST_JSON = 2**28
"""Largest JSON file that is read, in characters."""
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_MISSES = 100
"""Times that a folder may vanish before its lock is opened; then it cannot be made at all."""
LONGEST_LINE = 2**24
"""Longest line that is read, in characters; a row of 500,000 numbers is shorter."""


def check_free(path: str | os.PathLike[str], *, force: bool, marker: str | None = None) -> Path:
    """Return the path if it may be written.

    Args:
        path: Target.
        force: Allow that an existing target is replaced.
        marker: For a folder: a file inside by which its kind is recognised. Only an empty folder
            or one of the same kind is replaced, so that no typing error removes other files.
    """
    path = Path(path)
    if not path.exists():
        check_reachable(path)
        return path
    if not force:
        raise DataError(
            f"{path}: already exists; choose another name, or overwrite it with --force "
            "(force=True in Python)"
        )
    if path.is_dir() and not _is_replaceable(path, marker):
        kind = "a file" if marker is None else f"a folder with {marker}"
        raise DataError(
            f"{path}: expected {kind} to replace, found a folder of other files; choose another "
            "name, or remove it yourself"
        )
    if marker is not None and not path.is_dir():
        raise DataError(f"{path}: expected a folder to replace, found a file; choose another name")
    return path


def check_reachable(path: str | os.PathLike[str]) -> None:
    """Check before long work that something can be created at ``path``."""
    if os.path.islink(path) and not os.path.exists(path):
        raise DataError(
            f"{path}: expected a place that can be written, got a link to {os.readlink(path)}, "
            "which does not exist; remove the link, or choose another name"
        )
    above = next((each for each in Path(path).absolute().parents if os.path.lexists(each)), None)
    if above is not None and not above.is_dir():
        raise DataError(
            f"{path}: expected a place that can be written, got a file at {above} where a folder "
            "is needed; choose another name"
        )
    if above is not None and not os.access(above, os.W_OK | os.X_OK):
        raise DataError(
            f"{path}: need permission to write in {above}, have none; choose another name"
        )


@contextlib.contextmanager
def atomic_path(
    path: str | os.PathLike[str], *, force: bool = False, marker: str | None = None
) -> Iterator[Path]:
    """Yield a temporary path; rename it to ``path`` on success, remove it on failure.

    Works for a file and for a folder (create it at the yielded path). A killed process leaves at
    most a hidden ``.name.*.part`` folder next to the target, never an incomplete target.
    """
    path = check_free(path, force=force, marker=marker)
    if path.name in ("", ".."):
        path = path.resolve()  # the temporary path needs a name
    # Inside a folder of its own, so that writers see the real name and suffix.
    holder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    part = holder / path.name
    try:
        make_folder(path.parent)
        holder.mkdir()
        yield part
        check_free(path, force=force, marker=marker)  # another process may have written meanwhile
        for inner in [*part.rglob("*"), part] if part.is_dir() else [part]:
            sync(inner)
        if part.is_dir():
            _replace_folder(part, path, aside=holder / "old")
        else:
            os.replace(part, path)
        sync(path.parent)
    except Exception as error:
        is_own = isinstance(error, PuorlError | MemoryError)
        if isinstance(error, OSError) or (not is_own and machine_fault(error)):
            message = f"{path}: expected a place that can be written, got: {error}"
            raise DataError(message) from error
        raise
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def write_json(path: str | os.PathLike[str], content: Any, *, force: bool = False) -> None:
    """Write JSON atomically; keys keep their order, floats are exact; an object gets its hash."""
    text = json.dumps(content, indent=2, allow_nan=False)
    if isinstance(content, dict):
        plain = json.loads(text)  # what will be read: text keys, lists for tuples
        text = json.dumps({**plain, hashing.HASH: hashing.of_settings(plain)}, indent=2)
    with atomic_path(path, force=force) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str], *, repair: str = "make it again") -> Any:
    """Read a JSON file; if it holds the hash of its content, compare and remove it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LONGEST_JSON + 1)
        if len(text) > _LONGEST_JSON:
            raise ValueError(f"more than {_LONGEST_JSON:,} characters")
        content = json.loads(text)
        if isinstance(content, dict) and hashing.HASH in content:
            stored = content.pop(hashing.HASH)
            hashing.check(path, stored or "", hashing.of_settings(content), repair=repair)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected a JSON file, got: {error}") from error
    return content


def reserve(path: Path, num_bytes: int) -> None:
    """Check that a file of this size can be written at ``path``, where nothing is yet.

    After a write that failed HDF5 crashes when the process ends, so a full disk is found before.

    Raises:
        OSError: There is no room.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(handle, 0, max(1, num_bytes))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system cannot tell
            raise
    finally:
        os.close(handle)
        path.unlink()


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing; their names are on the disk then.

    Else what is synced inside could be lost together with the folder's name.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)


def sync(path: Path) -> None:
    """Return once a file, or the list of names in a folder, is on the disk.

    Some network file systems cannot sync a folder, and one may be writable but not readable.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


def _is_replaceable(folder: Path, marker: str | None) -> bool:
    if marker is None:
        return False
    return (folder / marker).is_file() or not any(folder.iterdir())


def _replace_folder(part: Path, path: Path, *, aside: Path) -> None:
    # A folder cannot be renamed over a full one: move the old one aside first, remove it later.
    if not path.exists():
        os.replace(part, path)
        return
    os.replace(path, aside)
    try:
        os.replace(part, path)
    except OSError:
        os.replace(aside, path)
        raise


def lines_of(file: TextIO, source: str, *, first: int = 1) -> Iterator[str]:
    """Yield the lines from the current position, each with its line end."""
    number = first
    while text := file.readline(LONGEST_LINE + 1):
        if len(text) > LONGEST_LINE:
            kind = "NUL bytes" if text.startswith("\0") else "no line break"
            raise DataError(
                f"{source}: line {number}: expected a line of at most {LONGEST_LINE:,} characters, "
                f"got {kind} in more than that; the file is damaged or not a text table"
            )
        yield text
        number += 1


@contextlib.contextmanager
def lock(path: str | os.PathLike[str], *, wait: bool = False) -> Iterator[bool]:
    """Hold a lock file while the block runs; yield whether the lock was obtained.

    The system releases the lock when the process ends, even after a kill. The block may remove the
    file or its folder: the next process makes a new one.

    Args:
        path: The lock file; it and its folder are created where they are missing.
        wait: Wait for the process that holds the lock, instead of yielding False.
    """
    path, num_misses = Path(path), 0
    while True:
        try:
            make_folder(path.parent)
            handle = os.open(path, _LOCK_FLAGS, 0o644)
        except OSError as error:
            num_misses += 1
            if isinstance(error, FileNotFoundError) and num_misses < _MOST_MISSES:
                continue  # the holder has just removed the folder
            raise DataError(
                f"{path.parent}: expected a folder that can be written, got: {error}"
            ) from error
        try:
            is_held = lock_handle(handle, wait=wait)
            if is_held and not _is_at(handle, path):
                continue  # the holder removed the file as it finished
            yield is_held
            return
        finally:
            os.close(handle)


def lock_handle(handle: int, *, wait: bool) -> bool:
    """Lock an open file until its descriptor is closed; return whether that worked."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
