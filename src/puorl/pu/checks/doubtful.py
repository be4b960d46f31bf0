"""The episodes, or values of a column, about which the filter is least sure."""

import numpy as np

from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.cross_fit import HeldOutScores
from puorl.pu.report import DoubtfulEpisode
from puorl.pu.units import Unit

MOST = 12
_SURE = 0.4
"""Distance from the decision (at most 0.5) from which on an episode is not doubtful."""


def doubtful_episodes(
    split: PUSplit, judged: HeldOutScores, kept: np.ndarray, *, unit: Unit
) -> tuple[DoubtfulEpisode, ...]:
    """Episodes of unlabelled rows whose mean score lies nearest the decision, most doubtful first.

    Scores are those of networks that did not learn from the rows; the share kept is what the filter
    decides (``kept``, over the unlabelled rows). None where rows carry no episode, or where all
    episodes are clear. Where the values of a column are decided about, they are listed instead.
    """
    numbered = split.pool.columns[unit.column] if unit.kind == "column" else split.pool.episode
    if numbered is None or len(judged.position_u) == 0:
        return ()
    ids, first, number = np.unique(numbered, return_index=True, return_inverse=True)
    if unit.kind != "column":
        ids = _names(split.pool, ids, first, number)
    present, number = np.unique(number[judged.position_u], return_inverse=True)
    ids = ids[present]
    num_rows = np.bincount(number)
    mean = np.bincount(number, judged.score_u) / num_rows
    is_kept = np.zeros(len(split.pool), bool)
    is_kept[split.unlabelled] = kept
    share = np.bincount(number, is_kept[judged.position_u]) / num_rows
    distance = np.abs(_centred(mean, _decision(judged)) - 0.5)
    order = np.argsort(distance, kind="stable")[:MOST]
    return tuple(
        DoubtfulEpisode(str(ids[i]), int(num_rows[i]), float(mean[i]), float(share[i]))
        for i in order
        if distance[i] < _SURE
    )


def _names(pool: Dataset, ids: np.ndarray, first: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Text ids of the episodes, where a column names each of them; else their numbers."""
    for column in pool.columns.values():
        if column.dtype.kind != "U":
            continue
        name = column[first]
        if len(np.unique(name)) == len(name) and np.array_equal(name[number], column):
            return name
    return ids


def _decision(judged: HeldOutScores) -> float:
    """The score above which lie as many rows as are kept; one half where that is none or all."""
    num_left = int(np.count_nonzero(~judged.kept_u))
    if num_left in (0, len(judged.kept_u)):
        return 0.5
    below, above = np.sort(judged.score_u)[num_left - 1 : num_left + 1]
    return float(np.clip((below + above) / 2, 1e-6, 1 - 1e-6))


def _centred(score: np.ndarray, decision: float) -> np.ndarray:
    """Scores stretched so that the decision lies at one half."""
    return np.interp(score, [0.0, decision, 1.0], [0.0, 0.5, 1.0])
