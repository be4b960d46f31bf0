"""Page builder for all reports: one HTML file, without network or other files.

A page is `document` of sections; every function takes plain text and returns `Markup`. Text is
escaped where it enters, so that no name from a file can become code of the page; only `Markup` is
joined without escaping. The only script is the one that sorts tables, below; browsers are told its
hash and run no other.
"""

import base64
import hashlib
import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NewType

from puorl.core.stats import Estimate

Markup = NewType("Markup", str)
"""Text that is already HTML, made by the functions of this room."""
Tone = Literal["good", "caution", "bad", "neutral"]

_MARKS: dict[Tone, str] = {"good": "✓", "caution": "!", "bad": "×", "neutral": "?"}
# Not allowed in XML, or able to reverse the text around them.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_LONGEST_CELL = 300
_LONGEST_PARAGRAPH = 1000
_PERCENT = "\u00a0%"  # never at the start of a line
# Browsers run no other script and fetch nothing, even if a name from a file tried to.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"


_SORTABLE = '<table class="sortable">'
_SORT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const numeric = head.classList.contains("number");
      const key = (row) => {
        const text = row.cells[column].textContent;
        return numeric ? parseFloat(text.replaceAll(",", "")) : text;
      };
      const order = (a, b) => numeric ? a - b : a.localeCompare(b, "en", {numeric: true});
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (up ? 1 : -1) * order(key(a), key(b)));
      table.tBodies[0].append(...rows);
    });
  });
}
"""


def escape(text: object) -> Markup:
    """Escape plain text for HTML and XML.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return Markup(html.escape(_UNPRINTABLE.sub("\ufffd", str(text)), quote=True))


