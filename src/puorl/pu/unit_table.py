"""The table of units in words, for a terminal and as CSV: who is known, kept, in doubt."""

import math
import os
import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from puorl.data.labels import write_table
from puorl.pu.machines.findings import NONE, OURS
from puorl.pu.machines.report import UnitRow

COLUMNS = ("unit", "rows", "labelled", "evidence", "probability", "decision", "type", "agreement")
OF_TYPE = "chance of type"
"""One more, as shown, where other types are named."""
AGREEMENT = 0.9
"""Weight of the models for a decision below which it is in doubt."""
_DOUBT = 0.05
_MOST_ROWS = 12


def type_name(cluster: int) -> str:
    """Name a type: ours, A, B, C and so on by number of units, or none of these.

    >>> [type_name(k) for k in (-1, 0, 1, 2)]
    ['none of these', 'ours', 'A', 'B']
    """
    return NONE if cluster < 0 else OURS if cluster == 0 else chr(ord("A") + cluster - 1)


def type_of(row: UnitRow) -> str:
    """Name the type of a unit, as it was labelled or by a letter."""
    return row.name_of_type or type_name(row.cluster)


def decision(row: UnitRow) -> str:
    """Say what was decided: known, kept or dropped; or weighed, by the probability."""
    if row.is_weighed:
        return "weighed"
    return "known" if row.labelled else "kept" if row.keep else "dropped"


def natural(name: str) -> list[str | tuple[int, str]]:
    """Return a key that sorts names by the numbers in them.

    >>> sorted(["P-15", "P-2", "P-1"], key=natural)
    ['P-1', 'P-2', 'P-15']
    """
    parts = re.split("([0-9]+)", name)  # text and digits in turn
    return [
        (len(part.lstrip("0")), part.lstrip("0")) if k % 2 else part for k, part in enumerate(parts)
    ]


def in_order(rows: Iterable[UnitRow]) -> list[UnitRow]:
    """Sort units as shown: known ones first, then the surest of ours, then by name."""
    return sorted(rows, key=lambda row: (not row.labelled, -row.evidence, natural(row.name)))


def chance_of_type(row: UnitRow) -> float:
    """Return the probability of the type that a unit was told to be; NaN if none is named.

    A type with a letter is none of the named ones.
    """
    if not row.chances:
        return math.nan
    return row.chances.get(type_of(row), row.chances[NONE])


def is_doubtful(row: UnitRow) -> bool:
    """Return whether a decision is near even odds, or models disagree on it, or on the type."""
    unsure = _DOUBT < row.probability < 1 - _DOUBT or row.agreement < AGREEMENT
    return (unsure or chance_of_type(row) < 1 - _DOUBT) and not row.labelled


def doubtful(rows: Iterable[UnitRow]) -> list[UnitRow]:
    """Return the units in doubt, the most doubtful first."""
    return sorted(
        filter(is_doubtful, rows), key=lambda row: (abs(row.probability - 0.5), natural(row.name))
    )


def heads(rows: Sequence[UnitRow]) -> tuple[str, ...]:
    """Return the heads of the columns as shown: one more where other types are named."""
    return (*COLUMNS, OF_TYPE) if rows and rows[0].chances else COLUMNS


def cells(row: UnitRow) -> tuple[str, ...]:
    """Return the cells of a unit as shown, in the order of `heads`."""
    return (
        row.name,
        f"{row.num_rows:,}",
        "yes" if row.labelled else "no",
        f"{row.evidence:+.1f}",
        f"{row.probability:.3f}",
        decision(row),
        type_of(row),
        f"{row.agreement:.2f}",
        *([f"{chance_of_type(row):.3f}"] if row.chances else []),
    )


def write_units(path: str | os.PathLike[str], rows: Sequence[UnitRow], *, force: bool = False):
    """Write all units as CSV, with all digits.

    Where other types are named, `p_NAME` is the probability of each, of ours, and of none of these.

    Raises:
        DataError: ``path`` exists.
    """
    lines = (
        (
            row.name,
            row.num_rows,
            int(row.labelled),
            repr(row.evidence),
            repr(row.probability),
            decision(row),
            type_of(row),
            repr(row.agreement),
            *map(repr, row.chances.values()),
        )
        for row in rows
    )
    more = [f"p_{name}" for name in rows[0].chances] if rows else []
    write_table(path, (*COLUMNS, *more), lines, force=force)


def as_table(title: str, rows: Sequence[UnitRow], most: int = _MOST_ROWS) -> Table:
    """Render units for a terminal; a caption counts those beyond the first."""
    names = heads(rows)
    shown = [k for k, name in enumerate(names) if name != "labelled"]  # the decision says it
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=Text(title),
        title_justify="left",
        title_style="bold",
        caption_justify="left",
    )
    for k in shown:
        is_text = names[k] in ("unit", "decision", "type")
        table.add_column(
            names[k], justify="left" if is_text else "right", overflow="fold", max_width=24
        )
    for row in rows[:most]:
        made = cells(row)
        table.add_row(*(Text(made[k]) for k in shown))
    if len(rows) > most:
        table.caption = f"and {len(rows) - most:,} more"
    return table
