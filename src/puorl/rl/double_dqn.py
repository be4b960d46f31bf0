"""Q-learning with one output for each discrete action, which discrete CQL and BCQ share.

Mnih et al. 2015, "Human-level control through deep reinforcement learning": a network of all
actions' values, a target network and the Huber loss. Van Hasselt et al. 2016, "Deep Reinforcement
Learning with Double Q-learning": the network in training chooses the next action, its target
judges it. The target follows by soft updates, as in this package's other learners.
"""

import jax
import jax.numpy as jnp

from puorl.nn import mlp
from puorl.rl.learner import Batch, Sizes


def init_network(key: jax.Array, sizes: Sizes, hidden: tuple[int, ...]) -> mlp.Params:
    """Make a network with an output for each action."""
    return mlp.init_mlp(key, (sizes.obs_dim, *hidden, sizes.act_dim), init="orthogonal")


def taken(values: jax.Array, batch: Batch) -> jax.Array:
    """Return what values (b, A) say of the data's actions, (b,)."""
    return jnp.where(batch.action > 0.5, values, 0.0).sum(axis=-1)


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
