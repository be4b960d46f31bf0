"""Tables as data, and their formats with the same texts: Markdown, LaTeX, HTML, terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from puorl.html.page import Markup, escape

HOLE = "–"


@dataclass(frozen=True)
class Entry:
    """One entry of a table."""

    text: str
    beside: str = ""
    """Shown in brackets for comparison."""
    marks: str = ""
    """Letters of its footnotes."""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """Entries under a header; the first column names the row, all others hold numbers."""

    name: str
    """Short, for anchors and labels."""
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    legend: str = ""
    footnotes: dict[str, str] = field(default_factory=dict)
    """Letters to their texts."""


class Footnotes:
    """Assigns letters to texts; equal texts have one letter."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """Return the letter of a text."""
        for letter, known in self.texts.items():
            if known == text:
                return letter
        letter = _letters(len(self.texts))
        self.texts[letter] = text
        return letter


def _letters(index: int) -> str:
    first, last = divmod(index, 26)
    return (_letters(first - 1) if first else "") + "abcdefghijklmnopqrstuvwxyz"[last]


_MARKDOWN = {character: f"\\{character}" for character in "\\|*_`<"}
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # at the start of a row it would be an argument of the line break; so would *
    "*": "{*}",
    "–": "--",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": "$-$",
    "×": r"$\times$",
    "ξ": r"$\xi$",
    "α": r"$\alpha$",
    "\u00a0": "~",
}
_FIRST = "position:sticky;left:0;background:var(--card);min-width:8.5rem;overflow-wrap:normal"
_PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[landscape,margin=1.5cm]{geometry}
\usepackage{booktabs,graphicx}
\begin{document}
"""


def as_markdown(table: Table) -> str:
    """Format a table as GitHub's Markdown."""
    lines = [f"### {markdown_text(table.title)}", ""]
    lines.append(_bars(map(markdown_text, table.header)))
    lines.append(_bars("---" if column == 0 else "---:" for column in range(len(table.header))))
    lines += [_bars(map(_markdown_entry, row)) for row in table.rows]
    if table.legend:
        lines += ["", markdown_text(table.legend)]
    for mark, text in table.footnotes.items():
        lines += ["", f"<sup>{mark}</sup> {markdown_text(text)}"]
    return "\n".join(lines) + "\n"


def as_latex(table: Table) -> str:
    """Format a table as a LaTeX float; needs the packages booktabs and graphicx."""
    columns = "l" + "r" * (len(table.header) - 1)
    rows = [
        " & ".join(_latex_entry(entry, "r" if column else "l") for column, entry in enumerate(row))
        + r" \\"
        for row in table.rows
    ]
    notes = [f"$^{{{mark}}}$ {_latex(text)}." for mark, text in table.footnotes.items()]
    below = " ".join([_latex(table.legend), *notes]).strip()
    return "\n".join(
        [
            r"\begin{table}[p]",
            r"\centering",
            rf"\caption{{{_latex(table.title)}}}",
            rf"\label{{tab:{table.name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(_latex, table.header)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}}",
            *([rf"\par\smallskip\footnotesize {below}"] if below else []),
            r"\end{table}",
            "",
        ]
    )


def latex_document(tables: Sequence[Table]) -> str:
    """Format all tables as a LaTeX document that compiles by itself."""
    # LaTeX holds a limited number of floats back: they are flushed a few at a time.
    parts = [as_latex(t) + "\\clearpage\n" * (n % 5 == 0) for n, t in enumerate(tables, start=1)]
    return _PREAMBLE + "\n".join(parts) + "\\end{document}\n"


def as_html(table: Table, *, caption: str | None = None) -> Markup:
    """Format a table as HTML; one that is too wide for the screen scrolls sideways.

    Args:
        table: The table.
        caption: Shown in place of its title, where a heading has that already.
    """
    text = table.title if caption is None else caption
    # Outside of the part that scrolls, so that a long one is broken into lines.
    above = f'<p class="muted" style="margin:0 0 .3rem">{escape(text)}</p>\n' if text else ""
    kinds = ("", *(' class="number"',) * (len(table.header) - 1))
    names = zip(kinds, map(escape, table.header), strict=True)
    head = "".join(f'<th scope="col"{kind}>{name}</th>' for kind, name in names)
    body = "\n".join(
        f"<tr>{''.join(_body_cell(column, entry) for column, entry in enumerate(row))}</tr>"
        for row in table.rows
    )
    notes = [escape(table.legend)] if table.legend else []
    notes += [f"{_sup(mark)} {escape(text)}" for mark, text in table.footnotes.items()]
    below = f'<p class="muted"><small>{"<br>".join(notes)}</small></p>' if notes else ""
    # A box that scrolls must be reachable by keyboard.
    return Markup(
        f'{above}<div id="{escape(table.name)}" style="overflow-x:auto" tabindex="0" role="region" '
        f'aria-label="{escape(table.title)}">\n<table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>\n"
        f"{below}"
    )


