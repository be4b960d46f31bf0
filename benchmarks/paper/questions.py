"""The paper's four questions and a fifth, answered by rule from the numbers in the store.

Every question is a list of claims that the paper makes, and a claim is counted: it holds in k of n
settings (or pairs of settings). From three quarters on it is true, up to one quarter it is not, in
between it is mixed. The same counts are made of the paper's own numbers in the same settings.

"Clearly" means that Welch's 95 % interval of the difference lies on one side of 0.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from comparisons import (
    DARA,
    IGDF,
    OLP,
    ORACLE,
    PU,
    SHARING_ALL,
    Lookup,
    Size,
    Test,
    above,
    beyond_oracle,
    change,
    falls,
    gains,
    gap,
    holds,
    lower,
    nearly_best,
    reaches_oracle,
)

from puorl.bench.report import Report
from puorl.bench.results import Named, Reference, Results, Task, display
from puorl.bench.stats import SampleSummary, difference
from puorl.bench.tables import HOLE, Entry, Table
from puorl.core.stats import Estimate

Word = Literal["yes", "no", "mixed", "not enough rows"]

ACCURATE = 0.98
"""The paper's claim: its classifier is right in more than 98 % of rows everywhere."""
MOST, FEW = 0.75, 0.25
RULE = (
    "A claim is counted over settings: from three quarters of them on it holds (yes), up to one "
    "quarter it does not (no), in between it is mixed. An answer is yes or no where all its claims "
    "are. 'Clearly' means that Welch's 95 % interval of a difference lies on one side of 0. The "
    "fifth answer is yes where Student's 95 % interval of the mean gain over settings is above 0; "
    "of a single setting, where its gain is clear. "
    "With few seeds a difference is seldom clear: that something is not clearly lower then says "
    "little."
)
SHARERS = (SHARING_ALL, DARA, IGDF)
"""Methods that train on the other domain's rows."""


class Count(NamedTuple):
    """A claim holds in ``num`` of ``of`` cases."""

    num: int
    of: int

    @property
    def word(self) -> Word:
        """The answer that the count gives."""
        if not self.of:
            return "not enough rows"
        fraction = self.num / self.of
        return "yes" if fraction >= MOST else "no" if fraction <= FEW else "mixed"

    def __str__(self) -> str:
        return f"{self.num} of {self.of}"


@dataclass(frozen=True)
class Claim:
    """A claim, counted in our numbers and, where they are known, in the paper's."""

    text: str
    ours: Count
    paper: Count
    word: Word
    detail: str = ""
    """Sizes behind the counts."""


@dataclass(frozen=True)
class Answer:
    """A question with its claims."""

    number: str
    question: str
    expected: str
    """The answer that the paper gives."""
    word: Word
    claims: tuple[Claim, ...]


class _Numbers(NamedTuple):
    """Numbers that answers follow from."""

    results: Results
    ours: Lookup
    theirs: Lookup
    accuracy: Callable[[Task], float | None]
    """The paper's."""


def answers(results: Results, paper: Reference | None) -> tuple[Answer, ...]:
    """Answer all five questions from the rows, at the paper's size where there are such settings.

    Args:
        results: All cells.
        paper: The paper's numbers, to be counted as well.
    """
    full = tuple(task for task in results.tasks if task.section.is_full_size)
    results = dataclasses.replace(results, tasks=full or results.tasks)
    numbers = _Numbers(results, results.summary, _nothing, _nothing)
    if paper:
        numbers = numbers._replace(theirs=paper.summary, accuracy=paper.accuracy)
    return (
        _answer(
            "i",
            "Can the PU method tell the target's rows?",
            "yes, in more than 98 % of rows everywhere.",
            _accuracy_claims(numbers),
        ),
        _answer(
            "ii",
            "Does adding the rows that were found improve the policy?",
            "yes: far above OLP, the best or nearly so of all that need no truth, close to Oracle.",
            _gain_claims(numbers),
        ),
        _answer(
            "iii",
            "Does PU hold under a larger shift, where the others fall?",
            "yes: PU holds, Sharing-All falls sharply; DARA and IGDF fall too and stay below it.",
            _shift_claims(numbers),
        ),
        _answer(
            "iv",
            "Does PU hold where the other domain's data is poor, and the others lose?",
            "yes: PU holds; Sharing-All, DARA and IGDF lose.",
            _quality_claims(numbers),
        ),
        _answer(
            "v",
            "Do DARA and IGDF gain from more labels, 0.01 to 0.03?",
            "not asked there; its tables hold the numbers.",
            tuple(_label_claim(numbers, method) for method in (DARA, IGDF)),
        ),
    )


