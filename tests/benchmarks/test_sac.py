import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sac

from puorl.core.errors import ConfigError
from puorl.nn.mlp import Moments

OBS_DIM, ACT_DIM, NUM_ROWS = 3, 2, 6
CONFIG = sac.SACConfig(
    hidden=(5, 4),
    learning_rate=0.02,
    gamma=0.9,
    tau=0.1,
    num_envs=2,
    batch_size=16,
    capacity=400,
    warm_up_steps=2,
)

LEARN = jax.jit(sac.learn, static_argnames="config")
UPDATE = jax.jit(sac.update, static_argnames="config")


def init(seeds, mask=None, config=CONFIG):
    mask = np.ones((len(seeds), ACT_DIM)) if mask is None else mask
    return sac.init(config, seeds, obs_dim=OBS_DIM, action_mask=np.asarray(mask, np.float32))


def make_rows(rng, *shape):
    return rng.standard_normal((*shape, 2 * OBS_DIM + ACT_DIM + 2)).astype(np.float32)


# ------------------------------------------------------ an independent reference in float64 NumPy


def mlp64(layers, x):
    for w, b in layers[:-1]:
        x = np.maximum(x @ w + b, 0)
    return x @ layers[-1][0] + layers[-1][1]


def policy64(actor, obs, noise, mask):
    out = mlp64(actor, obs)
    mean, log_std = out[:, :ACT_DIM], np.clip(out[:, ACT_DIM:], -20, 2)
    raw = mean + np.exp(log_std) * noise
    # Density of a normal variable, divided by the slope of tanh: the textbook form.
    normal = np.exp(-0.5 * noise**2) / (np.exp(log_std) * np.sqrt(2 * np.pi))
    density = np.log(normal / (1 - np.tanh(raw) ** 2))
    return np.tanh(raw) * mask, (density * mask).sum(axis=1)


def q64(critics, obs, action):
    return np.stack([mlp64(c, np.concatenate([obs, action], axis=1))[:, 0] for c in critics])


def losses64(actor, critics, log_alpha, frozen, batch, noise, mask):
    """The three losses; everything in ``frozen`` is a constant of the loss that reads it."""
    obs, action, reward, next_obs, terminal = batch
    alpha = np.exp(frozen["log_alpha"])
    next_action, next_density = policy64(frozen["actor"], next_obs, noise[1], mask)
    soft_value = q64(frozen["target"], next_obs, next_action).min(axis=0) - alpha * next_density
    backup = reward + 0.9 * (1 - terminal) * soft_value
    critic_loss = sum(0.5 * np.mean((q - backup) ** 2) for q in q64(critics, obs, action))
    new_action, density = policy64(actor, obs, noise[0], mask)
    value = q64(frozen["critics"], obs, new_action).min(axis=0)
    actor_loss = np.mean(alpha * density - value)
    _, old_density = policy64(frozen["actor"], obs, noise[0], mask)
    alpha_loss = -log_alpha * np.mean(old_density - mask.sum())
    return critic_loss, actor_loss, alpha_loss


def slope(function, array):
    """Central differences of a scalar function by every element of ``array``, changed in place."""
    found = np.zeros_like(array)
    for i in np.ndindex(array.shape):
        kept = array[i]
        array[i] = kept + 1e-6
        above = function()
        array[i] = kept - 1e-6
        below = function()
        array[i] = kept
        found[i] = (above - below) / 2e-6
    return found


def to64(tree):
    return jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)


def members(stacked):
    return [[(layer.w[i], layer.b[i]) for layer in stacked] for i in range(2)]


def pairs(layers):
    return [(layer.w, layer.b) for layer in layers]


def reference_gradient(params, target, batch, noise, mask):
    frozen = {
        "actor": pairs(to64(params.actor)),
        "critics": members(to64(params.critic)),
        "log_alpha": float(params.log_alpha),
        "target": members(to64(target)),
    }
    moving = to64(params)

    def loss():
        return sum(
            losses64(
                pairs(moving.actor), members(moving.critic), moving.log_alpha[()],
                frozen, batch, noise, mask,
            )
        )  # fmt: skip

    return loss(), jax.tree.map(lambda array: slope(loss, array), moving)


