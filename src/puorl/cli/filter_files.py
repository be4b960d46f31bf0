"""What `puorl filter` leaves: the kept rows, their list, the model, the report and the settings."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from puorl.core.files import write_json
from puorl.data.dataset import Dataset
from puorl.data.formats import save
from puorl.data.labels import LabelledRows, write_keep_list
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet

if TYPE_CHECKING:  # importing these loads jax
    from puorl.pu.filter import DomainFilter
    from puorl.pu.report import FilterReport

KEEP_LIST, MODEL, PAGE, REPORT, SETTINGS = (
    "keep.csv",
    "model",
    "report.html",
    "report.json",
    "settings.json",
)
MARKER = "model/filter.json"
"""By this file a folder that may be replaced is known."""
WEIGHT = "weight"
"""Column of the kept rows in the mode ``soft``."""
RETURNS = "returns"
"""In the settings: smallest and largest return of complete episodes of the whole pool, or null.

Kept rows alone do not tell: of most episodes some rows are gone.
"""


def write_files(
    folder: Path,
    flt: "DomainFilter",
    split: PUSplit,
    known: LabelledRows,
    report: "FilterReport | None",
    *,
    unit: str,
    kept_name: str,
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """Fill an empty folder with everything a run leaves.

    Args:
        folder: Where to write.
        flt: The fitted filter.
        split: What it was fitted on.
        known: The rows behind the split.
        report: What the filter says of itself; None where nothing was checked.
        unit: What was decided about, as `DomainFilter` names it.
        kept_name: Name of the file of kept rows; the suffix chooses the format.
        settings: What the run was asked for; written with what came out.

    Returns:
        Name of each file to what is in it, in a few words.
    """
    training = flt.filter(split)
    kept = _kept_rows(training)
    score = _scores(flt, split, training)
    listed = _write_list(folder / KEEP_LIST, known, training, score, unit)
    save(kept, folder / kept_name)
    flt.save(folder / MODEL)
    reported = {} if report is None else _write_report(folder, report)
    outcome = {"file": kept_name, "num_rows": len(kept), "fingerprint": kept.fingerprint}
    content = {**settings, RETURNS: _finite(training.returns), "kept": outcome}
    write_json(folder / SETTINGS, content)
    rows = f"{len(kept):,} kept rows, labelled ones included"
    if training.weight is not None:
        rows = f"all {len(kept):,} rows, with the column {WEIGHT}"
    return {
        kept_name: rows,
        KEEP_LIST: f"the same as a list, by {listed}, with scores",
        MODEL: "the filter; puorl.DomainFilter.load reads it",
        **reported,
        SETTINGS: "arguments, versions and fingerprints",
    }


def _write_report(folder: Path, report: "FilterReport") -> dict[str, str]:
    from puorl.pu.report_page import as_page

    (folder / PAGE).write_text(as_page(report), encoding="utf-8")
    write_json(folder / REPORT, report.to_dict())
    return {PAGE: "the report, for a browser", REPORT: "the report, for programs"}


def _kept_rows(training: TrainingSet) -> Dataset:
    kept = training.dataset
    if training.weight is None:
        return kept
    provenance = kept.provenance
    if WEIGHT in kept.columns:
        note = f"{WEIGHT}: the file's own column of this name gave way to the filter's"
        provenance = dataclasses.replace(provenance, notes=(*provenance.notes, note))
    weight = training.weight[np.argsort(training.rows)]  # the dataset is in the pool's order
    return Dataset(kept.rows, {**kept.columns, WEIGHT: weight}, provenance)


def _finite(returns: tuple[float, float] | None) -> tuple[float, float] | None:
    return returns if returns is not None and np.isfinite(returns).all() else None


def _scores(flt: "DomainFilter", split: PUSplit, training: TrainingSet) -> np.ndarray:
    """(n,) float32 over the pool: how likely each row is the target's; 1 where that is known."""
    score = np.ones(len(split.pool), np.float32)
    if training.weight is not None:
        score[training.rows] = training.weight
    else:
        score[split.unlabelled] = flt.score(split)
    return score


def _write_list(
    path: Path, known: LabelledRows, training: TrainingSet, score: np.ndarray, unit: str
) -> str:
    """List what is kept of the rows that were to be filtered; returns what is listed."""
    data = known.data
    mask = np.zeros(len(known.pool), bool)
    mask[training.rows] = True
    mask, score = mask[: len(data)], score[: len(data)]
    # An episode of which only some rows were labelled may be kept in part.
    listed = "episode" if unit == "episode" and _is_whole(mask, data) else "row"
    write_keep_list(path, data, mask, unit=listed, score=score)
    return listed


def _is_whole(mask: np.ndarray, data: Dataset) -> bool:
    """Whether every episode is kept or left as one."""
    if data.episode is None:
        return False
    _, codes = np.unique(data.episode, return_inverse=True)
    share = np.bincount(codes, weights=mask) / np.bincount(codes)
    return bool(np.isin(share, (0.0, 1.0)).all())
