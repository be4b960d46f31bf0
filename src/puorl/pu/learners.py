"""PU learners: their risks as pure functions of logits, and the recipes built from them.

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
from typing import NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError
from puorl.pu.config import FilterConfig, check_choice


class Batch(NamedTuple):
    """What a loss is computed from; a batch in which all weights are 0 has loss and gradient 0."""

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
    """What distinguishes one PU learner from another."""

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
