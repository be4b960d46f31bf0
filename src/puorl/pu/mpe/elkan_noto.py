"""EN, the quotient of mean scores.

Elkan and Noto 2008, "Learning classifiers from only positive and unlabeled data".

A calibrated P-versus-U classifier gives a target row the labelled share c of target rows and any
other row 0, so its mean over U is ``alpha c`` and its mean over P is ``c``. Since P and U share no
row the quotient is alpha of that U for one sample and for two; c itself depends on the sizes. Too
high when the domains overlap or the classifier is not calibrated.
"""

import numpy as np

from puorl.core.errors import DataError
from puorl.pu.mpe.estimate import AlphaEstimate, check_probabilities


def en(score_p: np.ndarray, score_u: np.ndarray) -> AlphaEstimate:
    """Estimate alpha as the quotient of mean scores.

    Args:
        score_p: (p,) float. Probability of the target (or of being labelled) of held-out labelled
            rows.
        score_u: (u,) float. The same for held-out unlabelled rows.

    >>> en(np.array([0.8, 1.0]), np.array([0.9, 0.0, 0.0])).value
    0.3333333333333333

    Raises:
        DataError: Not probabilities, or all labelled rows have 0.
    """
    score_p, score_u = check_probabilities(score_p, score_u)
    mean_p = float(score_p.mean(dtype=np.float64))
    if mean_p == 0:
        raise DataError(
            "score_p: expected some probabilities above 0, got only zeros; "
            "the classifier has not learnt the labelled rows"
        )
    return AlphaEstimate(float(score_u.mean(dtype=np.float64)) / mean_p, None, "en")
