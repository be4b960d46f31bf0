"""Residuals: what models of all rows leave unexplained of each row, in deviations.

A forward model says s' - s from (s, a), an inverse model says a from (s, s' - s). Both learn from
labelled and unlabelled rows alike: no label enters. They take away what the domains share, and what
is left is what a classifier with few labels can use: another mass moves the forward residual,
noise on the motors widens the inverse one.

A model gives a location and a scale for every output (Student t with 3 degrees of freedom), so a
residual is measured by the spread that is usual in its state: contacts make it vary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from puorl.nn import adam, mlp
from puorl.pu.features import FeatureConfig

Columns = tuple[tuple[int, int], ...]
"""Ranges of columns, end excluded; hashable, so that programs can be compiled for them."""

_DEGREES = 3.0
_LOG_SCALE = (-9.0, 3.0)
"""Bounds of the log scale: outputs have deviation 1."""


@dataclass(frozen=True)
class ResidualConfig:
    """Networks of the forward and the inverse model."""

    hidden: tuple[int, ...] = (128, 128)
    num_steps: int = 8_000
    """At most; small data gets fewer (see max_passes)."""
    batch_size: int = 512
    learning_rate: float = 1e-3
    """At the start; it falls to 0 as a half cosine."""
    max_passes: int = 40
    """Passes through the rows, so that small data is not learnt by heart."""

    def steps_for(self, num_rows: int) -> int:
        """Gradient steps for data of this size."""
        return max(1, min(self.num_steps, self.max_passes * num_rows // self.batch_size + 1))


class Task(NamedTuple):
    """Which columns a model reads and which it predicts."""

    given: Columns
    wanted: Columns

    @property
    def num_given(self) -> int:
        """Columns read."""
        return sum(end - start for start, end in self.given)

    @property
    def num_wanted(self) -> int:
        """Columns predicted."""
        return sum(end - start for start, end in self.wanted)


class Model(NamedTuple):
    """Models on their way, one lane each."""

    params: mlp.Params
    moments: adam.Moments
    key: jax.Array


def tasks(config: FeatureConfig, obs_dim: int, act_dim: int) -> tuple[Task, ...]:
    """The models that these inputs allow; none for behaviour alone."""
    obs, action = (0, obs_dim), (obs_dim, obs_dim + act_dim)
    after = obs_dim + act_dim
    if config.inputs == "sa":
        return ()
    if config.inputs == "sar":
        return (Task((obs, action), ((after, after + 1),)),)
    start = after + ("r" in config.inputs)
    change = (start, start + obs_dim)
    told = ((after, change[1]),)  # with the reward, where there is one
    return (Task((obs, action), told), Task((obs, change), (action,)))


def init(task: Task, config: ResidualConfig, keys: jax.Array) -> Model:
    """Fresh models, one for each key."""

    def one(key: jax.Array) -> Model:
        key, net_key = jax.random.split(key)
        params = mlp.init_mlp(net_key, (task.num_given, *config.hidden, 2 * task.num_wanted))
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
    """Train from step ``first`` on; yields the model and the number of steps done, chunk by chunk.

    Args:
        model: Lanes, from `init` or from an earlier chunk.
        first: Steps already done.
        x: (n, f) float32 for all lanes, or (lanes, n, f) with one matrix each.
        rows: (lanes, m) int32 positions to learn from.
        task: What to learn.
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
    """The named columns side by side."""
    return jnp.concatenate([x[:, start:end] for start, end in columns], axis=1)


def residual(params: mlp.Params, x: jax.Array, task: Task) -> jax.Array:
    """(n, wanted) float32. Signed logarithm of the residual in deviations; 0 is as expected."""
    location, log_scale = _predict(params, take(x, task.given))
    deviations = (take(x, task.wanted) - location) * jnp.exp(-log_scale)
    return jnp.sign(deviations) * jnp.log1p(jnp.abs(deviations))


def _predict(params: mlp.Params, given: jax.Array) -> tuple[jax.Array, jax.Array]:
    location, log_scale = jnp.split(mlp.apply_mlp(params, given), 2, axis=1)
    return location, jnp.clip(log_scale, *_LOG_SCALE)


def _loss(params: mlp.Params, given: jax.Array, wanted: jax.Array) -> jax.Array:
    """Negative log-likelihood of a Student t, up to a constant."""
    location, log_scale = _predict(params, given)
    square = jnp.square((wanted - location) * jnp.exp(-log_scale))
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
            grad = jax.grad(_loss)(params, take(shown, task.given), take(shown, task.wanted))
            turn = jnp.pi * number.astype(jnp.float32) / total
            rate = 0.5 * config.learning_rate * (1.0 + jnp.cos(turn))
            return adam.update(params, grad, moments, learning_rate=rate), None

        numbers = first + jnp.arange(length, dtype=jnp.int32)
        (params, moments), _ = jax.lax.scan(step, (model.params, model.moments), numbers)
        return Model(params, moments, model.key)

    return jax.vmap(one_lane, in_axes=(0, 0 if x.ndim == 3 else None, 0))(model, x, rows)
