"""Labelled rows of a user's own data, and keep-lists: CSV files that name rows or episodes.

Labels are given by a condition, a keep-list or a file of rows. The header of a keep-list names what
is listed: ``row`` (numbers in the dataset, from 0), ``source_row`` (numbers in the file, from 0
without the header, where loading dropped rows), ``episode`` (ids), or a column whose values name
episodes, machines or the like. A column ``score`` may follow. Text that a spreadsheet would
compute, such as ``=1+1``, is written with an apostrophe before it, which reading removes.
"""

import csv
import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, lines_of, read_json
from puorl.core.run_folder import check_keep_list
from puorl.data.dataset import Dataset
from puorl.data.formats import PathLike, expand, load, suffix_of, suffixes
from puorl.data.label_values import describe_values
from puorl.data.split import PUSplit, Sampling
from puorl.data.split_files import SETTINGS_FILE
from puorl.data.validate import LABELLED, SOURCE_ROW

NO_LABELS = (
    "labelled: expected rows known to be the target's, got none; name them with --labelled "
    "(a condition such as \"pump == 'P-01'\", or a file), or give one folder of puorl split"
)
"""The message where none are named."""
_LIST, _TABLE = ".txt", ".csv"
_SCORE = "score"


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of which some are labelled: known to be of the target domain."""

    data: Dataset
    """The rows that were read, without labels."""
    pool: Dataset
    """``data``, then the rows of a file of target rows; with the column ``labelled``."""
    sampling: Sampling
    """``two`` if the labelled rows came as a file of their own, else ``one``."""
    split: PUSplit | None = None
    """The saved split that was read, of which ``data`` is the pool."""

    @property
    def mask(self) -> np.ndarray:
        """(n,) bool. Labelled rows of the pool."""
        return self.pool.columns[LABELLED]


def is_split(path: PathLike) -> bool:
    """Return whether a path is a folder of `puorl split`, or of `PUSplit.save`."""
    return (Path(path) / SETTINGS_FILE).is_file()


def read_split(folder: PathLike, **names: Any) -> LabelledRows:
    """Read a saved split with the rows that it was drawn from."""
    names.pop("needed", None)  # the split has the rows that it was drawn from, and no others
    content = read_json(Path(folder) / SETTINGS_FILE, repair="split again")
    held = content if isinstance(content, dict) else {}
    made = held.get("config", {})
    paths = made.get("paths") or held.get("sources") or []
    home = str(made.get("made_in", ""))
    sources = [load(_found(str(path), home, folder), **names) for path in paths]
    if not sources:
        raise DataError(f"{folder}: expected a split that names its files, got none; split again")
    if held.get("origin") is None:  # made from a mask: one dataset, whose files are listed
        sources = [Dataset.concatenate(sources)]
    split = PUSplit.load(folder, sources[0], sources[1:])
    mask = np.isin(np.arange(len(split.pool)), split.labelled)
    return LabelledRows(split.pool, split.pool.with_labels(mask), split.sampling, split)


def _found(path: str, home: str, folder: PathLike) -> str:
    places = [path, os.path.join(home, path), os.path.join(folder, path)]
    there = [each for each in places if os.path.exists(each) or glob.glob(each)]
    if not there:
        raise DataError(
            f"{folder}: the split was drawn from {path}, which is not there any more; put it back, "
            "or split again"
        )
    return there[0]


def read_labels(
    paths: Sequence[str],
    labelled: str | None,
    *,
    format: str | None = None,
    require_both: bool = True,
    **names: Any,
) -> LabelledRows:
    """Read rows and mark those that are labelled.

    Args:
        paths: Files, globs and folders.
        labelled: A condition such as ``"checked == 1"``, or the name of a file: a list (.txt, or a
            .csv with one column, or with one and ``score``) as `match_keep_list` takes it, or rows
            that are all of the target domain (any other file that `load` reads; the name of a
            folder must contain a slash). None if the path is a saved split, which has its own.
        format: Format of ``paths``, as for `load`.
        require_both: Refuse data without labelled or without unlabelled rows.
        names: Where each field is found, as for `load`; also in a file of target rows.

    Raises:
        DataError: A file cannot be read, the list or file does not fit the rows, or all or none
            of the rows are labelled and ``require_both`` is on.
        ConfigError: A wrong condition.
    """
    if labelled is None and len(paths) == 1 and is_split(paths[0]):
        return read_split(paths[0], format=format, **names)
    if labelled is None:
        raise ConfigError(NO_LABELS)
    if not _is_path(labelled):
        data = load(paths, format=format, label=labelled, **names)
        if require_both:
            require_kinds(data, data.columns[LABELLED], condition=labelled)
        return LabelledRows(data, data, "one")
    _require_file(labelled)
    data = load(paths, format=format, **names)
    if _is_list(labelled):
        listed, notes = match_keep_list(labelled, data)
        mask = np.isin(np.arange(len(data)), listed)
        if require_both:
            require_kinds(data, mask, f"{labelled}: the list holds")
        return LabelledRows(data, data.with_labels(mask, notes=notes), "one")
    require_apart(labelled, expand(paths, ids=format == "minari"))
    pool = Dataset.concatenate([data, load(labelled, **names)])
    return LabelledRows(data, pool.with_labels(np.arange(len(pool)) >= len(data)), "two")


def is_condition(labelled: str) -> bool:
    """Tell a condition from the name of a file.

    Raises:
        DataError: There is no such file.
        ConfigError: The file is a list.
    """
    if not _is_path(labelled):
        return True
    _require_file(labelled)
    if _is_list(labelled):
        raise ConfigError(
            f"--labelled {labelled}: expected a condition, or a file of target rows, where data is "
            "read in partitions, got a list; give a condition such as \"pump in ['P-01', 'P-07']\""
        )
    return False


def _is_path(labelled: str) -> bool:
    # By the name alone: a file that happens to exist must not change what a condition means.
    if suffix_of(labelled) in (_LIST, *suffixes()):
        return True
    return "/" in labelled and os.path.isdir(labelled)


def _is_list(path: str) -> bool:
    """Tell a file that lists rows from one that holds them."""
    if os.path.isdir(path):
        return False
    suffix = Path(path).suffix.lower()
    if suffix != _TABLE:
        return suffix == _LIST
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            header = next(csv.reader(lines_of(file, path)), [])
        except csv.Error:
            return False  # the CSV reader has the better message
    if len(header) == 1:
        return not any(mark in header[0] for mark in ";\t")  # other delimiters: a table of rows
    return header[1:] in ([], [_SCORE])


def _require_file(labelled: str) -> None:
    if not os.path.exists(labelled):
        raise DataError(f"{labelled}: no such file; labels are a condition or a file")


def require_apart(labelled: str, paths: Iterable[PathLike]) -> None:
    """Refuse a file of labelled rows that is among the files of data."""
    if {Path(path).resolve() for path in paths} & {path.resolve() for path in expand(labelled)}:
        raise DataError(
            f"{labelled}: is named as the file of labelled rows and among the data, so its rows "
            "would count twice; name it once"
        )


def require_kinds(
    data: Dataset,
    mask: np.ndarray,
    subject: str = "",
    *,
    condition: str = "",
    num_rows: int | None = None,
) -> None:
    """Refuse data without labelled or without unlabelled rows; ``num_rows`` if it is a sample."""
    subject = subject or f"the condition {condition} holds"
    number = f"{len(mask) if num_rows is None else num_rows:,} rows"
    if mask.all():
        raise DataError(
            f"labelled: {subject} for all {number}; need unlabelled rows to choose from"
        )
    if mask.any():
        return
    emptied = data.provenance.emptied
    values = describe_values(condition, data.columns, emptied) if condition else ""
    raise DataError(
        f"labelled: {subject} for none of {number}; need at least a few rows known to be of the "
        f"target domain{values}"
    )


def write_keep_list(
    path: PathLike,
    dataset: Dataset,
    keep: np.ndarray | Sequence[int],
    *,
    unit: str = "row",
    score: np.ndarray | None = None,
    force: bool = False,
) -> None:
    """Write a list of the rows, or of the whole episodes, to keep.

    Args:
        path: Target.
        dataset: The rows that ``keep`` refers to.
        keep: (n,) bool over the dataset's rows, or row numbers.
        unit: ``"row"``, ``"episode"`` or ``"column:NAME"``: then every episode, or all rows of a
            value, must be kept or dropped as a whole. Episodes are listed by their text ids if a
            text column names each of them.
        score: (n,) float. A value for each row to list too; for a unit its mean.
        force: Replace an existing file.

    Raises:
        ConfigError: Unknown unit.
        DataError: ``keep`` or ``score`` does not fit the dataset, an episode is kept in part, or
            ``path`` exists.
    """
    column = dataset.columns.get(unit.removeprefix("column:")) if ":" in unit else None
    if unit not in ("row", "episode") and (column is None or not is_listable(dataset, unit)):
        raise ConfigError(
            "unit: expected row, episode or column:NAME, of a column of text or numbers, "
            f"got {unit!r}"
        )
    mask = _mask(dataset, keep)
    if score is not None and np.shape(score) != (len(dataset),):
        raise DataError(
            f"score: expected {len(dataset)} values, one a row, got shape {np.shape(score)}"
        )
    if unit == "row":
        header, numbers = row_numbers(dataset)
        listed = numbers[mask].tolist()
        scores = None if score is None else np.asarray(score)[mask]
    elif column is not None:
        header = unit.removeprefix("column:")
        listed, scores = _kept_values(column, f"value of {header}", mask, score)
    else:
        if dataset.episode is None:
            raise DataError('keep: the dataset has no episodes; list rows with unit="row"')
        header, ids = next(iter(_text_ids(dataset)), ("episode", dataset.episode))
        listed, scores = _kept_values(ids, "episode", mask, score)
    if scores is None:
        write_table(path, [header], ([each] for each in listed), force=force)
    else:
        pairs = zip(listed, map(repr, scores.tolist()), strict=True)
        write_table(path, [header, _SCORE], pairs, force=force)


def is_listable(dataset: Dataset, unit: str) -> bool:
    """Return whether a keep-list can name the values of ``column:NAME``."""
    name = unit.removeprefix("column:")
    reserved = ("row", "episode", SOURCE_ROW, _SCORE)
    known = name in dataset.columns and name not in reserved
    return known and dataset.columns[name].dtype.kind in "Uiuf"


def write_table(
    path: PathLike,
    header: Sequence[str],
    lines: Iterable[Sequence[str | int]],
    *,
    force: bool = False,
) -> None:
    """Write a CSV file; text that a spreadsheet would compute gets an apostrophe before it."""
    with (
        atomic_path(path, force=force) as part,
        open(part, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(_inert, header))
        # Numbers are written as they are, also below zero.
        writer.writerows([_inert(line[0]), *line[1:]] for line in lines)


def read_keep_list(path: PathLike, dataset: Dataset) -> np.ndarray:
    """Read the rows that a keep-list names, without those that loading dropped.

    Args:
        path: A file as `write_keep_list` writes it.
        dataset: The rows that it refers to.

    Returns:
        (k,) int64. Row numbers, ascending, each once.

    Raises:
        DataError: Not a keep-list, or it names rows or episodes that are not in the dataset.
    """
    return match_keep_list(path, dataset)[0]


def match_keep_list(path: PathLike, dataset: Dataset) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a keep-list as `read_keep_list` does; return also notes on rows that were left out."""
    check_keep_list(Path(path))
    header, listed = _read_first_column(path)
    if header not in (SOURCE_ROW, "row"):
        return _match_values(path, header, listed, dataset), ()
    wanted, n = np.unique(_whole_numbers(listed, path)), len(dataset)
    # Joined files have no row numbers of their own: their list counts over all the data.
    kinds = ("dropped_rows", "missing_rows")
    dropped = sum(dataset.provenance.count(kind) for kind in kinds)
    in_file = dataset.columns.get(SOURCE_ROW)
    if in_file is not None:
        dropped = max(dropped, int(in_file.max()) + 1 - n)
    if header == SOURCE_ROW and in_file is None:
        why = "the rows come from several files" if dropped else "loading dropped no row"
        raise DataError(
            f"{path}: expected a list of row numbers, from 0 to {n - 1}, got one of "
            f"{SOURCE_ROW}; {why}: head the list with row and count over all the data"
        )
    if header == "row" and in_file is not None:
        raise DataError(
            f"{path}: loading dropped {dropped:,} rows, so row numbers are ambiguous; head the "
            f"list with {SOURCE_ROW} and give numbers in the file, from 0, header not counted"
        )
    last = n - 1 if in_file is None else n + dropped - 1
    if len(wanted) and (wanted[0] < 0 or wanted[-1] > last):
        raise DataError(
            f"{path}: expected {header} numbers from 0 to {last}, got {wanted[0]} to "
            f"{wanted[-1]}; is it the list of another dataset?"
        )
    if in_file is None:
        note = f"{path}: rows are counted without those that loading dropped"
        return wanted, (note,) if dropped else ()
    row = np.flatnonzero(np.isin(in_file, wanted))
    num_gone = int((~np.isin(wanted, in_file)).sum())
    if num_gone and not len(row):
        raise DataError(
            f"{path}: loading dropped all {num_gone:,} listed rows, as their next state is not "
            "recorded; list rows that are followed by another of their episode"
        )
    verb = "was" if num_gone == 1 else "were"
    note = f"{path}: {num_gone:,} of {len(wanted):,} listed rows {verb} dropped in loading"
    return row, (note,) if num_gone else ()


