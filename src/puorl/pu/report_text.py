"""A filter report for the terminal: the verdict first, then numbers, checks and what to look at."""

from collections.abc import Iterator

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from puorl.pu.report import FilterReport, Measured, Quality, Shortcut

WIDTH = 80
_VERDICTS = {
    "clear": ("clear", "bold green"),
    "behaviour": ("behaviour, not dynamics", "bold yellow"),
    "doubtful": ("doubtful", "bold yellow"),
    "cannot_tell": ("cannot tell", "bold red"),
}
_MARKS = {"fine": "green", "look": "yellow", "unsure": "yellow"}
_MOST_COLUMNS = 5
_BARS = " ▁▂▃▄▅▆▇█"


def as_text(report: FilterReport) -> RenderableType:
    """A summary 80 columns wide; print it with a `rich.console.Console`."""
    title, style = _VERDICTS[report.verdict]
    advice = Panel(
        Text(report.advice), title=Text(title, style=style), title_align="left", width=WIDTH
    )
    parts: list[RenderableType] = [advice, *(_warning(text) for text in report.warnings)]
    parts += [_numbers(report), _checks(report), _histogram(report)]
    if report.doubtful:
        parts.append(_doubtful(report))
    return Group(*parts)


def _warning(text: str) -> Table:
    """The text beside its label, wrapped under itself."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=12)
    grid.add_column(width=WIDTH - 14, overflow="fold")
    grid.add_row(Text("warning", style="yellow"), Text(text))
    return grid


def _numbers(report: FilterReport) -> Table:
    quality = report.quality
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, width=WIDTH)
    table.add_column("in %", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("", overflow="fold", ratio=1)
    for alpha in report.alphas:
        low, high = alpha.interval or (np.nan, np.nan)
        cells = _cells(Measured(alpha.value, low, high))
        table.add_row(f"alpha ({alpha.method})", *cells, "target rows among the unlabelled")
    is_upper = quality.precision_is_upper and quality.precision_is_known
    upper = "; an upper estimate" if is_upper else ""
    shown = not quality.precision_is_open
    soft = quality.is_soft
    recalled = "of the target's rows weigh 0.5 or more" if soft else "of the target's rows are kept"
    of_kept = "of rows of weight 0.5 or more" if soft else "of kept rows"
    table.add_row("recall", *_cells(quality.recall), recalled)
    table.add_row(
        "precision", *_cells(quality.precision, shown=shown), f"{of_kept} are the target's{upper}"
    )
    table.add_row(
        "purity", *_cells(quality.purity, shown=shown), "the same, labelled rows included"
    )
    table.caption = f"{_kept(quality)}, {quality.num_labelled:,} labelled; decided by {report.unit}"
    table.caption_justify = "left"
    return table


def _kept(quality: Quality) -> str:
    if quality.mean_weight is None:
        return f"{quality.num_kept:,} of {quality.num_unlabelled:,} unlabelled rows kept"
    return (
        f"all {quality.num_unlabelled:,} unlabelled rows kept with weights (mean "
        f"{quality.mean_weight:.3f}), {quality.num_kept:,} of them with 0.5 or more"
    )


def _cells(measured: Measured, *, shown: bool = True) -> tuple[str, str]:
    """Estimate and interval; a dash for what is not known or not to be shown."""
    value = f"{100 * measured.value:.1f}" if shown and np.isfinite(measured.value) else "–"
    if not np.isfinite([measured.value, measured.low]).all():
        return value, "–"
    return value, f"{100 * measured.low:.1f} to {100 * measured.high:.1f}"


def _checks(report: FilterReport) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=12)
    table.add_column(width=6)
    table.add_column(width=WIDTH - 21, overflow="fold")
    for name, mark, text in _answers(report):
        table.add_row(Text(name, style="bold"), Text(mark, style=_MARKS[mark]), Text(text))
    return table


def _answers(report: FilterReport) -> Iterator[tuple[str, str, str]]:
    """Name of each check, its mark, and what it says."""
    shortcut, selection = report.shortcut, report.selection
    yield (
        "behaviour",
        _mark(not shortcut.is_shortcut, is_known=shortcut.is_sure),
        _behaviour(shortcut),
    )
    shown = [column.sentence for column in report.columns[:_MOST_COLUMNS]]
    more = len(report.columns) - len(shown)
    if more > 0:
        shown.append(f"And {more} more.")
    said = " ".join(shown) or "no column gives the labels away"
    yield "recording", _mark(not report.columns), said
    yield "selection", _mark(selection.is_random, is_known=selection.is_known), selection.sentence
    both = " and ".join(f"{alpha.method} {alpha.value:.3f}" for alpha in report.alphas)
    wide = report.alphas_agree and not report.alphas_comparable
    yield (
        "estimates",
        _mark(report.alphas_agree, is_known=not wide),
        f"alpha by {both}" + ("; an interval spans nearly everything" if wide else ""),
    )


def _mark(is_fine: bool, *, is_known: bool = True) -> str:
    return ("fine" if is_fine else "look") if is_known else "unsure"


def _behaviour(shortcut: Shortcut) -> str:
    numbers = (
        f"(s, a) alone separates with {shortcut.separation_behaviour.value:.2f}, all inputs with "
        f"{shortcut.separation.value:.2f}"
    )
    if shortcut.is_sure:
        return f"{numbers}: {shortcut.share:.0%} of it"
    if shortcut.hardly_separated:
        return f"{numbers}: hardly anything that a shortcut could explain"
    return (
        f"{numbers}; not clear: behaviour alone gives {shortcut.share:.0%} of the separation, but "
        "the intervals are too wide to call it a shortcut"
    )


def _histogram(report: FilterReport) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=12)
    table.add_column(no_wrap=True)
    table.add_row("", "")
    for name, share in (
        ("labelled", report.histogram.labelled),
        ("unlabelled", report.histogram.unlabelled),
    ):
        table.add_row(Text(name, style="bold"), Text(_bars(share), style="cyan"))
    table.add_row("", Text("0" + "score".center(max(len(share) - 2, 5)) + "1", style="dim"))
    return table


def _bars(share: tuple[float, ...]) -> str:
    # Square roots: a few rows in the middle are what one looks for beside two high peaks.
    height = np.sqrt(np.array(share))
    level = np.ceil(height / max(float(height.max(initial=0.0)), 1e-12) * (len(_BARS) - 1))
    return "".join(_BARS[int(k)] for k in level)


def _doubtful(report: FilterReport) -> Table:
    column = report.unit_column
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        title=Text(f"most doubtful {f'values of {column}' if column else 'episodes'}"),
        title_justify="left",
        title_style="bold",
    )
    table.add_column(Text(column or "episode"), overflow="fold", max_width=30)
    for name in ("rows", "mean score", "weight ≥ 0.5" if report.quality.is_soft else "kept"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in report.doubtful:
        table.add_row(
            Text(each.episode),
            f"{each.num_rows:,}",
            f"{each.mean_score:.2f}",
            f"{each.share_kept:.0%}",
        )
    return table
