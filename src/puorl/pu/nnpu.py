"""nnPU, the non-negative risk.

Kiryo et al. 2017, "Positive-Unlabeled Learning with Non-Negative Risk Estimator".

alpha is never given: it is estimated by BBE after each epoch, from a P-versus-U warm-up on.
"""

import jax

from puorl.pu.classifier import Recipe
from puorl.pu.losses import nnpu_risk
from puorl.pu.tedn import p_versus_u


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
