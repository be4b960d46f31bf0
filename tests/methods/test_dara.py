import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.methods import dara
from puorl.methods.dara import DARA, Classifiers
from puorl.nn import mlp

TINY = DARA(hidden=(4,), num_steps=3, batch_size=8)


def ratios(probability):
    """(n, 2) logits of which the softmax gives (source, target) = (p, 1 - p)."""
    p = np.asarray(probability)
    return jnp.asarray(np.stack([np.log(p), np.log(1 - p)], axis=1), jnp.float32)


def delta_of(chosen, split, eta):
    """What was taken off the rewards, divided by eta."""
    before = split.pool.reward[chosen.rows]
    return ((before - chosen.reward) / eta)[len(split.labelled) :]


def test_delta_is_the_log_ratio_with_minus():
    sas, sa = ratios([0.9, 0.2, 0.5]), ratios([0.6, 0.6, 0.1])
    delta = dara.delta_reward(sas, sa)
    np.testing.assert_allclose(delta, np.log([9 / 1.5, 0.25 / 1.5, 9.0]), rtol=1e-5)


def test_delta_is_zero_where_both_classifiers_agree():
    agreed = ratios([0.01, 0.5, 0.7])
    assert dara.delta_reward(agreed, agreed).tolist() == [0.0, 0.0, 0.0]


def test_delta_is_clipped(small_split):
    free = DARA(hidden=(4,), num_steps=3, batch_size=8).prepare(small_split, seed=0)
    low, high = free.metadata["delta_range"]
    bound = min(-low, high) / 2
    assert bound > 0
    bounded = DARA(hidden=(4,), num_steps=3, batch_size=8, clip=bound).prepare(small_split, seed=0)
    assert bounded.metadata["delta_range"] == pytest.approx([-bound, bound])


def test_cross_entropy_is_that_of_float64():
    logits = np.random.default_rng(0).normal(0, 3, (10, 2))
    log_softmax = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -np.concatenate([log_softmax[:5, 0], log_softmax[5:, 1]]).mean()
    assert float(dara.cross_entropy(jnp.asarray(logits, jnp.float32))) == pytest.approx(
        expected, rel=1e-5
    )


def test_rmsprop_is_that_of_float64():
    rng = np.random.default_rng(0)
    p, square = rng.normal(size=4), np.zeros(4)
    state = (jnp.asarray(p, jnp.float32), jnp.zeros(4))
    for grad in rng.normal(size=(3, 4)):
        square = 0.99 * square + 0.01 * grad**2
        p = p - 3e-4 * grad / (np.sqrt(square) + 1e-8)
        state = dara.rmsprop(state[0], jnp.asarray(grad, jnp.float32), state[1], 3e-4)
    np.testing.assert_allclose(state[0], p, rtol=1e-5)
    np.testing.assert_allclose(state[1], square, rtol=1e-5)


def test_heads_are_bounded_and_the_first_stands_on_the_second():
    keys = jax.random.split(jax.random.key(0), 2)
    nets = Classifiers(mlp.init_mlp(keys[0], (3, 8, 2)), mlp.init_mlp(keys[1], (2, 8, 2)))
    x = 100.0 * jax.random.normal(jax.random.key(1), (50, 3))
    sas, sa = dara.logits(nets, x)
    own = 2 * np.tanh(mlp.apply_mlp(nets.sas, x))
    np.testing.assert_allclose(sas, own + np.asarray(sa), atol=1e-6)
    assert float(jnp.abs(sa).max()) <= 2.0
    assert float(jnp.abs(sas).max()) > 2.0
    delta = dara.delta_reward(sas, sa)
    assert 3.0 < float(jnp.abs(delta).max()) <= 4.0 + 1e-5

    grad = jax.grad(lambda nets: dara.logits(nets, x)[0].sum())(nets)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(grad.sa))
    assert any(np.any(leaf) for leaf in jax.tree.leaves(grad.sas))


def test_weights_start_as_glorots():
    w, b = dara.xavier_uniform(jax.random.key(0), 200, 100)
    assert float(jnp.abs(w).max()) <= np.sqrt(6 / 300)
    assert float(w.var()) == pytest.approx(2 / 300, rel=0.03)
    assert not np.any(b)