def _bars(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def printable(text: str) -> str:
    """Return text in one line, with a question mark for every character that cannot be shown."""
    return "".join(c if c.isprintable() or c == "\u00a0" else "?" for c in text)


def markdown_text(text: str) -> str:
    """Escape text for Markdown."""
    return "".join(_MARKDOWN.get(character, character) for character in printable(text))


def _markdown_entry(entry: Entry) -> str:
    text = markdown_text(entry.text)
    text = f"**{text}**" if entry.strong and text else text
    text += f"<sup>{entry.marks}</sup>" if entry.marks else ""
    return text + (f" ({markdown_text(entry.beside)})" if entry.beside else "")


def _latex(text: str) -> str:
    # A character without a glyph would stop LaTeX.
    return "".join(_LATEX.get(c, c if c.isascii() else "?") for c in printable(text))


def _latex_entry(entry: Entry, side: str) -> str:
    text = _latex(entry.text)
    text = rf"\textbf{{{text}}}" if entry.strong and text else text
    text += f"$^{{{entry.marks}}}$" if entry.marks else ""
    if not entry.beside:
        return text
    return rf"\shortstack[{side}]{{{text} \\ {{\scriptsize ({_latex(entry.beside)})}}}}"


def _body_cell(column: int, entry: Entry) -> str:
    text = escape(entry.text)
    text = f"<strong>{text}</strong>" if entry.strong and text else text
    text += _sup(entry.marks) if entry.marks else ""
    if entry.beside:
        text += f'<br><small class="muted" style="font-weight:400">({escape(entry.beside)})</small>'
    if column:
        return f'<td class="number" style="white-space:nowrap">{text}</td>'
    # Stays in place while the numbers scroll.
    return f'<th scope="row" style="{_FIRST}">{text}</th>'


def _sup(marks: str) -> str:
    return f'<sup style="line-height:0">{escape(marks)}</sup>'


_SUPERSCRIPTS = str.maketrans("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")
_GAP = 2
"""Characters between two columns of a table."""
_NAMES_FRACTION = 3
"""The first column may take one in this many characters of the terminal's width."""


def as_rich(table: Table, width: int) -> RenderableType:
    """Format a table with its title, legend and footnotes for a terminal of this width."""
    heads = [printable(head) for head in table.header]
    cells = [[_plain(row[column]) for row in table.rows] for column in range(len(heads))]
    widths = [_widest([head, *texts]) for head, texts in zip(heads, cells, strict=True)]
    blocks = [range(1, len(heads))]
    if sum(widths) + _GAP * len(widths) > width:
        least = max(width // _NAMES_FRACTION, _widest(_words([heads[0], *cells[0]])))
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
    """Divide the columns from the second on into blocks that fit in this width."""
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
    """Format an entry, with its lines broken where a width is given."""
    lines = _plain(entry).split("\n")
    if width is not None:
        # A number is tied to its unit by a space at which only rich would break.
        wrapper = textwrap.TextWrapper(width, break_on_hyphens=False, break_long_words=False)
        lines = map(wrapper.fill, lines)
    first, *beside = lines
    text = Text(first, style="bold" if entry.strong else "")
    return text.append("".join(f"\n{line}" for line in beside), style="not bold dim")


def _plain(entry: Entry) -> str:
    text = printable(entry.text) + _raised(entry.marks)
    return text + (f"\n({printable(entry.beside)})" if entry.beside else "")


def _raised(marks: str) -> str:
    return marks.translate(_SUPERSCRIPTS)


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for line in text.split("\n") for word in line.split(" ")]


def _widest(texts: Iterable[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)
