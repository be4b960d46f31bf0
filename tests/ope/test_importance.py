"""Importance sampling against exact values: all paths, weighted by their exact probability."""

import numpy as np
import pytest
import tabular
from hypothesis import given
from hypothesis import strategies as st

from puorl.ope import importance

STEPS, GAMMA = 4, 0.8


@pytest.fixture(scope="module")
def paths():
    """Log ratios and rewards of all paths, their probabilities as counts, and the exact value."""
    s, a, chance = tabular.all_paths(STEPS)
    ratio = np.log(tabular.WANTED[s, a] / tabular.LOGGED[s, a])
    exact = tabular.START @ tabular.value_after(tabular.WANTED, STEPS, GAMMA)
    return s, a, ratio, tabular.REWARD[s, a], chance[None], exact


def test_paths_have_probability_one(paths):
    assert paths[4].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("weighted", [True, False])
def test_per_decision_is_exact_over_all_paths(paths, weighted):
    _, _, ratio, reward, count, exact = paths
    found = importance.per_decision(ratio, reward, GAMMA, count, weighted=weighted)
    assert found == pytest.approx([exact], abs=1e-10)


def test_trajectory_wise_is_exact_over_all_paths(paths):
    _, _, ratio, reward, count, exact = paths
    found = importance.trajectory_wise(ratio, reward, GAMMA, count)
    assert found == pytest.approx([exact], abs=1e-10)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_doubly_robust_is_exact_with_any_critic(paths, seed):
    s, a, ratio, reward, count, exact = paths
    # A wrong critic that depends on the step; its values are consistent with each other.
    rng = np.random.default_rng(seed)
    table = np.concatenate([rng.normal(size=(STEPS, 3, 2)), np.zeros((1, 3, 2))])
    step = np.arange(STEPS)
    v_table = (table * tabular.WANTED).sum(axis=2)
    q, v = table[step, s, a], v_table[step, s]
    next_v = np.concatenate([v[:, 1:], np.zeros((len(s), 1))], axis=1)
    found = importance.doubly_robust(ratio, reward, q, v, next_v, GAMMA, count)
    assert found == pytest.approx([exact], abs=1e-10)


def test_doubly_robust_of_a_right_critic_needs_no_right_ratio(paths):
    s, a, _, reward, count, _ = paths
    # The exact critic of the logged policy: TD errors have mean 0 given state and action.
    values = [tabular.value_after(tabular.LOGGED, STEPS - t, GAMMA) for t in range(STEPS + 1)]
    q = np.stack([(tabular.REWARD + GAMMA * tabular.MOVE @ v) for v in values[1:]])
    step = np.arange(STEPS)
    v = np.stack(values[:-1])[step, s]
    next_v = np.concatenate([v[:, 1:], np.zeros((len(s), 1))], axis=1)
    exact = tabular.START @ values[0]
    same = np.zeros_like(reward)
    found = importance.doubly_robust(same, reward, q[step, s, a], v, next_v, GAMMA, count)
    assert found == pytest.approx([exact], abs=1e-9)
    plain = importance.per_decision(same, reward, GAMMA, count)
    assert plain == pytest.approx([exact], abs=1e-9)


def test_a_sample_converges_to_the_exact_value(paths):
    s, a, ratio, reward, count, exact = paths
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(20_000, count[0] / count.sum())[None].astype(float)
    for estimator in (importance.per_decision, importance.trajectory_wise):
        assert estimator(ratio, reward, GAMMA, drawn)[0] == pytest.approx(exact, abs=0.05)
    # What the weights correct is not small.
    assert abs((drawn @ importance.discounted(reward, GAMMA) / 20_000)[0] - exact) > 0.3


def test_effective_size_counts_episodes_that_carry_weight():
    reward, log = np.ones((10, 3)), np.zeros((10, 3))
    assert importance.effective_size(log, reward, 0.9) == pytest.approx(10.0)
    log[0, 0] = 50.0  # one episode outweighs all others
    assert importance.effective_size(log, reward, 0.9) == pytest.approx(1.0)


@given(st.integers(2, 6), st.integers(1, 5), st.floats(0.0, 0.99), st.integers(0, 99))
def test_equal_policies_give_the_mean_return(num, steps, gamma, seed):
    reward = np.random.default_rng(seed).normal(size=(num, steps))
    same, count = np.zeros_like(reward), np.ones((1, num))
    mean = importance.discounted(reward, gamma).mean()
    for estimator in (importance.per_decision, importance.trajectory_wise):
        assert estimator(same, reward, gamma, count) == pytest.approx([mean])


@given(st.integers(0, 99), st.floats(-400.0, 400.0))
def test_weighted_estimates_stay_within_the_rewards(seed, size):
    rng = np.random.default_rng(seed)
    reward, log = rng.uniform(1.0, 2.0, (5, 4)), size * rng.normal(size=(5, 4))
    found = importance.per_decision(log, reward, 0.5, np.ones((1, 5)))
    assert 1.875 - 1e-9 <= found[0] <= 3.75 + 1e-9


def test_a_draw_without_any_weight_is_unknown():
    log = np.array([[0.0], [-2000.0]])
    found = importance.trajectory_wise(
        np.maximum(log, -500.0) * 2, np.ones((2, 1)), 0.9, np.array([[1.0, 1.0], [0.0, 2.0]])
    )
    assert found[0] == pytest.approx(1.0)
