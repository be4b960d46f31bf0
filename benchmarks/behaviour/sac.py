"""Soft actor-critic, several agents at once, for the policies that our data comes from.

Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905):
critic loss eq. 5, actor loss eq. 7, temperature loss eq. 18.

Deviations:
1. The gradients of critic, actor and temperature are taken at the same parameters and applied
   together, so that one optimiser pass serves all three.
2. The temperature's loss is written in log alpha, not in alpha.
3. ``num_envs`` environments step at once; their rows are learnt from one iteration later, so that
   the simulator and the updates run side by side. Per environment step there are as many updates
   as in the paper (``updates_per_step``).

An agent is a lane: every array has a leading lane axis. Lanes share shapes and nothing else; a lane
with a shorter observation or action pads it with zeros and says so in ``action_mask``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.nn.numpy_mlp import LOG_STD_RANGE

_NUM_CRITICS = 2
# A lane's key has two streams: even numbers for acting, odd ones for learning.
_ACTING, _LEARNING = 0, 1


@dataclass(frozen=True)
class SACConfig:
    """Settings of a run; the defaults are those of the paper but for ``num_envs``."""

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    batch_size: int = 256
    num_envs: int = 8
    """Environments of one lane."""
    updates_per_step: int = 1
    warm_up_steps: int = 5_000
    """Environment steps of a lane with uniform actions and no update."""
    capacity: int = 1_000_000
    """Rows of a lane's replay buffer; a multiple of ``num_envs``."""
    initial_alpha: float = 1.0
    unroll: int = 1
    """Updates that are compiled as one piece; changes the speed, and last bits."""

    def __post_init__(self) -> None:
        if self.capacity % self.num_envs:
            raise ConfigError(
                f"capacity: expected a multiple of num_envs={self.num_envs}, got {self.capacity}"
            )
        if self.warm_up_steps < self.num_envs:
            raise ConfigError(
                f"warm_up_steps: expected at least num_envs={self.num_envs}, "
                f"got {self.warm_up_steps}"
            )


class Params(NamedTuple):
    """Everything that is learnt by gradient, of one lane or stacked."""

    actor: mlp.Params
    critic: mlp.Params
    log_alpha: jax.Array


class Lane(NamedTuple):
    """What an agent is, without its replay buffer."""

    params: Params
    target: mlp.Params
    moments: mlp.Moments
    key: jax.Array
    action_mask: jax.Array


class Replay(NamedTuple):
    """Packed rows (lanes, capacity, width) float32 and how often the lanes have inserted."""

    row: jax.Array
    num_inserts: jax.Array


class State(NamedTuple):
    """All lanes, stacked, and their replay buffer."""

    lane: Lane
    replay: Replay


class Batch(NamedTuple):
    """Unpacked rows; ``terminal`` is 0 or 1, and a time limit is no terminal."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    next_obs: jax.Array
    terminal: jax.Array


# ---------------------------------------------------------------------------------------- set-up


def init(
    config: SACConfig,
    seeds: Sequence[int],
    *,
    obs_dim: int,
    action_mask: np.ndarray,
) -> State:
    """Fresh agents.

    Args:
        config: Settings, common to all lanes.
        seeds: One per lane; a lane depends on its own seed only.
        obs_dim: Length of the (padded) observation.
        action_mask: (lanes, act_dim) float32; 1 where the action component exists.
    """
    mask = jnp.asarray(action_mask, jnp.float32)
    if mask.shape[0] != len(seeds):
        raise ConfigError(f"action_mask: expected {len(seeds)} rows (lanes), got {mask.shape[0]}")
    act_dim = mask.shape[1]
    # Named, since another default generator would give other policies for the same seed.
    keys = jnp.stack([jax.random.key(seed, impl="threefry2x32") for seed in seeds])
    lane = jax.vmap(lambda key, one: _init_lane(config, key, one, obs_dim))(keys, mask)
    width = 2 * obs_dim + act_dim + 2
    replay = Replay(
        jnp.zeros((len(seeds), config.capacity, width), jnp.float32), jnp.zeros((), jnp.int32)
    )
    return State(lane, replay)


def _init_lane(config: SACConfig, key: jax.Array, mask: jax.Array, obs_dim: int) -> Lane:
    act_dim = mask.shape[0]
    actor_key, critic_key, key = jax.random.split(key, 3)
    actor = mlp.init_mlp(actor_key, (obs_dim, *config.hidden, 2 * act_dim))
    critic = mlp.init_ensemble(critic_key, _NUM_CRITICS, (obs_dim + act_dim, *config.hidden, 1))
    params = Params(actor, critic, jnp.float32(math.log(config.initial_alpha)))
    # The target starts equal, but as memory of its own: both are given away at every update.
    target = jax.tree.map(jnp.copy, critic)
    return Lane(params, target, mlp.init_adam(params), key, mask)


# ------------------------------------------------------------------------- one lane, one update


def sample_action(
    actor: mlp.Params, obs: jax.Array, noise: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Squashed Gaussian actions (n, m) for the given noise, and their log densities (n,)."""
    mean, log_std = jnp.split(mlp.apply_mlp(actor, obs), 2, axis=-1)
    log_std = jnp.clip(log_std, *LOG_STD_RANGE)
    raw = mean + jnp.exp(log_std) * noise
    # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which stays finite for large |u|.
    log_slope = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    density = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi) - log_slope
    exists = jnp.broadcast_to(mask, density.shape)
    return jnp.tanh(raw) * exists, (density * exists).sum(axis=-1)


