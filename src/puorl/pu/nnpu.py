"""nnPU, the non-negative risk.

Kiryo et al. 2017, "Positive-Unlabeled Learning with Non-Negative Risk Estimator".

alpha is never given: it is estimated by BBE after each epoch, from a P-versus-U warm-up on.
"""

import jax

from puorl.pu.classifier import Recipe
from puorl.pu.losses import nnpu_risk
from puorl.pu.tedn import p_versus_u


def nnpu(
    *,
    bbe_constant: float = 4.0,
    num_warm_up: int = 10,
    num_main: int = 100,
    alpha_sample: int | None = 20_000,
) -> Recipe:
    """Warm up on P versus U, then descend the risk."""
    return Recipe(
        "nnpu",
        warm_up=p_versus_u,
        main=non_negative,
        num_warm_up=num_warm_up,
        num_main=num_main,
        bbe_constant=bbe_constant,
        alpha_sample=alpha_sample,
    )


def non_negative(
    logit_p: jax.Array,
    logit_u: jax.Array,
    weight_p: jax.Array,
    weight_u: jax.Array,
    alpha: jax.Array,
) -> jax.Array:
    """The non-negative risk with the latest alpha."""
    return nnpu_risk(logit_p, logit_u, alpha, weight_p=weight_p, weight_u=weight_u)
