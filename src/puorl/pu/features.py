"""Inputs of the classifier: scaled (s, a, s') and the residuals of models of the dynamics.

Everything is fitted on labelled and unlabelled rows alike, without labels. A forward model predicts
s' - s from (s, a), an inverse model a from (s, s' - s). They explain what the domains have in
common; the residuals are what a classifier with few labels can use: another mass moves the forward
residual, noise on the motors widens the inverse one.

A model predicts a location and a scale for every output (Student t with 3 degrees of freedom), so a
residual is measured by the spread that is usual in its state: contacts make it vary.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import DataError
from puorl.core.progress import Advance
from puorl.core.resources import aligned_empty
from puorl.core.run_folder import Checkpoint
from puorl.data.actions import is_one_hot
from puorl.data.transitions import Transitions
from puorl.nn import mlp
from puorl.pu.config import FeatureConfig, Inputs, ResidualConfig
from puorl.pu.learners import BLOCK, padded_block

_LIMIT = 100.0
"""Scaled values are clipped here."""
_GLITCH, _TAIL = 1_000.0, 0.001
_ONE_HOT_SCALE = 0.5
"""The deviation of a code that half of the rows have."""


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


def fit_scaling(x: np.ndarray, config: FeatureConfig, one_hot: slice = slice(0)) -> Scaling:
    """Compute mean and deviation of every column over known rows; constant columns get scale 1.

    One-hot columns get a scale of their own: by its deviation, a rare code would be an outlier.
    """
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
    scale[one_hot] = _ONE_HOT_SCALE
    return Scaling(np.asarray(mean, np.float32), np.asarray(scale, np.float32))


def _glitched(x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Find columns whose deviation comes from a few values: far above that of their middle half."""
    sample = x[:: max(1, len(x) // 100_000)]
    low, high = np.nanquantile(sample, [0.25, 0.75], axis=0)
    middle = (high - low) / 1.349
    return np.flatnonzero((middle > 0) & (deviation > _GLITCH * middle))


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
    moments: mlp.Moments
    key: jax.Array


def residual_tasks(inputs: Inputs, obs_dim: int, act_dim: int) -> tuple[Task, ...]:
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


def init_models(task: Task, config: ResidualConfig, keys: jax.Array) -> Model:
    """Make initial models, one for each key."""

    def one(key: jax.Array) -> Model:
        key, net_key = jax.random.split(key)
        params = mlp.init_mlp(net_key, (task.num_given, *config.hidden, 2 * task.num_predicted))
        return Model(params, mlp.init_adam(params), key)

    return jax.vmap(one)(keys)


def train_steps(
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
        model: Lanes, from `init_models` or from an earlier chunk.
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
            return mlp.apply_adam(params, grad, moments, learning_rate=rate), None

        numbers = first + jnp.arange(length, dtype=jnp.int32)
        (params, moments), _ = jax.lax.scan(step, (model.params, model.moments), numbers)
        return Model(params, moments, model.key)

    return jax.vmap(one_lane, in_axes=(0, 0 if x.ndim == 3 else None, 0))(model, x, rows)


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
    return jnp.concatenate([residual(params, x, task) for params, task in pairs], axis=1)


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
    tasks = residual_tasks(features.inputs, rows.obs.shape[1], rows.action.shape[1])
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
                "expected columns that vary, got only constant ones: rows cannot be separated"
            )
        width = rows.obs.shape[1], rows.action.shape[1]
        codes = slice(width[0], sum(width)) if is_one_hot(rows.action) else slice(0)
        scalings.append(fit_scaling(x, features, codes))
        scaled.append(np.nan_to_num(scalings[-1](x), copy=False))
    obs_dim, act_dim = pools[0].obs.shape[1], pools[0].action.shape[1]
    tasks = residual_tasks(features.inputs, obs_dim, act_dim) if config is not None else ()
    fitted = []
    if tasks:
        assert config is not None
        size = min(int(k.sum()) for k in known)
        rows = jnp.asarray(np.stack([np.flatnonzero(k)[:size] for k in known]), jnp.int32)
        x = jax.device_put(scaled[0] if len(scaled) == 1 else np.stack(scaled))
        for i, task in enumerate(tasks):
            keys = jax.vmap(partial(jax.random.key, impl="threefry2x32"))(jnp.asarray(seeds))
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, i + 1)
            fresh = init_models(task, config, keys)
            model, first = checkpoint.restore(f"residuals-{i}", fresh)
            if first:
                advance(first, earlier=True)
            shown = first
            trained = train_steps(model, first, x, rows, task=task, config=config)
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
