"""What a classifier sees of a row: scaled (s, a, s') and the residuals of models of the dynamics.

Everything is fitted on all rows alike, without labels.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import DataError
from puorl.core.progress import Advance
from puorl.core.resources import aligned_empty
from puorl.data.transitions import Transitions
from puorl.nn import mlp
from puorl.pu import dynamics
from puorl.pu.classifier import BLOCK, padded_block
from puorl.pu.config import FeatureConfig, ResidualConfig
from puorl.pu.dynamics import Task

_LIMIT = 100.0
"""Scaled values are clipped here."""
_GLITCH, _TAIL = 1_000.0, 0.001


class Scaling(NamedTuple):
    """Offset and divisor of every column, each (f,) float32."""

    mean: np.ndarray
    scale: np.ndarray
    limited: bool = True

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Scale (n, f) float32 in place, and clip sensor glitches."""
        x -= self.mean
        x /= self.scale
        return np.clip(x, -_LIMIT, _LIMIT, out=x) if self.limited else x


def build(rows: Transitions, config: FeatureConfig) -> np.ndarray:
    """(n, f) float32. The inputs of rows before scaling; NaN where the next state is unknown.

    Differences are taken in the data's own precision, before rounding to float32.

    Raises:
        DataError: The inputs need rewards and there are none.
    """
    parts = [rows.obs, rows.action]
    if "r" in config.inputs:
        if rows.reward is None:
            raise DataError(
                f"inputs {config.inputs!r} need rewards, and this data has none; use inputs='sas'"
            )
        parts.append(rows.reward[:, None])
    if config.inputs in ("sas", "sars"):
        parts.append(rows.next_obs - rows.obs if config.difference else rows.next_obs)
    made = aligned_empty((len(rows), sum(part.shape[1] for part in parts)))
    return np.concatenate(parts, axis=1, out=made, casting="same_kind")


def fit_scaling(x: np.ndarray, config: FeatureConfig) -> Scaling:
    """Compute mean and deviation of every column over known rows; constant columns get scale 1."""
    width = x.shape[1]
    if not config.standardise:
        return Scaling(np.zeros(width, np.float32), np.ones(width, np.float32), limited=False)
    # Column by column: all at once needs several copies of the data in float64.
    mean = np.array([np.nanmean(column, dtype=np.float64) for column in x.T])
    deviation = np.array([np.nanstd(column, dtype=np.float64) for column in x.T])
    for column in _glitched(x, deviation):
        # With a few absurd values in the deviation all others would look constant.
        value = x[:, column]
        low, high = np.nanquantile(value, [_TAIL, 1 - _TAIL])
        usual = value[(value >= low) & (value <= high)]
        mean[column], deviation[column] = usual.mean(dtype=np.float64), usual.std(dtype=np.float64)
    # Dividing by a deviation that is only rounding would amplify noise.
    varies = deviation > np.maximum(1e-6 * np.abs(mean), 1e-30)
    scale = np.where(varies, deviation, 1.0)
    return Scaling(np.asarray(mean, np.float32), np.asarray(scale, np.float32))


