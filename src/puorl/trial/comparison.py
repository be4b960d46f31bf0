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

    def difference(self, one: Outcome, other: Outcome) -> Estimate:
        """Return the first method's mean minus the other's; no interval with single policies."""
        value = float(np.mean(one.scores) - np.mean(other.scores))
        both = np.array(one.draws) - np.array(other.draws)
        return _interval(value, [one, other], both)

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
                f"It cannot be told which is best: {first.title} comes first, and {names} may be."
            )
        else:
            text = f"{first.title} is best: its interval of the difference to each is above 0."
        if first.num_doubtful:
            text += (
                f" {first.num_doubtful} of its {len(first.scores)} values must not be trusted: its "
                "policies do what the log hardly shows, or values have not settled."
            )
        low = None if self.behaviour is None else self.behaviour
        if low is not None and first.estimate.value < low.value:
            text += " It is not above the log's own return."
        return text

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table, a row for each method in the order of `METHODS`."""
        best = self.candidates[0] if self.candidates else None
        made = []
        for each in self.outcomes:
            behind = ""
            if best is not None and each is not best and each.scores:
                behind = _text(self.difference(each, best))
            outside = "" if math.isnan(each.outside) else f"{each.outside:.0%}"
            made.append(
                (
                    each.title,
                    f"{each.num_rows:,}",
                    f"{len(each.scores)}" + (f" (-{each.num_stopped})" * bool(each.num_stopped)),
                    _text(each.estimate),
                    behind or ("best" if each is best else "-"),
                    outside,
                )
            )
        return made

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return ("method", "rows", "policies", self.unit, "minus the first", "outside the log")

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


def _interval(value: float, outcomes: Sequence[Outcome], draws: np.ndarray) -> Estimate:
    """Add an interval of the variances over seeds and over draws of episodes; none without."""
    sizes = [len(each.scores) for each in outcomes]
    if min(sizes) < 2:
        return Estimate(value)
    variance = sum(float(np.var(each.scores, ddof=1)) / len(each.scores) for each in outcomes)
    freedom = sum(size - 1 for size in sizes)
    if len(draws) > 1:
        variance += float(np.var(draws, ddof=1))
        freedom = min(freedom, len(draws) - 1)
    half = student_t(freedom) * math.sqrt(variance)
    return Estimate(value, value - half, value + half)


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
        page.section(
            "How to reproduce this",
            page.table("The same command and versions give the same numbers", ("What", "Value"),
                       [("command", command), ("version of puorl", __version__)]),
            page.folded("All results as JSON", json.dumps(result.to_dict(), indent=2)),
        ),
        lead=lead,
    )  # fmt: skip


def _caution(result: Comparison) -> Markup:
    if result.behaviour is None:
        words = "Policies acted in the environment; intervals count seeds, not other data."
        return page.section("How far to trust this", page.paragraph(words))
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
