"""The benchmark's pictures as SVG: scores, learning curves, and methods over all settings."""

import math
from collections.abc import Iterable, Mapping, Sequence

from puorl.bench.reporting.aggregates import Aggregate
from puorl.bench.reporting.comparisons import DARA, IGDF, OLP, ORACLE, PU, SHARING_ALL
from puorl.bench.reporting.overview import Overview
from puorl.bench.reporting.results import Cell, Named, Results, Task
from puorl.bench.stats import Difference, Summary, difference
from puorl.core import drawing
from puorl.core.page import Markup

PANELS = ((PU, ORACLE, OLP, SHARING_ALL), (PU, ORACLE, DARA, IGDF))
"""Four curves can be told apart in one picture, six cannot: PU and Oracle are in both."""
_AIR = 0.06


def score_picture(results: Results, task: Task) -> Markup:
    """Every method's mean and interval in one setting; nothing where there is no run."""
    digits = 0 if task.group in results.in_returns else 1
    dots = [
        _score_dot(method, summary, digits)
        for method in results.methods
        if (summary := results.summary(task, method))
    ]
    if not dots:
        return Markup("")
    low, high = _range(v for each in dots for v in (each.value, each.low, each.high))
    number = "return" if task.group in results.in_returns else "normalised score"
    return drawing.dots(
        f"Scores: {task.title}",
        _words(dots),
        dot=dots,
        low=min(low, 0.0),
        high=high,
        x_label=f"{number}, mean and 95 % interval",
    )


def difference_picture(results: Results, task: Task) -> Markup:
    """PU minus every other method in one setting; nothing where there are no intervals."""
    ours = results.summary(task, PU)
    dots = [
        _difference_dot(method, difference(ours, summary))
        for method in results.methods
        if ours and method != PU and (summary := results.summary(task, method))
    ]
    if not any(math.isfinite(each.low) for each in dots):
        return Markup("")
    low, high = _range(v for each in dots for v in (each.value, each.low, each.high))
    return drawing.dots(
        f"Differences: {task.title}",
        _words(dots),
        dot=dots,
        low=min(low, 0.0),
        high=max(high, 0.0),
        x_label="difference of means, Welch's 95 % interval",
        mark=(0.0, "no difference"),
    )


def curve_pictures(results: Results, task: Task) -> tuple[Markup, ...]:
    """Learning curves of one setting, at most four methods a picture, all on one scale."""
    curves = {
        method: points
        for method in results.methods
        if (cell := results.cells.get((task, method))) and (points := _curve(cell))
    }
    places = [step for points in curves.values() for step in points]
    if len(set(places)) < 2:
        return ()
    values = (
        value
        for points in curves.values()
        for each in points.values()
        for value in (each.mean, each.low, each.high)
    )
    room = _range(values)
    pictures = []
    for number, panel in enumerate(_panels(tuple(curves)), start=1):
        lines = [_line(method, curves[method], room) for method in panel]
        pictures.append(
            drawing.lines(
                f"Learning curves {number}: {task.title}",
                "; ".join(f"{each.name} ends at {each.end}" for each in lines),
                line=lines,
                x_label="updates, thousands",
                y_label="score",
            )
        )
    return tuple(pictures)


def iqm_picture(overview: Overview) -> Markup:
    """Interquartile means with their intervals; nothing where there is none."""
    if not overview.iqm:
        return Markup("")
    dots = [_aggregate_dot(m.title, each, 1) for m, each in overview.iqm.items()]
    low, high = _range(v for each in dots for v in (each.value, each.low, each.high))
    return drawing.dots(
        f"Interquartile mean: {overview.scope}",
        _words(dots),
        dot=dots,
        low=min(low, 0.0),
        high=high,
        x_label="interquartile mean of the score",
    )


def improvement_picture(overview: Overview) -> Markup:
    """Chances that PU beats each method; nothing where there is none."""
    if not overview.improvement:
        return Markup("")
    dots = [_aggregate_dot(f"over {m.title}", each, 2) for m, each in overview.improvement.items()]
    return drawing.dots(
        f"Probability of improvement: {overview.scope}",
        _words(dots),
        dot=dots,
        low=0.0,
        high=1.0,
        x_label="chance that a run of PU is the better one",
        mark=(0.5, "neither is better"),
    )


def _panels(methods: Sequence[Named]) -> list[list[Named]]:
    panels = [[m for m in panel if m in methods] for panel in PANELS]
    # A panel of what both have in common shows nothing new.
    panels = [panel for panel in panels if set(panel) - {PU, ORACLE}] or panels[:1]
    rest = [m for m in methods if not any(m in panel for panel in PANELS)]
    panels += [rest[start : start + 4] for start in range(0, len(rest), 4)]
    return [panel for panel in panels if panel]


def _curve(cell: Cell) -> dict[float, Summary]:
    """Updates to the mean over training seeds, where every run has a point."""
    runs = [dict(run.curve) for run in cell.runs if run.curve]
    common = sorted(set.intersection(*map(set, runs))) if runs else []
    return {step: Summary.of([run[step] for run in runs]) for step in common}


def _line(
    method: Named, points: Mapping[float, Summary], room: tuple[float, float]
) -> drawing.Line:
    each = list(points.values())
    # The last point lies nowhere: its band alone gives all pictures of a setting the same axis.
    return drawing.Line(
        method.title,
        (*(step / 1000 for step in points), math.nan),
        (*(point.mean for point in each), math.nan),
        low=(*(point.low for point in each), room[0]),
        high=(*(point.high for point in each), room[1]),
        end=f"{each[-1].mean:.0f}",
    )


def _score_dot(method: Named, summary: Summary, digits: int) -> drawing.Dot:
    text = f"{summary.mean:,.{digits}f}"
    if not math.isnan(summary.half):
        text += f" ± {summary.half:,.{digits}f}"
    return drawing.Dot(method.title, summary.mean, summary.low, summary.high, text)


def _difference_dot(method: Named, seen: Difference) -> drawing.Dot:
    text = f"{seen.value:+,.1f}"
    if math.isfinite(seen.low):
        text += f" ({seen.low:+,.1f} to {seen.high:+,.1f})"
    return drawing.Dot(f"PU minus {method.title}", seen.value, seen.low, seen.high, text)


def _aggregate_dot(name: str, seen: Aggregate, digits: int) -> drawing.Dot:
    text = f"{seen.value:.{digits}f} ({seen.low:.{digits}f}–{seen.high:.{digits}f})"
    return drawing.Dot(name, seen.value, seen.low, seen.high, text)


def _words(dots: Sequence[drawing.Dot]) -> str:
    return "; ".join(f"{each.name}: {each.text}" for each in dots)


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    air = _AIR * (high - low) or 1.0
    return low - air, high + air
