"""Keep-lists: a CSV of the rows or episodes to keep, for tools that hold the data themselves.

The header says what is listed: ``row`` (numbers counted from 0 in the dataset), ``source_row``
(numbers counted from 0 in its file, where loading dropped some of the file's rows), ``episode``
(its ids), or the name of a text column that names each episode. A column ``score`` may follow.
"""

import csv
import os
from collections.abc import Sequence

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path
from puorl.data.dataset import Dataset
from puorl.data.raw import SOURCE_ROW

_UNITS = ("row", "episode")
_SCORE = "score"


def write_keep_list(
    path: str | os.PathLike[str],
    dataset: Dataset,
    keep: np.ndarray | Sequence[int],
    *,
    unit: str = "row",
    score: np.ndarray | None = None,
    force: bool = False,
) -> None:
    """Write which rows, or which whole episodes, to keep.

    Args:
        path: Target.
        dataset: What ``keep`` refers to.
        keep: (n,) bool over the dataset's rows, or row numbers.
        unit: ``"row"``, or ``"episode"``: then every episode must be kept or left whole. Episodes
            are listed by their text ids where a text column names each of them.
        score: (n,) float. A value a row to list beside; for an episode its mean.
        force: Replace what stands at ``path``.

    Raises:
        ConfigError: Unknown unit.
        DataError: ``keep`` or ``score`` does not fit the dataset, an episode is kept in part, or
            something is at ``path``.
    """
    if unit not in _UNITS:
        raise ConfigError(f"unit: expected one of {', '.join(_UNITS)}, got {unit!r}")
    mask = _mask(dataset, keep)
    if score is not None and np.shape(score) != (len(dataset),):
        raise DataError(
            f"score: expected {len(dataset)} values, one a row, got shape {np.shape(score)}"
        )
    if unit == "row":
        header, numbers = _row_numbers(dataset)
        listed = numbers[mask].tolist()
        scores = None if score is None else np.asarray(score)[mask]
    else:
        header, listed, scores = _kept_episodes(dataset, mask, score)
    with (
        atomic_path(path, force=force) as part,
        open(part, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        if scores is None:
            writer.writerow([header])
            writer.writerows([item] for item in listed)
        else:
            writer.writerow([header, _SCORE])
            writer.writerows(zip(listed, map(repr, scores.tolist()), strict=True))


def read_keep_list(path: str | os.PathLike[str], dataset: Dataset) -> np.ndarray:
    """Find the rows that a keep-list names.

    Args:
        path: A file that `write_keep_list` wrote, or one like it.
        dataset: The rows it refers to.

    Returns:
        (k,) int64. Row numbers in rising order, each once.

    Raises:
        DataError: Not a keep-list, or it names rows or episodes that the dataset does not have.
    """
    header, listed = _read_first_column(path)
    expected, numbers = _row_numbers(dataset)
    if header in ("row", SOURCE_ROW):
        wanted = _whole_numbers(listed, path)
        if header != expected or not np.isin(wanted, numbers).all():
            raise DataError(
                f"{path}: expected {expected} numbers from {numbers[0]} to {numbers[-1]}, got a "
                f"list of {header} numbers that does not fit; is it the list of another dataset?"
            )
        return np.flatnonzero(np.isin(numbers, wanted))
    ids = dict(_text_ids(dataset)).get(header)
    if ids is None and header == "episode" and dataset.episode is not None:
        ids = dataset.episode
    if ids is None:
        raise DataError(
            f"{path}: expected a first column named row, episode or like a text column that names "
            f"each episode, got {header!r}"
        )
    wanted = np.array(listed, dtype=str) if ids.dtype.kind == "U" else _whole_numbers(listed, path)
    unknown = wanted[~np.isin(wanted, ids)]
    if len(unknown):
        raise DataError(
            f"{path}: {len(unknown)} of {len(wanted)} episodes are not in the dataset "
            f"(first: {unknown[0]}); is it the list of another dataset?"
        )
    return np.flatnonzero(np.isin(ids, wanted))


def _mask(dataset: Dataset, keep: np.ndarray | Sequence[int]) -> np.ndarray:
    n = len(dataset)
    array = np.asarray(keep)
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
    mask = np.zeros(n, bool)
    mask[array.astype(np.int64)] = True
    return mask


def _row_numbers(dataset: Dataset) -> tuple[str, np.ndarray]:
    """What a row is called in a list: its number in the file it came from, if that differs."""
    if SOURCE_ROW in dataset.columns:
        return SOURCE_ROW, dataset.columns[SOURCE_ROW]
    return "row", np.arange(len(dataset))


def _kept_episodes(
    dataset: Dataset, mask: np.ndarray, score: np.ndarray | None
) -> tuple[str, list[str | int], np.ndarray | None]:
    """Header, ids and mean scores of the kept episodes, in their order of appearance."""
    if dataset.episode is None:
        raise DataError('keep: the dataset has no episodes; list rows with unit="row"')
    _, first, codes = np.unique(dataset.episode, return_index=True, return_inverse=True)
    size = np.bincount(codes)
    num_kept = np.bincount(codes, weights=mask)
    partly = np.flatnonzero((num_kept > 0) & (num_kept < size))
    if len(partly):
        one = partly[0]
        raise DataError(
            f"keep: expected whole episodes, got {int(num_kept[one])} of {size[one]} rows of "
            f'episode {dataset.episode[first[one]]}; decide by episode, or use unit="row"'
        )
    kept = np.flatnonzero(num_kept)
    kept = kept[np.argsort(first[kept])]
    header, ids = next(iter(_text_ids(dataset)), ("episode", dataset.episode))
    means = None if score is None else (np.bincount(codes, weights=score) / size)[kept]
    return header, ids[first[kept]].tolist(), means


def _text_ids(dataset: Dataset) -> list[tuple[str, np.ndarray]]:
    """The text columns that have one value an episode, and another in every other episode."""
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


def _read_first_column(path: str | os.PathLike[str]) -> tuple[str, list[str]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, strict=True) if row]
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
    return rows[0][0], [row[0] for row in rows[1:]]


def _whole_numbers(listed: Sequence[str], path: str | os.PathLike[str]) -> np.ndarray:
    try:
        return np.array([int(item) for item in listed], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: expected whole numbers below the header, got: {error}") from error
