"""The page's part on training: learning curves, and evaluations of the policies."""

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from puorl.core.errors import DataError
from puorl.core.stats import Estimate, mean_estimate
from puorl.html import charts, page
from puorl.html.page import Markup, as_count, as_estimate
from puorl.rl.policy import Policy
from puorl.run_report.folders import Curve, Evaluated, Scored, Training

_EVALUATED = ("score", "return")
"""Metrics of evaluations; the others are metrics of training."""
_SPREAD = ("return_std",)
_MOST_FIGURES, _MOST_DOTS = 12, 12
_THOUSANDS = 10_000
SCORE = "D4RL's normalised score: 0 is its random policy, 100 its expert."


def name_of(path: str) -> str:
    """Return a folder's own name."""
    return Path(path).resolve().name


def training_sections(trainings: Sequence[Training]) -> list[Markup]:
    """Draw the learning curves of every run."""
    if not trainings:
        words = "No folder of puorl train was named, so nothing is said about policies here."
        return [page.section("Training", page.paragraph(words))]
    return [_evaluated_curves(trainings), *(_losses(each) for each in trainings)]


def evaluation_sections(
    evaluations: Sequence[Evaluated], trainings: Sequence[Training]
) -> list[Markup]:
    """Show a table and a picture of every evaluation; without any, the metrics of training."""
    if evaluations:
        return [_evaluation(each) for each in evaluations]
    if not trainings:
        return []
    rows = [row for training in trainings for row in _last_rows(training)]
    how = "puorl evaluate RUN --env ENV --out RUN/evaluation.json"
    if not rows:
        words = (
            f"The policies have not been run anywhere. {how} does that; then make this page again."
        )
        return [page.section("How good are they?", page.paragraph(words))]
    header = ("Policy", "Return", "Deviation", "Score")
    table = page.table("At the end of training", header, rows, numeric=(1, 2, 3))
    known = [env for each in trainings if (env := each.record.last.env) is not None]
    where = (
        f"in {', '.join(dict.fromkeys(known))}"
        if known
        else "in a domain that the folder does not name"
    )
    words = (
        f"These numbers were measured while training (--env), {where}, over few episodes. For "
        f"more: {how}"
    )
    return [page.section("How good are they?", table, page.paragraph(words))]


def final_tile(each: Evaluated, group: str, members: Sequence[Scored]) -> page.Tile:
    """Show the mean over a run's policies."""
    scored = all(member.scores is not None for member in members)
    mean = _mean(members, scored=scored)
    digits = 1 if scored else 0
    return page.Tile(
        f"{'Score' if scored else 'Return'} in {each.env}",
        f"{mean.value:,.{digits}f}",
        f"{_group_name(group)}: {policies_text(len(members))}, {as_count(each.episodes)} episodes "
        "each.",
        interval=(
            f"95 % interval: {mean.low:,.{digits}f} to {mean.high:,.{digits}f}"
            if len(members) > 1
            else "one policy, no interval"
        ),
    )


# ------------------------------------------------------------------------------- curves


def _evaluated_curves(trainings: Sequence[Training]) -> Markup:
    figures = []
    for metric in _EVALUATED:
        shown = [each for each in trainings if _num_points(each.metrics.get(metric, {})) > 1]
        if shown:
            lines = {each.path: each.metrics[metric] for each in shown}
            title = f"{metric.capitalize()} over training"
            words = "Normalised score" if metric == "score" else "Return"
            caption = f"{words} of the policies during training: mean and range over seeds."
            figures.append(page.figure(_picture(title, lines, y_label=metric), caption))
    if not figures:
        words = "No evaluation during training is recorded: use puorl train --env ENV --eval-every."
        return page.section("Learning curves", page.paragraph(words))
    return page.section("Learning curves", page.side_by_side(*figures))


