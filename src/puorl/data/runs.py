"""Runs: rows that follow one another, for tools that take the next row for the next state."""

import numpy as np

from puorl.data.transitions import Transitions


def joined(
    obs: np.ndarray, next_obs: np.ndarray, ended: np.ndarray, episode: np.ndarray | None
) -> np.ndarray:
    """(n - 1,) bool. Whether a row's next state is, bit for bit, the state of the row below."""
    # Bits, not values: -0.0 must not come back as 0.0.
    follows = (_bits(next_obs[:-1]) == _bits(obs[1:])).all(axis=1) & ~ended[:-1]
    return follows if episode is None else follows & (episode[1:] == episode[:-1])


def cut(rows: Transitions) -> np.ndarray:
    """(n,) bool. The timeouts, and all rows whose run ends although the task does not.

    Where rows between two others were left out, a reader without next states would take the second
    for what followed the first.
    """
    ended = rows.terminal | rows.timeout
    breaks = np.ones(len(rows), bool)
    breaks[:-1] = ~joined(rows.obs, rows.next_obs, ended, rows.episode)
    return rows.timeout | (breaks & ~rows.terminal)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
