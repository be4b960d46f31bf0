"""Risks of positive-unlabelled learning, as pure functions of logits.

A logit above 0 says target. ``alpha`` is the share of target rows among the unlabelled, everywhere:
the risks then speak of the unlabelled rows at hand, for one sample and for two. With a loss l and
means over the rows of a batch:

- uPU (du Plessis et al. 2015):  ``alpha E_P[l(+)] - alpha E_P[l(-)] + E_U[l(-)]``;
- nnPU (Kiryo et al. 2017):  ``alpha E_P[l(+)] + max(-slack, E_U[l(-)] - alpha E_P[l(-)])``;
- P versus U:  ``(E_P[ce(+)] + E_U[ce(-)]) / 2``, with which TEDn warms up and trains on the rows
  that CVIR keeps (Garg et al. 2021).

Weights are per row: 0 leaves a row out, and a batch in which all are 0 has loss and gradient 0.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError

LossName = Literal["sigmoid", "logistic"]


def row_loss(logit: jax.Array, sign: int, loss: LossName = "sigmoid") -> jax.Array:
    """Loss of each row if its class is ``sign`` (+1 target, -1 other).

    Args:
        logit: (...) float32.
        sign: +1 or -1.
        loss: ``sigmoid``: sigmoid(-z), the probability of the wrong class; ``logistic``:
            log(1 + exp(-z)), the cross-entropy; z is ``sign * logit``.

    Raises:
        ConfigError: Unknown loss.
    """
    margin = sign * logit
    if loss == "sigmoid":
        return jax.nn.sigmoid(-margin)
    if loss == "logistic":
        return jax.nn.softplus(-margin)
    raise ConfigError(f"loss: expected one of {', '.join(get_args(LossName))}, got {loss!r}")


def weighted_mean(value: jax.Array, weight: jax.Array | None) -> jax.Array:
    """Mean over rows, each counted with its weight; 0 if all weights are.

    Args:
        value: (n,) float32.
        weight: (n,) float32, not negative; None for a plain mean.

    Raises:
        ValueError: Shapes differ, which would otherwise broadcast in silence.
    """
    if weight is None:
        return jnp.mean(value)
    if value.shape != weight.shape:
        raise ValueError(f"value {value.shape} and weight {weight.shape} must have the same shape")
    total = jnp.sum(weight)
    # The inner where keeps the gradient finite as well.
    return jnp.where(total > 0, jnp.sum(weight * value) / jnp.where(total > 0, total, 1.0), 0.0)


def upu_risk(
    logit_p: jax.Array,
    logit_u: jax.Array,
    alpha: jax.Array | float,
    *,
    loss: LossName = "sigmoid",
    weight_p: jax.Array | None = None,
    weight_u: jax.Array | None = None,
) -> jax.Array:
    """The unbiased risk; may turn negative when a flexible network overfits.

    Args:
        logit_p: (p,) float32. Labelled rows.
        logit_u: (u,) float32. Unlabelled rows.
        alpha: Share of target rows among the unlabelled.
        loss: See `row_loss`.
        weight_p: (p,) float32 or None.
        weight_u: (u,) float32 or None.
    """
    positive, negative = _risk_parts(logit_p, logit_u, alpha, loss, weight_p, weight_u)
    return positive + negative


def nnpu_risk(
    logit_p: jax.Array,
    logit_u: jax.Array,
    alpha: jax.Array | float,
    *,
    loss: LossName = "sigmoid",
    slack: float = 0.0,
    step: float = 1.0,
    weight_p: jax.Array | None = None,
    weight_u: jax.Array | None = None,
) -> jax.Array:
    """The non-negative risk, with the gradient rule of its authors.

    The value is ``positive + max(-slack, negative)``. Where the bracket ``negative`` lies below
    ``-slack`` the gradient is that of ``-step * negative`` instead: descending it lifts the bracket
    back up, while the gradient of the value would leave it where it is.

    Args:
        logit_p: (p,) float32. Labelled rows.
        logit_u: (u,) float32. Unlabelled rows.
        alpha: Share of target rows among the unlabelled.
        loss: See `row_loss`.
        slack: How far below 0 the bracket may go (the authors' beta).
        step: Factor of the corrective gradient (the authors' gamma).
        weight_p: (p,) float32 or None.
        weight_u: (u,) float32 or None.
    """
    positive, negative = _risk_parts(logit_p, logit_u, alpha, loss, weight_p, weight_u)
    value = positive + jnp.maximum(-slack, negative)
    descended = jnp.where(negative < -slack, -step * negative, positive + negative)
    return descended + jax.lax.stop_gradient(value - descended)


def pvu_loss(
    logit_p: jax.Array,
    logit_u: jax.Array,
    *,
    weight_p: jax.Array | None = None,
    weight_u: jax.Array | None = None,
) -> jax.Array:
    """Cross-entropy with every unlabelled row as other, both sets counted alike.

    Args:
        logit_p: (p,) float32. Labelled rows.
        logit_u: (u,) float32. Unlabelled rows.
        weight_p: (p,) float32 or None.
        weight_u: (u,) float32 or None; CVIR's mask leaves the rejected rows out.
    """
    loss_p = weighted_mean(row_loss(logit_p, +1, "logistic"), weight_p)
    return 0.5 * (loss_p + weighted_mean(row_loss(logit_u, -1, "logistic"), weight_u))


def cvir_count(alpha: float, num_u: int) -> int:
    """How many unlabelled rows CVIR sets aside as probably the target's.

    >>> cvir_count(0.3, 1000)
    300
    """
    return min(max(int(alpha * num_u), 0), num_u - 1)


def cvir_mask(score_u: jax.Array, num_rejected: jax.Array | int) -> jax.Array:
    """Which unlabelled rows stay in training as others: all but those of the highest scores.

    Exactly ``num_rejected`` rows go, also when scores are equal (of those the later ones go).

    Args:
        score_u: (u,) float32. Higher = more like the target.
        num_rejected: From `cvir_count`; may be traced.

    Returns:
        (u,) bool, True = kept.
    """
    order = jnp.argsort(score_u, stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(len(order), dtype=order.dtype))
    return rank < len(order) - num_rejected


def zero_one_risk(logit_p: jax.Array, logit_u: jax.Array, alpha: jax.Array | float) -> jax.Array:
    """Share of wrong decisions on U as labelled rows and alpha tell it: no true labels needed.

    ``2 alpha err_P + P_U(target) - alpha`` with err_P the labelled rows decided wrongly and
    P_U(target) the unlabelled rows decided as target; may be slightly negative by chance.
    """
    missed = jnp.mean((logit_p <= 0).astype(jnp.float32))
    taken = jnp.mean((logit_u > 0).astype(jnp.float32))
    return 2.0 * alpha * missed + taken - alpha


def _risk_parts(
    logit_p: jax.Array,
    logit_u: jax.Array,
    alpha: jax.Array | float,
    loss: LossName,
    weight_p: jax.Array | None,
    weight_u: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """The target's part of the risk, and the bracket that estimates the others' part."""
    positive = alpha * weighted_mean(row_loss(logit_p, +1, loss), weight_p)
    mistaken = alpha * weighted_mean(row_loss(logit_p, -1, loss), weight_p)
    return positive, weighted_mean(row_loss(logit_u, -1, loss), weight_u) - mistaken
