import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from puorl.methods import make, otdf
from puorl.methods.otdf import OTDF, transport_costs

TINY = {"num_anchors": 50, "num_iterations": 50, "block": 400}


def cosine_costs(source, target):
    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    return 1.0 - unit(source.astype(np.float64)) @ unit(target.astype(np.float64)).T


def sinkhorn(cost, epsilon, iterations):
    """Costs of rows by Sinkhorn's algorithm with logarithms, in float64."""
    f, g = np.zeros(len(cost)), np.zeros(cost.shape[1])
    for _ in range(iterations):
        f = -epsilon * np.log(np.exp((g - cost) / epsilon).mean(axis=1))
        g = -epsilon * np.log(np.exp((f[:, None] - cost) / epsilon).mean(axis=0))
    plan = np.exp((f[:, None] + g - cost) / epsilon)
    return (plan * cost).sum(axis=1) / plan.sum(axis=1)


def test_costs_are_those_of_sinkhorn_in_float64():
    rng = np.random.default_rng(0)
    source = rng.normal(0.5, 1, (40, 5)).astype(np.float32)
    target = rng.normal(0, 1, (30, 5)).astype(np.float32)
    cost = cosine_costs(source, target)
    expected = sinkhorn(cost, 0.05 * cost.mean(), 200)
    np.testing.assert_allclose(transport_costs(source, target, 100, 200), expected, rtol=2e-3)


def test_the_total_is_near_that_of_the_best_assignment(monkeypatch):
    monkeypatch.setattr(otdf, "_RELATIVE_EPSILON", 0.01)
    rng = np.random.default_rng(1)
    source, target = (rng.normal(m, 1, (37, 4)).astype(np.float32) for m in (0.5, 0.0))
    cost = cosine_costs(source, target)
    best = cost[linear_sum_assignment(cost)].mean()
    found = transport_costs(source, target, 37, 2_000).mean()
    assert best <= found * 1.001
    assert found == pytest.approx(best, rel=0.05)


def test_blocks_cover_all_rows():
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(25, 3)), rng.normal(size=(10, 3))
    found = transport_costs(source.astype(np.float32), target.astype(np.float32), 10, 20)
    last = transport_costs(source[15:].astype(np.float32), target.astype(np.float32), 10, 20)
    assert (found > 0).all()
    np.testing.assert_allclose(found[15:], last)


def test_far_rows_are_left_out_and_near_ones_weigh_more(small_split):
    chosen = make("oracle_otdf", **TINY).prepare(small_split, seed=0)
    free = make("oracle_otdf", **TINY, regularisation=0.0).prepare(small_split, seed=0)
    truth = small_split.reveal("scoring")
    num_target = int((truth == 0).sum())
    assert free.groups.num_first == num_target
    assert (truth[free.rows[:num_target]] == 0).all()
    assert len(free) - num_target == round(0.8 * (1_000 - num_target))
    assert free.metadata["num_source"] == len(free) - num_target
    assert free.action is None
    assert (free.critic_weight[:num_target] == 1.0).all()
    of_source = free.critic_weight[num_target:]
    assert of_source.max() == pytest.approx(1.0)  # the cheapest row
    assert np.exp(-1) < of_source.min() < 0.999
    # By a loop: weights fall as the cost rises from the lowest to the highest of all.
    np.testing.assert_array_equal(free.rows, chosen.rows[: len(free)])


def test_the_constraint_is_rows_with_the_nearest_states_action(small_split):
    chosen = make("oracle_otdf", **TINY).prepare(small_split, seed=0)
    first, num = chosen.groups.num_first, chosen.metadata["num_source"]
    assert len(chosen) == first + 2 * num
    assert (chosen.critic_weight[first + num :] == 0.0).all()
    assert (chosen.weight[: first + num] == 1.0).all()
    assert (chosen.weight[first + num :] == 2.5).all()  # 0.5 over twice the variance 0.1
    pool = small_split.pool
    np.testing.assert_array_equal(
        chosen.action[: first + num], pool.action[chosen.rows[: first + num]]
    )
    target = chosen.rows[:first]
    for i in range(first + num, len(chosen), 97):
        distance = np.abs(pool.obs[target, 0] - pool.obs[chosen.rows[i], 0])
        assert chosen.action[i] == pool.action[target[distance.argmin()]]


def test_the_seed_draws_what_stands_for_the_target(small_split):
    first, again, other = (
        OTDF(**TINY).prepare(small_split, seed=seed).critic_weight for seed in (0, 0, 1)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()
