"""Discrete BCQ. Fujimoto et al. 2019, "Benchmarking Batch Deep Reinforcement Learning Algorithms".

Double DQN that may only choose actions which a model of the data's behaviour gives at least a
fraction ``threshold`` of its most likely action's probability, both in the TD target and as the
policy: threshold 0 is Q-learning, 1 is behaviour cloning. It takes TD3+BC's place where actions are
discrete: both keep the policy near the data by one number that does not depend on the scale of
rewards. TD3+BC's own penalty needs a gradient through the action, which codes do not have.

Deviations from the paper:
1. Two networks instead of two heads of one, and so without the penalty on large logits.
2. Targets follow by soft updates, and states are normalised.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.rl.bc import noise
from puorl.rl.discrete_bc import init_network, log_probability, taken
from puorl.rl.discrete_cql import huber, td_target
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, critic_mean, policy_mean


@dataclass(frozen=True)
class Config:
    """Settings."""

    threshold: float = 0.3
    """Least probability of an action in the data's behaviour, relative to the likeliest one's."""
    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    critic_learning_rate: float = 3e-4
    actor_learning_rate: float = 3e-4
    """Of the model of the behaviour."""
    gamma: float = 0.99
    tau: float = 0.005
    """Fraction of the soft update of the target critic."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise ConfigError(
                f"threshold: expected a number from 0 to 1, got {self.threshold}; try 0.3"
            )


PRESETS = {"default": Config()}


class State(NamedTuple):
    """Parameters and optimiser state of one lane."""

    critic: mlp.Params
    target_critic: mlp.Params
    behaviour: mlp.Params
    critic_moments: mlp.Moments
    behaviour_moments: mlp.Moments


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane; the target starts equal to the critic."""
    critic_key, behaviour_key = jax.random.split(key)
    critic = init_network(critic_key, sizes, config.hidden)
    behaviour = init_network(behaviour_key, sizes, config.hidden)
    return State(critic, critic, behaviour, mlp.init_adam(critic), mlp.init_adam(behaviour))


def allowed_values(
    critic: mlp.Params, behaviour: mlp.Params, obs: jax.Array, config: Config
) -> jax.Array:
    """Return Q (b, A), minus infinity for actions that the data's behaviour hardly has."""
    q, logits = mlp.apply_mlp(critic, obs), mlp.apply_mlp(behaviour, obs)
    least = math.log(config.threshold) if config.threshold > 0.0 else -math.inf
    allowed = logits - logits.max(axis=-1, keepdims=True) >= least
    return jnp.where(allowed, q, -jnp.inf)


def critic_loss(critic: mlp.Params, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the Huber loss, and the mean of Q."""
    q = taken(mlp.apply_mlp(critic, batch.obs), batch)
    return critic_mean(huber(q - target), batch), policy_mean(q, batch)


def behaviour_loss(behaviour: mlp.Params, batch: Batch) -> jax.Array:
    """Return the cross-entropy of the data's actions."""
    return -policy_mean(log_probability(behaviour, batch), batch)


def update(
    state: State, batch: Batch, noise: tuple[()], phase: int, config: Config
) -> tuple[State, Metrics]:
    """Update the critic and the model of the behaviour, then the target."""
    del noise, phase
    choice = allowed_values(state.critic, state.behaviour, batch.next_obs, config)
    target = td_target(state.target_critic, batch, choice, config.gamma)
    (loss, q), grad = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
    critic, critic_moments = mlp.apply_adam(
        state.critic, grad, state.critic_moments, learning_rate=config.critic_learning_rate
    )
    actor_loss, grad = jax.value_and_grad(behaviour_loss)(state.behaviour, batch)
    behaviour, behaviour_moments = mlp.apply_adam(
        state.behaviour, grad, state.behaviour_moments, learning_rate=config.actor_learning_rate
    )
    target_critic = mlp.soft_update(state.target_critic, critic, config.tau)
    state = State(critic, target_critic, behaviour, critic_moments, behaviour_moments)
    return state, {"critic_loss": loss, "q": q, "actor_loss": actor_loss}


def actor(state: State, config: Config) -> dict[str, Any]:
    """Return both networks and the threshold, which decide together."""
    threshold = jnp.full((1,), config.threshold, jnp.float32)
    return {"q": state.critic, "behaviour": state.behaviour, "threshold": threshold}


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="discrete_bcq",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config),
        actor=partial(actor, config=config),
        actor_kind="bcq",
        normalise_states=True,
        discrete=True,
    )
