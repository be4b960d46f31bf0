"""Intervals on draws with a known alpha, and their manners."""

import time

import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.pu.alpha import bbe
from puorl.pu.intervals import bootstrap_interval


def draw(rng, gap, num_p, num_u, alpha):
    num_target = round(alpha * num_u)
    score_u = np.r_[rng.normal(gap, 1, num_target), rng.normal(0, 1, num_u - num_target)]
    return rng.normal(gap, 1, num_p), score_u, num_target / num_u


def coverage(gap, *, draws, num_p=500, num_u=5_000, alpha=0.3):
    rng = generator(0, "test coverage", int(gap))
    ends = []
    for _ in range(draws):
        score_p, score_u, truth = draw(rng, gap, num_p, num_u, alpha)
        value = bbe(score_p, score_u).value
        ends.append(bootstrap_interval(score_p, score_u, value=value, rng=rng))
    low, high = np.array(ends).T
    return np.mean((low <= truth) & (truth <= high)), np.mean(truth <= high), high - low


@pytest.mark.parametrize("gap", [8.0, 4.0])
def test_separated_domains_are_covered_on_both_sides(gap):
    # 60 draws at a true coverage of 95 % fall below 87 % about once in a hundred times.
    both, _, width = coverage(gap, draws=60)
    assert both >= 0.87
    assert np.median(width) < 0.09


@pytest.mark.parametrize("gap", [2.0, 1.0])
def test_overlapping_domains_are_covered_from_above(gap):
    _, upper, width = coverage(gap, draws=60)
    assert upper >= 0.87
    assert np.median(width) < 0.5


def test_width_and_time_at_the_papers_size():
    rng = generator(0, "paper size")
    score_p, score_u, truth = draw(rng, 4.0, 1_000, 99_000, 29 / 99)
    begin = time.process_time()
    low, high = bootstrap_interval(score_p, score_u, rng=rng)
    assert time.process_time() - begin < 1.0
    assert low < truth < high
    assert high - low < 0.06


def test_where_others_reach_the_highest_scores_only_the_upper_end_is_known():
    rng = generator(0, "hopeless")
    score_p, score_u, _ = draw(rng, 0.5, 2_000, 20_000, 0.3)
    low, high = bootstrap_interval(score_p, score_u, rng=rng)
    assert low == 0.0
    assert high > 0.3


def test_no_target_rows_at_all():
    rng = generator(0, "none of ours")
    low, high = bootstrap_interval(rng.normal(8, 1, 500), rng.normal(0, 1, 5_000), rng=rng)
    assert low < 0.001
    assert 0 < high < 0.01


def test_identical_scores_leave_no_room_for_others():
    rng = generator(0, "same")
    low, high = bootstrap_interval(rng.normal(size=1_000), rng.normal(size=5_000), rng=rng)
    assert low < 0.97 < high
    assert high == 0.999
    assert bootstrap_interval(np.ones(50), np.ones(80), rng=rng)[1] == 0.999


def test_a_given_value_is_never_outside():
    rng = generator(0, "hull")
    score_p, score_u, _ = draw(rng, 8.0, 200, 1_000, 0.3)
    for value in (0.05, 0.9):
        low, high = bootstrap_interval(score_p, score_u, value=value, rng=rng)
        assert low <= value <= high


def test_any_monotone_scale_gives_the_same_interval():
    score_p, score_u, _ = draw(generator(0, "scale"), 4.0, 300, 2_000, 0.3)
    plain = bootstrap_interval(score_p, score_u, rng=generator(0, "b"))
    # Odd counts put every quantile edge between rows differently on a curved scale: near, not same.
    curved = bootstrap_interval(np.exp(score_p), np.exp(score_u), rng=generator(0, "b"))
    assert curved == pytest.approx(plain, abs=0.01)


def test_same_generator_same_interval():
    score_p, score_u, _ = draw(generator(0, "repeat"), 4.0, 300, 2_000, 0.3)
    first = bootstrap_interval(score_p, score_u, rng=generator(7, "b"))
    assert first == bootstrap_interval(score_p, score_u, rng=generator(7, "b"))


def test_higher_level_is_wider():
    score_p, score_u, _ = draw(generator(0, "level"), 4.0, 300, 2_000, 0.3)
    low, high = bootstrap_interval(score_p, score_u, rng=generator(0, "b"), level=0.5)
    wide = bootstrap_interval(score_p, score_u, rng=generator(0, "b"), level=0.99)
    assert wide[0] < low
    assert wide[1] > high


def test_episodes_count_as_one_observation_each():
    """Rows copied within episodes carry no news; only the grouped interval knows."""
    rng = generator(0, "groups")
    score_p, score_u, _ = draw(rng, 4.0, 60, 40_000, 0.3)
    copied, episode = np.repeat(score_p, 20), np.repeat(np.arange(60), 20)
    rows = bootstrap_interval(copied, score_u, rng=generator(0, "b"))
    grouped = bootstrap_interval(copied, score_u, rng=generator(0, "b"), groups_p=episode)
    once = bootstrap_interval(score_p, score_u, rng=generator(0, "b"))
    assert grouped == pytest.approx(once, abs=0.01)
    assert rows[1] < grouped[1] - 0.01


def test_groups_of_single_rows_change_little():
    score_p, score_u, _ = draw(generator(0, "single"), 4.0, 300, 2_000, 0.3)
    rows = bootstrap_interval(score_p, score_u, rng=generator(0, "b"), reps=800)
    single = bootstrap_interval(
        score_p, score_u, rng=generator(0, "c"), reps=800,
        groups_p=np.arange(300), groups_u=np.arange(2_000),
    )  # fmt: skip
    assert single == pytest.approx(rows, abs=0.01)


def test_bad_input_is_named():
    rng, good = generator(0, "bad"), np.linspace(0, 1, 30)
    with pytest.raises(DataError, match=r"groups_p: expected shape \(30,\), got \(3,\)"):
        bootstrap_interval(good, good, rng=rng, groups_p=np.arange(3))
    with pytest.raises(DataError, match="groups_u: expected at least two groups"):
        bootstrap_interval(good, good, rng=rng, groups_u=np.zeros(30))
    with pytest.raises(DataError, match="score_u: expected finite"):
        bootstrap_interval(good, np.full(3, np.nan), rng=rng)
    with pytest.raises(ConfigError, match="reps >= 20"):
        bootstrap_interval(good, good, rng=rng, reps=1)
    with pytest.raises(ConfigError, match="level"):
        bootstrap_interval(good, good, rng=rng, level=1.5)
