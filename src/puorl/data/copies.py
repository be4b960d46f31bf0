"""Rows and episodes that repeat others exactly, as in a log that was joined to itself.

A network that was trained on a row knows its copies: held-out scores of copies would look better
than those of new rows. So copies of a row, and copies of a whole episode, are held out together.
Rows are compared by 64-bit hashes of their values: the chance that any two different rows of a
million share a hash is about 3 in 10^8.
"""

import numpy as np

from puorl.data.transitions import Transitions

MOST_COPIES = 100
"""A row or an episode that is found more often is a state in which a machine rests, not a copy.

All of it in one fold would leave the others without that state.
"""
_CHUNK = 65_536
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def row_hashes(rows: Transitions) -> np.ndarray:
    """(n,) uint64. Hash state, action, next state, reward and terminal flag by their values."""
    parts = [rows.obs, rows.action, rows.next_obs, rows.terminal[:, None]]
    parts += [] if rows.reward is None else [rows.reward[:, None]]
    hashes = np.zeros(len(rows), np.uint64)
    for start in range(0, len(rows), _CHUNK):
        mine = hashes[start : start + _CHUNK]
        for part in parts:
            # Adding zero makes -0.0 and 0.0 the same value, as they are.
            values = part[start : start + _CHUNK].astype(np.float64) + 0.0
            for column in np.ascontiguousarray(values.T).view(np.uint64):
                mine[:] = _mixed(mine ^ column)
    return hashes


def find_originals(rows: Transitions, order: np.ndarray | None = None) -> np.ndarray | None:
    """(n,) int64. Find the first row with the same values; None where all rows differ."""
    hashes = row_hashes(rows)
    if _num_different(hashes) == len(rows):
        return None
    order = np.arange(len(rows)) if order is None else order
    same = _first_of_each(hashes[order])
    found = np.empty(len(rows), np.int64)
    found[order] = order[same]
    return found


def merge_copies(group: np.ndarray, rows: Transitions) -> np.ndarray:
    """(n,) int64. Give groups of rows with the same values, in the same order, one number."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    content = _mixed(row_hashes(rows)[order] ^ _mixed(place.astype(np.uint64)))
    ids = group[order][starts]
    number = np.empty(int(group.max()) + 1, np.int64)
    number[ids] = ids[_first_of_each(np.add.reduceat(content, starts))]
    return number[group]


def count_copies(rows: Transitions) -> int:
    """Count the rows that repeat an earlier one."""
    return len(rows) - _num_different(row_hashes(rows))


def _num_different(values: np.ndarray) -> int:
    ordered = np.sort(values)  # several times faster than np.unique
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, len(values))


def _first_of_each(values: np.ndarray) -> np.ndarray:
    """(n,) int64. Place of the first equal value; of values at rest, the place itself."""
    _, first, codes, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True
    )
    return np.where(counts[codes] > MOST_COPIES, np.arange(len(values)), first[codes])


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values + np.uint64(1)) * _MULTIPLIER  # wraps around
    return values ^ (values >> _SHIFT)
