"""The demo's page: what was asked, the data, the filter beside the truth, training, the result."""

import json
import math
from typing import Any

from puorl.bench.stats import SampleSummary
from puorl.demo import words
from puorl.demo.study import TITLES, Data, Filtered, Plan, Trained, to_dict
from puorl.html import charts, page
from puorl.html.page import Markup, Tile, as_count, as_percent, as_percent_range
from puorl.pu.report_page import alpha_picture, auroc_picture, history_picture, score_picture

TITLE = "puorl demo"
_ORDER = ("pu", "oracle", "olp", "sharing_all")
"""Of the curves; the first has a full line."""
_AIR = 0.06
_SPACE = Markup('<div style="height:.8rem"></div>')


def as_page(plan: Plan, data: Data, filtered: Filtered, trained: Trained, *, command: str) -> str:
    """The whole story as a self-contained HTML page.

    Args:
        plan: How large everything was.
        data: Chapter one.
        filtered: Chapter two.
        trained: Chapter three.
        command: What was typed, for those who want to do it again.
    """
    lead = (
        f"Seed {plan.setting.split_seed}. {as_count(plan.setting.rows)} rows, "
        f"{plan.num_seeds} policies for each of {len(TITLES)} methods."
    )
    return page.document(
        TITLE,
        _answer(trained),
        page.section("What was asked", page.paragraph(words.asked(plan))),
        _data(data),
        _filter(plan, filtered),
        _kept(data, filtered),
        _training(plan, trained),
        _scaled_down(plan, filtered),
        _reproduce(plan, data, filtered, trained, command),
        lead=lead,
    )


def _answer(trained: Trained) -> Markup:
    good = words.is_as_hoped(trained)
    headline = (
        "Within noise of knowing which rows are ours, and above both others"
        if good
        else "Not what the method promises, at this size and seed"
    )
    return page.banner("good" if good else "caution", "Result", headline, words.conclusion(trained))


def _data(data: Data) -> Markup:
    rows = []
    for number, dataset in enumerate(data.sources):
        about, episode = dataset.provenance, dataset.episode
        num_episodes = 0 if episode is None else len(set(episode.tolist()))
        rows.append(
            (
                str(about.domain),
                "ours" if number == 0 else "another machine",
                str(about.behaviour),
                as_count(len(dataset)),
                as_count(num_episodes),
            )
        )
    split = data.split
    return page.section(
        "The data",
        page.table(
            "What was recorded in the simulator",
            ("Domain", "Whose", "Policy", "Rows", "Episodes"),
            rows,
            numeric=(3, 4),
        ),
        page.paragraph(
            f"All rows were mixed and their origin hidden. {as_count(len(split.labelled))} rows, "
            f"drawn at random from ours, keep their label; {as_count(len(split.unlabelled))} have "
            "none. From here on only Oracle, and the columns called truth, know more."
        ),
    )


def _filter(plan: Plan, filtered: Filtered) -> Markup:
    report = filtered.report
    check = report.shortcut
    auroc = auroc_picture(
        "Separation with all inputs and with behaviour alone",
        {"all inputs": check.auroc, "behaviour (s, a) alone": check.auroc_behaviour},
    )
    figures = (
        (score_picture(report.histogram), "Labelled rows were scored by networks that had not "
         "seen them. A second heap at low scores is what the filter takes for the other machine."),
        (history_picture(report), "The filter's estimate of the share of our rows. A line that "
         "has become level has settled."),
        (alpha_picture(report), "Two ways of estimating the share of our rows, with 95 % "
         "intervals."),
        (auroc, "Chance that a labelled row scores above an unlabelled one: with all "
         "inputs, and by state and action alone."),
    )  # fmt: skip
    drawn = [page.figure(picture, caption) for picture, caption in figures if picture]
    return page.section(
        "The filter, without labels",
        page.paragraph(f"Verdict: {report.verdict.replace('_', ' ')}. {report.advice}"),
        page.join((page.warning_list(report.warnings), _SPACE)) if report.warnings else Markup(""),
        page.paragraph(words.report_note(plan, filtered)),
        page.side_by_side(*drawn),
    )


