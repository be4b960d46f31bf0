"""The benchmark's report as one HTML page: answers first, then the numbers they rest on."""

import json
from collections import defaultdict
from typing import Any

from puorl.bench.reporting.figures import (
    curve_pictures,
    difference_picture,
    improvement_picture,
    iqm_picture,
    score_picture,
)
from puorl.bench.reporting.questions import Answer, Word
from puorl.bench.reporting.report import TITLE, Report, lead
from puorl.bench.reporting.results import Group, Task
from puorl.bench.reporting.table_formats import as_html
from puorl.bench.reporting.tables import Table, group_title
from puorl.core import fingerprint, page
from puorl.core.page import Markup

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
        ("Rows' fingerprint", fingerprint.of_settings({"rows": json.dumps(rows, sort_keys=True)})),
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
