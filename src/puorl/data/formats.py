"""The table of file formats, and `load` and `save`, which follow it.

To add a format, write a module of its name with ``read(path, names) -> RawRows``, and also
``write(dataset, path)`` if puorl shall write it, and add a line to the table. Help texts,
completion and error messages follow from the table.
"""

import dataclasses
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from puorl.core.errors import ConfigError, DataError, PuorlError, require
from puorl.core.files import atomic_path, check_free
from puorl.core.formatting import check_choice
from puorl.core.run_folder import (
    FILTER_MARKER,
    KEEP_LIST,
    SETTINGS,
    FilterSettings,
    KeptRows,
    read_as,
)
from puorl.data.actions import Discrete
from puorl.data.dataset import Dataset
from puorl.data.expression import is_formula
from puorl.data.label_values import Absent, absent_everywhere, check_absent
from puorl.data.transitions import MAX_STEP
from puorl.data.validate import (
    FIELDS,
    LABELLED,
    FieldNames,
    RawRows,
    check_needed,
    parse_missing,
)

if TYPE_CHECKING:
    from puorl.data.lazy import LazyDataset

PathLike = str | os.PathLike[str]
FRAME = "DataFrame"
"""Stands for the file in messages about a table in memory."""


@dataclass(frozen=True)
class Format:
    """One line of the table of formats."""

    name: str
    """Also the name of the module in `puorl.data`, which is imported when first used."""
    suffixes: tuple[str, ...]
    """Suffixes of such files, the one that puorl writes first; ``""`` for a folder."""
    description: str
    writable: bool = True
    package: str | None = None
    """Optional package that the module needs; the extra of puorl has the format's name."""
    marker: str | None = None
    """For a folder: the file inside by which the format is recognised."""
    exact: bool = True
    """Whether `load` gives back exactly what `save` wrote."""

    @property
    def module(self) -> str:
        """Module with ``read`` and, where ``writable``, ``write``."""
        return f"puorl.data.{self.name}"

    @property
    def extra(self) -> str | None:
        """Extra of puorl that installs the package."""
        return None if self.package is None else self.name

    def require(self, purpose: str) -> None:
        """Check that the format's optional package is installed."""
        if self.package is not None:
            require(self.package, extra=self.name, purpose=purpose)


_PACKED = (".gz", ".zst")
_NO_ROWS = {
    "split.json": "found a split, which has its own labels: give it alone to puorl filter or "
    "puorl inspect, without --labelled",
    "run.json": "found a run of puorl train; its policies are for puorl evaluate, puorl report and "
    "puorl export --to onnx",
}
"""File in a folder that holds no rows to where the folder belongs."""


def _packed(*suffixes: str) -> tuple[str, ...]:
    """Add the suffixes of compressed text files."""
    return tuple(each + packed for packed in ("", *_PACKED) for each in suffixes)


_TABLE = (
    Format("hdf5", (".hdf5", ".h5"), "HDF5 in D4RL's layout, or any file of named arrays"),
    Format("npz", (".npz",), "NumPy's archive of named arrays"),
    Format("csv", _packed(".csv", ".tsv"), "text table with a header line", writable=False),
    Format("jsonl", _packed(".jsonl", ".ndjson"), "one JSON object a line", writable=False),
    Format(
        "parquet",
        (".parquet", ".pq", ".arrow", ".feather"),
        "Parquet or Arrow file, or a folder of them",
        package="pyarrow",
    ),
    Format(
        "minari",
        ("",),
        "Minari dataset: a folder or an id",
        package="minari",
        marker="data/metadata.json",
    ),
    Format(
        "lerobot",
        (),  # a folder by its marker; a name without suffix means Minari
        "folder in the layout of LeRobot v3",
        package="pyarrow",
        marker="meta/info.json",
        exact=False,
    ),
    Format(
        "rlds", (), "RLDS folder of TensorFlow Datasets", writable=False, marker="features.json"
    ),
)
FORMATS = {each.name: each for each in _TABLE}
"""All formats by name."""


def readable() -> tuple[str, ...]:
    """Names of the formats that `load` reads: all of them."""
    return tuple(FORMATS)


