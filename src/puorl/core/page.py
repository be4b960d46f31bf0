"""Pieces of a page: one static HTML file that needs no network, no script and no other file.

Every function takes plain text and returns `Markup`. Text is escaped on its way in, so that no
name from a file can become part of the page's code; only `Markup` is ever put together unescaped.
"""

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NewType

from puorl.core.page_style import stylesheet

Markup = NewType("Markup", str)
"""Text that is HTML already: made by this room, never by a user."""
Tone = Literal["good", "caution", "bad", "neutral"]

_MARKS: dict[Tone, str] = {"good": "✓", "caution": "!", "bad": "×", "neutral": "?"}
# Not allowed in XML, or able to turn the text around them back to front.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_LONGEST_CELL = 300
_LONGEST_PARAGRAPH = 1000
_PERCENT = "\u00a0%"  # never at the start of a line
# No script can run and nothing can be fetched, even if a browser were talked into trying.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"


def escape(text: object) -> Markup:
    """Plain text as HTML and XML alike.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return Markup(html.escape(_UNPRINTABLE.sub("\ufffd", str(text)), quote=True))


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` characters; what was cut shows as an ellipsis.

    >>> shorten("a long name", 6)
    'a lon…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def join(parts: Iterable[Markup]) -> Markup:
    """Parts one after the other."""
    return Markup("\n".join(part for part in parts if part))


def document(title: str, *parts: Markup, lead: str = "") -> str:
    """A whole page.

    Args:
        title: Name of the page, also its first heading.
        parts: What follows, mostly sections.
        lead: One line under the title.
    """
    intro = Markup(f'<p class="lead">{escape(lead)}</p>' if lead else "")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{stylesheet()}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{escape(title)}</h1>\n{join((intro, *parts))}\n</main>\n</body>\n</html>\n"
    )


def section(heading: str, *parts: Markup, anchor: str = "") -> Markup:
    """A part of the page with its heading; ``anchor`` is what `link` leads to."""
    name = f' id="{escape(anchor)}"' if anchor else ""
    return Markup(f"<section{name}>\n<h2>{escape(heading)}</h2>\n{join(parts)}\n</section>")


def paragraph(text: str) -> Markup:
    """One paragraph; one that would fill the screen is cut, an empty one is left out."""
    return Markup(f"<p>{escape(shorten(text, _LONGEST_PARAGRAPH))}</p>" if text else "")


def link(text: str, anchor: str) -> Markup:
    """A paragraph that leads to a section of the same page."""
    return Markup(f'<p><a href="#{escape(anchor)}">{escape(text)}</a></p>')


def group(*parts: Markup) -> Markup:
    """Parts that belong together; one cell where parts stand side by side."""
    return Markup(f"<div>\n{join(parts)}\n</div>")


def side_by_side(*parts: Markup) -> Markup:
    """Two columns where there is room, else one below the other."""
    return Markup(f'<div class="side">\n{join(parts)}\n</div>')


def banner(tone: Tone, eyebrow: str, headline: str, sentence: str, *parts: Markup) -> Markup:
    """The one thing to read: a mark, a headline and what to do."""
    return Markup(
        f'<div class="banner {tone}">\n<div class="mark" aria-hidden="true">{_MARKS[tone]}</div>\n'
        f'<div>\n<p class="eyebrow">{escape(eyebrow)}</p>\n'
        f'<p class="headline">{escape(headline)}</p>\n'
        f"{join((paragraph(sentence), *parts))}\n</div>\n</div>"
    )


@dataclass(frozen=True)
class Tile:
    """One number, what it is called and what it means."""

    name: str
    value: str
    meaning: str
    interval: str = ""
    qualifier: str = ""
    """Said before the value: ``at most``."""
    picture: Markup = Markup("")


def tiles(items: Iterable[Tile]) -> Markup:
    """Numbers as a row of cards, read aloud as a list of definitions."""
    return Markup(f'<dl class="tiles">\n{join(_tile(item) for item in items)}\n</dl>')


def _tile(item: Tile) -> Markup:
    before = f'<span class="qualifier">{escape(item.qualifier)}</span> ' if item.qualifier else ""
    interval = f'<dd class="interval">{escape(item.interval)}</dd>\n' if item.interval else ""
    picture = f"<dd>{item.picture}</dd>\n" if item.picture else ""
    return Markup(
        f'<div>\n<dt>{escape(item.name)}</dt>\n<dd class="value">{before}{escape(item.value)}</dd>'
        f'\n{picture}{interval}<dd class="meaning">{escape(item.meaning)}</dd>\n</div>'
    )


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric: Sequence[int] = (),
) -> Markup:
    """A table whose first column names the row.

    Args:
        caption: What the table holds.
        header: A name for each column.
        rows: Cells as text; very long ones are cut.
        numeric: Columns that hold numbers, set flush right.
    """

    def cell(column: int, text: str, tag: str, scope: str = "") -> str:
        kind = ' class="number"' if column in numeric else ""
        scope = f' scope="{scope}"' if scope else ""
        return f"<{tag}{scope}{kind}>{escape(shorten(text, _LONGEST_CELL))}</{tag}>"

    def row(cells: Sequence[str]) -> str:
        first = cell(0, cells[0], "th", "row")
        rest = (cell(column, text, "td") for column, text in enumerate(cells[1:], start=1))
        return f"<tr>{first}{''.join(rest)}</tr>"

    head = "".join(cell(column, text, "th", "col") for column, text in enumerate(header))
    body = "\n".join(row(cells) for cells in rows)
    return Markup(
        f"<table>\n<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def figure(drawing: Markup, caption: str) -> Markup:
    """A drawing and what it shows."""
    return Markup(f"<figure>\n{drawing}\n<figcaption>{escape(caption)}</figcaption>\n</figure>")


def warning_list(warnings: Sequence[str]) -> Markup:
    """Warnings one below the other, or a sentence that there are none."""
    if not warnings:
        return paragraph("No warnings.")
    short = (escape(shorten(each, _LONGEST_PARAGRAPH)) for each in warnings)
    items = "\n".join(f'<li class="caution">{each}</li>' for each in short)
    return Markup(f'<ul class="warnings">\n{items}\n</ul>')


def terms(meanings: dict[str, str]) -> Markup:
    """Words and what they mean."""
    pairs = (f"<dt>{escape(k)}</dt>\n<dd>{escape(v)}</dd>" for k, v in meanings.items())
    return Markup('<dl class="terms">\n' + "\n".join(pairs) + "\n</dl>")


def folded(summary: str, text: str) -> Markup:
    """Text as it is, folded away until it is asked for."""
    # A first line break right after <pre> is dropped by browsers: this one is ours.
    return Markup(
        f"<details>\n<summary>{escape(summary)}</summary>\n<pre>\n{escape(text)}</pre>\n</details>"
    )


def as_percent(share: float, *, digits: int = 1) -> str:
    r"""A share in percent; never rounded to nothing or to everything unless it is.

    >>> [as_percent(x) for x in (0.2934, 0.99996, 1, 0.0001, 0, float("nan"))]
    ['29.3\xa0%', '>99.9\xa0%', '100\xa0%', '<0.1\xa0%', '0\xa0%', 'not known']
    """
    if not math.isfinite(share):
        return "not known"
    if share in (0, 1):
        return f"{100 * share:.0f}{_PERCENT}"
    step = 10.0**-digits
    text = f"{100 * share:.{digits}f}"
    if 0 < share < 1 and float(text) in (0, 100):
        text = f"<{step:.{digits}f}" if share < 0.5 else f">{100 - step:.{digits}f}"
    return f"{text}{_PERCENT}"


def as_percent_range(low: float, high: float) -> str:
    r"""Both ends of an interval in percent; empty where there is none.

    >>> as_percent_range(0.2874, 0.2989)
    '28.7–29.9\xa0%'
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{as_percent(low).removesuffix(_PERCENT)}–{as_percent(high)}"


def as_count(count: int) -> str:
    """A whole number with separators.

    >>> as_count(990000)
    '990,000'
    """
    return f"{count:,d}"
