"""Multilayer perceptrons in JAX: parameters are tuples of layers, functions are pure.

An ensemble is the same tree with one more leading axis on every leaf. A GPU uses the kernels of
`puorl.nn.gpu`. On a CPU, `cpu_product` and `cpu_normalise` have backward passes of their own,
because those that JAX derives are several times slower there.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError

Initialiser = Callable[[jax.Array, int, int], tuple[jax.Array, jax.Array]]
Activation = Callable[[jax.Array], jax.Array]

NORM_EPSILON = 1e-5
"""Added to the variance of a layer's units."""
_MANY_ROWS = 4096
"""From this many rows on, sums along rows are faster than products (2.4 times with 16,384)."""
_gpu_units: ContextVar[Any] = ContextVar("gpu_units", default=jnp.float32)


@contextmanager
def half_units() -> Iterator[None]:
    """Keep hidden units and their gradients as bfloat16 on GPUs, for functions traced inside.

    This halves the bytes between two kernels. Sums, stored weights and outputs stay float32; a
    product takes weights and wide inputs as bfloat16.
    """
    token = _gpu_units.set(jnp.bfloat16)
    try:
        yield
    finally:
        _gpu_units.reset(token)


class LayerNorm(NamedTuple):
    """Learnt scale and offset of a layer normalisation, each (width,) float32."""

    scale: jax.Array
    offset: jax.Array


class Layer(NamedTuple):
    """An affine map, w (fan_in, fan_out) and b (fan_out,) float32, and its normalisation."""

    w: jax.Array
    b: jax.Array
    norm: LayerNorm | None = None


Params = tuple[Layer, ...]


