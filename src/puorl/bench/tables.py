"""Tables of the benchmark as data: the same texts go to terminal, Markdown, LaTeX and HTML."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from puorl.bench.comparisons import FEASIBLE, PU
from puorl.bench.overview import Family, Overview
from puorl.bench.published import at_paper_scale, paper_accuracy, paper_summary
from puorl.bench.questions import Answer
from puorl.bench.results import Cell, Group, Named, Results, Task, display
from puorl.bench.stats import Aggregate, Summary, difference
from puorl.html.page import shorten

HOLE = "–"
_LONGEST_REASON = 160


@dataclass(frozen=True)
class Entry:
    """One entry of a table."""

    text: str
    beside: str = ""
    """What stands beside it for comparison, in brackets."""
    marks: str = ""
    """Letters of its footnotes."""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """Entries under a header; the first column names the row, all others hold numbers."""

    name: str
    """Short, for anchors and labels."""
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    legend: str = ""
    footnotes: dict[str, str] = field(default_factory=dict)
    """Letters to what they stand for."""


def all_tables(
    results: Results, overview: Sequence[Overview], answers: Sequence[Answer], *, paper: bool
) -> tuple[Table, ...]:
    """Every table of a report, in order.

    Args:
        results: All cells.
        overview: Their aggregates.
        answers: The questions' answers.
        paper: Whether the paper's numbers stand beside ours.
    """
    tables = [question_table(answer, paper=paper) for answer in answers]
    tables += [score_table(results, group, paper=paper) for group in results.groups]
    if paper:
        tables.append(paper_table(results))
    tables += [iqm_table(overview), improvement_table(overview)]
    tables += [spread_table(results, group) for group in results.groups]
    return tuple(table for table in tables if table.rows)


def group_title(group: Group | Family) -> str:
    """What the settings of a group have in common, in a line."""
    shift = f", {display(group.shift)} shift" if isinstance(group, Group) else ""
    text = f"{group.learner.title}{shift}, {100 * group.labelled_fraction:.3g}\u00a0% labelled"
    whole = group if isinstance(group, Group) else Group(*group, shift="")
    if at_paper_scale(whole):
        return text
    scale = f"{group.num_rows:,} rows, {group.num_steps:,} updates"
    return f"{text}, {scale}, {100 * group.target_fraction:.3g}\u00a0% target"


def score_table(results: Results, group: Group, *, paper: bool) -> Table:
    """Mean and Student's interval for every setting and method, with what the filter found."""
    tasks = results.tasks_of(group)
    methods = results.methods_of(tasks)
    notes = _Footnotes()
    header, rows = ["Setting"], []
    for method in methods:
        header += [method.title, *(("alpha", "accuracy") if method.name == "pu" else ())]
    for task in tasks:
        row = [Entry(task.title)]
        best = _best(results, task, methods)
        for method in methods:
            row.append(_score(results, task, method, notes, paper=paper, strong=method == best))
            if method.name == "pu":
                row += _filter_entries(task, results.cells.get((task, method)), paper=paper)
        rows.append(tuple(row))
    return Table(
        f"scores-{results.groups.index(group) + 1}",
        group_title(group),
        tuple(header),
        tuple(rows),
        _score_legend(results, group, methods, paper=paper),
        notes.texts,
    )


def paper_table(results: Results) -> Table:
    """How ours compare with the paper's, counted over the settings that it has."""
    rows = []
    learners = tuple(dict.fromkeys(task.group.learner for task in results.tasks))
    for learner in learners:
        for method in results.methods:
            pairs = [
                (ours, theirs)
                for task in results.tasks
                if task.group.learner == learner and at_paper_scale(task.group)
                if (ours := results.summary(task, method))
                if (theirs := paper_summary(task, method))
            ]
            if pairs:
                which = f" ({learner.title})" if len(learners) > 1 else ""
                rows.append(_against_paper(method.title + which, pairs))
    return Table(
        "paper",
        "Ours against the paper's, by method",
        (
            "Method",
            "settings",
            "mean difference",
            "ours ≥ paper's",
            "clearly above",
            "clearly below",
        ),
        tuple(rows),
        "Counted over settings of the paper's size. Clearly: Welch's 95 % interval of the "
        "difference, from our seeds and the paper's 10, lies on one side of 0.",
    )


