"""Charts: well-formed XML, marks where the numbers say, round ticks inside the axis."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from puorl.core.stats import Estimate
from puorl.html import charts
from puorl.html.charts import Axis, Dot, Line, nice_ticks, tick_texts

NAN = math.nan
NUMBER = st.one_of(st.floats(-1e9, 1e9), st.sampled_from([NAN, math.inf, -math.inf, 0.0]))
TEXT = st.text(st.characters(), max_size=50)


def parsed(svg):
    """The drawing as XML, after checking what holds for all of them."""
    root = ET.fromstring(svg)
    width, height = map(float, root.get("viewBox").split()[2:])
    assert root.get("role") == "img"
    assert [child.tag for child in root][:2] == ["title", "desc"]
    for element in root.iter():
        for name in ("d", "points", "x", "y", "cx", "cy"):
            assert not re.search("nan|inf", element.get(name, ""))
        for name, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            assert -1 <= float(element.get(name, 0)) <= most + 1
    return root


def texts(root):
    return ["".join(text.itertext()) for text in root.iter("text")]


def steps(*, fraction, edge=(0.0, 0.5, 1.0), scale="linear", title="t"):
    svg = charts.histogram(
        title, "d", edge=edge, fraction=fraction, x_label="score", y_label="share", scale=scale
    )
    return parsed(svg)


def heights(path):
    """Heights of the steps above the baseline, in units of the drawing."""
    base = float(re.match(r"M\S+ ([\d.]+)", path.get("d"))[1])
    return [base - float(v) for v in re.findall(r"V([\d.]+)H", path.get("d"))]


@pytest.mark.parametrize(("scale", "ratio"), [("linear", 9.0), ("sqrt", 3.0)])
def test_histogram_steps_are_as_high_as_shares(scale, ratio):
    root = steps(fraction={"one": (0.1, 0.9), "two": (0.9, 0.1)}, scale=scale)
    paths = [p for p in root.iter("path") if p.get("class") in ("area s1 f1", "trace s2 d2")]
    first, second = (heights(p) for p in paths if "V" in p.get("d"))
    assert first[1] / first[0] == pytest.approx(ratio, rel=0.02)
    assert second == pytest.approx(first[::-1])


def test_series_differ_by_more_than_colour_and_are_named():
    root = steps(fraction={"labelled": (0.2, 0.8), "unlabelled": (0.7, 0.3)})
    assert {"labelled", "unlabelled", "score", "share"} <= set(texts(root))
    kinds = {p.get("class") for p in root.iter("path")} | {
        r.get("class") for r in root.iter("rect")
    }
    assert {"area s1 f1", "trace s2 d2"} <= kinds  # filled against dashed


def test_line_passes_through_its_points_and_breaks_at_gaps():
    line = Line("a", (1, 2, 3, 4, 5), (0.0, 1.0, NAN, 1.0, 0.5), end="half")
    root = parsed(charts.lines("t", "d", line=[line], x_label="epoch", y_label="y"))
    trace = next(
        p for p in root.iter("path") if p.get("class") == "trace s1 d1" and "L" in p.get("d")
    )
    assert re.sub(r"[\d. ]", "", trace.get("d")) == "MLML"
    points = [
        tuple(map(float, pair)) for pair in re.findall(r"[ML](\S+?) ([\d.]+)", trace.get("d"))
    ]
    (x1, y1), (x2, y2), (x4, y4), (x5, y5) = points
    assert x2 - x1 == pytest.approx(x5 - x4, abs=0.2)
    assert x4 - x2 == pytest.approx(2 * (x2 - x1), abs=0.3)
    assert y2 == y4
    assert y1 - y2 == pytest.approx(2 * (y5 - y4), abs=0.3)  # y runs downwards in a drawing
    dot = next(root.iter("circle"))
    assert (float(dot.get("cx")), float(dot.get("cy"))) == (x5, y5)
    assert "half" in texts(root)


def test_band_encloses_the_line():
    line = Line("a", (0, 1, 2), (0.3, 0.4, 0.35), low=(0.2, 0.3, 0.3), high=(0.5, 0.6, 0.4))
    root = parsed(charts.lines("t", "d", line=[line], x_label="x", y_label="y", percent=True))
    corners = [
        tuple(map(float, c.split(","))) for c in next(root.iter("polygon")).get("points").split()
    ]
    assert len(corners) == 6
    upper, lower = corners[:3], corners[:2:-1]
    for (x_up, y_up), (x_low, y_low) in zip(upper, lower, strict=True):
        assert x_up == x_low
        assert y_up < y_low
    assert any(text.endswith(" %") for text in texts(root))


def test_labels_at_line_ends_keep_apart():
    many = [Line(str(k), (0, 1), (0, 1 + k / 1000), end=f"end {k}") for k in range(4)]
    root = parsed(charts.lines("t", "d", line=many, x_label="x", y_label="y"))
    places = sorted(float(t.get("y")) for t in root.iter("text") if t.text.startswith("end"))
    assert len(places) == 4
    assert min(b - a for a, b in zip(places, places[1:], strict=False)) >= 13
    styles = {p.get("class") for p in root.iter("path") if "trace" in p.get("class")}
    assert styles == {f"trace s{k} d{k}" for k in (1, 2, 3, 4)}


def test_dots_and_whiskers_lie_on_the_axis():
    dot = [
        Dot("first", Estimate(0.75, 0.7, 0.8), "three quarters"),
        Dot("second", Estimate(0.5), "half"),
    ]
    root = parsed(
        charts.dots("t", dot=dot, low=0.5, high=1, x_label="x", mark=(0.5, "a coin toss"))
    )
    ticks = {t.text: float(t.get("x")) for t in root.iter("text") if re.match(r"[\d.]+$", t.text)}
    first, second = root.iter("circle")
    assert float(first.get("cx")) == pytest.approx((ticks["0.7"] + ticks["0.8"]) / 2, abs=0.2)
    assert float(second.get("cx")) == pytest.approx(ticks["0.5"], abs=0.1)
    whiskers = [p for p in root.iter("path") if "trace" in p.get("class")]
    assert len(whiskers) == 1  # the second has no interval
    left, right = re.match(r"M(\S+) \S+?H([\d.]+)", whiskers[0].get("d")).groups()
    assert (float(left), float(right)) == pytest.approx((ticks["0.7"], ticks["0.8"]), abs=0.1)
    assert "a coin toss" in texts(root)


def test_strip_shows_value_and_interval_between_nothing_and_all():
    root = ET.fromstring(charts.interval_strip(0.5, 0.25, 0.75))
    assert root.get("aria-hidden") == "true"
    _, interval, value = root
    assert (float(interval.get("x")), float(interval.get("width"))) == (25, 50)
    assert float(value.get("x")) == pytest.approx(49.5)
    assert len(ET.fromstring(charts.interval_strip(0.5, NAN, NAN))) == 2
    assert len(ET.fromstring(charts.interval_strip(NAN, NAN, NAN))) == 1


@given(NUMBER, NUMBER, NUMBER)
def test_strip_never_leaves_its_box(value, low, high):
    for rect in ET.fromstring(charts.interval_strip(value, *sorted((low, high)))):
        left, width = float(rect.get("x")), float(rect.get("width"))
        assert 0 <= left
        assert width > 0
        assert left + width <= 100.01


@given(
    TEXT,
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12),
    st.sampled_from(["linear", "sqrt"]),
)
def test_any_histogram_is_well_formed(text, shares, scale):
    edge = [k / len(shares) for k in range(len(shares) + 1)]
    first, second = zip(*shares, strict=True)
    steps(fraction={text: first, text + "2": second}, edge=edge, scale=scale, title=text)


@given(TEXT, st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=12), st.booleans())
def test_any_lines_are_well_formed(text, rows, percent):
    y, low, high = zip(*rows, strict=True) if rows else ((), (), ())
    line = [Line(text, range(len(y)), y, low, high, end=text[:8]), Line("empty", (), ())]
    svg = charts.lines(text, text, line=line, x_label=text, y_label=text, percent=percent)
    assert parsed(svg).tag.endswith("svg")


@given(TEXT, st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=5))
def test_any_dots_are_well_formed(text, rows):
    dot = [Dot(text, Estimate(value, low, high), text[:20]) for value, low, high in rows]
    mark = (0.9, text[:20])
    svg = charts.dots(text, dot=dot, low=0, high=1, x_label=text, mark=mark)
    assert parsed(svg).tag.endswith("svg") if rows else svg == ""


def test_long_names_are_cut_to_the_room_there_is():
    svg = charts.dots(
        "t",
        dot=[Dot("x" * 100_000, Estimate(0.5, 0.4, 0.6), "0.5")],
        low=0,
        high=1,
        x_label="x",
    )
    name = next(text for text in texts(parsed(svg)) if text.startswith("x") and len(text) > 1)
    assert name.endswith("…")
    assert len(name) < 50


def test_wide_letters_take_two_places():
    short = charts._fitted("数" * 40, 200)
    assert charts._width(short) <= 200 < charts._width("数" * len(short)) + 2 * charts._LETTER


NUMBERS = st.floats(-1e6, 1e6)


@given(NUMBERS, st.floats(1e-6, 1e6), st.integers(3, 12))
def test_ticks_are_round_even_inside_and_few(low, span, most):
    assume(span > 1e-6 * abs(low))
    high = low + span
    ticks = nice_ticks(low, high, most)
    assert 1 <= len(ticks) <= most
    assert low <= ticks[0]
    assert ticks[-1] <= high
    steps = [b - a for a, b in zip(ticks, ticks[1:], strict=False)]
    for step in steps:
        assert step == pytest.approx(steps[0], rel=1e-3)
        mantissa = step / 10 ** math.floor(math.log10(step * 1.0001))
        assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-2


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0, 1, 6, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (0.26, 0.34, 5, (0.26, 0.28, 0.3, 0.32, 0.34)),
        (1, 60, 6, (10, 20, 30, 40, 50, 60)),
        (-3, 3, 4, (-2, 0, 2)),
        (2, 2, 5, (2,)),
        (-1e308, 1e308, 5, (-1e308, 1e308)),
    ],
)
def test_ticks_by_hand(low, high, most, expected):
    assert nice_ticks(low, high, most) == expected


def test_ticks_of_a_square_root_axis_keep_their_distance():
    axis = Axis(0.0, 0.93, 150.0, 0.0, "sqrt")
    # Heights 110, 69.6, 34.8 and 0, at least 150 / 7 = 21.4 apart; 0.1 (49.2) is 20.4 from 0.2.
    assert axis.ticks(7) == (0.0, 0.05, 0.2, 0.5)


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from(["linear", "sqrt"]))
def test_an_axis_keeps_order_and_ends(one, other, scale):
    axis = Axis(0.001, 1.0, 10.0, 90.0, scale)
    assert axis.at(0.001) == 10
    assert axis.at(1.0) == pytest.approx(90)
    assert axis.at(-5) == 10  # beyond an end: drawn at that end
    low, high = sorted((one, other))
    assert axis.at(low) <= axis.at(high)


def test_places_between_by_hand():
    assert Axis(0, 4, 0, 100).at(1) == 25
    assert Axis(0, 4, 0, 100, "sqrt").at(1) == 50
    assert Axis(0, 4, 100, 0).at(1) == 75


@pytest.mark.parametrize(
    ("ticks", "percent", "texts"),
    [
        ((0.0, 0.5, 1.0), False, ["0.0", "0.5", "1.0"]),
        ((0.25, 0.3), True, ["25 %", "30 %"]),
        ((0.295, 0.3, 0.305), True, ["29.5 %", "30.0 %", "30.5 %"]),
        ((1000.0, 2000.0), False, ["1,000", "2,000"]),
        ((0.0, 0.02, 0.1, 0.5), True, ["0 %", "2 %", "10 %", "50 %"]),
        ((0.0001, 0.01, 1.0), True, ["0.01 %", "1 %", "100 %"]),
        ((0.0, 2e7), False, ["0", "2e+07"]),
        ((0.0,), False, ["0"]),
        ((), False, []),
    ],
)
def test_texts_by_hand(ticks, percent, texts):
    assert tick_texts(ticks, percent=percent) == texts


@given(st.floats(-1000, 1000), st.floats(1e-3, 1e4), st.booleans())
def test_texts_tell_ticks_apart_and_are_true(low, span, percent):
    ticks = nice_ticks(low, low + span, 6)
    texts = tick_texts(ticks, percent=percent)
    assert len(set(texts)) == len(ticks)
    for tick, text in zip(ticks, texts, strict=True):
        shown = float(text.replace(",", "").removesuffix(" %"))
        assert shown == pytest.approx((100 if percent else 1) * tick, rel=1e-2, abs=1e-4 * span)


def test_an_axis_without_ends_holds_all_estimates_and_zero():
    below = [Dot("a", Estimate(-3.0, -4.0, -2.0), "x"), Dot("b", Estimate(-1.0), "y")]
    ticks = [node.text for node in parsed(charts.dots("t", dot=below, x_label="x")).iter()]
    assert {"-4", "0"} <= set(ticks)
    assert charts.span([Estimate(1.0)]) == (0.0, 2.0)
    low, high = charts.span(each.estimate for each in below)
    assert (low, high) == pytest.approx((-4.18, -0.82))


def test_a_line_of_estimates_has_their_intervals_as_band():
    line = Line.of("a", (1, 2), (Estimate(1.0, 0.0, 2.0), Estimate(3.0, 2.5, 3.5)))
    assert (line.y, line.low, line.high) == ((1.0, 3.0), (0.0, 2.5), (2.0, 3.5))
    assert line.end == "3"
    root = parsed(charts.lines("t", line=[line], x_label="x", y_label="y", within=(-90, 50)))
    texts = [node.text for node in root.iter()]
    assert "a ends at 3" in texts
    assert "-50" in texts


def test_names_of_close_points_do_not_cover_each_other():
    points = [charts.ScatterPoint(name, x, 0.0, 1.0, 0, known=True)
              for name, x in (("ANT-01", 0.0), ("ANT-03", 0.1), ("ANT-05", 9.0))]  # fmt: skip
    svg = charts.scatter("t", "d", points=points, groups=["a"], x_label="x", y_label="y")
    names = {"".join(text.itertext()): float(text.get("y")) for text in parsed(svg).iter("text")}
    assert abs(names["ANT-01"] - names["ANT-03"]) >= 13
    assert names["ANT-05"] == max(names["ANT-01"], names["ANT-03"])  # far away: stays where it is
