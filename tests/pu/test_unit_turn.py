"""Where decisions about units turn: the valley that few labelled units allow."""

import numpy as np
import pytest

from puorl.pu.units import find_threshold


def drawn(gap, num_p, *, seed, num_u=1_000, alpha=0.3):
    rng = np.random.default_rng([seed, num_p])
    is_target = rng.random(num_u) < alpha
    mean_u = gap * is_target + rng.normal(size=num_u)
    return gap + rng.normal(size=num_p), mean_u, is_target


@pytest.mark.parametrize(("gap", "num_p", "right"), [(12, 5, 0.95), (8, 10, 0.98), (4, 50, 0.95)])
def test_separate_units_are_decided_by_few_labelled_ones(gap, num_p, right):
    accuracy, error = [], []
    for seed in range(20):
        mean_p, mean_u, is_target = drawn(gap, num_p, seed=seed)
        # The rough alpha is off by a third, as few labelled units make it.
        turn = find_threshold(mean_p, mean_u, np.ones(len(mean_u)), alpha=0.2)
        accuracy.append(((mean_u >= turn.threshold) == is_target).mean())
        error.append(abs(turn.alpha - is_target.mean()))
    assert np.mean(accuracy) > right
    assert np.median(error) < 0.02


def test_alpha_is_of_rows_not_of_units():
    mean_p = np.full(10, 5.0)
    mean_u = np.repeat([5.0, -5.0], [10, 30])
    num_rows = np.repeat([90, 10], [10, 30])  # a quarter of the units, three quarters of the rows
    turn = find_threshold(mean_p, mean_u, num_rows, alpha=0.25)
    assert -5 < turn.threshold < 5
    assert turn.alpha == pytest.approx(0.75)


def test_scale_and_offset_of_logits_do_not_matter():
    mean_p, mean_u, _ = drawn(6, 12, seed=3)
    rows = np.ones(len(mean_u))
    plain = find_threshold(mean_p, mean_u, rows, alpha=0.3)
    moved = find_threshold(7 * mean_p - 2, 7 * mean_u - 2, rows, alpha=0.3)
    assert moved.threshold == pytest.approx(7 * plain.threshold - 2, abs=1e-6)
    assert moved.alpha == plain.alpha


def test_ends():
    same = find_threshold(np.zeros(5), np.zeros(9), np.ones(9), alpha=0.9)
    assert (same.threshold, same.alpha) == (0.0, 1.0)  # all alike: all kept
    every = find_threshold(np.array([4.0, 5.0, 6.0]), np.array([4.5, 5.5]), np.ones(2), alpha=0.999)
    assert every.alpha == 1.0
    none = find_threshold(np.full(6, 9.0), np.linspace(-2, -1, 50), np.ones(50), alpha=0.0)
    assert none.alpha == 0.0
    one = find_threshold(np.full(6, 9.0), np.array([9.0]), np.ones(1), alpha=0.999)
    assert one.threshold <= 9.0
