"""Read rows from any path: a file, a glob, a list, a folder of Parquet or of Minari."""

import dataclasses
import glob
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, check_free
from puorl.data.dataset import Dataset
from puorl.data.validate import FIELDS, FieldNames, RawRows

Reader = Callable[[Path, FieldNames], RawRows]
PathLike = str | os.PathLike[str]

# Modules are named, not imported: a reader may need an optional package.
_READERS = {
    "hdf5": ("puorl.data.hdf5", "read"),
    "npz": ("puorl.data.npz", "read"),
    "csv": ("puorl.data.csv", "read"),
    "parquet": ("puorl.data.parquet", "read"),
    "minari": ("puorl.data.minari", "read"),
}
_READ_SUFFIXES = {
    ".hdf5": "hdf5",
    ".h5": "hdf5",
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
LABELLED = "labelled"
"""Name of the column that `load` adds for ``label=``."""


def load(
    path: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    obs: str | Sequence[str] | None = None,
    action: str | Sequence[str] | None = None,
    reward: str | None = None,
    next_obs: str | Sequence[str] | None = None,
    terminal: str | None = None,
    timeout: str | None = None,
    episode: str | None = None,
    time: str | None = None,
    next_action: str | Sequence[str] | None = None,
    label: str | None = None,
    domain: str | None = None,
) -> Dataset:
    """Read rows and check them; several files become one dataset.

    Args:
        path: A file, a glob such as ``"logs/*.csv"``, a list of those, a folder of Parquet files,
            a Minari dataset folder, or with ``format="minari"`` a Minari id.
        format: ``hdf5``, ``npz``, ``csv``, ``parquet`` or ``minari``, when the name does not tell.
        obs: Key, or column names and patterns, of the state; see `FieldNames` for this and the
            following names. Fields left out are looked for under their usual names; ``""`` says
            that a field is not there, whatever the columns are called.
        action: Of the action.
        reward: Of the reward; may be absent.
        next_obs: Of the next state; may be absent: then the next row of the episode is used.
        terminal: Of the flag that the task ended; may be absent.
        timeout: Of the flag that the record was cut; may be absent.
        episode: Of the episode id.
        time: Of the time stamp.
        next_action: Of the next action.
        label: Expression for rows known to be the target's, e.g. ``"checked == 1"``, over the
            columns of each file under their own names; its value becomes the column ``labelled``.
        domain: Name of the domain that all these rows come from, if known.

    Raises:
        DataError: The file is not readable rows; the message says what was expected.
        ConfigError: Unknown format or a wrong expression.
    """
    names = FieldNames(
        obs=obs,
        action=action,
        reward=reward,
        next_obs=next_obs,
        terminal=terminal,
        timeout=timeout,
        episode=episode,
        time=time,
        next_action=next_action,
        label=label,
    )
    paths = expand(path, ids=format == "minari")
    _require_each_once(paths)
    dataset = Dataset.concatenate([_read(p, format, names) for p in paths])
    if domain is not None:
        provenance = dataclasses.replace(dataset.provenance, domain=domain)
        dataset = dataclasses.replace(dataset, provenance=provenance)
    return dataset


def expand(path: PathLike | Sequence[PathLike], *, ids: bool = False) -> list[Path]:
    """The files and Minari folders that ``path`` means, in a stable order.

    Args:
        path: As for `load`.
        ids: Whether a name that is no path may be the id of a Minari dataset.

    Raises:
        DataError: Nothing is there.
    """
    if not isinstance(path, str | os.PathLike):
        if not path:
            raise DataError("expected at least one path, got an empty list")
        return [found for one in path for found in expand(one, ids=ids)]
    text = os.fspath(path)
    if os.path.exists(text):
        found = [Path(text)]
    elif glob.has_magic(text):
        found = [Path(p) for p in sorted(glob.glob(text, recursive=True))]
        if not found:
            raise DataError(f"{text}: expected a pattern that matches files, found none")
    elif ids:
        return [Path(text)]
    else:
        raise DataError(f"{text or 'an empty name'}: no such file or folder")
    return [inner for one in found for inner in _inside(one)]


def _inside(path: Path) -> list[Path]:
    """A folder stands for its Parquet files, unless it is a Minari dataset."""
    if not path.is_dir() or _is_minari(path):
        return [path]
    # Hidden or underscored names are leftovers of writers and editors, as elsewhere with Parquet.
    files = [
        file
        for file in sorted(path.rglob("*.parquet"))
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    if not files:
        raise DataError(
            f"{path}: expected a file, a Minari dataset folder or a folder of .parquet files; "
            "found a folder with none of these"
        )
    return files


def _is_minari(path: Path) -> bool:
    return (path / "data" / "metadata.json").is_file() or (path / "metadata.json").is_file()


def _read(path: Path, chosen: str | None, names: FieldNames) -> Dataset:
    kind = chosen or ("minari" if path.is_dir() else _READ_SUFFIXES.get(path.suffix.lower()))
    if kind not in _READERS:
        raise ConfigError(
            f"{path}: cannot tell the format (suffix {path.suffix!r}, format {chosen!r}); "
            f"name it with format=, one of: {', '.join(_READERS)}"
        )
    module, function = _READERS[kind]
    reader: Reader = getattr(import_module(module), function)
    given = dataclasses.asdict(names)
    unused = [field for field in FIELDS if given[field] == ""]
    names = dataclasses.replace(names, **dict.fromkeys(unused))
    raw = reader(path, names)
    for field in unused:
        if field in raw.arrays:
            _set_aside(raw, field)
    dataset = Dataset.from_raw(raw, source=str(path))
    return dataset if names.label is None else _labelled(dataset, raw, names.label, path)


def _set_aside(raw: RawRows, field: str) -> None:
    """Take a field back that the reader found under a usual name; its values stay as a column."""
    array = raw.arrays.pop(field)
    key = raw.keys.pop(field, field)
    if array.ndim == 1:
        raw.columns.setdefault(key, array)
    raw.notes.append(f"{key}: not used as {field}, as asked")


def _labelled(dataset: Dataset, raw: RawRows, label: str, path: Path) -> Dataset:
    """Add the label's column, file by file: joined files have other episode numbers."""
    try:
        columns = {**dataset.columns, LABELLED: dataset.where(label, raw.keys)}
    except ConfigError as error:
        raise ConfigError(f"{path}: label: {error}") from error
    provenance = dataset.provenance
    if LABELLED in dataset.columns:
        note = f"{LABELLED}: the file's own column of this name gave way to label={label!r}"
        provenance = dataclasses.replace(provenance, notes=(*provenance.notes, note))
    return Dataset(dataset.rows, columns, provenance)


def _require_each_once(paths: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise DataError(f"{path}: is named twice, so its rows would count twice; name it once")
        seen.add(path.resolve())


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
