"""Windows of a unit's record, of some rows or some time, in which `machines.drift` follows it."""

import re
from dataclasses import dataclass

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.pu.units import Unit, number_units

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Span:
    """Length of a window: rows, or time in the log's unit."""

    length: float
    by_rows: bool


def parse_span(text: str) -> Span:
    """Read ``500rows``, ``3600`` (in the log's unit of time), or ``1d``, ``6h``, ``30min``, ``5s``.

    >>> parse_span("6h"), parse_span("500rows")
    (Span(length=21600.0, by_rows=False), Span(length=500.0, by_rows=True))

    Raises:
        ConfigError: None of these.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(rows|s|min|h|d)?", text)
    length = float(found[1]) if found else 0.0
    by_rows = found is not None and found[2] == "rows"
    if found is None or length <= 0 or (by_rows and not length.is_integer()):
        raise ConfigError(
            f"--by-time: expected a span such as 1d, 6h, 30min, 3600 or 500rows, got {text!r}"
        )
    return Span(length if by_rows else length * _SECONDS.get(found[2], 1.0), by_rows)


def windows(data: Dataset, unit: Unit, span: Span) -> np.ndarray:
    """(n,) int64. Number of each row's window in its unit, from 0 at the unit's first row.

    Raises:
        DataError: Spans of time without a clock, or with one that is reset within a unit.
    """
    number, time = number_units(data, unit).number, data.rows.time
    if time is None and not span.by_rows:
        raise DataError(
            "--by-time: expected rows with a time, and this data has none; name its column with "
            "--time, or give a number of rows such as 500rows"
        )
    clock = np.arange(len(data), dtype=float) if time is None else np.asarray(time, float)
    order = np.lexsort((np.arange(len(data)), clock, number))
    same = number[order][1:] == number[order][:-1]
    if bool((same & (np.diff(clock[order]) == 0)).any()):
        if not span.by_rows:
            raise DataError(
                "--by-time: expected a clock that runs on within a unit, got one that shows the "
                "same time twice; give a number of rows such as 500rows"
            )
        order = np.argsort(number, kind="stable")  # as they are in the file
    size = np.bincount(number)
    first = np.cumsum(size) - size
    place = np.empty(len(data))
    place[order] = np.arange(len(data)) - first[number[order]]
    if not span.by_rows:
        place = clock - clock[order][first][number]
    return np.floor(place / span.length).astype(np.int64)
