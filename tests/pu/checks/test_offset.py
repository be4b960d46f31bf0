import numpy as np
import pytest

from puorl.pu.checks.recording import Side, find_offset, largest_distance


def side(values, groups=None):
    groups = len(values) if groups is None else groups
    return Side(values, np.arange(len(values)) * groups // len(values), groups)


def normal(seed, n, mean=0.0, spread=1.0):
    return np.random.default_rng(seed).normal(mean, spread, n)


def steps(n, seed=9):
    return normal(seed, n, spread=0.1)


@pytest.mark.parametrize("shift", [3.0, -3.0, 10.0])
def test_shift_of_the_same_shape(shift):
    p, u = normal(0, 500, shift), normal(1, 5000)
    chance, words = find_offset(side(p), side(u), steps(500), steps(5000, 8))
    assert chance > 0.95
    said = float(words.split(" by ")[1].split()[0])
    # The difference of two medians, of 500 and of 5,000 rows, is right to 0.06.
    assert said == pytest.approx(shift, abs=0.2)


def test_bounded_columns_show_small_shifts():
    rng = np.random.default_rng(0)
    p, u = rng.random(5000) + 0.15, rng.random(50_000)
    assert find_offset(side(p), side(u), None, None) is not None


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("distance", [0.3, 1.0, 3.0, 10.0])
def test_another_domain_elsewhere_is_not_a_shift(alpha, distance):
    num_t = round(5000 * alpha)
    u = np.concatenate([normal(1, num_t), normal(2, 5000 - num_t, distance)])
    assert find_offset(side(normal(0, 500)), side(u), steps(500), steps(5000, 8)) is None


def test_another_shape_is_not_a_shift():
    u = normal(1, 5000, spread=0.3)
    assert find_offset(side(normal(0, 500, 5.0)), side(u), None, None) is None


def test_other_steps_speak_of_other_dynamics():
    p, u = normal(0, 500, 5.0), normal(1, 5000)
    assert find_offset(side(p), side(u), 5 * steps(500), steps(5000, 8)) is None


def test_few_episodes_prove_nothing():
    p, u = normal(0, 500, 5.0), normal(1, 5000)
    assert find_offset(side(p, groups=3), side(u), None, None) is None


def test_distance_against_its_definition():
    x, y = normal(0, 50), normal(1, 70, 0.5)
    grid = np.concatenate([x, y])
    expected = max(abs((x <= c).mean() - (y <= c).mean()) for c in grid)
    assert largest_distance(x, y) == pytest.approx(expected)
