"""The result of a comparison: a row for each method, which is best, and the page; no JAX."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from puorl import __version__
from puorl.core.stats import Estimate, student_t
from puorl.html import charts, page
from puorl.html.page import Markup
from puorl.pu.machines.report import MachineReport
from puorl.pu.report import FilterReport
from puorl.pu.report_page import as_sections, as_terms
from puorl.pu.report_text import MACHINE_VERDICTS, VERDICT_NAMES, mostly_sure

_FILTERED = "pu"
_MEANINGS = {
    "olp": "only the labelled rows",
    "sharing_all": "all rows, as if all were the target's",
    "dara": "all rows, with rewards lowered where the machine would not move like that",
    "igdf": "the labelled rows, and in each batch the unlabelled rows that fit best",
    "pu": "the labelled rows and those that the filter keeps",
    "oracle": "all rows that truly are the target's, which is unknown in practice",
    "pu_share": "rows that the filter keeps, and others' rows moved into the machine's dynamics",
}


@dataclass(frozen=True)
class Outcome:
    """One method: its policies' scores, and how sure they are."""

    method: str
    title: str
    num_rows: int
    """Rows that it trained on."""
    scores: tuple[float, ...]
    """Value of each policy; empty if all were given up."""
    draws: tuple[float, ...] = ()
    """Means over policies by draw of judging episodes, the same draws for all methods."""
    num_doubtful: int = 0
    """Policies whose value must not be trusted."""
    outside: float = math.nan
    """Mean fraction of states in which its policies do what the log hardly ever shows."""
    num_stopped: int = 0
    needs_truth: bool = False

    @property
    def estimate(self) -> Estimate:
        """Mean over policies; its interval counts seeds, and the judging episodes if they vary."""
        if not self.scores:
            return Estimate(math.nan)
        return _interval(float(np.mean(self.scores)), [self], np.array(self.draws))


