"""uPU, the unbiased risk.

Du Plessis et al. 2015, "Convex Formulation for Learning from Positive and Unlabeled Data".

The risk can turn negative and then rewards overfitting; it is here to compare with nnPU. alpha is
estimated by BBE after each epoch, from a P-versus-U warm-up on.
"""

import jax

from puorl.pu.classifier import Recipe
from puorl.pu.losses import upu_risk
from puorl.pu.tedn import p_versus_u


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