def loss(
    params: Params,
    target: mlp.Params,
    batch: Batch,
    noise: jax.Array,
    mask: jax.Array,
    gamma: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Sum of the three losses; each has gradients for its own parameters only.

    ``noise`` is (2, n, m): for the action at ``obs`` and for the one at ``next_obs``.
    """
    alpha = jnp.exp(jax.lax.stop_gradient(params.log_alpha))

    next_action, next_density = sample_action(params.actor, batch.next_obs, noise[1], mask)
    next_q = _q(target, batch.next_obs, next_action).min(axis=0)
    backup = batch.reward + gamma * (1.0 - batch.terminal) * (next_q - alpha * next_density)
    backup = jax.lax.stop_gradient(backup)
    q = _q(params.critic, batch.obs, batch.action)
    critic_loss = 0.5 * jnp.square(q - jnp.broadcast_to(backup, q.shape)).mean(axis=-1).sum()

    action, density = sample_action(params.actor, batch.obs, noise[0], mask)
    value = _q(jax.lax.stop_gradient(params.critic), batch.obs, action).min(axis=0)
    actor_loss = (alpha * density - value).mean()

    # The target entropy is minus the number of action components.
    surplus = jax.lax.stop_gradient(density.mean()) - mask.sum()
    alpha_loss = -params.log_alpha * surplus

    metrics = {"critic_loss": critic_loss, "actor_loss": actor_loss, "alpha_loss": alpha_loss}
    metrics |= {"alpha": alpha, "q": q.mean(), "entropy": -density.mean()}
    return critic_loss + actor_loss + alpha_loss, metrics


def update(
    lane: Lane, batch: Batch, noise: jax.Array, config: SACConfig
) -> tuple[Lane, dict[str, jax.Array]]:
    """One gradient step on all parameters, then the target critic's step towards the critic."""
    grad, metrics = jax.grad(loss, has_aux=True)(
        lane.params, lane.target, batch, noise, lane.action_mask, config.gamma
    )
    params, moments = mlp.apply_adam(
        lane.params, grad, lane.moments, learning_rate=config.learning_rate
    )
    target = mlp.soft_update(lane.target, params.critic, config.tau)
    return lane._replace(params=params, target=target, moments=moments), metrics


def _q(critic: mlp.Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    return mlp.apply_ensemble(critic, jnp.concatenate([obs, action], axis=-1))[..., 0]


# ------------------------------------------------------------------- all lanes: act, insert, learn


def act(
    actor: mlp.Params, key: jax.Array, mask: jax.Array, obs: jax.Array, iteration: jax.Array
) -> jax.Array:
    """Actions of all lanes for obs (lanes, n, d); ``iteration`` names the noise."""

    def one(actor: mlp.Params, key: jax.Array, mask: jax.Array, obs: jax.Array) -> jax.Array:
        noise_key = jax.random.fold_in(key, 2 * iteration + _ACTING)
        noise = jax.random.normal(noise_key, (obs.shape[0], mask.shape[0]), jnp.float32)
        return sample_action(actor, obs, noise, mask)[0]

    return jax.vmap(one)(actor, key, mask, obs)


def act_at_random(
    key: jax.Array, mask: jax.Array, num_envs: int, iteration: jax.Array
) -> jax.Array:
    """Uniform actions of all lanes, (lanes, num_envs, m)."""

    def one(key: jax.Array, mask: jax.Array) -> jax.Array:
        draw_key = jax.random.fold_in(key, 2 * iteration + _ACTING)
        shape = (num_envs, mask.shape[0])
        action = jax.random.uniform(draw_key, shape, jnp.float32, -1.0, 1.0)
        return action * jnp.broadcast_to(mask, shape)

    return jax.vmap(one)(key, mask)


def insert(state: State, rows: jax.Array) -> State:
    """Write rows (lanes, num_envs, width) over the oldest ones."""
    lanes, num_envs, _ = rows.shape
    capacity = state.replay.row.shape[1]
    assert lanes == state.replay.row.shape[0]
    assert capacity % num_envs == 0  # so that a write never crosses the end
    position = state.replay.num_inserts % (capacity // num_envs) * num_envs
    row = jax.lax.dynamic_update_slice(state.replay.row, rows, (0, position, 0))
    return state._replace(replay=Replay(row, state.replay.num_inserts + 1))


def learn(state: State, rows: jax.Array, config: SACConfig) -> tuple[State, dict[str, jax.Array]]:
    """Insert rows, then run as many updates as there were environment steps; metrics: (lanes,)."""
    state = insert(state, rows)
    num_updates = config.num_envs * config.updates_per_step
    act_dim = state.lane.action_mask.shape[1]
    size = jnp.minimum(state.replay.num_inserts * config.num_envs, config.capacity)

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = jax.random.fold_in(key, 2 * state.replay.num_inserts + _LEARNING)
        index_key, noise_key = jax.random.split(key)
        index = jax.random.randint(index_key, (num_updates * config.batch_size,), 0, size)
        shape = (num_updates, 2, config.batch_size, act_dim)
        return index, jax.random.normal(noise_key, shape, jnp.float32)

    # Nothing is inserted between the updates, so all randomness and all rows come in one piece.
    index, noise = jax.vmap(draw)(state.lane.key)
    picked = jax.vmap(lambda row, i: row[i])(state.replay.row, index)
    picked = picked.reshape(picked.shape[0], num_updates, config.batch_size, -1)

    def body(lane: Lane, xs: tuple[jax.Array, jax.Array]) -> tuple[Lane, dict[str, jax.Array]]:
        def one(lane: Lane, rows: jax.Array, noise: jax.Array) -> tuple[Lane, dict[str, jax.Array]]:
            return update(lane, unpack(rows, act_dim), noise, config)

        return jax.vmap(one)(lane, *xs)

    xs = (jnp.moveaxis(picked, 1, 0), jnp.moveaxis(noise, 1, 0))
    lane, metrics = jax.lax.scan(body, state.lane, xs, unroll=min(config.unroll, num_updates))
    return state._replace(lane=lane), jax.tree.map(lambda m: m[-1], metrics)


def pack(
    obs: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    next_obs: np.ndarray,
    terminal: np.ndarray,
) -> np.ndarray:
    """Transitions (n, ...) as rows (n, width) float32."""
    columns = (obs, action, reward[:, None], next_obs, terminal[:, None])
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind")


def unpack(rows: jax.Array, act_dim: int) -> Batch:
    """The inverse of ``pack``."""
    d = (rows.shape[1] - act_dim - 2) // 2
    return Batch(
        obs=rows[:, :d],
        action=rows[:, d : d + act_dim],
        reward=rows[:, d + act_dim],
        next_obs=rows[:, d + act_dim + 1 : -1],
        terminal=rows[:, -1],
    )
