"""IQL. Kostrikov et al. 2022, "Offline Reinforcement Learning with Implicit Q-Learning".

V is an expectile of Q over the data's actions (eq. 5), Q bootstraps from V (eq. 6), and the policy
is the data's, weighted by how much better than V an action is (eq. 7): no action outside the data
is ever judged. Rewards are scaled as in the paper, by 1000 over the range of returns, unless
``reward_scale`` says otherwise.

Deviations from the paper, all as in PUORL's code, which follows JAX-CORL:
1. V has layer normalisation before each ReLU; the critics and the policy have none.
2. The mean of the Gaussian policy is not squashed; its actions are clipped instead.

Details that are as in the code of the paper's authors and of PUORL:
3. The policy is learnt along with the values: each batch makes one update of V, then of the policy
   (by the target critics and the new V), then of the critics (by the new V), then of the targets.
4. The policy's log standard deviation is the same in all states and is kept in [-5, 2].
5. Weights start orthogonal with gain sqrt(2), the output layers' too.

What PUORL's table prints for IQL does not differ from the default, so ``paper-table`` is equal to
it; ``hopper-me`` has what suits Hopper's medium-expert data better, by JAX-CORL's notes and CORL.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.rl.bc import noise
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, critic_mean, policy_mean

_NUM_CRITICS = 2
_LOG_STD_RANGE = (-5.0, 2.0)


@dataclass(frozen=True)
class Config:
    """Settings."""

    expectile: float = 0.7
    """Expectile of Q that V is (the paper's tau): 0.5 is the mean, towards 1 the best action."""
    beta: float = 3.0
    """Inverse temperature: preference of the policy for better actions."""
    max_weight: float = 100.0
    """Cap of the policy's weight of a row."""
    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    actor_learning_rate: float = 3e-4
    """Of the first update; it falls to 0 along a cosine."""
    value_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    """Fraction of the soft update of the target critics."""
    layer_norm: bool = True
    """Whether the hidden layers of V are normalised."""
    reward_scale: float = field(default=0.0, metadata={"later": True})
    """Factor of the rewards: 0 is the paper's, by the range of returns, 1 leaves them as is."""
    normalise_states: bool = field(default=False, metadata={"later": True})
    """Whether states are normalised, as in CORL."""

    def __post_init__(self) -> None:
        if not 0.0 < self.expectile < 1.0:
            raise ConfigError(
                f"expectile: expected a number between 0 and 1, got {self.expectile}; try 0.7"
            )


PRESETS = {
    "default": Config(),
    "paper-table": Config(),
    "hopper-me": Config(expectile=0.5, beta=6.0),
}


class Policy(NamedTuple):
    """A diagonal Gaussian: the network of its mean, and its (m,) log standard deviation."""

    mean: mlp.Params
    log_std: jax.Array


class State(NamedTuple):
    """Parameters and optimiser state of one lane."""

    policy: Any
    """A `Policy`, or that of another ``loss``."""
    value: mlp.Params
    critic: mlp.Params
    target_critic: mlp.Params
    policy_moments: mlp.Moments
    value_moments: mlp.Moments
    critic_moments: mlp.Moments


def init(key: jax.Array, sizes: Sizes, config: Config, policy: Any = None) -> State:
    """Make the state of a fresh lane; the target critics start equal to the critics."""
    policy_key, value_key, critic_key = jax.random.split(key, 3)
    if policy is None:
        shape = (sizes.obs_dim, *config.hidden, sizes.act_dim)
        mean = mlp.init_mlp(policy_key, shape, init="orthogonal")
        policy = Policy(mean, jnp.zeros(sizes.act_dim, jnp.float32))
    value = mlp.init_mlp(
        value_key,
        (sizes.obs_dim, *config.hidden, 1),
        init="orthogonal",
        layer_norm=config.layer_norm,
    )
    critic = mlp.init_ensemble(
        critic_key,
        _NUM_CRITICS,
        (sizes.obs_dim + sizes.act_dim, *config.hidden, 1),
        init="orthogonal",
    )
    moments = mlp.init_adam(policy), mlp.init_adam(value), mlp.init_adam(critic)
    return State(policy, value, critic, critic, *moments)


def values(value: mlp.Params, obs: jax.Array) -> jax.Array:
    """Return V, (b,)."""
    return mlp.apply_mlp(value, obs)[:, 0]


def q_values(critic: mlp.Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return both critics' values, (2, b)."""
    return mlp.apply_ensemble(critic, jnp.concatenate([obs, action], axis=-1))[..., 0]


def log_density(policy: Policy, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return the log density of actions under the policy, (b,)."""
    mean = mlp.apply_mlp(policy.mean, obs)
    log_std = jnp.broadcast_to(jnp.clip(policy.log_std, *_LOG_STD_RANGE), mean.shape)
    scaled = (action - mean) * jnp.exp(-log_std)
    return -(0.5 * jnp.square(scaled) + log_std + 0.5 * math.log(2.0 * math.pi)).sum(axis=-1)


def value_loss(
    value: mlp.Params, batch: Batch, q: jax.Array, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Return the expectile loss of V against q (b,), eq. 5, and the mean of V."""
    v = values(value, batch.obs)
    error = q - v
    side = jnp.where(error > 0, config.expectile, 1.0 - config.expectile)
    return policy_mean(side * jnp.square(error), batch), policy_mean(v, batch)


def policy_loss(policy: Policy, batch: Batch, advantage: jax.Array, config: Config) -> jax.Array:
    """Return minus the log density of the data's actions, weighted by advantage (b,), eq. 7."""
    weight = jnp.minimum(jnp.exp(config.beta * advantage), config.max_weight)
    return -policy_mean(weight * log_density(policy, batch.obs, batch.action), batch)


def critic_loss(critic: mlp.Params, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the mean summed squared error, eq. 6, and the mean of the first critic's values."""
    q = q_values(critic, batch.obs, batch.action)
    error = jnp.square(q - jnp.broadcast_to(target, q.shape)).sum(axis=0)
    return critic_mean(error, batch), policy_mean(q[0], batch)


def actor_learning_rate(num_updates: jax.Array, num_steps: int, config: Config) -> jax.Array:
    """Return the learning rate after so many updates (() int32): half a cosine, 0 at the end."""
    passed = jnp.minimum(num_updates, num_steps).astype(jnp.float32) / num_steps
    return 0.5 * config.actor_learning_rate * (1.0 + jnp.cos(math.pi * passed))


def update(
    state: State,
    batch: Batch,
    noise: tuple[()],
    phase: int,
    config: Config,
    *,
    num_steps: int,
    loss: Callable[..., jax.Array] = policy_loss,
) -> tuple[State, Metrics]:
    """Update V, the policy, the critics and their targets, in this order."""
    del noise, phase
    q = q_values(state.target_critic, batch.obs, batch.action).min(axis=0)
    (loss_v, mean_v), grad = jax.value_and_grad(value_loss, has_aux=True)(
        state.value, batch, q, config
    )
    value, value_moments = mlp.apply_adam(
        state.value, grad, state.value_moments, learning_rate=config.value_learning_rate
    )
    # The new V of both states in one pass.
    v, next_v = jnp.split(values(value, jnp.concatenate([batch.obs, batch.next_obs])), 2)
    advantage = q - v
    loss_policy, grad = jax.value_and_grad(loss)(state.policy, batch, advantage, config)
    policy, policy_moments = mlp.apply_adam(
        state.policy,
        grad,
        state.policy_moments,
        learning_rate=actor_learning_rate(state.policy_moments.num_updates, num_steps, config),
    )
    target = batch.reward + config.gamma * (1.0 - batch.terminal) * next_v
    (loss_q, mean_q), grad = jax.value_and_grad(critic_loss, has_aux=True)(
        state.critic, batch, target
    )
    critic, critic_moments = mlp.apply_adam(
        state.critic, grad, state.critic_moments, learning_rate=config.critic_learning_rate
    )
    target = mlp.soft_update(state.target_critic, critic, config.tau)
    metrics = {
        "critic_loss": loss_q,
        "value_loss": loss_v,
        "actor_loss": loss_policy,
        "q": mean_q,
        "v": mean_v,
        "advantage": policy_mean(advantage, batch),
    }
    moments = policy_moments, value_moments, critic_moments
    return State(policy, value, critic, target, *moments), metrics


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; the policy's learning rate is 0 after ``num_steps`` updates."""
    return Learner(
        name="iql",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config, num_steps=num_steps),
        actor=lambda state: state.policy.mean,
        actor_kind="clip",
        normalise_states=config.normalise_states,
        scale_rewards=config.reward_scale == 0.0,
        reward_factor=config.reward_scale or 1.0,
    )