@pytest.fixture(params=[(1.0, 1.0), (1.0, 0.0)], ids=["full", "padded"])
def lane(request):
    """One lane in the middle of training: moments, target and temperature are not the first."""
    rng = np.random.default_rng(0)
    one = jax.tree.map(lambda leaf: leaf[0], init([4, 5, 6], [request.param] * 3).lane)
    moved = jax.tree.map(
        lambda leaf: jnp.asarray(leaf + 0.3 * rng.standard_normal(leaf.shape), jnp.float32),
        (one.params, one.target, one.moments.mean),
    )
    square = jax.tree.map(
        lambda leaf: jnp.asarray(rng.uniform(0.1, 1, leaf.shape), jnp.float32), one.moments.square
    )
    moments = Moments(moved[2], square, jnp.int32(3))
    return one._replace(params=moved[0], target=moved[1], moments=moments)


def draw_batch():
    rng = np.random.default_rng(1)
    batch = sac.unpack(make_rows(rng, NUM_ROWS), ACT_DIM)
    batch = batch._replace(terminal=np.array([0, 1, 0, 0, 1, 0], np.float32))
    noise = rng.standard_normal((2, NUM_ROWS, ACT_DIM)).astype(np.float32)
    return batch, noise


def test_losses_and_gradients_agree_with_finite_differences(lane):
    batch, noise = draw_batch()
    mask = np.asarray(lane.action_mask)
    expected, expected_grad = reference_gradient(
        lane.params, lane.target, to64(batch), to64(noise), mask
    )
    grad, metrics = jax.jit(jax.grad(sac.loss, has_aux=True))(
        lane.params, lane.target, batch, noise, lane.action_mask, 0.9
    )
    total = sum(float(metrics[f"{name}_loss"]) for name in ("critic", "actor", "alpha"))
    np.testing.assert_allclose(total, expected, atol=1e-4)
    for got, want in zip(jax.tree.leaves(grad), jax.tree.leaves(expected_grad), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4)
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(expected_grad))


def test_an_update_agrees_with_the_reference(lane):
    batch, noise = draw_batch()
    _, grad = reference_gradient(
        lane.params, lane.target, to64(batch), to64(noise), np.asarray(lane.action_mask)
    )
    after, _ = UPDATE(lane, batch, noise, config=CONFIG)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, to64(lane.moments.mean), grad)
    square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, to64(lane.moments.square), grad)
    params = jax.tree.map(
        lambda p, m, v: p - 0.02 * (m / (1 - 0.9**4)) / (np.sqrt(v / (1 - 0.999**4)) + 1e-8),
        to64(lane.params), mean, square,
    )  # fmt: skip
    target = jax.tree.map(lambda t, c: 0.9 * t + 0.1 * c, to64(lane.target), params.critic)
    got = (after.params, after.target, after.moments.mean, after.moments.square)
    expected = (params, target, mean, square)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert int(after.moments.num_updates) == 4


