import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.methods import make
from puorl.methods.srpo import ranked

SMALL = {"hidden": (32, 32), "num_steps": 1_500, "batch_size": 64}


def test_ranks_part_low_from_high_and_leave_one_in_each():
    low, high = ranked(np.array([3.0, 1.0, 2.0, 5.0]), 0.5)
    assert set(low) == {1, 2}
    assert set(high) == {0, 3}
    assert [len(part) for part in ranked(np.arange(4.0), 0.01)] == [1, 3]
    assert [len(part) for part in ranked(np.arange(4.0), 0.99)] == [3, 1]


def line(num, *, seed, step):
    """Steps to the left or right between 0 and 1; the reward is the state that follows."""
    rng = np.random.default_rng(seed)
    obs, action = rng.uniform(0, 1, (num, 1)), rng.choice([-1.0, 1.0], (num, 1))
    after = np.clip(obs + step * action, 0, 1)
    return Dataset.from_arrays(obs=obs, action=action, next_obs=after, reward=after[:, 0])


@pytest.fixture(scope="module")
def split():
    target, other = line(300, seed=1, step=0.2), line(700, seed=2, step=0.1)
    return make_split(target, other, rows=1_000, labelled_fraction=0.1, seed=0)


@pytest.fixture(scope="module")
def chosen(split):
    return make("oracle_srpo", **SMALL, weight=0.5).prepare(split, seed=0)


def test_states_of_high_value_are_rewarded_in_the_source_alone(chosen, split):
    before = split.pool.reward[chosen.rows]
    num = chosen.metadata["num_target"]
    np.testing.assert_array_equal(chosen.reward[:num], before[:num])
    added = chosen.reward[num:] - before[num:]
    state = split.pool.obs[chosen.rows[num:], 0]
    assert (added[state > 0.7] > 0.2).mean() > 0.9
    assert (added[state < 0.3] < -0.2).mean() > 0.9


def test_the_term_is_bounded_and_proportional_to_its_weight(chosen, split):
    before = split.pool.reward[chosen.rows]
    size = np.abs(chosen.reward - before)
    assert size.max() <= 0.5 * np.log(10) + 1e-6
    half = make("oracle_srpo", **SMALL, weight=0.25).prepare(split, seed=0)
    np.testing.assert_allclose(half.reward - before, (chosen.reward - before) / 2, atol=1e-6)
    none = make("srpo", **SMALL, weight=0.0).prepare(split, seed=0)
    np.testing.assert_array_equal(none.reward, split.pool.reward[none.rows])


def test_probabilities_share_the_term_out(small_split, fitted):
    found = make("pu_srpo", **SMALL, filter=fitted).prepare(small_split, seed=0)
    num = len(small_split.labelled)
    probability = dict(zip(small_split.unlabelled, fitted.predict_proba(small_split), strict=True))
    added = found.reward[num:] - small_split.pool.reward[found.rows[num:]]
    left = np.array([1.0 - probability[row] for row in found.rows[num:]])
    assert (np.abs(added) <= 0.1 * np.log(10) * left + 1e-6).all()
    assert np.abs(added).max() > 0.1
