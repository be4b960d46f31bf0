"""The demo's texts and page: question, data, filter beside the truth, training, result.

The terminal prints the same texts and numbers as the page shows.
"""

import json
import math
from typing import Any

from puorl.core.stats import mean_estimate
from puorl.demo.study import TITLES, Data, DemoSettings, Filtered, Trained, to_dict
from puorl.envs.bodies import body
from puorl.html import charts, page
from puorl.html.page import (
    Markup,
    as_count,
    as_difference,
    as_estimate,
    as_percent,
    as_percent_range,
)
from puorl.pu.report_page import as_sections

SCORE = "D4RL's normalised score: 0 is its random policy, 100 its expert."
MEANINGS = {
    "olp": "only the labelled rows",
    "sharing_all": "all rows, as if all were ours",
    "pu": "the labelled rows and those that the filter kept",
    "oracle": "all rows that truly are ours, which is unknown in practice",
}
"""The rows on which each method trains."""
_BASELINES = ("olp", "sharing_all")
"""Methods that PU is meant to beat."""
_ORDER = ("pu", "oracle", "olp", "sharing_all")
"""Order of the curves; the first has a full line."""
_SPACE = Markup('<div style="height:.8rem"></div>')


# -------------------------------------------------------------------------------- texts


def question(settings: DemoSettings) -> str:
    """State the question for the machines at hand."""
    setting = settings.setting
    others = " and ".join(
        f"{source.body}/{source.domain} driven by a {source.quality} policy"
        for source, _ in setting.others
    )
    short = "" if setting.horizon is None else f" in short runs ({setting.horizon:,} steps at most)"
    return (
        f"We want a policy for one machine, {setting.body}/nominal. We have {setting.rows:,} rows "
        f"of logs{short}, of which {as_percent(setting.target_fraction, digits=0)} come from it "
        f"(driven by a {setting.target.quality} policy) and the rest from another, {others}. The "
        f"logs do not say which is which: only {setting.num_labelled:,} rows are known to be ours. "
        "Can we train as well as if we knew?"
    )


def evaluation(settings: DemoSettings) -> str:
    """Describe the final evaluation, which does not depend on the length of the runs."""
    limit = body(settings.setting.body).max_steps
    return f"{settings.episodes} episodes each in the task's usual length, {limit:,} steps at most"


def sizes(settings: DemoSettings) -> list[tuple[str, str, str]]:
    """List sizes here and in the paper: name, demo, paper."""
    setting = settings.setting
    digits = 1 if setting.labelled_fraction < 0.01 else 0
    fraction = as_percent(setting.labelled_fraction, digits=digits)
    horizon = setting.horizon or body(setting.body).max_steps
    return [
        ("rows", f"{setting.rows:,}", "1,000,000"),
        ("steps of a run, at most", f"{horizon:,}", "1,000"),
        ("labelled rows", f"{setting.num_labelled:,} ({fraction})", "10,000 (1 %)"),
        ("hidden layers", ", ".join(map(str, settings.hidden)), "256, 256"),
        ("rows in a batch", str(settings.batch_size), "256"),
        ("updates", f"{settings.steps:,}", "1,000,000"),
        ("policies for each method", str(settings.num_seeds), "10"),
    ]


def filter_settings(filtered: Filtered) -> str:
    """Say whether the filter has its default settings."""
    usual = filtered.report.settings["preset"] == "default"
    which = "its default settings" if usual else "smaller settings than the default"
    return f"The filter has {which}."


def estimates(filtered: Filtered) -> list[tuple[str, str, str, str, str]]:
    """List name, label-free estimate, interval, truth, and whether the interval contains it."""
    report, truth = filtered.report, filtered.truth
    low, high = report.alphas[0].interval or (math.nan, math.nan)
    rows = [("alpha", report.alphas[0].value, low, high, truth.alpha)]
    for name in ("recall", "precision", "purity"):
        found = getattr(report.quality, name)
        rows.append((name, found.value, found.low, found.high, getattr(truth, name)))
    return [
        (name, as_percent(value), as_percent_range(a, b), as_percent(true), _inside(a, b, true))
        for name, value, a, b, true in rows
    ]