def _glitched(x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Find columns whose deviation comes from a few values: far above that of their middle half."""
    sample = x[:: max(1, len(x) // 100_000)]
    low, high = np.nanquantile(sample, [0.25, 0.75], axis=0)
    middle = (high - low) / 1.349
    return np.flatnonzero((middle > 0) & (deviation > _GLITCH * middle))


class Encoder(NamedTuple):
    """Scaled inputs, followed by the residuals of models of the dynamics."""

    features: FeatureConfig
    scaling: Scaling
    tasks: tuple[Task, ...]
    models: tuple[mlp.Params, ...]
    num_behaviour: int
    """Columns of state and action, which come first."""

    @property
    def width(self) -> int:
        """Number of columns of the result."""
        return len(self.scaling.mean) + sum(task.num_predicted for task in self.tasks)

    def scaled(self, rows: Transitions) -> np.ndarray:
        """(n, f) float32. The scaled inputs alone; NaN where the next state is unknown."""
        x = build(rows, self.features)
        if x.shape[1] != len(self.scaling.mean):
            raise DataError(
                f"expected rows with {len(self.scaling.mean)} inputs, as in fit, got {x.shape[1]}"
            )
        return self.scaling(x)

    def __call__(self, rows: Transitions) -> tuple[np.ndarray, np.ndarray]:
        """Return the features, (n, width) float32, and (n,) bool: rows that are known."""
        x = self.scaled(rows)
        known = np.logical_not(np.isnan(x).any(axis=1))
        np.nan_to_num(x, copy=False)
        return self.complete(x), known

    def behaviour(self) -> "Encoder":
        """Return the encoder of (s, a) alone."""
        features = dataclasses.replace(self.features, inputs="sa")
        size = self.num_behaviour
        scaling = self.scaling._replace(
            mean=self.scaling.mean[:size], scale=self.scaling.scale[:size]
        )
        return Encoder(features, scaling, (), (), size)

    def complete(self, x: np.ndarray) -> np.ndarray:
        """(n, width) float32. Add the residuals to scaled inputs."""
        if not self.tasks:
            return x
        full = aligned_empty((len(x), self.width))
        full[:, : x.shape[1]] = x
        for start in range(0, len(x), BLOCK):
            made = np.asarray(_residual_block(self.models, padded_block(x, start), self.tasks))
            full[start : start + BLOCK, x.shape[1] :] = made[: len(x) - start]
        return full


@partial(jax.jit, static_argnames="tasks")
def _residual_block(
    models: tuple[mlp.Params, ...], x: jax.Array, tasks: tuple[Task, ...]
) -> jax.Array:
    pairs = zip(models, tasks, strict=True)
    return jnp.concatenate([dynamics.residual(params, x, task) for params, task in pairs], axis=1)


class Encoded(NamedTuple):
    """An encoder and the rows that it was fitted on, encoded."""

    encoder: Encoder
    x: np.ndarray
    """(n, width) float32; unknown entries are 0 before residuals are taken."""
    known: np.ndarray
    """(n,) bool."""


def num_steps(rows: Transitions, features: FeatureConfig, config: ResidualConfig | None) -> int:
    """Return the number of gradient steps of `fit_encoders`."""
    if config is None:
        return 0
    tasks = dynamics.tasks(features.inputs, rows.obs.shape[1], rows.action.shape[1])
    return len(tasks) * config.steps_for(int(rows.next_known.sum()))


def fit_encoders(
    pools: Sequence[Transitions],
    features: FeatureConfig,
    config: ResidualConfig | None,
    *,
    seeds: Sequence[int],
    checkpoint: Checkpoint,
    advance: Advance,
) -> list[Encoded]:
    """Fit an encoder for each pool; pools of equal size are lanes of one program.

    Args:
        pools: Rows to fit on.
        features: Inputs.
        config: Models of the dynamics; None for none.
        seeds: One for each pool.
        checkpoint: Where to store progress.
        advance: Called with the number of gradient steps done since the last call.

    Raises:
        DataError: Every column is constant.
    """
    scalings, scaled, known = [], [], []
    for rows in pools:
        x = build(rows, features)
        known.append(np.logical_not(np.isnan(x).any(axis=1)))
        if not known[-1].any() or not (np.nanmax(x, axis=0) > np.nanmin(x, axis=0)).any():
            raise DataError(
                "expected columns that vary, got only constant ones: rows cannot be told apart"
            )
        scalings.append(fit_scaling(x, features))
        scaled.append(np.nan_to_num(scalings[-1](x), copy=False))
    obs_dim, act_dim = pools[0].obs.shape[1], pools[0].action.shape[1]
    tasks = dynamics.tasks(features.inputs, obs_dim, act_dim) if config is not None else ()
    fitted = []
    if tasks:
        assert config is not None
        size = min(int(k.sum()) for k in known)
        rows = jnp.asarray(np.stack([np.flatnonzero(k)[:size] for k in known]), jnp.int32)
        x = jax.device_put(scaled[0] if len(scaled) == 1 else np.stack(scaled))
        for i, task in enumerate(tasks):
            keys = jax.vmap(partial(jax.random.key, impl="threefry2x32"))(jnp.asarray(seeds))
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, i + 1)
            fresh = dynamics.init(task, config, keys)
            model, first = checkpoint.restore(f"residuals-{i}", fresh)
            if first:
                advance(first, earlier=True)
            shown = first
            trained = dynamics.steps(model, first, x, rows, task=task, config=config)
            for now, done in trained:
                model = now
                advance(done - shown)
                shown = done
                checkpoint.store(f"residuals-{i}", model, done)
            checkpoint.store(f"residuals-{i}", model, shown, now=shown > first)
            fitted.append(model.params)
        del x  # on most devices a copy of all rows
    made = []
    for lane in range(len(pools)):
        own = tuple(jax.tree.map(lambda leaf, k=lane: leaf[k], params) for params in fitted)
        encoder = Encoder(features, scalings[lane], tasks, own, obs_dim + act_dim)
        made.append(Encoded(encoder, encoder.complete(scaled.pop(0)), known[lane]))
    return made
