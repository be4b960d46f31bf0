import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.rl import cql, learner
from puorl.rl.learner import Batch

sys.path.insert(0, str(Path(__file__).parent))
import reference_cql as reference
import reference_nets as nets

SIZES = learner.Sizes(obs_dim=3, act_dim=2, num_rows=6)
CONFIG = cql.Config(
    conservative_weight=1.5,
    num_sampled=3,
    hidden=(5, 4),
    actor_learning_rate=0.02,
    critic_learning_rate=0.03,
    gamma=0.9,
    tau=0.1,
    log_std_offset=-0.5,
)


@pytest.fixture(scope="module")
def fresh():
    return jax.jit(lambda key: cql.init(key, SIZES, CONFIG))(jax.random.key(0))


def test_updates_agree_with_float64(fresh):
    # A seed without a dead unit: where a gradient is 0, Adam makes a step of rounding errors.
    rng = np.random.default_rng(0)
    learnt = cql.make(CONFIG, num_steps=3)
    names = ("policy", "critic", "target_critic")
    state = fresh._replace(**{name: nets.stirred(getattr(fresh, name), rng) for name in names})
    state = state._replace(policy=wide(state.policy))
    expected = nets.to_float64(state)
    update = jax.jit(learnt.update, static_argnums=3)
    for _ in range(3):
        batch = Batch(**nets.random_rows(rng, SIZES.num_rows, SIZES.obs_dim, SIZES.act_dim))
        noise = random_noise(rng)
        state, metrics = update(state, batch, noise, 0)
        expected, wanted = reference.update(
            expected, nets.to_float64(batch), nets.to_float64(noise), CONFIG
        )
        nets.assert_trees_agree(state, expected)
        nets.assert_trees_agree(metrics, wanted)


def random_noise(rng):
    n, rows = CONFIG.num_sampled, (SIZES.num_rows, SIZES.act_dim)
    return cql.Noise(
        uniform=rng.uniform(-1, 1, (n, *rows)).astype(np.float32),
        normal=rng.normal(size=(2, 1 + n, *rows)).astype(np.float32),
    )


def wide(policy):
    """The policy with a deviation that is cut to its range, in the last component of an action."""
    last = policy.actor[-1]
    last = last._replace(b=np.concatenate([last.b[:-1], np.array([4.0], np.float32)]))
    return policy._replace(actor=(*policy.actor[:-1], last))


def test_noise_is_uniform_and_normal():
    noise = cql.noise(jax.random.key(0), 200, 2, CONFIG)
    assert noise.uniform.shape == (3, 200, 2)
    assert noise.normal.shape == (2, 4, 200, 2)
    assert np.abs(noise.uniform).max() <= 1
    # Uniform in [-1, 1] has a standard deviation of 1 / sqrt(3).
    np.testing.assert_allclose(np.std(noise.uniform), 1 / np.sqrt(3), rtol=0.05)
    np.testing.assert_allclose(np.std(noise.normal), 1.0, rtol=0.05)


def test_a_one_step_problem_has_the_conservative_values_and_their_best_action():
    # Data thin out towards +1, so that caution draws the best action to the left of the reward's.
    # A narrow policy's samples miss most of the integral; so the critics learn beside one that is
    # wide and stays, and then it learns beside critics that stay.
    weight, lean, num_rows = 4.0, 0.8, 32
    wide_policy = cql.Config(conservative_weight=weight, hidden=(32, 32), log_std_offset=0.0)
    share = (np.arange(num_rows) + 0.5) / num_rows
    # Quantiles of the density (1 - lean * a) / 2.
    actions = (1 - np.sqrt((1 + lean) ** 2 - 4 * lean * share)) / lean
    batch = one_step(actions, reward_of(actions))

    def train(state, key, actor_rate, critic_rate):
        rates = {"actor_learning_rate": actor_rate, "critic_learning_rate": critic_rate}
        config = dataclasses.replace(wide_policy, **rates)

        def step(state, key):
            return cql.update(state, batch, cql.noise(key, num_rows, 1, config), 0, config)

        return jax.lax.scan(step, state, jax.random.split(key, 500))[0]

    def learn(seed):
        first, critic_key, actor_key = jax.random.split(jax.random.key(seed), 3)
        state = cql.init(first, sizes, wide_policy)
        state = train(state, critic_key, 0.0, 3e-3)
        q = cql.q_values(state.critic, batch.obs, batch.action)
        state = train(state, actor_key, 2e-2, 0.0)
        return q, jnp.tanh(mlp.apply_mlp(cql.mean_actor(state), batch.obs[:1]))[0, 0]

    # The last few updates move a single policy by some hundredths: the mean of several says more.
    sizes = learner.Sizes(obs_dim=1, act_dim=1, num_rows=num_rows)
    q, learnt = jax.jit(jax.vmap(learn))(jnp.arange(8))
    grid = np.linspace(-1, 1, 401)
    truth = reference.conservative_q(grid, reward_of(grid), (1 - lean * grid) / 2, weight)
    expected = np.interp(actions, grid, truth)
    np.testing.assert_allclose(q.mean(axis=0), np.stack([expected, expected]), atol=0.1)

    best = grid[truth.argmax()]
    assert best < 0  # where the reward's best action is 0.3
    np.testing.assert_allclose(learnt.mean(), best, atol=0.06)


def reward_of(action):
    return -2 * (action - 0.3) ** 2


def one_step(actions, reward):
    """A batch of one state whose episodes end after one action."""
    num = len(actions)
    ones, column = jnp.ones(num), jnp.ones((num, 1))
    return Batch(
        obs=column,
        action=jnp.asarray(actions[:, None], jnp.float32),
        reward=jnp.asarray(reward, jnp.float32),
        next_obs=column,
        terminal=ones,
        next_action=jnp.zeros_like(column),
        keep=ones,
        weight=ones,
        critic_weight=ones,
        position=jnp.arange(num),
    )


def test_the_actor_is_the_mean_of_the_policy(fresh):
    rng = np.random.default_rng(1)
    state = fresh._replace(policy=nets.stirred(fresh.policy, rng))
    obs = rng.normal(size=(5, SIZES.obs_dim)).astype(np.float32)
    mean = np.asarray(mlp.apply_mlp(state.policy.actor, obs))[:, : SIZES.act_dim]
    np.testing.assert_allclose(mlp.apply_mlp(cql.mean_actor(state), obs), mean, rtol=1e-6)

    lanes = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    assert cql.mean_actor(lanes)[-1].w.shape == (2, 4, SIZES.act_dim)


def test_presets_are_those_of_the_two_sources():
    corl = learner.make("cql", num_steps=1)
    assert corl.normalise_states
    assert (corl.config.actor_learning_rate, corl.config.conservative_weight) == (3e-5, 10.0)
    assert corl.config.hidden == (256, 256, 256)
    jax_corl = learner.make("cql", num_steps=1, preset="jax-corl")
    assert not jax_corl.normalise_states
    assert jax_corl.config.hidden == (256, 256)
    assert (jax_corl.config.actor_learning_rate, jax_corl.config.conservative_weight) == (3e-4, 5.0)


def test_networks_start_orthogonal_with_small_outputs(fresh):
    for w, gain in ((fresh.policy.actor[0].w, np.sqrt(2)), (fresh.policy.actor[-1].w, 0.01)):
        np.testing.assert_allclose(np.linalg.svd(w, compute_uv=False), gain, rtol=1e-4)
    assert fresh.policy.log_entropy_weight == 0


def test_no_sampled_actions_are_refused():
    with pytest.raises(ConfigError, match="num_sampled: expected at least 1, got 0"):
        cql.Config(num_sampled=0)
