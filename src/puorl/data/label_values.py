"""Values that a condition on labels names and no row has: most often slips of the pen.

``pump in ['P-01', 'P-71']`` without a pump P-71 labels fewer rows than was meant, so it is refused,
as an unknown value in a list is. Only a text that rows must have is; a note tells of other values:

- numbers, because a measurement or a code may be absent from one log with good reason;
- what ``!=``, ``not in`` and ``not`` leave out, because there is nothing to leave out then;
- all, where the condition holds for no row: who needs labels refuses that, and one of several files
  may have none.

Nothing is said of fractions, flags and the empty text.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.data.expression import evaluate, named_values

_MOST_SHOWN = 5
"""Values of a column that a message shows."""

_MOST_COMPARED = 10_000
"""Values of a column up to which the closest is sought: comparing texts is slow."""
_ALIKE = 0.5
"""Least likeness of a value that was perhaps meant; B1 is so much like B2."""


class Absent(NamedTuple):
    """A value that a condition names and no row has."""

    column: str
    value: str | int | float
    is_excluded: bool
    known: tuple[str, ...] = ()
    """Values of a text column, ascending."""

    @property
    def is_slip(self) -> bool:
        """Whether rows would be labelled that were not meant, or fewer."""
        return isinstance(self.value, str) and not self.is_excluded

    def __str__(self) -> str:
        """Say what no row has, and what was perhaps meant."""
        known = self.known if len(self.known) <= _MOST_COMPARED else ()
        close = difflib.get_close_matches(str(self.value), known, n=1, cutoff=_ALIKE)
        text = f"no row has {self.column} == {self.value!r}"
        return text + (f" (did you mean {close[0]!r}?)" if close else "")


def absent_values(
    condition: str,
    columns: Mapping[str, np.ndarray],
    unusable: Iterable[tuple[str, str]] = (),
) -> list[Absent]:
    """Find the values that a condition names and no row has.

    Args:
        condition: As for `evaluate`.
        columns: As for `evaluate`; what is compared with other columns is left out.
        unusable: Columns and values all of whose rows were left out in loading: they are no slips.
    """
    found, gone = [], set(unusable)
    for name, value, is_excluded in named_values(condition, columns):
        values = columns.get(name)
        if values is None or value == "" or (name, str(value)) in gone:
            continue
        if isinstance(value, str):
            if values.dtype.kind == "U" and not (values == value).any():
                found.append(Absent(name, value, is_excluded, tuple(_distinct(values))))
        elif values.dtype.kind in "iu" and value not in (0, 1) and not (values == value).any():
            found.append(Absent(name, value, is_excluded))
    return found


def absent_everywhere(parts: Sequence[Sequence[Absent]]) -> list[Absent]:
    """Return the values that no part of the rows has; each part lists those that it lacks."""
    keys = [{each[:3] for each in part} for part in parts]
    found = []
    for key in dict.fromkeys(each[:3] for part in parts for each in part):
        if all(key in each for each in keys):
            known = {
                text for part in parts for each in part if each[:3] == key for text in each.known
            }
            found.append(Absent(*key, tuple(sorted(known))))
    return found


def check_absent(absent: Sequence[Absent], subject: str, *, holds: bool = True) -> list[str]:
    """Refuse slips; return notes on other values that no row has.

    Args:
        absent: Values that no row has.
        subject: Beginning of messages: what the condition is for.
        holds: Whether the condition holds for some row.

    Raises:
        DataError: No row has a text that rows must have.
    """
    slips = [each for each in absent if each.is_slip]
    if slips and holds:
        first, more = slips[0], len(slips) - 1
        others = f" ({more:,} more such value{'s' * (more > 1)})" if more else ""
        raise DataError(
            f"{subject}: expected values that rows have, but {first}{others}; {first.column} has "
            f"{_few(first.known)}; correct the condition, or leave the value out"
        )
    return [f"{subject}: {each}" for each in absent]


def labelled_rows(
    condition: str,
    columns: Mapping[str, np.ndarray],
    subject: str,
    unusable: Iterable[tuple[str, str]] = (),
) -> np.ndarray:
    """(n,) bool. Evaluate a condition on labels.

    Raises:
        ConfigError: As for `evaluate`.
        DataError: It holds for some rows, but names a text that no row has.
    """
    mask = evaluate(condition, columns)
    check_absent(absent_values(condition, columns, unusable), subject, holds=bool(mask.any()))
    return mask


def may_hold(condition: str, absent: Sequence[Absent]) -> bool:
    """Return whether rows have some of the texts that a condition asks for."""
    asked = {each[:2] for each in named_values(condition, {}) if not each.is_excluded}
    return any(isinstance(value, str) for _, value in asked - {each[:2] for each in absent})


def describe_values(
    condition: str,
    columns: Mapping[str, np.ndarray],
    unusable: Iterable[tuple[str, str]] = (),
) -> str:
    """Say which values there are in the text columns of a condition that holds for no row.

    Arguments as for `absent_values`.
    """
    gone = set(unusable)
    absent = {each.column: each for each in reversed(absent_values(condition, columns, gone))}
    outside_quotes = re.sub(r"'[^']*'|\"[^\"]*\"", "''", condition)
    said = ""
    for name, column in columns.items():
        is_named = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", outside_quotes)
        if column.dtype.kind == "U" and is_named:
            slip = f"; {absent[name]}" if name in absent else ""
            said += f"{slip}; {name} holds {_listed(_distinct(column))}"
    for name, value, _ in named_values(condition, columns):
        if (name, str(value)) in gone:
            said += f"; all rows with {name} == {value!r} were left out in loading"
    return said


def _few(values: Sequence[str]) -> str:
    number = "1 value" if len(values) == 1 else f"{len(values):,} values"
    return f"{number}: {_listed(values)}"


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - _MOST_SHOWN:,} more" if len(values) > _MOST_SHOWN else ""
    return ", ".join(map(repr, values[:_MOST_SHOWN])) + more


def _distinct(values: np.ndarray) -> list[str]:
    """Return the different texts of a column, ascending."""
    # Rows of one machine mostly follow each other: comparing neighbours is cheaper than sorting.
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return np.unique(values[starts]).tolist()
