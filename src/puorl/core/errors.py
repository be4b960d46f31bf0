"""Errors of this package, and imports of optional packages."""

import importlib
from types import ModuleType

_LONGEST = 2000


class PuorlError(Exception):
    """Base class of the errors that puorl raises; the message is one line of printable text."""

    def __init__(self, message: str) -> None:
        # Messages quote names and values of files, which may hold any characters.
        line = " ".join(part.strip() for part in message.splitlines())
        plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line[:_LONGEST])
        super().__init__(plain + (" ..." if len(line) > _LONGEST else ""))


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


def require(module: str, *, extra: str | None = None, purpose: str) -> ModuleType:
    """Import an optional module, or name the extra that installs it.

    Args:
        module: Dotted name to import, e.g. ``"pyarrow.parquet"``.
        extra: The puorl extra that installs it, e.g. ``"parquet"``; None if there is none.
        purpose: What it is needed for, e.g. ``"reading Parquet files"``.

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
