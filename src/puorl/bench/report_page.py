"""The benchmark's report as one HTML page with its figures."""

import json
from collections import defaultdict
from typing import Any

from puorl.bench.report import (
    IMPROVEMENT,
    IQM,
    TITLE,
    Aggregation,
    Overview,
    Report,
)
from puorl.bench.results import FOCUS, CellResult, Results, Section, Task
from puorl.bench.stats import difference
from puorl.bench.tables import as_html
from puorl.core import hashing
from puorl.core.stats import Estimate, mean_estimate
from puorl.html import charts, page
from puorl.html.page import Markup, as_difference, as_estimate

_MOST_LINES = 4
"""Lines that can be distinguished in one figure."""
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
    number, digits = ("return", 0) if in_returns else ("normalised score", 1)
    means = {m.title: s.estimate for m in results.methods if (s := results.summary(task, m))}
    dots = [charts.Dot(title, mean, as_estimate(mean, digits)) for title, mean in means.items()]
    label = f"{number}, mean and 95 % interval"
    return charts.dots(f"Scores: {task.title}", dot=dots, x_label=label)


def difference_figure(results: Results, task: Task) -> Markup:
    """Draw `FOCUS` minus every other method in one setting; nothing where no interval is known."""
    ours = results.summary(task, FOCUS)
    dots = []
    for method in results.methods:
        summary = results.summary(task, method)
        if ours and summary and method != FOCUS:
            seen = difference(ours, summary)
            title = f"{FOCUS.title} minus {method.title}"
            dots.append(charts.Dot(title, seen, as_difference(seen)))
    if not any(each.estimate.interval for each in dots):
        return Markup("")
    label = "difference of means, Welch's 95 % interval"
    mark = (0.0, "no difference")
    return charts.dots(f"Differences: {task.title}", dot=dots, x_label=label, mark=mark)


def aggregate_figure(kind: Aggregation, overview: Overview) -> Markup:
    """Draw an aggregate of every method with its interval; nothing where there is none."""
    dots = []
    for method, (seen, *_) in getattr(overview, kind.name).items():
        value, low, high = (f"{v:.{kind.digits}f}" for v in (seen.value, seen.low, seen.high))
        title = kind.column.format(method.title)
        dots.append(charts.Dot(title, seen, f"{value} ({low}–{high})"))
    title = f"{kind.figure}: {overview.scope}"
    high = 1.0 if kind is IMPROVEMENT else None
    return charts.dots(title, dot=dots, x_label=kind.axis, high=high, mark=kind.mark)


def curve_figures(results: Results, task: Task) -> tuple[Markup, ...]:
    """Draw the learning curves of one setting, at most four a figure, all on one scale."""
    curves = {
        method: points
        for method in results.methods
        if (cell := results.cells.get((task, method))) and (points := _curve(cell))
    }
    if len({step for points in curves.values() for step in points}) < 2:
        return ()
    within = charts.span(each for points in curves.values() for each in points.values())
    # FOCUS and methods that read the truth are in every figure, for comparison.
    always = [m for m in curves if m == FOCUS or m.entry.needs_truth]
    others = [m for m in curves if m not in always]
    size = max(1, _MOST_LINES - len(always))
    panels = [always + others[start : start + size] for start in range(0, len(others), size)]
    figures = []
    for number, panel in enumerate(panels or [always], start=1):
        figures.append(
            charts.lines(
                f"Learning curves {number}: {task.title}",
                line=[
                    charts.Line.of(method.title, [*curves[method]], [*curves[method].values()])
                    for method in panel
                ],
                x_label="updates, thousands",
                y_label="score",
                within=within,
            )
        )
    return tuple(figures)


def _curve(cell: CellResult) -> dict[float, Estimate]:
    """Map thousands of updates to scores over training seeds, where every run has a point."""
    runs = [dict(run.curve) for run in cell.runs if run.curve]
    common = sorted(set.intersection(*map(set, runs))) if runs else []
    return {step / 1000: mean_estimate([run[step] for run in runs]) for step in common}


def _overviews(report: Report) -> Markup:
    names = (IQM.name, IMPROVEMENT.name, "profile", "reference")
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
