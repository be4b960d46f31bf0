"""PU learners: risks as pure functions of logits, recipes built from them, the training epoch.

A logit above 0 means target; ``alpha`` is the fraction of target rows among the unlabelled. With a
loss l and means over the rows of a batch:

- uPU (du Plessis et al. 2015, "Convex Formulation for Learning from Positive and Unlabeled Data"):
  ``alpha E_P[l(+)] - alpha E_P[l(-)] + E_U[l(-)]``;
- nnPU (Kiryo et al. 2017, "Positive-Unlabeled Learning with Non-Negative Risk Estimator"):
  ``alpha E_P[l(+)] + max(-slack, E_U[l(-)] - alpha E_P[l(-)])``;
- P versus U (Elkan and Noto 2008): ``(E_P[ce(+)] + E_U[ce(-)]) / 2``;
- TEDn (Garg et al. 2021, "Mixture Proportion Estimation and PU Learning"): P versus U as warm-up,
  then in every epoch leave out the fraction alpha of U with the highest scores (CVIR), train on the
  rest against P, and estimate alpha again from held-out rows (BBE).

alpha is never given: all learners estimate it by BBE after each epoch, starting with the warm-up.

Deviations of TEDn from the released PUORL code:
1. The rejection threshold is a quantile of a sample of U (``rank_sample=None`` ranks all of U).
2. Rows of U are drawn with replacement; an epoch uses about one in a hundred.
3. alpha is clipped to [0, 0.999].

To add a learner, add its risk and its recipe here.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.pu.alpha import MAX_ALPHA, bound_slack
from puorl.pu.config import FilterConfig, NetworkConfig, check_choice

BLOCK = 16_384
"""Rows scored at a time: memory for activations does not grow with the data."""


class Batch(NamedTuple):
    """Inputs of a loss; a batch in which all weights are 0 has loss and gradient 0."""

    logit_p: jax.Array
    """(p,) float32. Labelled rows."""
    logit_u: jax.Array
    """(u,) float32. Unlabelled rows."""
    weight_p: jax.Array
    """(p,) float32; 0 leaves a row out."""
    weight_u: jax.Array
    """(u,) float32."""
    alpha: jax.Array
    """Fraction of target rows among the unlabelled."""


Loss = Callable[[Batch], jax.Array]


@dataclass(frozen=True)
class Recipe:
    """Losses and settings of a PU learner."""

    name: str
    warm_up: Loss
    """Loss of the first epochs, before alpha is estimated."""
    main: Loss
    """Loss of the following epochs."""
    num_warm_up: int = 10
    num_main: int = 100
    rejects: bool = False
    """CVIR: leave the fraction alpha of U with the highest scores out of the main epochs."""
    bbe_constant: float = 4.0
    rank_sample: int | None = 32_768
    """Rows of U that set the rejection threshold; None ranks all, as the released code does."""
    alpha_sample: int | None = 20_000
    """Held-out rows of U that estimate alpha in an epoch; None uses all."""

    def __post_init__(self) -> None:
        if self.num_warm_up < 1 or self.num_main < 0:
            raise ConfigError(
                f"epochs: expected at least one of warm-up and none or more of main, got "
                f"{self.num_warm_up} and {self.num_main}"
            )

    @property
    def num_epochs(self) -> int:
        """Epochs of warm-up and after it."""
        return self.num_warm_up + self.num_main


def sigmoid_loss(logit: jax.Array, sign: int) -> jax.Array:
    """Return the probability of the wrong class where the class is ``sign`` (+1 or -1)."""
    return jax.nn.sigmoid(-sign * logit)


def weighted_mean(value: jax.Array, weight: jax.Array) -> jax.Array:
    """Return the mean of (n,) values with (n,) weights; 0 if all weights are 0.

    Raises:
        ValueError: Shapes differ, which would otherwise broadcast in silence.
    """
    if value.shape != weight.shape:
        raise ValueError(f"value {value.shape} and weight {weight.shape} must have the same shape")
    total = jnp.sum(weight)
    # The inner where keeps the gradient finite as well.
    return jnp.where(total > 0, jnp.sum(weight * value) / jnp.where(total > 0, total, 1.0), 0.0)


def p_versus_u(batch: Batch) -> jax.Array:
    """Return the cross-entropy with unlabelled rows as others, both sets weighted alike.

    alpha acts through the rejection alone: rejected rows have weight 0.
    """
    loss_p = weighted_mean(jax.nn.softplus(-batch.logit_p), batch.weight_p)
    return 0.5 * (loss_p + weighted_mean(jax.nn.softplus(batch.logit_u), batch.weight_u))


def upu_risk(batch: Batch) -> jax.Array:
    """Return the unbiased risk; it may turn negative when a flexible network overfits."""
    positive, negative = _risk_parts(batch)
    return positive + negative


def nnpu_risk(batch: Batch, *, slack: float = 0.0, step: float = 1.0) -> jax.Array:
    """Return the non-negative risk, with the gradient rule of its authors.

    The value is ``positive + max(-slack, negative)``. Where the bracket ``negative`` lies below
    ``-slack`` the gradient is that of ``-step * negative`` instead: descending it lifts the bracket
    back up, while the gradient of the value would leave it unchanged.

    Args:
        batch: Logits and weights.
        slack: How far below 0 the bracket may go (the authors' beta).
        step: Factor of the corrective gradient (the authors' gamma).
    """
    positive, negative = _risk_parts(batch)
    value = positive + jnp.maximum(-slack, negative)
    descended = jnp.where(negative < -slack, -step * negative, positive + negative)
    return descended + jax.lax.stop_gradient(value - descended)


def _risk_parts(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Return the target's part of the risk, and the bracket that estimates the others' part."""
    logit_p, weight_p = batch.logit_p, batch.weight_p
    positive = batch.alpha * weighted_mean(sigmoid_loss(logit_p, +1), weight_p)
    mistaken = batch.alpha * weighted_mean(sigmoid_loss(logit_p, -1), weight_p)
    return positive, weighted_mean(sigmoid_loss(batch.logit_u, -1), batch.weight_u) - mistaken


LEARNERS = {
    recipe.name: recipe
    for recipe in (
        Recipe("tedn", warm_up=p_versus_u, main=p_versus_u, rejects=True),
        Recipe("nnpu", warm_up=p_versus_u, main=nnpu_risk),
        Recipe("upu", warm_up=p_versus_u, main=upu_risk),
        # All epochs are warm-up: the plain baseline of TEDn's authors.
        Recipe("pvu", warm_up=p_versus_u, main=p_versus_u, num_warm_up=110, num_main=0),
    )
}
"""Learners by name."""


def make_recipe(config: FilterConfig) -> Recipe:
    """Return the learner of a config, with its settings.

    Raises:
        ConfigError: Unknown learner, or no epochs.
    """
    check_choice("learner", config.learner, LEARNERS)
    own = {name: getattr(config, name) for name in ("bbe_constant", "num_warm_up", "num_main")}
    changes = {name: value for name, value in own.items() if value is not None}
    if config.exact_ranking:
        changes |= {"rank_sample": None, "alpha_sample": None}
    return dataclasses.replace(LEARNERS[config.learner], **changes)


def row_threshold(learner: str, alpha: float) -> float:
    """Return the logit above which a row is more likely the target's than not.

    P versus U learns the odds p_P(x) / p_U(x) of being labelled; the posterior in U is alpha times
    that and passes 1/2 at odds 1 / (2 alpha). Other learners have the threshold 0.

    >>> row_threshold("pvu", 0.5), row_threshold("tedn", 0.1)
    (0.0, 0.0)
    """
    return math.log(0.5 / max(alpha, 1e-6)) if learner == "pvu" else 0.0


# ------------------------------------------------------------------------- training epoch
#
# All learners share one classifier: small networks side by side, one compiled epoch. A lane is one
# fit: its own network, key and rows. Lanes that are folds share one matrix of features on the
# device and have their own lists of positions; lanes of different data have a matrix each. One
# epoch passes through the labelled rows once, as in the released code, whose loader of labelled
# rows ends first (32 steps for 8,000 rows).


def upper_quantile(score: jax.Array, fraction: jax.Array) -> jax.Array:
    """Return the smallest score among the ``int(fraction * n)`` highest; infinity if that is none.

    Rows below it are kept: exactly this fraction is rejected when scores differ.
    """
    n = score.shape[0]
    num_rejected = jnp.floor(fraction * n).astype(jnp.int32)
    place = jnp.clip(n - num_rejected, 0, n - 1)
    return jnp.where(num_rejected > 0, jnp.sort(score)[place], jnp.inf)


def best_bin(score_p: jax.Array, score_u: jax.Array, *, k: float) -> jax.Array:
    """Compute `puorl.pu.alpha.bbe` inside a compiled epoch; (p,) and (u,) scores, scalar result."""
    n_p, n_u = score_p.shape[0], score_u.shape[0]
    falling = -jnp.sort(-score_u)
    num_u = jnp.arange(n_u)  # counted from 0, as the authors do
    # Rows of P at or above each threshold.
    num_p = n_p - jnp.searchsorted(jnp.sort(score_p), falling, side="left")
    last_of_run = jnp.concatenate([falling[:-1] != falling[1:], jnp.array([False])])
    valid = last_of_run & (num_p >= 2) & (num_u >= 2)
    fraction_p = jnp.maximum(num_p, 1) / n_p
    ratio = num_u / n_u / fraction_p
    bound = ratio + bound_slack(n_p, n_u, k=k) / fraction_p
    best = jnp.argmin(jnp.where(valid, bound, jnp.inf))
    return jnp.where(valid.any(), jnp.clip(ratio[best], 0.0, MAX_ALPHA), 0.0).astype(jnp.float32)


class Rows(NamedTuple):
    """Positions in the feature matrix, (lanes, rows) int32 each."""

    train_p: jax.Array
    train_u: jax.Array
    held_p: jax.Array
    held_u: jax.Array


class ClassifierState(NamedTuple):
    """The state of fits, one lane each."""

    params: mlp.Params
    moments: mlp.Moments
    average: mlp.Params
    """Running mean of the weights; it scores rows."""
    key: jax.Array
    alpha: jax.Array
    """Latest estimate of the fraction of target rows among the unlabelled."""


def logits(params: mlp.Params, x: jax.Array) -> jax.Array:
    """(n,) float32. Above 0 means target; the difference of two outputs, as in the paper."""
    out = mlp.apply_mlp(params, x)
    return out[:, 0] - out[:, 1]


def init(network: NetworkConfig, num_features: int, keys: jax.Array) -> ClassifierState:
    """Make initial states, one lane for each key."""

    def one(key: jax.Array) -> ClassifierState:
        key, net_key = jax.random.split(key)
        sizes = (num_features, *network.hidden, 2)
        params = mlp.init_mlp(net_key, sizes, layer_norm=network.layer_norm)
        # The mean is an array of its own: an epoch may reuse the memory of what it is given.
        average = jax.tree.map(lambda leaf: leaf + 0.0, params)
        return ClassifierState(params, mlp.init_adam(params), average, key, jnp.float32(0.5))

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnames=("recipe", "network", "warm_up"), donate_argnums=0)
def run_epoch(
    state: ClassifierState,
    x: jax.Array,
    rows: Rows,
    *,
    recipe: Recipe,
    network: NetworkConfig,
    warm_up: bool,
) -> tuple[ClassifierState, dict[str, jax.Array]]:
    """Run one epoch of every lane: rank and reject, train, estimate alpha; metrics are (lanes,).

    ``x`` is (n, f) for all lanes, or (lanes, n, f) with one matrix each.
    """
    step = partial(_epoch_of_lane, recipe=recipe, network=network, warm_up=warm_up)
    return jax.vmap(step, in_axes=(0, 0, 0 if x.ndim == 3 else None))(state, rows, x)


def _epoch_of_lane(
    lane: ClassifierState,
    rows: Rows,
    x: jax.Array,
    *,
    recipe: Recipe,
    network: NetworkConfig,
    warm_up: bool,
) -> tuple[ClassifierState, dict[str, jax.Array]]:
    key, rank_key, batch_key, alpha_key = jax.random.split(lane.key, 4)
    threshold = jnp.float32(jnp.inf)
    if recipe.rejects and not warm_up:
        sample = _some(rank_key, rows.train_u, recipe.rank_sample)
        threshold = upper_quantile(logits(lane.params, x[sample]), lane.alpha)
    loss = recipe.warm_up if warm_up else recipe.main
    params, moments, average, losses = _train(lane, rows, threshold, x, batch_key, loss, network)
    held_u = _some(alpha_key, rows.held_u, recipe.alpha_sample)
    score_p, score_u = logits(average, x[rows.held_p]), logits(average, x[held_u])
    alpha = best_bin(score_p, score_u, k=recipe.bbe_constant)
    metrics = {"loss": losses.mean(), "alpha": alpha, "threshold": threshold}
    return ClassifierState(params, moments, average, key, alpha), metrics


def _train(
    lane: ClassifierState,
    rows: Rows,
    threshold: jax.Array,
    x: jax.Array,
    key: jax.Array,
    loss: Loss,
    network: NetworkConfig,
) -> tuple[mlp.Params, mlp.Moments, mlp.Params, jax.Array]:
    size, num_p = network.batch_size, rows.train_p.shape[0]
    num_steps = -(-num_p // size)
    p_key, u_key = jax.random.split(key)
    # The last batch of P is a partial one, filled up with rows of weight 0.
    order = jnp.pad(jax.random.permutation(p_key, rows.train_p), (0, num_steps * size - num_p))
    weight = (jnp.arange(num_steps * size) < num_p).astype(jnp.float32)
    picks = jax.random.randint(u_key, (num_steps * size,), 0, rows.train_u.shape[0])
    # Every row of U of this epoch is scored once, by the network at its start.
    shown_u = rows.train_u[picks]
    kept_u = (logits(lane.params, x[shown_u]) < threshold).astype(jnp.float32)

    def update(carry: Any, batch: Any) -> tuple[Any, jax.Array]:
        params, moments, average = carry
        p, u, weight_p, weight_u = batch

        def value(params):
            logit = logits(params, x[jnp.concatenate([p, u])])
            return loss(Batch(logit[:size], logit[size:], weight_p, weight_u, lane.alpha))

        now, grad = jax.value_and_grad(value)(params)
        params, moments = mlp.apply_adam(
            params,
            grad,
            moments,
            learning_rate=network.learning_rate,
            weight_decay=network.weight_decay,
        )
        if network.averaging == 0.0:
            return (params, moments, params), now
        # A short memory at first, so that the initial weights are forgotten.
        num = moments.num_updates.astype(jnp.float32)
        memory = jnp.minimum(network.averaging, (1.0 + num) / (10.0 + num))
        mean = jax.tree.map(lambda old, new: memory * old + (1.0 - memory) * new, average, params)
        return (params, moments, mean), now

    batches = [a.reshape(num_steps, size) for a in (order, shown_u, weight, kept_u)]
    start = (lane.params, lane.moments, lane.average)
    (params, moments, average), losses = jax.lax.scan(update, start, batches)
    return params, moments, average, losses


def _some(key: jax.Array, positions: jax.Array, num: int | None) -> jax.Array:
    """Draw positions with replacement, or return all of them."""
    if num is None or num >= positions.shape[0]:
        return positions
    return positions[jax.random.randint(key, (num,), 0, positions.shape[0])]


@jax.jit
def _score_block(params: mlp.Params, x: jax.Array) -> jax.Array:
    return jax.vmap(logits, in_axes=(0, None))(params, x)


def score_rows(params: mlp.Params, x: np.ndarray) -> np.ndarray:
    """(lanes, n) float32. Logits of all rows, in blocks."""
    result = np.empty((params[0].w.shape[0], len(x)), np.float32)
    for start in range(0, len(x), BLOCK):
        block = padded_block(x, start)
        scored = np.asarray(_score_block(params, block))
        result[:, start : start + BLOCK] = scored[:, : len(x) - start]
    return result


def padded_block(x: np.ndarray, start: int) -> np.ndarray:
    """Return a block of rows, padded with zeros to the shape of all blocks: compiled once."""
    block = x[start : start + BLOCK]
    missing = min(BLOCK, len(x)) - len(block)
    return np.pad(block, ((0, missing), (0, 0))) if missing else block
