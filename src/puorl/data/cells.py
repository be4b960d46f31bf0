"""Text cells of one column become numbers, flags, text or seconds; the whole column decides.

Whole numbers stay whole. Numbers with leading zeros are ids and stay text. An empty cell is NaN
among numbers and flags, and "" among text.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import numpy as np

_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(
    r"[+-]?(?:(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_FLAGS = {"true": True, "false": False}
_EXACT_IN_FLOAT = 2**53
_LARGEST = 2**63 - 1


class BadCell(Exception):
    """A cell that is not what its column must hold."""

    def __init__(self, row: int, value: str) -> None:
        super().__init__(f"row {row}: {value!r}")
        self.row = row
        self.value = value


def typed(cells: Sequence[str]) -> np.ndarray:
    """The column as the narrowest kind that loses nothing of any cell.

    Returns:
        (n,) bool, int64, float64 or text.

    >>> typed(["1", "2"]).dtype, typed(["1", ""]).tolist(), typed(["007", "1"]).tolist()
    (dtype('int64'), [1.0, nan], ['007', '1'])
    """
    kind = _kind({cell.strip() for cell in set(cells)})
    if kind == "text":
        return np.array(cells, dtype=str) if cells else np.empty(0, "U1")
    stripped = map(str.strip, cells)
    if kind == "flag":
        return np.fromiter((_FLAGS[cell.lower()] for cell in stripped), bool, len(cells))
    if kind == "flag or empty":
        stripped = (str(float(_FLAGS[cell.lower()])) if cell else "" for cell in stripped)
    if kind == "whole":
        return np.fromiter(map(int, stripped), np.int64, len(cells))
    return np.fromiter((float(cell or "nan") for cell in stripped), np.float64, len(cells))


def numbers(cells: Sequence[str]) -> np.ndarray:
    """(n,) float64. The column as numbers; an empty cell is NaN.

    Raises:
        BadCell: The first cell that is neither.
    """
    return np.fromiter(_each_number(cells), np.float64, len(cells))


def seconds(cells: Sequence[str]) -> np.ndarray:
    """(n,) float64. ISO 8601 stamps as seconds since 1970; without a zone they are taken as UTC.

    Raises:
        BadCell: The first cell that is not a stamp, or that has a zone where the first has none
            (or the other way round).
    """
    zoned: bool | None = None
    result = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            stamp = datetime.fromisoformat(cell.strip())
        except ValueError:
            raise BadCell(row, cell) from None
        if zoned is None:
            zoned = stamp.tzinfo is not None
        if zoned != (stamp.tzinfo is not None):
            raise BadCell(row, cell)
        result[row] = (stamp if zoned else stamp.replace(tzinfo=UTC)).timestamp()
    return result


def is_number(cell: str) -> bool:
    """Whether a cell is one number, written with a decimal point."""
    # Fields may have leading zeros: unlike ids, they are numbers by what the user says.
    cell = cell.strip()
    return bool(_NUMBER.fullmatch(re.sub(r"^([+-]?)0+(?=[0-9])", r"\1", cell)))


def has_decimal_comma(cell: str) -> bool:
    """Whether a cell looks like a number written with a decimal comma."""
    return bool(_DECIMAL_COMMA.fullmatch(cell.strip()))


def _each_number(cells: Sequence[str]) -> Iterable[float]:
    for row, cell in enumerate(cells):
        if not cell.strip():
            yield np.nan
        elif is_number(cell):
            yield float(cell)
        else:
            raise BadCell(row, cell)


def _kind(values: Collection[str]) -> str:
    empty = "" in values
    filled = [value for value in values if value]
    if filled and all(value.lower() in _FLAGS for value in filled):
        return "flag or empty" if empty else "flag"
    if not all(_NUMBER.fullmatch(value) for value in filled):
        return "text"
    if not filled or not all(_WHOLE.fullmatch(value) for value in filled):
        return "number"
    # A whole number that the kind cannot hold exactly is an id: it stays as written.
    limit = _EXACT_IN_FLOAT if empty else _LARGEST
    if any(len(value) > 20 or abs(int(value)) > limit for value in filled):
        return "text"
    return "number" if empty else "whole"
