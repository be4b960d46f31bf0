import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from puorl.bench.stats import (
    SampleSummary,
    SettingScores,
    difference,
    improvement,
    improvement_interval,
    iqm,
    iqm_interval,
    profile_intervals,
    spread,
)
from puorl.core.stats import Estimate, student_t

SCORES = st.lists(st.floats(-200, 200).map(lambda x: round(x, 3)), min_size=2, max_size=12)


# A printed table of two-sided 95 % points.
@pytest.mark.parametrize(
    ("freedom", "printed"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365),
     (8, 2.306), (9, 2.262), (10, 2.228), (11, 2.201), (19, 2.093), (20, 2.086), (29, 2.045),
     (30, 2.042), (60, 2.000), (120, 1.980)],
)  # fmt: skip
def test_student_ts_are_as_printed(freedom, printed):
    assert round(student_t(freedom), 3) == printed


@pytest.mark.parametrize(("level", "printed"), [(0.5, 0.741), (0.9, 2.132), (0.99, 4.604)])
def test_other_levels_are_as_printed(level, printed):
    assert round(student_t(4, level), 3) == printed


@pytest.mark.parametrize("freedom", [*range(1, 40), 99, 1000])
def test_student_ts_agree_with_scipy(freedom):
    for level in (0.5, 0.95, 0.999):
        reference = scipy.stats.t.ppf((1 + level) / 2, freedom)
        assert student_t(freedom, level) == pytest.approx(reference, rel=1e-10)


def test_summary_by_hand():
    # Mean 4, deviations -2, -1, 0, 3: squares sum to 14, over n - 1 = 3.
    seen = SampleSummary.of([2, 3, 4, 7])
    assert (seen.num, seen.mean) == (4, 4.0)
    assert seen.std == pytest.approx(math.sqrt(14 / 3))
    assert seen.half_width == pytest.approx(3.18245 * math.sqrt(14 / 3) / 2, rel=1e-5)
    ends = seen.mean - seen.half_width, seen.mean + seen.half_width
    assert seen.estimate.interval == ends


def test_a_single_run_has_no_interval():
    seen = SampleSummary.of([5.0])
    assert seen.mean == 5
    assert all(
        math.isnan(x) for x in (seen.std, seen.half_width, seen.estimate.low, seen.estimate.high)
    )


def test_a_published_interval_comes_back():
    seen = SampleSummary.from_interval(98.3, 5.9, 10)
    assert (seen.mean, seen.num) == (98.3, 10)
    assert seen.half_width == pytest.approx(5.9, rel=1e-12)
    assert seen.std == pytest.approx(5.9 * math.sqrt(10) / 2.2622, rel=1e-4)


@given(SCORES)
def test_intervals_agree_with_scipy(values):
    seen = SampleSummary.of(values)
    if seen.std > 1e-6:
        low, high = scipy.stats.t.interval(
            0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values)
        )
        assert seen.estimate.interval == pytest.approx((low, high), rel=1e-9, abs=1e-9)


@given(SCORES, SCORES)
def test_difference_is_welchs_with_freedom_rounded_down(one, other):
    a, b = SampleSummary.of(one), SampleSummary.of(other)
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
    half = student_t(math.floor(freedom + 1e-9)) * math.hypot(
        a.std / math.sqrt(a.num), b.std / math.sqrt(b.num)
    )
    assert seen.high - seen.value == pytest.approx(half, rel=1e-9)


def test_difference_mirrors_and_says_which_side():
    low, high = SampleSummary.of([1, 2, 3]), SampleSummary.of([11, 12, 13])
    up, down = difference(high, low), difference(low, high)
    assert (up.low, up.high) == pytest.approx((-down.high, -down.low))
    assert (up.is_above_zero, up.is_below_zero, down.is_above_zero, down.is_below_zero) == (
        True,
        False,
        False,
        True,
    )
    same = difference(low, low)
    assert not same.is_above_zero
    assert not same.is_below_zero


def test_differences_without_spread_or_without_runs():
    flat = SampleSummary.of([2, 2])
    assert difference(SampleSummary.of([3, 3]), flat) == Estimate(1, 1, 1)
    unknown = difference(SampleSummary.of([3]), flat)
    assert unknown.value == 1
    assert math.isnan(unknown.low)
    assert not unknown.is_above_zero
    assert not unknown.is_below_zero


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


