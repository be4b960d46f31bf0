"""The demo's texts and page: question, data, filter compared with the truth, training, result.

The terminal prints the same texts and numbers as the page shows.
"""

import json
import math
from pathlib import Path
from typing import Any

from puorl.core.files import write_json
from puorl.core.run_folder import REPORT_PAGE, UNITS
from puorl.core.stats import mean_estimate
from puorl.demo.study import CONTROLLERS, TITLES, Data, DemoSettings, Filtered, Trained, to_dict
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
from puorl.pu.unit_table import write_units

SCORE = "D4RL's normalised score: 0 is its random policy, 100 its expert."
MEANINGS = {
    "olp": "only the rows of the known robot",
    "sharing_all": "all rows, as if all robots were sound",
    "pu": "the rows of the known robot and of those that the filter kept",
    "oracle": "the rows of all robots that truly are sound, which is unknown in practice",
}
"""The rows on which each method trains."""
_BASELINES = ("olp", "sharing_all")
"""Methods that PU is meant to beat."""
_ORDER = ("pu", "oracle", "olp", "sharing_all")
"""Order of the curves; the first has a full line."""
_SPACE = Markup('<div style="height:.8rem"></div>')


# -------------------------------------------------------------------------------- texts


def question(settings: DemoSettings, data: Data) -> str:
    """State the question for the robots at hand."""
    joint, _, strength = settings.weakness.partition(":")[2].partition("=")
    return (
        f"A fleet of {len(data.robots)} {settings.body} robots has left a log of "
        f"{len(data.split.pool):,} rows. All look alike, and the parts of each differ by up to "
        f"{as_percent(settings.wear, digits=0)}. But in some of them the motor {joint} is weak: it "
        f"gives {as_percent(float(strength), digits=0)} of its torque. Nobody wrote down in which. "
        f"Several controllers drove them; weak ones mostly ran a test signal. One robot, "
        f"{data.known}, was looked at and is sound. Which others are? And can we train a policy "
        "for sound robots as well as if we knew?"
    )


def evaluation(settings: DemoSettings) -> str:
    """Describe the final evaluation, which does not depend on the length of the runs."""
    limit = body(settings.body).max_steps
    return f"{settings.episodes} episodes each in the task's usual length, {limit:,} steps at most"


def sizes(settings: DemoSettings) -> list[tuple[str, str, str]]:
    """List sizes here and in the paper: name, demo, paper."""
    return [
        ("rows", f"{settings.num_rows:,}", "1,000,000"),
        ("steps of a run, at most", f"{settings.horizon:,}", "1,000"),
        ("hidden layers", ", ".join(map(str, settings.hidden)), "256, 256"),
        ("rows in a batch", str(settings.batch_size), "256"),
        ("updates", f"{settings.steps:,}", "1,000,000"),
        ("policies for each method", str(settings.num_seeds), "10"),
    ]


def filter_settings(filtered: Filtered) -> str:
    """Say whether the filter has its default settings."""
    usual = filtered.report.settings["preset"] == "default"
    which = "its default settings" if usual else "fewer and smaller models than by default"
    return f"The filter has {which}."


def estimates(filtered: Filtered) -> list[tuple[str, str, str, str, str]]:
    """List name, label-free estimate, interval, truth, and whether the interval contains it."""
    rows = [
        (name, getattr(filtered.report, name), getattr(filtered.truth, name))
        for name in ("alpha", "recall", "precision")
    ]
    return [
        (
            name,
            as_percent(found.value),
            as_percent_range(found.low, found.high),
            as_percent(true),
            _inside(found.low, found.high, true),
        )
        for name, found, true in rows
    ]


def decisions(data: Data, filtered: Filtered) -> str:
    """Count the decisions, and those that are right."""
    truth, kept = filtered.truth, filtered.filter.units_.keep
    return (
        f"{int(kept.sum()) - 1} of the {truth.num_asked} other robots were kept with "
        f"{data.known}. The filter is right about {truth.num_right} of {truth.num_asked}"
    )


def results(trained: Trained) -> list[tuple[str, str, str, str, str]]:
    """List method, number of its rows, fraction of sound robots' rows, score, and PU minus it."""
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