def shorten(text: str, limit: int) -> str:
    """Cut text to at most ``limit`` characters; an ellipsis marks the cut.

    >>> shorten("a long name", 6)
    'a lon…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def join(parts: Iterable[Markup]) -> Markup:
    """Join parts, leaving out empty ones."""
    return Markup("\n".join(part for part in parts if part))


def document(title: str, *parts: Markup, lead: str = "") -> str:
    """Build a whole page.

    Args:
        title: Name of the page and its first heading.
        parts: Content, mostly sections.
        lead: Line under the title.
    """
    intro = Markup(f'<p class="lead">{escape(lead)}</p>' if lead else "")
    body, policy, script = join((intro, *parts)), _POLICY, ""
    if _SORTABLE in body:
        digest = base64.b64encode(hashlib.sha256(_SORT.encode()).digest()).decode()
        policy, script = f"{_POLICY}; script-src 'sha256-{digest}'", f"<script>{_SORT}</script>\n"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{stylesheet()}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n{script}</body>\n</html>\n"
    )


def section(heading: str, *parts: Markup, anchor: str = "") -> Markup:
    """Build a section with a heading; ``anchor`` is the target of `link`."""
    name = f' id="{escape(anchor)}"' if anchor else ""
    return Markup(f"<section{name}>\n<h2>{escape(heading)}</h2>\n{join(parts)}\n</section>")


def paragraph(text: str) -> Markup:
    """Build a paragraph; a very long text is cut, an empty one gives nothing."""
    return Markup(f"<p>{escape(shorten(text, _LONGEST_PARAGRAPH))}</p>" if text else "")


def link(text: str, anchor: str) -> Markup:
    """Build a paragraph that links to a section of the same page."""
    return Markup(f'<p><a href="#{escape(anchor)}">{escape(text)}</a></p>')


def group(*parts: Markup) -> Markup:
    """Group parts into one cell of `side_by_side`."""
    return Markup(f"<div>\n{join(parts)}\n</div>")


def side_by_side(*parts: Markup) -> Markup:
    """Arrange parts in two columns on wide screens, else below each other."""
    return Markup(f'<div class="side">\n{join(parts)}\n</div>')


def banner(tone: Tone, eyebrow: str, headline: str, sentence: str, *parts: Markup) -> Markup:
    """Build the summary of a page: a mark, a headline and advice."""
    return Markup(
        f'<div class="banner {tone}">\n<div class="mark" aria-hidden="true">{_MARKS[tone]}</div>\n'
        f'<div>\n<p class="eyebrow">{escape(eyebrow)}</p>\n'
        f'<p class="headline">{escape(headline)}</p>\n'
        f"{join((paragraph(sentence), *parts))}\n</div>\n</div>"
    )


@dataclass(frozen=True)
class Tile:
    """One number with its name and meaning."""

    name: str
    value: str
    meaning: str
    interval: str = ""
    qualifier: str = ""
    """Text before the value, e.g. ``at most``."""
    picture: Markup = Markup("")


def tiles(items: Iterable[Tile]) -> Markup:
    """Build a row of cards, a definition list for screen readers."""
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
    sortable: bool = False,
) -> Markup:
    """Build a table whose first column names the row.

    Args:
        caption: Content of the table.
        header: Name of each column.
        rows: Cells as text; very long ones are cut.
        numeric: Columns that hold numbers, aligned right.
        sortable: Sort by a column at a click on its head, where scripts run.
    """

    def row(cells: Sequence[str], *tags: str) -> str:
        made = ""
        for column, text in enumerate(cells):
            tag = tags[min(column, len(tags) - 1)]
            kind = ' class="number"' if column in numeric else ""
            made += f"<{tag}{kind}>{escape(shorten(text, _LONGEST_CELL))}</{tag[:2]}>"
        return f"<tr>{made}</tr>"

    head = row(header, 'th scope="col"')
    body = "\n".join(row(cells, 'th scope="row"', "td") for cells in rows)
    return Markup(
        f"{_SORTABLE if sortable else '<table>'}\n<caption>{escape(caption)}</caption>\n"
        f"<thead>{head}</thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def movable(part: Markup, label: str) -> Markup:
    """Put a wide part into a box that can be moved sideways on a narrow screen."""
    return Markup(
        '<div style="overflow-x:auto" tabindex="0" role="region" '
        f'aria-label="{escape(label)}">\n{part}\n</div>'
    )


def figure(drawing: Markup, caption: str, *, heading: str = "") -> Markup:
    """Build a figure of a drawing and its caption below; ``heading`` stands above."""
    above = f'<p class="heading">{escape(heading)}</p>\n' if heading else ""
    below = f"<figcaption>{escape(caption)}</figcaption>"
    return Markup(f"<figure>\n{above}{drawing}\n{below}\n</figure>")


def warning_list(warnings: Sequence[str]) -> Markup:
    """Build a list of warnings, or a sentence that there are none."""
    if not warnings:
        return paragraph("No warnings.")
    short = (escape(shorten(each, _LONGEST_PARAGRAPH)) for each in warnings)
    items = "\n".join(f'<li class="caution">{each}</li>' for each in short)
    return Markup(f'<ul class="warnings">\n{items}\n</ul>')


def terms(meanings: dict[str, str]) -> Markup:
    """Build a list of terms and their meanings."""
    pairs = (f"<dt>{escape(k)}</dt>\n<dd>{escape(v)}</dd>" for k, v in meanings.items())
    return Markup('<dl class="terms">\n' + "\n".join(pairs) + "\n</dl>")


def folded(summary: str, text: str) -> Markup:
    """Build preformatted text that is hidden until a click on the summary."""
    # Browsers drop the first line break after <pre>: this one, not one of the text.
    return Markup(
        f"<details>\n<summary>{escape(summary)}</summary>\n<pre>\n{escape(text)}</pre>\n</details>"
    )


def as_percent(fraction: float, *, digits: int = 1) -> str:
    r"""Format a fraction in percent; only 0 and 1 are shown as 0 % and 100 %.

    >>> [as_percent(x) for x in (0.2934, 0.99996, 1, 0.0001, 0, float("nan"))]
    ['29.3\xa0%', '>99.9\xa0%', '100\xa0%', '<0.1\xa0%', '0\xa0%', 'not known']
    """
    if not math.isfinite(fraction):
        return "not known"
    if fraction in (0, 1):
        return f"{100 * fraction:.0f}{_PERCENT}"
    step = 10.0**-digits
    text = f"{100 * fraction:.{digits}f}"
    if 0 < fraction < 1 and float(text) in (0, 100):
        text = f"<{step:.{digits}f}" if fraction < 0.5 else f">{100 - step:.{digits}f}"
    return f"{text}{_PERCENT}"


def as_percent_range(low: float, high: float) -> str:
    r"""Format an interval in percent; return an empty text where there is none.

    >>> as_percent_range(0.2874, 0.2989)
    '28.7–29.9\xa0%'
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{as_percent(low).removesuffix(_PERCENT)}–{as_percent(high)}"


def as_estimate(estimate: Estimate, digits: int = 1) -> str:
    """Format a value with half the width of its interval, where it has one.

    >>> as_estimate(Estimate(40.0, 37.5, 42.5)), as_estimate(Estimate(1234.5), 0)
    ('40.0 ± 2.5', '1,234')
    """
    half = "" if estimate.interval is None else f" ± {estimate.half_width:,.{digits}f}"
    return f"{estimate.value:,.{digits}f}{half}"