def caution(settings: DemoSettings, filtered: Filtered) -> str:
    """Explain a cautious verdict of the report; empty where it has none."""
    texts = []
    if filtered.report.verdict == "behaviour":
        texts.append(
            "The report is right to ask for a second look: the two machines were driven by "
            "different policies, so behaviour alone separates the rows, and without labels that "
            "cannot be told from a difference of machines."
        )
    if filtered.report.columns and settings.setting.shift == "entire_body":
        texts.append(
            "The columns that it names are speeds: Walker2d's are clipped at 10, HalfCheetah's are "
            "not, so here that too is a difference of machines."
        )
    if texts:
        texts.append("The truth shows the outcome.")
    return " ".join(texts)


def row_counts(data: Data, filtered: Filtered) -> str:
    """Count the rows, and those that were kept."""
    return (
        f"{len(data.split.labelled):,} labelled and {len(data.split.unlabelled):,} unlabelled "
        f"rows; {filtered.report.quality.num_kept:,} of the unlabelled were kept"
    )


def results(trained: Trained) -> list[tuple[str, str, str, str, str]]:
    """List method, number of its rows, fraction of them that is ours, score, and PU minus it."""
    return [
        (
            title,
            f"{trained.num_rows[name]:,}",
            as_percent(trained.target_fraction[name]),
            as_estimate(trained.mean(name)),
            "" if name == "pu" else as_difference(trained.against(name)),
        )
        for name, title in TITLES.items()
    ]


def is_expected(trained: Trained) -> bool:
    """Whether PU is within noise of Oracle and clearly above both baselines."""
    oracle = trained.against("oracle")
    within = not (oracle.is_above_zero or oracle.is_below_zero)
    return within and all(trained.against(name).is_above_zero for name in _BASELINES)


def conclusion(trained: Trained) -> str:
    """Summarise the comparison of PU with the other methods."""
    texts = []
    for name in ("oracle", *_BASELINES):
        found = trained.against(name)
        word = "PU is above" if found.is_above_zero else "within noise"
        word = "PU is below" if found.is_below_zero else word
        word = "no interval" if found.interval is None else word
        texts.append(f"{TITLES[name]} {as_difference(found)}, {word}")
    scores = trained.scores["pu"]
    return (
        f"PU minus the others, with 95 % intervals: {'; '.join(texts)}. Its own policies scored "
        f"{min(scores):.1f} to {max(scores):.1f}."
    )


def given_up(trained: Trained) -> list[str]:
    """List the policies whose training was given up."""
    return [f"{TITLES[name]}: {each}" for name, lost in trained.stopped.items() for each in lost]


def _inside(low: float, high: float, truth: float) -> str:
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return "inside" if low <= truth <= high else "outside"


# --------------------------------------------------------------------------------- page


def as_page(
    settings: DemoSettings, data: Data, filtered: Filtered, trained: Trained, *, command: str
) -> str:
    """Make a self-contained HTML page of all stages; ``command`` is shown for repeating it."""
    good, whole = is_expected(trained), to_dict(settings, data, filtered, trained)
    headline = (
        "Within noise of knowing which rows are ours, and above both others"
        if good
        else "Not what the method promises, at this size and seed"
    )
    return page.document(
        "puorl demo",
        page.banner("good" if good else "caution", "Result", headline, conclusion(trained)),
        page.section("The question", page.paragraph(question(settings))),
        _data(whole),
        *_filter(settings, filtered),
        _kept(data, filtered),
        _training(settings, trained),
        page.section(
            "What was scaled down",
            page.paragraph(
                "Every part is the real one, only smaller, so that it takes minutes on two cores. "
                f"{filter_settings(filtered)} Scores are not the paper's: puorl bench is for those."
            ),
            page.table(
                "Sizes here and in the paper",
                ("Size", "Demo", "Paper"),
                sizes(settings),
                numeric=(1, 2),
            ),
        ),
        _reproduce(whole, command),
        lead=f"Seed {settings.setting.split_seed}. {as_count(settings.setting.rows)} rows, "
        f"{settings.num_seeds} policies for each of {len(TITLES)} methods.",
    )


