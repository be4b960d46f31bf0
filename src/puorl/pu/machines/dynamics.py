"""A model of how machines move, with a few numbers z for each unit, learnt without labels.

Four views of a unit, each with its own model and its own z:

- ``dynamics``: p(s after h steps | s, the actions up to then, z), for several horizons h. All are
  learnt together, which makes z richer; z is then estimated from each horizon apart. What acts
  within one step is given, so a driver's habits explain nothing there. Several steps show slow
  parts, which noise hides in one, but drivers too: later horizons count where all drive alike.
- ``relations``: p(one sensor | the other sensors, a, z). A pump's pressure at a speed and a flow is
  a property of the pump that one step does not show, since the state tells it already. A gait makes
  such relations too: this view is for units that were recorded several times.
- ``slopes``: as ``dynamics`` over one step, by linear models (`puorl.pu.machines.slopes`).
- ``behaviour``: p(a | s, the action before, z), how a unit is driven. It decides nothing: it tells
  drivers from machines.

Predictions have a location and a scale for each output (Student t, 4 degrees of freedom). Noise is
added to z in training, so that near z must mean the same and every number of z must be worth its
place. Seeds and sizes of z are lanes of one compiled program.
"""

from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.progress import Advance
from puorl.core.run_folder import Checkpoint
from puorl.nn import mlp
from puorl.pu.config import MachineConfig
from puorl.pu.machines import slopes
from puorl.pu.machines.sequences import Sequences

View = Literal["dynamics", "relations", "behaviour", "slopes"]
_DEGREES = 4.0
_INFORMATION = (_DEGREES + 1.0) / (_DEGREES + 3.0)
"""Fisher information of a Student t's location, in units of 1 / scale²."""
_SCALE_INFORMATION = 2.0 * _DEGREES / (_DEGREES + 3.0)
"""The same of its log scale."""
_LOG_SCALE = 5.0
_CHUNK = 500
_BLOCK = 20
"""Rows that are held out together: neighbours are alike."""


class Batch(NamedTuple):
    """Rows of a view: what is given, what is predicted, and which of it is known."""

    given: jax.Array
    ahead: jax.Array
    """(n, horizons - 1, m). Later actions, for ``dynamics``; else (n, 0, m)."""
    outcome: jax.Array
    weight: jax.Array
    unit: jax.Array

    @property
    def num_horizons(self) -> int:
        """Horizons of the outcomes."""
        return self.ahead.shape[1] + 1


class TrainState(NamedTuple):
    """All lanes in training."""

    params: mlp.Params
    z: jax.Array
    """(lanes, units, size) float32."""
    moments: mlp.Moments
    z_moments: mlp.Moments
    key: jax.Array


class UnitLatents(NamedTuple):
    """Estimated z of groups of rows by one lane."""

    z: np.ndarray
    """(groups, size) float64."""
    information: np.ndarray
    """(groups, size, size) float64. Fisher information of all rows of a group, before the last step
    of z."""
    num_rows: np.ndarray
    """(groups,) int64."""


def make_batch(view: View, rows: Sequences, unit: np.ndarray) -> Batch:
    """Select what a view reads and predicts."""
    ahead = rows.ahead[:, :0]
    if view == "dynamics":
        ahead = rows.ahead
        parts = rows.given, rows.outcome, rows.weight
    elif view == "relations":
        parts = rows.action, rows.state, np.ones_like(rows.state)
    elif view == "slopes":
        num = rows.state.shape[1]
        parts = rows.given, rows.outcome[:, :num], rows.weight[:, :num]
    else:
        seen = np.hstack([rows.given[:, : rows.state.shape[1]], rows.before])
        parts = seen, rows.action, np.ones_like(rows.action)
    given, outcome, weight = (jnp.asarray(part) for part in parts)
    return Batch(given, jnp.asarray(ahead), outcome, weight, jnp.asarray(unit, jnp.int32))


