"""The folder of `puorl filter`: kept rows, their list, the filter, its report and the settings.

`puorl.core.run_folder` holds its schema, `puorl.data.training_files` reads it.
"""

import dataclasses
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puorl import __version__
from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.files import write_json
from puorl.core.run_folder import (
    KEEP_LIST,
    MODEL,
    REPORT,
    REPORT_PAGE,
    SETTINGS,
    UNITS,
    WEIGHT,
    FilterSettings,
    KeptRows,
)
from puorl.data.dataset import Dataset
from puorl.data.formats import save
from puorl.data.labels import LabelledRows, is_listable, write_keep_list
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.data.validate import LABELLED
from puorl.pu.units import Unit, require_column

if TYPE_CHECKING:  # importing these loads jax
    from puorl.pu.config import FilterConfig
    from puorl.pu.filter import DomainFilter
    from puorl.pu.machines.report import MachineReport
    from puorl.pu.report import FilterReport

Settings = dict[str, dict[str, Any]]
"""Arguments, versions and fingerprints: the part of ``settings.json`` known before the fit."""
_BASIS = {
    "arguments": ("unit", "evidence", "preset", "mode", "inputs", "alpha_estimator", "seed"),
    "versions": ("puorl", "numpy", "jax", "device"),
    "fingerprints": ("data", "labels", "config"),
}


class Written(NamedTuple):
    """Kept rows that were written."""

    kept: KeptRows
    files: dict[str, str]
    """Content of each file, in a few words."""
    returns: tuple[float, float] | None = None
    """Smallest and largest return of complete episodes of all rows."""
    sample: dict[str, Any] | None = None
    """The rows that the filter was fitted on, where these were not all."""


def check_needs(data: Dataset, unit: Unit, inputs: str) -> None:
    """Refuse a unit or inputs for which the data lacks something, before anything is learnt.

    Raises:
        DataError: No rewards, episodes or column.
    """
    if "r" in inputs and data.reward is None:
        raise DataError(
            f"--inputs {inputs}: expected rewards, and this data has none; name their column with "
            "--reward, or judge by --inputs sas"
        )
    if unit.kind in ("episode", "window") and data.episode is None:
        raise DataError(
            f"--unit {unit.kind}: expected rows with episode ids, and this data has none; name "
            "their column with --episode, or decide by --unit transition"
        )
    require_column(data, unit)


def make_settings(
    arguments: dict[str, Any], fingerprints: Mapping[str, str], config: "FilterConfig"
) -> Settings:
    """Collect the part of ``settings.json`` that is known before the fit."""
    import jax

    versions = {
        "puorl": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "device": jax.default_backend(),
    }
    prints = {**fingerprints, "config": hashing.of_settings(config.to_dict())}
    return {"arguments": arguments, "versions": versions, "fingerprints": prints}


def split_fingerprints(split: PUSplit) -> dict[str, str]:
    """Return the fingerprints of rows, labels and split."""
    columns = {k: v for k, v in split.pool.columns.items() if k != LABELLED}
    return {
        "data": dataclasses.replace(split.pool, columns=columns).fingerprint,
        "labels": hashing.of_arrays({"labelled": split.labelled}),
        "split": split.fingerprint,
    }


def basis_of(settings: Settings) -> dict[str, str | int]:
    """Select everything that decides what is learnt."""
    basis = {name: settings[group][name] for group, names in _BASIS.items() for name in names}
    others = settings["arguments"]["labelled_as"]
    if "sample" in settings["fingerprints"]:
        basis |= {name: settings["arguments"][name] for name in ("sample", "out_format")}
    return basis | ({"labelled_as": str(others)} if others else {})


def write_kept(
    folder: Path, name: str, flt: "DomainFilter", split: PUSplit, known: LabelledRows
) -> Written:
    """Write the kept rows under this name, and the list of them."""
    training = flt.filter(split)
    kept = training.to_dataset()
    listed = _write_list(folder / KEEP_LIST, flt, split, known, training)
    save(kept, folder / name)
    rows = f"{len(kept):,} kept rows, labelled ones included"
    if training.weight is not None:
        rows = f"all {len(kept):,} rows, with the column {WEIGHT}"
    returns = training.returns
    if returns is not None and not np.isfinite(returns).all():
        returns = None
    files = {name: rows, KEEP_LIST: f"the same as a list, by {listed}, with scores"}
    return Written(KeptRows(name, len(kept), kept.fingerprint), files, returns)


