import numpy as np
import pytest

from puorl.pu.checks.recording import Side, clear_difference, is_measured


def side(n, groups):
    return Side(np.zeros(n), np.arange(n) * groups // n, groups)


@pytest.mark.parametrize(
    ("share_p", "share_u", "is_clear"),
    [(1.0, 0.0, True), (0.5, 0.3, True), (0.5, 0.45, False), (0.0, 0.0, False)],
)
def test_clear_means_large_and_beyond_chance(share_p, share_u, is_clear):
    p, u = side(1000, 1000), side(1000, 1000)
    holds_p, holds_u = (np.arange(1000) < 1000 * share for share in (share_p, share_u))
    found = clear_difference(p, u, holds_p, holds_u)
    assert (found is not None) is is_clear
    assert found is None or found == pytest.approx(share_p - share_u)


def test_few_groups_that_agree_by_chance_are_not_clear():
    p, u = side(1000, 5), side(1000, 100)
    half = u.number % 2 == 0
    assert clear_difference(p, u, np.ones(1000, bool), half) is None
    assert clear_difference(side(1000, 500), u, np.ones(1000, bool), half) is not None


def test_nothing_to_compare():
    assert clear_difference(side(1, 1), side(1, 1), np.ones(0, bool), np.ones(1, bool)) is None


def test_choices_are_not_measurements():
    assert not is_measured(np.arange(1000.0) % 16)
    assert is_measured(np.arange(1000.0) % 17)
