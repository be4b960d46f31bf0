"""Cells that are missing or no numbers: refuse them in one message, drop their rows, or hold.

A row with such a cell is no transition, and neither is the step from the row before it: ``drop``
removes the row and cuts the episode there. ``hold`` first carries the last value of the same column
and episode over at most some steps, and drops what is left.
"""

import re
from dataclasses import dataclass, field

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.data.transitions import FLAGS, Note
from puorl.data.validate import BadCells, RawRows

HOLD_STEPS = 5
"""Steps over which ``hold`` carries a value, unless ``hold:N`` says otherwise."""
_MOST_NAMED = 8
_HELD = ("obs", "action", "reward")
_NEEDED = (*_HELD, "time", *FLAGS)


@dataclass(frozen=True)
class Usable:
    """Rows after the repair, and which of them can be used."""

    arrays: dict[str, np.ndarray]
    valid: np.ndarray | None = None
    """(n,) bool; None if all rows can."""
    lost: np.ndarray | None = None
    """(n,) bool. Rows of unknown episode: any episode may have lost a row there."""
    notes: list[str] = field(default_factory=list)


def parse_missing(text: str) -> tuple[str, int]:
    """Read ``error``, ``drop``, ``hold`` or ``hold:N``.

    >>> parse_missing("hold:3"), parse_missing("drop")
    (('hold', 3), ('drop', 0))
    """
    if text in ("error", "drop"):
        return text, 0
    if match := re.fullmatch(r"hold(?::([1-9]\d{0,8}))?", text):
        return "hold", int(match[1] or HOLD_STEPS)
    raise ConfigError(
        f"missing: expected error, drop, hold or hold:N (N steps, such as hold:3), got {text!r}"
    )


def repair(raw: RawRows, missing: str, *, source: str) -> Usable:
    """Treat the cells of a file that are missing or no numbers."""
    how, steps = parse_missing(missing)
    arrays = dict(raw.arrays)
    if how == "error" and raw.bad:
        raise DataError(_refusal(raw, source))
    num_rows = {len(array) if array.ndim else -1 for array in arrays.values()}
    if how == "error" or "obs" not in arrays or len(num_rows) != 1:
        return Usable(arrays)  # what are no rows is refused later, with a better message
    num_bad = len(raw.bad)
    if how == "hold":
        group = _groups(arrays, raw.lost)
        for name in _HELD:
            if name in arrays and arrays[name].dtype.kind == "f":
                arrays[name] = _held(arrays[name], group, steps)
    valid = np.ones(len(arrays["obs"]), bool)
    if raw.lost is not None:
        valid &= ~raw.lost
    for name in (*_NEEDED, "next_obs"):
        if name in arrays and arrays[name].dtype.kind == "f":
            fits = np.asarray(np.isfinite(arrays[name])).reshape(len(arrays[name]), -1).all(axis=1)
            if name == "next_obs" and "terminal" in arrays:
                fits |= np.nan_to_num(np.ravel(arrays["terminal"])) == 1
            valid &= fits
    notes = [_describe(column, cells) for column, cells in raw.bad.items()]
    if valid.all():
        if num_bad:
            notes.append(f"missing: values held over at most {steps} steps; no row was dropped")
        return Usable(arrays, notes=notes)
    if not valid.any():
        raise DataError(
            f"{source}: expected rows without missing cells, got none; {_counts(raw)}; name other "
            "columns for obs and action"
        )
    for name in (*_NEEDED, "next_obs"):
        if name in arrays and arrays[name].dtype.kind == "f":
            arrays[name] = arrays[name].copy()
            arrays[name][~valid] = 0  # they leave before anything is computed with them
    notes.append(Note("missing_rows", int((~valid).sum())))
    return Usable(arrays, valid, raw.lost, notes)


def _refusal(raw: RawRows, source: str) -> str:
    first = min(raw.bad.values(), key=lambda cells: ("--decimal" not in cells.text, cells.row))
    return (
        f"{source}: {first.text}; {_counts(raw)}; repair them, or leave out those rows with "
        "--missing drop, or carry the last value on with --missing hold (missing= in Python)"
    )


def _counts(raw: RawRows) -> str:
    columns = sorted(raw.bad, key=lambda name: -raw.bad[name].number)
    listed = ", ".join(f"{name} {raw.bad[name].number:,}" for name in columns[:_MOST_NAMED])
    more = f" and {len(columns) - _MOST_NAMED} more columns" if len(columns) > _MOST_NAMED else ""
    total = sum(cells.number for cells in raw.bad.values())
    return f"{total:,} bad cells in all: {listed}{more}"


def _describe(column: str, cells: BadCells) -> str:
    number = f"{cells.number:,} cells are" if cells.number > 1 else "1 cell is"
    return f"{column}: {number} missing or no number (first: {cells.text})"


def _groups(arrays: dict[str, np.ndarray], lost: np.ndarray | None) -> np.ndarray:
    """(n,) int64. Number the episodes; rows of unknown episode are one of their own."""
    if "episode" not in arrays:
        return np.zeros(len(arrays["obs"]), np.int64)
    group = np.unique(np.ravel(arrays["episode"]), return_inverse=True)[1].reshape(-1)
    return group if lost is None else np.where(lost, -1, group)


def _held(array: np.ndarray, group: np.ndarray, steps: int) -> np.ndarray:
    """Carry the last finite value of each column on, inside its group, over at most ``steps``."""
    order = np.argsort(group, kind="stable")
    matrix = array.reshape(len(array), -1)[order]
    place = np.arange(len(order))[:, None]
    known = np.isfinite(matrix)
    last = np.maximum.accumulate(np.where(known, place, -1), axis=0)
    begin = np.maximum.accumulate(
        np.where(np.diff(group[order], prepend=group[order[:1]] - 1) != 0, place[:, 0], 0)
    )
    usable = ~known & (last >= begin[:, None]) & (place - last <= steps)
    matrix = np.where(usable, np.take_along_axis(matrix, np.maximum(last, 0), axis=0), matrix)
    held = np.empty_like(matrix)
    held[order] = matrix
    return held.reshape(array.shape).astype(array.dtype, copy=False)
