"""An ensemble of networks that predicts numbers from states and actions.

Members differ in their initial weights and batches. Each keeps the weights with which it predicted
held-out rows best, the initial ones included: with ``start_at_zero`` a network that learns nothing
that holds elsewhere predicts 0.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.nn import mlp

_POINTS = 10  # times that held-out rows are predicted
_HELD_OUT = 0.2
_PIECES = 10
_MOST_HELD_OUT = 20_000
_BLOCK = 16_384  # rows predicted at a time
_EPSILON = 1e-6


class Ensemble(NamedTuple):
    """Fitted networks; members have a leading axis."""

    params: mlp.Params
    scale: np.ndarray
    """(j,) float32. Unit of each output."""
    error: np.ndarray
    """(j,) float64. Mean squared error of the mean over members, in held-out rows."""

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation over members, each (n, j) float32."""
        mean, deviation = _moments(self.params, jnp.asarray(x, jnp.float32))
        return np.asarray(mean) * self.scale, np.asarray(deviation) * self.scale


def fit(
    x: np.ndarray,
    y: np.ndarray,
    held_out: np.ndarray,
    *,
    seed: int,
    purpose: str,
    num_members: int,
    hidden: Sequence[int],
    num_steps: int,
    batch_size: int,
    learning_rate: float,
    start_at_zero: bool = False,
) -> Ensemble:
    """Fit an ensemble by least squares.

    Args:
        x: (n, i) float32. Inputs, about of size 1.
        y: (n, j) float. Outputs; scaled to a mean square of 1 for the loss.
        held_out: (n,) bool. Rows that are not trained on.
        seed: Seed of weights and batches.
        purpose: Names the random streams.
        num_members: Networks.
        hidden: Widths of hidden layers.
        num_steps: Updates of every network.
        batch_size: Rows of every network in an update.
        learning_rate: Of Adam.
        start_at_zero: Let all networks predict 0 at first.
    """
    if held_out.all() or not held_out.any():
        raise DataError(
            f"{purpose}: expected rows to learn from and rows to hold out, got {len(held_out)} in "
            "all; label more rows"
        )
    scale = (np.sqrt(np.square(y, dtype=np.float64).mean(axis=0)) + _EPSILON).astype(np.float32)
    word = int(generator(seed, "methods", purpose).integers(2**31))
    init_key, batch_key = jax.random.split(jax.random.key(word))
    params = mlp.init_ensemble(init_key, num_members, (x.shape[1], *hidden, y.shape[1]))
    if start_at_zero:
        params = (*params[:-1], jax.tree.map(jnp.zeros_like, params[-1]))
    state = params, mlp.init_adam(params)
    rows = [jnp.asarray(a, jnp.float32) for a in (x[~held_out], (y / scale)[~held_out])]
    chosen = np.flatnonzero(held_out)[:_MOST_HELD_OUT]
    judges = [jnp.asarray(a[chosen], jnp.float32) for a in (x, y / scale)]
    best, lowest = params, _errors(params, *judges)
    for point in range(_POINTS):
        length = (point + 1) * num_steps // _POINTS - point * num_steps // _POINTS
        if length == 0:
            continue
        key = jax.random.fold_in(batch_key, point)
        shape = (length, num_members, batch_size)
        state = _run(state, key, *rows, jnp.float32(learning_rate), shape)
        errors = _errors(state[0], *judges)
        best = _better(best, state[0], errors < lowest)
        lowest = jnp.minimum(errors, lowest)
    made = Ensemble(best, scale, np.zeros(y.shape[1]))
    mean, _ = made.predict(x[chosen])
    return made._replace(error=np.square(y[chosen] - mean, dtype=np.float64).mean(axis=0))


def hold_out(episode: np.ndarray | None, num_rows: int, seed: int, purpose: str) -> np.ndarray:
    """(n,) bool. A fifth of the episodes, or of the rows where there are none, at random.

    A single episode is cut into `_PIECES`: neighbours in time would tell each other's outcome.
    """
    unit = np.arange(num_rows) if episode is None else np.unique(episode, return_inverse=True)[1]
    if episode is not None and unit.max() == 0:
        unit = np.arange(num_rows) * _PIECES // num_rows
        unit = np.unique(unit, return_inverse=True)[1]
    count = int(unit.max()) + 1
    number = min(max(1, round(_HELD_OUT * count)), count - 1)
    chosen = np.zeros(count, bool)
    chosen[generator(seed, "methods", purpose, "held out").permutation(count)[:number]] = True
    return chosen[unit]


@partial(jax.jit, static_argnames="shape")
def _run(
    state: Any, key: jax.Array, x: jax.Array, y: jax.Array, rate: jax.Array, shape: Any
) -> Any:
    drawn = jax.random.randint(key, shape, 0, len(x))

    def step(state: Any, rows: jax.Array) -> tuple[Any, None]:
        def loss(params: mlp.Params) -> jax.Array:
            error = jax.vmap(mlp.apply_mlp)(params, x[rows]) - y[rows]
            return jnp.square(error).mean(axis=(1, 2)).sum()

        params, moments = state
        return mlp.apply_adam(params, jax.grad(loss)(params), moments, learning_rate=rate), None

    return jax.lax.scan(step, state, drawn)[0]


@jax.jit
def _errors(params: mlp.Params, x: jax.Array, y: jax.Array) -> jax.Array:
    out = mlp.apply_ensemble(params, x)
    return jnp.square(out - jnp.broadcast_to(y, out.shape)).mean(axis=(1, 2))


@jax.jit
def _better(old: mlp.Params, new: mlp.Params, is_better: jax.Array) -> mlp.Params:
    def choose(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(is_better.reshape(-1, *[1] * (a.ndim - 1)), b, a)

    return jax.tree.map(choose, old, new)


@jax.jit
def _moments(params: mlp.Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def one(row: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = mlp.apply_ensemble(params, row[None])[:, 0]
        return out.mean(axis=0), out.std(axis=0)

    return jax.lax.map(one, x, batch_size=_BLOCK)
