"""The benchmark's pictures as SVG: scores, learning curves, and methods over all settings."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from puorl.bench.comparisons import DARA, IGDF, OLP, ORACLE, PU, SHARING_ALL
from puorl.bench.overview import Overview
from puorl.bench.questions import Answer, Word
from puorl.bench.report import TITLE, Report, lead
from puorl.bench.results import Cell, Group, Named, Results, Task
from puorl.bench.stats import Aggregate, Difference, Summary, difference
from puorl.bench.table_formats import as_html
from puorl.bench.tables import Table, group_title
from puorl.core import hashing
from puorl.core.stats import Estimate
from puorl.html import charts, page
from puorl.html.page import Markup

PANELS = ((PU, ORACLE, OLP, SHARING_ALL), (PU, ORACLE, DARA, IGDF))
"""Four curves can be told apart in one picture, six cannot: PU and Oracle are in both."""
_AIR = 0.06


def score_picture(results: Results, task: Task) -> Markup:
    """Every method's mean and interval in one setting; nothing where there is no run."""
    digits = 0 if task.group in results.in_returns else 1
    dots = [
        _score_dot(method, summary, digits)
        for method in results.methods
        if (summary := results.summary(task, method))
    ]
    if not dots:
        return Markup("")
    low, high = _range(
        v for each in dots for v in (each.estimate.value, each.estimate.low, each.estimate.high)
    )
    number = "return" if task.group in results.in_returns else "normalised score"
    return charts.dots(
        f"Scores: {task.title}",
        _words(dots),
        dot=dots,
        low=min(low, 0.0),
        high=high,
        x_label=f"{number}, mean and 95 % interval",
    )


def difference_picture(results: Results, task: Task) -> Markup:
    """PU minus every other method in one setting; nothing where there are no intervals."""
    ours = results.summary(task, PU)
    dots = [
        _difference_dot(method, difference(ours, summary))
        for method in results.methods
        if ours and method != PU and (summary := results.summary(task, method))
    ]
    if not any(math.isfinite(each.estimate.low) for each in dots):
        return Markup("")
    low, high = _range(
        v for each in dots for v in (each.estimate.value, each.estimate.low, each.estimate.high)
    )
    return charts.dots(
        f"Differences: {task.title}",
        _words(dots),
        dot=dots,
        low=min(low, 0.0),
        high=max(high, 0.0),
        x_label="difference of means, Welch's 95 % interval",
        mark=(0.0, "no difference"),
    )


def curve_pictures(results: Results, task: Task) -> tuple[Markup, ...]:
    """Learning curves of one setting, at most four methods a picture, all on one scale."""
    curves = {
        method: points
        for method in results.methods
        if (cell := results.cells.get((task, method))) and (points := _curve(cell))
    }
    places = [step for points in curves.values() for step in points]
    if len(set(places)) < 2:
        return ()
    values = (
        value
        for points in curves.values()
        for each in points.values()
        for value in (each.mean, each.low, each.high)
    )
    room = _range(values)
    pictures = []
    for number, panel in enumerate(_panels(tuple(curves)), start=1):
        lines = [_line(method, curves[method], room) for method in panel]
        pictures.append(
            charts.lines(
                f"Learning curves {number}: {task.title}",
                "; ".join(f"{each.name} ends at {each.end}" for each in lines),
                line=lines,
                x_label="updates, thousands",
                y_label="score",
            )
        )
    return tuple(pictures)


def iqm_picture(overview: Overview) -> Markup:
    """Interquartile means with their intervals; nothing where there is none."""
    if not overview.iqm:
        return Markup("")
    dots = [_aggregate_dot(m.title, each, 1) for m, each in overview.iqm.items()]
    low, high = _range(
        v for each in dots for v in (each.estimate.value, each.estimate.low, each.estimate.high)
    )
    return charts.dots(
        f"Interquartile mean: {overview.scope}",
        _words(dots),
        dot=dots,
        low=min(low, 0.0),
        high=high,
        x_label="interquartile mean of the score",
    )


