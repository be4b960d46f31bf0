import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.rl import learner, td3_bc
from puorl.rl.learner import Batch

sys.path.insert(0, str(Path(__file__).parent))
import reference_nets as nets
import reference_td3_bc as reference

SIZES = learner.Sizes(obs_dim=3, act_dim=2, num_rows=6)
CONFIG = td3_bc.Config(
    q_weight=1.5,
    hidden=(5, 4),
    actor_learning_rate=0.02,
    critic_learning_rate=0.03,
    gamma=0.9,
    tau=0.1,
    policy_noise=0.4,
)


@pytest.fixture(scope="module")
def fresh():
    return jax.jit(td3_bc.init, static_argnums=(1, 2))(jax.random.key(0), SIZES, CONFIG)


def test_two_cycles_agree_with_float64(fresh):
    rng = np.random.default_rng(0)
    learnt = td3_bc.make(CONFIG, num_steps=4)
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


def test_on_one_step_the_policy_stands_between_the_data_and_the_best_action():
    config = td3_bc.Config(
        q_weight=1.0,
        hidden=(32, 32),
        actor_learning_rate=3e-3,
        critic_learning_rate=3e-3,
        policy_noise=0.0,
    )
    actions = np.linspace(-1, 1, 32)
    batch = one_step(actions, 1 - (actions - 0.3) ** 2)
    noise = jnp.zeros_like(batch.action)

    @jax.jit
    def train(key):
        def cycle(state, _):
            for phase in range(config.policy_delay):
                state, _ = td3_bc.update(state, batch, noise, phase, config=config)
            return state, None

        sizes = learner.Sizes(obs_dim=1, act_dim=1, num_rows=32)
        return jax.lax.scan(cycle, td3_bc.init(key, sizes, config), length=500)[0]

    state = train(jax.random.key(0))
    q = np.asarray(td3_bc.q_values(state.critic, batch.obs, batch.action))
    np.testing.assert_allclose(q, np.stack([batch.reward, batch.reward]), atol=0.06)
    # The loss a^2 - (weight / |Q|) * Q, with Q = 1 - (a - 0.3)^2 and |Q| a constant, is least
    # where a = share * (0.3 - a); the mean of the data is 0.
    best = 0.0
    for _ in range(100):
        share = config.q_weight / (1 - (best - 0.3) ** 2)
        best = 0.3 * share / (1 + share)
    assert 0.05 < best < 0.25
    learnt = np.asarray(td3_bc.act(state.actor, batch.obs[:1])).item()
    assert abs(learnt - best) < 0.03


def one_step(actions, reward):
    """One state; every row is the last of its episode."""
    ones, zeros = np.ones(len(actions)), np.zeros((len(actions), 1))
    rows = Batch(
        obs=zeros + 1,
        action=actions[:, None],
        reward=reward,
        next_obs=zeros,
        terminal=ones,
        next_action=zeros,
        keep=ones,
        weight=ones,
        critic_weight=ones,
        position=np.arange(len(actions)),
    )
    return Batch(*(jnp.asarray(x, jnp.float32) for x in rows[:-1]), jnp.arange(len(actions)))


def test_the_size_of_q_is_a_mean_over_kept_rows_with_their_weights(fresh):
    # Two rows: the far one is not kept, the near one counts half. Then |Q| is half of it, and the
    # scaled Q term of a positive Q is exactly -q_weight.
    rng = np.random.default_rng(1)
    rows = nets.random_rows(rng, 2, SIZES.obs_dim, SIZES.act_dim)
    rows |= {"keep": np.array([1, 0], np.float32), "weight": np.array([0.5, 1], np.float32)}
    batch = Batch(**{name: jnp.asarray(array) for name, array in rows.items()})
    of_actor = jax.jit(td3_bc.actor_loss, static_argnums=3)
    loss, distance = of_actor(fresh.actor, fresh.critic, batch, CONFIG)
    actor, critic = nets.to_float64((fresh.actor, fresh.critic))
    action = reference.act(actor, rows["obs"])
    sign = np.sign(reference.critics(critic, rows["obs"], action)[0, 0])
    apart = 0.5 * ((action[0] - rows["action"][0]) ** 2).mean()
    np.testing.assert_allclose(distance, apart, rtol=1e-5)
    np.testing.assert_allclose(loss, apart - sign * CONFIG.q_weight, rtol=1e-5)


def test_presets_are_those_of_the_papers():
    paper, ours = td3_bc.PRESETS["paper-table"], td3_bc.PRESETS["default"]
    assert (paper.actor_learning_rate, paper.critic_learning_rate) == (3e-4, 3e-4)
    assert (ours.actor_learning_rate, ours.critic_learning_rate) == (1e-3, 1e-3)
    learnt = learner.make("td3_bc", num_steps=10)
    assert learnt.normalise_states
    assert not learnt.scale_rewards
    assert (learnt.actor_kind, learnt.cycle, learnt.config.batch_size) == ("tanh", 2, 256)
