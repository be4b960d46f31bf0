"""Errors of this package, and optional packages asked for by name when they are missing."""

import importlib
from types import ModuleType

_LONGEST = 2000


class PuorlError(Exception):
    """Base of every error that puorl raises on purpose; its text is one line of printable text."""

    def __init__(self, message: str) -> None:
        # Names, values and other libraries' words from a damaged file may be anything.
        line = " ".join(part.strip() for part in message.splitlines())
        plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line[:_LONGEST])
        super().__init__(plain + (" ..." if len(line) > _LONGEST else ""))


class DataError(PuorlError):
    """The data is not what it must be: a file, a column, a value."""


class ConfigError(PuorlError):
    """A setting is unknown, impossible, or contradicts another."""


class NotFittedError(PuorlError):
    """Something was asked of an object that has not learnt yet."""


class MissingExtraError(PuorlError):
    """An optional package is not installed; the message holds the install line."""


class TrainingError(PuorlError):
    """Training came to no usable end."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Args:
        module: Dotted name to import, e.g. ``"pyarrow.parquet"``.
        extra: The puorl extra that installs it, e.g. ``"parquet"``.
        purpose: What it is needed for, e.g. ``"reading Parquet files"``.

    Raises:
        MissingExtraError: The module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs the package {package!r}, which cannot be imported here; "
            f"install it with: pip install 'puorl[{extra}]'"
        ) from error