def question_tables(report: Report) -> tuple[str, tuple[Table, ...]]:
    """Return the rule of the answers and one table a question; nothing where none is answered."""
    found = answers(report.results, report.reference)
    if all(each.word == "not enough rows" for each in found):
        return "", ()  # the rows are about something else
    has_paper = report.reference is not None
    tables = (question_table(each, has_paper=has_paper) for each in found)
    return RULE, (*tables, difference_table(report.results))


def difference_table(results: Results) -> Table:
    """Show PU minus each other method in every setting, with Welch's 95 % interval."""
    others = (OLP, SHARING_ALL, DARA, IGDF, ORACLE)
    rows = []
    for task in results.tasks:
        ours = results.summary(task, PU)
        if ours is None or task.section in results.in_returns:
            continue
        cells = []
        for method in others:
            theirs = results.summary(task, method)
            seen = None if theirs is None else difference(ours, theirs)
            cells.append(Entry(HOLE) if seen is None else _entry(seen))
        rows.append((Entry(f"{task.section.title}: {task.title}"), *cells))
    return Table(
        "differences",
        "PU minus the others",
        ("Setting", *(method.title for method in others)),
        tuple(rows),
        "Differences of mean scores; in brackets Welch's 95 % interval. Bold: it excludes 0.",
    )


def _entry(seen: Estimate) -> Entry:
    text = f"{seen.value:+.1f} ({seen.low:+.1f} to {seen.high:+.1f})"
    return Entry(text, strong=seen.is_above_zero or seen.is_below_zero)


def question_table(answer: Answer, *, has_paper: bool) -> Table:
    """Show the claims of a question with their counts, and under each the sizes behind them."""
    rows = []
    for claim in answer.claims:
        counts = [str(count) if count.of else HOLE for count in (claim.ours, claim.paper)]
        shown = (claim.word, *counts) if has_paper else (claim.word, counts[0])
        rows.append((Entry(claim.text, claim.detail), *map(Entry, shown)))
    return Table(
        f"question-{answer.number}",
        f"({answer.number}) {answer.question} {answer.word.capitalize()}",
        ("Claim", "holds", "settings", *(("paper's",) if has_paper else ())),
        tuple(rows),
        f"The paper: {answer.expected}",
    )


def _answer(number: str, question: str, expected: str, claims: Iterable[Claim]) -> Answer:
    """Answer a question by its claims; without rows for the first claim there is no answer."""
    claims = tuple(claims)
    words: set[Word] = {claim.word for claim in claims if claim.word != "not enough rows"}
    word: Word = words.pop() if len(words) == 1 else "mixed"
    if claims[0].word == "not enough rows":
        word = "not enough rows"
    return Answer(number, question, expected, word, claims)


def _accuracy_claims(numbers: _Numbers) -> Iterator[Claim]:
    found = [(task, numbers.results.cells[task, PU].filter) for task in _with(numbers, PU)]
    accuracy = [(task, f["accuracy"]) for task, f in found if "accuracy" in f]
    theirs = [a for task, _ in accuracy if (a := numbers.accuracy(task)) is not None]
    detail = ""
    if accuracy:
        worst, least = min(accuracy, key=lambda each: each[1])
        detail = f"lowest {_percent(least)}, {display(worst.section.shift)}, {worst.title}"
        if theirs:
            detail += f"; the paper's lowest {_percent(min(theirs))}"
    yield _claim(
        f"The filter is right in more than {100 * ACCURATE:g} % of rows",
        Count(sum(value > ACCURATE for _, value in accuracy), len(accuracy)),
        Count(sum(value > ACCURATE for value in theirs), len(theirs)),
        detail,
    )
    errors = [
        abs(f["alpha"] - f["true_alpha"]) for _, f in found if {"alpha", "true_alpha"} <= {*f}
    ]
    detail = f"largest error {max(errors):.3f}" if errors else ""
    yield _claim(
        "Alpha is estimated to within 0.01",
        Count(sum(error <= 0.01 for error in errors), len(errors)),
        Count(0, 0),
        detail,
    )


def _gain_claims(numbers: _Numbers) -> Iterator[Claim]:
    same = [(task, task) for task in numbers.results.tasks]
    yield _counted(numbers, "PU is clearly above OLP", same, above(PU, OLP), gap(PU, OLP))
    yield _counted(
        numbers,
        "No other method that needs no truth is clearly above PU",
        same,
        nearly_best,
    )
    text = "PU is inside Oracle's 95 % interval, or above it"
    claim = _counted(numbers, text, same, reaches_oracle, gap(PU, ORACLE))
    beyond = sum(beyond_oracle(task, numbers.ours) for task in numbers.results.tasks)
    places = f"inside in {claim.ours.num - beyond}, above in {beyond}; " if claim.ours.of else ""
    yield dataclasses.replace(claim, detail=places + claim.detail)


