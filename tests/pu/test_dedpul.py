"""Densities, the fixed point and scores that saturate."""

import numpy as np
import pytest

from puorl.core.hashing import generator
from puorl.pu import alpha as module
from puorl.pu.alpha import dedpul


def test_grid_density_equals_the_sum_of_kernels():
    rng = generator(0, "density")
    sample, at = rng.normal(size=300), np.linspace(-2, 2, 41)
    width = 0.3
    direct = np.exp(-0.5 * ((at[:, None] - sample[None]) / width) ** 2).mean(axis=1)
    direct /= width * (2 * np.pi) ** 0.5
    np.testing.assert_allclose(module._grid_density(sample, at, width), direct, atol=2e-4)


def test_fixed_point_of_an_exact_ratio():
    # 30 % of U are target rows, where f_p / f_u = 1 / 0.3, and 0 elsewhere.
    ratio = np.r_[np.zeros(700), np.full(300, 1 / 0.3)]
    assert module._fixed_point(ratio) == pytest.approx(0.7, abs=1e-6)
    assert module._bend(ratio) == pytest.approx(0.7, abs=0.002)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.7])
def test_scores_at_exactly_0_and_1(alpha):
    num_target = round(alpha * 2_000)
    score_u = np.r_[np.ones(num_target), np.zeros(2_000 - num_target)]
    assert dedpul(np.ones(500), score_u).value == pytest.approx(alpha, abs=0.005)


def test_no_target_rows_at_all():
    rng = generator(0, "none")
    score_p, score_u = (1 / (1 + np.exp(-rng.normal(mean, 1, 2_000))) for mean in (8, -8))
    assert dedpul(score_p, score_u).value < 0.01
    assert dedpul(np.ones(3), np.zeros(5)).value == 0.0


def test_many_rows_cost_little_more_than_few():
    rng = generator(0, "many")
    score_u = np.r_[rng.beta(9, 1, 30_000), rng.beta(1, 9, 70_000)]
    assert dedpul(rng.beta(9, 1, 2_000), score_u).value == pytest.approx(0.3, abs=0.04)
