import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.rl import iql, learner
from puorl.rl.learner import Batch
from puorl.rl.policy import stored_config

sys.path.insert(0, str(Path(__file__).parent))
import reference_iql as reference
import reference_nets as nets

SIZES = learner.Sizes(obs_dim=3, act_dim=2, num_rows=6)
CONFIG = iql.Config(
    hidden=(5, 4),
    expectile=0.8,
    beta=2.0,
    max_weight=1.5,
    actor_learning_rate=0.02,
    value_learning_rate=0.01,
    critic_learning_rate=0.03,
    gamma=0.9,
    tau=0.1,
)


def test_updates_agree_with_float64():
    rng = np.random.default_rng(2)
    num_steps = 3  # fewer than updates, so that the learning rate gets to its end
    implicit = iql.make(CONFIG, num_steps=num_steps)
    fresh = implicit.init(jax.random.key(0), SIZES)
    names = ("policy", "value", "critic", "target_critic")
    state = fresh._replace(**{name: nets.stirred(getattr(fresh, name), rng) for name in names})
    beyond = np.array([2.4, 0.3], np.float32)  # the first is above the range
    state = state._replace(policy=state.policy._replace(log_std=beyond))
    expected = nets.to_float64(state)
    update = jax.jit(implicit.update, static_argnums=3)
    capped = []
    for _ in range(4):
        batch = Batch(**nets.random_rows(rng, SIZES.num_rows, SIZES.obs_dim, SIZES.act_dim))
        plain, before = nets.to_float64(batch), expected
        state, metrics = update(state, batch, (), 0)
        expected, wanted = reference.update(expected, plain, CONFIG, num_steps)
        nets.assert_trees_agree(state, expected)
        nets.assert_trees_agree(metrics, wanted)
        q = reference.smaller_q(before.target_critic, plain)
        advantage = q - reference.v_values(expected.value, plain.obs)
        weight = reference.advantage_weight(advantage, CONFIG)
        capped.extend(weight[plain.keep > 0] == CONFIG.max_weight)
    assert 0 < sum(capped) < len(capped)  # the cap was at work, and was not all
    nets.assert_trees_agree(state.policy, before.policy)  # the last learning rate was 0
    assert state.policy.log_std[0] == beyond[0]


def test_the_policys_spread_stays_in_its_range():
    layer = mlp.Layer(jnp.zeros((3, 2), jnp.float32), jnp.array([0.2, -0.1], jnp.float32))
    policy = iql.Policy((layer,), jnp.array([-9.0, 9.0], jnp.float32))
    action = jnp.array([[0.2 + np.exp(-5), -0.1]], jnp.float32)  # one deviation off, and none
    found = iql.log_density(policy, jnp.ones((1, 3), jnp.float32), action)
    np.testing.assert_allclose(found, [-0.5 - (-5 + 2) - np.log(2 * np.pi)], rtol=1e-5)


def test_the_policys_learning_rate_is_half_a_cosine():
    config = iql.Config(actor_learning_rate=0.5)
    at = jnp.array([0, 2, 4, 8, 12], jnp.int32)
    rates = jax.vmap(lambda t: iql.actor_learning_rate(t, 8, config))(at)
    np.testing.assert_allclose(rates, [0.5, (2 + np.sqrt(2)) / 8, 0.25, 0, 0], atol=1e-7)


