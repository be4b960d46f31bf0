"""MLPs with two hidden layers in one GPU kernel a pass, for many small networks side by side.

The same function as `puorl.core.nn.apply_mlp` with ReLU, written in Pallas for Triton. One program
takes a block of rows of one network and keeps its hidden units on the chip; the backward passes
compute them again instead of reading them back. Weight gradients leave the kernel one per row
block and are added afterwards, so that the result does not depend on the order of the programs.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from puorl.core import nn
from puorl.core.errors import ConfigError

_NARROWEST_PRODUCT = 16  # Triton multiplies nothing narrower.
_WIDEST_INPUT, _WIDEST_OUTPUT = 64, 16
_WIDTHS = (64, 128, 256)
_OPERAND_DTYPES = {"bf16": jnp.bfloat16, "tf32": jnp.float32}


@dataclass(frozen=True)
class Options:
    """How the kernels are cut and compiled; the values differ in speed and rounding alone."""

    block_rows: int = 64
    """Rows of x that one program takes, a power of two from 16; n must be a multiple."""
    block_columns: int = 64
    """Columns of the second layer that one product makes, a power of two from 16."""
    num_warps: int = 8
    """Groups of 32 threads in a program."""
    num_stages: int = 1
    """Depth of Triton's software pipelining."""
    precision: str = "bf16"
    """Operands of the products, "bf16" or "tf32"; sums are float32 in both."""
    interpret: bool = False
    """Run as plain JAX, on any device; "tf32" is then whatever float32 is there."""

    def __post_init__(self) -> None:
        if self.precision not in _OPERAND_DTYPES:
            names = ", ".join(_OPERAND_DTYPES)
            raise ConfigError(f"precision: expected one of {names}, got {self.precision!r}")
        for name in ("block_rows", "block_columns"):
            size = getattr(self, name)
            if size < _NARROWEST_PRODUCT or size & (size - 1):
                raise ConfigError(f"{name}: expected a power of two from 16, got {size}")


