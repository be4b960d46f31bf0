"""Adam on any tree of parameters. Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization".

Written here because it is ten lines, runs under strict dtype rules and fuses into few kernels.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Moments(NamedTuple):
    """Running moments of the gradient, shaped like the parameters, and the number of updates."""

    mean: Any
    square: Any
    num_updates: jax.Array


def init(params: Any) -> Moments:
    """Return the moments before the first update."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Moments(zeros, zeros, jnp.zeros((), jnp.int32))


def update(
    params: Any,
    grad: Any,
    moments: Moments,
    *,
    learning_rate: float | jax.Array,
    weight_decay: float = 0.0,
) -> tuple[Any, Moments]:
    """Return the parameters and moments after one step.

    Args:
        params: Tree of float32 arrays.
        grad: Gradient, shaped like ``params``.
        moments: Result of `init` or of the last step.
        learning_rate: Step size.
        weight_decay: L2 penalty added to the gradient, as in PyTorch's Adam.
    """
    beta1, beta2 = BETAS
    if weight_decay:
        grad = jax.tree.map(lambda g, p: g + weight_decay * p, grad, params)
    num_updates = moments.num_updates + 1
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, moments.mean, grad)
    square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, moments.square, grad)
    num = num_updates.astype(jnp.float32)
    mean_scale, square_scale = 1.0 / (1.0 - beta1**num), 1.0 / (1.0 - beta2**num)

    def move(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - learning_rate * (m * mean_scale) / (jnp.sqrt(v * square_scale) + EPSILON)

    return jax.tree.map(move, params, mean, square), Moments(mean, square, num_updates)
