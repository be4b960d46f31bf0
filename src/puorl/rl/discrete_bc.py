"""Behaviour cloning of discrete actions: a softmax policy of highest likelihood.

Minimises the cross-entropy of the data's actions. Its probabilities are those of the data, as far
as the network can express them, so that it also serves as a model of the behaviour. Network,
weights at the start, optimiser and normalised states are those of `puorl.rl.bc`, and as there
rewards do not matter.
"""

from functools import partial

import jax

from puorl.nn import mlp
from puorl.rl import bc
from puorl.rl.bc import PRESETS, Config
from puorl.rl.double_dqn import taken
from puorl.rl.learner import Batch, Learner, policy_mean

__all__ = ["PRESETS", "Config", "log_probability", "make"]


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
