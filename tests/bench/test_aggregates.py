import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from puorl.bench.stats import Runs, improvement, improvement_interval, iqm, iqm_interval
from puorl.core.errors import DataError

VALUES = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=15).map(np.array)


def runs(*values, training=()):
    return Runs(np.array(values, np.float64), training)


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
    assert seen.value == pytest.approx(0.5)
    assert (seen.num_settings, seen.num_runs) == (3, 10)
    assert (seen.low, seen.high) == (0.5, 0.5)  # no resampling can change these


def test_the_same_generator_gives_the_same_interval():
    tasks = [Runs(np.random.default_rng(k).normal(50, 9, 7)) for k in range(3)]
    assert iqm_interval(tasks, rng()) == iqm_interval(tasks, rng())
    assert iqm_interval(tasks, np.random.default_rng(1)) != iqm_interval(tasks, rng())


def test_iqm_interval_agrees_with_a_plain_loop():
    score = np.random.default_rng(5).normal(50, 10, (5, 4))
    seen = iqm_interval([Runs(column) for column in score.T], rng(), repetitions=4000)
    other = np.random.default_rng(9)
    drawn = [
        scipy.stats.trim_mean(
            [other.choice(score[:, t], size=5) for t in range(4)], 0.25, axis=None
        )
        for _ in range(4000)
    ]
    assert seen.value == pytest.approx(scipy.stats.trim_mean(score, 0.25, axis=None))
    assert (seen.low, seen.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.35)


def test_resampling_stays_within_a_setting():
    # Constant settings: whatever is drawn, the pooled values are the same.
    seen = iqm_interval([runs(1, 1, 1, 1), runs(100, 100, 100, 100)], rng())
    assert seen.low == seen.value == seen.high == 50.5


def test_settings_with_one_training_are_resampled_together():
    values = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    once = [runs(*values, training=tuple("abcdefgh"))] * 9
    apart = [runs(*values)] * 9
    alone = iqm_interval(once[:1], rng())
    together, separate = iqm_interval(once, rng()), iqm_interval(apart, rng())
    # Nine copies of the same runs know no more than one; nine of their own know three times more.
    assert together.high - together.low == pytest.approx(alone.high - alone.low, rel=0.3)
    assert separate.high - separate.low < 0.5 * (together.high - together.low)


def test_the_interval_covers_the_truth():
    source = np.random.default_rng(2)
    held = 0
    for _ in range(100):
        one = [Runs(source.normal(0.5, 1, 10)) for _ in range(6)]
        other = [Runs(source.normal(0.0, 1, 10)) for _ in range(6)]
        seen = improvement_interval(one, other, source, repetitions=300)
        held += seen.low <= scipy.stats.norm.cdf(0.5 / np.sqrt(2)) <= seen.high
    assert held >= 88


@pytest.mark.parametrize("tasks", [[], [runs()], [runs(1), runs()]])
def test_nothing_cannot_be_aggregated(tasks):
    with pytest.raises(DataError, match="one run or more"):
        iqm_interval(tasks, rng())
    with pytest.raises(DataError, match="one run or more"):
        improvement_interval(tasks, tasks, rng())
