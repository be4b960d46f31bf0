"""What the demo says: the same sentences and numbers in the terminal and on its page."""

import math

from puorl.bench.stats import SampleSummary
from puorl.core.stats import Estimate
from puorl.demo.study import TITLES, Data, Filtered, Plan, Trained
from puorl.envs.bodies import body
from puorl.html.page import as_percent, as_percent_range

SCORE = "D4RL's normalised score: 0 is its random policy, 100 its expert."
MEANINGS = {
    "olp": "only the labelled rows",
    "sharing_all": "all rows, as if all were ours",
    "pu": "the labelled rows and what the filter kept",
    "oracle": "all rows that truly are ours, which nobody knows in practice",
}
"""What each method trains on."""
_PAPER = {
    "rows": "1,000,000",
    "steps of a run, at most": "1,000",
    "labelled rows": "10,000 (1 %)",
    "hidden layers": "256, 256",
    "rows in a batch": "256",
    "updates": "1,000,000",
    "policies for each method": "10",
}
"""The same sizes in the paper; D4RL's files stand behind its rows, our shipped policies here."""

_BELOW = ("olp", "sharing_all")
"""What the method is meant to beat."""


def asked(plan: Plan) -> str:
    """The question, in terms of the machines at hand."""
    setting = plan.setting
    others = " and ".join(
        f"{source.body}/{source.domain} driven by a {source.quality} policy"
        for source, _ in setting.others
    )
    share = as_percent(setting.target_fraction, digits=0)
    return (
        f"We want a policy for one machine, {setting.body}/nominal. We have {setting.rows:,} rows "
        f"of logs{_in_short_runs(plan)}, of which {share} come from it (driven by a "
        f"{setting.target.quality} policy) and the rest from another, {others}. Nobody wrote down "
        f"which is which: only {setting.num_labelled:,} rows are known to be ours. Can we train as "
        "well as if we knew?"
    )


def judged(plan: Plan) -> str:
    """How the policies are judged, however short the runs that they learnt from."""
    limit = body(plan.setting.body).max_steps
    return f"{plan.episodes} episodes each in the task's usual length, {limit:,} steps at most"


def scaled_down(plan: Plan) -> list[tuple[str, str, str]]:
    """Sizes here and in the paper: name, demo, paper."""
    setting = plan.setting
    share = as_percent(
        setting.labelled_fraction, digits=1 if setting.labelled_fraction < 0.01 else 0
    )
    here = {
        "rows": f"{setting.rows:,}",
        "steps of a run, at most": f"{setting.horizon or body(setting.body).max_steps:,}",
        "labelled rows": f"{setting.num_labelled:,} ({share})",
        "hidden layers": ", ".join(map(str, plan.hidden)),
        "rows in a batch": str(plan.batch_size),
        "updates": f"{plan.steps:,}",
        "policies for each method": str(plan.num_seeds),
    }
    return [(name, here[name], _PAPER[name]) for name in here]


def filter_settings(filtered: Filtered) -> str:
    """Whether the filter is the one that users get."""
    preset = filtered.report.settings["preset"]
    if preset == "default":
        return "The filter has its default settings."
    return "The filter has smaller settings than the default."


def estimates(filtered: Filtered) -> list[tuple[str, str, str, str, str]]:
    """Name, label-free estimate, its interval, the truth, and whether it lies inside."""
    report, truth = filtered.report, filtered.truth
    low, high = report.alphas[0].interval or (math.nan, math.nan)
    quality = report.quality
    rows = [
        ("alpha", report.alphas[0].value, low, high, truth.alpha),
        ("recall", quality.recall.value, quality.recall.low, quality.recall.high, truth.recall),
        (
            "precision",
            quality.precision.value,
            quality.precision.low,
            quality.precision.high,
            truth.precision,
        ),
        ("purity", quality.purity.value, quality.purity.low, quality.purity.high, truth.purity),
    ]
    return [
        (name, as_percent(value), as_percent_range(a, b), as_percent(true), _inside(a, b, true))
        for name, value, a, b, true in rows
    ]


def report_note(plan: Plan, filtered: Filtered) -> str:
    """Why the report may ask for a second look here; empty where it does not."""
    said = []
    if filtered.report.verdict == "behaviour":
        said.append(
            "The report is right to ask for a second look: the two machines were driven by "
            "different policies, so behaviour alone parts the rows, and without labels nobody can "
            "tell that from a difference of machines."
        )
    if filtered.report.columns and plan.setting.shift == "entire_body":
        said.append(
            "The columns that it names are speeds: Walker2d's are clipped at 10, HalfCheetah's are "
            "not, so here that too is a difference of machines."
        )
    if said:
        said.append("The truth shows what came of it.")
    return " ".join(said)


def row_counts(data: Data, filtered: Filtered) -> str:
    """How many rows there are, and how many were kept."""
    return (
        f"{len(data.split.labelled):,} labelled and {len(data.split.unlabelled):,} unlabelled "
        f"rows; {filtered.report.quality.num_kept:,} of the unlabelled were kept"
    )


def results(trained: Trained) -> list[tuple[str, str, str, str, str]]:
    """Method, rows it trains on, share of them that is ours, score, and PU minus it."""
    return [
        (
            title,
            f"{trained.num_rows[name]:,}",
            as_percent(trained.target_fraction[name]),
            with_half(trained.summary(name)),
            "" if name == "pu" else with_ends(trained.against(name)),
        )
        for name, title in TITLES.items()
    ]


def with_half(summary: SampleSummary) -> str:
    """A mean with half its interval.

    >>> with_half(SampleSummary(3, 40.0, 1.0))
    '40.0 ± 2.5'
    """
    half = "" if math.isnan(summary.half_width) else f" ± {summary.half_width:.1f}"
    return f"{summary.mean:.1f}{half}"


def with_ends(seen: Estimate) -> str:
    """A difference with both ends of its interval.

    >>> with_ends(Estimate(1.0, -0.5, 2.5))
    '+1.0 (-0.5 to +2.5)'
    """
    ends = "" if math.isnan(seen.low) else f" ({seen.low:+.1f} to {seen.high:+.1f})"
    return f"{seen.value:+.1f}{ends}"


def is_as_hoped(trained: Trained) -> bool:
    """Whether PU is within noise of Oracle and clearly above both others."""
    oracle = trained.against("oracle")
    within = not (oracle.is_above_zero or oracle.is_below_zero)
    return within and all(trained.against(name).is_above_zero for name in _BELOW)


def conclusion(trained: Trained) -> str:
    """What the numbers say, whatever they say."""
    said = [f"{TITLES[name]} {_place(trained.against(name))}" for name in ("oracle", *_BELOW)]
    scores = trained.scores["pu"]
    return (
        f"PU minus the others, with 95 % intervals: {'; '.join(said)}. Its own policies scored "
        f"{min(scores):.1f} to {max(scores):.1f}."
    )


def given_up(trained: Trained) -> list[str]:
    """A line for each policy that came to no end."""
    return [f"{TITLES[name]}: {each}" for name, lost in trained.stopped.items() for each in lost]


def _in_short_runs(plan: Plan) -> str:
    horizon = plan.setting.horizon
    return "" if horizon is None else f" in short runs ({horizon:,} steps at most)"


def _place(seen: Estimate) -> str:
    word = "PU is below" if seen.is_below_zero else "within noise"
    word = "PU is above" if seen.is_above_zero else word
    return f"{with_ends(seen)}, {'no interval' if math.isnan(seen.low) else word}"


def _inside(low: float, high: float, truth: float) -> str:
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return "inside" if low <= truth <= high else "outside"