def _kept(data: Data, filtered: Filtered) -> Markup:
    quality, truth = filtered.report.quality, filtered.truth
    tiles = (
        _tile("Recall", quality.recall, truth.recall, "Share of our rows that was kept."),
        _tile("Precision", quality.precision, truth.precision, "Share of kept rows that is ours."),
        _tile("Purity", quality.purity, truth.purity, "The same, labelled rows included."),
    )
    picture = charts.histogram(
        "Scores of the unlabelled rows by their true origin",
        f"The filter is right about {as_percent(truth.accuracy)} of the unlabelled rows.",
        edge=truth.score_edge,
        fraction={"truly ours": truth.score_target, "the other machine's": truth.score_other},
        x_label="score",
        y_label="share of rows, square-root axis",
        scale="sqrt",
    )
    table = page.table(
        "Estimated without labels, and what is true",
        ("Number", "Estimate", "95 % interval", "Truth"),
        [(*row[:3], f"{row[3]}, {row[4]}") for row in words.estimates(filtered)],
        numeric=(1, 2, 3),
    )
    return page.section(
        "What was kept, and the truth beside it",
        page.paragraph(words.row_counts(data, filtered) + "."),
        page.tiles(tiles),
        page.side_by_side(
            page.group(table),
            page.figure(picture, "Now with the labels that the filter never saw."),
        ),
    )


def _tile(name: str, measured: Estimate, truth: float, meaning: str) -> Tile:
    ends = as_percent_range(measured.low, measured.high)
    return Tile(
        name,
        as_percent(measured.value),
        meaning,
        interval=f"{f'95 % interval: {ends}; ' if ends else ''}truth: {as_percent(truth)}",
        picture=charts.interval_strip(measured.value, measured.low, measured.high),
    )


def _training(plan: Plan, trained: Trained) -> Markup:
    table = page.table(
        f"Final scores: mean and 95 % interval over {plan.num_seeds} policies, "
        f"{words.judged(plan)}",
        ("Method", "Rows", "Truly ours", "Score", "PU minus it"),
        words.results(trained),
        numeric=(1, 2, 3),
    )
    lost = words.given_up(trained)
    return page.section(
        "Training on what was kept",
        page.paragraph(
            "The same learner (TD3+BC) is trained on four choices of rows, and every policy is run "
            f"on our machine in the simulator. {words.SCORE}"
        ),
        page.terms({title: f"{words.MEANINGS[name]}." for name, title in TITLES.items()}),
        _SPACE,
        page.side_by_side(
            page.figure(_curves(trained), "Means over policies, with 95 % intervals."),
            page.figure(_dots(trained), "Final scores, with 95 % intervals."),
        ),
        table,
        page.warning_list(lost) if lost else Markup(""),
    )


def _curves(trained: Trained) -> Markup:
    lines = []
    for name in _ORDER:
        points = [SampleSummary.of(each) for each in trained.curves[name]]
        lines.append(
            charts.Line(
                TITLES[name],
                [step / 1000 for step in trained.steps],
                [point.mean for point in points],
                low=[point.estimate.low for point in points],
                high=[point.estimate.high for point in points],
                end=f"{points[-1].mean:.0f}",
            )
        )
    return charts.lines(
        "Learning curves",
        "; ".join(f"{line.name} ends at {line.end}" for line in lines),
        line=lines,
        x_label="updates, thousands",
        y_label="score",
    )


def _dots(trained: Trained) -> Markup:
    dots = []
    for name in _ORDER:
        each = trained.summary(name)
        dots.append(charts.Dot(TITLES[name], each.estimate, words.with_half(each)))
    ends = [v for each in dots for v in (each.value, each.low, each.high) if math.isfinite(v)]
    air = _AIR * (max(ends) - min(ends)) or 1.0
    return charts.dots(
        "Final scores",
        "; ".join(f"{each.name}: {each.text}" for each in dots),
        dot=dots,
        low=min(min(ends) - air, 0.0),
        high=max(ends) + air,
        x_label="normalised score",
    )


def _scaled_down(plan: Plan, filtered: Filtered) -> Markup:
    return page.section(
        "What was scaled down",
        page.paragraph(
            "Everything is the real thing, only smaller, so that it takes minutes on two cores. "
            f"{words.filter_settings(filtered)} Scores are not the paper's: puorl bench is for "
            "those."
        ),
        page.table(
            "Sizes here and in the paper",
            ("Size", "Demo", "Paper"),
            words.scaled_down(plan),
            numeric=(1, 2),
        ),
    )


def _reproduce(
    plan: Plan, data: Data, filtered: Filtered, trained: Trained, command: str
) -> Markup:
    whole = to_dict(plan, data, filtered, trained)
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
        page.folded("All results as JSON", _json(whole)),
    )


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
