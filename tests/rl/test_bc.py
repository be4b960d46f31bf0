import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from puorl.rl import bc, learner
from puorl.rl.learner import Batch

sys.path.insert(0, str(Path(__file__).parent))
import reference_bc as reference
import reference_nets as nets

SIZES = learner.Sizes(obs_dim=3, act_dim=2, num_rows=6)
CONFIG = bc.Config(hidden=(5, 4), actor_learning_rate=0.02)


def test_updates_agree_with_float64():
    rng = np.random.default_rng(0)
    cloning = bc.make(CONFIG, num_steps=3)
    fresh = cloning.init(jax.random.key(0), SIZES)
    state = fresh._replace(actor=nets.stirred(fresh.actor, rng))
    expected = nets.to_float64(state)
    update = jax.jit(cloning.update, static_argnums=3)
    for _ in range(3):
        batch = Batch(**nets.random_rows(rng, SIZES.num_rows, SIZES.obs_dim, SIZES.act_dim))
        state, metrics = update(state, batch, (), 0)
        expected, wanted = reference.update(expected, nets.to_float64(batch), CONFIG)
        nets.assert_trees_agree(state, expected)
        nets.assert_trees_agree(metrics, wanted)


def test_it_learns_the_mean_action_of_each_state():
    # Two states, four actions each: the best clone takes their mean, here 0.3 and -0.45.
    obs = np.repeat([[1.0, 0.0], [0.0, 1.0]], 4, axis=0).astype(np.float32)
    action = np.array([[-0.3, 0.1, 0.5, 0.9, -0.9, -0.7, -0.3, 0.1]], np.float32).T
    ones, zeros = np.ones(8, np.float32), np.zeros(8, np.float32)
    position = np.arange(8, dtype=np.int32)
    batch = Batch(obs, action, zeros, obs, zeros, action, ones, ones, ones, position)
    cloning = bc.make(bc.Config(hidden=(16, 16), actor_learning_rate=0.01), num_steps=300)
    state = cloning.init(jax.random.key(1), learner.Sizes(obs_dim=2, act_dim=1, num_rows=8))

    @jax.jit
    def train(state):
        def step(state, _):
            return cloning.update(state, batch, (), 0)

        return jax.lax.scan(step, state, length=300)

    state, metrics = train(jax.tree.map(jnp.asarray, state))
    learnt = np.asarray(bc.act(cloning.actor(state), jnp.asarray(obs[[0, 4]])))
    np.testing.assert_allclose(learnt, [[0.3], [-0.45]], atol=0.01)
    assert set(metrics) == {"actor_loss"}
    spread = (0.2 + 0.1475) / 2  # the variance of each state's actions is what cannot be learnt
    assert abs(metrics["actor_loss"][-1] - spread) < 1e-3


def test_states_are_normalised_and_rewards_are_not_scaled():
    cloning = learner.make("bc", num_steps=10)
    assert cloning.normalise_states
    assert not cloning.scale_rewards
    assert cloning.actor_kind == "tanh"
    assert jax.tree.leaves(cloning.noise(jax.random.key(0), 4, 2)) == []