def init_state(
    view: View, batch: Batch, num_units: int, config: MachineConfig, seed: int
) -> TrainState:
    """Draw networks and latents of all lanes."""
    num_outputs, size = _num_outputs(batch), max(config.latent_sizes)
    num_inputs = _part_inputs(view, jax.tree.map(lambda leaf: leaf[:1], batch), 0).shape[1] + size
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), get_args(View).index(view))
    net_key, z_key, key = jax.random.split(key, 3)
    sizes = (num_inputs, *config.hidden, 2 * num_outputs)
    keys = jax.random.split(net_key, len(config.lanes))
    params = jax.vmap(lambda k: mlp.init_mlp(k, sizes, init="lecun"))(keys)
    z = 0.1 * jax.random.normal(z_key, (len(config.lanes), num_units, size), jnp.float32)
    return TrainState(params, z, mlp.init_adam(params), mlp.init_adam(z), key)


def train(
    view: View,
    batch: Batch,
    num_units: int,
    config: MachineConfig,
    *,
    seed: int,
    checkpoint: Checkpoint,
    advance: Advance,
) -> TrainState:
    """Train all lanes, or go on from a checkpoint; the result is the same."""
    state, first = checkpoint.restore(view, init_state(view, batch, num_units, config, seed))
    if first:
        advance(first, earlier=True)
    while first < config.num_steps:
        length = min(_CHUNK, config.num_steps - first)
        state = _run(view, state, jnp.int32(first), batch, config, length)
        first += length
        advance(length)
        checkpoint.store(view, state, first, now=first == config.num_steps)
    return state


@partial(jax.jit, static_argnames=("view", "config", "length"))
def _run(
    view: View,
    state: TrainState,
    first: jax.Array,
    batch: Batch,
    config: MachineConfig,
    length: int,
) -> TrainState:
    used, waits = size_mask(config), round(config.latent_start * config.num_steps)

    def loss(
        params: mlp.Params, z: jax.Array, used: jax.Array, rows: Batch, key: jax.Array
    ) -> jax.Array:
        noise_key, part_key = jax.random.split(key)
        own = z[rows.unit] * used[None]
        noisy = own + config.noise * used[None] * jax.random.normal(
            noise_key, own.shape, jnp.float32
        )
        # One part of each row, at random, stands for all.
        num_parts = _num_parts(view, rows)
        part = jax.random.randint(part_key, (len(own),), 0, num_parts)
        nll = num_parts * _part_nll(view, params, rows, noisy, part)
        return nll.mean() + config.penalty * jnp.square(own).sum(axis=1).mean()

    gradient = jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=(0, 0, 0, None, 0))

    def step(carry: Any, number: jax.Array) -> tuple[Any, None]:
        params, z, moments, z_moments = carry
        row_key, lane_key = jax.random.split(jax.random.fold_in(state.key, number))
        picks = jax.random.randint(row_key, (config.batch_size,), 0, len(batch.unit))
        rows = jax.tree.map(lambda leaf: leaf[picks], batch)
        keys = jax.random.split(lane_key, len(config.lanes))
        grad, z_grad = gradient(params, z, used, rows, keys)
        pace = 0.5 * (1.0 + jnp.cos(jnp.pi * number.astype(jnp.float32) / config.num_steps))
        rates = config.learning_rate * pace, config.latent_learning_rate * pace
        if waits:
            rates = rates[0], jnp.where(number < waits, 0.0, rates[1])
        params, moments = mlp.apply_adam(params, grad, moments, learning_rate=rates[0])
        z, z_moments = mlp.apply_adam(z, z_grad, z_moments, learning_rate=rates[1])
        return (params, z, moments, z_moments), None

    numbers = first + jnp.arange(length, dtype=jnp.int32)
    (params, z, moments, z_moments), _ = jax.lax.scan(step, tuple(state[:4]), numbers)
    return TrainState(params, z, moments, z_moments, state.key)


def size_mask(config: MachineConfig) -> jax.Array:
    """(lanes, size) float32. 1 for the numbers of z that a lane uses."""
    return jnp.asarray(
        [[float(k < size) for k in range(max(config.latent_sizes))] for size in config.lanes],
        jnp.float32,
    )


