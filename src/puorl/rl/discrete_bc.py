"""Behaviour cloning of discrete actions: a softmax policy of highest likelihood.

Minimises the cross-entropy of the data's actions. Its probabilities are those of the data, as far
as the network can express them, so that it also serves as a model of the behaviour. Network,
weights at the start, optimiser and normalised states are those of `puorl.rl.bc`.
"""

from functools import partial

import jax

from puorl.nn import adam, mlp
from puorl.rl.bc import PRESETS, Config, State, init, noise
from puorl.rl.double_dqn import log_probability
from puorl.rl.learner import Batch, Learner, Metrics, policy_mean

__all__ = ["PRESETS", "Config", "make"]


def actor_loss(actor: mlp.Params, batch: Batch) -> jax.Array:
    """Return the cross-entropy of the data's actions."""
    return -policy_mean(log_probability(actor, batch), batch)


def update(
    state: State, batch: Batch, noise: tuple[()], phase: int, config: Config
) -> tuple[State, Metrics]:
    """Update the actor."""
    del noise, phase
    loss, grad = jax.value_and_grad(actor_loss)(state.actor, batch)
    actor, moments = adam.update(
        state.actor, grad, state.actor_moments, learning_rate=config.actor_learning_rate
    )
    return State(actor, moments), {"actor_loss": loss}


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="discrete_bc",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config),
        actor=lambda state: state.actor,
        actor_kind="softmax",
        normalise_states=True,
        discrete=True,
    )