def torch_uniform(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
    """Draw weights and bias uniform in +-1/sqrt(fan_in), PyTorch's default for linear layers."""
    bound = 1.0 / math.sqrt(fan_in)
    drawn = jax.random.uniform(key, (fan_in + 1, fan_out), jnp.float32, -bound, bound)
    return drawn[:-1], drawn[-1]


def lecun_uniform(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
    """Draw weights uniform with variance 1/fan_in; the bias is zero."""
    bound = math.sqrt(3.0 / fan_in)
    w = jax.random.uniform(key, (fan_in, fan_out), jnp.float32, -bound, bound)
    return w, jnp.zeros(fan_out, jnp.float32)


class Orthogonal(NamedTuple):
    """Orthogonal weights times ``gain``, bias zero; the default gain suits ReLU."""

    gain: float = math.sqrt(2.0)

    def __call__(self, key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
        """Draw a layer."""
        return self.of(jax.random.normal(key, (fan_in * fan_out,), jnp.float32), fan_in, fan_out)

    def of(self, noise: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
        """Make a layer of standard normal numbers, (fan_in * fan_out,) float32."""
        tall = noise.reshape(max(fan_in, fan_out), min(fan_in, fan_out))
        q = orthonormal(tall)
        w = self.gain * (q if fan_in >= fan_out else q.T)
        return w, jnp.zeros(fan_out, jnp.float32)


INITIALISERS: dict[str, Initialiser] = {
    "torch": torch_uniform,
    "lecun": lecun_uniform,
    "orthogonal": Orthogonal(),
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
        last_init: The same for the output layer; ``init`` if None.
        layer_norm: Normalise every hidden layer.

    >>> [layer.w.shape for layer in init_mlp(jax.random.key(0), (3, 8, 2))]
    [(3, 8), (8, 2)]
    """
    inits = _initialisers(init, last_init, len(sizes) - 1)
    if all(isinstance(each, Orthogonal) for each in inits):
        noise = jax.random.normal(key, (_num_weights(sizes),), jnp.float32)
        return _orthogonal_mlp(noise, sizes, inits, layer_norm)
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    drawn = [inits[i](keys[i], *fans) for i, fans in enumerate(pairs)]
    return _layers(drawn, layer_norm)


def apply_mlp(
    params: Params,
    x: jax.Array,
    activation: Activation = jax.nn.relu,
    *,
    norm_after: bool = False,
) -> jax.Array:
    """Map x (..., fan_in) to (..., fan_out); the last layer is affine.

    With ``norm_after`` the normalisation follows the activation instead of preceding it.
    """
    if activation is jax.nn.relu and not norm_after and jax.default_backend() == "gpu":
        from puorl.nn import gpu  # loads Pallas, which takes time

        if gpu.fits_mlp(params, x):
            return gpu.apply_mlp(params, x, units=_gpu_units.get())
    for layer in params[:-1]:
        x = _affine(layer, x)
        if norm_after:
            x = activation(x)
        if layer.norm is not None:
            x = _normalise(layer.norm, x)
        if not norm_after:
            x = activation(x)
    return _affine(params[-1], x)


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
    inits = _initialisers(init, last_init, len(sizes) - 1)
    if all(isinstance(each, Orthogonal) for each in inits):
        # One draw for all numbers: each draw takes most of a second to compile.
        noise = jax.random.normal(key, (num_members, _num_weights(sizes)), jnp.float32)
        return jax.vmap(lambda one: _orthogonal_mlp(one, sizes, inits, layer_norm))(noise)

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
    """Apply every member to the same x (batch, fan_in): (num_members, batch, fan_out)."""

    def one(member: Params, rows: jax.Array) -> jax.Array:
        return apply_mlp(member, rows, activation, norm_after=norm_after)

    # With x repeated, the member axis is a batch axis of every product, without transposes.
    repeated = jnp.broadcast_to(x, (params[0].w.shape[0], *x.shape))
    return jax.vmap(one)(params, repeated)


def soft_update(target: Params, params: Params, tau: float) -> Params:
    """Move the target a fraction ``tau`` towards the parameters: their moving average."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, params)


def _affine(layer: Layer, x: jax.Array) -> jax.Array:
    y = cpu_product(x, layer.w) if _on_cpu() else x @ layer.w
    return y + jnp.broadcast_to(layer.b, y.shape)


def _normalise(norm: LayerNorm, x: jax.Array) -> jax.Array:
    if _on_cpu():
        return cpu_normalise(x, norm.scale, norm.offset, NORM_EPSILON)
    mean = x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x - mean).mean(axis=-1, keepdims=True)
    unit = (x - mean) * jax.lax.rsqrt(variance + NORM_EPSILON)
    return unit * jnp.broadcast_to(norm.scale, x.shape) + jnp.broadcast_to(norm.offset, x.shape)


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _orthogonal_mlp(
    noise: jax.Array, sizes: Sequence[int], inits: Sequence[Any], layer_norm: bool
) -> Params:
    drawn, start = [], 0
    for init, fan_in, fan_out in zip(inits, sizes[:-1], sizes[1:], strict=True):
        drawn.append(init.of(noise[start : start + fan_in * fan_out], fan_in, fan_out))
        start += fan_in * fan_out
    return _layers(drawn, layer_norm)


def _layers(drawn: Sequence[tuple[jax.Array, jax.Array]], layer_norm: bool) -> Params:
    norms: list[LayerNorm | None] = [None] * len(drawn)
    if layer_norm:
        norms[:-1] = [LayerNorm(jnp.ones_like(b), jnp.zeros_like(b)) for _, b in drawn[:-1]]
    return tuple(Layer(w, b, norm) for (w, b), norm in zip(drawn, norms, strict=True))


def _num_weights(sizes: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(sizes[:-1], sizes[1:], strict=True))


def _initialisers(
    init: str | Initialiser, last_init: str | Initialiser | None, num_layers: int
) -> list[Initialiser]:
    hidden = _initialiser(init)
    last = hidden if last_init is None else _initialiser(last_init)
    return [hidden] * (num_layers - 1) + [last]


def _initialiser(init: str | Initialiser) -> Initialiser:
    if callable(init):
        return init
    if init not in INITIALISERS:
        raise ConfigError(f"init: expected one of {', '.join(INITIALISERS)}, got {init!r}")
    return INITIALISERS[init]


def orthonormal(noise: jax.Array) -> jax.Array:
    """Turn standard normal numbers (n, p), p <= n, into uniform orthonormal columns (n, p).

    The first column is the first column of ``noise``, scaled to length 1.

    >>> q = orthonormal(jax.random.normal(jax.random.key(0), (5, 3)))
    >>> bool(jnp.abs(q.T @ q - jnp.eye(3)).max() < 1e-5)
    True
    """
    num_rows, num_columns = noise.shape
    row = jnp.arange(num_rows)
    # Signs that avoid cancellation in the reflectors.
    turn = jnp.where(jnp.diagonal(noise) >= 0.0, 1.0, -1.0)

    def reflect(i: jax.Array, q: jax.Array) -> jax.Array:
        k = num_columns - 1 - i
        x = jnp.where(row >= k, noise[:, k], 0.0)
        v = x + jnp.where(row == k, turn[k] * jnp.sqrt(jnp.sum(x * x)), 0.0)
        along = jnp.dot(v, q, precision="highest")
        return q - (2.0 / jnp.sum(v * v)) * jnp.outer(v, along)

    start = jnp.eye(num_rows, num_columns) * jnp.broadcast_to(-turn, noise.shape)
    return jax.lax.fori_loop(0, num_columns, reflect, start)


@jax.custom_vjp
def cpu_product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Multiply x (..., fan_in) by w (fan_in, fan_out), both float32."""
    return x @ w


def _product_forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return cpu_product(x, w), (x, w)


def _product_backward(
    saved: tuple[jax.Array, jax.Array], dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, w = saved
    rows = math.prod(x.shape[:-1])
    flat_x, flat_dy = x.reshape(rows, x.shape[-1]), dy.reshape(rows, dy.shape[-1])
    # The narrower factor first: the other order takes five times as long for few columns.
    narrow = w.shape[1] < w.shape[0]
    dw = _contract(flat_dy, flat_x, 0, 0).T if narrow else _contract(flat_x, flat_dy, 0, 0)
    return _contract(dy, w, dy.ndim - 1, 1), dw


cpu_product.defvjp(_product_forward, _product_backward)


def _contract(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
    return jax.lax.dot_general(a, b, (((axis_a,), (axis_b,)), ((), ())))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def cpu_normalise(y: jax.Array, scale: jax.Array, offset: jax.Array, epsilon: float) -> jax.Array:
    """Normalise every row of y (..., width) to mean 0 and variance 1; apply scale and offset.

    ``epsilon`` is added to the variance.
    """
    if math.prod(y.shape[:-1]) < _MANY_ROWS:
        return _normalise_forward(y, scale, offset, epsilon)[0]
    centred = y - y.mean(axis=-1, keepdims=True)
    factor = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + epsilon)
    return centred * factor * _repeated(scale, y) + _repeated(offset, y)


def _normalise_forward(
    y: jax.Array, scale: jax.Array, offset: jax.Array, epsilon: float
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    # Means of rows as products: XLA sums along a row one number at a time.
    weight = jnp.full((y.shape[-1], 1), 1.0 / y.shape[-1], y.dtype)
    centred = y - _repeated(y @ weight, y)
    factor = jax.lax.rsqrt(jnp.square(centred) @ weight + epsilon)
    units = centred * _repeated(factor, y)
    out = units * _repeated(scale, y) + _repeated(offset, y)
    return out, (centred, factor, scale)


def _normalise_backward(
    epsilon: float, saved: tuple[jax.Array, jax.Array, jax.Array], d: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    del epsilon
    centred, factor, scale = saved
    units = centred * _repeated(factor, d)
    # Without the barrier XLA turns the sum over a product into a slower product.
    d, d_units = jax.lax.optimization_barrier((d, d * units))
    weight = (scale / scale.shape[0])[:, None]
    mean, slope = _repeated(d @ weight, d), _repeated(d_units @ weight, d)
    dy = _repeated(factor, d) * (d * _repeated(scale, d) - mean - units * slope)
    rows = tuple(range(d.ndim - 1))
    return jax.lax.optimization_barrier(dy), d_units.sum(axis=rows), d.sum(axis=rows)


cpu_normalise.defvjp(_normalise_forward, _normalise_backward)


def _repeated(part: jax.Array, like: jax.Array) -> jax.Array:
    return jnp.broadcast_to(part, like.shape)


# --------------------------------------------------------------------------------- Adam

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


class Moments(NamedTuple):
    """Adam's moments of the gradient, shaped like the parameters, and the number of updates."""

    mean: Any
    square: Any
    num_updates: jax.Array


def init_adam(params: Any) -> Moments:
    """Return the moments before the first update."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Moments(zeros, zeros, jnp.zeros((), jnp.int32))


def apply_adam(
    params: Any,
    grad: Any,
    moments: Moments,
    *,
    learning_rate: float | jax.Array,
    weight_decay: float = 0.0,
) -> tuple[Any, Moments]:
    """Return the parameters and moments after one step of Adam (Kingma and Ba 2015).

    Written here because it is ten lines, runs under strict dtype rules and fuses into few kernels.

    Args:
        params: Tree of float32 arrays.
        grad: Gradient, shaped like ``params``.
        moments: Result of `init_adam` or of the last step.
        learning_rate: Step size.
        weight_decay: L2 penalty added to the gradient, as in PyTorch's Adam.
    """
    beta1, beta2 = ADAM_BETAS
    if weight_decay:
        grad = jax.tree.map(lambda g, p: g + weight_decay * p, grad, params)
    num_updates = moments.num_updates + 1
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, moments.mean, grad)
    square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, moments.square, grad)
    num = num_updates.astype(jnp.float32)
    mean_scale, square_scale = 1.0 / (1.0 - beta1**num), 1.0 / (1.0 - beta2**num)

    def move(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - learning_rate * (m * mean_scale) / (jnp.sqrt(v * square_scale) + ADAM_EPSILON)

    return jax.tree.map(move, params, mean, square), Moments(mean, square, num_updates)
