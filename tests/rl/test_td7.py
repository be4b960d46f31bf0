"""TD7 against a float64 reference, on a chain with a known optimum, and its sampler."""

import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.rl import td7
from puorl.rl.learner import Batch, Sizes

sys.path.insert(0, str(Path(__file__).parent))
import reference_td7
from reference_nets import assert_trees_agree, map_tree, to_float64

TINY = td7.Config(
    hidden=(5, 4),
    embedding_dim=3,
    batch_size=8,
    actor_learning_rate=3e-3,
    critic_learning_rate=2e-3,
    copy_every=4,
    bc_weight=0.7,
)
CHAIN = td7.Config(
    hidden=(16, 16),
    embedding_dim=8,
    batch_size=64,
    actor_learning_rate=5e-3,
    critic_learning_rate=5e-3,
    gamma=0.5,
    copy_every=50,
    policy_noise=0.0,
    policy_delay=1,
)
CHAIN_ROWS = 500
LOW, HIGH = -0.1, 0.1


@pytest.fixture(scope="module")
def fresh():
    sizes = Sizes(obs_dim=1, act_dim=1, num_rows=CHAIN_ROWS)
    return jax.jit(lambda key: td7.init(key, sizes, CHAIN))(jax.random.key(0))


def tiny_state():
    """Networks and their copies all differ; the targets' bounds are tight."""
    shapes = jax.eval_shape(lambda key: td7.init(key, Sizes(3, 2, 11), TINY), jax.random.key(0))
    rng = np.random.default_rng(0)

    def drawn(tree):
        return jax.tree.map(lambda x: jnp.asarray(rng.uniform(-0.7, 0.7, x.shape), x.dtype), tree)

    def zeros(tree):
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), tree)

    networks = ("encoder", "critic", "actor", "fixed_encoder", "target_encoder")
    networks += ("target_critic", "target_actor")
    return shapes._replace(
        **{name: drawn(getattr(shapes, name)) for name in networks},
        moments=zeros(shapes.moments),
        actor_moments=zeros(shapes.actor_moments),
        seen=td7.Range(jnp.float32(jnp.inf), jnp.float32(-jnp.inf)),
        bounds=td7.Range(jnp.float32(LOW), jnp.float32(HIGH)),
        priority=jnp.ones(shapes.priority.shape, jnp.float32),
    )


def tiny_batch(rng):
    """Two of eight rows are not kept, and say absurd things; two others are one row."""
    keep = np.array([1, 0, 1, 1, 1, 0, 1, 1])
    position = np.array([9, 4, 2, 7, 2, 0, 10, 5])
    b, absurd = len(keep), 1e3 * (1 - keep)
    batch = Batch(
        obs=rng.normal(size=(b, 3)),
        action=rng.uniform(-1, 1, (b, 2)),
        reward=1.5 * rng.normal(size=b) + absurd,
        next_obs=rng.normal(size=(b, 3)),
        terminal=rng.integers(0, 2, b),
        next_action=np.zeros((b, 2)),
        keep=keep,
        weight=rng.uniform(0.5, 2, b),
        critic_weight=rng.uniform(0.5, 2, b),
        position=position,
    )
    batch = map_tree(lambda x: x.astype(np.float32), batch)
    return batch._replace(position=position.astype(np.int32))


def test_eight_updates_are_those_of_the_reference():
    rng = np.random.default_rng(1)
    update = jax.jit(partial(td7.update, config=TINY), static_argnames="phase")
    state = tiny_state()
    expected = to_float64(state)
    next_q, priorities = [], []
    for number in range(1, 9):
        batch, noise = tiny_batch(rng), rng.normal(size=(8, 2)).astype(np.float32)
        state, metrics = update(state, map_tree(jnp.asarray, batch), noise, phase=(number - 1) % 2)
        exact, shaken = to_float64(batch), noise.astype(np.float64)
        if number <= TINY.copy_every:
            next_q.append(reference_td7.unclipped_next_q(expected, exact, shaken, TINY))
        expected, wanted = reference_td7.update(expected, exact, shaken, number, TINY)
        assert_trees_agree(state, expected)
        assert_trees_agree(metrics, wanted)
        priorities.append(expected.priority)
    # The batches did put the rules to work: clipping either way and not, priorities above 1.
    next_q = np.array(next_q)
    assert (next_q < LOW).any()
    assert (next_q > HIGH).any()
    assert ((next_q > LOW) & (next_q < HIGH)).any()
    assert np.max(priorities) > 1.2
    assert float(state.seen.high) < 10
    assert float(state.bounds.low) == float(state.seen.low)


def test_the_policy_acts_with_the_fixed_encoder():
    state = tiny_state()
    policy = to_float64(td7.make(TINY, num_steps=10).actor(state))
    obs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    act = jax.jit(lambda encoder: td7.act(state.actor, obs, td7.embed(encoder, obs)))
    expected = reference_td7.act_td7(policy, obs.astype(np.float64))
    np.testing.assert_allclose(act(state.fixed_encoder), expected, rtol=1e-5, atol=1e-6)
    assert np.abs(act(state.encoder) - expected).max() > 1e-3


