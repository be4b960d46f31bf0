"""The benchmark's report as one HTML page with its figures."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from puorl import methods
from puorl.bench.report import (
    IMPROVEMENT,
    IQM,
    TITLE,
    Aggregation,
    Overview,
    Report,
    mean_text,
)
from puorl.bench.results import FOCUS, CellResult, Named, Results, Section, Task
from puorl.bench.stats import SampleSummary, difference
from puorl.bench.tables import as_html
from puorl.core import hashing
from puorl.core.stats import Estimate
from puorl.html import charts, page
from puorl.html.page import Markup

_MOST_LINES = 4
"""Lines that can be distinguished in one figure."""
_MARGIN = 0.06
_TERMS = {
    "OLP": "Only the labelled target rows.",
    "Sharing-All": "All rows, as if all were the target's.",
    "DARA": "All rows; rewards of unlabelled rows are lowered where the dynamics look foreign.",
    "IGDF": "All rows; in each batch the unlabelled ones that fit the target best are used.",
    "PU": "Labelled rows, and the unlabelled ones that our filter takes for the target's.",
    "Oracle": "All rows that truly are the target's: what a perfect filter would give.",
    "ME/R": "Behaviour in the target / in the other domain: medium-expert (ME), medium (M), "
    "random (R).",
    "Score": "D4RL's: 0 is its random policy, 100 its expert.",
    "± and intervals": "Over training seeds on one split, Student's t, 95 %.",
    "Interquartile mean": "Mean of the middle half of all runs: a few very good or bad runs do not "
    "move it.",
    "Hole": "A dash: no run came to an end there. Its footnote says why.",
}


def as_page(report: Report) -> str:
    """Format the report as a self-contained HTML page; the same report gives the same page."""
    return page.document(
        TITLE,
        _overviews(report),
        *(_section(report, section) for section in report.results.sections),
        _spread_tables(report),
        page.section("Notes", page.warning_list(report.results.notes)),
        page.section("How to read this page", page.terms(_TERMS)),
        _reproduce(report),
        lead=report.lead,
    )


def score_figure(results: Results, task: Task) -> Markup:
    """Draw every method's mean and interval in one setting; nothing where there is no run."""
    in_returns = task.section in results.in_returns
    dots = [
        charts.Dot(method.title, summary.estimate, mean_text(summary, 0 if in_returns else 1))
        for method in results.methods
        if (summary := results.summary(task, method))
    ]
    number = "return" if in_returns else "normalised score"
    return _dots(f"Scores: {task.title}", dots, f"{number}, mean and 95 % interval")


def difference_figure(results: Results, task: Task) -> Markup:
    """Draw `FOCUS` minus every other method in one setting; nothing where no interval is known."""
    ours = results.summary(task, FOCUS)
    dots = []
    for method in results.methods:
        summary = results.summary(task, method)
        if ours and summary and method != FOCUS:
            seen = difference(ours, summary)
            text = f"{seen.value:+,.1f}"
            text += f" ({seen.low:+,.1f} to {seen.high:+,.1f})" if seen.interval else ""
            dots.append(charts.Dot(f"{FOCUS.title} minus {method.title}", seen, text))
    if not any(each.estimate.interval for each in dots):
        return Markup("")
    label = "difference of means, Welch's 95 % interval"
    return _dots(f"Differences: {task.title}", dots, label, mark=(0.0, "no difference"))


def aggregate_figure(kind: Aggregation, overview: Overview) -> Markup:
    """Draw an aggregate of every method with its interval; nothing where there is none."""
    dots = []
    for method, (seen, *_) in getattr(overview, kind.name).items():
        value, low, high = (f"{v:.{kind.digits}f}" for v in (seen.value, seen.low, seen.high))
        title = kind.column.format(method.title)
        dots.append(charts.Dot(title, seen, f"{value} ({low}–{high})"))
    limits = (0.0, 1.0) if kind is IMPROVEMENT else None
    title = f"{kind.figure}: {overview.scope}"
    return _dots(title, dots, kind.axis, limits=limits, mark=kind.mark)


def curve_figures(results: Results, task: Task) -> tuple[Markup, ...]:
    """Draw the learning curves of one setting, at most four a figure, all on one scale."""
    curves = {
        method: points
        for method in results.methods
        if (cell := results.cells.get((task, method))) and (points := _curve(cell))
    }
    if len({step for points in curves.values() for step in points}) < 2:
        return ()
    estimates = [each.estimate for points in curves.values() for each in points.values()]
    limits = _limits(estimates)
    # FOCUS and methods that read the truth are in every figure, for comparison.
    always = [m for m in curves if m == FOCUS or _needs_truth(m)]
    others = [m for m in curves if m not in always]
    size = max(1, _MOST_LINES - len(always))
    panels = [always + others[start : start + size] for start in range(0, len(others), size)]
    figures = []
    for number, panel in enumerate(panels or [always], start=1):
        lines = [_line(method, curves[method], limits) for method in panel]
        figures.append(
            charts.lines(
                f"Learning curves {number}: {task.title}",
                "; ".join(f"{each.name} ends at {each.end}" for each in lines),
                line=lines,
                x_label="updates, thousands",
                y_label="score",
            )
        )
    return tuple(figures)


