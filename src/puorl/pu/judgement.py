"""Judgement: what a filter says of rows it did not learn from; all that a report needs."""

from dataclasses import dataclass

import numpy as np

from puorl.pu.mpe.estimate import AlphaEstimate


@dataclass(frozen=True, eq=False)
class Judgement:
    """Scores and decisions about labelled and unlabelled rows, made alike for both.

    Rows that cannot be judged (their next state is unknown) are left out of ``position_p`` and
    ``position_u``; all arrays with the same suffix have the same length.
    """

    position_p: np.ndarray
    """(p,) int64 pool positions of the labelled rows, each judged by networks that did not learn
    from it."""
    position_u: np.ndarray
    """(u,) int64 pool positions of the unlabelled rows."""
    score_p: np.ndarray
    """(p,) float32. How likely each labelled row is the target's."""
    score_u: np.ndarray
    """(u,) float32. The same for unlabelled rows."""
    kept_p: np.ndarray
    """(p,) bool. Would be kept, by the rule that decides about unlabelled rows."""
    kept_u: np.ndarray
    """(u,) bool."""
    group_p: np.ndarray | None
    """(p,) int64. Rows of one number are not independent (an episode); None if all are."""
    group_u: np.ndarray | None
    """(u,) int64."""
    alpha: AlphaEstimate
    """Share of target rows among the unlabelled, from these scores."""