def test_a_chain_of_two_states_has_the_values_and_the_policy_of_the_paper():
    # State 0 leads to state 1 for no reward; there the episode ends with a reward for the action.
    reward = actions = np.linspace(-1, 1, 8)
    config = iql.Config(
        hidden=(32, 32),
        beta=2.0,
        actor_learning_rate=0.01,
        value_learning_rate=0.003,
        critic_learning_rate=0.003,
        gamma=0.8,
        tau=0.05,
    )
    num_updates = 600
    implicit = iql.make(config, num_steps=num_updates)
    batch = chain(actions, reward)
    state = implicit.init(jax.random.key(0), learner.Sizes(obs_dim=2, act_dim=1, num_rows=16))

    @jax.jit
    def train(state):
        def step(state, _):
            return implicit.update(state, batch, (), 0)

        return jax.lax.scan(step, state, length=num_updates)

    state, _ = train(state)

    end_value = expectile_of(reward, config.expectile)
    start_value = config.gamma * end_value
    states = jnp.eye(2, dtype=jnp.float32)
    learnt = np.asarray(iql.values(state.value, states))
    np.testing.assert_allclose(learnt, [start_value, end_value], atol=0.02)
    q = np.asarray(iql.q_values(state.critic, batch.obs, batch.action))
    truth = np.concatenate([np.full(8, start_value), reward])
    np.testing.assert_allclose(q, np.stack([truth, truth]), atol=0.05)

    # In state 0 all actions are equally good, in state 1 the better ones count for more.
    weight = np.exp(config.beta * (reward - end_value))
    best = (weight * actions).sum() / weight.sum()
    mean = np.asarray(mlp.apply_mlp(implicit.actor(state), states))[:, 0]
    np.testing.assert_allclose(mean, [0.0, best], atol=0.02)
    squares = (actions**2).sum() + (weight * (actions - best) ** 2).sum()
    std = np.sqrt(squares / (8 + weight.sum()))
    np.testing.assert_allclose(np.exp(state.policy.log_std), [std], rtol=0.02)


def chain(actions, reward):
    """Every action once in each of two states, as one batch."""
    num = len(actions)
    first, second = np.repeat(np.eye(2), num, axis=0).reshape(2, num, 2)
    zeros, ones = np.zeros(num), np.ones(num)
    both = np.tile(actions, 2)[:, None]
    rows = Batch(
        obs=np.concatenate([first, second]),
        action=both,
        reward=np.concatenate([zeros, reward]),
        next_obs=np.concatenate([second, second]),
        terminal=np.concatenate([zeros, ones]),
        next_action=np.zeros_like(both),
        keep=np.ones(2 * num),
        weight=np.ones(2 * num),
        critic_weight=np.ones(2 * num),
        position=np.arange(2 * num),
    )
    return Batch(*(jnp.asarray(array, jnp.float32) for array in rows[:-1]), jnp.arange(2 * num))


def expectile_of(x, expectile):
    """The number whose excesses, weighted by the expectile, balance its shortfalls."""
    low, high = x.min(), x.max()
    for _ in range(60):
        middle = (low + high) / 2
        above, below = np.maximum(x - middle, 0).sum(), np.maximum(middle - x, 0).sum()
        low, high = (middle, high) if expectile * above > (1 - expectile) * below else (low, middle)
    return middle


def test_rewards_are_scaled_and_states_are_not_normalised():
    implicit = learner.make("iql", num_steps=10)
    assert implicit.scale_rewards
    assert not implicit.normalise_states
    assert implicit.actor_kind == "clip"
    assert jax.tree.leaves(implicit.noise(jax.random.key(0), 4, 2)) == []


def test_scaling_is_an_option_that_runs_from_before_do_not_notice():
    plain = learner.make("iql", num_steps=10)
    assert not {"reward_scale", "normalise_states"} & stored_config(plain.config).keys()
    own = learner.make("iql", num_steps=10, reward_scale=0.1, normalise_states=True)
    assert (own.scale_rewards, own.reward_factor, own.normalise_states) == (False, 0.1, True)
    stored = stored_config(own.config)
    assert (stored["reward_scale"], stored["normalise_states"]) == (0.1, True)


def test_presets_are_those_of_the_papers():
    default = iql.PRESETS["default"]
    assert (default.expectile, default.beta, default.max_weight) == (0.7, 3.0, 100.0)
    assert iql.PRESETS["paper-table"] == default
    assert learner.make("iql", num_steps=1, preset="hopper-me").config.beta == 6.0


def test_only_v_is_normalised():
    state = iql.init(jax.random.key(0), SIZES, CONFIG)
    assert all(layer.norm is not None for layer in state.value[:-1])
    assert all(layer.norm is None for layer in (*state.critic, *state.policy.mean))


@pytest.mark.parametrize("expectile", [0.0, 1.0, -0.2])
def test_an_impossible_expectile_is_refused(expectile):
    with pytest.raises(ConfigError, match="expectile"):
        iql.Config(expectile=expectile)