def fits(params: nn.Params, n: int, *, options: Options = Options()) -> bool:
    """Whether the kernels can take these networks and n rows of input."""
    if len(params) != 3:
        return False
    first, second, last = params
    fan_in, width = first.w.shape[-2:]
    num_normed = sum(layer.norm is not None for layer in params)
    return (
        second.w.shape[-2:] == (width, width)
        and width in _WIDTHS
        and fan_in <= _WIDEST_INPUT
        and last.w.shape[-1] <= _WIDEST_OUTPUT
        and last.norm is None
        and num_normed in (0, 2)
        and n % options.block_rows == 0
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _apply(params: nn.Params, x: jax.Array, options: Options) -> jax.Array:
    return _forward(params, x, options)


def _apply_fwd(
    params: nn.Params, x: jax.Array, options: Options
) -> tuple[jax.Array, tuple[nn.Params, jax.Array]]:
    return _forward(params, x, options), (params, x)


def _apply_bwd(
    options: Options, saved: tuple[nn.Params, jax.Array], dy: jax.Array
) -> tuple[nn.Params, jax.Array]:
    params, x = saved
    return _params_gradient(params, x, dy, options), jnp.zeros_like(x)


_apply.defvjp(_apply_fwd, _apply_bwd)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _apply_frozen(params: nn.Params, x: jax.Array, options: Options) -> jax.Array:
    return _forward(params, x, options)


def _apply_frozen_bwd(
    options: Options, saved: tuple[nn.Params, jax.Array], dy: jax.Array
) -> tuple[nn.Params, jax.Array]:
    params, x = saved
    return jax.tree.map(jnp.zeros_like, params), _input_gradient(params, x, dy, options)


_apply_frozen.defvjp(_apply_fwd, _apply_frozen_bwd)


def apply(params: nn.Params, x: jax.Array, *, options: Options = Options()) -> jax.Array:
    """Map rows through g networks at once; the gradient reaches the parameters alone.

    Args:
        params: Three layers of float32 as from `nn.init_ensemble`, each leaf (g, ...).
        x: (g, n, fan_in) float32, a constant: its gradient is zero.
        options: How to cut the work.

    Returns:
        (g, n, fan_out) float32.
    """
    _check(params, x, options)
    return _apply(params, x, options)


def apply_frozen(params: nn.Params, x: jax.Array, *, options: Options = Options()) -> jax.Array:
    """Map rows through g networks at once; the gradient reaches x alone.

    Args:
        params: Three layers of float32 as from `nn.init_ensemble`, each leaf (g, ...), constants:
            their gradients are zero.
        x: (g, n, fan_in) float32.
        options: How to cut the work.

    Returns:
        (g, n, fan_out) float32.
    """
    _check(params, x, options)
    return _apply_frozen(params, x, options)


def _check(params: nn.Params, x: jax.Array, options: Options) -> None:
    if x.ndim != 3 or x.shape[0] != params[0].w.shape[0] or x.shape[2] != params[0].w.shape[1]:
        g, fan_in, _ = params[0].w.shape
        raise ConfigError(f"fused MLP: expected x ({g}, n, {fan_in}), got {x.shape}")
    if not fits(params, x.shape[1], options=options):
        sizes = [layer.w.shape[-2:] for layer in params]
        raise ConfigError(
            f"fused MLP: expected two hidden layers of one width in {_WIDTHS}, fan_in <= "
            f"{_WIDEST_INPUT}, fan_out <= {_WIDEST_OUTPUT}, rows in blocks of "
            f"{options.block_rows}, got layers {sizes} and {x.shape[1]} rows; use nn.apply_mlp"
        )


def _forward(params: nn.Params, x: jax.Array, options: Options) -> jax.Array:
    shape = jax.ShapeDtypeStruct((*x.shape[:2], params[-1].w.shape[-1]), jnp.float32)
    call = pl.pallas_call(
        functools.partial(_forward_kernel, sizes=_sizes(params), options=options),
        grid=_grid(x, options),
        in_specs=(_params_specs(params), _rows_spec(x, options)),
        out_specs=_rows_spec(shape, options),
        out_shape=shape,
        **_compilation(options),
    )
    return call(params, x)


def _params_gradient(params: nn.Params, x: jax.Array, dy: jax.Array, options: Options) -> nn.Params:
    # A gradient for each row block is small for all but the second layer's weights. The kernel
    # leaves that one as the two factors of a product over all rows.
    first, second, last = params
    narrow: Any = (first, second._replace(w=None), last)
    units = jax.ShapeDtypeStruct((*x.shape[:2], second.b.shape[-1]), _dtype(options))
    num_blocks = x.shape[1] // options.block_rows

    def partial_shape(leaf: jax.Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((leaf.shape[0], num_blocks, *leaf.shape[1:]), jnp.float32)

    call = pl.pallas_call(
        functools.partial(_params_gradient_kernel, sizes=_sizes(params), options=options),
        grid=_grid(x, options),
        in_specs=(_params_specs(params), _rows_spec(x, options), _rows_spec(dy, options)),
        out_specs=(_params_specs(narrow, per_block=True), *[_rows_spec(units, options)] * 2),
        out_shape=(jax.tree.map(partial_shape, narrow), units, units),
        **_compilation(options),
    )
    partials, h1, dz2 = call(params, x, dy)
    first, second, last = jax.tree.map(lambda partial: partial.sum(axis=1), partials)
    dw2 = jnp.einsum("gni,gnj->gij", h1, dz2, preferred_element_type=jnp.float32)
    return first, second._replace(w=dw2), last


def _input_gradient(params: nn.Params, x: jax.Array, dy: jax.Array, options: Options) -> jax.Array:
    call = pl.pallas_call(
        functools.partial(_input_gradient_kernel, sizes=_sizes(params), options=options),
        grid=_grid(x, options),
        in_specs=(_params_specs(params), _rows_spec(x, options), _rows_spec(dy, options)),
        out_specs=_rows_spec(x, options),
        out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        **_compilation(options),
    )
    return call(params, x, dy)


def _dtype(options: Options) -> Any:
    return _OPERAND_DTYPES[options.precision]


def _sizes(params: nn.Params) -> tuple[int, int]:
    return params[0].w.shape[1], params[-1].w.shape[-1]


def _grid(x: jax.Array, options: Options) -> tuple[int, int]:
    # Row blocks of one network run next to each other and find its weights in the cache.
    return x.shape[1] // options.block_rows, x.shape[0]


def _compilation(options: Options) -> dict[str, Any]:
    params = plgpu.CompilerParams(num_warps=options.num_warps, num_stages=options.num_stages)
    return {"compiler_params": params, "interpret": options.interpret}


def _padded(size: int) -> int:
    return max(_NARROWEST_PRODUCT, 1 << math.ceil(math.log2(size)))


def _rows_spec(x: jax.Array | jax.ShapeDtypeStruct, options: Options) -> pl.BlockSpec:
    block = (None, options.block_rows, _padded(x.shape[-1]))
    return pl.BlockSpec(block, lambda row_block, network: (network, row_block, 0))


def _params_specs(params: nn.Params, *, per_block: bool = False) -> Any:
    def spec(leaf: jax.Array) -> pl.BlockSpec:
        shape = tuple(_padded(size) for size in leaf.shape[1:])
        zeros = (0,) * len(shape)
        if per_block:
            return pl.BlockSpec((None, None, *shape), lambda block, g: (g, block, *zeros))
        return pl.BlockSpec((None, *shape), lambda block, g: (g, *zeros))

    return jax.tree.map(spec, params)


# Below: what runs inside a kernel. Params and gradients are `nn.Params` whose leaves are references
# to the device's memory. Units come in column blocks, because Triton cannot take a part of an array
# that is in registers; some are computed twice, because registers are few.


def _forward_kernel(params: Any, x: Any, y: Any, *, sizes: tuple[int, int], options: Options):
    rows = _Rows(params, x, sizes, options)
    if rows.fan_out == 1:
        products = [
            rows.second_outputs(i) * params[2].w[at, 0][None, :] for i, at in enumerate(rows.blocks)
        ]
        _write(y.at[:, 0:1], _row_sum(products) + params[2].b[0])
        return
    total = jnp.broadcast_to(_read(params[2].b, (rows.fan_out,))[None, :], y.shape)
    for i, at in enumerate(rows.blocks):
        w3 = _read(params[2].w.at[at, :], (None, rows.fan_out))
        total += rows.dot(rows.second_outputs(i), w3)
    _write(y, total, (None, rows.fan_out))


def _params_gradient_kernel(
    params: Any,
    x: Any,
    dy: Any,
    grad: Any,
    h1: Any,
    dz2: Any,
    *,
    sizes: tuple[int, int],
    options: Options,
):
    rows = _Rows(params, x, sizes, options)
    _write(h1, rows.h1)
    dy_rows = _read(dy, (None, rows.fan_out))
    _write(grad[2].b, dy_rows.sum(axis=0), (rows.fan_out,))
    for i, at in enumerate(rows.blocks):
        dw3 = rows.dot(rows.second_outputs(i), dy_rows, contract=(0, 0))
        _write(grad[2].w.at[at, :], dw3, (None, rows.fan_out))
    second = rows.second_backward(dy, grad[1])
    for at, block in zip(rows.blocks, second, strict=True):
        _write(dz2.at[:, at], block)
        _write(grad[1].b.at[at], rows.column_sum(block))
    for at, block in zip(rows.blocks, rows.first_backward(second, grad[0]), strict=True):
        _write(grad[0].b.at[at], rows.column_sum(block))
        dw1 = rows.dot(_read(x, (None, rows.fan_in)), block, contract=(0, 0))
        _write(grad[0].w.at[:, at], dw1, (rows.fan_in, None))


def _input_gradient_kernel(
    params: Any, x: Any, dy: Any, dx: Any, *, sizes: tuple[int, int], options: Options
):
    rows = _Rows(params, x, sizes, options)
    total = jnp.zeros(dx.shape, jnp.float32)
    for at, block in zip(rows.blocks, rows.first_backward(rows.second_backward(dy)), strict=True):
        w1 = _read(params[0].w.at[:, at], (rows.fan_in, None))
        total += rows.dot(block, w1, contract=(1, 1))
    _write(dx, total, (None, rows.fan_in))


class _Rows:
    """One program's share: a block of rows, all layers of one network."""

    def __init__(self, params: Any, x: Any, sizes: tuple[int, int], options: Options) -> None:
        self.params, self.x, self.options = params, x, options
        self.fan_in, self.fan_out = sizes
        width = params[1].b.shape[0]
        size = min(options.block_columns, width)
        self.blocks = [slice(start, start + size) for start in range(0, width, size)]
        everything = slice(None)
        z1 = self._first_affine(everything)
        self._first_moments = _moments(params[0], [z1])
        units = _normalise(z1, self._first_moments)
        self.h1 = _relu(_scale(params[0], units, everything)).astype(_dtype(options))
        z2 = [self.dot(self.h1, params[1].w[:, at]) + params[1].b[at][None, :] for at in self.blocks]
        self._second_moments = _moments(params[1], z2)
        self._second_units = [_normalise(z, self._second_moments) for z in z2]

    def second_outputs(self, i: int) -> jax.Array:
        return _relu(_scale(self.params[1], self._second_units[i], self.blocks[i]))

    def second_backward(self, dy: Any, grad: Any = None) -> list[jax.Array]:
        def dh2(i: int) -> jax.Array:
            w3 = self.params[2].w
            if self.fan_out == 1:
                return dy[:, 0][:, None] * w3[self.blocks[i], 0][None, :]
            right = _read(w3.at[self.blocks[i], :], (None, self.fan_out))
            return self.dot(_read(dy, (None, self.fan_out)), right, contract=(1, 1))

        units = self._second_units.__getitem__
        return self._hidden_backward(self.params[1], units, self._second_moments, dh2, grad)

    def first_backward(self, dz2: Sequence[jax.Array], grad: Any = None) -> list[jax.Array]:
        dh1 = []
        for rows in self.blocks:
            tiles = [self.params[1].w[rows, columns] for columns in self.blocks]
            terms = [self.dot(dz, w2, (1, 1)) for dz, w2 in zip(dz2, tiles, strict=True)]
            dh1.append(functools.reduce(jnp.add, terms))

        def units(i: int) -> jax.Array:
            return _normalise(self._first_affine(self.blocks[i]), self._first_moments)

        return self._hidden_backward(
            self.params[0], units, self._first_moments, dh1.__getitem__, grad
        )

    def column_sum(self, block: jax.Array) -> jax.Array:
        # As a product: tensor cores add over rows far faster than threads that must swap values.
        shape = (block.shape[0], _NARROWEST_PRODUCT)
        first = (lax.broadcasted_iota(jnp.int32, shape, 1) == 0).astype(jnp.float32)
        return self.dot(block, first, contract=(0, 0)).sum(axis=1)

    def dot(self, a: jax.Array, b: jax.Array, contract: tuple[int, int] = (1, 0)) -> jax.Array:
        dtype = _dtype(self.options)
        return lax.dot_general(
            a.astype(dtype),
            b.astype(dtype),
            (((contract[0],), (contract[1],)), ((), ())),
            precision=lax.Precision.DEFAULT,
            preferred_element_type=jnp.float32,
        )

    def _first_affine(self, at: slice) -> jax.Array:
        layer = self.params[0]
        w1 = _read(layer.w.at[:, at], (self.fan_in, None))
        return self.dot(_read(self.x, (None, self.fan_in)), w1) + layer.b[at][None, :]

    def _hidden_backward(
        self,
        layer: Any,
        units: Callable[[int], jax.Array],
        moments: tuple[jax.Array, jax.Array] | None,
        dh: Callable[[int], jax.Array],
        grad: Any,
    ) -> list[jax.Array]:
        """Go back from ReLU to the affine map; write the gradient of the normalisation."""

        def before_relu(i: int) -> tuple[jax.Array, jax.Array]:
            block = units(i)
            positive = _scale(layer, block, self.blocks[i]) > 0.0
            return block, jnp.where(positive, dh(i), 0.0)

        everything, dtype = range(len(self.blocks)), _dtype(self.options)
        if moments is None:
            return [before_relu(i)[1].astype(dtype) for i in everything]
        mean = slope = jnp.zeros_like(moments[1])
        for i, at in enumerate(self.blocks):
            block, da = before_relu(i)
            if grad is not None:
                _write(grad.norm.offset.at[at], self.column_sum(da))
                _write(grad.norm.scale.at[at], self.column_sum(da * block))
            da *= layer.norm.scale[at][None, :]
            mean += _row_sum([da]) / layer.b.shape[0]
            slope += _row_sum([da * block]) / layer.b.shape[0]
        dz = []
        for i, at in enumerate(self.blocks):
            block, da = before_relu(i)
            da *= layer.norm.scale[at][None, :]
            dz.append((moments[1] * (da - mean - block * slope)).astype(dtype))
        return dz


def _moments(layer: Any, z: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array] | None:
    """Mean and one over the standard deviation of each row, (rows, 1), where the layer has a norm."""
    if layer.norm is None:
        return None
    width = layer.b.shape[0]
    mean = _row_sum(z) / width
    variance = _row_sum([jnp.square(block - mean) for block in z]) / width
    return mean, lax.rsqrt(variance + nn._NORM_EPSILON)


def _normalise(z: jax.Array, moments: tuple[jax.Array, jax.Array] | None) -> jax.Array:
    return z if moments is None else (z - moments[0]) * moments[1]


def _scale(layer: Any, units: jax.Array, at: slice) -> jax.Array:
    if layer.norm is None:
        return units
    return units * layer.norm.scale[at][None, :] + layer.norm.offset[at][None, :]


def _relu(z: jax.Array) -> jax.Array:
    return jnp.maximum(z, 0.0)


def _row_sum(blocks: Sequence[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, [block.sum(axis=1, keepdims=True) for block in blocks])


def _read(ref: Any, valid: Sequence[int | None]) -> jax.Array:
    """Load with zeros beyond the valid size of each axis; None is the whole axis."""
    mask = _mask(ref.shape, valid)
    return plgpu.load(ref) if mask is None else plgpu.load(ref, mask=mask, other=0.0)


def _write(ref: Any, value: jax.Array, valid: Sequence[int | None] = ()) -> None:
    plgpu.store(ref, value, mask=_mask(ref.shape, valid))


def _mask(shape: Sequence[int], valid: Sequence[int | None]) -> jax.Array | None:
    inside = [
        lax.broadcasted_iota(jnp.int32, shape, axis) < size
        for axis, size in enumerate(valid)
        if size is not None and size < shape[axis]
    ]
    return functools.reduce(jnp.logical_and, inside) if inside else None