def improvement_picture(overview: Overview) -> Markup:
    """Chances that PU beats each method; nothing where there is none."""
    if not overview.improvement:
        return Markup("")
    dots = [_aggregate_dot(f"over {m.title}", each, 2) for m, each in overview.improvement.items()]
    return charts.dots(
        f"Probability of improvement: {overview.scope}",
        _words(dots),
        dot=dots,
        low=0.0,
        high=1.0,
        x_label="chance that a run of PU is the better one",
        mark=(0.5, "neither is better"),
    )


def _panels(methods: Sequence[Named]) -> list[list[Named]]:
    panels = [[m for m in panel if m in methods] for panel in PANELS]
    # A panel of what both have in common shows nothing new.
    panels = [panel for panel in panels if set(panel) - {PU, ORACLE}] or panels[:1]
    rest = [m for m in methods if not any(m in panel for panel in PANELS)]
    panels += [rest[start : start + 4] for start in range(0, len(rest), 4)]
    return [panel for panel in panels if panel]


def _curve(cell: Cell) -> dict[float, Summary]:
    """Updates to the mean over training seeds, where every run has a point."""
    runs = [dict(run.curve) for run in cell.runs if run.curve]
    common = sorted(set.intersection(*map(set, runs))) if runs else []
    return {step: Summary.of([run[step] for run in runs]) for step in common}


def _line(method: Named, points: Mapping[float, Summary], room: tuple[float, float]) -> charts.Line:
    each = list(points.values())
    # The last point lies nowhere: its band alone gives all pictures of a setting the same axis.
    return charts.Line(
        method.title,
        (*(step / 1000 for step in points), math.nan),
        (*(point.mean for point in each), math.nan),
        low=(*(point.low for point in each), room[0]),
        high=(*(point.high for point in each), room[1]),
        end=f"{each[-1].mean:.0f}",
    )


def _score_dot(method: Named, summary: Summary, digits: int) -> charts.Dot:
    text = f"{summary.mean:,.{digits}f}"
    if not math.isnan(summary.half):
        text += f" ± {summary.half:,.{digits}f}"
    return charts.Dot(method.title, Estimate(summary.mean, summary.low, summary.high), text)


def _difference_dot(method: Named, seen: Difference) -> charts.Dot:
    text = f"{seen.value:+,.1f}"
    if math.isfinite(seen.low):
        text += f" ({seen.low:+,.1f} to {seen.high:+,.1f})"
    return charts.Dot(f"PU minus {method.title}", Estimate(seen.value, seen.low, seen.high), text)


def _aggregate_dot(name: str, seen: Aggregate, digits: int) -> charts.Dot:
    text = f"{seen.value:.{digits}f} ({seen.low:.{digits}f}–{seen.high:.{digits}f})"
    return charts.Dot(name, Estimate(seen.value, seen.low, seen.high), text)


def _words(dots: Sequence[charts.Dot]) -> str:
    return "; ".join(f"{each.name}: {each.text}" for each in dots)


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    air = _AIR * (high - low) or 1.0
    return low - air, high + air


_TONES: dict[Word, page.Tone] = {
    "yes": "good",
    "no": "bad",
    "mixed": "caution",
    "not enough rows": "neutral",
}
_SPACE = Markup('<div style="height:.8rem"></div>')
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
    """The report as a self-contained HTML page; the same report gives the same page."""
    return page.document(
        TITLE,
        _answers(report),
        _overview(report),
        *(_group(report, group) for group in report.results.groups),
        _other_tables(report),
        page.section("Notes", page.warning_list(report.results.notes)),
        page.section("How to read this page", page.terms(_TERMS)),
        _reproduce(report),
        lead=lead(report),
    )