def test_a_missing_action_component_is_nowhere(lane):
    batch, noise = draw_batch()
    mask = np.asarray(lane.action_mask)
    action, _ = sac.sample_action(lane.params.actor, batch.obs, noise[0], lane.action_mask)
    assert (np.abs(action).max(axis=0) > 0).tolist() == (mask > 0).tolist()
    # Noise in a missing component changes nothing at all.
    other = noise + (1 - mask).astype(np.float32)
    for a, b in zip(
        jax.tree.leaves(UPDATE(lane, batch, noise, config=CONFIG)[0].params),
        jax.tree.leaves(UPDATE(lane, batch, other, config=CONFIG)[0].params),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_pack_and_unpack_are_inverse():
    rng = np.random.default_rng(0)
    obs, next_obs = rng.standard_normal((2, 5, OBS_DIM)).astype(np.float32)
    action = rng.standard_normal((5, ACT_DIM)).astype(np.float32)
    reward, terminal = rng.standard_normal(5), np.array([0, 1, 0, 0, 1], bool)
    rows = sac.pack(obs, action, reward, next_obs, terminal)
    assert rows.dtype == np.float32
    batch = sac.unpack(jnp.asarray(rows), ACT_DIM)
    expected = (obs, action, reward.astype(np.float32), next_obs, terminal.astype(np.float32))
    for got, want in zip(batch, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_insertion_overwrites_the_oldest_rows():
    state = init([0, 1, 2], config=dataclasses.replace(CONFIG, capacity=8))
    rows = make_rows(np.random.default_rng(0), 6, 3, 2)
    for one in rows:
        state = sac.insert(state, one)
    # Four inserts of two rows fill the buffer; the fifth and sixth replace the first two.
    expected = np.concatenate([rows[4], rows[5], rows[2], rows[3]], axis=1)
    np.testing.assert_array_equal(state.replay.row, expected)
    assert int(state.replay.num_inserts) == 6


def learn_some(seeds, rows):
    state = init(seeds)
    for one in rows:
        state, _ = LEARN(state, one, config=CONFIG)
    return jax.tree.map(np.asarray, (state.lane.params, state.lane.target, state.replay.row))


def test_a_lane_does_not_feel_its_company():
    rng = np.random.default_rng(0)
    rows, others = make_rows(rng, 5, 3, 2), make_rows(rng, 5, 3, 2)
    others[:, 1] = rows[:, 1]
    first, second = learn_some((1, 2, 3), rows), learn_some((7, 2, 9), others)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert a[1].tobytes() == b[1].tobytes()
        # A bias may start alike by chance, but no array stays equal in other company's lanes.
        assert a[0].tobytes() != b[0].tobytes()


def test_batches_come_from_inserted_rows_only():
    # Every inserted row has reward 1 and is terminal, so the critics' target is 1; a row that was
    # never inserted is all zeros and would have another.
    rows = np.zeros((3, 2, 2 * OBS_DIM + ACT_DIM + 2), np.float32)
    rows[..., [OBS_DIM + ACT_DIM, -1]] = 1.0
    state = init([0, 1, 2])
    for _ in range(100):
        state, metrics = LEARN(state, rows, config=CONFIG)
    np.testing.assert_allclose(metrics["q"], 1.0, atol=0.02)
    assert (np.asarray(metrics["critic_loss"]) < 1e-3).all()


def test_acting_noise_changes_with_the_iteration_and_the_lane():
    state = init([5, 5, 6])
    obs = np.ones((3, 2, OBS_DIM), np.float32)
    lane = state.lane

    def act(iteration):
        actor, key, mask = lane.params.actor, lane.key, lane.action_mask
        return np.asarray(sac.act(actor, key, mask, obs, jnp.int32(iteration)))

    np.testing.assert_array_equal(act(3), act(3))
    assert not np.array_equal(act(3), act(4))
    np.testing.assert_array_equal(act(3)[0], act(3)[1])
    assert not np.array_equal(act(3)[0], act(3)[2])
    assert np.unique(act(3)[0]).size == 2 * ACT_DIM


def test_random_actions_are_uniform_and_masked():
    state = init([0, 1, 2], [[1, 1], [1, 0], [1, 1]])
    lane = state.lane
    action = np.asarray(sac.act_at_random(lane.key, lane.action_mask, 4000, jnp.int32(0)))
    assert action.shape == (3, 4000, 2)
    assert not action[1, :, 1].any()
    quantiles = np.quantile(action[0], [0.0, 0.25, 0.5, 0.75, 1.0], axis=0)
    np.testing.assert_allclose(quantiles, np.tile([[-1], [-0.5], [0], [0.5], [1]], 2), atol=0.06)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="multiple of num_envs=8, got 100"):
        sac.SACConfig(capacity=100)
    with pytest.raises(ConfigError, match="warm_up_steps: expected at least"):
        sac.SACConfig(warm_up_steps=0)
    with pytest.raises(ConfigError, match=r"expected 2 rows \(lanes\), got 1"):
        sac.init(CONFIG, [0, 1], obs_dim=3, action_mask=np.ones((1, 2), np.float32))
