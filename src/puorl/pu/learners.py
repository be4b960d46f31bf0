"""Recipes of the PU learners: TEDn, nnPU, uPU and P-versus-U, and the supervised upper bound."""

import math

import jax
import numpy as np

from puorl.pu.classifier import Recipe
from puorl.pu.losses import nnpu_risk, pvu_loss, upu_risk


def p_versus_u(
    logit_p: jax.Array,
    logit_u: jax.Array,
    weight_p: jax.Array,
    weight_u: jax.Array,
    alpha: jax.Array,
) -> jax.Array:
    """Cross-entropy of P against what is left of U; alpha acts through the rejection alone."""
    del alpha
    return pvu_loss(logit_p, logit_u, weight_p=weight_p, weight_u=weight_u)


TEDN = Recipe("tedn", warm_up=p_versus_u, main=p_versus_u, rejects=True)
"""The paper's learner; ``bbe_constant=1`` is the constant of its released code."""


def non_negative(
    logit_p: jax.Array,
    logit_u: jax.Array,
    weight_p: jax.Array,
    weight_u: jax.Array,
    alpha: jax.Array,
) -> jax.Array:
    """The non-negative risk with the latest alpha."""
    return nnpu_risk(logit_p, logit_u, alpha, weight_p=weight_p, weight_u=weight_u)


NNPU = Recipe("nnpu", warm_up=p_versus_u, main=non_negative)
"""Warm up on P versus U, then descend the risk."""


def unbiased(
    logit_p: jax.Array,
    logit_u: jax.Array,
    weight_p: jax.Array,
    weight_u: jax.Array,
    alpha: jax.Array,
) -> jax.Array:
    """The unbiased risk with the latest alpha."""
    return upu_risk(logit_p, logit_u, alpha, weight_p=weight_p, weight_u=weight_u)


UPU = Recipe("upu", warm_up=p_versus_u, main=unbiased)
"""Warm up on P versus U, then descend the risk."""


PVU = Recipe("pvu", warm_up=p_versus_u, main=p_versus_u, num_warm_up=110, num_main=0)
"""All epochs are warm-up: the plain baseline of TEDn's authors."""


def decision_logit(alpha: float) -> float:
    """The logit above which a row is more likely the target's than not.

    The classifier's odds are p_P(x) / p_U(x), and the posterior in U is alpha times that: 1/2 is
    passed at odds 1 / (2 alpha).

    >>> decision_logit(0.5)
    0.0
    """
    return math.log(0.5 / max(alpha, 1e-6))


SUPERVISED = Recipe("supervised", warm_up=p_versus_u, main=p_versus_u, num_warm_up=110, num_main=0)
"""Target rows against other rows, both as handed in."""


def true_sets(
    labelled: np.ndarray, unlabelled: np.ndarray, is_target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all target rows and of all others, for `classifier.Rows`.

    Args:
        labelled: (p,) int64 positions in the pool.
        unlabelled: (u,) int64 positions in the pool.
        is_target: (n,) bool over the pool: the truth, from the caller.
    """
    mine = is_target[unlabelled]
    return np.concatenate([labelled, unlabelled[mine]]), unlabelled[~mine]
