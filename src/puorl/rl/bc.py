"""Behaviour cloning. Pomerleau 1988, "ALVINN: An Autonomous Land Vehicle in a Neural Network".

A deterministic policy that minimises the squared distance to the data's actions, averaged over rows
and action components: TD3+BC (eq. 5 of Fujimoto and Gu 2021) without its Q term. There is no
critic, so rewards do not matter.

No paper fixes the settings: network, weights at the start, optimiser and normalised states are
those of the actor in `puorl.rl.td3_bc`, so that the two differ in the loss alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from puorl.nn import mlp
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, policy_mean


@dataclass(frozen=True)
class Config:
    """Settings."""

    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    actor_learning_rate: float = 1e-3


PRESETS = {"default": Config()}


class State(NamedTuple):
    """Parameters and optimiser state of one lane."""

    actor: mlp.Params
    actor_moments: mlp.Moments


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane."""
    shape = (sizes.obs_dim, *config.hidden, sizes.act_dim)
    actor = mlp.init_mlp(key, shape, init="orthogonal")
    return State(actor, mlp.init_adam(actor))


def noise(key: jax.Array, batch_size: int, act_dim: int) -> tuple[()]:
    """Draw nothing: an update is not random."""
    del key, batch_size, act_dim
    return ()


def act(actor: mlp.Params, obs: jax.Array) -> jax.Array:
    """Return actions (b, m) in [-1, 1]."""
    return jnp.tanh(mlp.apply_mlp(actor, obs))


def actor_loss(actor: mlp.Params, batch: Batch) -> jax.Array:
    """Return the mean squared distance of the policy's actions to the data's."""
    return policy_mean(jnp.square(act(actor, batch.obs) - batch.action).mean(axis=-1), batch)


def update(
    state: State,
    batch: Batch,
    noise: tuple[()],
    phase: int,
    config: Config,
    loss_of: Callable[[mlp.Params, Batch], jax.Array] = actor_loss,
) -> tuple[State, Metrics]:
    """Update the actor."""
    del noise, phase
    loss, grad = jax.value_and_grad(loss_of)(state.actor, batch)
    actor, moments = mlp.apply_adam(
        state.actor, grad, state.actor_moments, learning_rate=config.actor_learning_rate
    )
    return State(actor, moments), {"actor_loss": loss}


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="bc",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config),
        actor=lambda state: state.actor,
        actor_kind="tanh",
        normalise_states=True,
        needs_reward=False,
    )