def iqm_table(overview: Sequence[Overview]) -> Table:
    """Interquartile means."""
    notes = _Footnotes()
    methods = _columns(overview)
    rows = []
    for each in overview:
        marks = ""
        if len(each.common) < each.num_settings:
            marks = notes.mark(
                f"over the {len(each.common)} of {each.num_settings} settings that all methods have"
            )
        name = Entry(f"{group_title(each.family)}: {each.scope}", marks=marks)
        rows.append((name, *(_aggregate(each.iqm.get(m), 1, notes) for m in methods)))
    return Table(
        "iqm",
        "Interquartile mean of the score",
        ("Settings", *(method.title for method in methods)),
        tuple(rows),
        "Over runs and settings; in brackets the 95 % interval of a stratified bootstrap (Agarwal "
        "et al. 2021).",
        notes.texts,
    )


def improvement_table(overview: Sequence[Overview]) -> Table:
    """Chances that PU beats each other method."""
    notes = _Footnotes()
    methods = [method for method in _columns(overview) if method != PU]
    rows = [
        (
            Entry(f"{group_title(each.family)}: {each.scope}"),
            *(_aggregate(each.improvement.get(m), 2, notes) for m in methods),
        )
        for each in overview
        if each.improvement
    ]
    return Table(
        "improvement",
        "Probability that a run of PU beats a run of the other method",
        ("Settings", *(f"over {method.title}" for method in methods)),
        tuple(rows),
        "Averaged over settings; in brackets the 95 % interval of a stratified bootstrap (Agarwal "
        "et al. 2021). At 0.5 neither is better.",
        notes.texts,
    )


def spread_table(results: Results, group: Group) -> Table:
    """Both meanings of a seed, where there are several splits."""
    tasks = [
        task
        for task in results.tasks_of(group)
        if any(len(c.on_splits) > 1 for (t, _), c in results.cells.items() if t == task)
    ]
    methods = results.methods_of(tasks)
    rows = tuple(
        (Entry(task.title), *(_spread_entry(results.cells.get((task, m))) for m in methods))
        for task in tasks
    )
    return Table(
        f"spread-{results.groups.index(group) + 1}",
        f"Spread by training seed / by split: {group_title(group)}",
        ("Setting", *(method.title for method in methods)),
        rows,
        "Standard deviations: between training seeds on one split / what another split adds "
        "(one-way random effects; ? where too few runs tell). In brackets: splits, runs.",
    )


def question_table(answer: Answer, *, paper: bool) -> Table:
    """A question's claims with their counts, and under each what lies behind them."""
    rows = []
    for claim in answer.claims:
        counts = [str(count) if count.of else HOLE for count in (claim.ours, claim.paper)]
        shown = (claim.word, *counts) if paper else (claim.word, counts[0])
        rows.append((Entry(claim.text, claim.detail), *map(Entry, shown)))
    return Table(
        f"question-{answer.number}",
        f"({answer.number}) {answer.question} {answer.word.capitalize()}",
        ("Claim", "holds", "settings", *(("paper's",) if paper else ())),
        tuple(rows),
        f"The paper: {answer.expected}",
    )


