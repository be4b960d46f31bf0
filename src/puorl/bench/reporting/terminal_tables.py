"""A table for a terminal of any width: no word and no number is broken.

One that is too wide breaks its heads and the rows' names between words, and if that is not enough
becomes several tables, each with the rows' names.
"""

import textwrap
from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from puorl.bench.reporting.table_formats import printable
from puorl.bench.reporting.tables import Entry, Table

_SUPERSCRIPTS = str.maketrans("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")
_GAP = 2
"""Columns of the terminal that every column of a table takes beside its text."""
_NAMES_SHARE = 3
"""The names of the rows may take one in this many columns of the terminal, however many numbers."""


def as_rich(table: Table, width: int) -> RenderableType:
    """A table with its title, legend and footnotes, for a terminal of this width."""
    heads = [printable(head) for head in table.header]
    cells = [[_plain(row[column]) for row in table.rows] for column in range(len(heads))]
    widths = [_widest([head, *texts]) for head, texts in zip(heads, cells, strict=True)]
    blocks = [range(1, len(heads))]
    if sum(widths) + _GAP * len(widths) > width:
        least = max(width // _NAMES_SHARE, _widest(_words([heads[0], *cells[0]])))
        least = min(widths[0], least)
        for column in blocks[0]:
            widths[column] = _widest([*_words([heads[column]]), *cells[column]])
        blocks = _blocks(widths, width - least - _GAP)
        taken = max(sum(widths[column] + _GAP for column in block) for block in blocks)
        widths[0] = min(widths[0], max(least, width - taken - _GAP))
    parts: list[RenderableType] = [Text(table.title, style="bold")]
    parts += [_grid(table, heads, widths, [0, *block]) for block in blocks]
    if table.legend:
        parts.append(Text(table.legend, style="dim"))
    parts += [Text(f"{_raised(mark)} {text}") for mark, text in table.footnotes.items()]
    return Group(*parts, Text())


def _blocks(widths: Sequence[int], room: int) -> list[range]:
    """Columns from the second on, cut where the next one has no room beside the others."""
    blocks, first, taken = [], 1, 0
    for column in range(1, len(widths)):
        taken += widths[column] + _GAP
        if taken > room and column > first:
            blocks.append(range(first, column))
            first, taken = column, widths[column] + _GAP
    return [*blocks, range(first, len(widths))]


def _grid(
    table: Table, heads: Sequence[str], widths: Sequence[int], columns: Sequence[int]
) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        side = "right" if column else "left"
        grid.add_column(Text(heads[column]), justify=side, overflow="fold", width=widths[column])
    for row in table.rows:
        name, *numbers = (row[column] for column in columns)
        grid.add_row(_rich(name, widths[0]), *map(_rich, numbers))
    return grid


def _rich(entry: Entry, width: int | None = None) -> Text:
    """An entry as it is shown; where a width is given, its lines end in time."""
    first, *beside = (
        line if width is None else _filled(line, width) for line in _plain(entry).split("\n")
    )
    text = Text(first, style="bold" if entry.strong else "")
    return text.append("".join(f"\n{line}" for line in beside), style="not bold dim")


def _plain(entry: Entry) -> str:
    text = printable(entry.text) + _raised(entry.marks)
    return text + (f"\n({printable(entry.beside)})" if entry.beside else "")


def _filled(line: str, width: int) -> str:
    # A number is tied to its unit by a space at which only rich would break.
    return textwrap.fill(line, width, break_on_hyphens=False, break_long_words=False)


def _raised(marks: str) -> str:
    return marks.translate(_SUPERSCRIPTS)


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for line in text.split("\n") for word in line.split(" ")]


def _widest(texts: Iterable[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)