def _needs_truth(method: Named) -> bool:
    return method.name in methods.METHODS and methods.METHODS[method.name].needs_truth


def _curve(cell: CellResult) -> dict[float, SampleSummary]:
    """Map updates to scores over training seeds, where every run has a point."""
    runs = [dict(run.curve) for run in cell.runs if run.curve]
    common = sorted(set.intersection(*map(set, runs))) if runs else []
    return {step: SampleSummary.of([run[step] for run in runs]) for step in common}


def _line(
    method: Named, points: Mapping[float, SampleSummary], limits: tuple[float, float]
) -> charts.Line:
    each = [point.estimate for point in points.values()]
    # The last point is not drawn: its band gives all figures of a setting the same axis.
    return charts.Line(
        method.title,
        (*(step / 1000 for step in points), math.nan),
        (*(point.value for point in each), math.nan),
        low=(*(point.low for point in each), limits[0]),
        high=(*(point.high for point in each), limits[1]),
        end=f"{each[-1].value:.0f}",
    )


def _dots(
    title: str,
    dots: Sequence[charts.Dot],
    label: str,
    *,
    limits: tuple[float, float] | None = None,
    mark: tuple[float, str] | None = None,
) -> Markup:
    if not dots:
        return Markup("")
    low, high = limits or _limits([each.estimate for each in dots])
    high = max(high, 0.0) if mark else high
    return charts.dots(title, dot=dots, low=min(low, 0.0), high=high, x_label=label, mark=mark)


def _limits(estimates: Iterable[Estimate]) -> tuple[float, float]:
    values = [v for each in estimates for v in (each.value, each.low, each.high)]
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def _overviews(report: Report) -> Markup:
    names = (IQM.name, IMPROVEMENT.name, "reference")
    tables = [as_html(table) for table in report.tables if table.name in names]
    figures = []
    last = {each.section: each for each in report.overviews}  # the one of all shifts
    for each in last.values():
        where = f"{each.title}, {len(each.common)} settings."
        drawn = [
            page.figure(drawing, f"{kind.caption} {where}")
            for kind in (IQM, IMPROVEMENT)
            if (drawing := aggregate_figure(kind, each))
        ]
        if drawn:
            figures.append(page.side_by_side(*drawn))
    if not tables:
        return Markup("")
    return page.section("All settings together", *figures, *tables)


def _section(report: Report, section: Section) -> Markup:
    index = report.results.sections.index(section) + 1
    table = as_html(report.table(f"scores-{index}"), caption="Scores")
    figures = (_figures(report, task) for task in report.results.tasks_of(section))
    title = section.title
    return page.section(title[0].upper() + title[1:], table, *figures)


def _figures(report: Report, task: Task) -> Markup:
    scores = score_figure(report.results, task)
    curves = curve_figures(report.results, task)
    figures = []
    if scores:
        both = page.join((scores, difference_figure(report.results, task)))
        caption = (
            f"{task.title}: scores of the last policies, and {FOCUS.title} against each method."
        )
        figures.append(page.figure(both, caption))
    if curves:
        caption = f"{task.title}: learning curves, mean and 95 % interval over training seeds."
        figures.append(page.figure(page.join(curves), caption))
    if not figures:
        return Markup("")
    return page.join((Markup(f"<h3>{page.escape(task.title)}</h3>"), page.side_by_side(*figures)))


def _spread_tables(report: Report) -> Markup:
    tables = [as_html(table) for table in report.tables if table.name.startswith("spread-")]
    words = "All runs are on one split: what another split would change is not known."
    return page.section("The two meanings of a seed", *(tables or [page.paragraph(words)]))


def _reproduce(report: Report) -> Markup:
    rows = report.results.rows
    seeds = sorted({run.seed for cell in report.results.cells.values() for run in cell.runs})
    facts = [
        ("Runs", "puorl bench run SUITE --out RESULTS (puorl bench list names the suites)"),
        ("This page", "puorl bench report RESULTS --format html"),
        ("Training seeds", ", ".join(map(str, seeds))),
        ("Rows' fingerprint", hashing.of_settings({"rows": json.dumps(rows, sort_keys=True)})),
        *_facts(rows, "versions"),
        *_facts(rows, "hardware"),
    ]
    data = (
        f"{row['setting'].get('name', 'setting')}, split seed {row['setting']['split_seed']}: "
        f"{json.dumps(row.get('data'), sort_keys=True)}"
        for row in rows
    )
    settings = (
        f"{name} {row[name]}: {json.dumps(row.get(column), sort_keys=True)}"
        for row in rows
        for name, column in (("learner", "config"), ("method", "method_settings"))
    )
    return page.section(
        "How to reproduce it",
        page.table("What made these numbers", ("What", "Value"), facts),
        page.folded("Data of every setting (fingerprints)", "\n".join(sorted(set(data)))),
        page.folded("Settings of learners and methods", "\n".join(sorted(set(settings)))),
    )


def _facts(rows: tuple[dict[str, Any], ...], field: str) -> list[tuple[str, str]]:
    """List every value that occurs, one line a name."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for name, value in (row.get(field) or {}).items():
            found[name][str(value)] = None
    return [(f"{field}: {name}", ", ".join(values)) for name, values in sorted(found.items())]
