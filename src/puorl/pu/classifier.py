"""Ranking by score inside a compiled epoch: the CVIR threshold, and BBE as a JAX function."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError
from puorl.nn import adam, mlp
from puorl.pu.alpha import MAX_ALPHA, bound_slack


def upper_quantile(score: jax.Array, share: jax.Array) -> jax.Array:
    """The smallest score among the ``int(share * n)`` highest; infinity if that is none.

    Rows below it are kept: exactly the share is rejected when scores differ.
    """
    n = score.shape[0]
    num_rejected = jnp.floor(share * n).astype(jnp.int32)
    place = jnp.clip(n - num_rejected, 0, n - 1)
    return jnp.where(num_rejected > 0, jnp.sort(score)[place], jnp.inf)


def best_bin(score_p: jax.Array, score_u: jax.Array, *, k: float) -> jax.Array:
    """BBE of `puorl.pu.alpha`, compiled; clipped to [0, 0.999]."""
    n_p, n_u = score_p.shape[0], score_u.shape[0]
    falling = -jnp.sort(-score_u)
    num_u = jnp.arange(n_u)  # counted from 0, as the authors do
    # How many of P are at or above each threshold.
    num_p = n_p - jnp.searchsorted(jnp.sort(score_p), falling, side="left")
    last_of_run = jnp.concatenate([falling[:-1] != falling[1:], jnp.array([False])])
    valid = last_of_run & (num_p >= 2) & (num_u >= 2)
    share_p = jnp.maximum(num_p, 1) / n_p
    ratio = num_u / n_u / share_p
    bound = ratio + bound_slack(n_p, n_u, k=k) / share_p
    best = jnp.argmin(jnp.where(valid, bound, jnp.inf))
    return jnp.where(valid.any(), jnp.clip(ratio[best], 0.0, MAX_ALPHA), 0.0).astype(jnp.float32)


Loss = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
"""(logit_p, logit_u, weight_p, weight_u, alpha) -> scalar."""


@dataclass(frozen=True)
class NetworkConfig:
    """Network and optimiser; the defaults are the paper's."""

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    """Coupled L2, as Adam's weight decay in PyTorch."""
    batch_size: int = 256
    """Rows of P and rows of U in a batch, each."""
    layer_norm: bool = False
    """Normalise hidden layers."""
    averaging: float = 0.0
    """Judge by a running mean of the weights with this memory; 0 takes the latest."""


@dataclass(frozen=True)
class Recipe:
    """What makes one PU learner differ from another."""

    name: str
    warm_up: Loss
    """Loss of the first epochs, in which nothing is known about alpha."""
    main: Loss
    """Loss of the following epochs."""
    num_warm_up: int = 10
    num_main: int = 100
    rejects: bool = False
    """CVIR: leave the share alpha of U that looks most like the target out of the main epochs."""
    bbe_constant: float = 4.0
    rank_sample: int | None = 32_768
    """Rows of U that set the rejection threshold; None ranks all, as the released code does."""
    alpha_sample: int | None = 20_000
    """Held-out rows of U that estimate alpha in an epoch; None uses all."""

    def __post_init__(self) -> None:
        """Refuse numbers of epochs that train nothing."""
        if self.num_warm_up < 1 or self.num_main < 0:
            raise ConfigError(
                f"epochs: expected at least one of warm-up and none or more of main, got "
                f"{self.num_warm_up} and {self.num_main}"
            )


class Rows(NamedTuple):
    """Positions in the feature matrix, one row of positions a lane; int32."""

    train_p: jax.Array
    train_u: jax.Array
    held_p: jax.Array
    held_u: jax.Array


class Lane(NamedTuple):
    """One fit on its way."""

    params: mlp.Params
    moments: adam.Moments
    average: mlp.Params
    """Running mean of the weights: what judges rows."""
    key: jax.Array
    alpha: jax.Array
    """Latest estimate of the share of target rows among the unlabelled."""


def logits(params: mlp.Params, x: jax.Array) -> jax.Array:
    """(n,) float32. Above 0 says target; two outputs, as in the paper, and their difference."""
    out = mlp.apply_mlp(params, x)
    return out[:, 0] - out[:, 1]


def init(network: NetworkConfig, num_features: int, keys: jax.Array) -> Lane:
    """Fresh lanes, one for each key."""

    def one(key: jax.Array) -> Lane:
        key, net_key = jax.random.split(key)
        sizes = (num_features, *network.hidden, 2)
        params = mlp.init_mlp(net_key, sizes, layer_norm=network.layer_norm)
        # The mean is an array of its own: an epoch may reuse the memory of what it is given.
        average = jax.tree.map(lambda leaf: leaf + 0.0, params)
        return Lane(params, adam.init(params), average, key, jnp.float32(0.5))

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnames=("recipe", "network", "warm_up"), donate_argnums=0)
def run_epoch(
    lanes: Lane,
    x: jax.Array,
    rows: Rows,
    *,
    recipe: Recipe,
    network: NetworkConfig,
    warm_up: bool,
) -> tuple[Lane, dict[str, jax.Array]]:
    """One epoch of every lane: rank and reject, train, estimate alpha; metrics are (lanes,).

    ``x`` is (n, f) for all lanes, or (lanes, n, f) with one matrix each.
    """
    step = partial(_epoch_of_lane, recipe=recipe, network=network, warm_up=warm_up)
    return jax.vmap(step, in_axes=(0, 0, 0 if x.ndim == 3 else None))(lanes, rows, x)