def test_labelled_rewards_are_untouched_and_others_follow_delta(small_split):
    before = small_split.pool.reward
    chosen = TINY.prepare(small_split, seed=0)
    assert chosen.reward.dtype == before.dtype
    num = len(small_split.labelled)
    assert chosen.reward[:num].tobytes() == before[small_split.labelled].tobytes()
    assert np.any(chosen.reward[num:] != before[small_split.unlabelled])
    assert chosen.groups is None
    twice = DARA(hidden=(4,), num_steps=3, batch_size=8, eta=0.2).prepare(small_split, seed=0)
    once = delta_of(chosen, small_split, 0.1)
    np.testing.assert_allclose(delta_of(twice, small_split, 0.2), once, atol=1e-5)
    assert chosen.metadata["delta_mean_size"] == pytest.approx(np.abs(once).mean(), rel=1e-4)
    assert chosen.metadata["delta_range"] == pytest.approx([once.min(), once.max()], rel=1e-4)


def test_half_of_a_batch_may_be_labelled(small_split):
    half = DARA(hidden=(4,), num_steps=3, batch_size=8, sampling="half")
    groups = half.prepare(small_split, seed=0).groups
    assert (groups.num_first, groups.first_share, groups.top) == (100, 0.5, 1.0)


def test_seed_decides(small_split):
    first, again, other = (TINY.prepare(small_split, seed=s).reward for s in (0, 0, 1))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_unknown_next_states_keep_their_reward(open_split):
    split = PUSplit.from_mask(open_split, np.arange(1_000) < 100)
    delta = delta_of(TINY.prepare(split, seed=0), split, 0.1)
    unknown = ~open_split.rows.next_known[split.unlabelled]
    assert unknown.sum() == 18
    assert not np.any(delta[unknown])
    assert np.all(delta[~unknown] != 0.0)


def test_rewards_are_needed():
    bare = Dataset.from_arrays(
        obs=np.zeros((4, 1)), action=np.zeros((4, 1)), next_obs=np.zeros((4, 1))
    )
    with pytest.raises(DataError, match="dara: expected rows with a reward"):
        TINY.prepare(PUSplit.from_mask(bare, np.arange(4) == 0), seed=0)


def bell(x, mean, deviation):
    return np.exp(-0.5 * ((x - mean) / deviation) ** 2) / deviation


def true_log_ratio(split, shift, where):
    """Log of the target's density over the unlabelled rows' own density of s' given (s, a)."""
    alpha = np.mean(split.reveal("scoring")[split.unlabelled] == 0)
    rows = split.pool.rows[split.unlabelled]
    obs, middle = rows.obs[:, 0], rows.obs[:, 0] + 0.3 * rows.action[:, 0]
    of_target = alpha * bell(obs, 0.0, 1.0)
    share = of_target / (of_target + (1 - alpha) * bell(obs, where, 1.0))
    target = bell(rows.next_obs[:, 0], middle, 0.3)
    other = bell(rows.next_obs[:, 0], middle + shift, 0.3)
    return np.log(target / (share * target + (1 - share) * other))


def test_delta_finds_the_ratio_of_known_dynamics(worlds):
    """Behaviour differs as well, and must cancel: the states of the other domain lie elsewhere."""
    split = worlds.split(shift=0.3, where=0.7)
    method = DARA(hidden=(32, 32), num_steps=1_500, learning_rate=1e-3)
    chosen = method.prepare(split, seed=0)
    truth, found = true_log_ratio(split, 0.3, 0.7), -delta_of(chosen, split, 0.1)
    assert np.corrcoef(found, truth)[0, 1] > 0.95
    assert np.polyfit(truth, found, 1)[0] == pytest.approx(1.0, abs=0.1)
    # The sign: what the target's dynamics are likely to make is worth more than before.
    gain = chosen.reward[len(split.labelled) :] - split.pool.reward[split.unlabelled]
    assert gain[truth > 0.5].mean() > 0.04
    assert gain[truth < -0.5].mean() < -0.04
