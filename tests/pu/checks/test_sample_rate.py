import numpy as np
import pytest

from puorl.pu.checks.recording import find_sample_rate, time_steps

SIZE = 50


def clock(n, rate_p, rate_u, num_p, *, jitter=0.0, start=0.0):
    rng = np.random.default_rng(0)
    rate = np.where(np.arange(n) < num_p, rate_p, rate_u)
    step = rate * (1 + jitter * rng.normal(size=n))
    at = step.reshape(-1, SIZE).cumsum(axis=1) + start * (np.arange(n // SIZE) + 1)[:, None]
    return at.ravel()


def find(pool, *args, **settings):
    rng = np.random.default_rng(1)
    time = clock(7500, *args, 500, **settings)
    return find_sample_rate(pool(rng, size=SIZE, time=time), rng=rng)


def test_another_rate_is_found(pool):
    found = find(pool, 0.02, 0.01)
    assert found.kind == "sample rate"
    assert found.separation == pytest.approx(1)
    assert "2 times" in found.sentence


def test_jitter_does_not_hide_it(pool):
    assert find(pool, 0.02, 0.01, jitter=0.1) is not None


@pytest.mark.parametrize("start", [0.0, 1.7e9])
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_the_same_rate_is_silent(pool, start, jitter):
    assert find(pool, 0.02, 0.02, jitter=jitter, start=start) is None


def test_no_clock_or_no_episodes_is_silent(pool):
    rng = np.random.default_rng(0)
    assert find_sample_rate(pool(rng), rng=rng) is None
    assert find_sample_rate(pool(rng, size=SIZE), rng=rng) is None


def test_steps_stay_inside_episodes_and_ignore_row_order():
    time = np.array([0.0, 1.0, 3.0, 10.0, 12.0])
    episode = np.array([0, 0, 0, 1, 1])
    expected = np.array([1.0, 2.0, np.nan, 2.0, np.nan])
    np.testing.assert_array_equal(time_steps(time, episode), expected)
    order = np.array([3, 0, 4, 2, 1])
    np.testing.assert_array_equal(time_steps(time[order], episode[order]), expected[order])
