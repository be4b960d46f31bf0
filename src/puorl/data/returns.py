"""Returns of complete episodes, and the reward scale that follows from them."""

from collections.abc import Iterable

import numpy as np

from puorl.data.transitions import Transitions


def episode_returns(rows: Transitions) -> np.ndarray:
    """(e,) float64. Undiscounted return of every complete episode, in order of episode id.

    An episode is complete when its task ended (terminal) or a time limit was reached: a timeout in
    an episode as long as the longest. Shorter ones were cut by something else, such as the end of
    the file, and their returns say nothing. Empty without rewards or episodes.
    """
    if rows.reward is None or rows.episode is None or len(rows) == 0:
        return np.empty(0)
    ids, codes = np.unique(rows.episode, return_inverse=True)
    last = np.zeros(len(ids), np.int64)
    last[codes] = np.arange(len(rows))  # later rows overwrite earlier ones
    totals = np.bincount(codes, weights=rows.reward, minlength=len(ids))
    length = np.bincount(codes, minlength=len(ids))
    return totals[rows.terminal[last] | (rows.timeout[last] & (length == length.max()))]


def return_range(parts: Iterable[Transitions]) -> tuple[float, float] | None:
    """Smallest and largest return over all complete episodes; None when there are fewer than two.

    IQL divides rewards by (largest - smallest) / 1000. It must be taken from whole episodes
    before rows are drawn: a drawn row has no episode left.
    """
    returns = np.concatenate([np.empty(0), *(episode_returns(rows) for rows in parts)])
    if len(returns) < 2:
        return None
    return float(returns.min()), float(returns.max())
