import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from puorl.bench.stats import Difference, Summary, difference, spread, student_quantile

SCORES = st.lists(st.floats(-200, 200).map(lambda x: round(x, 3)), min_size=2, max_size=12)


# A printed table of two-sided 95 % points.
@pytest.mark.parametrize(
    ("freedom", "printed"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365),
     (8, 2.306), (9, 2.262), (10, 2.228), (11, 2.201), (19, 2.093), (20, 2.086), (29, 2.045),
     (30, 2.042), (60, 2.000), (120, 1.980)],
)  # fmt: skip
def test_student_quantiles_are_as_printed(freedom, printed):
    assert round(student_quantile(freedom), 3) == printed


@pytest.mark.parametrize(("level", "printed"), [(0.5, 0.741), (0.9, 2.132), (0.99, 4.604)])
def test_other_levels_are_as_printed(level, printed):
    assert round(student_quantile(4, level), 3) == printed


@pytest.mark.parametrize("freedom", [*range(1, 40), 99, 1000])
def test_student_quantiles_agree_with_scipy(freedom):
    for level in (0.5, 0.95, 0.999):
        reference = scipy.stats.t.ppf((1 + level) / 2, freedom)
        assert student_quantile(freedom, level) == pytest.approx(reference, rel=1e-10)


def test_summary_by_hand():
    # Mean 4, deviations -2, -1, 0, 3: squares sum to 14, over n - 1 = 3.
    seen = Summary.of([2, 3, 4, 7])
    assert (seen.num, seen.mean) == (4, 4.0)
    assert seen.std == pytest.approx(math.sqrt(14 / 3))
    assert seen.half == pytest.approx(3.18245 * math.sqrt(14 / 3) / 2, rel=1e-5)
    assert (seen.low, seen.high) == (seen.mean - seen.half, seen.mean + seen.half)


def test_a_single_run_has_no_interval():
    seen = Summary.of([5.0])
    assert seen.mean == 5
    assert all(math.isnan(x) for x in (seen.std, seen.half, seen.low, seen.high))


def test_a_published_interval_comes_back():
    seen = Summary.published(98.3, 5.9, 10)
    assert (seen.mean, seen.num) == (98.3, 10)
    assert seen.half == pytest.approx(5.9, rel=1e-12)
    assert seen.std == pytest.approx(5.9 * math.sqrt(10) / 2.2622, rel=1e-4)


@given(SCORES)
def test_intervals_agree_with_scipy(values):
    seen = Summary.of(values)
    if seen.std > 1e-6:
        low, high = scipy.stats.t.interval(
            0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values)
        )
        assert (seen.low, seen.high) == pytest.approx((low, high), rel=1e-9, abs=1e-9)


@given(SCORES, SCORES)
def test_difference_is_welchs_with_freedom_rounded_down(one, other):
    a, b = Summary.of(one), Summary.of(other)
    seen = difference(a, b)
    assert seen.value == a.mean - b.mean
    if min(a.std, b.std) < 1e-3:
        return
    theirs = scipy.stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    # Fewer degrees of freedom: never narrower, and not by more than one degree would make it.
    slack = 1e-9 * (1 + abs(seen.value) + theirs.high - theirs.low)
    assert seen.low <= theirs.low + slack
    assert seen.high >= theirs.high - slack
    freedom = scipy.stats.ttest_ind(one, other, equal_var=False).df
    half = student_quantile(math.floor(freedom + 1e-9)) * math.hypot(
        a.std / math.sqrt(a.num), b.std / math.sqrt(b.num)
    )
    assert seen.high - seen.value == pytest.approx(half, rel=1e-9)


def test_difference_mirrors_and_says_which_side():
    low, high = Summary.of([1, 2, 3]), Summary.of([11, 12, 13])
    up, down = difference(high, low), difference(low, high)
    assert (up.low, up.high) == pytest.approx((-down.high, -down.low))
    assert (up.is_above, up.is_below, down.is_above, down.is_below) == (True, False, False, True)
    same = difference(low, low)
    assert not same.is_above
    assert not same.is_below


def test_differences_without_spread_or_without_runs():
    flat = Summary.of([2, 2])
    assert difference(Summary.of([3, 3]), flat) == Difference(1, 1, 1)
    unknown = difference(Summary.of([3]), flat)
    assert unknown.value == 1
    assert math.isnan(unknown.low)
    assert not unknown.is_above
    assert not unknown.is_below


def test_spread_by_hand():
    # Within: (2 + 2) / 2 = 2. Means 1, 5, grand 3: between 2 * (4 + 4) / 1 = 16; n0 = 2.
    seen = spread({0: [0, 2], 1: [4, 6]})
    assert (seen.num_splits, seen.num_runs) == (2, 4)
    assert seen.training == pytest.approx(math.sqrt(2))
    assert seen.split == pytest.approx(math.sqrt(7))
    assert seen.total == pytest.approx(3)


def test_spread_of_splits_of_different_sizes_by_hand():
    # Within: 2 / 1. Means 1 and 4, grand 2: between 2 * 1 + 1 * 4 = 6; n0 = 3 - 5 / 3 = 4 / 3.
    seen = spread({0: [0, 2], 1: [4]})
    assert seen.training == pytest.approx(math.sqrt(2))
    assert seen.split == pytest.approx(math.sqrt((6 - 2) / (4 / 3)))


def test_what_cannot_be_told_apart_is_not_told():
    one = spread({0: [1, 2, 3]})
    assert one.training == 1
    assert math.isnan(one.split)
    assert math.isnan(one.total)
    single = spread({0: [1], 1: [3], 2: []})
    assert (single.num_splits, single.num_runs) == (2, 2)
    assert math.isnan(single.training)
    assert math.isnan(single.split)
    assert single.total == pytest.approx(math.sqrt(2))
    none = spread({})
    assert none.num_runs == 0
    assert math.isnan(none.training)


def test_splits_that_do_not_differ_add_nothing():
    assert spread({0: [1, 3], 1: [1, 3]}).split == 0


def test_spread_finds_both_variances():
    rng = np.random.default_rng(0)
    runs = {s: 3 * rng.standard_normal() + rng.standard_normal(20) for s in range(400)}
    seen = spread(runs)
    assert seen.training == pytest.approx(1, abs=0.03)
    assert seen.split == pytest.approx(3, abs=0.3)


@given(st.dictionaries(st.integers(0, 5), SCORES, min_size=2), st.floats(-100, 100))
def test_spread_does_not_depend_on_where_zero_is(runs, shift):
    moved = {split: [value + shift for value in values] for split, values in runs.items()}
    one, other = spread(runs), spread(moved)
    assert other.training == pytest.approx(one.training, rel=1e-6, abs=1e-6)
    assert other.total == pytest.approx(one.total, rel=1e-5, abs=1e-4)
    assert one.total**2 == pytest.approx(one.training**2 + one.split**2)
