import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.pu.cross_fit import keep

SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=60)


@given(SCORES, st.floats(0, 1))
def test_top_alpha_keeps_equal_scores_together_and_the_highest_first(scores, alpha):
    score = np.array(scores, np.float32)
    kept = keep(score, "top_alpha", alpha)
    if kept.any() and not kept.all():
        assert score[kept].min() > score[~kept].max()
    assert kept.any() == (int(alpha * len(score)) > 0)


@given(SCORES, st.floats(0, 1))
def test_no_other_cut_comes_nearer_to_the_wanted_number(scores, alpha):
    score = np.array(scores, np.float32)
    wanted = int(alpha * len(score))
    possible = [np.count_nonzero(score >= value) for value in score] if wanted else [0]
    nearest = min(abs(number - wanted) for number in possible)
    assert abs(np.count_nonzero(keep(score, "top_alpha", alpha)) - wanted) == nearest


def test_rows_of_their_own_scores_are_kept_to_the_number():
    score = np.random.default_rng(0).permutation(np.linspace(0, 1, 1000)).astype(np.float32)
    kept = keep(score, "top_alpha", 0.2934)
    assert kept.sum() == 293
    assert score[kept].min() > score[~kept].max()


@pytest.mark.parametrize(("alpha", "units"), [(0.26, 1), (0.37, 1), (0.38, 2), (0.6, 2)])
def test_units_stay_whole(alpha, units):
    """Four units of 100 rows each: the number of rows is rounded to whole units."""
    score = np.repeat(np.array([0.2, 0.8, 0.4, 0.6], np.float32), 100)
    assert keep(score, "top_alpha", alpha).sum() == 100 * units


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_other_modes_cut_at_one_half(mode):
    score = np.array([0.1, 0.5, 0.49, 0.9], np.float32)
    assert keep(score, mode, 0.01).tolist() == [False, True, False, True]
