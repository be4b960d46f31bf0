"""The page's part on policies that `puorl evaluate --offline` evaluated from a log."""

import math
from dataclasses import dataclass
from pathlib import Path

from puorl.core.stats import Estimate
from puorl.html import charts, page
from puorl.html.page import Markup, as_count

_MOST_DOTS = 12


@dataclass(frozen=True)
class OfflineValue:
    """Value of a policy by one estimator."""

    value: Estimate
    effective_size: float
    is_doubtful: bool
    trust: str


@dataclass(frozen=True)
class OfflinePolicy:
    """A policy and its values by estimator."""

    policy: str
    outside: float
    values: dict[str, OfflineValue]
    group: str = ""

    @property
    def name(self) -> str:
        """Run and file, without folders."""
        stem = Path(self.policy).stem
        return f"{Path(self.group).name}/{stem}" if self.group else stem


@dataclass(frozen=True)
class OfflineRanking:
    """Ranking of the policies by one estimator."""

    sentence: str
    regret: float


@dataclass(frozen=True)
class OfflineEvaluated:
    """Content that `puorl evaluate --offline` wrote (``--out``) or printed (``--json``)."""

    gamma: float
    num_episodes: int
    num_rows: int
    default: str
    behaviour: OfflineValue
    policies: tuple[OfflinePolicy, ...]
    ranking: dict[str, OfflineRanking]
    notes: tuple[str, ...] = ()
    path: str = ""
    """File from which it was read."""


def offline_section(each: OfflineEvaluated) -> Markup:
    """Show a table of all estimates, a picture of the default's, and what to mind."""
    rows, dots = [], []
    for policy in each.policies:
        for name, value in policy.values.items():
            mark = " (doubtful)" if value.is_doubtful else ""
            size = f"{value.effective_size:,.1f}"
            rows.append((policy.name, f"{name}{mark}", _text(value.value), size, value.trust))
        if each.default in policy.values:
            found = policy.values[each.default].value
            dots.append(charts.Dot(policy.name, found, _text(found)))
    caption = (
        f"Discounted return ({each.gamma:g} a step) from {as_count(each.num_episodes)} logged "
        f"starts, estimated from {as_count(each.num_rows)} held-out rows"
    )
    bar = each.behaviour.value
    words = [f"The log's own return: {_text(bar)}. {each.behaviour.trust}"]
    if len(each.policies) > 1 and each.default in each.ranking:
        words.append(f"By {each.default}: {each.ranking[each.default].sentence}")
    picture = charts.dots(
        f"Values by {each.default}",
        dot=dots[:_MOST_DOTS],
        x_label="discounted return",
        mark=(bar.value, "the log's own return") if math.isfinite(bar.value) else None,
    )
    header = ("Policy", "Estimator", "Value, 95 % interval", "Episodes behind it", "Trust")
    return page.section(
        "How good are they? Estimated from the log",
        page.paragraph("No policy acted: these are estimates, not measurements."),
        page.table(caption, header, rows, numeric=(3,)),
        page.side_by_side(
            page.group(*map(page.paragraph, words)),
            page.figure(picture, "With 95 % intervals."),
        ),
        page.warning_list(each.notes) if each.notes else Markup(""),
    )


def _text(estimate: Estimate) -> str:
    if estimate.interval is None:
        return f"{estimate.value:,.4g}"
    return f"{estimate.value:,.4g} ({estimate.low:,.4g} to {estimate.high:,.4g})"
