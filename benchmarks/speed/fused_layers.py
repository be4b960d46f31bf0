"""What would three kernels that take in the products of a layer save on a GPU?

    python benchmarks/speed/fused_layers.py [--seconds 85] [--save]
    python benchmarks/speed/fused_layers.py --interpret    (any machine: small, for the results)
    python benchmarks/speed/fused_layers.py --lower        (any machine: translates to Triton)

1. update: the gradient of a weight matrix goes into Adam tile by tile and never to memory; the same
   kernel moves the target weights and writes the bfloat16 copies for the next products.
2. forward: product, bias, normalisation and ReLU; for a last layer of one unit its product too.
3. backward: product with the transposed weights, then back through the ReLU (and normalisation) of
   the layer below, with partial sums for its bias.

"today" is what `puorl.nn.gpu` and `puorl.nn.mlp` do now, compiled as the trainer compiles it. Every
program goes through the same networks, in several parts if fewer take part in one launch, so that
the caches never hold what comes next. Products take bfloat16 weights in all forms; casts are
counted in the update alone. "other" is, for the update, XLA's kernels with the copies written along
with Adam, and for backward, today's kernel for a layer below whose input is wide.
"""

import argparse
import operator
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from stamped import append

from puorl.nn import gpu, mlp
from puorl.rl import trainer

RESULTS = Path(__file__).parents[1] / "results" / "fused-layers.jsonl"
HALF = jnp.bfloat16
LEARNING_RATE, TAU = 3e-4, 0.005
MOST_ERROR, MOST_ERROR_TODAY = 2e-2, 1e-1
"""Today's form may differ more: it decides on ReLUs by other roundings than the reference."""
NUM_TIMINGS = 5
RESERVE = 6.0
"""Seconds that must be left for another variant to begin."""
LANES = 120
MEMORY_RATE = 4e12
"""Bytes a second, to price normalised units that training would have to keep."""


class Sizes(NamedTuple):
    """Of a run: networks in all and in one launch, rows of a batch, units, inputs, iterations."""

    total: int = 480
    networks: tuple[int, ...] = (240, 120, 480)  # shapes are tried with the first
    rows: int = 256
    width: int = 256
    narrow: int = 32
    repeats: int = 100


SMALL = Sizes(total=4, networks=(2, 4), rows=128, width=128, narrow=32, repeats=3)


class Shape(NamedTuple):
    """How a kernel is cut: tile of the result, length of a piece of the sum, warps, stages."""

    rows: int
    columns: int
    chunk: int
    warps: int
    stages: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}/{self.chunk} w{self.warps} s{self.stages}"

    def within(self, rows: int, columns: int, depth: int) -> "Shape":
        """Cut to the size of the arrays."""
        tile = min(self.rows, rows), min(self.columns, columns), min(self.chunk, depth)
        return Shape(*tile, self.warps, self.stages)


# ------------------------------------------------------------------------- parts of all kernels


def product_of(a: Any, b: Any, axis_a: int, axis_b: int, chunk: int) -> jax.Array:
    """Sum a * b over one axis of each block, (chunk) numbers at a time, in float32."""

    def part(start: Any) -> jax.Array:
        return jax.lax.dot_general(
            piece(a, axis_a, start, chunk),
            piece(b, axis_b, start, chunk),
            (((axis_a,), (axis_b,)), ((), ())),
            preferred_element_type=jnp.float32,
        )

    depth = a.shape[axis_a]
    if depth == chunk:
        return part(0)
    zeros = jnp.zeros((a.shape[1 - axis_a], b.shape[1 - axis_b]), jnp.float32)
    # A loop, because Triton loads ahead in loops only.
    return jax.lax.fori_loop(0, depth // chunk, lambda k, total: total + part(k * chunk), zeros)


def piece(ref: Any, axis: int, start: Any, size: int) -> jax.Array:
    """Read part of a block."""
    return ref[pl.ds(start, size), :] if axis == 0 else ref[:, pl.ds(start, size)]


def call(
    kernel: Any, tiles: tuple[int, int], ins: Any, outs: Any, shape: Shape, interpret: bool, **more
) -> Any:
    """Run a kernel for every tile of every network; ``ins`` and ``outs`` are (array, spec) trees.

    The network is the slowest axis of the grid, so that the programs that share the operands of one
    network run side by side and find them in the cache.
    """
    arrays, in_specs = ins
    out_shapes, out_specs = outs
    networks = jax.tree.leaves(arrays)[0].shape[0]
    return pl.pallas_call(
        kernel,
        grid=(*tiles, networks),
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=out_shapes,
        compiler_params=plgpu.CompilerParams(num_warps=shape.warps, num_stages=shape.stages),
        interpret=interpret,
        **more,
    )(*arrays)


def by_row(rows: int, width: int) -> pl.BlockSpec:
    """A block of rows with all columns."""
    return pl.BlockSpec((None, rows, width), lambda i, j, n: (n, i, 0))


def by_column(rows: int, columns: int) -> pl.BlockSpec:
    """A block of columns with all rows."""
    return pl.BlockSpec((None, rows, columns), lambda i, j, n: (n, 0, j))


def by_tile(shape: Shape) -> pl.BlockSpec:
    """A tile."""
    return pl.BlockSpec((None, shape.rows, shape.columns), lambda i, j, n: (n, i, j))


def one_row(columns: int) -> pl.BlockSpec:
    """The columns of a tile of a (networks, width) array."""
    return pl.BlockSpec((None, columns), lambda i, j, n: (n, j))


def like(x: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def exact_dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiply in float32."""
    return jnp.dot(a.astype(jnp.float32), b.astype(jnp.float32), precision="highest")


def num_bytes(tree: Any) -> int:
    """Bytes of all arrays."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def draw_offsets(key: jax.Array, networks: int, width: int, norm: bool) -> gpu.Offsets:
    """Random bias, scale and offset."""
    drawn = 0.1 * jax.random.normal(key, (3, networks, width), jnp.float32)
    return gpu.Offsets(drawn[0], 1.0 + drawn[1], drawn[2]) if norm else gpu.Offsets(drawn[0])


def poison(tree: Any) -> Any:
    """Arrays of NaN, so that numbers that a kernel does not write are found."""
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), tree)


