"""A filter report for the terminal, and the sentences that the page shows too."""

import math
from collections.abc import Iterator

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from puorl.core.stats import Estimate
from puorl.html.page import as_percent, as_percent_range, shorten
from puorl.pu.machines.report import MachineReport
from puorl.pu.report import FilterReport, Shortcut
from puorl.pu.unit_table import AGREEMENT, as_table, doubtful, in_order

WIDTH = 80
ALPHA = "Fraction of target rows among the unlabelled."
_CHECK = "A check: alpha estimated again."
LONGEST_NAME = 80
VERDICT_NAMES = {
    "clear": "clear",
    "behaviour": "behaviour, not dynamics",
    "doubtful": "doubtful",
    "cannot_tell": "cannot tell",
}
MACHINE_VERDICTS = {
    "dynamics": "machines differ",
    "both": "machines and drivers differ",
    "behaviour": "drivers differ, machines do not",
    "neither": "cannot tell",
    "confounded": "machine or driver: cannot tell",
}
MEANINGS = {
    False: {
        "Recall": "Fraction of the target's rows that is kept.",
        "Precision": "Fraction of the kept unlabelled rows that is the target's.",
        "Purity": "Fraction of the target's rows in the training set, labelled rows included.",
    },
    True: {
        "Recall": "Fraction of the target's rows that weighs 0.5 or more.",
        "Precision": "Fraction of the unlabelled rows of weight 0.5 or more that is the target's.",
        "Purity": "The same with the labelled rows, which weigh 1.",
    },
}
"""Meaning of the numbers in the mode soft (True) and in other modes."""
_STYLES = {"clear": "green", "behaviour": "yellow", "doubtful": "yellow", "cannot_tell": "red"}
_MARKS = {"fine": "green", "look": "yellow", "unsure": "yellow"}
_MOST_COLUMNS = 5
_BARS = " ▁▂▃▄▅▆▇█"


def describe_shortcut(check: Shortcut) -> str:
    """Describe whether behaviour is a shortcut."""
    fraction = as_percent(check.fraction, digits=0)
    if not math.isfinite(check.auroc.value):
        return "This could not be checked."
    if check.is_shortcut:
        return (
            f"A shortcut: state and action alone explain {fraction} of the AUROC above chance. The "
            "filter may select rows by the behaviour policy, not by the dynamics."
        )
    if check.hardly_separated:
        return "The AUROC is close to chance, so there is nothing for a shortcut to explain."
    if not check.is_sure:
        return (
            "Unclear, since the intervals are too wide: state and action alone may tell the rows "
            "apart (a shortcut), or the dynamics may. More labelled rows may tell."
        )
    return f"No shortcut: state and action alone explain {fraction} of the AUROC above chance."


def describe_alphas(report: FilterReport) -> str:
    """Describe the estimates of alpha and whether they agree."""
    if not report.alphas:
        return "Alpha was not estimated."
    found = " and ".join(
        f"{shorten(each.method, LONGEST_NAME)} {as_percent(each.value)}" for each in report.alphas
    )
    if len(report.alphas) == 1:
        return f"There is one estimate of alpha and no second one to compare it with: {found}."
    if report.alphas_agree and not report.alphas_comparable:
        known = (each for each in report.alphas if each.interval is not None)
        widest = max(known, key=lambda each: each.half_width)
        return (
            f"Two estimates of alpha, {found}, do not contradict each other, but that says little: "
            f"the interval of {shorten(widest.method, LONGEST_NAME)} is "
            f"{as_percent_range(widest.low, widest.high)}."
        )
    if report.alphas_agree:
        return f"Two estimates of alpha agree: {found}."
    return (
        f"Two estimates of alpha disagree: {found}. Precision follows from alpha, so do not rely "
        "on it until the reason is known."
    )


def describe_types(report: MachineReport) -> str:
    """Describe what was decided about how many units, and how far the models agree."""
    known = sum(row.labelled for row in report.units)
    kept = sum(row.keep and not row.labelled for row in report.units)
    asked = len(report.units) - known
    types = f"{report.num_types} types" if report.num_types != 1 else "one type"
    types = f"perhaps {types}" if report.is_weak else types
    outside = sum(row.cluster < 0 for row in report.units)
    none = f" and {outside} of no type" if outside else ""
    unsure = len(doubtful(report.units))
    what = "weigh 0.5 or more (all are kept, with weights)" if report.is_soft else "kept"
    depends = "" if report.agreement >= AGREEMENT else ": they depend on which model is asked"
    return (
        f"{len(report.units)} units of {types}{none}: {known} known, {kept} of the other {asked} "
        f"{what}; {unsure or 'no'} decision{'s' * (unsure != 1)} in doubt. "
        f"{as_percent(report.agreement, digits=0)} of the models' votes are for these "
        f"decisions{depends}."
    )


def tells_nothing(estimate: Estimate) -> bool:
    """Return whether the interval of a fraction is 0 to 1, so that the value means nothing."""
    return estimate.low <= 0 and estimate.high >= 1


def mostly_sure(report: MachineReport) -> bool:
    """Return whether at most every tenth decision is in doubt."""
    asked = sum(not row.labelled for row in report.units)
    return 10 * len(doubtful(report.units)) <= asked


def as_text(report: FilterReport | MachineReport) -> RenderableType:
    """Render the report 80 columns wide; print it with a `rich.console.Console`."""
    if isinstance(report, MachineReport):
        return _machines(report)
    title = Text(VERDICT_NAMES[report.verdict], style=f"bold {_STYLES[report.verdict]}")
    advice = Panel(Text(report.advice), title=title, title_align="left", width=WIDTH)
    parts: list[RenderableType] = [advice, *(_warning(text) for text in report.warnings)]
    parts += [_numbers(report), _checks(report), _histogram(report)]
    if report.doubtful:
        parts.append(_doubtful(report))
    return Group(*parts)