def _answers(report: Report) -> Markup:
    parts: list[Markup] = []
    for answer in report.answers:
        table = _table(report, f"question-{answer.number}")
        parts += [_banner(answer), as_html(table, caption=""), _SPACE]
    if not parts:
        return Markup("")
    return page.section("The paper's questions", *parts, page.paragraph(report.rule))


def _banner(answer: Answer) -> Markup:
    return page.banner(
        _TONES[answer.word],
        f"({answer.number}) {answer.question}",
        answer.word.capitalize(),
        "",
    )


def _table(report: Report, name: str) -> Table:
    return next(table for table in report.tables if table.name == name)


def _overview(report: Report) -> Markup:
    tables = [as_html(t) for t in report.tables if t.name in ("iqm", "improvement", "paper")]
    families = {each.family: each for each in report.overview}  # the last has all shifts
    pictures = []
    for each in families.values():
        where = f"{group_title(each.family)}: {each.scope}, {len(each.common)} settings."
        both = (
            (iqm_picture(each), f"Interquartile mean with 95 % bootstrap interval. {where}"),
            (improvement_picture(each), f"PU against each other method. {where}"),
        )
        figures = [page.figure(drawing, caption) for drawing, caption in both if drawing]
        if figures:
            pictures.append(page.side_by_side(*figures))
    if not tables:
        return Markup("")
    return page.section("All settings together", *pictures, *tables)


def _group(report: Report, group: Group) -> Markup:
    index = report.results.groups.index(group) + 1
    table = _table(report, f"scores-{index}")
    pictures = (_pictures(report, task) for task in report.results.tasks_of(group))
    title = group_title(group)
    return page.section(title[0].upper() + title[1:], as_html(table, caption="Scores"), *pictures)


def _pictures(report: Report, task: Task) -> Markup:
    score = score_picture(report.results, task)
    curves = curve_pictures(report.results, task)
    figures = []
    if score:
        both = page.join((score, difference_picture(report.results, task)))
        figures.append(
            page.figure(
                both, f"{task.title}: scores of the last policies, and PU against each method."
            )
        )
    if curves:
        caption = f"{task.title}: learning curves, mean and 95 % interval over training seeds."
        figures.append(page.figure(page.join(curves), caption))
    if not figures:
        return Markup("")
    return page.join((Markup(f"<h3>{page.escape(task.title)}</h3>"), page.side_by_side(*figures)))


def _other_tables(report: Report) -> Markup:
    tables = [as_html(table) for table in report.tables if table.name.startswith("spread-")]
    if not tables:
        words = "All runs are on one split: what another split would change is not known."
        return page.section("The two meanings of a seed", page.paragraph(words))
    return page.section("The two meanings of a seed", *tables)


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
    return page.section(
        "How to reproduce it",
        page.table("What made these numbers", ("What", "Value"), facts),
        page.folded("Data of every setting (fingerprints)", _data(rows)),
        page.folded("Settings of learners and methods", _settings(rows)),
    )


def _facts(rows: tuple[dict[str, Any], ...], field: str) -> list[tuple[str, str]]:
    """Every value that occurs, one line a name."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for name, value in (row.get(field) or {}).items():
            found[name][str(value)] = None
    return [(f"{field}: {name}", ", ".join(values)) for name, values in sorted(found.items())]


def _data(rows: tuple[dict[str, Any], ...]) -> str:
    found: dict[str, None] = {}
    for row in rows:
        setting = row["setting"]
        name = setting.get("name", "setting")
        data = json.dumps(row.get("data"), sort_keys=True)
        found[f"{name}, split seed {setting['split_seed']}: {data}"] = None
    return "\n".join(sorted(found))


def _settings(rows: tuple[dict[str, Any], ...]) -> str:
    found: dict[str, None] = {}
    for row in rows:
        for name, settings in (("learner", "config"), ("method", "method_settings")):
            text = json.dumps(row.get(settings), sort_keys=True)
            found[f"{name} {row[name]}: {text}"] = None
    return "\n".join(sorted(found))
