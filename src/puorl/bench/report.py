"""The benchmark's report: everything is computed once here, and written in any format."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from puorl.bench.overview import Overview, overviews
from puorl.bench.published import paper_summary
from puorl.bench.questions import RULE, Answer, answers
from puorl.bench.results import Results, Task, collect_results
from puorl.bench.stats import Summary
from puorl.bench.store import Row
from puorl.bench.table_formats import as_markdown, latex_document, markdown_text
from puorl.bench.tables import Table, all_tables
from puorl.core.hashing import generator

TITLE = "Benchmark report"


@dataclass(frozen=True)
class Report:
    """All numbers of a report; the same rows give the same report."""

    results: Results
    overview: tuple[Overview, ...]
    answers: tuple[Answer, ...]
    """None where the rows answer no question at all."""
    tables: tuple[Table, ...]
    has_paper: bool
    """Whether the paper's numbers stand beside ours."""

    @property
    def rule(self) -> str:
        """How the answers are found; nothing where there are none."""
        return RULE if self.answers else ""


def make_report(rows: Iterable[Row], notes: Iterable[str] = (), *, paper: bool = True) -> Report:
    """Compute all tables and answers from the rows that count (`Store.latest`).

    Args:
        rows: One row a run.
        notes: What the store has to say.
        paper: Whether to put the paper's numbers beside ours.

    Raises:
        DataError: There is no row that can be read.
    """
    results = collect_results(rows, notes)
    overview = overviews(results, generator(0, "bench", "report"))
    answered = answers(results, paper=paper)
    if all(each.word == "not enough rows" for each in answered):
        answered = ()  # rows that are about something else
    tables = all_tables(results, overview, answered, paper=paper)
    return Report(results, overview, answered, tables, paper)


def lead(report: Report) -> str:
    """What the report rests on, in a line."""
    results = report.results
    failed = sum(row.get("error") is not None for row in results.rows)
    done = (row for row in results.rows if row.get("error") is None)
    trainings = {row.get("training") or row["run"] for row in done}
    settings = len(results.tasks)
    text = (
        f"{len(results.rows):,} runs ({len(trainings):,} trainings) of {len(results.methods)} "
        f"method{'s' * (len(results.methods) != 1)} in {settings} setting{'s' * (settings != 1)}"
    )
    text += f", {failed} of them failed" if failed else ""
    return f"{text}. Tables are about the split with seed {results.split_seed}."


def to_markdown(report: Report) -> str:
    """The whole report as Markdown."""
    parts = [f"# {TITLE}", lead(report), *([report.rule] if report.rule else [])]
    parts += [as_markdown(table).rstrip() for table in report.tables]
    if report.results.notes:
        notes = (markdown_text(" ".join(note.split())) for note in report.results.notes)
        parts += ["### Notes", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def to_latex(report: Report) -> str:
    """All tables as a LaTeX document."""
    return latex_document(report.tables)


def to_json(report: Report) -> str:
    """All numbers as one JSON object; what is not known is null."""
    results = report.results
    content = {
        "split_seed": results.split_seed,
        "cells": [
            _cell(report, task, index)
            for task in results.tasks
            for index in range(len(results.methods))
            if (task, results.methods[index]) in results.cells
        ],
        "overview": [
            {
                **_named(each.family._asdict()),
                "scope": each.scope,
                "num_settings": each.num_settings,
                "num_common": len(each.common),
                "iqm": {m.title: asdict(a) for m, a in each.iqm.items()},
                "pu_improvement_over": {m.title: asdict(a) for m, a in each.improvement.items()},
            }
            for each in report.overview
        ],
        "answers": [
            {
                **asdict(each),
                "claims": [
                    {**asdict(c), "ours": c.ours._asdict(), "paper": c.paper._asdict()}
                    for c in each.claims
                ],
            }
            for each in report.answers
        ],
        "notes": list(results.notes),
    }
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def _cell(report: Report, task: Task, index: int) -> dict[str, Any]:
    method = report.results.methods[index]
    cell = report.results.cells[task, method]
    theirs = paper_summary(task, method) if report.has_paper else None
    return {
        **_named(task.group._asdict()),
        "body": task.body,
        "quality": task.quality,
        "method": method.name,
        "variant": method.variant,
        "unit": "return" if task.group in report.results.in_returns else "score",
        "seeds": {str(run.seed): run.value for run in cell.runs},
        "summary": _summary(cell.summary),
        "paper": _summary(theirs),
        "filter": cell.filter,
        "spread": asdict(cell.spread),
        "holes": {reason: list(seeds) for reason, seeds in cell.holes.items()},
    }


def _summary(summary: Summary | None) -> dict[str, Any] | None:
    return None if summary is None else {**asdict(summary), "half": summary.half}


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    learner = fields["learner"]
    return {**fields, "learner": learner.name, "learner_variant": learner.variant}


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