def test_normalisation_by_mean_size():
    ours = td7.avg_l1_norm(jnp.array([[1.0, -3.0], [0.0, 0.0]]))
    np.testing.assert_allclose(ours, [[0.5, -1.5], [0.0, 0.0]])


def test_priorities_go_up_and_down_and_only_where_a_row_was_drawn():
    batch = tiny_batch(np.random.default_rng(0))
    error = jnp.array([0.2, 9.0, 32.0, 1.0, 3.0, 9.0, 0.0, 32.0])
    ours = td7.reprioritise(jnp.full(12, 2.0), error, map_tree(jnp.asarray, batch), TINY)
    #            row: 0  1  2  3  4  5  6  7  8  9  10 11; 32 ** 0.4 is 4
    np.testing.assert_allclose(ours, [2, 2, 4, 2, 2, 4, 2, 1, 2, 1, 1, 2], rtol=1e-6)


def test_rows_are_drawn_by_priority_and_never_beyond_the_lanes_own(fresh):
    rng = np.random.default_rng(0)
    priority = rng.choice([1.0, 1.0, 2.5, 6.0], fresh.priority.shape).astype(np.float32)
    priority[150:] = 50.0
    state = fresh._replace(priority=jnp.asarray(priority))
    num_draws, num_rows = 40_000, np.array([1, 64, 65, 150], np.int32)
    keys = jax.random.split(jax.random.key(1), len(num_rows))
    draw = jax.jit(jax.vmap(lambda key, n: td7.positions(state, key, n, num_draws)))
    drawn = np.asarray(draw(keys, num_rows))
    assert drawn.dtype == np.int32
    for rows, n in zip(drawn, num_rows, strict=True):
        counts = np.bincount(rows, minlength=n)
        assert len(counts) == n
        chance = priority[:n] / priority[:n].sum()
        deviation = np.sqrt(num_draws * chance * (1 - chance))
        assert (np.abs(counts - num_draws * chance) <= 4.5 * deviation + 1e-9).all()


def test_a_fresh_lane_has_equal_copies_equal_priorities_and_no_bounds_yet(fresh):
    for copy, original in (
        (fresh.fixed_encoder, fresh.encoder),
        (fresh.target_encoder, fresh.encoder),
        (fresh.target_critic, fresh.critic),
        (fresh.target_actor, fresh.actor),
    ):
        assert_trees_agree(copy, original, tolerance=0)
    first = fresh.critic.mlp[0].w
    assert first.shape == (2, 16 + 2 * 8, 16)
    assert np.abs(first[0] - first[1]).max() > 0.01
    np.testing.assert_array_equal(fresh.priority, np.ones(8 * 64))
    assert tuple(map(float, fresh.bounds)) == (0.0, 0.0)
    assert tuple(map(float, fresh.seen)) == (np.inf, -np.inf)


def test_a_copy_must_fall_on_an_update_of_the_actor():
    with pytest.raises(ConfigError, match=r"multiple of policy_delay \(2\), got 5"):
        td7.Config(copy_every=5)


def chain_rows(rng, n):
    """From state -1 to state 1 and out; the best actions are 0.6 and then -0.6."""
    is_first = rng.integers(0, 2, n).astype(np.float32)
    action = rng.uniform(-1, 1, n).astype(np.float32)
    reward = np.where(is_first == 1, 1 - (action - 0.6) ** 2, 4 - (action + 0.6) ** 2)
    ones = np.ones(n, np.float32)
    return Batch(
        obs=(1 - 2 * is_first)[:, None],
        action=action[:, None],
        reward=reward.astype(np.float32),
        next_obs=ones[:, None],
        terminal=1 - is_first,
        next_action=np.zeros((n, 1), np.float32),
        keep=ones,
        weight=ones,
        critic_weight=ones,
        position=np.arange(n, dtype=np.int32),
    )


def test_a_chain_of_two_states_is_learnt_to_td7s_own_optimum(fresh):
    learner = td7.make(CHAIN, num_steps=500)
    rows = map_tree(jnp.asarray, chain_rows(np.random.default_rng(0), CHAIN_ROWS))
    noise = jnp.zeros((CHAIN.batch_size, 1))

    def step(state, key):
        position = learner.positions(state, key, jnp.int32(CHAIN_ROWS), CHAIN.batch_size)
        batch = jax.tree.map(lambda column: column[position], rows)
        return learner.update(state, batch, noise, 0)[0], None

    def learnt(state, keys):
        state, _ = jax.lax.scan(step, state, keys)
        obs = jnp.array([[-1.0], [1.0]])
        z = td7.embed(state.fixed_encoder, obs)
        action = td7.act(state.actor, obs, z)
        return action[:, 0], td7.q_values(state.critic, state.fixed_encoder, obs, z, action)

    action, q = jax.jit(learnt)(fresh, jax.random.split(jax.random.key(1), 500))
    # Cloning pulls towards the data's mean, 0, with 0.1 times the mean value as its weight.
    best = 0.6 / (1 + 0.1 * (3 + 4) / 2)
    value = 4 - (0.6 - best) ** 2
    np.testing.assert_allclose(action, [best, -best], atol=0.1)
    np.testing.assert_allclose(q, [[value - 3 + 0.5 * value, value]] * 2, atol=0.15)
