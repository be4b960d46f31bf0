"""The pictures of a FilterReport: alpha, its course, the scores, and how well rows separate."""

import math

from puorl.core import drawing
from puorl.core.page import Markup, as_percent, as_percent_range, shorten
from puorl.pu.mpe.estimate import AlphaEstimate
from puorl.pu.report import FilterReport, Histogram, Measured

CHANCE = 0.5
"""The separation of rows that cannot be told apart."""
_SPIKY = 0.25  # a bin this full flattens all others on a linear axis
_LONGEST_NAME = 80
_NARROWEST = 0.1  # of the axis of alpha: small differences should look small


def alpha_picture(report: FilterReport) -> Markup:
    """Every estimate of alpha with its interval; nothing where there is no estimate."""
    dots = [_alpha_dot(estimate, own=not index) for index, estimate in enumerate(report.alphas)]
    if not dots:
        return Markup("")
    low, high = _zoom([value for each in dots for value in (each.value, each.low, each.high)])
    return drawing.dots(
        "Estimates of alpha",
        _words(dots),
        dot=dots,
        low=low,
        high=high,
        x_label="alpha, share of the unlabelled rows",
        percent=True,
    )


def history_picture(report: FilterReport) -> Markup:
    """Alpha after each epoch, with the band of the final estimate; nothing if none is known."""
    history = report.alpha_history
    known = [value for value in history if math.isfinite(value)]
    if not known:
        return Markup("")
    num_epochs = len(history)
    interval = report.alphas[0].interval if report.alphas else None
    line = drawing.Line(
        "alpha after each epoch",
        tuple(range(1, num_epochs + 1)),
        history,
        low=(interval[0],) * num_epochs if interval else (),
        high=(interval[1],) * num_epochs if interval else (),
        end=as_percent(known[-1]),
    )
    return drawing.lines(
        "Alpha over the epochs",
        f"Alpha after each of {num_epochs} epochs; the last is {as_percent(known[-1])}.",
        line=[line],
        x_label="epoch",
        y_label="alpha",
        percent=True,
    )


def score_picture(bins: Histogram) -> Markup:
    """Scores of labelled and unlabelled rows, one over the other; nothing without bins."""
    if len(bins.edge) < 2:
        return Markup("")
    spiky = max((*bins.labelled, *bins.unlabelled)) > _SPIKY
    return drawing.histogram(
        "Scores of labelled and unlabelled rows",
        f"In bins from 0.5 upwards lie {_upper_share(bins, bins.labelled)} of the labelled and "
        f"{_upper_share(bins, bins.unlabelled)} of the unlabelled rows.",
        edge=bins.edge,
        share={"labelled (held out)": bins.labelled, "unlabelled": bins.unlabelled},
        x_label="score",
        y_label="share of rows" + (", square-root axis" if spiky else ""),
        scale="sqrt" if spiky else "linear",
    )


def separation_picture(title: str, measured: dict[str, Measured]) -> Markup:
    """Separations between a coin toss and 1, each under its name."""
    dots = [_separation_dot(name, each) for name, each in measured.items()]
    known = [value for each in dots for value in (each.value, each.low) if math.isfinite(value)]
    return drawing.dots(
        title,
        _words(dots),
        dot=dots,
        low=math.floor(20 * min((CHANCE, *known))) / 20,
        high=1.0,
        x_label="separation",
        mark=(CHANCE, "a coin toss"),
    )


def _alpha_dot(estimate: AlphaEstimate, *, own: bool) -> drawing.Dot:
    low, high = estimate.interval or (math.nan, math.nan)
    ends = as_percent_range(low, high)
    method = shorten(estimate.method, _LONGEST_NAME)
    return drawing.Dot(
        f"{method} (the filter's method)" if own else method,
        estimate.value,
        low,
        high,
        as_percent(estimate.value) + (f" ({ends})" if ends else ""),
    )


def _separation_dot(name: str, measured: Measured) -> drawing.Dot:
    value, low, high = measured.value, measured.low, measured.high
    text = f"{value:.3f}" if math.isfinite(value) else "not known"
    if math.isfinite(low) and math.isfinite(high):
        text += f" ({low:.3f}–{high:.3f})"
    return drawing.Dot(name, value, low, high, text)


def _words(dots: list[drawing.Dot]) -> str:
    return "; ".join(f"{each.name}: {each.text}" for each in dots)


def _upper_share(bins: Histogram, share: tuple[float, ...]) -> str:
    # A bin counts by its left edge, so that none is counted in part.
    pairs = zip(share, bins.edge[:-1], strict=True)
    # Rounding may lift the sum of all bins above 1.
    return as_percent(min(sum(each for each, left in pairs if left >= CHANCE), 1.0))


def _zoom(values: list[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    air = max(0.15 * (high - low), (_NARROWEST - (high - low)) / 2)
    return max(low - air, 0.0), min(high + air, 1.0)
