"""Claims: which process works on what, so that several can share one folder of results.

A claim is a locked file. The system lets go of it when its process ends, however that happens, so
no claim outlives its owner.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from puorl.core.errors import DataError


class Claims:
    """A folder of lock files; they stay, since a name that vanished could be locked twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def held(self, name: str, *, wait: bool = False) -> Iterator[bool]:
        """Hold a claim while the block runs; yields whether it is ours.

        Args:
            name: What is claimed; letters, digits and dashes.
            wait: Wait for whoever has it, instead of yielding False.

        Raises:
            DataError: The folder cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{name}.lock"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataError(
                f"{self._folder}: expected a folder that can be written, got: {error}"
            ) from error
        try:
            yield _lock(handle, wait)
        finally:
            os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
