"""The benchmark's report: all numbers and tables, computed once and written in any format."""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from puorl import methods
from puorl.bench import stats
from puorl.bench import tables as formats
from puorl.bench.results import (
    FOCUS,
    CellResult,
    Named,
    Reference,
    Results,
    Section,
    Task,
    collect_results,
    display,
)
from puorl.bench.settings import Setting
from puorl.bench.stats import Aggregate, SampleSummary
from puorl.bench.store import Row, Store
from puorl.bench.tables import HOLE, Entry, Footnotes, Table
from puorl.core.errors import DataError
from puorl.core.formatting import as_json
from puorl.core.hashing import generator
from puorl.core.stats import Estimate
from puorl.html.page import as_estimate, shorten

TITLE = "Benchmark report"
_LONGEST_REASON = 160
_ENOUGH = 0.5
"""Fraction of the settings that a method must have for the others to be restricted to its own."""
PROFILE_LEVELS = (20.0, 40.0, 60.0, 80.0, 100.0)
"""Scores of the performance profiles."""
_BOOTSTRAP = "in brackets the 95 % interval of a stratified bootstrap (Agarwal et al. 2021)."


class Aggregation(NamedTuple):
    """An aggregate over settings, as a table and a figure show it."""

    name: str
    """Field of `Overview`."""
    title: str
    column: str
    """Heading of a method's column."""
    digits: int
    legend: str
    axis: str
    figure: str
    """Title of the figure."""
    caption: str
    mark: tuple[float, str] | None = None
    """A value of the axis with its meaning."""


IQM = Aggregation(
    "iqm",
    "Interquartile mean of the score",
    "{}",
    1,
    f"Over runs and settings; {_BOOTSTRAP}",
    "interquartile mean of the score",
    "Interquartile mean",
    "Interquartile mean with 95 % bootstrap interval.",
)
IMPROVEMENT = Aggregation(
    "improvement",
    f"Probability that a run of {FOCUS.title} beats a run of the other method",
    "over {}",
    2,
    f"Averaged over settings; {_BOOTSTRAP} At 0.5 neither is better.",
    f"chance that a run of {FOCUS.title} is the better one",
    "Probability of improvement",
    f"{FOCUS.title} against each other method.",
    (0.5, "neither is better"),
)


@dataclass(frozen=True)
class Overview:
    """All methods over the settings of one shift, or of all shifts."""

    section: Section
    """Without a shift."""
    scope: str
    """The shift, or ``all shifts``."""
    num_settings: int
    """Settings with a run of any method."""
    common: tuple[Task, ...]
    """Settings in which all methods of ``iqm`` have runs."""
    iqm: Mapping[Named, Aggregate]
    improvement: Mapping[Named, Aggregate]
    """Probability that `FOCUS` beats the method, over the settings that both have."""
    profile: Mapping[Named, tuple[Estimate, ...]]
    """Fraction of runs above each of `PROFILE_LEVELS`, over ``common``."""

    @property
    def title(self) -> str:
        """Its settings in a line."""
        return f"{self.section.title}: {self.scope}"


@dataclass(frozen=True)
class Report:
    """All numbers of a report; the same rows give the same report."""

    results: Results
    overviews: tuple[Overview, ...]
    reference: Reference | None
    tables: tuple[Table, ...]

    @property
    def lead(self) -> str:
        """Numbers of runs, methods and settings, in a line."""
        rows, num_methods = self.results.rows, len(self.results.methods)
        num_failed = sum(row.get("error") is not None for row in rows)
        done = (row for row in rows if row.get("error") is None)
        num_trainings = len({row.get("training") or row["run"] for row in done})
        num_settings = len(self.results.tasks)
        text = (
            f"{len(rows):,} runs ({num_trainings:,} trainings) of {num_methods} "
            f"method{'s' * (num_methods != 1)} in {num_settings} "
            f"setting{'s' * (num_settings != 1)}"
        )
        text += f", {num_failed} of them failed" if num_failed else ""
        return f"{text}. Tables are about the split with seed {self.results.split_seed}."

    def table(self, name: str) -> Table:
        """Return the table of that name."""
        return next(table for table in self.tables if table.name == name)


