import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.rl import learner, rebrac
from puorl.rl.learner import Batch

sys.path.insert(0, str(Path(__file__).parent))
import reference_nets as nets
import reference_rebrac as reference

SIZES = learner.Sizes(obs_dim=3, act_dim=2, num_rows=6)
CONFIG = rebrac.Config(
    actor_penalty=0.7,
    critic_penalty=0.4,
    hidden=(5, 4),
    actor_learning_rate=0.02,
    critic_learning_rate=0.03,
    gamma=0.9,
    tau=0.1,
    policy_noise=0.4,
    noise_clip=0.5,
)
NEXT_ACTION = -0.6


@pytest.fixture(scope="module")
def fresh():
    return jax.jit(lambda key: rebrac.init(key, SIZES, CONFIG))(jax.random.key(0))


def test_two_cycles_agree_with_float64(fresh):
    rng = np.random.default_rng(0)
    learnt = rebrac.make(CONFIG, num_steps=4)
    names = ("actor", "critic", "target_actor", "target_critic")
    state = fresh._replace(**{name: nets.stirred(getattr(fresh, name), rng) for name in names})
    expected = nets.to_float64(state)
    update = jax.jit(learnt.update, static_argnums=3)
    clipped = []
    for phase in (0, 1, 0, 1):
        batch = Batch(**nets.random_rows(rng, SIZES.num_rows, SIZES.obs_dim, SIZES.act_dim))
        noise = rng.normal(size=(SIZES.num_rows, SIZES.act_dim)).astype(np.float32)
        state, metrics = update(state, batch, noise, phase)
        expected, wanted = reference.update(
            expected, nets.to_float64(batch), noise.astype(np.float64), phase, CONFIG
        )
        nets.assert_trees_agree(state, expected)
        nets.assert_trees_agree(metrics, wanted)
        clipped.extend((np.abs(CONFIG.policy_noise * noise) > CONFIG.noise_clip).ravel())
    assert 0 < sum(clipped) < len(clipped)  # the noise's clip was at work, and was not all


def test_a_chain_of_two_states_has_the_penalised_values_and_policy():
    # State 0 leads to state 1 for no reward; there the episode ends with a reward for the action.
    config = rebrac.Config(
        actor_penalty=1.0,
        critic_penalty=0.5,
        hidden=(32, 32),
        actor_learning_rate=3e-3,
        critic_learning_rate=3e-3,
        gamma=0.8,
        tau=0.05,
        policy_noise=0.0,
    )
    actions = np.linspace(-1, 1, 16)
    reward = 1 - (actions - 0.3) ** 2
    batch = chain(actions, reward)
    noise = jnp.zeros_like(batch.action)

    sizes = learner.Sizes(obs_dim=2, act_dim=1, num_rows=32)

    @jax.jit
    def train(key):
        def cycle(state, _):
            for phase in range(config.policy_delay):
                state, _ = rebrac.update(state, batch, noise, phase, config)
            return state, None

        return jax.lax.scan(cycle, rebrac.init(key, sizes, config), length=400)[0]

    state = train(jax.random.key(0))

    start, end = np.asarray(rebrac.act(state.actor, jnp.eye(2, dtype=jnp.float32)))[:, 0]
    # Q says nothing of actions in state 0: there the policy is the mean of the data.
    np.testing.assert_allclose(start, 0.0, atol=0.05)
    q = np.asarray(rebrac.q_values(state.critic, batch.obs, batch.action))
    best = best_action(q[:, :16].mean(), config.actor_penalty)
    assert best < 0.2  # where the reward's best action is 0.3
    np.testing.assert_allclose(end, best, atol=0.03)
    np.testing.assert_allclose(q[:, 16:], np.stack([reward, reward]), atol=0.05)
    # What follows state 0 is the value of the policy less its distance to the data's next action.
    penalty = config.critic_penalty * (end - NEXT_ACTION) ** 2
    truth = config.gamma * (1 - (end - 0.3) ** 2 - penalty)
    np.testing.assert_allclose(q[:, :16].mean(axis=1), [truth, truth], atol=0.03)


def best_action(q_start, penalty):
    """Where the actor's loss is least in state 1, its scale being what it is there.

    With a the action, the loss is penalty * (a^2 + const) / 2 - (1 - (a - 0.3)^2) / (2 * size),
    and size, which has no gradient, is the mean Q of both states at the policy's actions.
    """
    low, high = 0.0, 0.3
    for _ in range(60):
        a = (low + high) / 2
        size = (q_start + 1 - (a - 0.3) ** 2) / 2
        low, high = (a, high) if penalty * a < (0.3 - a) / size else (low, a)
    return a


def chain(actions, reward):
    """Every action in both states; what the data did after the start is always the same."""
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
        next_action=np.full_like(both, NEXT_ACTION),
        keep=np.ones(2 * num),
        weight=np.ones(2 * num),
        critic_weight=np.ones(2 * num),
        position=np.arange(2 * num),
    )
    return Batch(*(jnp.asarray(array, jnp.float32) for array in rows[:-1]), jnp.arange(2 * num))


def test_the_default_penalties_are_the_medians_of_the_presets():
    tuned = [config for name, config in rebrac.PRESETS.items() if name != "default"]
    default = rebrac.PRESETS["default"]
    assert default.actor_penalty == np.median([config.actor_penalty for config in tuned])
    assert default.critic_penalty == np.median([config.critic_penalty for config in tuned])


def test_presets_are_bodies_and_qualities_that_differ_in_the_penalties_only():
    bodies, qualities = ("halfcheetah", "hopper", "walker2d"), ("random", "medium", "medium-expert")
    names = {f"{body}-{quality}" for body in bodies for quality in qualities}
    assert set(rebrac.PRESETS) == names | {"default"}
    for config in rebrac.PRESETS.values():
        same = dataclasses.replace(config, actor_penalty=0.01, critic_penalty=0.01)
        assert same == rebrac.PRESETS["default"]
    hopper = learner.make("rebrac", num_steps=1, preset="hopper-medium-expert").config
    assert (hopper.actor_penalty, hopper.critic_penalty) == (0.1, 0.01)


def test_it_asks_for_next_actions_and_for_raw_states():
    learnt = learner.make("rebrac", num_steps=10)
    assert learnt.needs_next_action
    assert not learnt.normalise_states
    assert (learnt.actor_kind, learnt.cycle, learnt.config.batch_size) == ("tanh", 2, 1024)


def test_networks_start_as_in_corl(fresh):
    for network, bound in ((fresh.actor, 1e-3), (fresh.critic, 3e-3)):
        for layer in network[:-1]:
            np.testing.assert_array_equal(layer.b, np.float32(0.1))
            fan_in = layer.w.shape[-2]
            assert bound < np.abs(layer.w).max() <= 1 / np.sqrt(fan_in)
        assert 0 < np.abs(network[-1].w).max() <= bound
        assert 0 < np.abs(network[-1].b).max() <= bound
    assert all(layer.norm is not None for layer in fresh.critic[:-1])
    assert all(layer.norm is None for layer in fresh.actor)
