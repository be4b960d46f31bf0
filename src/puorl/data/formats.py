"""The table of file formats, and `load` and `save`, which follow it.

To add a format, write a module with ``read(path, names) -> RawRows`` (and ``write(dataset, path)``
if puorl shall write it) and add a line to `FORMATS`. Help texts, completion, error messages and the
suffixes that are known all come from this table.
"""

import dataclasses
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from puorl.core.errors import ConfigError, DataError, require
from puorl.core.files import atomic_path, check_free
from puorl.data.dataset import Dataset
from puorl.data.validate import FIELDS, LABELLED, FieldNames, RawRows

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One line of the table of formats."""

    name: str
    suffixes: tuple[str, ...]
    """Suffixes of such files, the one that puorl writes first; ``""`` for a folder."""
    module: str
    """Module with ``read`` and, where ``writable``, ``write``; imported when first used."""
    description: str
    writable: bool = True
    package: str | None = None
    """Optional package that the module needs."""
    extra: str | None = None
    """Extra of puorl that installs the package."""
    marker: str | None = None
    """For a folder: the file inside by which the format is recognised."""

    def require(self, purpose: str) -> None:
        """Check that the format's optional package is installed.

        Raises:
            MissingExtraError: It is not; the message holds the install line.
        """
        if self.package is not None and self.extra is not None:
            require(self.package, extra=self.extra, purpose=purpose)


_TABLE = (
    Format(
        name="hdf5",
        suffixes=(".hdf5", ".h5"),
        module="puorl.data.hdf5",
        description="HDF5 in D4RL's layout, or any file of named arrays",
    ),
    Format(
        name="npz",
        suffixes=(".npz",),
        module="puorl.data.npz",
        description="NumPy's archive of named arrays",
    ),
    Format(
        name="csv",
        suffixes=(".csv", ".tsv"),
        module="puorl.data.csv",
        description="text table with a header line",
        writable=False,
    ),
    Format(
        name="parquet",
        suffixes=(".parquet", ".pq"),
        module="puorl.data.parquet",
        description="Parquet file, or a folder of them",
        package="pyarrow",
        extra="parquet",
    ),
    Format(
        name="minari",
        suffixes=("",),
        module="puorl.data.minari",
        description="Minari dataset: a folder or an id",
        package="minari",
        extra="minari",
        marker="data/metadata.json",
    ),
)
FORMATS = {each.name: each for each in _TABLE}
"""All formats by name."""


def readable() -> tuple[str, ...]:
    """Names of the formats that `load` reads: all of them."""
    return tuple(FORMATS)


def writable() -> tuple[str, ...]:
    """Names of the formats that `save` writes."""
    return tuple(name for name, each in FORMATS.items() if each.writable)


def suffixes() -> tuple[str, ...]:
    """Suffixes of all files that `load` reads."""
    return tuple(suffix for each in _TABLE for suffix in each.suffixes if suffix)


def format_of(path: PathLike) -> Format | None:
    """Return the format that the suffix of a path names, or None.

    >>> format_of("rows.PQ").name, format_of("rows").name, format_of("rows.txt")
    ('parquet', 'minari', None)
    """
    suffix = Path(path).suffix.lower()
    return next((each for each in _TABLE if suffix in each.suffixes), None)


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
        format: Name of a format in `FORMATS`, where the suffix does not name one.
        obs: Key, or column names and patterns, of the state; see `FieldNames` for this and the
            following names. Fields left out are searched under their usual names; ``""`` means
            that a field is absent, whatever the columns are called.
        action: Action.
        reward: Reward; may be absent.
        next_obs: Next state; where absent, the next row of the episode is used.
        terminal: Flag that the task ended; may be absent.
        timeout: Flag that the record was cut; may be absent.
        episode: Episode id.
        time: Time stamp.
        next_action: Next action.
        label: Expression that holds for labelled rows (known to be of the target domain), e.g.
            ``"checked == 1"``, over the columns of each file under their own names; its value
            becomes the column ``labelled``.
        domain: Name of the domain that all these rows come from, if known.

    Raises:
        DataError: The file does not hold readable rows; the message says what was expected.
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
    """List the files and Minari folders that ``path`` names, in a stable order.

    Args:
        path: As for `load`.
        ids: Accept a name that is no path as the id of a Minari dataset.

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
    """Replace a folder by its Parquet files, unless it is a Minari dataset."""
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
    by_suffix = format_of(path) if path.suffix else None
    found = FORMATS.get(chosen) if chosen else FORMATS["minari"] if path.is_dir() else by_suffix
    if found is None:
        raise _unknown(path, chosen, "the format", readable())
    given = dataclasses.asdict(names)
    unused = [field for field in FIELDS if given[field] == ""]
    names = dataclasses.replace(names, **dict.fromkeys(unused))
    raw: RawRows = import_module(found.module).read(path, names)
    for field in unused:
        if field in raw.arrays:
            _set_aside(raw, field)
    dataset = Dataset.from_raw(raw, source=str(path))
    return dataset if names.label is None else _labelled(dataset, raw, names.label, path)


def _set_aside(raw: RawRows, field: str) -> None:
    """Undo that a reader found a field under a usual name; keep its values as a column."""
    array = raw.arrays.pop(field)
    key = raw.keys.pop(field, field)
    if array.ndim == 1:
        raw.columns.setdefault(key, array)
    raw.notes.append(f"{key}: not used as {field}, as asked")


def _labelled(dataset: Dataset, raw: RawRows, label: str, path: Path) -> Dataset:
    """Add the label's column; per file, because joining renumbers episodes."""
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


def save(
    dataset: Dataset, path: PathLike, *, format: str | None = None, force: bool = False
) -> Path:
    """Write ``dataset`` so that `load` returns the same content.

    Args:
        dataset: The rows to write.
        path: Target; its suffix chooses the format (see `FORMATS`; a name without suffix becomes
            a Minari folder).
        format: Name of a format that can be written, where the suffix does not name one.
        force: Replace what is at ``path``.

    Returns:
        The path written.

    Raises:
        ConfigError: Unknown format.
        DataError: No rows, ``path`` exists and ``force`` is off, or it cannot be written.
    """
    path = Path(path)
    if len(dataset) == 0:
        raise DataError(f"{path}: expected at least one row to write, got none")
    chosen = _written_format(path, format)
    with atomic_path(path, force=force, marker=chosen.marker) as part:
        import_module(chosen.module).write(dataset, part)
    return path


def check_target(path: PathLike, *, force: bool) -> None:
    """Check before long work that `save` can write to ``path``.

    Raises:
        ConfigError: Unknown format.
        DataError: Something is at ``path`` that may not be replaced.
    """
    chosen = _written_format(Path(path), None)
    check_free(path, force=force, marker=chosen.marker)


def _written_format(path: Path, given: str | None) -> Format:
    found = FORMATS.get(given) if given else format_of(path)
    if found is None or not found.writable:
        raise _unknown(path, given, "the format to write", writable())
    return found


def _unknown(path: Path, given: str | None, subject: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{path}: cannot tell {subject} (suffix {path.suffix!r}, format {given!r}); name it with "
        f"format=, one of: {', '.join(known)}"
    )