def make_report(
    store: Store | str | os.PathLike[str], *, reference: str | os.PathLike[str] | None = None
) -> Report:
    """Compute all tables from the rows of a store.

    Args:
        store: A store, its folder, or its file.
        reference: File of numbers to compare with; ``paper`` for the paper's. See `Reference`.

    Raises:
        DataError: There is no row, or the reference cannot be read.
    """
    store = store if isinstance(store, Store) else Store(store)
    rows = store.latest()
    if not rows:
        raise DataError(
            f"{store.path}: expected rows of puorl bench run, found none; name the folder that "
            "was its --out"
        )
    found = None if reference is None else Reference.load(reference)
    return report_rows(rows.values(), store.read().notes, reference=found)


def report_rows(
    rows: Iterable[Row], notes: Iterable[str] = (), *, reference: Reference | None = None
) -> Report:
    """Compute all tables from valid rows (`Store.latest`) and the notes of a store.

    Raises:
        DataError: There is no row of the benchmark.
    """
    results = collect_results(rows, notes)
    overviews = make_overviews(results, generator(0, "bench", "report"))
    tables = [_score_table(results, section, reference) for section in results.sections]
    if reference is not None:
        tables.append(_reference_table(results, reference))
    tables += [_aggregate_table(kind, overviews) for kind in (IQM, IMPROVEMENT)]
    tables.append(_profile_table(overviews))
    tables += [_spread_table(results, section) for section in results.sections]
    return Report(results, overviews, reference, tuple(table for table in tables if table.rows))


def make_overviews(results: Results, rng: np.random.Generator) -> tuple[Overview, ...]:
    """Aggregate every shift of sections that differ in the shift alone, and all their shifts."""
    families: dict[Section, dict[str, tuple[Task, ...]]] = {}
    for section in results.sections:
        if section not in results.in_returns:  # returns have no common scale
            scopes = families.setdefault(section._replace(shift=""), {})
            scopes[display(section.shift)] = results.tasks_of(section)
    found = []
    for section, scopes in families.items():
        if len(scopes) > 1:
            scopes["all shifts"] = tuple(task for tasks in scopes.values() for task in tasks)
        found += [_overview(results, section, *scope, rng) for scope in scopes.items()]
    return tuple(found)


def _overview(
    results: Results,
    section: Section,
    scope: str,
    tasks: tuple[Task, ...],
    rng: np.random.Generator,
) -> Overview:
    ran = {m: [t for t in tasks if results.summary(t, m)] for m in results.methods_of(tasks)}
    seen = [task for task in tasks if any(task in each for each in ran.values())]
    chosen = [m for m, each in ran.items() if each and len(each) >= _ENOUGH * len(seen)]
    common = tuple(task for task in seen if all(task in ran[m] for m in chosen))
    iqms, chances = {}, {}
    for method in chosen if common else ():
        iqms[method] = stats.iqm_interval([results.cells[t, method].scores for t in common], rng)
    for method in chosen if FOCUS in ran else ():
        both = [task for task in ran[FOCUS] if task in ran[method]]
        if method != FOCUS and both:
            one, other = (
                [results.cells[task, each].scores for task in both] for each in (FOCUS, method)
            )
            chances[method] = stats.improvement_interval(one, other, rng)
    # A generator of its own, so that the intervals above stay as they were.
    own = generator(0, "bench", "profile")
    profiles = {
        method: stats.profile_intervals(
            [results.cells[task, method].scores for task in common], PROFILE_LEVELS, own
        )
        for method in iqms
    }
    return Overview(section, scope, len(seen), common, iqms, chances, profiles)


def _score_table(results: Results, section: Section, reference: Reference | None) -> Table:
    """Mean and Student's interval for every setting and method, with the filter's findings."""
    tasks = results.tasks_of(section)
    shown = results.methods_of(tasks)
    notes = Footnotes()
    header, rows = ["Setting"], []
    for method in shown:
        header += [method.title, *(("alpha", "accuracy") if method.entry.has_filter else ())]
    for task in tasks:
        row = [Entry(task.title)]
        best = _best(results, task, shown)
        for method in shown:
            theirs = reference.summary(task, method) if reference else None
            row.append(_score(results, task, method, theirs, notes, strong=method == best))
            if method.entry.has_filter:
                row += _filter_entries(task, results.cells.get((task, method)), reference)
        rows.append(tuple(row))
    return Table(
        f"scores-{results.sections.index(section) + 1}",
        section.title,
        tuple(header),
        tuple(rows),
        _score_legend(results, section, shown, reference),
        notes.texts,
    )


