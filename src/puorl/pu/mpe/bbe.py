"""BBE, best bin estimation. Garg et al. 2021, "Mixture Proportion Estimation and PU Learning".

Above a high threshold hardly any other row remains, so the share of U above it over the share of P
above it comes close to alpha from above. The threshold is the one with the lowest upper confidence
bound on that ratio; the ratio itself is returned. Nearly exact when the domains separate, too high
when they overlap. The constant ``k`` of the bound is 4 in the authors' current code and was 1 when
the offline RL results of PUORL were made.

We differ from the authors' code in speed and in the clip to [0, 0.999] only.
"""

import math

import numpy as np

from puorl.core.errors import ConfigError
from puorl.pu.mpe.estimate import AlphaEstimate, check_scores
from puorl.pu.mpe.thresholds import best_thresholds


def bbe(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    k: float = 4.0,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> AlphaEstimate:
    """Estimate alpha from the bin of highest scores that is best known.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        k: Constant in the logarithm of the bound; 1 is the paper's setting.
        delta: Chance that the bound may fail.
        gamma: Slack of the bound.

    Returns:
        The estimate; 0 if no threshold has two labelled and three unlabelled rows above it.

    >>> bbe(np.r_[np.full(50, 0.9)], np.r_[np.full(31, 0.9), np.full(69, 0.1)]).value
    0.3
    """
    score_p, score_u = check_scores(score_p, score_u)
    num_p, num_u = best_thresholds(score_p, score_u)
    if len(num_p) == 0:
        return AlphaEstimate(0.0, None, "bbe")
    share_p = num_p / len(score_p)
    # The authors count U above the threshold from 0; kept, so that numbers agree to the last digit.
    ratio = (num_u - 1) / len(score_u) / share_p
    slack = bound_slack(len(score_p), len(score_u), k=k, delta=delta, gamma=gamma)
    best = np.argmin(ratio + slack / share_p)
    return AlphaEstimate(float(ratio[best]), None, "bbe")


def bound_slack(
    num_p: int, num_u: int, *, k: float = 4.0, delta: float = 0.1, gamma: float = 0.01
) -> float:
    """What the bound adds to the numerator of the ratio.

    Raises:
        ConfigError: The constants give no bound.
    """
    if not (0 < delta < k and gamma >= 0):
        raise ConfigError(
            f"bbe: expected 0 < delta < k and gamma >= 0, got delta={delta}, k={k}, gamma={gamma}"
        )
    log = math.log(k / delta)
    return (1 + gamma) * (math.sqrt(log / (2 * num_u)) + math.sqrt(log / (2 * num_p)))