def writable() -> tuple[str, ...]:
    """Names of the formats that `save` writes and `load` gives back exactly."""
    return tuple(name for name, each in FORMATS.items() if each.writable and each.exact)


def suffixes() -> tuple[str, ...]:
    """Suffixes of all files that `load` reads."""
    return tuple(suffix for each in _TABLE for suffix in each.suffixes if suffix)


def format_of(path: PathLike) -> Format | None:
    """Return the format that the suffix of a path names, or None.

    >>> format_of("rows.PQ").name, format_of("rows").name, format_of("rows.txt")
    ('parquet', 'minari', None)
    """
    suffix = suffix_of(path)
    return next((each for each in _TABLE if suffix in each.suffixes), None)


def suffix_of(path: PathLike) -> str:
    """Return the suffix of a path, both of a compressed file.

    >>> suffix_of("a.b/log.CSV.gz"), suffix_of("log.2.csv")
    ('.csv.gz', '.csv')
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] and suffixes[-1] in _PACKED else suffixes[-1:])


def load(
    path: Any,
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
    needed: str | Sequence[str] = (),
    missing: str = "error",
    gap: float = MAX_STEP,
    decimal: str = ".",
    encoding: str | None = None,
    time_format: str | None = None,
    time_zone: str | None = None,
    discrete_actions: Discrete = None,
) -> Dataset:
    """Read rows and check them; several files become one dataset.

    Args:
        path: A file, a glob such as ``"logs/*.csv"``, a folder of Parquet files, a Minari dataset
            folder, with ``format="minari"`` a Minari id, a DataFrame of pandas or polars, an Arrow
            table, or a list of those.
        format: Name of a format in `FORMATS`, where the suffix does not name one.
        obs: Key, or column names and patterns, of the state; see `FieldNames` for this and the
            following names. Fields left out are searched under their usual names; ``""`` means
            that a field is absent, whatever the columns are called.
        action: Action.
        reward: Reward; may be absent. A formula over columns, such as
            ``"-abs(pressure - 5) - 0.01 * power"``, is computed.
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
        needed: Columns besides the fields in which an empty cell counts as missing, such as the one
            that names machines (``column:NAME`` of `DomainFilter`).
        missing: What to do with cells that are missing or no numbers: ``error`` refuses the file
            with one message that counts them, ``drop`` leaves out their rows and cuts the episode
            there, ``hold`` (``hold:N``) carries the last value on over at most 5 (N) steps and
            drops the rest.
        gap: A time step longer than this many median steps cuts the episode.
        decimal: Sign before the fraction of a number in a text table, ``.`` or ``,``.
        encoding: Encoding of a text table, such as ``latin-1``; UTF-8 by default.
        time_format: Format of time stamps that are not ISO 8601, in the signs of Python's
            ``strptime``, such as ``%d.%m.%Y %H:%M:%S``.
        time_zone: Zone of time stamps that name none, such as ``Europe/Berlin``; UTC by default.
        discrete_actions: Whether actions are discrete, or the codes they may have, in order. By
            default they are if one column holds texts, or few small whole numbers; a note says so.

    Raises:
        DataError: The file does not hold readable rows; the message says what was expected.
        ConfigError: Unknown format or a wrong expression.
    """
    options = FieldNames.__dataclass_fields__
    names = FieldNames(**{name: value for name, value in locals().items() if name in options})
    check_names(names)
    sources: list[Any] = []
    for one in path if isinstance(path, list | tuple) and path else [path]:
        if not _is_frame(one) and not isinstance(one, str | os.PathLike | list | tuple):
            raise ConfigError(
                "path: expected a path, a DataFrame or an Arrow table, or a list of these, got "
                f"{type(one).__name__}"
            )
        sources += [one] if _is_frame(one) else expand(one, ids=format == "minari")
    seen: set[Any] = set()
    for one in sources:
        place = id(one) if _is_frame(one) else one.resolve()
        if place in seen:
            name = FRAME if _is_frame(one) else one
            raise DataError(f"{name}: is named twice, so its rows would count twice; name it once")
        seen.add(place)
    read = [_read(each, format, names) for each in sources]
    check_needed(names.needed_columns, dict.fromkeys(n for _, _, known in read for n in known))
    dataset = Dataset.concatenate([data for data, _, _ in read])
    if label is not None:
        # Of several files one may have what another lacks.
        absent = absent_everywhere([absent for _, absent, _ in read])
        holds = bool(dataset.columns[LABELLED].any())
        dataset = dataset.with_notes(check_absent(absent, "label", holds=holds))
    if domain is not None:
        provenance = dataclasses.replace(dataset.provenance, domain=domain)
        dataset = dataclasses.replace(dataset, provenance=provenance)
    return dataset


def check_names(names: FieldNames) -> None:
    """Check the options that are no names of columns."""
    if not names.gap > 1:
        raise ConfigError(f"gap: expected a factor above 1, got {names.gap}")
    check_choice("decimal", names.decimal, (".", ","))
    parse_missing(names.missing)


def expand(path: PathLike | Sequence[PathLike], *, ids: bool = False) -> list[Path]:
    """List the files and Minari folders that ``path`` names, in a stable order."""
    if not isinstance(path, str | os.PathLike):
        if not path:
            raise DataError("need at least one path, have none; name files, globs or folders")
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
    """Replace a folder by its Parquet files or kept rows, unless it is a Minari dataset."""
    markers = (*(each.marker for each in _TABLE if each.marker), "metadata.json")
    if any((path / name).is_file() for name in markers) or not path.is_dir():
        return [path]
    if (path / SETTINGS).is_file() and (path / FILTER_MARKER).is_file():
        return _inside(path / read_as(FilterSettings, path / SETTINGS).kept.file)
    # Hidden or underscored names are leftovers of writers and editors, as elsewhere with Parquet.
    found = sorted(path.rglob("*.parquet")) or sorted(path.rglob("*.arrow"))
    files = [
        file
        for file in found
        if not any(part.startswith((".", "_", "cache-")) for part in file.relative_to(path).parts)
    ]
    if not files:
        known = next((hint for file, hint in _NO_ROWS.items() if (path / file).is_file()), None)
        raise DataError(
            f"{path}: expected a file, a Minari dataset folder or a folder of .parquet files; "
            + (known or "found a folder with none of these")
        )
    return files


def _is_frame(source: Any) -> bool:
    return hasattr(source, "__arrow_c_stream__")


def reader_of(path: Path, chosen: str | None) -> Any:
    """Return the module that reads a file."""
    by_suffix = format_of(path) if path.suffix else None
    if path.is_dir():
        marked = (each for each in _TABLE if each.marker and (path / each.marker).is_file())
        by_suffix = next(marked, FORMATS["minari"])
    found = FORMATS.get(chosen) if chosen else by_suffix
    if found is None:
        raise _unknown(path, chosen, "the format", readable())
    return import_module(found.module)


def _read(
    source: Any, chosen: str | None, names: FieldNames
) -> tuple[Dataset, list[Absent], list[str]]:
    """Read one file or DataFrame.

    Returns:
        The rows, what the label names and none of them has, and the names of all columns.
    """
    if _is_frame(source):
        path, read = FRAME, import_module("puorl.data.parquet").read_frame
    else:
        path, read = source, reader_of(source, chosen).read
    raw = read(source, searched(names))
    data = finish(raw, names, str(path))
    if names.label is None:
        return data, [], raw.names

    def was_read(absent: Absent) -> bool:
        values = raw.columns.get(absent.column)
        return values is not None and bool(np.any(values == absent.value))

    # A value all of whose rows were left out is no slip.
    absent = data.absent_values(names.label, raw.keys)
    return data, [each for each in absent if not was_read(each)], raw.names


def searched(names: FieldNames) -> FieldNames:
    """Return what a reader searches: without formulas, and with the fields declared absent."""
    if names.reward and is_formula(names.reward):
        names = dataclasses.replace(names, reward="")
    given = dataclasses.asdict(names)
    unused = [field for field in FIELDS if given[field] == ""]
    return dataclasses.replace(names, **dict.fromkeys(unused), unused=tuple(unused))


def finish(
    raw: RawRows,
    names: FieldNames,
    source: str,
    step: float | None = None,
    *,
    is_part: bool = False,
) -> Dataset:
    """Make a dataset of what a reader returned, with computed rewards and labels."""
    for field in searched(names).unused:
        # A field that a reader found under a usual name becomes a column.
        if field in raw.arrays:
            array, key = raw.arrays.pop(field), raw.keys.pop(field, field)
            if array.ndim == 1:
                raw.columns.setdefault(key, array)
            raw.notes.append(f"{key}: not used as {field}, as asked")
    dataset = Dataset.from_raw(
        raw,
        source=source,
        missing=names.missing,
        gap=names.gap,
        step=step,
        discrete_actions=names.discrete_actions,
        needed=names.needed_columns,
        is_part=is_part,
    )
    if names.reward and is_formula(names.reward):
        try:
            dataset = dataset.with_reward(names.reward, raw.keys)
        except PuorlError as error:
            raise type(error)(f"{source}: reward: {error}") from error
    if names.label is None:
        return dataset
    # Labels are found by file, because joining renumbers episodes.
    try:
        mask = dataset.where(names.label, raw.keys)
    except ConfigError as error:
        raise ConfigError(f"{source}: label: {error}") from error
    return dataset.with_labels(mask, f"label={names.label!r}")


def parts_fingerprint(path: Path) -> str | None:
    """Return the fingerprint of a folder of Parquet files; None for other paths."""
    if not path.is_dir() or (path / "data").is_dir():  # Minari
        return None
    return import_module("puorl.data.parquet").fingerprint_of_parts(path)


def load_kept(folder: Path, kept: KeptRows) -> Dataset:
    """Read the kept rows in a folder of `puorl filter`."""
    if kept.file == KEEP_LIST:
        raise DataError(
            f"{folder}: expected kept rows, got only a list of them; filter again with "
            "--out-format parquet"
        )
    dataset, parts = load(folder / kept.file), parts_fingerprint(folder / kept.file)
    if (len(dataset), parts or dataset.fingerprint) != (kept.num_rows, kept.fingerprint):
        raise DataError(
            f"{folder / kept.file}: expected the {kept.num_rows:,} rows that the filter kept "
            f"(fingerprint {kept.fingerprint[:12]}), got {len(dataset):,} rows "
            f"({dataset.fingerprint[:12]}); run the filter again, or load the file outside its "
            "folder if it was changed on purpose"
        )
    return dataset


def save(
    dataset: "Dataset | LazyDataset",
    path: PathLike,
    *,
    format: str | None = None,
    force: bool = False,
) -> Path:
    """Write ``dataset`` so that `load` returns the same content.

    Args:
        dataset: The rows to write; those of `puorl.open` become a folder of Parquet files.
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
    if not isinstance(dataset, Dataset):
        return import_module("puorl.data.lazy").write(dataset, path, format=format, force=force)
    if len(dataset) == 0:
        raise DataError(f"{path}: expected at least one row to write, got none")
    chosen = _written_format(path, format)
    with atomic_path(path, force=force, marker=chosen.marker) as part:
        try:
            import_module(chosen.module).write(dataset, part)
        except UnicodeEncodeError as error:
            raise DataError(
                f"column {_unencodable(dataset)!r}: expected text that UTF-8 can hold, got: "
                f"{error.reason}; replace it"
            ) from error
    return path


def _unencodable(dataset: Dataset) -> str:
    """Find the column whose name or text UTF-8 cannot hold."""
    for name, column in dataset.columns.items():
        try:
            "".join([name, *(column.tolist() if column.dtype.kind == "U" else ())]).encode()
        except UnicodeEncodeError:
            return name
    return ""


def check_target(path: PathLike, *, force: bool) -> None:
    """Check before long work that `save` can write to ``path``."""
    chosen = _written_format(Path(path), None)
    check_free(path, force=force, marker=chosen.marker)


def _written_format(path: Path, given: str | None) -> Format:
    found = FORMATS.get(given) if given else format_of(path)
    if found is None or not found.writable:
        raise _unknown(path, given, "the format to write", writable())
    return found


def _unknown(path: Path, given: str | None, subject: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{path}: cannot tell {subject} (suffix {path.suffix!r}, format {given!r}); choose one of: "
        f"{', '.join(known)}"
    )