def as_difference(estimate: Estimate) -> str:
    """Format a difference with both ends of its interval, where it has one.

    >>> as_difference(Estimate(1.0, -0.5, 2.5))
    '+1.0 (-0.5 to +2.5)'
    """
    ends = f" ({estimate.low:+,.1f} to {estimate.high:+,.1f})" if estimate.interval else ""
    return f"{estimate.value:+,.1f}{ends}"


def as_count(count: int) -> str:
    """Format a whole number with separators.

    >>> as_count(990000)
    '990,000'
    """
    return f"{count:,d}"


# Text has a contrast of 4.5 or more against its background; a test computes it.
_COLOURS = {
    "paper": ("#f6f7f8", "#13161a"),
    "card": ("#ffffff", "#1b1f25"),
    "ink": ("#1b2026", "#e8eaed"),
    "muted": ("#555d67", "#a9b0ba"),
    "rule": ("#d8dce1", "#39404a"),
    "link": ("#0b5c9c", "#7cc0f5"),
    "series-1": ("#0b63a5", "#62b2f0"),
    "series-2": ("#ad4a00", "#f0a04b"),
    "series-3": ("#00705a", "#4fc9a8"),
    "series-4": ("#86397f", "#dc9fd8"),
    "good-paper": ("#e5f4ea", "#14301f"),
    "good-ink": ("#14532d", "#b5e6c4"),
    "caution-paper": ("#fdf2d3", "#382c0c"),
    "caution-ink": ("#5c4000", "#f3d88c"),
    "bad-paper": ("#fde8e6", "#3d1a19"),
    "bad-ink": ("#7f1d1d", "#f6bdb7"),
    "neutral-paper": ("#e6edf7", "#1a2a40"),
    "neutral-ink": ("#1c3a60", "#bcd5f5"),
}
"""Name to the colour in light and in dark mode."""
LIGHT = {name: light for name, (light, _) in _COLOURS.items()}
DARK = {name: dark for name, (_, dark) in _COLOURS.items()}

_RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .6rem; }
p { margin: 0 0 .7rem; max-width: 42rem; }
a { color: var(--link); }
.muted { color: var(--muted); }
.lead { color: var(--muted); margin-bottom: 1.25rem; max-width: none; }
section { margin-top: 2.25rem; }

.banner { border-radius: .7rem; padding: 1.1rem 1.25rem; display: flex; gap: 1rem; }
.banner p { margin: .3rem 0 0; max-width: 46rem; }
.banner .eyebrow { margin: 0; font-size: .85rem; font-weight: 600; }
.banner .headline { margin: 0; font-size: 1.35rem; font-weight: 700; line-height: 1.25; }
.banner a { color: inherit; }
.mark { flex: none; width: 2.4rem; height: 2.4rem; border: 2px solid; border-radius: 50%;
  display: grid; place-items: center; font-size: 1.3rem; font-weight: 700; line-height: 1; }
.good { background: var(--good-paper); color: var(--good-ink); }
.caution { background: var(--caution-paper); color: var(--caution-ink); }
.bad { background: var(--bad-paper); color: var(--bad-ink); }
.neutral { background: var(--neutral-paper); color: var(--neutral-ink); }

.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(13rem, 100%), 1fr));
  gap: .8rem; margin: 0 0 1rem; }
.tiles > div, figure { background: var(--card); border: 1px solid var(--rule);
  border-radius: .7rem; padding: .9rem 1rem; }
