"""MLPs on a GPU: bias, normalisation and ReLU of a layer in one kernel, and `apply_mlp` over them.

For the backward pass of a normalised layer XLA needs up to seven kernels, four of which sum over
the whole batch; without normalisation it needs three. Here one kernel reads everything once and
writes a partial sum for each block of rows; XLA adds these up, fused into the optimiser. There are
no atomics, so that the same inputs give the same bits. The product of a narrow input is part of the
kernel, and is computed again in the backward pass, which is cheaper than storing it. Wide products
use the vendor's library.

Hidden units and their gradients may be bfloat16 between two kernels: a kernel keeps the dtype of
its input and adds in float32. Written in Pallas for Triton; ``interpret`` runs the same code as
plain JAX on any device.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from puorl.nn.mlp import NORM_EPSILON

WIDEST_INPUT = 64
"""Inputs with at most this many columns are multiplied inside the kernel."""
_NARROWEST = 16  # the narrowest product that Triton supports
_BLOCK_ROWS = 16
_NUM_WARPS = 4


class Offsets(NamedTuple):
    """Bias of a layer, scale and offset of its normalisation if any, each (width,) float32."""

    bias: Any
    scale: Any = None
    offset: Any = None


def fits(num_rows: int, width: int) -> bool:
    """Return whether the kernels support layers of this shape."""
    return num_rows % _BLOCK_ROWS == 0 and 16 <= width <= 1024 and width & (width - 1) == 0


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(h: jax.Array, w: jax.Array, dtype: Any) -> jax.Array:
    """Multiply units h (n, f) by w (f, width) float32; the result has ``dtype``."""
    return _matmul(h, w.astype(h.dtype), dtype)


def _product_saved(h: jax.Array, w: jax.Array, dtype: Any) -> tuple[jax.Array, Any]:
    return product(h, w, dtype), (h, w)


def _product_back(dtype: Any, saved: Any, dz: jax.Array) -> tuple[jax.Array, jax.Array]:
    del dtype
    h, w = saved
    dz = dz.astype(h.dtype)
    return _matmul(dz, w.T.astype(h.dtype), h.dtype), _matmul(h.T, dz, jnp.float32)


product.defvjp(_product_saved, _product_back)


def _matmul(a: jax.Array, b: jax.Array, dtype: Any) -> jax.Array:
    return jnp.dot(a, b, preferred_element_type=dtype)


# --------------------------------------------------------- product and activation in one kernel


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def product_activate(
    x: jax.Array, w: jax.Array, offsets: Offsets, dtype: Any, interpret: bool = False
) -> jax.Array:
    """`activate` of x @ w, for x (n, f) of at most `WIDEST_INPUT` columns and w (f, width)."""
    kernel = functools.partial(_forward_product, fan_in=x.shape[1])
    out = jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), dtype)
    return _call(kernel, [x], [w, offsets], out, interpret)


def _product_forward(
    x: jax.Array, w: jax.Array, offsets: Offsets, dtype: Any, interpret: bool
) -> tuple[jax.Array, Any]:
    return product_activate(x, w, offsets, dtype, interpret), (x, w, offsets)


def _product_backward(
    dtype: Any, interpret: bool, saved: Any, dh: jax.Array
) -> tuple[jax.Array, jax.Array, Offsets]:
    del dtype  # the gradient's own
    x, w, offsets = saved
    kernel = functools.partial(_backward_product, fan_in=x.shape[1])
    out = (_like(dh), _partials(dh, offsets))
    dz, sums = _call(kernel, [x, dh], [w, offsets], out, interpret)
    # Two products in XLA, which removes the one that is not used.
    dx = _matmul(dz, w.T.astype(dz.dtype), jnp.float32)
    dw = _matmul(x.T.astype(dz.dtype), dz, jnp.float32)
    return dx, dw, _totals(sums)


product_activate.defvjp(_product_forward, _product_backward)


# ------------------------------------------------------------------ activation behind a product


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def activate(z: jax.Array, offsets: Offsets, interpret: bool = False) -> jax.Array:
    """ReLU of z + bias, normalised in between if ``offsets`` say how; z (n, width), of its dtype.

    With normalisation this is relu(scale * normalised(z + bias) + offset).
    """
    return _call(_forward, [z], [offsets], _like(z), interpret)


def _activate_forward(z: jax.Array, offsets: Offsets, interpret: bool) -> tuple[jax.Array, Any]:
    return activate(z, offsets, interpret), (z, offsets)


def _activate_backward(interpret: bool, saved: Any, dh: jax.Array) -> tuple[jax.Array, Offsets]:
    z, offsets = saved
    dz, sums = _call(_backward, [z, dh], [offsets], (_like(z), _partials(z, offsets)), interpret)
    return dz, _totals(sums)


activate.defvjp(_activate_forward, _activate_backward)


# ------------------------------------------------------- activation and a last layer of one unit


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def activate_dot(
    z: jax.Array, offsets: Offsets, w: jax.Array, interpret: bool = False
) -> jax.Array:
    """`activate` times w (width,): (n,) float32; the hidden units are never written to memory."""
    out = jax.ShapeDtypeStruct((z.shape[0],), jnp.float32)
    return _call(_forward_dot, [z], [offsets, w], out, interpret)


def _activate_dot_forward(
    z: jax.Array, offsets: Offsets, w: jax.Array, interpret: bool
) -> tuple[jax.Array, Any]:
    return activate_dot(z, offsets, w, interpret), (z, offsets, w)


def _activate_dot_backward(
    interpret: bool, saved: Any, dy: jax.Array
) -> tuple[jax.Array, Offsets, jax.Array]:
    z, offsets, w = saved
    out = (_like(z), _partials(z, offsets), _partial(z))
    dz, sums, dw = _call(_backward_dot, [z, dy], [offsets, w], out, interpret)
    return dz, _totals(sums), dw.sum(axis=0)


activate_dot.defvjp(_activate_dot_forward, _activate_dot_backward)


# ------------------------------------------------------------------------------- the kernels
# Arguments are references: a block of rows of each row-wise array, the whole of the others.


def _forward_product(x: Any, w: Any, offsets: Offsets, h: Any, *, fan_in: int) -> None:
    _write(h, _relu(_before(_masked_product(x, w, fan_in), offsets)))


def _backward_product(
    x: Any, dh: Any, w: Any, offsets: Offsets, dz: Any, sums: Offsets, *, fan_in: int
) -> None:
    before = _before(_masked_product(x, w, fan_in), offsets)
    _write_gradients(before, _floats(dh), offsets, dz, sums)


def _forward(z: Any, offsets: Offsets, h: Any) -> None:
    _write(h, _relu(_before(_floats(z), offsets)))


def _backward(z: Any, dh: Any, offsets: Offsets, dz: Any, sums: Offsets) -> None:
    _write_gradients(_before(_floats(z), offsets), _floats(dh), offsets, dz, sums)


def _forward_dot(z: Any, offsets: Offsets, w: Any, y: Any) -> None:
    h = _relu(_before(_floats(z), offsets))
    y[...] = (h * w[...][None, :]).sum(axis=1)


def _backward_dot(
    z: Any, dy: Any, offsets: Offsets, w: Any, dz: Any, sums: Offsets, dw: Any
) -> None:
    before = _before(_floats(z), offsets)
    column = dy[...][:, None]
    dw[...] = (column * _relu(before)).sum(axis=0)
    _write_gradients(before, column * w[...][None, :], offsets, dz, sums)


class _Before(NamedTuple):
    """What goes into the ReLU; with normalisation also the normalised units and their factor."""

    value: jax.Array
    units: Any = None
    factor: Any = None


def _before(z: jax.Array, offsets: Offsets) -> _Before:
    y = z + offsets.bias[...][None, :]
    if offsets.scale is None:
        return _Before(y)
    centred = y - y.mean(axis=1, keepdims=True)
    factor = jax.lax.rsqrt(jnp.square(centred).mean(axis=1, keepdims=True) + NORM_EPSILON)
    units = centred * factor
    return _Before(
        units * offsets.scale[...][None, :] + offsets.offset[...][None, :], units, factor
    )


def _relu(before: _Before) -> jax.Array:
    return jnp.maximum(before.value, 0.0)


def _write_gradients(
    before: _Before, dh: jax.Array, offsets: Offsets, dz: Any, sums: Offsets
) -> None:
    da = jnp.where(before.value > 0.0, dh, 0.0)
    d = da
    if offsets.scale is not None:
        units = before.units
        d_units = da * offsets.scale[...][None, :]
        mean = d_units.mean(axis=1, keepdims=True)
        slope = (d_units * units).mean(axis=1, keepdims=True)
        d = before.factor * (d_units - mean - units * slope)
        sums.scale[...] = (da * units).sum(axis=0)
        sums.offset[...] = da.sum(axis=0)
    _write(dz, d)
    sums.bias[...] = d.sum(axis=0)


def _masked_product(x: Any, w: Any, fan_in: int) -> jax.Array:
    return jax.lax.dot_general(
        _read(x, (None, fan_in)),
        _read(w, (fan_in, None)),
        (((1,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
    )


def _floats(ref: Any) -> jax.Array:
    return ref[...].astype(jnp.float32)


def _write(ref: Any, value: jax.Array) -> None:
    ref[...] = value.astype(ref.dtype)


def _read(ref: Any, valid: Sequence[int | None]) -> jax.Array:
    """Load a block with zeros beyond the valid size of each axis; None is the whole axis."""
    inside = [
        jax.lax.broadcasted_iota(jnp.int32, ref.shape, axis) < size
        for axis, size in enumerate(valid)
        if size is not None and size < ref.shape[axis]
    ]
    if not inside:
        return ref[...]
    return plgpu.load(ref, mask=functools.reduce(jnp.logical_and, inside), other=0.0)


# ------------------------------------------------------------------------------- their blocks


def _call(
    kernel: Any, rows: Sequence[jax.Array], whole: Sequence[Any], out: Any, interpret: bool
) -> Any:
    """Run a kernel over blocks of ``rows``; trees of arrays in ``whole`` are not cut."""
    num_rows = rows[0].shape[0]
    call = pl.pallas_call(
        kernel,
        grid=(num_rows // _BLOCK_ROWS,),
        in_specs=[*map(_row_spec, rows), *jax.tree.map(_whole_spec, list(whole))],
        out_specs=jax.tree.map(lambda each: _out_spec(each, num_rows), out),
        out_shape=out,
        compiler_params=plgpu.CompilerParams(num_warps=_NUM_WARPS, num_stages=1),
        interpret=interpret,
    )
    return call(*rows, *whole)


def _row_spec(x: Any) -> pl.BlockSpec:
    if len(x.shape) == 1:
        return pl.BlockSpec((_BLOCK_ROWS,), lambda i: (i,))
    return pl.BlockSpec((_BLOCK_ROWS, _padded(x.shape[1])), lambda i: (i, 0))


def _whole_spec(x: Any) -> pl.BlockSpec:
    zeros = (0,) * len(x.shape)
    return pl.BlockSpec(tuple(map(_padded, x.shape)), lambda i: zeros)


def _out_spec(x: Any, num_rows: int) -> pl.BlockSpec:
    if x.shape[0] == num_rows:
        return _row_spec(x)
    return pl.BlockSpec((None, x.shape[1]), lambda i: (i, 0))


def _padded(size: int) -> int:
    # Blocks are powers of two; values beyond the real size are read as zero.
    return max(_NARROWEST, 1 << math.ceil(math.log2(size)))


def _like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _partials(z: jax.Array, offsets: Offsets) -> Offsets:
    return jax.tree.map(lambda _: _partial(z), offsets)


def _totals(sums: Offsets) -> Offsets:
    return jax.tree.map(lambda each: each.sum(axis=0), sums)


def _partial(z: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((z.shape[0] // _BLOCK_ROWS, z.shape[1]), jnp.float32)


def fits_mlp(params: Any, x: jax.Array) -> bool:
    """Return whether the kernels support these layers and this input."""
    return x.ndim == 2 and all(
        layer.norm is None or fits(x.shape[0], layer.w.shape[1]) for layer in params
    )


def apply_mlp(
    params: Any, x: jax.Array, *, units: Any = jnp.float32, interpret: bool = False
) -> jax.Array:
    """Map x (n, fan_in) to (n, fan_out); the last layer is affine.

    Args:
        params: Layers of float32, as from `puorl.nn.mlp.init_mlp`.
        x: (n, fan_in) float32.
        units: Dtype of hidden units and their gradients between two kernels.
        interpret: Run the kernels as plain JAX.
    """
    *hidden, last = params
    for layer in hidden:
        width = layer.w.shape[1]
        if layer.norm is None and not fits(x.shape[0], width):
            x = jax.nn.relu(_plus(product(x.astype(units), layer.w, units), layer.b)).astype(units)
            continue
        offsets = Offsets(layer.b, *(layer.norm or ()))
        if x.shape[1] <= WIDEST_INPUT and x.dtype == jnp.float32:
            x = product_activate(x, layer.w, offsets, units, interpret)
            continue
        z = product(x.astype(units), layer.w, units)
        if layer is hidden[-1] and last.w.shape[1] == 1:
            y: Any = activate_dot(z, offsets, last.w[:, 0], interpret)
            return _plus(jnp.expand_dims(y, 1), last.b)
        x = activate(z, offsets, interpret)
    return _plus(product(x, last.w, jnp.float32), last.b)


def _plus(z: jax.Array, b: jax.Array) -> jax.Array:
    return z.astype(jnp.float32) + jnp.broadcast_to(b, z.shape)
