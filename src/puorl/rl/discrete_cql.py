"""CQL with discrete actions. Kumar et al. 2020, "Conservative Q-Learning for Offline RL".

CQL(H), eq. 4, for Q-learning (section 4 and appendix F): double DQN whose critic also pays for the
gap between the log-sum-exp of Q over all actions, which is exact here, and Q of the data's action.
The policy is greedy in Q.

Double DQN is a network of all actions' values with a target network and the Huber loss (Mnih et al.
2015, "Human-level control through deep reinforcement learning"), in which the network in training
chooses the next action and its target judges it (van Hasselt et al. 2016, "Deep Reinforcement
Learning with Double Q-learning").

Deviations from the paper:
1. One network of scalar values (double DQN) instead of QR-DQN's quantiles.
2. The weight of the gap is fixed; 1, as in the paper's discrete experiments on full datasets.
3. Targets follow by soft updates, and states are normalised.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from puorl.nn import mlp
from puorl.rl.bc import noise
from puorl.rl.discrete_bc import init_network, taken
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, critic_mean, policy_mean


@dataclass(frozen=True)
class Config:
    """Settings."""

    conservative_weight: float = 1.0
    """Weight of the gap against the Huber loss (the paper's alpha)."""
    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    critic_learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    """Fraction of the soft update of the target critic."""


PRESETS = {"default": Config()}


class State(NamedTuple):
    """Parameters and optimiser state of one lane."""

    critic: mlp.Params
    target_critic: mlp.Params
    critic_moments: mlp.Moments


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane; the target starts equal to the critic."""
    critic = init_network(key, sizes, config.hidden)
    return State(critic, critic, mlp.init_adam(critic))


def huber(error: jax.Array) -> jax.Array:
    """Return half the square of small errors; beyond 1 it grows as the error does."""
    size = jnp.abs(error)
    return jnp.where(size <= 1.0, 0.5 * jnp.square(error), size - 0.5)


def td_target(
    target_critic: mlp.Params, batch: Batch, choice: jax.Array, gamma: float
) -> jax.Array:
    """Return the TD target (b,) for the next actions that ``choice`` (b, A) prefers."""
    next_q = mlp.apply_mlp(target_critic, batch.next_obs)
    best = jax.nn.one_hot(choice.argmax(axis=-1), next_q.shape[-1], dtype=next_q.dtype)
    return batch.reward + gamma * (1.0 - batch.terminal) * (best * next_q).sum(axis=-1)


def critic_loss(
    critic: mlp.Params, batch: Batch, target: jax.Array, config: Config
) -> tuple[jax.Array, Metrics]:
    """Return the Huber loss plus the weighted gap."""
    q = mlp.apply_mlp(critic, batch.obs)
    q_data = taken(q, batch)
    gap = jax.nn.logsumexp(q, axis=-1) - q_data
    loss = critic_mean(huber(q_data - target) + config.conservative_weight * gap, batch)
    metrics = {"critic_loss": loss, "q": policy_mean(q_data, batch)}
    return loss, metrics | {"gap": policy_mean(gap, batch)}


def update(
    state: State, batch: Batch, noise: tuple[()], phase: int, config: Config
) -> tuple[State, Metrics]:
    """Update the critic, then its target."""
    del noise, phase
    choice = mlp.apply_mlp(state.critic, batch.next_obs)
    target = td_target(state.target_critic, batch, choice, config.gamma)
    grad, metrics = jax.grad(critic_loss, has_aux=True)(state.critic, batch, target, config)
    critic, moments = mlp.apply_adam(
        state.critic, grad, state.critic_moments, learning_rate=config.critic_learning_rate
    )
    target_critic = mlp.soft_update(state.target_critic, critic, config.tau)
    return State(critic, target_critic, moments), metrics


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="discrete_cql",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config),
        actor=lambda state: state.critic,
        actor_kind="greedy",
        normalise_states=True,
        discrete=True,
    )
