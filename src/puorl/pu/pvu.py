"""P versus U: every unlabelled row counts as other, and the threshold makes up for it.

The classifier learns the odds of being labelled, which stay finite even for a sure target row:
Elkan and Noto 2008, "Learning Classifiers from Only Positive and Unlabeled Data". With P and U
shown equally often, a row is more likely the target's than not when these odds exceed
1 / (2 alpha).
"""

import math

from puorl.pu.classifier import Recipe
from puorl.pu.tedn import p_versus_u

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
