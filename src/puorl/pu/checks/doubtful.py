"""The episodes, or values of a column, about which the filter is least sure."""

from dataclasses import dataclass

import numpy as np

from puorl.data.split import PUSplit
from puorl.pu.checks.auroc import HeldOutScores
from puorl.pu.units import Unit, number_units

MOST = 12
_SURE = 0.4
"""Distance from the threshold (at most 0.5) from which an episode is not doubtful."""


@dataclass(frozen=True)
class DoubtfulEpisode:
    """An episode about which the filter is unsure, to be checked by a person."""

    episode: str
    """Its id, a text id where a column has one; or the value of the column that is decided by."""
    num_rows: int
    mean_score: float
    kept_fraction: float


def doubtful_episodes(
    split: PUSplit, scores: HeldOutScores, kept: np.ndarray, *, unit: Unit
) -> tuple[DoubtfulEpisode, ...]:
    """List episodes of unlabelled rows by the distance of their mean score from the threshold.

    Scores are held out; the kept fraction follows from the filter's own decisions (``kept``, over
    the unlabelled rows). Empty where rows carry no episode, or where all episodes are clear. Where
    the unit is a column, its values are listed instead.
    """
    if (unit.kind != "column" and split.pool.episode is None) or len(scores.position_u) == 0:
        return ()
    found = number_units(split.pool, unit if unit.kind == "column" else Unit("episode"))
    ids, number = found.name, found.number
    present, number = np.unique(number[scores.position_u], return_inverse=True)
    ids = ids[present]
    num_rows = np.bincount(number)
    mean = np.bincount(number, scores.score_u) / num_rows
    is_kept = np.zeros(len(split.pool), bool)
    is_kept[split.unlabelled] = kept
    fraction = np.bincount(number, is_kept[scores.position_u]) / num_rows
    # The score above which as many rows lie as are kept; 0.5 where that is none or all.
    threshold, num_left = 0.5, int(np.count_nonzero(~scores.kept_u))
    if 0 < num_left < len(scores.kept_u):
        around = np.sort(scores.score_u)[num_left - 1 : num_left + 1]
        threshold = float(np.clip((around[0] + around[1]) / 2, 1e-6, 1 - 1e-6))
    distance = np.abs(np.interp(mean, [0.0, threshold, 1.0], [0.0, 0.5, 1.0]) - 0.5)
    order = np.argsort(distance, kind="stable")[:MOST]
    return tuple(
        DoubtfulEpisode(str(ids[i]), int(num_rows[i]), float(mean[i]), float(fraction[i]))
        for i in order
        if distance[i] < _SURE
    )
