"""Encoder: from rows to what a classifier sees; learnt from all rows, without labels."""

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
from puorl.pu.dynamics import ResidualConfig, Task
from puorl.pu.features import FeatureConfig, Scaling, build, fit_scaling

_BLOCK = 16_384
"""Rows at a time: memory for activations does not grow with the data."""


class Encoder(NamedTuple):
    """Scaled inputs, and beside them the residuals of models of the dynamics."""

    features: FeatureConfig
    scaling: Scaling
    tasks: tuple[Task, ...]
    models: tuple[mlp.Params, ...]
    num_behaviour: int
    """Columns of state and action, which come first."""

    @property
    def width(self) -> int:
        """Columns of what it makes."""
        return len(self.scaling.mean) + sum(task.num_wanted for task in self.tasks)

    def scaled(self, rows: Transitions) -> np.ndarray:
        """(n, f) float32. The scaled inputs alone; NaN where the next state is unknown."""
        x = build(rows, self.features)
        if x.shape[1] != len(self.scaling.mean):
            raise DataError(
                f"expected rows with {len(self.scaling.mean)} inputs, as in fit, got {x.shape[1]}"
            )
        return self.scaling(x)

    def __call__(self, rows: Transitions) -> tuple[np.ndarray, np.ndarray]:
        """What a classifier sees, (n, width) float32, and (n,) bool: rows that are known.

        Unknown entries are 0 before residuals are taken.
        """
        x = self.scaled(rows)
        known = np.logical_not(np.isnan(x).any(axis=1))
        np.nan_to_num(x, copy=False)
        return self.complete(x), known

    def behaviour(self) -> "Encoder":
        """The same for (s, a) alone."""
        features = dataclasses.replace(self.features, inputs="sa")
        size = self.num_behaviour
        scaling = self.scaling._replace(
            mean=self.scaling.mean[:size], scale=self.scaling.scale[:size]
        )
        return Encoder(features, scaling, (), (), size)

    def complete(self, x: np.ndarray) -> np.ndarray:
        """(n, width) float32. The scaled inputs with residuals beside them."""
        if not self.tasks:
            return x
        full = aligned_empty((len(x), self.width))
        full[:, : x.shape[1]] = x
        for start in range(0, len(x), _BLOCK):
            block = x[start : start + _BLOCK]
            missing = min(_BLOCK, len(x)) - len(block)  # one shape for all blocks: compiled once
            shown = np.pad(block, ((0, missing), (0, 0))) if missing else block
            made = np.asarray(_residual_block(self.models, shown, self.tasks))
            full[start : start + len(block), x.shape[1] :] = made[: len(block)]
        return full


@partial(jax.jit, static_argnames="tasks")
def _residual_block(
    models: tuple[mlp.Params, ...], x: jax.Array, tasks: tuple[Task, ...]
) -> jax.Array:
    pairs = zip(models, tasks, strict=True)
    return jnp.concatenate([dynamics.residual(params, x, task) for params, task in pairs], axis=1)


class Encoded(NamedTuple):
    """An encoder and the rows it was learnt from, encoded."""

    encoder: Encoder
    x: np.ndarray
    """(n, width) float32; unknown entries are 0 before residuals are taken."""
    known: np.ndarray
    """(n,) bool."""


def num_steps(rows: Transitions, features: FeatureConfig, config: ResidualConfig | None) -> int:
    """Gradient steps that learning an encoder takes."""
    if config is None:
        return 0
    made = dynamics.tasks(features, rows.obs.shape[1], rows.action.shape[1])
    return len(made) * config.steps_for(int(rows.next_known.sum()))


def learn(
    pools: Sequence[Transitions],
    features: FeatureConfig,
    config: ResidualConfig | None,
    *,
    seeds: Sequence[int],
    checkpoint: Checkpoint,
    advance: Advance,
) -> list[Encoded]:
    """Learn an encoder for each pool; pools of equal size are lanes of one program.

    Args:
        pools: Rows to learn from.
        features: Inputs.
        config: Models of the dynamics; None for none.
        seeds: One for each pool.
        checkpoint: Where to keep what is learnt so far.
        advance: Called with the number of gradient steps done since the last call.

    Raises:
        DataError: Every column is constant.
    """
    scalings, scaled, known = [], [], []
    for rows in pools:
        x = build(rows, features)
        known.append(np.logical_not(np.isnan(x).any(axis=1)))
        if not known[-1].any() or not (np.nanmax(x, axis=0) > np.nanmin(x, axis=0)).any():
            raise DataError("every column is constant: there is nothing to tell rows apart by")
        scalings.append(fit_scaling(x, features))
        scaled.append(np.nan_to_num(scalings[-1](x), copy=False))
    obs_dim, act_dim = pools[0].obs.shape[1], pools[0].action.shape[1]
    jobs = dynamics.tasks(features, obs_dim, act_dim) if config is not None else ()
    learnt = []
    if jobs:
        assert config is not None
        size = min(int(k.sum()) for k in known)
        rows = jnp.asarray(np.stack([np.flatnonzero(k)[:size] for k in known]), jnp.int32)
        x = jax.device_put(scaled[0] if len(scaled) == 1 else np.stack(scaled))
        for i, task in enumerate(jobs):
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
            learnt.append(model.params)
        del x  # on most devices a copy of all rows
    made = []
    for lane in range(len(pools)):
        own = tuple(jax.tree.map(lambda leaf, k=lane: leaf[k], params) for params in learnt)
        encoder = Encoder(features, scalings[lane], tuple(jobs), own, obs_dim + act_dim)
        made.append(Encoded(encoder, encoder.complete(scaled.pop(0)), known[lane]))
    return made
