"""Spans such as 6h or 500rows, and the windows that they make of a unit's record."""

import numpy as np
import pytest

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.pu.units import parse_unit
from puorl.pu.windows import Span, parse_span, windows


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1d", Span(86400.0, False)),
        ("6h", Span(21600.0, False)),
        ("30min", Span(1800.0, False)),
        ("0.5", Span(0.5, False)),
        ("500rows", Span(500.0, True)),
    ],
)
def test_spans(text, span):
    assert parse_span(text) == span


@pytest.mark.parametrize("text", ["", "0", "-1", "1w", "d", "1.5rows", "0rows", "nan", "1e9"])
def test_wrong_spans(text):
    with pytest.raises(ConfigError, match="such as 1d, 6h, 30min, 3600 or 500rows"):
        parse_span(text)


def test_windows_follow_the_clock_of_each_unit():
    data = puorl.Dataset.from_arrays(
        obs=np.zeros((6, 1)),
        action=np.zeros((6, 1)),
        next_obs=np.zeros((6, 1)),
        time=np.array([105.0, 7.0, 100.0, 31.0, 119.0, 16.0]),
        columns={"unit": np.array(["a", "b", "a", "b", "a", "b"])},
    )
    unit = parse_unit("column:unit")
    assert windows(data, unit, Span(10.0, False)).tolist() == [0, 0, 0, 2, 1, 0]
    assert windows(data, unit, Span(2.0, True)).tolist() == [0, 0, 0, 1, 1, 0]


def test_a_clock_that_starts_anew_needs_rows():
    data = puorl.Dataset.from_arrays(
        obs=np.zeros((4, 1)),
        action=np.zeros((4, 1)),
        next_obs=np.zeros((4, 1)),
        time=np.array([0.0, 1.0, 0.0, 1.0]),
        episode=np.array([0, 0, 1, 1]),
        columns={"unit": np.array(["a"] * 4)},
    )
    unit = parse_unit("column:unit")
    with pytest.raises(DataError, match="give a number of rows such as 500rows"):
        windows(data, unit, Span(1.0, False))
    assert windows(data, unit, Span(2.0, True)).tolist() == [0, 0, 1, 1]