def _machines(report: MachineReport) -> RenderableType:
    style = "green" if report.verdict in ("dynamics", "both") and mostly_sure(report) else "yellow"
    title = Text(MACHINE_VERDICTS[report.verdict], style=f"bold {style}")
    table = _number_table()
    for name, meaning in {"Alpha": ALPHA, **MEANINGS[report.is_soft]}.items():
        if name != "Purity":
            table.add_row(name.lower(), *_cells(getattr(report, name.lower())), meaning)
    table.caption = describe_types(report)
    units, unsure = in_order(report.units), doubtful(report.units)
    known = [row for row in units if row.labelled]
    kept = [row for row in units if row.keep and not row.labelled]
    name = "of weight 0.5 or more" if report.is_soft else "kept"
    if in_order(unsure) == kept:
        shown = {"known": known, f"{name}, all in doubt": kept}
    else:
        shown = {"known": known, name: kept, "in doubt": unsure}
    tables = (as_table(f"{name}: {len(rows)}", rows) for name, rows in shown.items() if rows)
    advice = Panel(Text(report.advice), title=title, title_align="left", width=WIDTH)
    return Group(advice, table, *tables)


def _warning(text: str) -> Table:
    grid = _grid(Column(width=WIDTH - 14, overflow="fold"))
    grid.add_row(Text("warning", style="yellow"), Text(text))
    return grid


def _grid(*columns: Column) -> Table:
    return Table.grid(Column(width=12), *columns, padding=(0, 1, 0, 0))


def _number_table() -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        width=WIDTH,
        caption_justify="left",
    )
    table.add_column("in %", no_wrap=True)
    for name in ("estimate", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold", ratio=1)
    return table


def _numbers(report: FilterReport) -> Table:
    quality, table = report.quality, _number_table()
    if report.alpha is not None:
        table.add_row("alpha", *_cells(report.alpha), ALPHA)
    for check in report.alphas:
        table.add_row(f"check ({check.method})", *_cells(check), _CHECK)
    is_upper = quality.precision_is_upper and quality.precision_is_known
    for name, meaning in MEANINGS[quality.is_soft].items():
        shown = name == "Recall" or not quality.precision_is_open
        upper = " An upper estimate." if name == "Precision" and is_upper else ""
        cells = _cells(getattr(quality, name.lower()), shown=shown)
        table.add_row(name.lower(), *cells, meaning + upper)
    kept = f"{quality.num_kept:,} of {quality.num_unlabelled:,} unlabelled rows kept"
    if quality.mean_weight is not None:
        kept = (
            f"all {quality.num_unlabelled:,} unlabelled rows kept with weights (mean "
            f"{quality.mean_weight:.3f}), {quality.num_kept:,} of them with 0.5 or more"
        )
    table.caption = f"{kept}, {quality.num_labelled:,} labelled; decided by {report.unit}"
    return table


def _cells(estimate: Estimate, *, shown: bool = True) -> tuple[str, str]:
    """Return value and interval; a dash for what was not computed."""
    if not np.isfinite(estimate.value):
        return "–", "–"
    is_known = shown and not tells_nothing(estimate)
    value = f"{100 * estimate.value:.1f}" if is_known else "unknown"
    if estimate.interval is None:
        return value, "–"
    return value, f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def _checks(report: FilterReport) -> Table:
    table = _grid(Column(width=6), Column(width=WIDTH - 21, overflow="fold"))
    for name, mark, text in _answers(report):
        table.add_row(Text(name, style="bold"), Text(mark, style=_MARKS[mark]), Text(text))
    return table


def _answers(report: FilterReport) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each check, its mark, and its result."""
    shortcut, selection = report.shortcut, report.selection
    yield (
        "behaviour",
        _mark(not shortcut.is_shortcut, is_known=shortcut.is_sure),
        f"AUROC {shortcut.auroc_behaviour.value:.2f} with (s, a) alone, {shortcut.auroc.value:.2f} "
        f"with all inputs. {describe_shortcut(shortcut)}",
    )
    shown = [column.sentence for column in report.columns[:_MOST_COLUMNS]]
    more = len(report.columns) - len(shown)
    if more > 0:
        shown.append(f"And {more} more.")
    found = " ".join(shown) or "No column separates labelled from unlabelled rows by its recording."
    yield "recording", _mark(not report.columns), found
    yield "selection", _mark(selection.is_random, is_known=selection.is_known), selection.sentence
    is_known = report.alphas_comparable or not report.alphas_agree
    yield "estimates", _mark(report.alphas_agree, is_known=is_known), describe_alphas(report)


def _mark(is_fine: bool, *, is_known: bool = True) -> str:
    return ("fine" if is_fine else "look") if is_known else "unsure"


def _histogram(report: FilterReport) -> Table:
    table = _grid(Column(no_wrap=True))
    table.add_row("", "")
    bins = report.histogram
    for name, fraction in (("labelled", bins.labelled), ("unlabelled", bins.unlabelled)):
        # Square roots, so that a few rows between two high peaks can be seen.
        height = np.sqrt(np.array(fraction))
        level = np.ceil(height / max(float(height.max(initial=0.0)), 1e-12) * (len(_BARS) - 1))
        bars = "".join(_BARS[int(k)] for k in level)
        table.add_row(Text(name, style="bold"), Text(bars, style="cyan"))
    width = max(len(bins.unlabelled) - 2, 5)
    table.add_row("", Text("0" + "score".center(width) + "1", style="dim"))
    return table


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
            f"{each.kept_fraction:.0%}",
        )
    return table