def _epoch_of_lane(
    lane: Lane, rows: Rows, x: jax.Array, *, recipe: Recipe, network: NetworkConfig, warm_up: bool
) -> tuple[Lane, dict[str, jax.Array]]:
    key, rank_key, batch_key, alpha_key = jax.random.split(lane.key, 4)
    threshold = jnp.float32(jnp.inf)
    if recipe.rejects and not warm_up:
        sample = _some(rank_key, rows.train_u, recipe.rank_sample)
        threshold = upper_quantile(_score(lane.params, x, sample), lane.alpha)
    loss = recipe.warm_up if warm_up else recipe.main
    params, moments, average, losses = _train(lane, rows, threshold, x, batch_key, loss, network)
    held_u = _some(alpha_key, rows.held_u, recipe.alpha_sample)
    alpha = best_bin(
        _score(average, x, rows.held_p), _score(average, x, held_u), k=recipe.bbe_constant
    )
    metrics = {"loss": losses.mean(), "alpha": alpha, "threshold": threshold}
    return Lane(params, moments, average, key, alpha), metrics


def _train(
    lane: Lane,
    rows: Rows,
    threshold: jax.Array,
    x: jax.Array,
    key: jax.Array,
    loss: Loss,
    network: NetworkConfig,
) -> tuple[mlp.Params, adam.Moments, mlp.Params, jax.Array]:
    size, num_p = network.batch_size, rows.train_p.shape[0]
    num_steps = -(-num_p // size)
    p_key, u_key = jax.random.split(key)
    # The last batch of P is a partial one, filled up with rows of weight 0.
    order = jnp.pad(jax.random.permutation(p_key, rows.train_p), (0, num_steps * size - num_p))
    weight = (jnp.arange(num_steps * size) < num_p).astype(jnp.float32)
    picks = jax.random.randint(u_key, (num_steps * size,), 0, rows.train_u.shape[0])
    # Every row of U that this epoch shows is judged once, by the network it started with.
    shown_u = rows.train_u[picks]
    kept_u = (_score(lane.params, x, shown_u) < threshold).astype(jnp.float32)

    def update(carry: Any, batch: Any) -> tuple[Any, jax.Array]:
        params, moments, average = carry
        p, u, weight_p, weight_u = batch

        def value(params):
            logit = logits(params, x[jnp.concatenate([p, u])])
            return loss(logit[:size], logit[size:], weight_p, weight_u, lane.alpha)

        now, grad = jax.value_and_grad(value)(params)
        params, moments = adam.update(
            params,
            grad,
            moments,
            learning_rate=network.learning_rate,
            weight_decay=network.weight_decay,
        )
        return (params, moments, _averaged(average, params, moments.num_updates, network)), now

    batches = [a.reshape(num_steps, size) for a in (order, shown_u, weight, kept_u)]
    start = (lane.params, lane.moments, lane.average)
    (params, moments, average), losses = jax.lax.scan(update, start, batches)
    return params, moments, average, losses


def _averaged(
    average: mlp.Params, params: mlp.Params, num_updates: jax.Array, network: NetworkConfig
) -> mlp.Params:
    if network.averaging == 0.0:
        return params
    # A short memory at first: the mean must not hang on to the initial weights.
    num = num_updates.astype(jnp.float32)
    memory = jnp.minimum(network.averaging, (1.0 + num) / (10.0 + num))
    return jax.tree.map(lambda old, new: memory * old + (1.0 - memory) * new, average, params)


def _score(params: mlp.Params, x: jax.Array, positions: jax.Array) -> jax.Array:
    return logits(params, x[positions])


def _some(key: jax.Array, positions: jax.Array, num: int | None) -> jax.Array:
    """A random sample of positions (with replacement: it costs nothing), or all of them."""
    if num is None or num >= positions.shape[0]:
        return positions
    return positions[jax.random.randint(key, (num,), 0, positions.shape[0])]


_SCORE_BLOCK = 16_384


@jax.jit
def _score_block(params: mlp.Params, x: jax.Array) -> jax.Array:
    return jax.vmap(logits, in_axes=(0, None))(params, x)


def score_rows(params: mlp.Params, x: np.ndarray) -> np.ndarray:
    """(lanes, n) float32. Logits of all rows, in blocks: memory does not grow with n."""
    num_lanes, n = params[0].w.shape[0], len(x)
    result = np.empty((num_lanes, n), np.float32)
    for start in range(0, n, _SCORE_BLOCK):
        block = x[start : start + _SCORE_BLOCK]
        missing = min(_SCORE_BLOCK, n) - len(block)  # one shape for all blocks: compiled once
        if missing:
            block = np.concatenate([block, np.zeros((missing, x.shape[1]), np.float32)])
        scored = np.asarray(_score_block(params, block))
        result[:, start : start + _SCORE_BLOCK] = scored[:, : n - start]
    return result
