"""`nn.apply_mlp` with ReLU as a GPU likes it: few kernels, and few bytes between them.

The same function; products and the units between layers are rounded as the caller says.
"""

from typing import Any

import jax
import jax.numpy as jnp

from puorl.core import norm_relu
from puorl.core.norm_relu import Offsets


def fits(params: Any, x: jax.Array) -> bool:
    """Whether these layers and this input have shapes that the kernels take."""
    return x.ndim == 2 and all(
        layer.norm is None or norm_relu.fits(x.shape[0], layer.w.shape[1]) for layer in params
    )


def apply(
    params: Any, x: jax.Array, *, units: Any = jnp.float32, interpret: bool = False
) -> jax.Array:
    """Map x (n, fan_in) to (n, fan_out); the last layer is affine.

    Args:
        params: Layers of float32, as from `nn.init_mlp`.
        x: (n, fan_in) float32.
        units: How hidden units and their gradients are kept between two kernels.
        interpret: Run the kernels as plain JAX.
    """
    *hidden, last = params
    for layer in hidden:
        if layer.norm is None:
            z: Any = norm_relu.product(x.astype(units), layer.w, units)
            x = jax.nn.relu(_plus(z, layer.b)).astype(units)
            continue
        offsets = Offsets(layer.b, *layer.norm)
        if x.shape[1] <= norm_relu.WIDEST_INPUT and x.dtype == jnp.float32:
            x = norm_relu.product_norm_relu(x, layer.w, offsets, units, interpret)
            continue
        z = norm_relu.product(x, layer.w, units)
        if layer is hidden[-1] and last.w.shape[1] == 1:
            y: Any = norm_relu.norm_relu_dot(z, offsets, last.w[:, 0], interpret)
            return _plus(jnp.expand_dims(y, 1), last.b)
        x = norm_relu.norm_relu(z, offsets, interpret)
    return _plus(norm_relu.product(x, last.w, jnp.float32), last.b)


def _plus(z: jax.Array, b: jax.Array) -> jax.Array:
    return z.astype(jnp.float32) + jnp.broadcast_to(b, z.shape)
