"""Optional packages are imported where they are used, and asked for by name when missing."""

import importlib
from types import ModuleType

from puorl.core.errors import MissingExtraError


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
