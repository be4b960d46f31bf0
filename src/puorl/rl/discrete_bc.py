"""Behaviour cloning of discrete actions: a softmax policy of highest likelihood.

Minimises the cross-entropy of the data's actions. Its probabilities are those of the data, as far
as the network can express them, so that it also serves as a model of the behaviour. Network,
weights at the start, optimiser and normalised states are those of `puorl.rl.bc`, and as there
rewards do not matter.
"""

from functools import partial

import jax
import jax.numpy as jnp

from puorl.nn import mlp
from puorl.rl import bc
from puorl.rl.bc import PRESETS, Config
from puorl.rl.learner import Batch, Learner, Sizes, policy_mean

__all__ = ["PRESETS", "Config", "init_network", "log_probability", "make", "taken"]


def init_network(key: jax.Array, sizes: Sizes, hidden: tuple[int, ...]) -> mlp.Params:
    """Make a network with an output for each action."""
    return mlp.init_mlp(key, (sizes.obs_dim, *hidden, sizes.act_dim), init="orthogonal")


def taken(values: jax.Array, batch: Batch) -> jax.Array:
    """Return what values (b, A) say of the data's actions, (b,)."""
    return jnp.where(batch.action > 0.5, values, 0.0).sum(axis=-1)


def log_probability(actor: mlp.Params, batch: Batch) -> jax.Array:
    """Return the log probability of the data's actions under a softmax policy, (b,)."""
    return taken(jax.nn.log_softmax(mlp.apply_mlp(actor, batch.obs)), batch)


def actor_loss(actor: mlp.Params, batch: Batch) -> jax.Array:
    """Return the cross-entropy of the data's actions."""
    return -policy_mean(log_probability(actor, batch), batch)


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    return bc.make(config, num_steps=num_steps)._replace(
        name="discrete_bc",
        update=partial(bc.update, config=config, loss_of=actor_loss),
        actor_kind="softmax",
        discrete=True,
    )