def _shift_claims(numbers: _Numbers) -> Iterator[Claim]:
    pairs = _pairs(numbers, "shift", "body_mass", "entire_body")
    where = "from body mass to entire body shift"
    yield _counted(numbers, f"PU does not clearly fall {where}", pairs, holds(PU), change(PU))
    for method in SHARERS:
        text = f"{method.title} clearly falls {where}"
        yield _counted(numbers, text, pairs, falls(method), change(method))
    same = [(task, task) for task in numbers.results.tasks]
    for method in (DARA, IGDF):
        text = f"{method.title}'s mean is below Sharing-All's"
        yield _counted(numbers, text, same, lower(method, SHARING_ALL), gap(method, SHARING_ALL))


def _quality_claims(numbers: _Numbers) -> Iterator[Claim]:
    pairs = [
        *_pairs(numbers, "quality", "ME/ME", "ME/R"),
        *_pairs(numbers, "quality", "M/M", "M/R"),
    ]
    text = "PU is not clearly lower with random rows from the other domain"
    yield _counted(numbers, text, pairs, holds(PU), change(PU))
    for method in SHARERS:
        text = f"{method.title} is clearly lower with random rows from the other domain"
        yield _counted(numbers, text, pairs, falls(method), change(method))


def _label_claim(numbers: _Numbers, method: Named) -> Claim:
    """Decide by the interval of the mean gain over settings; of one setting, by its own."""
    pairs = _pairs(numbers, "labelled_fraction", 0.01, 0.03)
    ours, paper = (_changes(pairs, method, source) for source in (numbers.ours, numbers.theirs))
    text = f"{method.title} clearly gains from 0.01 to 0.03"
    if len(ours) < 2:
        size = change(method)._replace(name="gain")
        return _counted(numbers, text, pairs, gains(method), size)
    gain = SampleSummary.of(ours)
    detail = f"mean gain {_signed(gain)} over {gain.num} settings"
    if len(paper) > 1:
        detail += f"; the paper's {_signed(SampleSummary.of(paper))}"
    base = _counted(numbers, text, pairs, gains(method))
    return dataclasses.replace(
        base, word="yes" if gain.estimate.is_above_zero else "no", detail=detail
    )


def _with(numbers: _Numbers, method: Named) -> list[Task]:
    return [task for task in numbers.results.tasks if (task, method) in numbers.results.cells]


def _pairs(numbers: _Numbers, field: str, one: object, other: object) -> list[tuple[Task, Task]]:
    """Pair settings that differ in one field: ``one`` in the first, ``other`` in the second."""
    tasks = set(numbers.results.tasks)
    pairs = []
    for task in numbers.results.tasks:
        held = task.quality if field == "quality" else getattr(task.section, field)
        if held != one:
            continue
        if field == "quality":
            twin = task._replace(quality=str(other))
        else:
            twin = task._replace(section=task.section._replace(**{field: other}))
        if twin in tasks:
            pairs.append((task, twin))
    return pairs


def _counted(
    numbers: _Numbers,
    text: str,
    cases: Iterable[tuple[Task, Task]],
    test: Test,
    size: Size | None = None,
) -> Claim:
    cases = tuple(cases)
    outcome = [(case, test(*case, numbers.ours)) for case in cases]
    decided = [(case, held) for case, held in outcome if held is not None]
    theirs = [test(*case, numbers.theirs) for case, _ in decided]
    detail = _sizes(numbers, size, [case for case, _ in decided]) if size else ""
    return _claim(
        text,
        Count(sum(bool(held) for _, held in decided), len(decided)),
        Count(sum(held is True for held in theirs), sum(held is not None for held in theirs)),
        detail,
    )


def _claim(text: str, ours: Count, paper: Count, detail: str = "") -> Claim:
    return Claim(text, ours, paper, ours.word, detail)


def _sizes(numbers: _Numbers, size: Size, cases: list[tuple[Task, Task]]) -> str:
    # Returns are no scores: their differences do not belong into one mean.
    cases = [case for case in cases if case[0].section not in numbers.results.in_returns]
    ours, theirs = (
        [value for case in cases if (value := size.of(*case, source)) is not None]
        for source in (numbers.ours, numbers.theirs)
    )
    if not ours:
        return ""
    mean, least, most = map(_plus, (float(np.mean(ours)), min(ours), max(ours)))
    text = f"{size.name} {mean}"
    text += f" on average, {least} to {most}" if len(ours) > 1 else ""
    return text + (f"; the paper's {_plus(float(np.mean(theirs)))}" if theirs else "")


def _changes(pairs: list[tuple[Task, Task]], method: Named, source: Lookup) -> list[float]:
    size = change(method)
    return [value for pair in pairs if (value := size.of(*pair, source)) is not None]


def _nothing(*_: object) -> None:
    """Stands in for the paper's numbers where there are none."""


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _signed(summary: SampleSummary) -> str:
    return f"{_plus(summary.mean)} ± {summary.half_width:.1f}"


def _plus(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # no -0.0