@dataclass(frozen=True)
class Comparison:
    """Methods on the same rows, judged alike."""

    outcomes: tuple[Outcome, ...]
    judged_by: str
    unit: str
    """What the scores are."""
    behaviour: Estimate | None = None
    """The log's own return in the judging episodes."""
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    filter: FilterReport | MachineReport | None = None
    """What the filter of PU says about its own choice, without labels; None if it was not asked."""

    @property
    def filter_says(self) -> str:
        """Verdict of the filter's report in words; empty without one."""
        if self.filter is None:
            return ""
        of_machines = isinstance(self.filter, MachineReport)
        return (MACHINE_VERDICTS if of_machines else VERDICT_NAMES)[self.filter.verdict]

    @property
    def filter_is_sure(self) -> bool:
        """Whether the filter's report, if there is one, sees what it chose by."""
        if isinstance(self.filter, MachineReport):
            return self.filter.verdict in ("dynamics", "both") and mostly_sure(self.filter)
        return self.filter is None or self.filter.verdict == "clear"

    @property
    def candidates(self) -> list[Outcome]:
        """Methods that can be used in practice and gave a policy, from best to worst."""
        usable = [each for each in self.outcomes if each.scores and not each.needs_truth]
        return sorted(usable, key=lambda each: -float(np.mean(each.scores)))

    @property
    def rivals(self) -> list[Outcome]:
        """Candidates that cannot be told from the first."""
        first, *others = self.candidates
        return [each for each in others if not self.difference(first, each).is_above_zero]

    def difference(self, one: Outcome, other: Outcome, *, level: float = 0.95) -> Estimate:
        """Return the first method's mean minus the other's; no interval with single policies."""
        value = float(np.mean(one.scores) - np.mean(other.scores))
        both = np.array(one.draws) - np.array(other.draws)
        return _interval(value, [one, other], both, level)

    @property
    def verdict(self) -> str:
        """Say which method is best, or that this cannot be told."""
        if not self.candidates:
            return "No method gave a policy."
        first, rivals = self.candidates[0], self.rivals
        if len(self.candidates) == 1:
            text = f"{first.title} is the only method that gave a policy."
        elif min(len(each.scores) for each in self.candidates) < 2:
            text = f"{first.title} comes first, but one policy a method cannot tell: add seeds."
        elif rivals:
            names = ", ".join(each.title for each in rivals)
            text = (
                f"It cannot be told which is best: {first.title} comes first, and {names} may be. "
                f"{self._more(first, rivals[0])}"
            )
        else:
            text = f"{first.title} is best: its interval of the difference to each is above 0."
        if first.num_doubtful:
            text += (
                f" {first.num_doubtful} of its {len(first.scores)} values must not be trusted: its "
                "policies do what the log hardly shows, or values are vague or have not settled."
            )
        low = None if self.behaviour is None else self.behaviour
        if low is not None and first.estimate.value < low.value:
            text += " It is not above the log's own return."
        if not self.filter_is_sure and self.filter is not None:
            text += f" PU's own filter says: {self.filter_says}. {self.filter.advice}"
        return text

    def _more(self, first: Outcome, rival: Outcome) -> str:
        """Say what would narrow the difference between two methods."""
        of_seeds = sum(float(np.var(e.scores, ddof=1)) / len(e.scores) for e in (first, rival))
        both = np.array(first.draws) - np.array(rival.draws)
        if len(both) > 1 and float(np.var(both, ddof=1)) > of_seeds:
            return "More labelled episodes to judge from would tell more than more seeds."
        return "Policies of one method differ: more seeds may tell."

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table, a row for each method in the order of `METHODS`."""
        best = self.candidates[0] if self.candidates else None
        made = []
        for each in self.outcomes:
            behind = ""
            if best is not None and each is not best and each.scores:
                behind = _text(self.difference(each, best))
            outside = "" if math.isnan(each.outside) else f"{each.outside:.0%}"
            says = (self.filter_says if each.method == _FILTERED else "",)
            made.append(
                (
                    each.title,
                    f"{each.num_rows:,}",
                    f"{len(each.scores)}" + (f" (-{each.num_stopped})" * bool(each.num_stopped)),
                    _text(each.estimate),
                    behind or ("best" if each is best else "-"),
                    outside,
                    *(says if self.filter is not None else ()),
                )
            )
        return made

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        names = ("method", "rows", "policies", self.unit, "minus the first", "outside the log")
        return names if self.filter is None else (*names, "its filter says")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        outcomes = []
        for each in self.outcomes:
            content = asdict(each) | {"estimate": each.estimate.to_dict()}
            content["outside"] = None if math.isnan(each.outside) else each.outside
            outcomes.append(content)
        return {
            "kind": "comparison",
            "verdict": self.verdict,
            "judged_by": self.judged_by,
            "unit": self.unit,
            "behaviour": None if self.behaviour is None else self.behaviour.to_dict(),
            "outcomes": outcomes,
            "notes": list(self.notes),
            "settings": dict(self.settings),
            "filter": None if self.filter is None else _filter_dict(self.filter),
        }

    def __str__(self) -> str:
        cells = [self.header, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        if self.behaviour is not None:
            lines.append(f"the log's own return: {_text(self.behaviour)}")
        return "\n".join([*lines, self.verdict])


def _interval(
    value: float, outcomes: Sequence[Outcome], draws: np.ndarray, level: float = 0.95
) -> Estimate:
    """Add an interval of the variances over seeds and over draws of episodes; none without.

    Seeds of two methods are no pairs: in stored benchmarks their scores do not go together. The
    degrees of freedom are Welch's, as methods vary by different amounts.
    """
    if min(len(each.scores) for each in outcomes) < 2:
        return Estimate(value)
    parts = [(each.scores, len(each.scores)) for each in outcomes]
    parts += [(draws, 1)] if len(draws) > 1 else []  # a draw is the mean over policies as it is
    variance = [float(np.var(values, ddof=1)) / n for values, n in parts]
    total = sum(variance)
    if total == 0.0:
        return Estimate(value, value, value)
    lost = sum(v * v / (len(of) - 1) for v, (of, _) in zip(variance, parts, strict=True))
    half = student_t(total * total / lost, level) * math.sqrt(total)
    return Estimate(value, value - half, value + half)


def _filter_dict(report: FilterReport | MachineReport) -> dict[str, Any]:
    found = report.quality if isinstance(report, FilterReport) else report
    numbers = {"alpha": report.alpha, "recall": found.recall, "precision": found.precision}
    return {
        "verdict": report.verdict,
        "advice": report.advice,
        "warnings": list(report.warnings) if isinstance(report, FilterReport) else [],
        **{name: None if each is None else each.to_dict() for name, each in numbers.items()},
    }


def _text(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "none"
    if estimate.interval is None:
        return f"{estimate.value:,.4g}"
    return f"{estimate.value:,.4g} [{estimate.low:,.4g}, {estimate.high:,.4g}]"


def as_page(result: Comparison, *, command: str) -> str:
    """Make a self-contained HTML page; ``command`` is shown for repeating it."""
    sure = len(result.candidates) > 1 and not result.rivals
    first = result.candidates[0].title if result.candidates else "none"
    headline = f"{first} is best" if sure else "It cannot be told which method is best"
    if result.candidates and (result.candidates[0].num_doubtful or len(result.candidates) == 1):
        sure = False
    sure = sure and (result.filter_is_sure or result.candidates[0].method != _FILTERED)
    about = () if result.filter is None else _about_filter(result.filter)
    dots = [
        charts.Dot(each.title, each.estimate, _text(each.estimate))
        for each in result.outcomes
        if each.scores
    ]
    mark = None if result.behaviour is None else (result.behaviour.value, "the log's own return")
    lead = f"Judged by {result.judged_by}. Learner {result.settings.get('learner', '')}."
    return page.document(
        "puorl compare",
        page.banner("good" if sure else "caution", "Result", headline, result.verdict),
        page.section(
            "Methods",
            page.table("Mean over policies with 95 % interval", result.header, result.rows(),
                       numeric=(1, 2)),
            page.figure(charts.dots("Values", dot=dots, x_label=result.unit, mark=mark),
                        "Means over policies, with 95 % intervals."),
            page.terms({
                each.title: f"{_MEANINGS.get(each.method, 'see its page')}."
                for each in result.outcomes
            }),
        ),
        _caution(result),
        *about,
        page.section(
            "How to reproduce this",
            page.table("The same command and versions give the same numbers", ("What", "Value"),
                       [("command", command), ("version of puorl", __version__)]),
            page.folded("All results as JSON", json.dumps(result.to_dict(), indent=2)),
        ),
        lead=lead,
    )  # fmt: skip


def _about_filter(report: FilterReport | MachineReport) -> tuple[Markup, ...]:
    words = (
        "PU trained on what a filter kept. What follows is the filter's own report, made without "
        "labels that it has not seen: how far the rows that PU trained on are the target's."
    )
    return (
        page.section("The filter of PU", page.paragraph(words)),
        *as_sections(report, anchor="filter-warnings"),
        page.section("Terms of the filter's report", page.terms(as_terms(report))),
    )


def _caution(result: Comparison) -> Markup:
    if result.behaviour is None:
        words = "Policies acted in the environment; intervals count seeds, not other data."
        return page.section(
            "How far to trust this", page.paragraph(words), page.warning_list(result.notes)
        )
    words = (
        "Nobody acted: values are estimated from labelled episodes that no method trained on. An "
        "estimate says little about a policy that does what the log hardly ever shows; the column "
        "'outside the log' says how often. Intervals count seeds and the draw of episodes, not "
        "errors that all estimates share."
    )
    doubtful = [
        f"{each.title}: {each.num_doubtful} of {len(each.scores)} values must not be trusted"
        for each in result.outcomes
        if each.num_doubtful
    ]
    return page.section(
        "How far to trust this",
        page.paragraph(words),
        page.warning_list([*doubtful, *result.notes]),
    )