def write(
    folder: Path,
    settings: DemoSettings,
    data: Data,
    filtered: Filtered,
    trained: Trained,
    *,
    command: str,
) -> dict[str, Any]:
    """Write page, units, numbers and policies into a folder; return all numbers, JSON-ready."""
    html = as_page(settings, data, filtered, trained, command=command)
    (folder / REPORT_PAGE).write_text(html, encoding="utf-8")
    write_units(folder / UNITS, filtered.report.units)
    for name, made in trained.policies.items():
        for policy in made:
            number = policy.metadata["seed"]
            policy.save(folder / "policies" / f"{name}-seed-{number}.safetensors")
    results = to_dict(settings, data, filtered, trained)
    write_json(folder / "results.json", results)
    return results


def as_page(
    settings: DemoSettings, data: Data, filtered: Filtered, trained: Trained, *, command: str
) -> str:
    """Make a self-contained HTML page of all stages; ``command`` is shown for repeating it."""
    good, whole = is_expected(trained), to_dict(settings, data, filtered, trained)
    headline = (
        "Within noise of knowing which robots are sound, and above both others"
        if good
        else "Not what the method promises, at this size and seed"
    )
    verdict, *rest = as_sections(filtered.report)
    return page.document(
        "puorl demo",
        page.banner("good" if good else "caution", "Result", headline, conclusion(trained)),
        page.section("The question", page.paragraph(question(settings, data))),
        _data(data),
        page.section("The filter, from one known robot", verdict),
        *rest,
        _beside_truth(data, filtered),
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
        lead=f"Seed {settings.seed}. {as_count(len(data.robots))} robots, "
        f"{as_count(len(data.split.pool))} rows, {settings.num_seeds} policies for each of "
        f"{len(TITLES)} methods.",
    )


def _data(data: Data) -> Markup:
    rows = []
    for is_sound, name in ((True, "sound"), (False, "weak motor")):
        own = [robot for robot in data.robots if robot.is_sound == is_sound]
        runs = [as_count(sum(robot.runs[k] for robot in own)) for k in range(len(CONTROLLERS))]
        rows.append((name, as_count(len(own)), *runs))
    header = ("Robots", "Number", *(f"Runs, {each.name}" for each in CONTROLLERS))
    return page.section(
        "The data",
        page.movable(
            page.table("Recorded in the simulator", header, rows, numeric=(1, 2, 3, 4)),
            "Recorded runs",
        ),
        page.paragraph(
            "The log names the robot of every row, and neither its motor nor its controller. From "
            "here on only Oracle, and what is called truth, use more."
        ),
    )


def _beside_truth(data: Data, filtered: Filtered) -> Markup:
    sound = {robot.name for robot in data.robots if robot.is_sound}
    groups = [len(sound), len(data.robots) - len(sound)]
    picture = charts.scatter(
        "The same map with the truth",
        f"{groups[0]} robots are sound, {groups[1]} have a weak motor.",
        points=[
            charts.ScatterPoint(
                row.name, row.x, row.y, 2 * row.spread, int(row.name not in sound), row.labelled
            )
            for row in filtered.report.units
        ],
        groups=[f"sound ({groups[0]})", f"weak motor ({groups[1]})"],
        x_label="from ours to the nearest other type, in deviations",
        y_label="across, in deviations",
    )
    table = page.table(
        "Estimated from one known robot, and the truth",
        ("Number", "Estimate", "95 % interval", "Truth"),
        [(*row[:3], f"{row[3]}, {row[4]}") for row in estimates(filtered)],
        numeric=(1, 2, 3),
    )
    return page.section(
        "Compared with the truth",
        page.paragraph(decisions(data, filtered) + "."),
        page.side_by_side(
            page.group(table),
            page.figure(picture, "Marked by what the filter did not know."),
        ),
    )


def _training(settings: DemoSettings, trained: Trained) -> Markup:
    lost = given_up(trained)
    return page.section(
        "Training on what was kept",
        page.paragraph(
            "The same learner (TD3+BC) is trained on four choices of rows, and every policy is run "
            f"on a sound robot in the simulator. {SCORE}"
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
            ("Method", "Rows", "Truly sound", "Score", "PU minus it"),
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
    rows.append(("hash of the log", whole["data"]["fingerprint"]))
    rows.append(("hash of the split", whole["data"]["split"]))
    rows += [(f"seconds for {name}", f"{spent:.0f}") for name, spent in whole["seconds"].items()]
    return page.section(
        "How to reproduce this",
        page.table("The same command and versions give the same numbers", ("What", "Value"), rows),
        page.folded("All results as JSON", json.dumps(whole, indent=2, ensure_ascii=False)),
    )
