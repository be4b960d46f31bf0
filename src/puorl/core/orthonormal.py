"""Random matrices with orthonormal columns, in plain JAX.

Stewart 1980, "The Efficient Generation of Random Orthogonal Matrices with an Application to
Condition Estimators": a product of reflections made from normal vectors is distributed as the Q of
a QR decomposition, and none has to be decomposed. Library calls inside a compiled CPU program have
left it waiting for ever.
"""

import jax
import jax.numpy as jnp


def orthonormal(noise: jax.Array) -> jax.Array:
    """Turn standard normal numbers (n, p), p <= n, into orthonormal columns (n, p), all alike.

    The first column is the first column of ``noise``, made one long.

    >>> q = orthonormal(jax.random.normal(jax.random.key(0), (5, 3)))
    >>> bool(jnp.abs(q.T @ q - jnp.eye(3)).max() < 1e-5)
    True
    """
    num_rows, num_columns = noise.shape
    row = jnp.arange(num_rows)
    # Away from the axis, so that nothing cancels where the reflector is made.
    turn = jnp.where(jnp.diagonal(noise) >= 0.0, 1.0, -1.0)

    def reflect(i: jax.Array, q: jax.Array) -> jax.Array:
        k = num_columns - 1 - i
        x = jnp.where(row >= k, noise[:, k], 0.0)
        v = x + jnp.where(row == k, turn[k] * jnp.sqrt(jnp.sum(x * x)), 0.0)
        along = jnp.dot(v, q, precision="highest")
        return q - (2.0 / jnp.sum(v * v)) * jnp.outer(v, along)

    start = jnp.eye(num_rows, num_columns) * jnp.broadcast_to(-turn, noise.shape)
    return jax.lax.fori_loop(0, num_columns, reflect, start)
