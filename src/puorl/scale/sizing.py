"""Time, memory and disk of a filter on large data, from rates measured on this machine."""

import dataclasses
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.tasks import Workers, part_path, run_tasks
from puorl.data.formats import searched
from puorl.data.lazy import LazyDataset, places, reader_at
from puorl.data.lazy import open as open_lazily
from puorl.data.validate import FieldNames
from puorl.scale.filtering import KeepRows

FIT_PER_SCORE = 22.0
"""CPU time of a fit on a million rows, over that of scoring them in memory, as measured."""
UNITS_FIT, UNITS_FIT_PER_ROW = 30.0, 6e-5
"""Seconds of a fit, with its report, that decides about units by how they move. Not measured here:
on two cores, 24,000 rows took 24 to 38 s from rows to report, a million 69 to 102 s."""
_CALIBRATION_ROWS = 4_000
_BASE_MEMORY, _CELL_MEMORY = 300_000_000, 36
"""Bytes of the driver, and for each number of the sample, as measured at a million rows."""


@dataclass(frozen=True)
class Survey:
    """Numbers of files, rows and bytes, found without reading the rows."""

    files: tuple[str, ...]
    num_rows: int
    num_bytes: int
    is_exact: bool
    """Whether rows were counted, not computed from the size of the first file."""


@dataclass(frozen=True)
class Rates:
    """Seconds for a row, one process, and memory of a worker."""

    keys: float
    read: float
    score: float
    write: float
    memory: int
    row_bytes: float
    """Bytes of a written row."""
    num_cells: int
    """Numbers of a row in memory."""


@dataclass(frozen=True)
class Estimates:
    """Everything that a filter will take."""

    num_rows: int
    num_files: int
    num_bytes: int
    kept_bytes: int
    """If all rows are kept."""
    memory: int
    seconds: dict[str, float]
    price: float
    rates: Rates

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        return dataclasses.asdict(self)


def survey(path: Any, *, format: str | None = None, **names: Any) -> Survey:
    """Count files, bytes and rows; rows of text tables are computed from the first file's."""
    files = places(path, ids=False)
    given = searched(FieldNames(**names))
    total = [_size(file) for file in files]
    counted = []
    for file in files:
        reader = reader_at(file, format)
        is_text = reader.__name__.endswith(".csv")
        counted.append(sum(block.num_rows for block in reader.blocks(file, given)))
        if is_text and len(files) > 1:
            rows = round(counted[0] / max(1, total[0]) * sum(total))
            return Survey(tuple(files), rows, sum(total), False)
    return Survey(tuple(files), sum(counted), sum(total), True)


def calibrate(found: Survey, folder: Path, **names: Any) -> Rates:
    """Read, score and write the first partition in a worker, and measure it."""
    begun = time.perf_counter()
    lazy = open_lazily(found.files[0], **names)
    keys = (time.perf_counter() - begun) / lazy.num_rows
    _fit_quickly(lazy, folder / "model")
    task = _Calibrate(lazy, folder / "model")
    record = run_tasks(task, 1, folder / "parts", Workers(number=1))[0]
    return Rates(keys=keys, **record)


def make_plan(
    found: Survey,
    rates: Rates,
    *,
    workers: int,
    sample: int,
    price: float = 0.0,
    by_units: bool = False,
) -> Estimates:
    """Compute what a filter takes from rates of one process; workers are taken as equally fast.

    Args:
        found: What is to be filtered.
        rates: Of one process.
        workers: Processes.
        sample: Rows to fit on.
        price: Of a core for an hour.
        by_units: Decide about units by how they move, not about rows.
    """
    sample = min(sample, found.num_rows)
    by_rows = FIT_PER_SCORE * sample * rates.score
    work = found.num_rows * (rates.read + rates.score + rates.write)
    seconds = {
        "keys": found.num_rows * rates.keys,
        "sample": found.num_rows * rates.read / workers,
        "fit": UNITS_FIT + UNITS_FIT_PER_ROW * sample if by_units else by_rows,
        "score": work / workers,
    }
    cores = seconds["keys"] + (seconds["sample"] + seconds["score"]) * workers + seconds["fit"]
    driver = _BASE_MEMORY + _CELL_MEMORY * sample * rates.num_cells
    return Estimates(
        num_rows=found.num_rows,
        num_files=len(found.files),
        num_bytes=found.num_bytes,
        kept_bytes=round(found.num_rows * rates.row_bytes),
        memory=driver + workers * rates.memory,
        seconds=seconds,
        price=price * cores / 3600.0,
        rates=rates,
    )


@dataclass(frozen=True, eq=False)
class _Calibrate:
    """Measure reading, scoring and writing of a partition, after the first, which compiles."""

    lazy: LazyDataset
    model: Path

    def __call__(self, number: int, folder: Path) -> dict[str, Any]:
        task = KeepRows(self.lazy, self.model, soft=True)
        task(number, folder)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.perf_counter()
        data = self.lazy.read(number)
        read = time.perf_counter()
        task.score(number)
        scored = time.perf_counter()
        task(number, folder)
        done = time.perf_counter()
        rows, took = len(data), read - begun
        file = part_path(folder, number, ".parquet")
        return {
            "read": took / rows,
            "score": max(0.0, scored - read - took) / rows,
            "write": max(0.0, done - scored - (scored - read)) / rows,
            "memory": peak,
            "row_bytes": file.stat().st_size / rows,
            "num_cells": sum(a[0].size for a in data.rows.arrays().values()),
        }


def _fit_quickly(lazy: LazyDataset, folder: Path) -> None:
    """Fit a filter of the default size, for a moment and to random labels, only to time it."""
    from puorl.data.split import PUSplit
    from puorl.pu.config import FilterConfig
    from puorl.pu.filter import DomainFilter

    data = lazy.read(0)[:_CALIBRATION_ROWS]
    mask = np.arange(len(data)) % 10 == 0
    config = FilterConfig().changed(
        {"residuals": {"num_steps": 10}, "num_warm_up": 1, "num_main": 1}
    )
    DomainFilter(config=config).fit(PUSplit.from_mask(data, mask)).save(folder)


def _size(path: str) -> int:
    if "://" in path:
        system, place = reader_at(path).file_system(path)
        return system.get_file_info(place).size
    return Path(path).stat().st_size