def _match_values(
    path: PathLike, header: str, listed: Sequence[str], dataset: Dataset
) -> np.ndarray:
    texts = dict(_text_ids(dataset))
    ids = texts.get(header)
    if ids is None and header == "episode" and dataset.episode is not None:
        ids = dataset.episode
    if ids is None and is_listable(dataset, header):
        ids = dataset.columns[header]
    if ids is None:
        known = [row_numbers(dataset)[0], *([] if dataset.episode is None else ["episode"])]
        named = (name for name in dataset.columns if is_listable(dataset, name))
        known += [name for name in named if dataset.columns[name].dtype.kind == "U"]
        raise DataError(
            f"{path}: the first line must say what is listed, expected {' or '.join(known)}, got "
            f"{header!r}"
        )
    if ids.dtype.kind in "Uf":
        try:
            wanted = np.array(listed, dtype=str if ids.dtype.kind == "U" else ids.dtype)
        except ValueError as error:
            raise DataError(f"{path}: expected numbers below the header, got: {error}") from error
    else:
        wanted = _whole_numbers(listed, path)
    unknown = wanted[~np.isin(wanted, ids)]
    kind = "episodes" if header == "episode" or header in texts else f"values of {header}"
    if len(unknown):
        raise DataError(
            f"{path}: {len(unknown)} of {len(wanted)} {kind} are not in the dataset "
            f"(first: {unknown[0]}); is it the list of another dataset?"
        )
    return np.flatnonzero(np.isin(ids, wanted))


