"""Small SVG charts for pages: histograms, lines over time, dots with intervals, maps.

They are 360 units wide, so that text is readable on a phone. Colours are variables of the page's
stylesheet; fill, dashes and labels carry the same information as colour.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from puorl.core.formatting import as_dates
from puorl.core.stats import Estimate
from puorl.html.page import Markup, escape, join, shorten

Scale = Literal["linear", "sqrt", "dates"]
"""``dates`` are in seconds since 1970, and shown in UTC."""
_STEPS = tuple(
    unit * each
    for unit, most in ((1, (1, 2, 5, 10, 20, 30)), (60, (1, 2, 5, 10, 20, 30)))
    for each in most
) + tuple(3600 * each for each in (1, 2, 3, 6, 12))
"""Seconds between ticks of hours, minutes and seconds."""
_DAY = 86_400


@dataclass(frozen=True)
class Axis:
    """Map from values in [``low``, ``high``] to places from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    scale: Scale = "linear"

    def at(self, value: float) -> float:
        """Return the place of a value; values beyond an end are placed at that end."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        fraction = (self._scaled(min(max(value, self.low), self.high)) - low) / (high - low)
        return self.start + fraction * (self.end - self.start)

    def ticks(self, most: int) -> tuple[float, ...]:
        """Return at most ``most`` round numbers."""
        if self.scale == "linear":
            return nice_ticks(self.low, self.high, most)
        if self.scale == "dates":
            return date_ticks(self.low, self.high, most)
        # From the top down, each tick at a distance from the one above and from the lower end.
        top = math.floor(math.log10(self.high)) if self.high > 0 else 0
        rungs = [m * 10.0**k for k in range(top, top - 13, -1) for m in (5, 2, 1)]
        chosen = [self.low]
        gap = abs(self.end - self.start) / most
        for rung in rungs:
            inside = self.low <= rung <= self.high * (1 + 1e-9)
            if inside and all(abs(self.at(rung) - self.at(other)) >= gap for other in chosen):
                chosen.append(rung)
        return tuple(sorted(chosen))

    def _scaled(self, value: float) -> float:
        return math.sqrt(value) if self.scale == "sqrt" else value


def date_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return at most ``most`` round times of day in [low, high], or half as many longer texts.

    >>> date_ticks(3000.0, 12_000.0, 6)[::2], date_ticks(0.0, 1e6, 6)
    ((3600.0, 7200.0, 10800.0), (0.0, 432000.0, 864000.0))
    """
    days = (_DAY * m * 10**k for k in range(8) for m in (1, 2, 5))
    for step in (*_STEPS, *days):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < (most if 60 <= step < _DAY else most // 2):
            return tuple(float(step * k) for k in range(first, last + 1))
    return ()


def date_texts(ticks: Sequence[float]) -> list[str]:
    """Format ticks of dates: as days, or as times of day.

    >>> date_texts((3600.0, 7200.0)), date_texts((0.0, 86_400.0))
    (['01:00', '02:00'], ['1970-01-01', '1970-01-02'])
    """
    return [text.partition("T")[2] or text for text in as_dates(ticks, marked=False)]


def nice_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return at most ``most`` multiples of 1, 2 or 5 times a power of ten in [low, high].

    >>> nice_ticks(0.5, 1.0, 6)
    (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    """
    span = high - low
    # Where float64 cannot resolve steps, only the ends are marked.
    if not math.isfinite(span) or span <= 1e-9 * max(abs(low), abs(high), 1e-290):
        return (low,) if low == high else (low, high)
    power = math.floor(math.log10(span / most))
    steps = (m * 10.0**k for k in (power, power + 1, power + 2) for m in (1, 2, 5))
    # Multiples of each step inside the ends, with tolerance for rounding.
    pairs = ((s, range(math.ceil(low / s - 1e-9), math.floor(high / s + 1e-9) + 1)) for s in steps)
    step, multiples = next(pair for pair in pairs if len(pair[1]) <= most)
    digits = max(0, -math.floor(math.log10(step)))
    inside = (round(k * step, digits) if digits < 300 else k * step for k in multiples)
    return tuple(min(max(value, low), high) + 0.0 for value in inside)


def tick_texts(ticks: Sequence[float], *, percent: bool = False) -> list[str]:
    """Format ticks with the digits that distinguish them.

    >>> tick_texts((0.0, 0.5, 1.0)), tick_texts((0.25, 0.3), percent=True)
    (['0.0', '0.5', '1.0'], ['25 %', '30 %'])
    """
    values = [100 * tick for tick in ticks] if percent else list(ticks)
    unit = " %" if percent else ""
    largest = max((abs(value) for value in values), default=0.0)
    gaps = [abs(b - a) for a, b in zip(values, values[1:], strict=False) if a != b]
    smallest = min(gaps, default=largest)
    if largest >= 1e7 or (0 < smallest < 1e-4):
        return [f"{value:.3g}{unit}" for value in values]
    if gaps and max(gaps) - smallest > 1e-6 * smallest:
        # A scaled axis: each tick with its own digits.
        return [f"{value:,.4f}".rstrip("0").rstrip(".") + unit for value in values]
    enough = (d for d in range(6) if all(abs(round(v, d) - v) < 1e-7 for v in values))
    digits = next(enough, 6)
    return [f"{value:,.{digits}f}{unit}" for value in values]


WIDTH = 360.0
_LETTER = 7.6  # width of a letter at 13 units, rather too wide than too narrow
_STRONG = 1.2  # how much wider a strong one is
_TEXT = 13.0
_PLOT = 150.0  # height of the part between the axes
_RIGHT = WIDTH - 10
_MARGIN = 0.06  # between the values and the ends of an axis, as a fraction of their range


@dataclass(frozen=True)
class Line:
    """A line, with a band around it where ``low`` and ``high`` are given."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    """Values that are not finite leave a gap."""
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    end: str = ""
    """Text at the end of the line."""

    @classmethod
    def of(cls, name: str, x: Sequence[float], points: Sequence[Estimate]) -> "Line":
        """Make a line of estimates: intervals as the band, the last value as the text."""
        y, low, high = zip(*((each.value, each.low, each.high) for each in points), strict=True)
        return cls(name, x, y, low, high, end=f"{y[-1]:.0f}")


@dataclass(frozen=True)
class Dot:
    """An estimate with its interval, name and text."""

    name: str
    estimate: Estimate
    text: str
    """The number as text."""


@dataclass(frozen=True)
class ScatterPoint:
    """A point of a group, with a ring for how well it is known."""

    name: str
    x: float
    y: float
    radius: float
    """Of the ring, in the units of x and y."""
    group: int
    known: bool
    """Shown with its name."""


def histogram(
    title: str,
    description: str,
    *,
    edge: Sequence[float],
    fraction: dict[str, Sequence[float]],
    x_label: str,
    y_label: str,
    scale: Scale = "linear",
) -> Markup:
    """Draw two series in the same bins: the first as an area, the second as a dashed outline.

    Args:
        title: Short name of the chart.
        description: Text for screen readers.
        edge: Edges of the bins, one more than there are bins.
        fraction: Name to fraction of each bin.
        x_label: Quantity that is binned.
        y_label: Quantity of the heights.
        scale: ``sqrt`` shows small bins next to a spike.
    """
    heights = [height for each in fraction.values() for height in each if height > 0]
    key, above = _key(list(fraction), filled=1)
    y = Axis(0.0, 1.05 * max(heights, default=1.0), above + _PLOT, above, scale)
    frame, x = _frame(y, (edge[0], edge[-1]), x_label, y_label, y_percent=True)
    traces = [
        _steps(x, y, edge, each, "area s1 f1" if index == 0 else f"trace {_style(index)}")
        for index, each in enumerate(fraction.values())
    ]
    return _svg(title, description, above + _PLOT + 44, key, frame, *traces)


def lines(
    title: str,
    description: str = "",
    *,
    line: Sequence[Line],
    x_label: str,
    y_label: str,
    percent: bool = False,
    within: tuple[float, float] | None = None,
    x_scale: Scale = "linear",
) -> Markup:
    """Draw lines over a common axis, each with a text at its end.

    Args:
        title: Short name of the chart.
        description: Text for screen readers; by default where each line ends.
        line: The lines; from the fifth on styles repeat.
        x_label: Quantity along x.
        y_label: Quantity along y.
        percent: Format y as a fraction in percent.
        within: Values that the y axis contains in any case, for figures on one scale.
        x_scale: Scale of the x axis.
    """
    values = [v for each in line for v in (*each.y, *each.low, *each.high) if math.isfinite(v)]
    values += within or ()
    places = [v for each in line for v in each.x if math.isfinite(v)]
    key, above = _key([each.name for each in line])
    y = Axis(*_room(values, percent=percent), above + _PLOT, above)
    room = max((_STRONG * _width(each.end) for each in line), default=0.0)
    ends = (min(places, default=0.0), max(places, default=1.0))
    right = WIDTH - 12 - room
    frame, x = _frame(y, ends, x_label, y_label, y_percent=percent, right=right, x_scale=x_scale)
    drawn = [draw(x, y, *each) for draw in (_band, _trace) for each in enumerate(line)]
    labels = _end_labels(x, y, line)
    description = description or "; ".join(
        f"{each.name} ends at {each.end or 'nothing'}" for each in line
    )
    return _svg(title, description, above + _PLOT + 44, key, frame, *drawn, labels)


def dots(
    title: str,
    *,
    dot: Sequence[Dot],
    x_label: str,
    low: float | None = None,
    high: float | None = None,
    percent: bool = False,
    mark: tuple[float, str] | None = None,
) -> Markup:
    """Draw estimates with intervals on a common axis, each under its name; nothing without any.

    Args:
        title: Short name of the chart.
        dot: The estimates, from top to bottom.
        x_label: Quantity along the axis.
        low: Left end of the axis; by default all estimates and 0 are in it.
        high: Right end, likewise.
        percent: Format it as a fraction in percent.
        mark: Value of a dashed line, and its name.
    """
    if not dot:
        return Markup("")
    ends = span(each.estimate for each in dot)
    low = min(ends[0], 0.0) if low is None else low
    high = max(ends[1], 0.0) if high is None else high
    above = 20.0 if mark else 2.0
    bottom = above + 44 * len(dot) + 6
    x = Axis(low, high, 14, WIDTH - 22)
    parts = [_bottom_axis(x, bottom, x_label, top=above, percent=percent)]
    if mark:
        place = x.at(mark[0])
        side = "start" if place < WIDTH / 2 else "end"
        parts.append(
            Markup(f'<path class="mark-line" d="M{_n(place)} {_n(above - 4)}V{_n(bottom)}"/>')
        )
        parts.append(_text(place, 12, mark[1], anchor=side, kind="quiet"))
    parts += [_dot(x, each, above + 44 * row, index=row) for row, each in enumerate(dot)]
    description = "; ".join(f"{each.name}: {each.text}" for each in dot)
    return _svg(title, description, bottom + 42, *parts)


def scatter(
    title: str,
    description: str,
    *,
    points: Sequence[ScatterPoint],
    groups: Sequence[str],
    x_label: str,
    y_label: str,
) -> Markup:
    """Draw a map: a mark for each thing, by its group, filled and named where it is known.

    Args:
        title: Short name of the chart.
        description: Text for screen readers.
        points: What is drawn; a point that is not finite is left out.
        groups: Name of each group that occurs; from the fifth on colours repeat, marks do not.
        x_label: Quantity along x.
        y_label: Quantity along y.
    """
    drawn = [each for each in points if math.isfinite(each.x) and math.isfinite(each.y)]
    key, above = _key(groups, marks=True)
    y = Axis(*_extent([(each.y, each.radius) for each in drawn]), above + 1.5 * _PLOT, above)
    ends = _extent([(each.x, each.radius) for each in drawn])
    frame, x = _frame(y, ends, x_label, y_label, y_percent=False)
    widths = [abs((axis.end - axis.start) / (axis.high - axis.low)) for axis in (x, y)]
    rings, marks, names = [], [], []
    taken: list[tuple[float, float, float]] = []
    for each in sorted(drawn, key=lambda each: (each.known, -each.y)):
        at, shade = (x.at(each.x), y.at(each.y)), _shade(each.group)
        # A ring must not leave the chart, however little is known.
        size = [
            min(each.radius * width, limit) if math.isfinite(each.radius) else 0.0
            for width, limit in zip(widths, _edges(at, x, y), strict=True)
        ]
        rings.append(
            Markup(
                f'<ellipse class="ring s{shade}" cx="{_n(at[0])}" cy="{_n(at[1])}" '
                f'rx="{_n(size[0])}" ry="{_n(size[1])}"/>'
            )
        )
        marks.append(_mark(each.group, *at, title=each.name, filled=each.known))
        if each.known:
            left = at[0] < WIDTH / 2
            text = _fitted(each.name, (WIDTH - at[0] if left else at[0]) - 14)
            start = at[0] if left else at[0] - _width(text)
            height = _free(start, start + _width(text), at[1] - 9, taken, top=above + _TEXT)
            taken.append((start, start + _width(text), height))
            names.append(_text(at[0], height, text, anchor="start" if left else "end"))
    height = above + 1.5 * _PLOT + 44
    return _svg(title, description, height, key, frame, *rings, *marks, *names)


def _free(
    start: float, end: float, y: float, taken: Sequence[tuple[float, float, float]], *, top: float
) -> float:
    """Move a text up until it covers none of the others (start, end, y), at most to the top."""
    rivals = [other for left, right, other in taken if left < end and start < right]
    while y > top and any(abs(y - other) < _TEXT for other in rivals):
        y -= 1.0
    return y


def _extent(places: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the range of values with their rings; a ring wider than all values counts no more."""
    values = [value for value, _ in places]
    most = max(max(values, default=0.0) - min(values, default=0.0), 1.0)
    reach = [min(r, most) if math.isfinite(r) else 0.0 for _, r in places]
    ends = [v + sign * r for (v, _), r in zip(places, reach, strict=True) for sign in (-1, 1)]
    return _room(ends, percent=False)


def _edges(at: tuple[float, float], x: Axis, y: Axis) -> tuple[float, float]:
    """Return the distance to the nearest edge, across and up."""
    return min(at[0] - x.start, x.end - at[0]), min(at[1] - y.end, y.start - at[1])


_SHAPES = (
    "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    "m-4 -4h8v8h-8z",
    "m0 -5l5 9h-10z",
    "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    "m0 5l5 -9h-10z",
    "m-4.5 -4.5l9 9m0 -9l-9 9",
)
"""Marks of groups: circle, square, triangle, rhomb, triangle on its tip, cross."""


def _mark(group: int, x: float, y: float, *, title: str = "", filled: bool = False) -> Markup:
    shade, shape = _shade(group), _SHAPES[group % len(_SHAPES)]
    kind = f"s{shade} f{shade}" if filled else f"s{shade}"
    name = f"<title>{escape(title)}</title>" if title else ""
    return Markup(f'<path class="place {kind}" d="M{_n(x)} {_n(y)}{shape}">{name}</path>')


def span(estimates: Iterable[Estimate]) -> tuple[float, float]:
    """Return the lowest and the highest end of the estimates, with a margin."""
    ends = [v for each in estimates for v in (each.value, each.low, each.high) if math.isfinite(v)]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def interval_strip(value: float, low: float, high: float) -> Markup:
    """Draw a fraction and its interval as a thin strip; the text next to it says the same."""
    parts = ['<rect class="track" x="0" y="4" width="100" height="2"/>']
    if math.isfinite(low) and math.isfinite(high):
        # Rounded before the subtraction, so that start and width together stay in the box.
        start, end = (round(100 * min(max(v, 0.0), 1.0), 1) for v in (low, high))
        start = min(start, 98.5)  # a very narrow interval must be visible
        parts.append(
            f'<rect class="f1" fill-opacity=".55" x="{_n(start)}" y="2.5" '
            f'width="{_n(max(end - start, 1.5))}" height="5"/>'
        )
    if math.isfinite(value):
        at = 99 * min(max(value, 0.0), 1.0)
        parts.append(f'<rect class="f1" x="{_n(at)}" y="0" width="1" height="10"/>')
    return Markup(
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def _svg(title: str, description: str, height: float, *parts: Markup) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {_n(WIDTH)} {_n(height)}" role="img">\n<title>{escape(title)}</title>\n'
        f"<desc>{escape(description)}</desc>\n{join(parts)}\n</svg>"
    )


def _frame(
    y: Axis,
    x_ends: tuple[float, float],
    x_label: str,
    y_label: str,
    *,
    y_percent: bool,
    right: float = _RIGHT,
    x_scale: Scale = "linear",
) -> tuple[Markup, Axis]:
    """Draw both axes with grid, ticks and names; the x axis begins after the longest y tick."""
    ticks = y.ticks(6)
    texts = tick_texts(ticks, percent=y_percent)
    left = 10 + max((_width(text) for text in texts), default=0.0)
    end = x_ends[1] if x_ends[1] > x_ends[0] else x_ends[0] + 1
    x = Axis(x_ends[0], end, left, right, x_scale)
    parts = [_text(0, y.end - 12, y_label, kind="quiet")]
    for tick, text in zip(ticks, texts, strict=True):
        place = _n(y.at(tick))
        parts.append(Markup(f'<path class="grid" d="M{_n(left)} {place}H{_n(right)}"/>'))
        parts.append(_text(left - 6, y.at(tick) + 4, text, anchor="end", kind="quiet"))
    parts.append(_bottom_axis(x, y.start, x_label))
    return join(parts), x


def _bottom_axis(
    x: Axis, bottom: float, label: str, *, top: float | None = None, percent: bool = False
) -> Markup:
    ticks = x.ticks(6)
    parts = [Markup(f'<path class="grid" d="M{_n(x.start)} {_n(bottom)}H{_n(x.end)}"/>')]
    texts = date_texts(ticks) if x.scale == "dates" else tick_texts(ticks, percent=percent)
    for tick, text in zip(ticks, texts, strict=True):
        above = bottom if top is None else top
        rule = f"M{_n(x.at(tick))} {_n(above)}V{_n(bottom + 4)}"
        parts.append(Markup(f'<path class="grid" d="{rule}"/>'))
        place, half = x.at(tick), _width(text) / 2
        is_cut = x.scale == "dates" and not half <= place <= WIDTH - half
        anchor = ("start" if place < half else "end") if is_cut else "middle"
        parts.append(_text(place, bottom + 18, text, anchor=anchor, kind="quiet"))
    parts.append(_text(x.end, bottom + 36, label, anchor="end", kind="quiet"))
    return join(parts)


def _key(names: Sequence[str], *, filled: int = 0, marks: bool = False) -> tuple[Markup, float]:
    """Draw the legend, of lines or of marks; return it with its height."""
    parts: list[Markup] = []
    left, row = 0.0, 0
    for index, name in enumerate(names):
        text = _fitted(name, WIDTH - 40)
        if left and left + 30 + _width(text) > WIDTH:
            left, row = 0.0, row + 1
        y = 9 + 18 * row
        sample = (
            f'<rect class="area s1 f1" x="{_n(left + 1)}" y="{y - 5}" width="20" height="10"/>'
            if index < filled
            else f'<path class="trace {_style(index)}" d="M{_n(left)} {y}h22"/>'
        )
        if marks:
            sample = _mark(index, left + 14, y)
        parts += [Markup(sample), _text(left + 28, y + 4, text)]
        left += 28 + _width(text) + 14
    return join(parts), 18.0 * (row + 1) + 32


def _steps(x: Axis, y: Axis, edge: Sequence[float], height: Sequence[float], kind: str) -> Markup:
    path = [f"M{_n(x.at(edge[0]))} {_n(y.start)}"]
    for top, right in zip(height, edge[1:], strict=True):
        path.append(f"V{_n(y.at(top if math.isfinite(top) else y.low))}H{_n(x.at(right))}")
    return Markup(f'<path class="{kind}" d="{"".join(path)}V{_n(y.start)}"/>')


def _trace(x: Axis, y: Axis, index: int, line: Line) -> Markup:
    path, pen_down, last = [], False, None
    for place, value in zip(line.x, line.y, strict=True):
        known = math.isfinite(place) and math.isfinite(value)
        if known:
            last = (x.at(place), y.at(value))
            path.append(f"{'L' if pen_down else 'M'}{_n(last[0])} {_n(last[1])}")
        pen_down = known
    if last is None:
        return Markup("")
    return Markup(
        f'<path class="trace {_style(index)}" d="{"".join(path)}"/>'
        f'<circle class="f{_shade(index)}" cx="{_n(last[0])}" cy="{_n(last[1])}" r="3.5"/>'
    )


def _band(x: Axis, y: Axis, index: int, line: Line) -> Markup:
    corners = [
        (x.at(place), y.at(low), y.at(high))
        for place, low, high in zip(line.x, line.low, line.high, strict=False)
        if math.isfinite(place) and math.isfinite(low) and math.isfinite(high)
    ]
    if len(corners) < 2:
        return Markup("")
    way = [(at, high) for at, _, high in corners] + [(at, low) for at, low, _ in corners[::-1]]
    points = " ".join(f"{_n(at)},{_n(height)}" for at, height in way)
    return Markup(f'<polygon class="band f{_shade(index)}" points="{points}"/>')


def _end_labels(x: Axis, y: Axis, line: Sequence[Line]) -> Markup:
    known = [(each.end, [v for v in each.y if math.isfinite(v)]) for each in line if each.end]
    wanted = sorted((y.at(values[-1]), text) for text, values in known if values)
    places = _spread([place for place, _ in wanted], gap=_TEXT + 1)
    return join(
        _text(x.end + 8, place + 4, text, kind="strong")
        for place, (_, text) in zip(places, wanted, strict=True)
    )


def _spread(places: Sequence[float], *, gap: float) -> list[float]:
    """Move sorted places apart to at least the gap, keeping their mean."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    drift = sum(moved) - sum(places)
    return [place - drift / len(moved) for place in moved]


def _dot(x: Axis, dot: Dot, top: float, *, index: int) -> Markup:
    middle = top + 31
    ink, fill = f"s{_shade(index)}", f"f{_shade(index)}"
    room = WIDTH - 14 - _width(dot.text) - 12
    parts = [
        _text(14, top + 15, _fitted(dot.name, room)),
        _text(WIDTH - 8, top + 15, dot.text, anchor="end"),
    ]
    if dot.estimate.interval is not None:
        left, right = _n(x.at(dot.estimate.low)), _n(x.at(dot.estimate.high))
        caps = "".join(f"M{at} {_n(middle - 7)}v14" for at in (left, right))
        parts.append(Markup(f'<path class="trace {ink}" d="M{left} {_n(middle)}H{right}{caps}"/>'))
    if math.isfinite(dot.estimate.value):
        at = _n(x.at(dot.estimate.value))
        parts.append(Markup(f'<circle class="{fill}" cx="{at}" cy="{_n(middle)}" r="4.5"/>'))
    return join(parts)


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> Markup:
    kind = f' class="{kind}"' if kind else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return Markup(f'<text x="{_n(x)}" y="{_n(y)}"{side}{kind}>{escape(text)}</text>')


def _room(values: Sequence[float], *, percent: bool) -> tuple[float, float]:
    """Return the range of the values with a margin; percentages stay within 0 and 1."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    air = _MARGIN * (high - low) or 0.05 * max(abs(low), 1e-3)
    floor = 0.0 if percent and low >= 0 else -math.inf
    ceiling = 1.0 if percent and high <= 1 else math.inf
    return max(low - air, floor), min(high + air, ceiling)


def _width(text: str) -> float:
    return sum(2 * _LETTER if unicodedata.east_asian_width(c) in "WF" else _LETTER for c in text)


def _fitted(text: str, room: float) -> str:
    limit = min(len(text), int(room / _LETTER) + 1)
    while limit > 1 and _width(shorten(text, limit)) > room:
        limit -= 1
    return shorten(text, limit)


def _style(index: int) -> str:
    return f"s{_shade(index)} d{_shade(index)}"


def _shade(index: int) -> int:
    return index % 4 + 1


def _n(value: float) -> str:
    """Format a coordinate as short as possible."""
    return f"{value:.1f}".removesuffix(".0")
