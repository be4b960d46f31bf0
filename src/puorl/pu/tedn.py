"""TEDn: BBE and CVIR in turn. Garg et al. 2021, "Mixture Proportion Estimation and PU Learning".

Warm-up: every unlabelled row counts as other. Then, in each epoch: leave out the share alpha of U
that looks most like the target (CVIR), train on the rest against P, and estimate alpha anew from
held-out rows (BBE).

Deviations from the released PUORL code:
1. The rejection threshold is a quantile of a sample of U, not the result of ranking all of it
   (``rank_sample=None`` ranks all).
2. Rows of U are drawn with replacement within an epoch; an epoch shows about one in a hundred.
3. alpha is clipped to [0, 0.999].
"""

import jax

from puorl.pu.classifier import Recipe
from puorl.pu.losses import pvu_loss


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