def _losses(training: Training) -> Markup:
    curves = {n: each for n, each in training.metrics.items() if n not in (*_EVALUATED, *_SPREAD)}
    lost = [
        f"{name} was given up at step {as_count(stop.step)}: {stop.reason}"
        for name, stop in training.record.stopped.items()
    ]
    parts = [page.warning_list(lost)] if lost else []
    if columns := _columns(training):
        parts.append(page.paragraph(f"Columns that go in and come out, in order: {columns}."))
    missing = len(training.settings.lanes) - len(training.policies) - len(lost)
    if missing > 0:
        text = (
            f"{policies_text(missing)} of {len(training.settings.lanes)} not finished: the run has "
            "not ended, and the same puorl train command resumes it."
        )
        parts.append(page.paragraph(text))
    drawn = [name for name, lanes in curves.items() if _num_points(lanes) > 1][:_MOST_FIGURES]
    if drawn:
        parts.append(page.side_by_side(*(_loss_figure(training, name) for name in drawn)))
    rows = [_last_values(name, curves[name]) for name in curves if name not in drawn]
    if rows:
        header = ("Value", "Mean", "Lowest", "Highest")
        parts.append(page.table("At the last point, over seeds", header, rows, numeric=(1, 2, 3)))
    if not curves:
        parts.append(page.paragraph("No losses are recorded."))
    heading = f"Losses and values: {name_of(training.path)} ({training.settings.learner})"
    return page.section(heading, *parts)


def _columns(training: Training) -> str:
    """Read the names of columns from the first policy; empty if there is none or it is damaged."""
    for path in list(training.policies.values())[:1]:
        with contextlib.suppress(DataError):
            return Policy.load(path).columns_text
    return ""


def _loss_figure(training: Training, name: str) -> Markup:
    several = len(training.settings.lanes) > 1
    picture = _picture(
        f"{name} of {name_of(training.path)}",
        {name: training.metrics[name]},
        y_label="mean over seeds" if several else "one seed",
    )
    return page.figure(picture, "The band is the range over seeds." if several else "")


def _last_values(name: str, lanes: dict[str, Curve]) -> tuple[str, ...]:
    last = max(step for curve in lanes.values() for step, _ in curve)
    found = [value for curve in lanes.values() for step, value in curve if step == last]
    known = [value for value in found if math.isfinite(value)]
    if not known:
        return name, *("not known",) * 3
    return name, *(_short(value) for value in (float(np.mean(known)), min(known), max(known)))


def _picture(title: str, series: dict[str, dict[str, Curve]], *, y_label: str) -> Markup:
    """Draw a line for each series: the mean over its policies, in a band from lowest to highest."""
    last = max(step for lanes in series.values() for curve in lanes.values() for step, _ in curve)
    unit = 1000 if last >= _THOUSANDS else 1
    lines = [_line(name, lanes, unit) for name, lanes in series.items()]
    x_label = "updates, thousands" if unit > 1 else "updates"
    return charts.lines(title, line=lines, x_label=x_label, y_label=y_label)


def _line(name: str, lanes: dict[str, Curve], unit: int) -> charts.Line:
    at: dict[int, list[float]] = {}
    for curve in lanes.values():
        for step, value in curve:
            at.setdefault(step, [])
            if math.isfinite(value):
                at[step].append(value)
    steps = sorted(at)
    means = [float(np.mean(at[step])) if at[step] else math.nan for step in steps]
    known = [value for value in means if math.isfinite(value)]
    return charts.Line(
        name,
        [step / unit for step in steps],
        means,
        low=[min(at[step], default=math.nan) for step in steps],
        high=[max(at[step], default=math.nan) for step in steps],
        end=_short(known[-1]) if known else "",
    )


def _short(value: float) -> str:
    """Format three digits, or all before the decimal point.

    >>> [_short(x) for x in (0.04917, -2.4512, 1358.7, 3.2e9)]
    ['0.0492', '-2.45', '1,359', '3.2e+09']
    """
    if abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.1e}"


