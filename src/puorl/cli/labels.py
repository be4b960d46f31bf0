"""What `--labelled` may be: a condition, a list of rows or episodes, or a file of target rows."""

import csv
import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from puorl.cli.options import DataOptions
from puorl.core.errors import DataError
from puorl.core.files import lines_of
from puorl.data.dataset import Dataset
from puorl.data.formats import expand
from puorl.data.keep_list import match_keep_list
from puorl.data.split import Sampling
from puorl.data.validate import LABELLED

_LIST, _TABLE = ".txt", ".csv"
_ROWS = (".tsv", ".hdf5", ".h5", ".npz", ".parquet", ".pq")
_MOST_VALUES = 5
"""So many values of a text column are shown."""


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows, some of which are known to be the target's."""

    data: Dataset
    """The rows that were to be filtered, as they were read."""
    pool: Dataset
    """The same, then those of a file of target rows, with the column `LABELLED`."""
    sampling: Sampling
    """``two`` when the known rows came as a file of their own."""

    @property
    def mask(self) -> np.ndarray:
        """(n,) bool over the pool."""
        return self.pool.columns[LABELLED]


def read_known_rows(
    paths: Sequence[str], options: DataOptions, labelled: str, *, need_some: bool = True
) -> KnownRows:
    """Read the rows and find out which of them are known.

    Args:
        paths: Files, globs and folders.
        options: Where each field is found; also for a file of target rows.
        labelled: A condition such as ``"checked == 1"``, or the name of a file: a list (.txt, or a
            .csv with one column, or with one and ``score``) as `match_keep_list` takes it, or rows
            that are all the target's (any other file that can be loaded; a folder's name needs a
            slash in it).
        need_some: Whether to refuse data of which no row or every row is known.

    Raises:
        DataError: Something cannot be read, the list or file does not fit the rows, or no row or
            every row is known and ``need_some`` is on.
        ConfigError: A wrong condition.
    """
    if not _is_path(labelled):
        data = options.load(paths, label=labelled)
        if need_some:
            _require_some(data, data.columns[LABELLED], f"the condition {labelled} holds", labelled)
        return KnownRows(data, data, "one")
    data = options.load(paths)
    if not os.path.exists(labelled):
        raise DataError(f"{labelled}: no such file; --labelled takes a condition or a file")
    if _is_list(labelled):
        mask = np.zeros(len(data), bool)
        listed = match_keep_list(labelled, data)
        mask[listed.row] = True
        if need_some:
            _require_some(data, mask, f"{labelled}: the list speaks")
        return KnownRows(data, _marked(data, mask, *listed.notes), "one")
    _require_apart(labelled, paths, options)
    known = dataclasses.replace(options, format=None).load([labelled])
    pool = Dataset.concatenate([data, known])
    return KnownRows(data, _marked(pool, np.arange(len(pool)) >= len(data)), "two")


def _is_path(labelled: str) -> bool:
    # By the name alone: a file that lies about must not change what a condition means.
    if Path(labelled).suffix.lower() in (_LIST, _TABLE, *_ROWS):
        return True
    return "/" in labelled and os.path.isdir(labelled)


def _is_list(path: str) -> bool:
    """Whether a file names rows, rather than holding them."""
    if os.path.isdir(path):
        return False
    suffix = Path(path).suffix.lower()
    if suffix != _TABLE:
        return suffix == _LIST
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            header = next(csv.reader(lines_of(file, path)), [])
        except csv.Error:
            return False  # whoever reads it as rows can say more
    if len(header) == 1:
        return not any(mark in header[0] for mark in ";\t")  # other separators: a table of rows
    return header[1:] in ([], ["score"])


def _require_some(data: Dataset, mask: np.ndarray, subject: str, condition: str = "") -> None:
    """Some rows must be known and others not."""
    if mask.all():
        raise DataError(
            f"--labelled: {subject} for all {len(mask):,} rows, so there is nothing to choose from"
        )
    if not mask.any():
        values = "".join(f"; {text}" for text in _values_of(data, condition))
        raise DataError(
            f"--labelled: {subject} for none of {len(mask):,} rows; at least a few target rows "
            f"must be known{values}"
        )


def _values_of(data: Dataset, condition: str) -> list[str]:
    """What the text columns that a condition speaks of hold, in a few words each."""
    outside_quotes = re.sub(r"'[^']*'|\"[^\"]*\"", "''", condition)
    told = []
    for name, column in data.columns.items():
        is_meant = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", outside_quotes)
        if column.dtype.kind == "U" and is_meant:
            values = np.unique(column).tolist()
            more = len(values) - _MOST_VALUES
            shown = ", ".join(map(repr, values[:_MOST_VALUES]))
            told.append(f"{name} holds {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return told


def _require_apart(labelled: str, paths: Sequence[str], options: DataOptions) -> None:
    own = {path.resolve() for path in expand([labelled])}
    given = {path.resolve() for path in expand(list(paths), ids=options.format == "minari")}
    if own & given:
        raise DataError(
            f"{labelled}: holds the labelled rows and is named among the data, too, so its rows "
            "would count twice; name it once"
        )


def _marked(dataset: Dataset, mask: np.ndarray, *notes: str) -> Dataset:
    if LABELLED in dataset.columns:
        notes = (*notes, f"{LABELLED}: the file's own column of this name gave way to --labelled")
    provenance = dataset.provenance
    provenance = dataclasses.replace(provenance, notes=(*provenance.notes, *notes))
    return Dataset(dataset.rows, {**dataset.columns, LABELLED: mask}, provenance)