def _score(
    results: Results,
    task: Task,
    method: Named,
    theirs: SampleSummary | None,
    notes: Footnotes,
    *,
    strong: bool,
) -> Entry:
    digits = 0 if task.section in results.in_returns else 1
    beside = as_estimate(theirs.estimate, digits) if theirs else ""
    cell = results.cells.get((task, method))
    if cell is None:
        return Entry(HOLE, beside, notes.mark("not run"))
    marks = ",".join(notes.mark(text) for text in _hole_texts(cell))
    if cell.summary is None:
        return Entry(HOLE, beside, marks)
    return Entry(as_estimate(cell.summary.estimate, digits), beside, marks, strong)


def _hole_texts(cell: CellResult) -> list[str]:
    texts = []
    for reason, seeds in cell.holes.items():
        reason = shorten(reason, _LONGEST_REASON)
        if cell.runs or len(cell.holes) > 1:
            plural = "s" if len(seeds) > 1 else ""
            reason = f"without seed{plural} {', '.join(map(str, seeds))}: {reason}"
        texts.append(reason)
    return texts or ([] if cell.runs else ["not run on this split"])


def _best(results: Results, task: Task, shown: Sequence[Named]) -> Named | None:
    """Return the method with the highest mean without the truth, where there are two or more."""
    means = {
        method: summary.mean
        for method in shown
        if method.name in methods.METHODS and not method.entry.needs_truth
        if (summary := results.summary(task, method))
    }
    return max(means, key=lambda method: means[method]) if len(means) > 1 else None


def _filter_entries(
    task: Task, cell: CellResult | None, reference: Reference | None
) -> tuple[Entry, Entry]:
    found = cell.filter if cell else {}
    truth = f"{found['true_alpha']:.3f}" if "true_alpha" in found else ""
    alpha = f"{found['alpha']:.3f}" if "alpha" in found else HOLE
    accuracy = f"{100 * found['accuracy']:.2f} %" if "accuracy" in found else HOLE
    theirs = reference.accuracy(task) if reference else None
    return Entry(alpha, truth), Entry(accuracy, f"{100 * theirs:.2f} %" if theirs else "")


def _score_legend(
    results: Results, section: Section, shown: Sequence[Named], reference: Reference | None
) -> str:
    number = "return" if section in results.in_returns else "normalised score"
    text = f"Mean {number} of the last policy ± 95 % interval (Student's t over training seeds)."
    tasks = results.tasks_of(section)
    if reference and any(reference.summary(t, m) for t in tasks for m in shown):
        text += f" In brackets: the {reference.name}'s."
        if not section.is_full_size:
            text += (
                f" The {reference.name} has {Setting.rows:,} rows and updates: these are no "
                "reproduction of it."
            )
    if any(method.entry.has_filter for method in shown):
        text += " Alpha and accuracy are the filter's, alpha with the truth in brackets"
        text += " (which the held-out rows have exactly: the splits are stratified)."
    return text


def _reference_table(results: Results, reference: Reference) -> Table:
    """Compare with the reference by method, counted over the settings that it has."""
    name, rows = reference.name, []
    learners = tuple(dict.fromkeys(task.section.learner for task in results.tasks))
    for learner in learners:
        for method in results.methods:
            seen = [
                stats.difference(ours, theirs)
                for task in results.tasks
                if task.section.learner == learner and task.section.is_full_size
                if (ours := results.summary(task, method))
                if (theirs := reference.summary(task, method))
            ]
            if seen:
                which = f" ({learner.title})" if len(learners) > 1 else ""
                mean = sum(each.value for each in seen) / len(seen)
                counts = (
                    sum(each.value >= 0 for each in seen),
                    sum(each.is_above_zero for each in seen),
                    sum(each.is_below_zero for each in seen),
                )
                texts = [method.title + which, str(len(seen)), f"{mean:+.1f}"]
                texts += [f"{count} of {len(seen)}" for count in counts]
                rows.append(tuple(map(Entry, texts)))
    heads = "Method|settings|mean difference|ours ≥ {}'s|clearly above|clearly below"
    nums = sorted({each.num for each in reference.scores.values()})
    return Table(
        "reference",
        f"Ours against the {name}'s, by method",
        tuple(heads.format(name).split("|")),
        tuple(rows),
        f"Counted over settings of the {name}'s size. Clearly: Welch's 95 % interval of the "
        f"difference, from our seeds and the {name}'s {', '.join(map(str, nums))}, lies on one "
        "side of 0.",
    )