# ---------------------------------------------------------------------------- over settings


VALUES = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=15).map(np.array)


def runs(*values, training=()):
    return SettingScores(np.array(values, np.float64), training)


def rng():
    return np.random.default_rng(0)


@given(VALUES)
def test_iqm_is_scipys_trimmed_mean(values):
    assert iqm(values) == pytest.approx(scipy.stats.trim_mean(values, 0.25))


def test_iqm_by_hand():
    assert iqm(np.array([[9, 1], [-1000, 3], [5, 1000], [7, 4]])) == (3 + 4 + 5 + 7) / 4


@given(VALUES, VALUES)
def test_improvement_is_mann_whitneys(one, other):
    u = scipy.stats.mannwhitneyu(one, other, method="asymptotic").statistic
    assert improvement(one, other) == pytest.approx(u / (len(one) * len(other)))
    assert improvement(one, other) + improvement(other, one) == pytest.approx(1)


def test_improvement_is_averaged_over_settings():
    # 1 in the first setting, 0 in the second, 0.5 (a draw) in the third.
    seen = improvement_interval(
        [runs(2, 3), runs(0), runs(1)], [runs(0, 1), runs(4, 5, 6), runs(1)], rng()
    )
    assert seen.estimate.value == pytest.approx(0.5)
    assert (seen.num_settings, seen.num_runs) == (3, 10)
    assert seen.estimate.interval == (0.5, 0.5)  # no resampling can change these


def test_the_same_generator_gives_the_same_interval():
    tasks = [SettingScores(np.random.default_rng(k).normal(50, 9, 7)) for k in range(3)]
    assert iqm_interval(tasks, rng()) == iqm_interval(tasks, rng())
    assert iqm_interval(tasks, np.random.default_rng(1)) != iqm_interval(tasks, rng())


def test_iqm_interval_agrees_with_a_plain_loop():
    score = np.random.default_rng(5).normal(50, 10, (5, 4))
    seen = iqm_interval([SettingScores(column) for column in score.T], rng(), repetitions=4000)
    other = np.random.default_rng(9)
    drawn = [
        scipy.stats.trim_mean(
            [other.choice(score[:, t], size=5) for t in range(4)], 0.25, axis=None
        )
        for _ in range(4000)
    ]
    assert seen.estimate.value == pytest.approx(scipy.stats.trim_mean(score, 0.25, axis=None))
    assert seen.estimate.interval == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.35)


def test_resampling_stays_within_a_setting():
    # Constant settings: whatever is drawn, the pooled values are the same.
    seen = iqm_interval([runs(1, 1, 1, 1), runs(100, 100, 100, 100)], rng()).estimate
    assert seen.low == seen.value == seen.high == 50.5


def test_settings_with_one_training_are_resampled_together():
    values = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    once = [runs(*values, training=tuple("abcdefgh"))] * 9
    apart = [runs(*values)] * 9
    alone, together, separate = (
        2 * iqm_interval(each, rng()).estimate.half_width for each in (once[:1], once, apart)
    )
    # Nine copies of the same runs know no more than one; nine of their own know three times more.
    assert together == pytest.approx(alone, rel=0.3)
    assert separate < 0.5 * together


def test_the_interval_covers_the_truth():
    source = np.random.default_rng(2)
    held = 0
    for _ in range(100):
        one = [SettingScores(source.normal(0.5, 1, 10)) for _ in range(6)]
        other = [SettingScores(source.normal(0.0, 1, 10)) for _ in range(6)]
        seen = improvement_interval(one, other, source, repetitions=300).estimate
        held += seen.low <= scipy.stats.norm.cdf(0.5 / np.sqrt(2)) <= seen.high
    assert held >= 88


def test_profile_is_the_fraction_of_runs_above_each_level_averaged_over_settings():
    tasks = [runs(10, 30, 50, 70), runs(90, 90)]
    seen = profile_intervals(tasks, (20.0, 60.0, 90.0), rng())
    assert [each.value for each in seen] == [(3 / 4 + 1) / 2, (1 / 4 + 1) / 2, 0.0]
    assert all(each.low <= each.value <= each.high for each in seen)
    # The second setting has no spread: only the first widens the interval, by half its own.
    alone = profile_intervals(tasks[:1], (60.0,), rng())[0]
    assert seen[1].half_width == pytest.approx(alone.half_width / 2)
