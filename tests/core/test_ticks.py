"""Ticks: round, evenly spaced, inside the axis, few; axes that keep the order of values."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from puorl.html.charts import Axis, nice_ticks, tick_texts

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


def test_ticks_of_a_log_axis_are_powers_of_ten():
    assert Axis(1e-4, 1.0, 150.0, 0.0, "log").ticks(6) == pytest.approx((1e-4, 1e-3, 0.01, 0.1, 1))
    thinned = Axis(1e-8, 1.0, 150.0, 0.0, "log").ticks(5)
    assert thinned == pytest.approx((1e-8, 1e-6, 1e-4, 1e-2, 1))


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from(["linear", "sqrt", "log"]))
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
    assert Axis(0.01, 1, 0, 100, "log").at(0.1) == pytest.approx(50)
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
