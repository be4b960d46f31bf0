import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.stats import (
    Z95,
    Estimate,
    binomial_upper_bound,
    clustered_error,
    mean_estimate,
    student_t,
)


@pytest.mark.parametrize(("freedom", "known"), [(1, 12.706), (2, 4.303), (4, 2.776), (30, 2.042)])
def test_student_quantiles_are_those_of_the_tables(freedom, known):
    assert student_t(freedom) == pytest.approx(known, abs=5e-4)


def test_student_t_tends_to_the_normal_quantile():
    assert student_t(10**6) == pytest.approx(Z95, abs=1e-5)
    assert scipy.stats.norm.ppf(0.975) == pytest.approx(Z95, abs=1e-15)


@given(st.integers(0, 200), st.integers(1, 200), st.floats(0.001, 0.5))
def test_the_upper_bound_inverts_the_binomial_distribution(count, num_trials, delta):
    count = min(count, num_trials)
    bound = float(binomial_upper_bound(np.array([count]), num_trials, delta)[0])
    if count == num_trials:
        assert bound == 1.0
    else:
        assert scipy.stats.binom.cdf(count, num_trials, bound) == pytest.approx(delta, rel=1e-6)


def test_an_interval_that_was_not_computed_is_none():
    alone = mean_estimate([3.0])
    assert (alone.value, alone.interval) == (3.0, None)
    assert (alone.is_above_zero, alone.is_below_zero) == (False, False)
    assert alone.to_dict() == {"value": 3.0, "low": None, "high": None}


def test_the_mean_of_few_values_has_students_interval():
    values = [1.0, 4.0, 2.5, 7.0]
    low, high = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
    assert mean_estimate(values) == Estimate(pytest.approx(3.625), *map(pytest.approx, (low, high)))


def test_groups_of_equal_rows_count_once():
    once = np.array([0.0, 1.0, 3.0, 8.0])
    many, group = np.repeat(once, 10), np.repeat(np.arange(4), 10)
    assert clustered_error(many, group) == pytest.approx(clustered_error(once, None))
    assert clustered_error(many, None) < clustered_error(once, None)
    assert clustered_error(many, np.zeros(40)) == math.inf
