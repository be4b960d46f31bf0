"""Exact binomial bounds against a direct sum, and the least of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.core.hashing import generator
from puorl.pu.alpha import cdf, scott, upper_bounds


def direct_cdf(count, num_rows, prob):
    return math.fsum(
        math.comb(num_rows, i) * prob**i * (1 - prob) ** (num_rows - i) for i in range(count + 1)
    )


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_cdf_equals_the_sum(num_rows, count, prob):
    count = min(count, num_rows - 1)
    value = cdf(np.array([count]), num_rows, np.array([prob]))[0]
    assert value == pytest.approx(direct_cdf(count, num_rows, prob), abs=1e-11)


@given(st.integers(1, 60), st.integers(0, 59), st.sampled_from([0.01, 0.1, 0.5]))
def test_bound_solves_its_equation(num_rows, count, delta):
    count = min(count, num_rows - 1)
    bound = float(upper_bounds(np.array([count]), num_rows, delta)[0])
    assert direct_cdf(count, num_rows, bound) == pytest.approx(delta, abs=1e-9)


def test_bounds_of_large_counts_approach_the_normal_ones():
    count = np.array([9_900, 49_500, 89_100])
    share = count / 99_000
    bound = upper_bounds(count, 99_000, 0.1)
    normal = share + 1.2815516 * np.sqrt(share * (1 - share) / 99_000)
    np.testing.assert_allclose(bound, normal, atol=2e-5)
    assert upper_bounds(np.array([5]), 5, 0.1)[0] == 1.0


def test_less_biased_than_the_ratio_where_domains_overlap():
    rng = generator(0, "scott")
    score_p = rng.normal(1, 1, 1_000)
    score_u = np.r_[rng.normal(1, 1, 3_000), rng.normal(0, 1, 7_000)]
    # Looking at the best threshold of many, it stays between alpha and the whole-sample ratio 1.
    assert 0.28 < scott(score_p, score_u).value < 0.6


def test_a_smaller_chance_of_failure_gives_a_higher_bound():
    rng = generator(0, "scott delta")
    score_p, score_u = rng.normal(3, 1, 300), np.r_[rng.normal(3, 1, 300), rng.normal(0, 1, 700)]
    assert scott(score_p, score_u, delta=0.01).value > scott(score_p, score_u, delta=0.2).value
    with pytest.raises(ConfigError, match="0 < delta < 1"):
        scott(score_p, score_u, delta=0.0)
