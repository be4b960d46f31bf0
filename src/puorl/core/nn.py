"""Plain multilayer perceptrons in JAX: parameters are tuples of layers, functions are pure.

An ensemble is the same tree with one more leading axis on every leaf.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError

Initialiser = Callable[[jax.Array, int, int], tuple[jax.Array, jax.Array]]
Activation = Callable[[jax.Array], jax.Array]

_NORM_EPSILON = 1e-5


class LayerNorm(NamedTuple):
    """Learnt scale and offset of a layer normalisation, each (width,) float32."""

    scale: jax.Array
    offset: jax.Array


class Layer(NamedTuple):
    """One affine map, w (fan_in, fan_out) and b (fan_out,) float32, and what follows it."""

    w: jax.Array
    b: jax.Array
    norm: LayerNorm | None = None


Params = tuple[Layer, ...]


def torch_uniform(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
    """PyTorch's default for a linear layer: weights and bias uniform in +-1/sqrt(fan_in)."""
    bound = 1.0 / math.sqrt(fan_in)
    drawn = jax.random.uniform(key, (fan_in + 1, fan_out), jnp.float32, -bound, bound)
    return drawn[:-1], drawn[-1]


def lecun_uniform(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
    """Weights uniform with variance 1/fan_in, bias zero."""
    bound = math.sqrt(3.0 / fan_in)
    w = jax.random.uniform(key, (fan_in, fan_out), jnp.float32, -bound, bound)
    return w, jnp.zeros(fan_out, jnp.float32)


def orthogonal(gain: float = math.sqrt(2.0)) -> Initialiser:
    """Orthogonal weights times ``gain``, bias zero; the default gain is the one for ReLU."""
    draw = jax.nn.initializers.orthogonal(gain)

    def init(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
        return draw(key, (fan_in, fan_out), jnp.float32), jnp.zeros(fan_out, jnp.float32)

    return init


INITIALISERS: dict[str, Initialiser] = {
    "torch": torch_uniform,
    "lecun": lecun_uniform,
    "orthogonal": orthogonal(),
}


def init_mlp(
    key: jax.Array,
    sizes: Sequence[int],
    *,
    init: str | Initialiser = "torch",
    last_init: str | Initialiser | None = None,
    layer_norm: bool = False,
) -> Params:
    """Draw the parameters of an MLP.

    Args:
        key: A JAX key.
        sizes: Widths from input to output, e.g. ``(17, 256, 256, 6)``.
        init: Name in ``INITIALISERS`` or a function (key, fan_in, fan_out) -> (w, b).
        last_init: The same for the output layer, where it differs.
        layer_norm: Whether every hidden layer is normalised.

    >>> [layer.w.shape for layer in init_mlp(jax.random.key(0), (3, 8, 2))]
    [(3, 8), (8, 2)]
    """
    hidden = _initialiser(init)
    last = hidden if last_init is None else _initialiser(last_init)
    keys = jax.random.split(key, len(sizes) - 1)
    layers = []
    for i, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        is_last = i == len(sizes) - 2
        w, b = (last if is_last else hidden)(keys[i], fan_in, fan_out)
        norm = None
        if layer_norm and not is_last:
            norm = LayerNorm(jnp.ones(fan_out, jnp.float32), jnp.zeros(fan_out, jnp.float32))
        layers.append(Layer(w, b, norm))
    return tuple(layers)


def apply_mlp(
    params: Params,
    x: jax.Array,
    activation: Activation = jax.nn.relu,
    *,
    norm_after: bool = False,
) -> jax.Array:
    """Map x (..., fan_in) to (..., fan_out); the last layer is affine.

    With ``norm_after`` a layer is normalised after its activation, not before.
    """
    *hidden, last = params
    for layer in hidden:
        if activation is jax.nn.relu and not norm_after and _in_one_kernel(layer, x):
            if layer is hidden[-1] and last.w.shape[1] == 1:
                return _norm_relu_dot(layer, last, x)
            x = _norm_relu(layer, x)
            continue
        x = _affine(layer, x)
        if norm_after:
            x = activation(x)
        if layer.norm is not None:
            x = _normalise(layer.norm, x)
        if not norm_after:
            x = activation(x)
    return _affine(last, x.astype(last.w.dtype))


def init_ensemble(
    key: jax.Array,
    num_members: int,
    sizes: Sequence[int],
    *,
    init: str | Initialiser = "torch",
    last_init: str | Initialiser | None = None,
    layer_norm: bool = False,
) -> Params:
    """Draw several MLPs of one shape; every leaf gets a leading axis (num_members, ...)."""

    def member(one: jax.Array) -> Params:
        return init_mlp(one, sizes, init=init, last_init=last_init, layer_norm=layer_norm)

    return jax.vmap(member)(jax.random.split(key, num_members))


def apply_ensemble(
    params: Params,
    x: jax.Array,
    activation: Activation = jax.nn.relu,
    *,
    norm_after: bool = False,
) -> jax.Array:
    """Show the same x (batch, fan_in) to every member: (num_members, batch, fan_out)."""

    def one(member: Params, rows: jax.Array) -> jax.Array:
        return apply_mlp(member, rows, activation, norm_after=norm_after)

    # Repeating x first keeps the member axis a batch axis of every product: no transposes later.
    repeated = jnp.broadcast_to(x, (params[0].w.shape[0], *x.shape))
    return jax.vmap(one)(params, repeated)


def towards(target: Params, params: Params, tau: float) -> Params:
    """The target a step of ``tau`` nearer to the parameters: their moving average."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, params)


def _in_one_kernel(layer: Layer, x: jax.Array) -> bool:
    """Whether a GPU is there whose own kernel does all that follows the product."""
    if layer.norm is None or x.ndim != 2 or jax.default_backend() != "gpu":
        return False
    from puorl.core import norm_relu  # loads Pallas, which others need not pay for

    return norm_relu.fits(x.shape[0], layer.w.shape[1])


def _norm_relu(layer: Layer, x: jax.Array) -> jax.Array:
    from puorl.core import norm_relu

    assert layer.norm is not None
    offsets = norm_relu.Offsets(layer.b, *layer.norm)
    if x.shape[1] <= norm_relu.WIDEST_INPUT:
        return norm_relu.product_norm_relu(x, layer.w, offsets)
    return norm_relu.norm_relu(norm_relu.product(x, layer.w), offsets)


def _norm_relu_dot(layer: Layer, last: Layer, x: jax.Array) -> jax.Array:
    from puorl.core import norm_relu

    assert layer.norm is not None
    offsets = norm_relu.Offsets(layer.b, *layer.norm)
    z = norm_relu.product(x, layer.w)
    y = jnp.expand_dims(norm_relu.norm_relu_dot(z, offsets, last.w[:, 0]), 1)
    return y + jnp.broadcast_to(last.b, y.shape)


def _affine(layer: Layer, x: jax.Array) -> jax.Array:
    y = x @ layer.w
    return y + jnp.broadcast_to(layer.b, y.shape)


def _normalise(norm: LayerNorm, x: jax.Array) -> jax.Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x - mean).mean(axis=-1, keepdims=True)
    unit = (x - mean) * jax.lax.rsqrt(variance + _NORM_EPSILON)
    return unit * jnp.broadcast_to(norm.scale, x.shape) + jnp.broadcast_to(norm.offset, x.shape)


def _initialiser(init: str | Initialiser) -> Initialiser:
    if callable(init):
        return init
    if init not in INITIALISERS:
        raise ConfigError(f"init: expected one of {', '.join(INITIALISERS)}, got {init!r}")
    return INITIALISERS[init]
