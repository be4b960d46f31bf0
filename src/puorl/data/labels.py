"""Labelled rows of a user's own data, named by a condition, a list of rows or a file of rows."""

import csv
import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.errors import DataError
from puorl.core.files import lines_of
from puorl.data.dataset import Dataset
from puorl.data.formats import expand, load, suffixes
from puorl.data.keep_list import match_keep_list
from puorl.data.split import Sampling
from puorl.data.validate import LABELLED

_LIST, _TABLE = ".txt", ".csv"
_MAX_VALUES = 5
"""Number of values of a text column that a message shows."""


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of which some are labelled: known to be of the target domain."""

    data: Dataset
    """The rows that were read, without labels."""
    pool: Dataset
    """``data``, then the rows of a file of target rows; with the column ``labelled``."""
    sampling: Sampling
    """``two`` if the labelled rows came as a file of their own, else ``one``."""

    @property
    def mask(self) -> np.ndarray:
        """(n,) bool. Labelled rows of the pool."""
        return self.pool.columns[LABELLED]


def read_labels(
    paths: Sequence[str],
    labelled: str,
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
            folder must contain a slash).
        format: Format of ``paths``, as for `load`.
        require_both: Refuse data without labelled or without unlabelled rows.
        names: Where each field is found, as for `load`; also in a file of target rows.

    Raises:
        DataError: A file cannot be read, the list or file does not fit the rows, or all or none
            of the rows are labelled and ``require_both`` is on.
        ConfigError: A wrong condition.
    """
    paths = list(paths)
    if not _is_path(labelled):
        data = load(paths, format=format, label=labelled, **names)
        if require_both:
            subject = f"the condition {labelled} holds"
            _require_both(data, data.columns[LABELLED], subject, labelled)
        return LabelledRows(data, data, "one")
    data = load(paths, format=format, **names)
    if not os.path.exists(labelled):
        raise DataError(f"{labelled}: no such file; labelled= takes a condition or a file")
    if _is_list(labelled):
        found = match_keep_list(labelled, data)
        mask = np.zeros(len(data), bool)
        mask[found.row] = True
        if require_both:
            _require_both(data, mask, f"{labelled}: the list holds")
        return LabelledRows(data, _with_labels(data, mask, *found.notes), "one")
    _require_apart(labelled, paths, ids=format == "minari")
    pool = Dataset.concatenate([data, load([labelled], **names)])
    return LabelledRows(data, _with_labels(pool, np.arange(len(pool)) >= len(data)), "two")


def _is_path(labelled: str) -> bool:
    # By the name alone: a file that happens to exist must not change what a condition means.
    if Path(labelled).suffix.lower() in (_LIST, *suffixes()):
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
    return header[1:] in ([], ["score"])


def _require_both(data: Dataset, mask: np.ndarray, subject: str, condition: str = "") -> None:
    if mask.all():
        raise DataError(
            f"labelled: {subject} for all {len(mask):,} rows; need unlabelled rows to choose from"
        )
    if not mask.any():
        values = "".join(f"; {text}" for text in _describe_values(data, condition))
        raise DataError(
            f"labelled: {subject} for none of {len(mask):,} rows; need at least a few rows known "
            f"to be of the target domain{values}"
        )


def _describe_values(data: Dataset, condition: str) -> list[str]:
    """List values of the text columns that a condition names."""
    outside_quotes = re.sub(r"'[^']*'|\"[^\"]*\"", "''", condition)
    described = []
    for name, column in data.columns.items():
        is_named = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", outside_quotes)
        if column.dtype.kind == "U" and is_named:
            values = np.unique(column).tolist()
            more = len(values) - _MAX_VALUES
            shown = ", ".join(map(repr, values[:_MAX_VALUES]))
            described.append(f"{name} holds {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return described


def _require_apart(labelled: str, paths: Sequence[str], *, ids: bool) -> None:
    own = {path.resolve() for path in expand([labelled])}
    given = {path.resolve() for path in expand(paths, ids=ids)}
    if own & given:
        raise DataError(
            f"{labelled}: is named as the file of labelled rows and among the data, so its rows "
            "would count twice; name it once"
        )


def _with_labels(dataset: Dataset, mask: np.ndarray, *notes: str) -> Dataset:
    if LABELLED in dataset.columns:
        notes = (*notes, f"{LABELLED}: the file's own column of this name gave way to the labels")
    provenance = dataset.provenance
    provenance = dataclasses.replace(provenance, notes=(*provenance.notes, *notes))
    return Dataset(dataset.rows, {**dataset.columns, LABELLED: mask}, provenance)
