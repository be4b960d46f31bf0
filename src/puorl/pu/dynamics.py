"""Residuals of models of the dynamics, in deviations.

A forward model predicts s' - s from (s, a), an inverse model a from (s, s' - s). Both are fitted on
labelled and unlabelled rows alike, without labels. They explain what the domains have in common;
the residuals are what a classifier with few labels can use: another mass moves the forward
residual, noise on the motors widens the inverse one.

A model predicts a location and a scale for every output (Student t with 3 degrees of freedom), so a
residual is measured by the spread that is usual in its state: contacts make it vary.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from puorl.nn import adam, mlp
from puorl.pu.config import Inputs, ResidualConfig

Columns = tuple[tuple[int, int], ...]
"""Ranges of columns, end excluded; hashable, as static arguments of compiled functions must be."""

_DEGREES = 3.0
_LOG_SCALE = (-9.0, 3.0)
"""Bounds of the log scale: outputs have deviation 1."""


class Task(NamedTuple):
    """The columns that a model reads and those that it predicts."""

    given: Columns
    predicted: Columns

    @property
    def num_given(self) -> int:
        """Columns read."""
        return sum(end - start for start, end in self.given)

    @property
    def num_predicted(self) -> int:
        """Columns predicted."""
        return sum(end - start for start, end in self.predicted)


class Model(NamedTuple):
    """The state of models in training, one lane each."""

    params: mlp.Params
    moments: adam.Moments
    key: jax.Array


def tasks(inputs: Inputs, obs_dim: int, act_dim: int) -> tuple[Task, ...]:
    """Return the models that these inputs allow; none for behaviour alone."""
    obs, action = (0, obs_dim), (obs_dim, obs_dim + act_dim)
    after = obs_dim + act_dim
    if inputs == "sa":
        return ()
    if inputs == "sar":
        return (Task((obs, action), ((after, after + 1),)),)
    start = after + ("r" in inputs)
    change = (start, start + obs_dim)
    outcome = ((after, change[1]),)  # with the reward, where there is one
    return (Task((obs, action), outcome), Task((obs, change), (action,)))


def init(task: Task, config: ResidualConfig, keys: jax.Array) -> Model:
    """Make initial models, one for each key."""

    def one(key: jax.Array) -> Model:
        key, net_key = jax.random.split(key)
        params = mlp.init_mlp(net_key, (task.num_given, *config.hidden, 2 * task.num_predicted))
        return Model(params, adam.init(params), key)

    return jax.vmap(one)(keys)


def steps(
    model: Model,
    first: int,
    x: jax.Array,
    rows: jax.Array,
    *,
    task: Task,
    config: ResidualConfig,
    chunk: int = 500,
) -> Iterator[tuple[Model, int]]:
    """Train from step ``first`` on; yield the model and the number of steps done after each chunk.

    Args:
        model: Lanes, from `init` or from an earlier chunk.
        first: Steps already done.
        x: (n, f) float32 for all lanes, or (lanes, n, f) with one matrix each.
        rows: (lanes, m) int32 positions to train on.
        task: Columns to read and to predict.
        config: Network and optimiser.
        chunk: Steps of one compiled call.
    """
    total = config.steps_for(rows.shape[1])
    while first < total:
        length = min(chunk, total - first)
        model = _run(model, jnp.int32(first), x, rows, task, config, length, total)
        first += length
        yield model, first


def take(x: jax.Array, columns: Columns) -> jax.Array:
    """Return the named columns, concatenated."""
    return jnp.concatenate([x[:, start:end] for start, end in columns], axis=1)


def residual(params: mlp.Params, x: jax.Array, task: Task) -> jax.Array:
    """(n, predicted) float32. Signed logarithm of the residual in deviations; 0 is as expected."""
    location, log_scale = _predict(params, take(x, task.given))
    deviations = (take(x, task.predicted) - location) * jnp.exp(-log_scale)
    return jnp.sign(deviations) * jnp.log1p(jnp.abs(deviations))


def _predict(params: mlp.Params, given: jax.Array) -> tuple[jax.Array, jax.Array]:
    location, log_scale = jnp.split(mlp.apply_mlp(params, given), 2, axis=1)
    return location, jnp.clip(log_scale, *_LOG_SCALE)


def _loss(params: mlp.Params, given: jax.Array, truth: jax.Array) -> jax.Array:
    """Negative log-likelihood of a Student t, up to a constant."""
    location, log_scale = _predict(params, given)
    square = jnp.square((truth - location) * jnp.exp(-log_scale))
    return jnp.mean(log_scale + 0.5 * (_DEGREES + 1.0) * jnp.log1p(square / _DEGREES))


@partial(jax.jit, static_argnames=("task", "config", "length", "total"), donate_argnums=0)
def _run(
    model: Model,
    first: jax.Array,
    x: jax.Array,
    rows: jax.Array,
    task: Task,
    config: ResidualConfig,
    length: int,
    total: int,
) -> Model:
    def one_lane(model: Model, x: jax.Array, rows: jax.Array) -> Model:
        def step(carry: Any, number: jax.Array) -> tuple[Any, None]:
            params, moments = carry
            key = jax.random.fold_in(model.key, number)
            picks = jax.random.randint(key, (config.batch_size,), 0, rows.shape[0])
            shown = x[rows[picks]]
            grad = jax.grad(_loss)(params, take(shown, task.given), take(shown, task.predicted))
            turn = jnp.pi * number.astype(jnp.float32) / total
            rate = 0.5 * config.learning_rate * (1.0 + jnp.cos(turn))
            return adam.update(params, grad, moments, learning_rate=rate), None

        numbers = first + jnp.arange(length, dtype=jnp.int32)
        (params, moments), _ = jax.lax.scan(step, (model.params, model.moments), numbers)
        return Model(params, moments, model.key)

    return jax.vmap(one_lane, in_axes=(0, 0 if x.ndim == 3 else None, 0))(model, x, rows)
