"""Write a dataset: the format is chosen by the name, the file appears whole or not at all."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, check_free
from puorl.data.dataset import Dataset

# Modules are named, not imported: a writer may need an optional package.
_WRITERS = {
    "npz": ("puorl.data.npz", "write"),
    "hdf5": ("puorl.data.hdf5", "write"),
    "parquet": ("puorl.data.parquet", "write"),
    "minari": ("puorl.data.minari", "write"),
}
_FOLDER_MARKERS = {"minari": "data/metadata.json"}
"""Formats that are folders, and the file by which such a folder is known."""
_SUFFIXES = {".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5", ".parquet": "parquet", "": "minari"}


def save(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    force: bool = False,
) -> Path:
    """Write ``dataset`` so that `load` returns the same content.

    Args:
        dataset: What to write.
        path: Target; the suffix chooses the format (.npz, .hdf5, .h5, .parquet; a name without
            suffix becomes a Minari folder).
        format: ``npz``, ``hdf5``, ``parquet`` or ``minari``, when the name does not tell.
        force: Replace what stands at ``path``.

    Returns:
        The path written.

    Raises:
        ConfigError: Unknown format.
        DataError: There are no rows, something is at ``path`` and ``force`` is off, or nothing can
            be written there.
    """
    path = Path(path)
    if len(dataset) == 0:
        raise DataError(f"{path}: expected at least one row to write, got none")
    chosen = _format(path, format)
    module, function = _WRITERS[chosen]
    write: Callable[[Dataset, Path], None] = getattr(import_module(module), function)
    with atomic_path(path, force=force, marker=_FOLDER_MARKERS.get(chosen)) as part:
        write(dataset, part)
    return path


def check_target(path: str | os.PathLike[str], *, force: bool) -> None:
    """Say now, not after hours of work, that `save` would refuse ``path``.

    Raises:
        ConfigError: Unknown format.
        DataError: Something is at ``path`` that may not be replaced.
    """
    chosen = _format(Path(path), None)
    check_free(path, force=force, marker=_FOLDER_MARKERS.get(chosen))


def _format(path: Path, given: str | None) -> str:
    chosen = given or _SUFFIXES.get(path.suffix.lower())
    if chosen not in _WRITERS:
        raise ConfigError(
            f"{path}: cannot tell the format to write (suffix {path.suffix!r}, format {given!r}); "
            f"known formats: {', '.join(_WRITERS)}"
        )
    return chosen
