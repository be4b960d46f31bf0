"""Typing of text cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.data.columns import BadCell, has_decimal_comma, is_number, numbers, seconds, typed


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (["1", " -2", "+3"], np.int64, [1, -2, 3]),
        (["1", "2.0"], np.float64, [1.0, 2.0]),
        (["1e3", ".5", "5."], np.float64, [1000.0, 0.5, 5.0]),
        (["0", "1"], np.int64, [0, 1]),
        (["true", "FALSE", " True"], np.bool_, [True, False, True]),
        (["007", "8"], "U3", ["007", "8"]),
        (["1", "x"], "U1", ["1", "x"]),
        (["true", "1"], "U4", ["true", "1"]),
        (["yes", "no"], "U3", ["yes", "no"]),
        (["a", ""], "U1", ["a", ""]),
        (["1_000", "2"], "U5", ["1_000", "2"]),
        (["1,5", "2"], "U3", ["1,5", "2"]),
        ([str(2**63 - 1), str(-(2**63) + 1)], np.int64, [2**63 - 1, -(2**63) + 1]),
        ([str(2**63)], "U19", [str(2**63)]),  # an id that no number here holds
        ([str(2**53 + 1), ""], "U16", [str(2**53 + 1), ""]),
        (["١"], "U1", ["١"]),
        ([" a "], "U3", [" a "]),
    ],
)
def test_whole_column_decides(cells, dtype, values):
    array = typed(cells)
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == values


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", ""], [1.0, np.nan]),
        (["", " "], [np.nan, np.nan]),
        (["true", "", "false"], [1.0, np.nan, 0.0]),
        (["nan", "-inf", "2"], [np.nan, -np.inf, 2.0]),
        ([], []),
    ],
)
def test_empty_cells_are_nan_among_numbers(cells, values):
    array = typed(cells)
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, values)


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1))
def test_whole_numbers_come_back(values):
    array = typed([str(v) for v in values])
    assert array.dtype == np.int64
    assert array.tolist() == values


@given(st.lists(st.floats(), min_size=1))
def test_floats_come_back_exactly(values):
    text = [repr(v) for v in values]
    expected = np.array(values, np.float64)
    for array in (typed([*text, "0.5"])[:-1], numbers(text)):
        np.testing.assert_array_equal(array, expected)
        assert (np.signbit(array) == np.signbit(expected)).all() or np.isnan(expected).any()


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_text_is_kept_as_written(cells):
    assert typed([*cells, "text"]).tolist() == [*cells, "text"]


def test_numbers_names_the_first_bad_cell():
    assert numbers(["1", "", "007"]).tolist()[::2] == [1.0, 7.0]
    with pytest.raises(BadCell, match="row 2: 'x'") as caught:
        numbers(["1", "", "x", "y"])
    assert (caught.value.row, caught.value.value) == (2, "x")


@pytest.mark.parametrize("cell", ["1_0", "0x10", "1,5", "", "1 2", "nano", "--1", "1e", "."])
def test_not_numbers(cell):
    assert not is_number(cell)


def test_decimal_comma():
    assert has_decimal_comma(" -1,25")
    assert not has_decimal_comma("1,250,000")


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (["1970-01-01T00:00:01Z", "1970-01-01T01:00:00+01:00"], [1.0, 0.0]),
        (["1970-01-02", "1970-01-01 00:00:00.25"], [86400.0, 0.25]),
        (["1969-12-31T23:59:59"], [-1.0]),
    ],
)
def test_seconds(stamps, expected):
    assert seconds(stamps).tolist() == expected


@pytest.mark.parametrize("stamps", [["1970-01-01", "soon"], ["1970-01-01", "1970-01-01T00:00Z"]])
def test_seconds_refuses_other_text_and_mixed_zones(stamps):
    with pytest.raises(BadCell, match="row 1"):
        seconds(stamps)