def _data(whole: dict[str, Any]) -> Markup:
    data, rows = whole["data"], []
    for number, source in enumerate(data["sources"]):
        whose = "ours" if number == 0 else "another machine"
        counts = as_count(source["rows"]), as_count(source["episodes"])
        rows.append((str(source["domain"]), whose, str(source["behaviour"]), *counts))
    header = ("Domain", "Machine", "Policy", "Rows", "Episodes")
    return page.section(
        "The data",
        page.table("Recorded in the simulator", header, rows, numeric=(3, 4)),
        page.paragraph(
            f"All rows were mixed and their origin hidden. {as_count(data['num_labelled'])} rows, "
            f"drawn at random from ours, keep their label; {as_count(data['num_unlabelled'])} have "
            "none. From here on only Oracle, and the columns called truth, use more."
        ),
    )


def _filter(settings: DemoSettings, filtered: Filtered) -> list[Markup]:
    """Show the report as `puorl filter` shows it, with a word on its caution."""
    verdict, *rest = as_sections(filtered.report)
    words = page.paragraph(caution(settings, filtered))
    return [page.section("The filter, without labels", verdict, words), *rest]


def _kept(data: Data, filtered: Filtered) -> Markup:
    truth = filtered.truth
    picture = charts.histogram(
        "Scores of the unlabelled rows by their true origin",
        f"The filter is right about {as_percent(truth.accuracy)} of the unlabelled rows.",
        edge=truth.score_edge,
        fraction={"truly ours": truth.score_target, "the other machine's": truth.score_other},
        x_label="score",
        y_label="fraction of rows, square-root axis",
        scale="sqrt",
    )
    table = page.table(
        "Estimated without labels, and the truth",
        ("Number", "Estimate", "95 % interval", "Truth"),
        [(*row[:3], f"{row[3]}, {row[4]}") for row in estimates(filtered)],
        numeric=(1, 2, 3),
    )
    return page.section(
        "What was kept, and the truth beside it",
        page.paragraph(row_counts(data, filtered) + "."),
        page.side_by_side(
            page.group(table),
            page.figure(picture, "With the labels that the filter did not have."),
        ),
    )


def _training(settings: DemoSettings, trained: Trained) -> Markup:
    lost = given_up(trained)
    return page.section(
        "Training on what was kept",
        page.paragraph(
            "The same learner (TD3+BC) is trained on four choices of rows, and every policy is run "
            f"on our machine in the simulator. {SCORE}"
        ),
        page.terms({title: f"{MEANINGS[name]}." for name, title in TITLES.items()}),
        _SPACE,
        page.side_by_side(
            page.figure(_curves(trained), "Means over policies, with 95 % intervals."),
            page.figure(_dots(trained), "Final scores, with 95 % intervals."),
        ),
        page.table(
            f"Final scores: mean and 95 % interval over {settings.num_seeds} policies, "
            f"{evaluation(settings)}",
            ("Method", "Rows", "Truly ours", "Score", "PU minus it"),
            results(trained),
            numeric=(1, 2, 3),
        ),
        page.warning_list(lost) if lost else Markup(""),
    )


def _curves(trained: Trained) -> Markup:
    steps = [step / 1000 for step in trained.steps]
    lines = [
        charts.Line.of(TITLES[name], steps, [mean_estimate(each) for each in trained.curves[name]])
        for name in _ORDER
    ]
    return charts.lines(
        "Learning curves", line=lines, x_label="updates, thousands", y_label="score"
    )


def _dots(trained: Trained) -> Markup:
    means = {TITLES[name]: trained.mean(name) for name in _ORDER}
    dots = [charts.Dot(title, mean, as_estimate(mean)) for title, mean in means.items()]
    return charts.dots("Final scores", dot=dots, x_label="normalised score")


def _reproduce(whole: dict[str, Any], command: str) -> Markup:
    rows: list[tuple[str, str]] = [("command", command)]
    rows += [(f"version of {name}", text) for name, text in whole["versions"].items()]
    rows += [
        (f"hash of {source['domain']}, {source['behaviour']}", source["fingerprint"])
        for source in whole["data"]["sources"]
    ]
    rows.append(("hash of the split", whole["data"]["split"]))
    rows += [(f"seconds for {name}", f"{spent:.0f}") for name, spent in whole["seconds"].items()]
    return page.section(
        "How to reproduce this",
        page.table("The same command and versions give the same numbers", ("What", "Value"), rows),
        page.folded("All results as JSON", json.dumps(whole, indent=2, ensure_ascii=False)),
    )
