"""Scott's estimator: the least of many exact upper bounds.

Scott 2015, "A Rate of Convergence for Mixture Proportion Estimation, with Application to Learning
from Noisy Labels".

As in BBE the ratio of the shares above a threshold is looked at, but with an exact binomial bound
on each side, and the bound itself is returned. Each bound holds for its own threshold, so the least
of them may fall a little below alpha when the domains separate; above it when they overlap, but by
less than BBE.
"""

import numpy as np

from puorl.core.errors import ConfigError
from puorl.pu.mpe.binomial import upper_bounds
from puorl.pu.mpe.estimate import AlphaEstimate, check_scores
from puorl.pu.mpe.thresholds import best_thresholds


def scott(score_p: np.ndarray, score_u: np.ndarray, *, delta: float = 0.1) -> AlphaEstimate:
    """Estimate alpha by the least upper bound over all thresholds.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        delta: Chance that one bound, above or below the line, fails.

    Returns:
        The estimate; 0 if no threshold has two labelled and three unlabelled rows above it.

    Raises:
        ConfigError: ``delta`` is not between 0 and 1.
    """
    if not 0 < delta < 1:
        raise ConfigError(f"scott: expected 0 < delta < 1, got {delta}")
    score_p, score_u = check_scores(score_p, score_u)
    num_p, num_u = best_thresholds(score_p, score_u)
    if len(num_p) == 0:
        return AlphaEstimate(0.0, None, "scott")
    above = upper_bounds(num_u, len(score_u), delta)
    below = 1.0 - upper_bounds(len(score_p) - num_p, len(score_p), delta)
    ratio = above / np.maximum(below, 1e-12)
    return AlphaEstimate(float(ratio.min()), None, "scott")
