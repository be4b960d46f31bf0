"""Discrete actions: recognise the codes of one column, and hold them as one-hot columns.

Filters, models of the dynamics and files see ordinary float32 columns, one for each code; the codes
are part of the provenance. Codes are texts: numbers in ascending order, other texts by alphabet.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from puorl.core.errors import DataError
from puorl.core.formatting import code_values
from puorl.data.validate import RawRows, listed

MOST_CODES = 1_000
"""Largest number of codes, where the user says that actions are discrete."""
_MOST_FOUND, _LARGEST_FOUND, _LEAST_REPEATED = 32, 63, 2
"""Numbers that are recognised: so many different ones, from 0 to this, each so often on average."""
_TABLES = ("csv", "jsonl", "parquet", "frame")
"""Formats where codes may be floats: a table with an empty cell has no whole numbers."""
_EMPTY = ("", "nan", "na", "n/a", "null")

Discrete = bool | Sequence[str | int] | None
"""True, False, or the codes of discrete actions; None to recognise them from the values."""


def take_codes(raw: RawRows, discrete: Discrete, *, source: str) -> None:
    """Recognise discrete actions of a reader's rows, and replace them by positions of their codes.

    Where they are discrete, ``action`` (and ``next_action``) become (n,) positions, NaN where they
    are missing, and the rows get ``action_codes``.
    """
    action, stored = raw.arrays.get("action"), None
    if raw.provenance is not None:
        stored = raw.provenance.action_codes
    if action is None or action.ndim not in (1, 2) or not action.size:
        return  # refused later, with a better message
    if discrete is False:
        raw.action_codes = None
        if stored is not None and raw.provenance is not None:
            raw.provenance = dataclasses.replace(raw.provenance, action_codes=None)
        return
    given = None if isinstance(discrete, bool | None) else tuple(map(str, discrete))
    if stored is not None and action.shape[1:] == (len(stored),) and given in (None, stored):
        return
    if discrete is None and raw.provenance is not None:
        return
    how = "as its space says" if raw.action_codes is not None else "as asked"
    given = given or raw.action_codes
    if action.ndim == 2 and action.shape[1] > 1:
        if discrete is None:
            return
        codes, position = _of_one_hot(raw, action, given, source)
    else:
        values = _texts(action.reshape(-1))
        if discrete is None and given is None:
            if not _looks_discrete(raw, values):
                return
            how = "taken as discrete"
            if values.dtype.kind != "U":  # texts can be nothing else
                how += (
                    "; if they are amounts, say so with --action-kind continuous "
                    "(discrete_actions=False)"
                )
        codes, position = _positions(values, given, source)
        _count_missing(raw, position, values)
        if (after := raw.arrays.get("next_action")) is not None and after.size == len(after):
            raw.arrays["next_action"] = _positions(_texts(after.reshape(-1)), codes, source)[1]
    base = (raw.action_names or ("action",))[0] if action.size == len(action) else "action"
    raw.arrays["action"], raw.action_codes = position, codes
    raw.action_names, raw.action_range = column_names(base, codes), None
    raw.notes.append(f"{base}: {len(codes)} codes ({listed(codes)}), {how}")
    if raw.provenance is not None:
        raw.provenance = dataclasses.replace(
            raw.provenance, action_codes=codes, action_names=raw.action_names, action_range=None
        )


def one_hot(position: np.ndarray, num_codes: int) -> np.ndarray:
    """(n, num_codes) float32. 1 in the column of each row's code; NaN where it is unknown.

    >>> one_hot(np.array([1, 0]), 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    position = position.reshape(-1)
    made = np.zeros((len(position), num_codes), np.float32)
    known = np.isfinite(position)
    made[known, position[known].astype(np.int64)] = 1
    made[~known] = np.nan
    return made


def is_one_hot(action: np.ndarray) -> bool:
    """Return whether actions (n, m) have a 1 in one of several columns and 0 in the others."""
    if action.shape[1] < 2 or action.dtype.kind not in "biuf":
        return False
    # Most actions are amounts, which a few rows show.
    return all(
        bool(((part == 0) | (part == 1)).all() and (part.sum(axis=1) == 1).all())
        for part in (action[:10], action)
    )


def in_order(codes: Iterable[str]) -> tuple[str, ...]:
    """Sort codes: whole numbers by value, other texts by alphabet.

    >>> in_order(["10", "9"]), in_order(["b", "10", "9"])
    (('9', '10'), ('10', '9', 'b'))
    """
    codes = sorted(set(codes))
    return tuple(code for _, code in sorted(zip(code_values(codes), codes, strict=True)))


def column_names(base: str, codes: Sequence[str]) -> tuple[str, ...]:
    """Name the one-hot columns, such as ``dose=2``."""
    return tuple(f"{base}={code}" for code in codes)


def base_name(names: Sequence[str], codes: Sequence[str]) -> str:
    """Return the name of the column that the one-hot columns stand for."""
    return names[0].removesuffix(f"={codes[0]}") if names else "action"


def _texts(values: np.ndarray) -> np.ndarray:
    """(n,) text or number. Return values as numbers, or as texts without blanks around them."""
    if values.dtype.kind == "O" and all(isinstance(each, str | None) for each in values):
        values = np.array([each or "" for each in values], dtype=str)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return np.char.strip(values) if values.dtype.kind == "U" else values


def _looks_discrete(raw: RawRows, values: np.ndarray) -> bool:
    """Tell codes from amounts: texts that are no numbers, or few and small whole numbers."""
    kind = values.dtype.kind
    if kind == "U":
        return True
    if kind not in "iub" and not (kind == "f" and raw.format in _TABLES):
        return False
    found = np.unique(values[np.isfinite(values)]).astype(np.float64)
    return (
        2 <= len(found) <= _MOST_FOUND
        and len(values) >= _LEAST_REPEATED * len(found)
        and np.array_equal(found, np.trunc(found))
        and 0 <= found[0]
        and found[-1] <= _LARGEST_FOUND
    )


def _positions(
    values: np.ndarray, given: Sequence[str] | None, source: str
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the codes, and (n,) float64: each row's position among them, NaN if it has none."""
    if values.dtype.kind not in "biufU":
        raise DataError(f"{source}: action: expected codes, got dtype {values.dtype}")
    found, number = np.unique(values, return_inverse=True)
    if found.dtype.kind == "U":
        names = ["" if text.lower() in _EMPTY else text for text in found.tolist()]
    else:
        names = [_name(value) if np.isfinite(value) else "" for value in found.tolist()]
    codes = in_order(filter(None, names)) if given is None else tuple(given)
    if not codes or len(codes) > MOST_CODES:
        raise DataError(
            f"{source}: action: expected 1 to {MOST_CODES:,} codes or numbers, got "
            f"{len(codes):,} different values; name another column, or check its type"
        )
    if len(set(codes)) < len(codes) or "" in codes:
        raise DataError(f"{source}: action: expected codes that differ, got {listed(codes)}")
    if unknown := [name for name in names if name and name not in codes]:
        raise DataError(
            f"{source}: action: expected only the codes {listed(codes)}, got {listed(unknown)}; "
            "add them, or leave out those rows"
        )
    place = {code: i for i, code in enumerate(codes)}
    of_found = np.array([place.get(name, np.nan) for name in names], np.float64)
    return codes, of_found[number]


def _name(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.15g}"


def _of_one_hot(
    raw: RawRows, action: np.ndarray, given: Sequence[str] | None, source: str
) -> tuple[tuple[str, ...], np.ndarray]:
    """Read columns that are one-hot already."""
    width = action.shape[1]
    if not is_one_hot(action):
        raise DataError(
            f"{source}: action: expected one column of codes, or one-hot columns, got {width} "
            "columns of other values; join them into one column, such as left-fast, or leave them "
            "continuous"
        )
    codes = tuple(given or raw.action_names or map(str, range(width)))
    if len(codes) != width:
        raise DataError(
            f"{source}: action: expected {width} codes for {width} one-hot columns, got "
            f"{listed(codes)}"
        )
    after = raw.arrays.get("next_action")
    if after is not None and after.shape == action.shape:
        known = np.isfinite(after).all(axis=1)
        raw.arrays["next_action"] = np.where(known, after.argmax(axis=1), np.nan)
    return codes, action.argmax(axis=1).astype(np.float64)


def _count_missing(raw: RawRows, position: np.ndarray, values: np.ndarray) -> None:
    missing = np.flatnonzero(np.isnan(position))
    name = (raw.action_names or ("action",))[0]
    if len(missing) and name not in raw.bad:
        text = f"column {name} (action): row {missing[0]}: expected a code, got "
        text += f"{str(values[missing[0]])!r}"
        raw.note_bad(name, len(missing), int(missing[0]), text)
