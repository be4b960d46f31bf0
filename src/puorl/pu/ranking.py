"""Ranking by score inside a compiled epoch: the CVIR threshold, and BBE as a JAX function."""

import jax
import jax.numpy as jnp

from puorl.pu.mpe.bbe import bound_slack
from puorl.pu.mpe.estimate import MAX_ALPHA


def upper_quantile(score: jax.Array, share: jax.Array) -> jax.Array:
    """The smallest score among the ``int(share * n)`` highest; infinity if that is none.

    Rows below it are kept: exactly the share is rejected when scores differ.
    """
    n = score.shape[0]
    num_rejected = jnp.floor(share * n).astype(jnp.int32)
    place = jnp.clip(n - num_rejected, 0, n - 1)
    return jnp.where(num_rejected > 0, jnp.sort(score)[place], jnp.inf)


def best_bin(score_p: jax.Array, score_u: jax.Array, *, k: float) -> jax.Array:
    """BBE of `puorl.pu.mpe.bbe`, compiled; clipped to [0, 0.999]."""
    n_p, n_u = score_p.shape[0], score_u.shape[0]
    falling = -jnp.sort(-score_u)
    num_u = jnp.arange(n_u)  # counted from 0, as the authors do
    # How many of P are at or above each threshold.
    num_p = n_p - jnp.searchsorted(jnp.sort(score_p), falling, side="left")
    last_of_run = jnp.concatenate([falling[:-1] != falling[1:], jnp.array([False])])
    valid = last_of_run & (num_p >= 2) & (num_u >= 2)
    share_p = jnp.maximum(num_p, 1) / n_p
    ratio = num_u / n_u / share_p
    bound = ratio + bound_slack(n_p, n_u, k=k) / share_p
    best = jnp.argmin(jnp.where(valid, bound, jnp.inf))
    return jnp.where(valid.any(), jnp.clip(ratio[best], 0.0, MAX_ALPHA), 0.0).astype(jnp.float32)
