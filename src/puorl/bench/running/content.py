"""What a training set consists of, as a short name that does not depend on the order of its rows.

Two sets with the same content are the same training, whatever pool their rows lie in: Oracle's rows
are the same whoever they were hidden among.
"""

import hashlib

import numpy as np

from puorl.core import fingerprint
from puorl.core.prng import generator
from puorl.data.training_set import TrainingSet

_COLUMNS = (("weight", 1.0), ("critic_weight", 1.0), ("score", 0.0))
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, bits well mixed: 2**64 over the golden ratio
_SHIFT = np.uint64(29)


def content(chosen: TrainingSet) -> str:
    """Hash of all values that a learner sees of the set, but the range of returns.

    That range counts only for learners that scale rewards by it.
    """
    marks = _row_marks(chosen)
    first = len(marks) if chosen.groups is None else chosen.groups.num_first
    digest = hashlib.blake2b(digest_size=16)
    for part in (marks[:first], marks[first:]):  # who is in which group is no matter of order
        digest.update(f"{len(part)}|".encode())
        digest.update(np.sort(part).tobytes())
    groups = chosen.groups
    drawn = None if groups is None else [groups.num_first, groups.first_share, groups.top]
    low, high = chosen.pool.action.min(axis=0), chosen.pool.action.max(axis=0)
    # Beyond [-1, 1] the pool's range of actions decides how they are scaled.
    beyond = max(-float(low.min()), float(high.max())) > 1.0 + 1e-6
    limits = [low.tolist(), high.tolist()] if beyond else None
    return fingerprint.of_settings({"rows": digest.hexdigest(), "groups": drawn, "actions": limits})


def _row_marks(chosen: TrainingSet) -> np.ndarray:
    """(k,) uint64. A number for every row that follows from its values alone."""
    pool, rows = chosen.pool, chosen.rows
    columns = [pool.obs, pool.action, pool.next_obs, pool.terminal[:, None]]
    if pool.next_action is not None:
        columns.append(pool.next_action)
    values = [column for matrix in columns for column in matrix[rows].T]
    if chosen.reward is not None:
        values.append(chosen.reward)
    elif pool.reward is not None:
        values.append(pool.reward[rows])
    for name, default in _COLUMNS:
        given = getattr(chosen, name)
        values.append(np.full(len(rows), default) if given is None else given)
    factors = generator(0, "bench", "content").integers(2**63, size=len(values), dtype=np.uint64)
    marks = np.zeros(len(rows), np.uint64)
    for value, factor in zip(values, factors, strict=True):
        bits = value.astype(np.float32).view(np.uint32).astype(np.uint64)
        mixed = (bits + factor) * _SPREAD
        marks += (mixed ^ (mixed >> _SHIFT)) * (factor | np.uint64(1))
    return marks
