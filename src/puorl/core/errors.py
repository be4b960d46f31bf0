"""Errors of this package, faults of the machine, and imports of optional packages.

What reads or checks raises `DataError` or `ConfigError`; docstrings name errors where users call.
"""

import errno
import importlib
import os
from types import ModuleType

GOES_ON = "what was done is kept: once repaired, the same command goes on"
"""End of a message about a fault of the machine during a run that can be resumed."""
_LONGEST = 2000
_MACHINE_FAULTS = tuple(
    os.strerror(number)
    for number in (
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM,
        errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ESTALE,
    )
)  # fmt: skip


def printable(text: str) -> str:
    r"""Write characters that a terminal would obey, such as escapes, as Python does.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class PuorlError(Exception):
    """Base class of the errors that puorl raises; the message is one line of printable text."""

    def __init__(self, message: str) -> None:
        # Messages quote names and values of files, which may hold any characters.
        line = " ".join(part.strip() for part in message.splitlines())
        super().__init__(printable(line[:_LONGEST]) + (" ..." if len(line) > _LONGEST else ""))


class DataError(PuorlError):
    """Wrong data: a file, a column, a value."""


class ConfigError(PuorlError):
    """A setting that is unknown, impossible, or contradicts another."""


class NotFittedError(PuorlError):
    """A method that needs a fitted object was called before `fit`."""


class MissingExtraError(PuorlError):
    """An optional package is not installed; the message holds the install line."""


class TrainingError(PuorlError):
    """Training that did not give a usable result."""


def machine_fault(error: BaseException | str | None) -> str | None:
    """Return the system's word for what a machine lacks, if that is behind an error; else None.

    Libraries raise errors of their own for a full disk, so the words are looked for.

    >>> machine_fault(RuntimeError("file write failed: No space left on device"))
    'No space left on device'
    """
    while error is not None:
        text = str(error)
        if found := next((words for words in _MACHINE_FAULTS if words in text), None):
            return found
        if isinstance(error, str):
            return None
        if isinstance(error, MemoryError):
            return os.strerror(errno.ENOMEM)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def require(module: str, *, extra: str | None = None, purpose: str) -> ModuleType:
    """Import an optional module, or name the extra that installs it.

    Raises:
        MissingExtraError: The module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        what = package if extra is None else f"'puorl[{extra}]'"
        raise MissingExtraError(
            f"{purpose} needs the package {package!r}, which cannot be imported here; "
            f"install it with: pip install {what}"
        ) from error