def _aggregate_table(kind: Aggregation, overviews: Sequence[Overview]) -> Table:
    """One row an overview, one column a method: those of the widest overview first."""
    notes = Footnotes()
    widest = sorted(overviews, key=lambda each: -len(each.iqm))
    columns = dict.fromkeys(method for each in widest for method in each.iqm)
    columns = [m for m in columns if kind is IQM or m != FOCUS]
    rows = []
    for each in overviews:
        values: Mapping[Named, Aggregate] = getattr(each, kind.name)
        if not values and kind is not IQM:
            continue
        marks = ""
        if kind is IQM and len(each.common) < each.num_settings:
            marks = notes.mark(
                f"over the {len(each.common)} of {each.num_settings} settings that all methods have"
            )
        rows.append(
            (
                Entry(each.title, marks=marks),
                *(_aggregate(values.get(m), kind.digits, notes) for m in columns),
            )
        )
    return Table(
        kind.name,
        kind.title,
        ("Settings", *(kind.column.format(method.title) for method in columns)),
        tuple(rows),
        kind.legend,
        notes.texts,
    )


def _profile_table(overviews: Sequence[Overview]) -> Table:
    """Performance profiles of the widest overview of each section, one row a level."""
    widest = {each.section: each for each in overviews if each.profile}
    columns = list(dict.fromkeys(m for each in widest.values() for m in each.profile))
    rows = [
        (Entry(f"{each.title}, above {level:g}"), *(_fraction(each, m, i) for m in columns))
        for each in widest.values()
        for i, level in enumerate(PROFILE_LEVELS)
    ]
    return Table(
        "profile",
        "Performance profiles: fraction of runs above a score",
        ("Settings, score", *(method.title for method in columns)),
        tuple(rows),
        f"Over the settings that all methods have; {_BOOTSTRAP}",
    )


def _fraction(overview: Overview, method: Named, index: int) -> Entry:
    if method not in overview.profile:
        return Entry(HOLE)
    seen = overview.profile[method][index]
    return Entry(f"{seen.value:.2f}", f"{seen.low:.2f} to {seen.high:.2f}")


def _aggregate(found: Aggregate | None, digits: int, notes: Footnotes) -> Entry:
    if found is None:
        return Entry(HOLE, marks=notes.mark("too few settings with runs of this method"))
    seen = found.estimate
    ends = f"{seen.low:.{digits}f} to {seen.high:.{digits}f}"
    return Entry(f"{seen.value:.{digits}f}", ends)


def _spread_table(results: Results, section: Section) -> Table:
    """Spread by training seed and by split seed, where there are several splits."""
    tasks = [
        task
        for task in results.tasks_of(section)
        if any(len(c.on_splits) > 1 for (t, _), c in results.cells.items() if t == task)
    ]
    shown = results.methods_of(tasks)
    rows = tuple(
        (Entry(task.title), *(_spread_entry(results.cells.get((task, m))) for m in shown))
        for task in tasks
    )
    return Table(
        f"spread-{results.sections.index(section) + 1}",
        f"Spread by training seed / by split: {section.title}",
        ("Setting", *(method.title for method in shown)),
        rows,
        "Standard deviations: between training seeds on one split / what another split adds "
        "(one-way random effects; ? where too few runs tell). In brackets: splits, runs.",
    )


def _spread_entry(cell: CellResult | None) -> Entry:
    if cell is None or not cell.on_splits:
        return Entry(HOLE)
    seen = cell.spread
    training, split = (
        "?" if math.isnan(value) else f"{value:.1f}" for value in (seen.training, seen.split)
    )
    return Entry(f"{training} / {split}", f"{seen.num_splits}, {seen.num_runs}")


