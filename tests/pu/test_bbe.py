"""BBE against a plain loop over the definition, its slack values and its measured behaviour."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.core.hashing import generator
from puorl.pu.alpha import bbe, bound_slack


def by_definition(score_p, score_u, k):
    """Every threshold in turn, as the estimator is described."""
    p, u = np.sort(score_p)[::-1], np.sort(score_u)[::-1]
    slack = bound_slack(len(p), len(u), k=k)
    best_bound, best_ratio = np.inf, 0.0
    for i in range(len(u) - 1):  # the very last row of U is never used
        if u[i] == u[i + 1]:  # only the last of a run of equal scores counts
            continue
        j = np.count_nonzero(p >= u[i])
        if j < 2 or i < 2:
            continue
        share_p = j / len(p)
        ratio = i / len(u) / share_p
        if ratio + slack / share_p < best_bound:
            best_bound, best_ratio = ratio + slack / share_p, ratio
    return min(best_ratio, 0.999)


SCORES = st.one_of(
    st.lists(st.integers(0, 8).map(float), min_size=1, max_size=25),
    st.lists(st.floats(-5, 5), min_size=1, max_size=25),
)


@given(SCORES, SCORES, st.sampled_from([1.0, 4.0]))
def test_equals_the_plain_loop(score_p, score_u, k):
    fast = bbe(np.array(score_p), np.array(score_u), k=k).value
    assert fast == pytest.approx(by_definition(score_p, score_u, k), abs=1e-12)


@pytest.mark.parametrize(
    ("num_p", "num_u", "k", "slack"),
    [
        (1000, 99_000, 1, 0.0377),
        (1000, 99_000, 4, 0.0477),
        (3000, 97_000, 1, 0.0233),
        (3000, 97_000, 4, 0.0294),
    ],
)
def test_slack_values(num_p, num_u, k, slack):
    assert bound_slack(num_p, num_u, k=k) == pytest.approx(slack, abs=5e-5)


# alpha-hat for k = 1 and k = 4 as measured before, 10 draws each; beside it the standard
# deviation of one draw in our own runs, of which two sets of 10 draws may differ by 4 / sqrt(5).
@pytest.mark.parametrize(
    ("num_p", "num_u", "alpha", "gap", "before", "spread"),
    [
        (1000, 99_000, 29 / 99, 8, (0.291, 0.292), (0.004, 0.002)),
        (1000, 99_000, 29 / 99, 2, (0.313, 0.322), (0.019, 0.017)),
        (1000, 99_000, 29 / 99, 1, (0.429, 0.462), (0.028, 0.026)),
        (3000, 97_000, 27 / 97, 8, (0.276, 0.277), (0.002, 0.002)),
        (3000, 97_000, 27 / 97, 2, (0.301, 0.315), (0.008, 0.0075)),
        (3000, 97_000, 27 / 97, 1, (0.404, 0.429), (0.016, 0.015)),
    ],
)
def test_behaviour_on_gaussians(num_p, num_u, alpha, gap, before, spread):
    rng = generator(0, "bbe behaviour", gap, num_p)
    num_target = round(alpha * num_u)
    values = []
    for _ in range(10):
        score_p = rng.normal(gap, 1, num_p)
        score_u = np.r_[rng.normal(gap, 1, num_target), rng.normal(0, 1, num_u - num_target)]
        values.append([bbe(score_p, score_u, k=k).value for k in (1, 4)])
    for mean, expected, sd in zip(np.mean(values, axis=0), before, spread, strict=True):
        assert mean == pytest.approx(expected, abs=4 * sd / 5**0.5)


def test_perfect_separation_returns_alpha():
    score_p = np.full(100, 1.0)
    score_u = np.r_[np.full(300, 1.0), np.zeros(700)]
    assert bbe(score_p, score_u).value == pytest.approx(0.299)  # one less than the 300 rows


def test_no_threshold_gives_zero():
    assert bbe(np.array([1.0]), np.array([0.1, 0.2, 0.3, 0.4])).value == 0.0
    assert bbe(np.ones(5), np.ones(5)).value == 0.0
    assert bbe(np.ones(5), np.array([1.0])).value == 0.0


@given(st.integers(0, 10**6))
def test_only_the_order_of_scores_counts(seed):
    rng = np.random.default_rng(seed)
    score_p, score_u = rng.normal(1, 1, 50), rng.normal(0, 1, 200)
    assert bbe(score_p, score_u).value == bbe(np.arctan(score_p), np.arctan(score_u)).value
    assert bbe(rng.permutation(score_p), rng.permutation(score_u)) == bbe(score_p, score_u)


def test_fast_at_the_papers_size():
    rng = generator(0, "bbe speed")
    score_p, score_u = rng.random(1_000, np.float32), rng.random(99_000, np.float32)
    times = []
    for _ in range(7):
        begin = time.process_time()
        bbe(score_p, score_u)
        times.append(time.process_time() - begin)
    assert min(times) < 0.015


def test_constants_without_a_bound_are_refused():
    with pytest.raises(ConfigError, match="0 < delta < k"):
        bbe(np.arange(9.0), np.arange(9.0), k=0.05)