def predict(
    params: mlp.Params, given: jax.Array, z: jax.Array, *, forward_mode: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Return location and log scale of every output; products of `mlp` have no forward mode."""
    x = jnp.concatenate([given, z], axis=1)
    if forward_mode:
        for layer in params[:-1]:
            x = jax.nn.silu(x @ layer.w + layer.b[None])
        made = x @ params[-1].w + params[-1].b[None]
    else:
        made = mlp.apply_mlp(params, x, activation=jax.nn.silu)
    location, log_scale = jnp.split(made, 2, axis=1)
    return location, _LOG_SCALE * jnp.tanh(log_scale / _LOG_SCALE)


def output_nll(
    location: jax.Array, log_scale: jax.Array, outcome: jax.Array, weight: jax.Array
) -> jax.Array:
    """(n, outputs) float32. Negative log-likelihood of a Student t, up to a constant."""
    square = jnp.square((outcome - location) * jnp.exp(-log_scale))
    nll = log_scale + 0.5 * (_DEGREES + 1.0) * jnp.log1p(square / _DEGREES)
    return weight * nll


def _num_outputs(rows: Batch) -> int:
    return rows.outcome.shape[1] // rows.num_horizons


def _num_parts(view: View, rows: Batch) -> int:
    """What a row is predicted in: sensors one by one, or horizons."""
    return rows.outcome.shape[1] if view == "relations" else rows.num_horizons


def _part_inputs(view: View, rows: Batch, part: jax.Array | int) -> jax.Array:
    """(n, f) float32. What may be seen where a part is predicted: other sensors, past actions."""
    part = jnp.broadcast_to(jnp.asarray(part, jnp.int32), len(rows.unit))
    if view == "relations":
        mask = jax.nn.one_hot(part, rows.outcome.shape[1], dtype=jnp.float32)
        return jnp.concatenate([rows.outcome * (1.0 - mask), mask, rows.given], axis=1)
    if rows.num_horizons == 1:
        return rows.given
    until = jnp.arange(rows.num_horizons - 1)[None] < part[:, None]
    ahead = jnp.where(until[..., None], rows.ahead, 0.0).reshape(len(rows.unit), -1)
    horizon = jax.nn.one_hot(part, rows.num_horizons, dtype=jnp.float32)
    return jnp.concatenate([rows.given, ahead, horizon], axis=1)


def _part_nll(
    view: View, params: mlp.Params, rows: Batch, z: jax.Array, part: jax.Array
) -> jax.Array:
    """(n,) float32. Negative log-likelihood of one part of each row."""
    location, log_scale = predict(params, _part_inputs(view, rows, part), z)
    if view == "relations":
        mask = jax.nn.one_hot(part, rows.outcome.shape[1], dtype=jnp.float32)
        return (mask * output_nll(location, log_scale, rows.outcome, rows.weight)).sum(axis=1)
    pick = part[:, None, None]
    outcome, weight = (
        jnp.take_along_axis(x.reshape(len(part), rows.num_horizons, -1), pick, axis=1)[:, 0]
        for x in (rows.outcome, rows.weight)
    )
    return output_nll(location, log_scale, outcome, weight).sum(axis=1)


def all_outputs(
    view: View, params: mlp.Params, rows: Batch, z: jax.Array, horizon: jax.Array | int = 0
) -> tuple[jax.Array, jax.Array]:
    """(n, outputs) each. Location and log scale of what z is judged by, as in `_judged`."""
    if view == "slopes":
        return slopes.outputs(params, rows.given, z)
    if view != "relations":
        return predict(params, _part_inputs(view, rows, horizon), z, forward_mode=True)
    sensors = jnp.arange(_num_outputs(rows))
    return jax.vmap(lambda sensor: _relation(params, rows, z, sensor), out_axes=1)(sensors)


def _relation(
    params: mlp.Params, rows: Batch, z: jax.Array, sensor: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(n,) each. Location and log scale of one sensor: two columns of the last layer."""
    columns = jnp.stack([sensor, sensor + _num_outputs(rows)])
    last = params[-1]._replace(w=params[-1].w[:, columns], b=params[-1].b[columns])
    inputs = _part_inputs("relations", rows, sensor)
    location, log_scale = predict((*params[:-1], last), inputs, z, forward_mode=True)
    return location[:, 0], log_scale[:, 0]


def _judged(rows: Batch, horizon: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    """(n, outputs) each. Outcomes that z is judged by, and their weights: those of one horizon."""
    size = _num_outputs(rows)
    outcome, weight = (
        jax.lax.dynamic_slice_in_dim(x, horizon * size, size, axis=1)
        for x in (rows.outcome, rows.weight)
    )
    return outcome, weight


def fit_latents(
    view: View,
    params: mlp.Params,
    used: np.ndarray,
    rows: Batch,
    start: np.ndarray,
    *,
    num_iterations: int,
    penalty: float,
    horizon: int = 0,
) -> UnitLatents:
    """Estimate z of groups of rows with the networks held: damped Gauss-Newton steps.

    Args:
        view: Which outputs.
        params: Networks of one lane.
        used: (size,) float. 1 for the numbers of z that the lane uses.
        rows: ``unit`` numbers the groups; any number of rows and groups, no new compilation while
            both have the same `_room`.
        start: (groups, size) float. First guess.
        num_iterations: Steps at most; fewer if the last one was small.
        penalty: As in training.
        horizon: Number of the horizon that z is judged by.
    """
    num_groups, num_rows = len(start), len(rows.unit)
    room_groups, room_rows = _room(num_groups + 1), _room(num_rows)
    fill = room_rows - num_rows

    def padded(leaf: jax.Array) -> jax.Array:
        return jnp.pad(leaf, ((0, fill),) + ((0, 0),) * (leaf.ndim - 1))

    room = jax.tree.map(padded, rows)
    # Rows of the padding belong to a group of their own, the last.
    unit = jnp.where(jnp.arange(room_rows) < num_rows, room.unit, room_groups - 1)
    room = room._replace(unit=unit)
    z = np.zeros((room_groups, start.shape[1]))
    z[:num_groups] = start
    count = np.bincount(np.asarray(rows.unit), minlength=room_groups).astype(np.float64)
    ridge = (2.0 * penalty * count + _WEAK)[:, None, None] * np.eye(z.shape[1])
    information = np.zeros((*z.shape, z.shape[1]))
    for _ in range(num_iterations):
        moved, found = _information(view, params, room, jnp.asarray(z * used, jnp.float32), horizon)
        information = np.asarray(found, np.float64) * np.outer(used, used)
        pull = (np.asarray(moved, np.float64) + ridge[:, 0, :1] * z) * used
        step = np.linalg.solve(information + ridge, pull[..., None])[..., 0]
        length = np.linalg.norm(step, axis=1)
        z -= step * np.minimum(1.0, _LONGEST / np.maximum(length, 1e-12))[:, None]
        if length.max() < _SHORTEST:
            break
    return UnitLatents(
        (z * used)[:num_groups], information[:num_groups], count[:num_groups].astype(np.int64)
    )


_WEAK = 0.1
"""Precision of the prior of z: it decides only where a group has next to no rows."""
_LONGEST, _SHORTEST = 1.0, 1e-3
"""Longest step of z, and the step that is the last."""


@partial(jax.jit, static_argnames="view")
def _information(
    view: View, params: mlp.Params, rows: Batch, z: jax.Array, horizon: jax.Array | int = 0
) -> tuple[jax.Array, jax.Array]:
    """Gradient, (groups, size), and Fisher information, (groups, size, size), sums over rows."""
    # Slopes of all rows at once would leave the cache: by chunks it takes less than half the time.
    num_rows, size = len(rows.unit), z.shape[1]
    chunk = min(num_rows, _CHUNK_ROWS)
    chunks = jax.tree.map(
        lambda leaf: leaf.reshape(num_rows // chunk, chunk, *leaf.shape[1:]), (rows, z[rows.unit])
    )
    gradient, information = jax.lax.map(
        lambda part: _row_information(view, params, part[0], part[1], horizon), chunks
    )
    total = partial(jax.ops.segment_sum, segment_ids=rows.unit, num_segments=len(z))
    return total(gradient.reshape(-1, size)), total(information.reshape(-1, size, size))


def _row_information(
    view: View, params: mlp.Params, rows: Batch, own: jax.Array, horizon: jax.Array | int
) -> tuple[jax.Array, jax.Array]:
    """Gradient, (n, size), and Fisher information, (n, size, size), of each row's own z."""
    slopes_of = _relation_slopes if view == "relations" else _forward_slopes
    location, log_scale, slope, scale_slope = slopes_of(view, params, rows, own, horizon)
    outcome, known = _judged(rows, horizon)
    precision = jnp.exp(-log_scale)
    residual = (outcome - location) * precision
    pull = (_DEGREES + 1.0) * residual / (_DEGREES + jnp.square(residual))
    by_location, by_scale = -known * pull * precision, known * (1.0 - pull * residual)
    gradient = jnp.einsum("no,nok->nk", by_location, slope) + jnp.einsum(
        "no,nok->nk", by_scale, scale_slope
    )
    weight = _INFORMATION * known * jnp.square(precision)
    information = jnp.einsum("no,nok,nol->nkl", weight, slope, slope) + jnp.einsum(
        "no,nok,nol->nkl", _SCALE_INFORMATION * known, scale_slope, scale_slope
    )
    return gradient, information


def _forward_slopes(
    view: View, params: mlp.Params, rows: Batch, own: jax.Array, horizon: jax.Array | int
) -> tuple[jax.Array, ...]:
    """Location and log scale, (n, outputs) each, and their slopes in z, (n, outputs, size) each."""

    def outputs(own: jax.Array) -> tuple[jax.Array, jax.Array]:
        return all_outputs(view, params, rows, own, horizon)

    basis = jnp.eye(own.shape[1], dtype=jnp.float32)
    # Rows do not depend on each other: one forward derivative for each number of z.
    slopes_of = jax.vmap(
        lambda e: jax.jvp(outputs, (own,), (jnp.broadcast_to(e, own.shape),))[1], out_axes=2
    )
    return *outputs(own), *slopes_of(basis)


def _relation_slopes(
    view: View, params: mlp.Params, rows: Batch, own: jax.Array, horizon: jax.Array | int
) -> tuple[jax.Array, ...]:
    """Do the same: each sensor has a pass of its own, so two reverse derivatives are cheaper."""

    def one(sensor: jax.Array) -> tuple[jax.Array, ...]:
        made, back = jax.vjp(lambda z: _relation(params, rows, z, sensor), own)
        none, each = jnp.zeros_like(made[0]), jnp.ones_like(made[0])
        return *made, *back((each, none)), *back((none, each))

    return jax.vmap(one, out_axes=1)(jnp.arange(_num_outputs(rows)))


@partial(jax.jit, static_argnames="view")
def _outputs_nll(
    view: View, params: mlp.Params, rows: Batch, z: jax.Array, horizon: jax.Array | int = 0
) -> jax.Array:
    made = all_outputs(view, params, rows, z[rows.unit], horizon)
    return output_nll(*made, *_judged(rows, horizon))


def outputs_nll(
    view: View, params: mlp.Params, rows: Batch, z: np.ndarray, horizon: int = 0
) -> np.ndarray:
    """(n, outputs) float32. Negative log-likelihood of each output, given each group's z."""
    return np.asarray(_outputs_nll(view, params, rows, jnp.asarray(z, jnp.float32), horizon))


def held_out(rows: Sequences, seed: int) -> np.ndarray:
    """(n,) bool. A fifth of the rows, in blocks of neighbours, to choose among lanes."""
    block = np.arange(len(rows.position)) // _BLOCK
    return np.random.default_rng(seed).permutation(int(block[-1]) + 1)[block] % 5 == 0


def lane(params: mlp.Params, number: int) -> mlp.Params:
    """Return the networks of one lane."""
    return jax.tree.map(lambda leaf: leaf[number], params)


def _room(number: int) -> int:
    """Return the next power of two; above `_SMALL`, the next sixteenth of it."""
    power = 1 << max(number - 1, 0).bit_length()
    step = power // 16 if power > _SMALL else power
    return -(-number // step) * step


_CHUNK_ROWS = 512
"""Rows whose derivatives are computed together; it divides every larger room."""
_SMALL = 4_096
"""Room up to which few sizes, and so few compilations, are worth more than little padding."""
