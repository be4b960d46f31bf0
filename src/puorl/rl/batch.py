"""Batch: the rows of one update, and the one mean that every loss is made of."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Batch(NamedTuple):
    """Rows of one lane, all float32 but ``position``; states are normalised where wanted."""

    obs: jax.Array
    """(b, d)."""
    action: jax.Array
    """(b, m) in [-1, 1]."""
    reward: jax.Array
    """(b,) scaled where the learner wants it."""
    next_obs: jax.Array
    """(b, d)."""
    terminal: jax.Array
    """(b,) 0 or 1; a time limit is no terminal."""
    next_action: jax.Array
    """(b, m) the action that followed; zeros for a learner that does not ask for it."""
    keep: jax.Array
    """(b,) 0 or 1: rows that are 0 are as if they had not been drawn."""
    weight: jax.Array
    """(b,) how much a row counts in every loss (soft filtering)."""
    critic_weight: jax.Array
    """(b,) how much it counts in the critic's loss, on top of ``weight``."""
    position: jax.Array
    """(b,) int32. Where the row stands in its training set, for a learner that keeps priorities."""


def kept_mean(x: jax.Array, weight: jax.Array, keep: jax.Array) -> jax.Array:
    """Sum of keep * weight * x over the sum of keep; all (b,) of one shape.

    >>> float(kept_mean(jnp.array([1.0, 5.0]), jnp.array([0.5, 1.0]), jnp.array([1.0, 0.0])))
    0.5
    """
    if not x.shape == weight.shape == keep.shape:
        raise ValueError(f"expected one shape, got {x.shape}, {weight.shape} and {keep.shape}")
    return jnp.sum(keep * weight * x) / jnp.sum(keep)


def policy_mean(x: jax.Array, batch: Batch) -> jax.Array:
    """Mean of x (b,) for losses of the policy and of values: soft weights count."""
    return kept_mean(x, batch.weight, batch.keep)


def critic_mean(x: jax.Array, batch: Batch) -> jax.Array:
    """Mean of x (b,) for the critic's loss: the critic's own weights count, too."""
    return kept_mean(x, batch.weight * batch.critic_weight, batch.keep)
