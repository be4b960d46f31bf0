import numpy as np
import pytest

from puorl.pu.checks.auroc import critical_value, group_numbers, mean_error


@pytest.mark.parametrize(("free", "known"), [(5, 2.571), (9, 2.262), (29, 2.045), (10**6, 1.960)])
def test_critical_value_is_students(free, known):
    assert critical_value(free + 1) == pytest.approx(known, abs=0.01)


def test_rows_without_groups_have_the_textbook_error():
    x = np.random.default_rng(0).normal(size=500)
    assert mean_error(x, None) == pytest.approx(x.std(ddof=1) / np.sqrt(500))


def test_rows_of_one_group_count_once():
    x = np.random.default_rng(0).normal(size=40)
    copies, group = np.repeat(x, 25), np.repeat(np.arange(40), 25)
    assert mean_error(copies, group) == pytest.approx(mean_error(x, None))


def test_one_group_says_nothing_about_spread():
    assert mean_error(np.arange(5.0), np.zeros(5, int)) == float("inf")


def test_group_numbers_start_at_zero():
    number, count = group_numbers(np.array([7, 3, 7]), 3)
    assert (number.tolist(), count) == ([1, 0, 1], 2)
