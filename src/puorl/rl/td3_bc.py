"""TD3+BC. Fujimoto and Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning".

TD3 (Fujimoto et al. 2018, algorithm 1) whose actor also stays near the data's actions (eq. 5), with
the Q term scaled by its own size (eq. 6 and the paragraph below it).

Deviations from the paper, all as in JAX-CORL, which the PUORL paper trained with:
1. The critic has layer normalisation before each ReLU; the actor has none.
2. Learning rates are 1e-3; the preset ``paper-table`` has the 3e-4 that PUORL's table prints.
3. Weights start orthogonal with gain sqrt(2), the output layer's too.
4. States are divided by std + 1e-5 everywhere, evaluation included.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from puorl.nn import mlp
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, critic_mean, policy_mean

_NUM_CRITICS = 2


@dataclass(frozen=True)
class Config:
    """Settings."""

    q_weight: float = 2.5
    """Weight of the Q term; behaviour cloning has weight 1 (the paper's alpha)."""
    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    gamma: float = 0.99
    tau: float = 0.005
    """Fraction of the soft update of the target networks."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target policy's action."""
    noise_clip: float = 0.5
    policy_delay: int = 2
    """Critic updates for one update of the actor and of both targets."""
    layer_norm: bool = True
    """Whether the critic's hidden layers are normalised."""


PRESETS = {
    "default": Config(),
    "paper-table": Config(actor_learning_rate=3e-4, critic_learning_rate=3e-4),
}


class State(NamedTuple):
    """Parameters and optimiser state of one lane."""

    actor: mlp.Params
    critic: mlp.Params
    target_actor: mlp.Params
    target_critic: mlp.Params
    actor_moments: mlp.Moments
    critic_moments: mlp.Moments


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane; the targets start equal to the networks."""
    actor_key, critic_key = jax.random.split(key)
    shape = (sizes.obs_dim, *config.hidden, sizes.act_dim)
    actor = mlp.init_mlp(actor_key, shape, init="orthogonal")
    critic = mlp.init_ensemble(
        critic_key,
        _NUM_CRITICS,
        (sizes.obs_dim + sizes.act_dim, *config.hidden, 1),
        init="orthogonal",
        layer_norm=config.layer_norm,
    )
    return State(actor, critic, actor, critic, mlp.init_adam(actor), mlp.init_adam(critic))


def noise(key: jax.Array, batch_size: int, act_dim: int) -> jax.Array:
    """Draw standard normal noise for the target policy's actions, (b, m)."""
    return jax.random.normal(key, (batch_size, act_dim), jnp.float32)


def act(actor: mlp.Params, obs: jax.Array) -> jax.Array:
    """Return actions (b, m) in [-1, 1]."""
    return jnp.tanh(mlp.apply_mlp(actor, obs))


def q_values(critic: mlp.Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return both critics' values, (2, b)."""
    return mlp.apply_ensemble(critic, jnp.concatenate([obs, action], axis=-1))[..., 0]


def td_target(state: State, batch: Batch, noise: jax.Array, config: Config) -> jax.Array:
    """Return what the critics learn, (b,): TD3's smoothed and clipped double-Q target."""
    smoothing = jnp.clip(config.policy_noise * noise, -config.noise_clip, config.noise_clip)
    next_action = jnp.clip(act(state.target_actor, batch.next_obs) + smoothing, -1.0, 1.0)
    next_q = q_values(state.target_critic, batch.next_obs, next_action).min(axis=0)
    return batch.reward + config.gamma * (1.0 - batch.terminal) * next_q


def critic_loss(
    critic: mlp.Params, batch: Batch, target: jax.Array, q_of: Callable[..., jax.Array] = q_values
) -> tuple[jax.Array, jax.Array]:
    """Return the mean summed squared error, and the mean of the first critic's values."""
    q = q_of(critic, batch.obs, batch.action)
    error = jnp.square(q - jnp.broadcast_to(target, q.shape)).sum(axis=0)
    return critic_mean(error, batch), policy_mean(q[0], batch)


def actor_loss(
    actor: mlp.Params, critic: mlp.Params, batch: Batch, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Return the distance to the data's actions minus the scaled Q, and the distance."""
    action = act(actor, batch.obs)
    first = jax.tree.map(lambda leaf: leaf[0], critic)
    q = mlp.apply_mlp(first, jnp.concatenate([batch.obs, action], axis=-1))[:, 0]
    scale = config.q_weight / jax.lax.stop_gradient(policy_mean(jnp.abs(q), batch))
    distance = policy_mean(jnp.square(action - batch.action).mean(axis=-1), batch)
    return distance - scale * policy_mean(q, batch), distance


class Losses(NamedTuple):
    """The equations in which a variant of TD3+BC may differ."""

    td_target: Callable[..., jax.Array] = td_target
    critic: Callable[..., tuple[jax.Array, jax.Array]] = critic_loss
    actor: Callable[..., tuple[jax.Array, jax.Array]] = actor_loss


_LOSSES = Losses()


def update(
    state: State,
    batch: Batch,
    noise: jax.Array,
    phase: int,
    target: jax.Array | None = None,
    *,
    config: Any,
    losses: Losses = _LOSSES,
) -> tuple[State, Metrics]:
    """Update the critics; in the last phase of a cycle, also the actor and both targets."""
    if target is None:
        target = losses.td_target(state, batch, noise, config)
    (loss, q), grad = jax.value_and_grad(losses.critic, has_aux=True)(state.critic, batch, target)
    critic, moments = mlp.apply_adam(
        state.critic, grad, state.critic_moments, learning_rate=config.critic_learning_rate
    )
    state = state._replace(critic=critic, critic_moments=moments)
    metrics = {"critic_loss": loss, "q": q}
    if phase < config.policy_delay - 1:
        return state, metrics
    (loss, distance), grad = jax.value_and_grad(losses.actor, has_aux=True)(
        state.actor, critic, batch, config
    )
    actor, moments = mlp.apply_adam(
        state.actor, grad, state.actor_moments, learning_rate=config.actor_learning_rate
    )
    state = state._replace(
        actor=actor,
        actor_moments=moments,
        target_actor=mlp.soft_update(state.target_actor, actor, config.tau),
        target_critic=mlp.soft_update(state.target_critic, critic, config.tau),
    )
    return state, metrics | {"actor_loss": loss, "distance": distance}


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="td3_bc",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config),
        actor=lambda state: state.actor,
        actor_kind="tanh",
        cycle=config.policy_delay,
        precompute_targets=partial(td_target, config=config),  # the targets move once a cycle
        normalise_states=True,
    )