# ---------------------------------------------------------------------------------- 1. update


class Weights(NamedTuple):
    """A weight matrix, its moments and perhaps its target, (networks, fan_in, width) float32."""

    w: Any
    mean: Any
    square: Any
    target: Any = None


class Copies(NamedTuple):
    """Weights and target as bfloat16."""

    w: Any
    target: Any = None


class Updated(NamedTuple):
    """What an update changes."""

    weights: Weights
    copies: Copies
    num_updates: Any


class Gradients(NamedTuple):
    """Units h (networks, rows, fan_in) and gradients dz (networks, rows, width), bfloat16."""

    h: Any
    dz: Any


@dataclass(frozen=True)
class Update:
    """Gradient of a weight matrix, Adam, soft update and copies."""

    narrow: bool
    target: bool

    @property
    def name(self) -> str:
        """Say which."""
        return f"update {'32' if self.narrow else '256'}{' target' if self.target else ''}"

    def networks(self, sizes: Sizes) -> tuple[int, ...]:
        """Sizes of a launch to time."""
        return sizes.networks

    def shapes(self, sizes: Sizes) -> list[Shape]:
        """Cuts to try."""
        if self.narrow:
            cuts = [(32, 64, 64, 4, 2), (32, 64, 128, 4, 2), (32, 32, 64, 4, 2),
                    (32, 128, 64, 8, 3), (32, 128, 128, 8, 2)]  # fmt: skip
        else:
            cuts = [(64, 64, 64, 4, 2), (64, 64, 256, 4, 1), (64, 64, 64, 8, 3),
                    (128, 64, 64, 8, 2), (64, 128, 64, 8, 2), (64, 32, 64, 4, 3)]  # fmt: skip
        return cut(cuts, self._fan_in(sizes), sizes.width, sizes.rows)

    def _fan_in(self, sizes: Sizes) -> int:
        return sizes.narrow if self.narrow else sizes.width

    def draw(self, key: jax.Array, sizes: Sizes) -> tuple[Updated, Gradients]:
        """Random weights in the middle of training."""
        fan_in = self._fan_in(sizes)
        shape = (sizes.total, fan_in, sizes.width)
        keys = jax.random.split(key, 7)
        normal = [jax.random.normal(each, shape, jnp.float32) for each in keys[:3]]
        w = (2.0 / fan_in) ** 0.5 * normal[0]
        square = 2e-3 * jax.random.uniform(keys[3], shape, jnp.float32, 0.5, 1.5)
        target = w + 0.01 * normal[2] if self.target else None
        weights = Weights(w, 0.03 * normal[1], square, target)
        num_updates = jax.random.randint(keys[4], (sizes.total,), 10, 1000, jnp.int32)
        rows = (sizes.total, sizes.rows)
        h = jax.nn.relu(jax.random.normal(keys[5], (*rows, fan_in), jnp.float32))
        dz = jax.random.normal(keys[6], (*rows, sizes.width), jnp.float32) / sizes.rows
        copies = poison(half(weights))
        return Updated(weights, copies, num_updates), Gradients(h.astype(HALF), dz.astype(HALF))

    def today(self, state: Updated, given: Gradients, interpret: bool) -> Updated:
        """Product, Adam and soft update; the copies by kernels of their own.

        The barrier stands for the end of a step, behind which the trainer casts weights.
        """
        del interpret
        weights, num_updates = jax.vmap(partial(adam_of, gpu._matmul))(state, given)
        weights = jax.lax.optimization_barrier(weights)
        return Updated(weights, half(weights), num_updates)

    def other(self, state: Updated, given: Gradients, interpret: bool) -> Updated:
        """The same, where XLA may write the copies along with Adam."""
        del interpret
        weights, num_updates = jax.vmap(partial(adam_of, gpu._matmul))(state, given)
        return Updated(weights, half(weights), num_updates)

    def exact(self, state: Updated, given: Gradients) -> Updated:
        """The reference."""

        def matmul(a: jax.Array, b: jax.Array, dtype: Any) -> jax.Array:
            return exact_dot(a, b).astype(dtype)

        weights, num_updates = jax.vmap(partial(adam_of, matmul))(state, given)
        return Updated(weights, half(weights), num_updates)

    def fused(self, state: Updated, given: Gradients, shape: Shape, interpret: bool) -> Updated:
        """One kernel; factors that depend on the number of updates come from a small one of XLA."""
        num_updates = state.num_updates + 1
        num = num_updates.astype(jnp.float32)
        beta1, beta2 = mlp.ADAM_BETAS
        factors = jnp.stack([LEARNING_RATE / (1.0 - beta1**num), 1.0 / (1.0 - beta2**num)], axis=1)
        weights, old = state.weights, jax.tree.map(lambda _: by_tile(shape), state.weights)
        rows, fan_in = given.h.shape[1:]
        in_specs = [
            pl.BlockSpec((None, rows, shape.rows), lambda i, j, n: (n, 0, i)),
            by_column(rows, shape.columns),
            pl.BlockSpec((None, 2), lambda i, j, n: (n, 0)),
            old,
        ]
        copies = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, HALF), half(weights))
        outs = (
            (jax.tree.map(like, weights), copies),
            (old, jax.tree.map(lambda _: by_tile(shape), copies)),
        )
        weights, copies = call(
            partial(_update, chunk=shape.chunk),
            (fan_in // shape.rows, given.dz.shape[2] // shape.columns),
            ([*given, factors, weights], in_specs),
            outs,
            shape,
            interpret,
            input_output_aliases={3 + i: i for i in range(len(jax.tree.leaves(weights)))},
        )
        return Updated(weights, copies, num_updates)

    def moved(self, state: Updated, given: Gradients) -> int:
        """Bytes that the kernel must read and write."""
        return num_bytes(given) + 2 * num_bytes(state.weights) + num_bytes(state.copies)


def half(weights: Weights) -> Copies:
    """Make the bfloat16 copies."""
    target = None if weights.target is None else weights.target.astype(HALF)
    return Copies(weights.w.astype(HALF), target)


def adam_of(matmul: Any, state: Updated, given: Gradients) -> tuple[Weights, jax.Array]:
    """Update one network with the library's functions."""
    old = state.weights
    w, moments = mlp.apply_adam(
        old.w,
        matmul(given.h.T, given.dz, jnp.float32),
        mlp.Moments(old.mean, old.square, state.num_updates),
        learning_rate=LEARNING_RATE,
    )
    target: Any = None if old.target is None else mlp.soft_update(old.target, w, TAU)
    return Weights(w, moments.mean, moments.square, target), moments.num_updates


def _update(
    h: Any, dz: Any, factors: Any, old: Weights, new: Weights, copies: Copies, *, chunk: int
) -> None:
    grad = product_of(h, dz, 0, 0, chunk)
    beta1, beta2 = mlp.ADAM_BETAS
    mean = beta1 * old.mean[...] + (1 - beta1) * grad
    square = beta2 * old.square[...] + (1 - beta2) * grad * grad
    scaled = jnp.sqrt(square * factors[1]) + mlp.ADAM_EPSILON
    w = old.w[...] - factors[0] * mean / scaled
    new.mean[...] = mean
    new.square[...] = square
    new.w[...] = w
    copies.w[...] = w.astype(HALF)
    if old.target is not None:
        before = old.target[...]
        target = before + TAU * (w - before)
        new.target[...] = target
        copies.target[...] = target.astype(HALF)


# --------------------------------------------------------------------------------- 2. forward


class Units(NamedTuple):
    """Hidden units h and what went into the activation z, bfloat16; the next layer's one unit y."""

    h: Any = None
    y: Any = None
    z: Any = None


class Layer(NamedTuple):
    """Input x and weights w, bfloat16; offsets; weights of a last layer of one unit."""

    x: Any
    w: Any
    offsets: gpu.Offsets
    last: Any = None


@dataclass(frozen=True)
class Forward:
    """A layer; with ``dot`` also the next, of one unit; with ``kept`` as training needs it."""

    norm: bool
    dot: bool = False
    kept: bool = False

    @property
    def name(self) -> str:
        """Say which."""
        words = ["norm"] * self.norm + ["dot"] * self.dot + ["kept"] * self.kept
        return " ".join(["forward", *words])

    def networks(self, sizes: Sizes) -> tuple[int, ...]:
        """Sizes of a launch to time."""
        return sizes.networks[:1] if self.dot else sizes.networks

    def shapes(self, sizes: Sizes) -> list[Shape]:
        """Cuts to try; a normalised row must be whole."""
        if self.norm or self.dot:
            cuts = [(64, 256, 64, 8, 2), (64, 256, 32, 8, 3), (32, 256, 64, 4, 2),
                    (32, 256, 64, 8, 3)]  # fmt: skip
            cuts += [] if self.dot else [(64, 256, 64, 8, 3), (16, 256, 64, 4, 2)]
        else:
            cuts = [(64, 64, 64, 4, 3), (64, 128, 64, 4, 3), (64, 128, 64, 8, 3),
                    (128, 64, 64, 4, 3), (128, 128, 64, 8, 3), (64, 256, 64, 8, 2)]  # fmt: skip
        return cut(cuts, sizes.rows, sizes.width, sizes.width)

    def draw(self, key: jax.Array, sizes: Sizes) -> tuple[Units, Layer]:
        """Random units and weights."""
        keys = jax.random.split(key, 4)
        x = jax.nn.relu(
            jax.random.normal(keys[0], (sizes.total, sizes.rows, sizes.width), jnp.float32)
        )
        w = jax.random.normal(keys[1], (sizes.total, sizes.width, sizes.width), jnp.float32)
        offsets = draw_offsets(keys[2], sizes.total, sizes.width, self.norm)
        last = jax.random.normal(keys[3], (sizes.total, sizes.width), jnp.float32)
        factor = (2.0 / sizes.width) ** 0.5
        given = Layer(
            x.astype(HALF), (factor * w).astype(HALF), offsets, last if self.dot else None
        )
        return poison(self._out(given)), given

    def _out(self, given: Layer) -> Units:
        units, column = like(given.x), jax.ShapeDtypeStruct(given.x.shape[:2], jnp.float32)
        return Units(
            None if self.dot else units, column if self.dot else None, units if self.kept else None
        )

    def today(self, state: Units, given: Layer, interpret: bool) -> Units:
        """A product, and a kernel behind it."""
        del state

        def one(given: Layer) -> Units:
            z = gpu.product(given.x, given.w, HALF)
            kept = z if self.kept else None
            if self.dot:
                return Units(y=gpu.activate_dot(z, given.offsets, given.last, interpret), z=kept)
            return Units(h=gpu.activate(z, given.offsets, interpret), z=kept)

        return jax.vmap(one)(given)

    other = None

    def exact(self, state: Units, given: Layer) -> Units:
        """The reference."""
        del state

        def one(given: Layer) -> Units:
            z = exact_dot(given.x, given.w)
            h = gpu._relu(gpu._before(z, given.offsets))
            y = (h * given.last).sum(axis=1) if self.dot else None
            return Units(None if self.dot else h, y, z if self.kept else None)

        return jax.vmap(one)(given)

    def fused(self, state: Units, given: Layer, shape: Shape, interpret: bool) -> Units:
        """One kernel."""
        del state
        rows, fan_in = given.x.shape[1:]
        row = one_row(shape.columns)
        in_specs = Layer(
            by_row(shape.rows, fan_in),
            by_column(fan_in, shape.columns),
            jax.tree.map(lambda _: row, given.offsets),
            row if self.dot else None,
        )
        out = self._out(given)
        specs = Units(
            None if out.h is None else by_tile(shape),
            None if out.y is None else pl.BlockSpec((None, shape.rows), lambda i, j, n: (n, i)),
            None if out.z is None else by_tile(shape),
        )
        tiles = rows // shape.rows, given.w.shape[2] // shape.columns
        kernel = partial(_forward, chunk=shape.chunk)
        return call(kernel, tiles, ([given], [in_specs]), ([out], [specs]), shape, interpret)[0]

    def moved(self, state: Units, given: Layer) -> int:
        """Bytes that the kernel must read and write."""
        return num_bytes(given) + num_bytes(state)


def _forward(given: Layer, out: Units, *, chunk: int) -> None:
    z = product_of(given.x, given.w, 1, 0, chunk)
    h = gpu._relu(gpu._before(z, given.offsets))
    if out.z is not None:
        gpu._write(out.z, z)
    if out.h is not None:
        gpu._write(out.h, h)
    if out.y is not None:
        out.y[...] = (h * given.last[...][None, :]).sum(axis=1)


# -------------------------------------------------------------------------------- 3. backward


class Below(NamedTuple):
    """Gradients of the layer below: of its product, and sums for bias, scale and offset."""

    dz: Any
    sums: gpu.Offsets


class Above(NamedTuple):
    """Gradient dz of a layer and its weights w; units h and z, input x and weights below."""

    dz: Any
    w: Any
    h: Any
    z: Any
    x: Any
    w_below: Any
    offsets: gpu.Offsets


@dataclass(frozen=True)
class Backward:
    """From the gradient of a layer to that of the layer below."""

    norm: bool

    @property
    def name(self) -> str:
        """Say which."""
        return "backward norm" if self.norm else "backward"

    def networks(self, sizes: Sizes) -> tuple[int, ...]:
        """Sizes of a launch to time."""
        return sizes.networks

    def shapes(self, sizes: Sizes) -> list[Shape]:
        """Cuts to try; a normalised row must be whole."""
        if self.norm:
            cuts = [(64, 256, 64, 8, 2), (64, 256, 32, 8, 3), (32, 256, 64, 8, 2),
                    (32, 256, 64, 8, 3), (16, 256, 64, 4, 2), (16, 256, 64, 8, 3)]  # fmt: skip
        else:
            cuts = [(64, 64, 64, 4, 3), (64, 128, 64, 4, 3), (64, 128, 64, 8, 3),
                    (128, 64, 64, 4, 3), (128, 128, 64, 8, 3), (64, 256, 64, 8, 2)]  # fmt: skip
        return cut(cuts, sizes.rows, sizes.width, sizes.width)

    def draw(self, key: jax.Array, sizes: Sizes) -> tuple[Below, Above]:
        """Random gradients and weights, and the units below for a random narrow input."""
        keys = jax.random.split(key, 5)
        units = (sizes.total, sizes.rows, sizes.width)
        dz = jax.random.normal(keys[0], units, jnp.float32) / sizes.rows
        w = jax.random.normal(keys[1], (sizes.total, sizes.width, sizes.width), jnp.float32)
        x = jax.random.normal(keys[2], (sizes.total, sizes.rows, sizes.narrow), jnp.float32)
        below = jax.random.normal(keys[3], (sizes.total, sizes.narrow, sizes.width), jnp.float32)
        below = (2.0 / sizes.narrow) ** 0.5 * below
        offsets = draw_offsets(keys[4], sizes.total, sizes.width, self.norm)
        z = jnp.einsum("nij,njk->nik", x, below, precision="highest").astype(HALF)
        h = jax.vmap(lambda z, o: gpu._relu(gpu._before(z.astype(jnp.float32), o)))(z, offsets)
        factor = (2.0 / sizes.width) ** 0.5
        given = Above(
            dz.astype(HALF), (factor * w).astype(HALF), h.astype(HALF), z, x, below, offsets
        )
        return poison(Below(like(given.dz), jax.tree.map(like, offsets))), given

    def today(self, state: Below, given: Above, interpret: bool) -> Below:
        """A product, and the kernel of a narrow first layer, which computes z again."""
        del state

        def one(given: Above) -> Below:
            dh, _ = gpu._product_back(HALF, (given.h, given.w), given.dz)
            kernel = partial(gpu._backward_product, fan_in=given.x.shape[1])
            out = (gpu._like(dh), gpu._partials(dh, given.offsets))
            whole = [given.w_below, given.offsets]
            dz, sums = gpu._call(kernel, [given.x, dh], whole, out, interpret)
            return Below(dz, gpu._totals(sums))

        return jax.vmap(one)(given)

    def other(self, state: Below, given: Above, interpret: bool) -> Below:
        """A product, and the kernel of a wide layer, which reads z."""
        del state

        def one(given: Above) -> Below:
            dh, _ = gpu._product_back(HALF, (given.h, given.w), given.dz)
            return Below(*gpu._activate_backward(interpret, (given.z, given.offsets), dh))

        return jax.vmap(one)(given)

    def exact(self, state: Below, given: Above) -> Below:
        """The reference, by JAX's derivative of the normalisation."""
        del state

        def one(given: Above) -> Below:
            dh = exact_dot(given.dz, given.w.T)
            if not self.norm:
                dz = jnp.where(given.h > 0, dh, 0.0)
                return Below(dz, gpu.Offsets(dz.sum(axis=0)))
            z = given.z.astype(jnp.float32)
            back = jax.vjp(lambda z, o: gpu._relu(gpu._before(z, o)), z, given.offsets)[1]
            return Below(*back(dh))

        return jax.vmap(one)(given)

    def fused(self, state: Below, given: Above, shape: Shape, interpret: bool) -> Below:
        """One kernel, and the sum of its partial sums."""
        del state
        rows, width = given.dz.shape[1:]
        networks, fan_in = given.w.shape[:2]
        blocks = rows // shape.rows
        ins = [given.dz, given.w, given.z if self.norm else given.h]
        in_specs: list[Any] = [
            by_row(shape.rows, width),
            pl.BlockSpec((None, shape.columns, width), lambda i, j, n: (n, j, 0)),
            by_tile(shape),
        ]
        if self.norm:
            ins.append(given.offsets)
            in_specs.append(jax.tree.map(lambda _: one_row(shape.columns), given.offsets))
        partials = jax.tree.map(
            lambda _: jax.ShapeDtypeStruct((networks, blocks, fan_in), jnp.float32), given.offsets
        )
        sum_spec = pl.BlockSpec((None, None, shape.columns), lambda i, j, n: (n, i, j))
        out = like(given.h), partials
        specs = by_tile(shape), jax.tree.map(lambda _: sum_spec, partials)
        kernel = partial(_backward_norm if self.norm else _backward, chunk=shape.chunk)
        tiles = blocks, fan_in // shape.columns
        dz, sums = call(kernel, tiles, (ins, in_specs), (out, specs), shape, interpret)
        return Below(dz, jax.tree.map(lambda each: each.sum(axis=1), sums))

    def moved(self, state: Below, given: Above) -> int:
        """Bytes that the kernel must read and write; of the units below, h or z."""
        read = given.dz, given.w, given.h, given.offsets if self.norm else ()
        return num_bytes(read) + num_bytes(state)


def _backward(dz: Any, w: Any, h: Any, out: Any, sums: gpu.Offsets, *, chunk: int) -> None:
    dh = product_of(dz, w, 1, 1, chunk)
    units = gpu._Before(gpu._floats(h))
    gpu._write_gradients(units, dh, gpu.Offsets(None), out, sums)


def _backward_norm(
    dz: Any, w: Any, z: Any, offsets: gpu.Offsets, out: Any, sums: gpu.Offsets, *, chunk: int
) -> None:
    dh = product_of(dz, w, 1, 1, chunk)
    before = gpu._before(gpu._floats(z), offsets)
    gpu._write_gradients(before, dh, offsets, out, sums)


# ------------------------------------------------------------------------------------- measure


def cut(cuts: Sequence[tuple[int, ...]], rows: int, columns: int, depth: int) -> list[Shape]:
    """Shapes cut to the arrays, each once.

    Tiles of 128 x 256, or 128 x 128 with four warps, are not among them: Triton spills registers.
    """
    return list(dict.fromkeys(Shape(*each).within(rows, columns, depth) for each in cuts))


Variant = Update | Forward | Backward

VARIANTS: tuple[Variant, ...] = (
    Update(narrow=False, target=True),
    Forward(norm=False),
    Backward(norm=False),
    Update(narrow=False, target=False),
    Forward(norm=True),
    Backward(norm=True),
    Update(narrow=True, target=True),
    Update(narrow=True, target=False),
    Forward(norm=False, dot=True, kept=True),
    Forward(norm=False, dot=True),
    Forward(norm=True, dot=True, kept=True),
    Forward(norm=True, dot=True),
)
"""The important ones first: the time may be over before the last."""


class Measured(NamedTuple):
    """Microseconds of one launch, and the relative error of its worst result."""

    us: float
    error: float


class Bench:
    """A variant with its data and reference."""

    def __init__(self, variant: Variant, sizes: Sizes, interpret: bool) -> None:
        self.variant, self.sizes, self.interpret = variant, sizes, interpret
        self.options = None if interpret else trainer._GPU_OPTIONS
        # This generator compiles in a fraction of the default one's time.
        key = jax.random.key(VARIANTS.index(variant), impl="rbg")
        draw = jax.jit(partial(variant.draw, sizes=sizes), compiler_options=self.options)
        self.state, self.given = draw(key)
        run = jax.jit(repeated(variant.exact, sizes.repeats), compiler_options=self.options)
        self.reference = run((self.state,), (self.given,))[0]

    def compile(self, step: Any, networks: int) -> Any:
        """Compile the loop of a step over all networks, so many at a time."""
        run = jax.jit(
            repeated(step, self.sizes.repeats), donate_argnums=0, compiler_options=self.options
        )
        args = jax.eval_shape(lambda *trees: [self._sets(each, networks) for each in trees],
                              self.state, self.given)  # fmt: skip
        return run.lower(*args).compile()

    def measure(self, program: Any, networks: int) -> Measured:
        """Check and time a program."""
        old = self._sets(self.state, networks)
        given = self._sets(self.given, networks)
        # Copied, since a slice of everything is the array itself, and the program takes its place.
        states = program(jax.tree.map(jnp.copy, old), given)
        exact = self._sets(self.reference, networks)
        errors = [float(worst_error(*each)) for each in zip(states, exact, old, strict=True)]
        seconds = []
        for _ in range(1 if self.interpret else NUM_TIMINGS):
            begin = time.perf_counter()
            states = jax.block_until_ready(program(states, given))
            seconds.append(time.perf_counter() - begin)
        launches = self.sizes.repeats * len(states)
        error = max(errors, key=lambda e: e if e == e else float("inf"))
        return Measured(1e6 * statistics.median(seconds) / launches, error)

    def moved(self, networks: int) -> float:
        """Bytes that a launch must move."""
        return self.variant.moved(self.state, self.given) * networks / self.sizes.total

    def _sets(self, tree: Any, networks: int) -> tuple[Any, ...]:
        starts = range(0, self.sizes.total, networks)
        parts = [slice(start, start + networks) for start in starts]
        return tuple(jax.tree.map(operator.itemgetter(part), tree) for part in parts)


def repeated(step: Any, repeats: int) -> Any:
    """Make f(states, inputs) that applies ``step`` to each pair in turn, many times over.

    The barriers keep XLA from moving a step out of the loop, and two steps from being merged.
    """

    def body(_: Any, carry: Any) -> Any:
        states, inputs = carry
        last, done = states[-1], []
        for state, given in zip(states, inputs, strict=True):
            state, given, _ = jax.lax.optimization_barrier((state, given, last))
            last = step(state, given)
            # The reference rounds here alone.
            last = jax.tree.map(lambda new, was: new.astype(was.dtype), last, state)
            done.append(last)
        return tuple(done), inputs

    def run(states: Any, inputs: Any) -> Any:
        return jax.lax.fori_loop(0, repeats, body, (states, inputs))[0]

    return run


@jax.jit
def worst_error(found: Any, exact: Any, old: Any) -> jax.Array:
    """Return the largest relative error of an array, and of what an update moved it by."""

    def error(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        return jnp.sqrt(jnp.square(a - b).sum() / jnp.square(b).sum())

    errors = jax.tree.leaves(jax.tree.map(error, found, exact))
    if isinstance(found, Updated):
        pairs = zip(found.weights, exact.weights, old.weights, strict=True)
        errors += [error(a - c, b - c) for a, b, c in pairs if a is not None]
    return jnp.stack(errors).max()


def bench_variant(
    variant: Variant, sizes: Sizes, interpret: bool, left: Callable[[], float]
) -> list[dict[str, Any]]:
    """Try the shapes with the first size, and the best of them with the others."""
    bench = Bench(variant, sizes, interpret)
    rows, best = [], None
    for networks in variant.networks(sizes):
        if rows and left() < RESERVE:
            print(f"{variant.name}: no time left for {networks} networks")
            break
        steps: dict[Any, Any] = {"today": partial(variant.today, interpret=interpret)}
        if variant.other is not None:
            steps["other"] = partial(variant.other, interpret=interpret)
        for shape in variant.shapes(sizes) if best is None else [best]:
            steps[shape] = partial(variant.fused, shape=shape, interpret=interpret)
        found = measure_all(bench, steps, networks, left)
        times = {key: each for key, each in found.items() if isinstance(key, Shape)}
        right = {key: each for key, each in times.items() if each.error <= MOST_ERROR}
        if not right or "today" not in found:
            print(f"{variant.name}, {networks} networks: nothing to compare")
            break
        best = min(right, key=lambda key: right[key].us)
        fused, today, moved = right[best], found["today"], bench.moved(networks)
        rows.append(
            {
                "kernel": variant.name,
                "networks": networks,
                "today_us": today.us,
                "other_us": found["other"].us if "other" in found else None,
                "fused_us": fused.us,
                "ratio": today.us / fused.us,
                "min_bytes": moved,
                "gb_per_s": moved / fused.us / 1e3,
                "shape": best._asdict(),
                "error": fused.error,
                "today_error": today.error,
                "shapes_us": {str(key): each.us for key, each in times.items()},
            }
        )
    return rows


FAILED: list[str] = []
"""Programs that did not compile or run, or whose results are wrong."""


def measure_all(
    bench: Bench, steps: dict[Any, Any], networks: int, left: Callable[[], float]
) -> dict[Any, Measured]:
    """Compile side by side, then measure one by one; name and skip what fails."""

    def compiled(step: Any) -> Any:
        return bench.compile(step, networks) if left() > 0 else None

    found = {}
    workers = 1 if bench.interpret else min(8, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers) as pool:
        waiting = {key: pool.submit(compiled, step) for key, step in steps.items()}
    # The pool is empty here: nothing compiles while programs are timed.
    for key, future in waiting.items():
        label = f"{bench.variant.name}, {networks} networks, {key}"
        try:
            program = future.result()
            if program is None:
                print(f"{label}: no time left")
                continue
            found[key] = bench.measure(program, networks)
        except Exception as error:  # of any kind: a shape that does not fit must not end the run
            FAILED.append(label)
            print(f"{label}: FAILED, {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        limit = MOST_ERROR if isinstance(key, Shape) else MOST_ERROR_TODAY
        wrong = not found[key].error <= limit  # NaN is wrong too
        if wrong:
            FAILED.append(label)
        copies = program.as_text().count(" copy(")
        print(f"{label}: {found[key].us:.1f} us, error {found[key].error:.1e}"
              f"{f', {copies} copies' if copies else ''}{'  WRONG' if wrong else ''}",
              flush=True)  # fmt: skip
    return found


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"\n{'kernel':<24}{'networks':>9}{'today us':>10}{'other us':>10}{'fused us':>10}"
          f"{'ratio':>7}{'least MB':>10}{'GB/s':>7}  {'shape':<20}{'error':>8}")  # fmt: skip
    for row in rows:
        other = "" if row["other_us"] is None else f"{row['other_us']:.1f}"
        print(f"{row['kernel']:<24}{row['networks']:>9}{row['today_us']:>10.1f}{other:>10}"
              f"{row['fused_us']:>10.1f}{row['ratio']:>7.2f}{row['min_bytes'] / 1e6:>10.1f}"
              f"{row['gb_per_s']:>7.0f}  {Shape(**row['shape'])!s:<20}"
              f"{row['error']:>8.0e}")  # fmt: skip


# What a step does, in networks of 256 rows per lane; only layers of 256 x 256, and updates of the
# first. The saving is the sum over kernels of count * lanes * (today - fused) / networks, from the
# row whose number of networks is nearest to count * lanes, less the time to write z of the first
# layer where it is normalised and trained ("backward norm"), which today is computed again.
#
# IQL: V is trained with norm, and applied to both states of the batch; the policy and two critics
# are trained without; two target critics are applied. Both critics have targets.
# TD3+BC: two critics with norm are trained in each step; in every second one also the actor, with
# gradients through one critic, and all targets move. Target actor and both target critics are
# applied to each batch.
STEPS: dict[str, dict[str, float]] = {
    "IQL": {
        "update 256 target": 2,
        "update 256": 2,
        "update 32 target": 2,
        "update 32": 2,
        "forward": 1,
        "forward dot kept": 2,
        "forward dot": 2,
        "forward norm dot kept": 1,
        "forward norm dot": 2,
        "backward": 3,
        "backward norm": 1,
    },
    "TD3+BC": {
        "update 256 target": 1.5,
        "update 256": 1,
        "update 32 target": 1.5,
        "update 32": 1,
        "forward": 1.5,
        "forward norm dot kept": 2.5,
        "forward norm dot": 2,
        "backward": 0.5,
        "backward norm": 2.5,
    },
}


def predict(rows: Sequence[dict[str, Any]], sizes: Sizes) -> str:
    """Say what a step of each learner would save."""
    parts = []
    for learner, counts in STEPS.items():
        saved = {"update": 0.0, "forward": 0.0, "backward": 0.0}
        by_xla, missing = 0.0, []
        for name, count in counts.items():
            networks = count * LANES
            measured = [row for row in rows if row["kernel"] == name]
            if not measured:
                missing.append(name)
                continue
            row = min(measured, key=lambda row: abs(row["networks"] - networks))
            part = networks / row["networks"]
            saved[name.split()[0]] += part * (row["today_us"] - row["fused_us"])
            if name.startswith("update"):
                by_xla += part * (row["today_us"] - (row["other_us"] or row["today_us"]))
            if name == "backward norm":
                kept = networks * sizes.rows * sizes.width * HALF.dtype.itemsize
                saved["backward"] -= 1e6 * kept / MEMORY_RATE
        each = ", ".join(f"{name} {us:.0f}" for name, us in saved.items())
        parts.append(f"{learner} {sum(saved.values()):.0f} us ({each}; XLA alone with copies "
                     f"carried along {by_xla:.0f}"
                     f"{'; not measured: ' + ', '.join(missing) if missing else ''})")  # fmt: skip
    return f"predicted saving of a step at {LANES} lanes: " + "; ".join(parts)


def lower(sizes: Sizes) -> int:
    """Translate every kernel and shape to Triton, without a GPU; return how many fail."""
    failed = 0
    for variant in VARIANTS:
        key = jax.random.key(0)
        args = jax.eval_shape(partial(variant.draw, sizes=sizes), key)
        for shape in variant.shapes(sizes):
            step = jax.jit(partial(variant.fused, shape=shape, interpret=False))
            try:
                step.trace(*args).lower(lowering_platforms=("cuda",))
                told = "lowered"
            except Exception as error:  # of any kind: all shapes are tried
                failed += 1
                told = f"FAILED, {type(error).__name__}: {str(error)[:300]}"
            print(f"{variant.name}, {shape}: {told}", flush=True)
    return failed


def main() -> None:
    """Measure, print, and append rows to the results if asked to."""
    begin = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=85.0, help="begin nothing after these")
    parser.add_argument("--kernels", nargs="+", help="only variants that begin like this")
    parser.add_argument("--interpret", action="store_true", help="check results on any machine")
    parser.add_argument("--lower", action="store_true", help="only translate the kernels to Triton")
    parser.add_argument("--save", action="store_true", help="append to the results")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.lower:
        raise SystemExit(f"{failed} failed" if (failed := lower(Sizes())) else None)
    if not args.interpret and jax.default_backend() != "gpu":
        parser.error("needs a GPU; try --interpret or --lower")
    sizes = SMALL if args.interpret else Sizes()

    def left() -> float:
        return float("inf") if args.interpret else args.seconds - (time.perf_counter() - begin)

    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}", flush=True)
    rows: list[dict[str, Any]] = []
    for variant in VARIANTS:
        if args.kernels and not variant.name.startswith(tuple(args.kernels)):
            continue
        if left() < RESERVE:
            print(f"{variant.name}: no time left")
            continue
        try:
            rows += bench_variant(variant, sizes, args.interpret, left)
        except Exception as error:  # of any kind: what was measured must be shown
            FAILED.append(variant.name)
            print(f"{variant.name}: FAILED, {type(error).__name__}: {str(error)[:300]}", flush=True)
    if FAILED:
        print(f"\nFAILED OR WRONG: {'; '.join(FAILED)}")
    print(f"{time.perf_counter() - begin:.0f} s")
    if not args.interpret:  # whose times mean nothing
        show(rows)
        print(f"\n{predict(rows, sizes)}")
    if args.save and not args.interpret:
        for row in rows:
            append(args.out, row | {"device": device, "jax": jax.__version__})
    if FAILED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