def _mask(dataset: Dataset, keep: np.ndarray | Sequence[int]) -> np.ndarray:
    n, array = len(dataset), np.asarray(keep)
    if array.dtype == bool and array.shape == (n,):
        return array
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise DataError(
            f"keep: expected {n} flags or a list of row numbers, got shape {array.shape}, "
            f"dtype {array.dtype}"
        )
    if array.size and (array.min() < 0 or array.max() >= n):
        raise DataError(
            f"keep: expected row numbers from 0 to {n - 1}, got {array.min()} to {array.max()}"
        )
    return np.isin(np.arange(n), array)


def row_numbers(dataset: Dataset) -> tuple[str, np.ndarray]:
    """Return the header and the row numbers of a list: those in the file, if they differ."""
    if SOURCE_ROW in dataset.columns:
        return SOURCE_ROW, dataset.columns[SOURCE_ROW]
    return "row", np.arange(len(dataset))


def _kept_values(
    ids: np.ndarray, kind: str, mask: np.ndarray, score: np.ndarray | None
) -> tuple[list[str | int], np.ndarray | None]:
    """Return ids and mean scores of what is kept, in order of appearance."""
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    size = np.bincount(codes)
    num_kept = np.bincount(codes, weights=mask)
    partly = np.flatnonzero((num_kept > 0) & (num_kept < size))
    if len(partly):
        one = partly[0]
        raise DataError(
            f"keep: expected whole units, got {int(num_kept[one])} of {size[one]} rows of "
            f'{kind} {ids[first[one]]}; decide by such units, or use unit="row"'
        )
    kept = [code for code in np.argsort(first) if num_kept[code]]
    means = None if score is None else (np.bincount(codes, weights=score) / size)[kept]
    return ids[first[kept]].tolist(), means