.tiles dt { color: var(--muted); font-size: .9rem; font-weight: 600; }
.tiles dd { margin: 0; }
.tiles .value { font-size: 1.65rem; font-weight: 700; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.tiles .qualifier { font-size: 1rem; font-weight: 600; }
.tiles .interval { font-size: .9rem; font-variant-numeric: tabular-nums; }
.tiles .meaning { color: var(--muted); font-size: .85rem; line-height: 1.4; margin-top: .35rem; }
.tiles svg { display: block; width: 100%; height: .8rem; margin: .35rem 0 .15rem; }

.side { display: grid; gap: 1rem 1.5rem; align-items: start; margin-bottom: 1rem; }
.side > * { min-width: 0; }
@media (min-width: 46rem) { .side { grid-template-columns: 1fr 1fr; } }
figure { margin: 0; }
figure svg { display: block; width: 100%; max-width: 30rem; height: auto; margin: 0 auto; }
figure .heading { font-weight: 700; margin: 0 0 .3rem; }
figcaption { color: var(--muted); font-size: .9rem; line-height: 1.45; margin-top: .5rem; }

svg text { font-family: inherit; font-size: 13px; fill: var(--ink);
  paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg .quiet { fill: var(--muted); }
svg .strong { font-weight: 650; }
@media (min-width: 46rem) { svg text { font-size: 11.5px; } }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .track { fill: var(--rule); }
svg .mark-line { stroke: var(--muted); stroke-width: 1.2; stroke-dasharray: 3 3; }
svg .trace { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: butt; }
svg .area { fill-opacity: .3; stroke-width: 1.4; stroke-linejoin: round; }
svg .band { fill-opacity: .18; stroke: none; }
svg .place { stroke-width: 1.6; } svg .place:not([class*=" f"]) { fill: var(--card); }
svg .ring { fill: none; stroke-width: 1; stroke-opacity: .45; }
svg .s1 { stroke: var(--series-1); } svg .f1 { fill: var(--series-1); }
svg .s2 { stroke: var(--series-2); } svg .f2 { fill: var(--series-2); }
svg .s3 { stroke: var(--series-3); } svg .f3 { fill: var(--series-3); }
svg .s4 { stroke: var(--series-4); } svg .f4 { fill: var(--series-4); }
svg .d2 { stroke-dasharray: 5 3; } svg .d3 { stroke-dasharray: 1.5 2.5; }
svg .d4 { stroke-dasharray: 8 3 1.5 3; }

table { border-collapse: collapse; width: 100%; margin: 0 0 1rem; background: var(--card);
  border: 1px solid var(--rule); font-size: .93rem; }
caption { text-align: left; color: var(--muted); font-size: .9rem; padding: 0 0 .4rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .6rem; unicode-bidi: isolate;
  border-top: 1px solid var(--rule); overflow-wrap: anywhere; }
thead th { border-top: 0; color: var(--muted); font-size: .85rem; line-height: 1.3;
  overflow-wrap: normal; }
thead button { all: unset; cursor: pointer; }
thead button:focus-visible { outline: 2px solid var(--link); }
[aria-sort="ascending"] button::after { content: " ▲"; }
[aria-sort="descending"] button::after { content: " ▼"; }
thead th:first-child { overflow-wrap: anywhere; min-width: 4.5rem; }
tbody th { font-weight: 600; min-width: 4.5rem; }
td { min-width: 4rem; }
.number { text-align: right; min-width: 0; overflow-wrap: normal;
  font-variant-numeric: tabular-nums; }
.warnings { margin: 0; padding: 0; list-style: none; display: grid; gap: .5rem; }
.warnings li { border-left: .3rem solid; border-radius: .3rem; padding: .55rem .8rem;
  min-width: 0; }
.terms { margin: 0; display: grid; gap: .15rem 1.2rem; }
.terms dt { font-weight: 600; }
.terms dd { margin: 0 0 .5rem; color: var(--muted); }
@media (min-width: 46rem) { .terms { grid-template-columns: 9rem 1fr; } }
details { margin-top: 1rem; }
summary { cursor: pointer; color: var(--link); padding: .3rem 0; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: .4rem;
  padding: .8rem; margin: .4rem 0 0; font-size: .8rem; line-height: 1.45;
  white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 30rem) {
  .banner { padding: .9rem; gap: .7rem; }
  .mark { width: 1.9rem; height: 1.9rem; font-size: 1.05rem; }
  figure { padding: .7rem .6rem; }
  table { font-size: .85rem; }
  thead th { font-size: .8rem; }
  th, td { padding: .4rem .35rem; }
}
@media print {
  html { font-size: 9pt; }
  body { background: none; }
  main { max-width: none; padding: 0; }
  section { margin-top: 1.5rem; }
  details { display: none; }
  .tiles { grid-template-columns: repeat(4, 1fr); }
  .side { grid-template-columns: 1fr 1fr; }
  .banner, .warnings li, svg * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .banner, figure, .tiles > div, .warnings li, tr { break-inside: avoid; }
  h2, caption, thead { break-after: avoid; }
}
"""


def stylesheet() -> str:
    """Return the stylesheet; colours are variables, so that charts follow light and dark mode."""
    light, dark = (
        " ".join(f"--{name}: {colour};" for name, colour in theme.items())
        for theme in (LIGHT, DARK)
    )
    # Dark colours are for screens only, not for print.
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{_RULES}"
    )