def _num_points(lanes: dict[str, Curve]) -> int:
    steps = {step for curve in lanes.values() for step, value in curve if math.isfinite(value)}
    return len(steps)


# -------------------------------------------------------------------------- evaluations


def _evaluation(each: Evaluated) -> Markup:
    scored = all(member.scores is not None for member in each.policies)
    header = ("Policy", "Return", "Deviation", *(["Score"] if scored else []), "Length")
    rows = [_row(member, scored=scored) for member in each.policies]
    caption = (
        f"{policies_text(len(each.policies))} in {each.env}, {as_count(each.episodes)} episodes "
        f"each, start states of seed {each.seed}"
    )
    notes = [_mean_text(group, members, scored=scored) for group, members in each.groups.items()]
    if scored:
        notes.append(f"Score: {SCORE}")
    figure = page.figure(
        _dots(each, scored=scored), "Means with 95 % intervals over seeds, then each policy."
    )
    return page.section(
        f"How good are they? {each.env}",
        page.table(caption, header, rows, numeric=range(1, len(header))),
        page.side_by_side(page.group(*map(page.paragraph, notes)), figure),
    )


def _row(member: Scored, *, scored: bool) -> tuple[str, ...]:
    returns = np.array(member.returns)
    numbers = [f"{returns.mean():,.1f}", f"± {returns.std():,.1f}"]
    numbers += [f"{_mean([member], scored=True).value:.1f}"] if scored else []
    return _policy_name(member), *numbers, f"{np.mean(member.lengths):,.0f}"


def _mean_text(group: str, members: Sequence[Scored], *, scored: bool) -> str:
    if len(members) < 2:
        return ""
    parts = []
    for name, by_score in (("return", False), ("score", True))[: 2 if scored else 1]:
        seen = _mean(members, scored=by_score)
        parts.append(f"{name} {seen.value:,.1f} ({seen.low:,.1f} to {seen.high:,.1f})")
    return (
        f"{_group_name(group)}: mean of {len(members)} policies with its 95 % interval over seeds: "
        f"{', '.join(parts)}."
    )


def _dots(each: Evaluated, *, scored: bool) -> Markup:
    groups = [(f"mean of {_group_name(g)}", own) for g, own in each.groups.items() if len(own) > 1]
    groups += [(_policy_name(member), [member]) for member in each.policies]
    means = [(name, _mean(members, scored=scored)) for name, members in groups]
    dots = [charts.Dot(name, mean, as_estimate(mean)) for name, mean in means]
    title = f"Mean {'score' if scored else 'return'} in {each.env}"
    label = "normalised score" if scored else "return"
    return charts.dots(title, dot=dots[:_MOST_DOTS], x_label=label)


def _last_rows(training: Training) -> list[tuple[str, ...]]:
    """Read the metrics after the last update, a row for each policy."""
    rows = []
    for name in training.settings.lanes:
        curves = [training.metrics.get(m, {}).get(name, []) for m in ("return", *_SPREAD, "score")]
        last = [curve[-1][1] if curve else math.nan for curve in curves]
        if math.isfinite(last[0]):
            texts = [f"{value:,.1f}" if math.isfinite(value) else "not known" for value in last]
            rows.append((f"{name_of(training.path)}/{name}", texts[0], f"± {texts[1]}", texts[2]))
    return rows


def _mean(members: Sequence[Scored], *, scored: bool) -> Estimate:
    """Average the policies' mean scores or returns."""
    values = (each.scores if scored and each.scores else each.returns for each in members)
    return mean_estimate([float(np.mean(each)) for each in values])


def _policy_name(member: Scored) -> str:
    stem = Path(member.policy).stem
    return f"{_group_name(member.group)}/{stem}" if member.group else stem


def _group_name(group: str) -> str:
    return name_of(group) if group else "policies"


def policies_text(number: int) -> str:
    """Count policies."""
    return f"{as_count(number)} {'policy' if number == 1 else 'policies'}"