def _write_list(
    path: Path, flt: "DomainFilter", split: PUSplit, known: LabelledRows, training: TrainingSet
) -> str:
    """List the kept rows of the data (not of a file of target rows); return what is listed."""
    score = np.ones(len(split.pool), np.float32)  # labelled rows are certain
    if training.weight is not None:
        score[training.rows] = training.weight
    else:
        score[split.unlabelled] = flt.predict_proba(split)
    data, unit = known.data, flt.unit
    keep = np.zeros(len(known.pool), bool)
    keep[training.rows] = True
    keep, score = keep[: len(data)], score[: len(data)]
    # A unit of which only some rows were labelled may be kept in part.
    listed = "row"
    if unit == "episode" and data.episode is not None and _is_whole(keep, data.episode):
        listed = "episode"
    name = unit.removeprefix("column:")
    if name != unit and is_listable(data, name) and _is_whole(keep, data.columns[name]):
        listed = unit
    write_keep_list(path, data, keep, unit=listed, score=score)
    return listed


def _is_whole(keep: np.ndarray, ids: np.ndarray) -> bool:
    """Return whether all rows of every id are kept, or none."""
    _, codes = np.unique(ids, return_inverse=True)
    fraction = np.bincount(codes, weights=keep) / np.bincount(codes)
    return bool(np.isin(fraction, (0.0, 1.0)).all())


def finish(
    folder: Path,
    flt: "DomainFilter",
    report: "FilterReport | MachineReport | None",
    settings: Settings,
    written: Written,
) -> dict[str, str]:
    """Write everything else into the folder; return the content of each file, in a few words."""
    flt.save(folder / MODEL)
    files = {**written.files, MODEL: "the filter; puorl.DomainFilter.load reads it"}
    if report is not None:
        files |= _write_report(folder, report)
    files |= _write_units(folder, flt)
    lists, for_people = folder / KEEP_LIST, (folder / REPORT_PAGE, folder / UNITS)
    content = FilterSettings(
        settings["arguments"],
        settings["versions"],
        settings["fingerprints"],
        kept=written.kept,
        returns=written.returns,
        keep_list=hashing.of_bytes(lists) if lists.exists() else None,
        sample=written.sample,
        files={path.name: hashing.of_bytes(path) for path in for_people if path.exists()},
    )
    write_json(folder / SETTINGS, dataclasses.asdict(content))
    return files | {SETTINGS: "arguments, versions and fingerprints"}


def _write_report(folder: Path, report: "FilterReport | MachineReport") -> dict[str, str]:
    from puorl.pu.report_page import as_page

    (folder / REPORT_PAGE).write_text(as_page(report), encoding="utf-8")
    write_json(folder / REPORT, report.to_dict())
    return {REPORT_PAGE: "the report, for a browser", REPORT: "the same for programs"}


def _write_units(folder: Path, flt: "DomainFilter") -> dict[str, str]:
    """Write all units, where they were decided by how they move."""
    from puorl.pu.machines.model import MachineModel
    from puorl.pu.machines.report import unit_rows
    from puorl.pu.unit_table import write_units

    if not isinstance(flt.model_, MachineModel):
        return {}
    units = unit_rows(flt.model_.units, flt.model_.names, is_soft=flt.mode == "soft")
    write_units(folder / UNITS, units)
    return {UNITS: f"all {len(units):,} units, with decision and evidence"}


def truth_scores(
    flt: "DomainFilter", split: PUSplit, known: LabelledRows
) -> dict[str, float] | None:
    """Compare the choice with the hidden domains of a benchmark split; None for other rows."""
    if known.split is None or known.split.truth is None:
        return None
    kept = flt.predict(split)
    is_target = known.split.reveal("scoring")[split.unlabelled] == 0
    right = int((kept & is_target).sum())
    return {
        "recall": right / max(1, int(is_target.sum())),
        "precision": right / max(1, int(kept.sum())),
    }
