"""Score the rows of a lazy dataset with a fitted filter, partition by partition, and keep some.

Every partition is scored by the saved filter as rows that it has not seen, whether they were in
the sample of the fit or not. Units that are values of a column were all in the sample, and are
decided there; their rows follow.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from puorl.core import hashing
from puorl.core.files import atomic_path
from puorl.core.run_folder import KEEP_LIST, KEPT_PARTS, MODEL, WEIGHT, KeptRows
from puorl.core.tasks import Workers, part_path, run_tasks
from puorl.data.dataset import Dataset
from puorl.data.formats import save
from puorl.data.lazy import LazyDataset
from puorl.data.parquet import fingerprint_of_parts
from puorl.data.split import PUSplit
from puorl.data.validate import LABELLED, SOURCE_ROW
from puorl.pu.result_folder import Written
from puorl.pu.units import number_units, parse_unit

if TYPE_CHECKING:  # importing it loads jax
    from puorl.pu.filter import DomainFilter

SCORE = "score"
"""Column of the kept rows: the probability to be the target's."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions about the units of a column."""

    value: np.ndarray
    """(units,) str, ascending."""
    score: np.ndarray
    """(units,) float32."""
    keep: np.ndarray
    """(units,) bool."""

    @classmethod
    def of(cls, flt: "DomainFilter", split: PUSplit) -> "Decisions":
        """Take the decisions of a fitted filter about the units of its own split."""
        found = number_units(split.pool, parse_unit(flt.unit))
        score = np.ones(len(split.pool), np.float32)
        score[split.unlabelled] = flt.predict_proba(split)
        keep = np.ones(len(split.pool), bool)
        keep[split.unlabelled] = flt.predict(split)
        first = np.unique(found.number, return_index=True)[1]
        order = np.argsort(found.name)
        return cls(found.name[order], score[first][order], keep[first][order])

    def lookup(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return score and decision of each row; a unit that is not listed is not kept."""
        place = np.searchsorted(self.value, values).clip(max=len(self.value) - 1)
        is_known = self.value[place] == values
        return np.where(is_known, self.score[place], 0).astype(np.float32), (
            self.keep[place] & is_known
        )


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows of a partition with what a filter says about them."""

    data: Dataset
    labelled: np.ndarray
    score: np.ndarray
    keep: np.ndarray


@dataclass(frozen=True, eq=False)
class Scorer:
    """Score partitions with a saved filter."""

    lazy: LazyDataset
    model: Path
    decisions: Decisions | None = None
    cut: float | None = None
    """Least score to keep in the mode ``top_alpha``, as found in the sample."""

    def score(self, number: int) -> ScoredRows:
        """Read a partition, and score and decide about its rows; labelled ones are kept."""
        data = self.lazy.read(number)
        if not len(data):
            none = np.zeros(0, bool)
            return ScoredRows(data, none, none.astype(np.float32), none)
        flt = _loaded(os.fspath(self.model))
        unit = parse_unit(flt.unit)
        labelled = data.columns.get(LABELLED, np.zeros(len(data), bool))
        if not unit.is_row and unit.kind != "column":
            number_of = number_units(data, unit).number
            labelled = np.bincount(number_of, labelled)[number_of] > 0
        if self.decisions is not None:
            score, keep = self.decisions.lookup(data.columns[unit.column].astype(str))
        else:
            score = flt.predict_proba(data)
            keep = score >= (0.5 if self.cut is None else self.cut)
            keep &= getattr(flt.model_, "finds_target", True)
        score = np.where(labelled, np.float32(1), score)
        return ScoredRows(data, labelled, score, keep | labelled)


@dataclass(frozen=True, eq=False)
class KeepRows(Scorer):
    """Write the kept rows of a partition, with their scores, or only their numbers."""

    soft: bool = False
    """Keep all rows, with a column of weights."""
    only_list: bool = False

    def __call__(self, number: int, folder: Path) -> dict[str, Any]:
        """Score a partition and write what is kept of it."""
        found = self.score(number)
        keep = np.ones(len(found.data), bool) if self.soft else found.keep
        kept = found.data[keep]
        if self.only_list:
            pairs = zip(kept.columns[SOURCE_ROW].tolist(), found.score[keep].tolist(), strict=True)
            lines = "".join(f"{row},{score!r}\n" for row, score in pairs)
            with atomic_path(part_path(folder, number, ".csv"), force=True) as part:
                part.write_text(lines)
        elif len(kept):
            columns = {**kept.columns, WEIGHT if self.soft else SCORE: found.score[keep]}
            kept = Dataset(kept.rows, columns, kept.provenance)
            save(kept, part_path(folder, number, ".parquet"), force=True)
        return {
            "num_rows": len(found.data),
            "num_labelled": int(found.labelled.sum()),
            "num_kept": len(kept),
            "score": float(found.score.sum(dtype=np.float64)),
        }


@dataclass(frozen=True, eq=False)
class ListScores(Scorer):
    """Write a line of CSV for every row of a partition: number, score, decision."""

    def __call__(self, number: int, folder: Path) -> dict[str, Any]:
        """Score a partition and write a line for each row."""
        found = self.score(number)
        columns = found.data.columns[SOURCE_ROW], found.score, found.keep.astype(int)
        lines = zip(*(column.tolist() for column in columns), strict=True)
        with atomic_path(part_path(folder, number, ".csv"), force=True) as part:
            part.write_text("".join(f"{row},{score!r},{keep}\n" for row, score, keep in lines))
        return {
            "num_rows": len(found.data),
            "num_kept": int(found.keep.sum()),
            "score": float(found.score.sum(dtype=np.float64)),
            "left_out": found.data.provenance.left_out,
        }


@dataclass(frozen=True, eq=False)
class SaveRows:
    """Write all rows of a partition as Parquet."""

    lazy: LazyDataset

    def __call__(self, number: int, folder: Path) -> dict[str, Any]:
        """Read a partition and write it."""
        data = self.lazy.read(number)
        if len(data):
            save(data, part_path(folder, number, ".parquet"), force=True)
        return {"num_rows": len(data)}


def keep_rows(
    lazy: LazyDataset,
    flt: "DomainFilter",
    split: PUSplit,
    folder: Path,
    workers: Workers,
    *,
    only_list: bool = False,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Score all rows with a fitted filter, and write those that it keeps.

    Args:
        lazy: The rows.
        flt: The filter, in whose mode rows are kept; it is saved next to the parts, in ``model``.
        split: The split that it was fitted on.
        folder: For a file of each partition; a killed job goes on there.
        workers: Where partitions are scored.
        only_list: Write numbers and scores of rows as CSV, instead of rows as Parquet.
        progress: Show a bar.

    Returns:
        A record of each partition, with ``num_rows`` and ``num_kept``.
    """
    from puorl.pu.model import cut_score

    model = folder.absolute() / MODEL
    flt.save(model, force=True)
    cut = None
    if flt.mode == "top_alpha":
        score = flt.predict_proba(split)
        cut = cut_score(score, int(flt.alpha_.value * len(score)))
    task = KeepRows(
        lazy,
        model,
        Decisions.of(flt, split) if parse_unit(flt.unit).kind == "column" else None,
        cut,
        soft=flt.mode == "soft",
        only_list=only_list,
    )
    return run_partitions(task, lazy, folder, workers, "scoring", progress=progress)


def write_kept(
    folder: Path, parts: Path, num_kept: int, target: Dataset | None, *, only_list: bool
) -> Written:
    """Write what `keep_rows` left in ``parts`` into the folder of `puorl filter`.

    ``target`` are labelled rows of a file of their own, which are kept as well.
    """
    if only_list:
        path = folder / KEEP_LIST
        collect(parts, path, ".csv", "source_row,score")
        text = f"list of {num_kept:,} kept rows, counted over all files, from 0"
        return Written(KeptRows(path.name, num_kept, hashing.of_bytes(path)), {path.name: text})
    path = folder / KEPT_PARTS
    collect(parts, path, ".parquet")
    if target is not None:
        save(target, path / "target.parquet")
        num_kept += len(target)
    kept = KeptRows(path.name, num_kept, fingerprint_of_parts(path))
    return Written(kept, {path.name: f"{num_kept:,} kept rows as Parquet, with scores"})


def run_partitions(
    task: Any, lazy: LazyDataset, folder: Path, workers: Workers, title: str, *, progress: bool
) -> list[dict[str, Any]]:
    """Run a task on all partitions of a lazy dataset; messages name rows, not numbers.

    Raises:
        DataError: A partition failed twice, or by the records' ``num_rows`` there is no usable row.
    """

    def describe(number: int) -> str:
        span = lazy.partitions[number]
        return f"partition {number} (rows {span.start:,} to {span.stop - 1:,})"

    records = run_tasks(
        task, len(lazy), folder, workers, title=title, progress=progress, describe=describe
    )
    lazy.require_rows(sum(record["num_rows"] for record in records))
    return records


def collect(parts: Path, target: Path, suffix: str, header: str | None = None) -> None:
    """Bring the files of all partitions together: Parquet in a folder, text in one file."""
    files = sorted(parts.glob(f"part-*{suffix}"))
    if header is None:
        target.mkdir()
        for file in files:
            os.link(file, target / file.name)  # the parts stay, should this be interrupted
        return
    with open(target, "wb") as whole:
        whole.write(f"{header}\n".encode())
        for file in files:
            whole.write(file.read_bytes())


@functools.lru_cache(maxsize=1)
def _loaded(folder: str) -> "DomainFilter":
    from puorl.pu.filter import DomainFilter

    return DomainFilter.load(folder)
