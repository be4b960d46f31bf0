"""The upper bound: the same network told the truth. Only benchmark code can call it.

The truth is handed in as positions; nothing here asks for it.
"""

import numpy as np

from puorl.pu.classifier import Recipe
from puorl.pu.tedn import p_versus_u

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
