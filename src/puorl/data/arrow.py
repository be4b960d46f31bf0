"""Arrow columns become NumPy arrays: numbers, flags, text, seconds; nulls follow the CSV rules.

A null is NaN among numbers and flags and "" among text. Dates, times and stamps become seconds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from puorl.core.errors import DataError
from puorl.core.extras import require
from puorl.data import cells

_EXACT_IN_FLOAT = 2**53
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_plain(kind: Any) -> bool:
    """Whether a column of this Arrow type has one number, flag, text or moment a row."""
    types = _types()
    if types.is_dictionary(kind):
        return is_plain(kind.value_type)
    return _is_numeric(kind) or _is_text(kind) or types.is_temporal(kind) or types.is_null(kind)


def plain_values(column: Any) -> np.ndarray:
    """(n,) bool, int, float or text. The values of a plain column.

    Args:
        column: Arrow chunked array of a type for which `is_plain` holds.
    """
    types, kind = _types(), column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if _is_text(kind):
        return _text(column)
    if types.is_temporal(kind):
        return _seconds(column)
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if types.is_decimal(kind):
        column = column.cast("string").cast("float64")  # Arrow's direct cast misses the last digit
    elif column.null_count and types.is_integer(kind):
        known = column.drop_null().to_numpy()
        if len(known) and max(-int(known.min()), int(known.max())) > _EXACT_IN_FLOAT:
            return _text(column.cast("string"))  # ids: neither NaN nor rounding can stand for them
        column = column.cast("float64", safe=False)
    elif column.null_count and types.is_boolean(kind):
        column = column.cast("int8").cast("float64")
    return column.to_numpy()


def numbers(column: Any, where: str, *, unknown: bool) -> np.ndarray:
    """(n,) numbers, or (n, k) for a list column.

    Args:
        column: Arrow chunked array.
        where: File, column and field; messages start with it.
        unknown: Whether a null may stand for a value that was not recorded.

    Raises:
        DataError: Not numbers, an empty cell, or lists of different length.
    """
    types, kind = _types(), column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _matrix(column, where, unknown=unknown)
    if not _is_numeric(kind):
        row, value = next(((i, v.as_py()) for i, v in enumerate(column) if v.is_valid), (0, None))
        raise DataError(
            f"{where}: expected numbers, got {kind}, in row {row} {str(value)[:40]!r}; "
            "name other columns, or convert it"
        )
    if not unknown:
        require_filled(column, where)
    values = plain_values(column)
    if values.dtype.kind == "U":
        raise DataError(f"{where}: whole numbers above 2^53 beside empty cells cannot be held")
    return values


def require_filled(column: Any, where: str) -> None:
    """Refuse nulls, naming the first row that has one.

    Raises:
        DataError: A value is null.
    """
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(f"{where}: row {row} is empty; fill it or remove the row before loading")


def beside(columns: Sequence[np.ndarray]) -> np.ndarray:
    """(n, k) numbers. Columns side by side, in a dtype that holds them all."""
    matrix = np.empty((len(columns[0]), len(columns)), np.result_type(*columns))
    for i, column in enumerate(columns):
        matrix[:, i] = column
    return matrix


def seconds_of_text(stamps: np.ndarray, where: str) -> np.ndarray:
    """(n,) float64. Seconds since 1970 of ISO 8601 text.

    Raises:
        DataError: A stamp is not one.
    """
    try:
        return cells.seconds(stamps.tolist())
    except cells.BadCell as bad:
        raise DataError(
            f"{where}: expected numbers or ISO 8601 stamps, all with or all without a zone, "
            f"got {bad.value!r} in row {bad.row}"
        ) from bad


def _matrix(column: Any, where: str, *, unknown: bool) -> np.ndarray:
    compute = require("pyarrow.compute", extra="parquet", purpose="reading Parquet files")
    if not unknown:
        require_filled(column, where)
    filled = np.flatnonzero(column.is_valid().to_numpy())
    lengths = compute.list_value_length(column.drop_null()).to_numpy()
    odd = np.flatnonzero(lengths != lengths[0]) if len(lengths) else lengths
    if len(odd):
        raise DataError(
            f"{where}: expected lists of equal length, got {lengths[0]} values in row {filled[0]} "
            f"and {lengths[odd[0]]} in row {filled[odd[0]]}"
        )
    inner = numbers(compute.list_flatten(column), f"{where}, list values", unknown=unknown)
    if inner.ndim != 1:
        raise DataError(f"{where}: expected lists of numbers, got {column.type}; flatten it first")
    width = int(lengths[0]) if len(lengths) else 1
    if len(filled) == len(column):
        return inner.reshape(len(column), width)
    matrix = np.full((len(column), width), np.nan, np.result_type(inner, np.float32))
    matrix[filled] = inner.reshape(len(filled), width)
    return matrix


def _text(column: Any) -> np.ndarray:
    codes = column.dictionary_encode().combine_chunks()
    # One entry more stands for null.
    values = np.array([*codes.dictionary.to_pylist(), ""], dtype=str)
    return values[codes.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)]


def _seconds(column: Any) -> np.ndarray:
    types, kind = _types(), column.type
    if types.is_date(kind):
        column = column.cast("timestamp[ms]")
        kind = column.type
    scale = _PER_SECOND[kind.unit]
    ticks = column.cast("int32" if types.is_time32(kind) else "int64")
    whole = ticks.fill_null(0).to_numpy()
    # Whole seconds apart from the rest: the ticks of a nanosecond clock exceed float64's 2^53.
    result = whole // scale + (whole % scale) / scale
    result[ticks.is_null().to_numpy()] = np.nan
    return result


def _is_numeric(kind: Any) -> bool:
    types = _types()
    return (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


def _is_text(kind: Any) -> bool:
    types = _types()
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _types() -> Any:
    return require("pyarrow.types", extra="parquet", purpose="reading Parquet files")