class _Footnotes:
    """Letters for texts; the same text keeps its letter."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def mark(self, text: str) -> str:
        for letter, known in self.texts.items():
            if known == text:
                return letter
        letter = _letters(len(self.texts))
        self.texts[letter] = text
        return letter


def _letters(index: int) -> str:
    first, last = divmod(index, 26)
    return (_letters(first - 1) if first else "") + "abcdefghijklmnopqrstuvwxyz"[last]


def _score(
    results: Results,
    task: Task,
    method: Named,
    notes: _Footnotes,
    *,
    paper: bool,
    strong: bool,
) -> Entry:
    digits = 0 if task.group in results.in_returns else 1
    theirs = paper_summary(task, method) if paper else None
    beside = _mean_text(theirs, digits) if theirs else ""
    cell = results.cells.get((task, method))
    if cell is None:
        return Entry(HOLE, beside, notes.mark("not run"))
    marks = ",".join(notes.mark(text) for text in _hole_texts(cell))
    if cell.summary is None:
        return Entry(HOLE, beside, marks)
    return Entry(_mean_text(cell.summary, digits), beside, marks, strong)


def _hole_texts(cell: Cell) -> list[str]:
    texts = []
    for reason, seeds in cell.holes.items():
        reason = shorten(reason, _LONGEST_REASON)
        if cell.runs or len(cell.holes) > 1:
            plural = "s" if len(seeds) > 1 else ""
            reason = f"without seed{plural} {', '.join(map(str, seeds))}: {reason}"
        texts.append(reason)
    return texts or ([] if cell.runs else ["not run on this split"])


def _mean_text(summary: Summary, digits: int) -> str:
    mean = f"{summary.mean:,.{digits}f}"
    return mean if math.isnan(summary.half) else f"{mean} ± {summary.half:,.{digits}f}"


def _best(results: Results, task: Task, methods: Sequence[Named]) -> Named | None:
    """The highest mean of the methods that need no truth, where there are two or more."""
    means = {
        method: summary.mean
        for method in methods
        if Named(method.name) in FEASIBLE and (summary := results.summary(task, method))
    }
    return max(means, key=lambda method: means[method]) if len(means) > 1 else None


def _filter_entries(task: Task, cell: Cell | None, *, paper: bool) -> tuple[Entry, Entry]:
    found = cell.filter if cell else {}
    truth = f"{found['true_alpha']:.3f}" if "true_alpha" in found else ""
    alpha = f"{found['alpha']:.3f}" if "alpha" in found else HOLE
    right = f"{100 * found['accuracy']:.2f} %" if "accuracy" in found else HOLE
    theirs = paper_accuracy(task) if paper else None
    return Entry(alpha, truth), Entry(right, f"{100 * theirs:.2f} %" if theirs else "")


def _score_legend(results: Results, group: Group, methods: Sequence[Named], *, paper: bool) -> str:
    number = "return" if group in results.in_returns else "normalised score"
    text = f"Mean {number} of the last policy ± 95 % interval (Student's t over training seeds)."
    published = [t for t in results.tasks_of(group) if any(paper_summary(t, m) for m in methods)]
    if paper and published:
        text += " In brackets: the paper's."
        if not at_paper_scale(group):
            text += " The paper has 1,000,000 rows and updates: these are no reproduction of it."
    if any(method.name == "pu" for method in methods):
        text += " Alpha and accuracy are the filter's, alpha with the truth in brackets."
    return text


def _against_paper(name: str, pairs: Sequence[tuple[Summary, Summary]]) -> tuple[Entry, ...]:
    seen = [difference(*pair) for pair in pairs]
    mean = sum(each.value for each in seen) / len(seen)
    counts = (
        sum(each.value >= 0 for each in seen),
        sum(each.is_above for each in seen),
        sum(each.is_below for each in seen),
    )
    return (
        Entry(name),
        Entry(str(len(pairs))),
        Entry(f"{mean:+.1f}"),
        *(Entry(f"{count} of {len(pairs)}") for count in counts),
    )


def _columns(overview: Sequence[Overview]) -> list[Named]:
    """Methods in the order of the widest overview, then any others."""
    widest = sorted(overview, key=lambda each: -len(each.iqm))
    return list(dict.fromkeys(method for each in widest for method in each.iqm))


def _aggregate(value: Aggregate | None, digits: int, notes: _Footnotes) -> Entry:
    if value is None:
        return Entry(HOLE, marks=notes.mark("too few settings with runs of this method"))
    ends = f"{value.low:.{digits}f} to {value.high:.{digits}f}"
    return Entry(f"{value.value:.{digits}f}", ends)


def _spread_entry(cell: Cell | None) -> Entry:
    if cell is None or not cell.on_splits:
        return Entry(HOLE)
    seen = cell.spread
    training, split = (
        "?" if math.isnan(value) else f"{value:.1f}" for value in (seen.training, seen.split)
    )
    return Entry(f"{training} / {split}", f"{seen.num_splits}, {seen.num_runs}")