def _text_ids(dataset: Dataset) -> list[tuple[str, np.ndarray]]:
    """Return the text columns with one value in each episode, different in all episodes."""
    if dataset.episode is None:
        return []
    _, first, codes = np.unique(dataset.episode, return_index=True, return_inverse=True)
    found = []
    for name, column in dataset.columns.items():
        if column.dtype.kind == "U" and name not in ("row", _SCORE):
            texts = column[first]
            if len(set(texts.tolist())) == len(texts) and bool((texts[codes] == column).all()):
                found.append((name, column))
    return found


def _read_first_column(path: PathLike) -> tuple[str, list[str]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(lines_of(file, str(path)), strict=True) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path}: expected a keep-list (CSV text), got: {error}") from error
    if not rows:
        raise DataError(f"{path}: expected a keep-list with a header, got an empty file")
    odd = next((i for i, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if odd is not None:
        raise DataError(
            f"{path}: expected {len(rows[0])} cells as in the header, got {len(rows[odd])} in "
            f"entry {odd}"
        )
    first = [re.sub(r"^'(?='*[=+@\t\r-])", "", row[0]) for row in rows]
    return first[0], first[1:]


def _inert(value: str | int) -> str | int:
    """Put an apostrophe before text that a spreadsheet would take for a formula."""
    is_formula = isinstance(value, str) and re.match(r"'*[=+@\t\r-]", value)
    return f"'{value}" if is_formula else value


def _whole_numbers(listed: Sequence[str], path: PathLike) -> np.ndarray:
    try:
        return np.array([int(item) for item in listed], np.int64)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: expected whole numbers below the header, got: {error}") from error
