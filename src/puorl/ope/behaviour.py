"""A model of the logged behaviour: how likely an action was, and how far a policy departs from it.

Each lane is fitted without one fold of the episodes; the densities of a row are those of the lane
that has not seen its episode.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.nn import mlp
from puorl.ope import fitting
from puorl.ope.config import OPEConfig
from puorl.ope.logged import Lanes, LoggedEpisodes

_LOG_SCALE = (-5.0, 2.0)
_RARE = 0.01
"""Logged actions that count as rare: a policy's action that is rarer lies outside the data."""
_LOG_2PI = float(np.log(2.0 * np.pi))


class BehaviourRows(NamedTuple):
    """States and logged actions."""

    obs: jax.Array
    action: jax.Array


class Behaviour(NamedTuple):
    """Predictions of the held-out lane in every row."""

    output: np.ndarray
    """(n, 2 m) mean and log deviation of each action, or (n, m) log probabilities of codes."""
    discrete: bool
    rare: float
    """Log density below which the rarest logged actions lie."""

    def log_density(self, action: np.ndarray) -> np.ndarray:
        """(n,) float64. Log density of an action in every row; codes are one-hot."""
        if self.discrete:
            return (self.output * action).sum(axis=1)
        mean, log_scale = np.split(self.output, 2, axis=1)
        return gaussian_log_density(action - mean, log_scale)

    def outside(self, choice: np.ndarray) -> float:
        """Fraction of rows in which the policy does what the log hardly ever shows."""
        if self.discrete:
            return float((choice * (self.output < self.rare)).sum(axis=1).mean())
        return float((self.log_density(choice) < self.rare).mean())


def gaussian_log_density(difference: np.ndarray, log_scale: np.ndarray | float) -> np.ndarray:
    """(n,) float64. Log density of independent Gaussians at (n, m) differences from their means."""
    log_scale = np.broadcast_to(np.asarray(log_scale, np.float64), difference.shape)
    z = difference.astype(np.float64) / np.exp(log_scale)
    return -(0.5 * np.square(z) + log_scale + 0.5 * _LOG_2PI).sum(axis=1)


def fit_behaviour(
    logged: LoggedEpisodes, drawn: Lanes, config: OPEConfig, *, seed: int
) -> Behaviour:
    """Fit the model of the behaviour, a Gaussian or a categorical distribution, in all lanes."""
    obs_dim, act_dim = logged.obs.shape[1], logged.action.shape[1]
    width = act_dim if logged.discrete else 2 * act_dim
    updates = max(1, config.model_updates // 4)
    rows = BehaviourRows(jnp.asarray(logged.obs), jnp.asarray(logged.action))
    params, _ = fitting.fit(
        (obs_dim, *config.hidden, width),
        _code_loss if logged.discrete else _gaussian_loss,
        rows,
        fitting.as_draws(*drawn.tables(logged.episode)),
        fitting.Schedule(updates, min(200, updates), config.batch_size, 1e-3),
        seed=seed,
        purpose="behaviour",
    )
    output = fitting.in_blocks(partial(_outputs, discrete=logged.discrete), params, logged.obs)
    fold = drawn.fold[logged.episode]
    row = np.arange(len(fold))
    held_out = output[np.maximum(fold, 0), row]
    # Without folds every lane has seen every row.
    chosen = np.where((fold >= 0)[:, None], held_out, output.mean(axis=0))
    made = Behaviour(chosen, logged.discrete, -np.inf)
    return made._replace(rare=float(np.quantile(made.log_density(logged.action), _RARE)))


@partial(jax.jit, static_argnames="discrete")
def _outputs(params: Any, obs: jax.Array, *, discrete: bool) -> jax.Array:
    out = jax.vmap(lambda own: mlp.apply_mlp(own, obs))(params)
    if discrete:
        return jax.nn.log_softmax(out, axis=-1)
    mean, log_scale = jnp.split(out, 2, axis=-1)
    return jnp.concatenate([mean, jnp.clip(log_scale, *_LOG_SCALE)], axis=-1)


def _gaussian_loss(params: mlp.Params, rows: BehaviourRows) -> jax.Array:
    mean, log_scale = jnp.split(mlp.apply_mlp(params, rows.obs), 2, axis=-1)
    log_scale = jnp.clip(log_scale, *_LOG_SCALE)
    z = (rows.action - mean) * jnp.exp(-log_scale)
    return (0.5 * jnp.square(z) + log_scale).sum(axis=-1).mean()


def _code_loss(params: mlp.Params, rows: BehaviourRows) -> jax.Array:
    return -(jax.nn.log_softmax(mlp.apply_mlp(params, rows.obs)) * rows.action).sum(axis=-1).mean()