def to_markdown(report: Report) -> str:
    """Format the whole report as Markdown."""
    parts = [f"# {TITLE}", report.lead]
    parts += [formats.as_markdown(table).rstrip() for table in report.tables]
    if report.results.notes:
        notes = (formats.markdown_text(" ".join(note.split())) for note in report.results.notes)
        parts += ["### Notes", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def to_latex(report: Report) -> str:
    """Format all tables as a LaTeX document."""
    return formats.latex_document(report.tables)


def to_json(report: Report) -> str:
    """Format all numbers as one JSON object; unknown numbers are null."""
    results = report.results
    content = {
        "split_seed": results.split_seed,
        "cells": [
            _cell_json(report, task, method)
            for task in results.tasks
            for method in results.methods
            if (task, method) in results.cells
        ],
        "overviews": [
            {
                **_section_json(each.section),
                "scope": each.scope,
                "num_settings": each.num_settings,
                "num_common": len(each.common),
                "iqm": _aggregates_json(each.iqm),
                "improvement": _aggregates_json(each.improvement),
                "profile": {
                    method.title: {
                        f"{level:g}": seen.to_dict()
                        for level, seen in zip(PROFILE_LEVELS, found, strict=True)
                    }
                    for method, found in each.profile.items()
                },
            }
            for each in report.overviews
        ],
        "notes": list(results.notes),
    }
    return json.dumps(as_json(content), indent=2, allow_nan=False) + "\n"


def to_csv(report: Report) -> str:
    """Format the scores as CSV, one line for a setting and a method; unknown numbers are empty."""
    results = report.results
    lines = [
        _csv_line(report, task, method)
        for task in results.tasks
        for method in results.methods
        if (task, method) in results.cells
    ]
    file, header = io.StringIO(), dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(file, list(header), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def _csv_line(report: Report, task: Task, method: Named) -> dict[str, Any]:
    cell = as_json(_cell_json(report, task, method))
    nested = ("seeds", "summary", "reference", "filter", "spread", "holes")
    line = {name: value for name, value in cell.items() if name not in nested}
    for source, before in (("summary", ""), ("reference", "reference_")):
        found = cell[source] or {}
        line |= {before + name: found.get(name) for name in ("num", "mean", "std", "half_width")}
    line |= {name: cell["filter"].get(name) for name in ("alpha", "true_alpha", "accuracy")}
    ours, other = (report.results.summary(task, each) for each in (FOCUS, method))
    seen = stats.difference(ours, other).to_dict() if ours and other and method != FOCUS else {}
    return line | {f"{FOCUS.name}_minus_this_{n}": seen.get(n) for n in ("value", "low", "high")}


def _cell_json(report: Report, task: Task, method: Named) -> dict[str, Any]:
    cell = report.results.cells[task, method]
    theirs = report.reference.summary(task, method) if report.reference else None
    return {
        **_section_json(task.section),
        "body": task.body,
        "quality": task.quality,
        "method": method.name,
        "variant": method.variant,
        "unit": "return" if task.section in report.results.in_returns else "score",
        "seeds": {str(run.seed): run.value for run in cell.runs},
        "summary": _summary_json(cell.summary),
        "reference": _summary_json(theirs),
        "filter": cell.filter,
        "spread": asdict(cell.spread),
        "holes": {reason: list(seeds) for reason, seeds in cell.holes.items()},
    }


def _aggregates_json(found: Mapping[Named, Aggregate]) -> dict[str, Any]:
    return {
        method.title: estimate.to_dict() | {"num_settings": num_settings, "num_runs": num_runs}
        for method, (estimate, num_settings, num_runs) in found.items()
    }


def _summary_json(summary: SampleSummary | None) -> dict[str, Any] | None:
    return None if summary is None else {**asdict(summary), "half_width": summary.half_width}


def _section_json(section: Section) -> dict[str, Any]:
    learner = {"learner": section.learner.name, "learner_variant": section.learner.variant}
    return {name: value for name, value in section._asdict().items() if value != ""} | learner
