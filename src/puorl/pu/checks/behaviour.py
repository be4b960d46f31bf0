"""Is it the dynamics that tells the domains apart, or only who was acting and where?

The same learner, given (s, a) alone, is judged beside the one with all inputs. Target rows among
the unlabelled lower both areas by the same factor ``1 - alpha``, so the share of the separation
above one half that behaviour gives does not depend on alpha.
"""

from typing import NamedTuple

import numpy as np

from puorl.data.split import PUSplit
from puorl.pu.checks.auroc import Placements, area, group_numbers, placements, separation
from puorl.pu.cross_fit import HeldOutScores
from puorl.pu.report import Measured, Selection, Shortcut

LARGE_SHARE = 0.8
"""From here on it is a shortcut: where all inputs part the domains perfectly, (s, a) alone would
then order nine of ten pairs of a target row and another rightly."""
_LEAST_LOW_END = 0.5
"""The share's lower end must say that behaviour gives more than all else does."""


def check_shortcut(full: HeldOutScores, behaviour: HeldOutScores) -> Shortcut:
    """Compare the separation by all inputs with that by (s, a) alone.

    Args:
        full: Judged with all inputs.
        behaviour: Judged with (s, a), by the same learner.
    """
    separated, by_behaviour = _separation(full), _separation(behaviour)
    whole = separated.value - 0.5
    share = float(np.clip((by_behaviour.value - 0.5) / whole, 0, 1)) if whole > 0 else 0.0
    visible = separated.low > 0.5 and by_behaviour.low > 0.5
    error = _error(share, separated, by_behaviour) if whole > 0 else np.inf
    is_shortcut = visible and share >= LARGE_SHARE and share - error > _LEAST_LOW_END
    # As much doubt as a shortcut may have is allowed here too.
    is_close = share + error < LARGE_SHARE or error < LARGE_SHARE - _LEAST_LOW_END
    is_none = separated.low > 0.5 and share < LARGE_SHARE and is_close
    return Shortcut(
        separation=separated,
        separation_behaviour=by_behaviour,
        share=share,
        is_shortcut=is_shortcut,
        is_sure=bool(is_shortcut or is_none),
    )


def _separation(judged: HeldOutScores) -> Measured:
    return separation(
        judged.score_p, judged.score_u, group_p=judged.group_p, group_u=judged.group_u
    )


def _error(share: float, separated: Measured, by_behaviour: Measured) -> float:
    """How far the share's interval reaches, by propagation of both errors.

    Both areas come from the same rows and rise together; taking them as independent is cautious.
    """
    error = np.hypot(_half_width(by_behaviour), share * _half_width(separated))
    return float(error) / (separated.value - 0.5)


def _half_width(measured: Measured) -> float:
    return (measured.high - measured.low) / 2


_MAX_ROWS = 20_000
"""Rows of each kind that are compared."""
_LEAST_ROWS = 20
_NUM_FOLDS = 5
_NUM_FEATURES = 128
_RIDGE = 10.0
_WIDE = 0.4
"""An interval wider than this would hold any draw."""
_ALLOWED = 0.03
"""Separation above one half that would not matter to anyone."""


class _Kind(NamedTuple):
    """Kept rows of one kind."""

    x: np.ndarray
    group: np.ndarray | None
    fold: np.ndarray


def check_selection(
    split: PUSplit, judged: HeldOutScores, *, rng: np.random.Generator, groups: str = "episodes"
) -> Selection:
    """Try to tell kept labelled rows from kept unlabelled ones.

    Args:
        split: Holds the rows.
        judged: Says which are kept.
        rng: Draws rows, folds and features.
        groups: What groups of rows are called.
    """
    labelled = _kind(split, judged.position_p, judged.kept_p, judged.group_p, rng)
    unlabelled = _kind(split, judged.position_u, judged.kept_u, judged.group_u, rng)
    if labelled is None or unlabelled is None:
        return _unknown(Measured(0.5, 0.0, 1.0), judged, groups)
    found = _told_apart(labelled, unlabelled, rng)
    allowed = 0.5 + max(_ALLOWED, _share_of_wrong_rows(judged) / 2)
    is_random = found.low <= allowed
    if is_random and found.high - found.low > _WIDE:
        return _unknown(found, judged, groups)
    return Selection(found, is_random, _sentence(found, is_random))


def _kind(
    split: PUSplit,
    position: np.ndarray,
    kept: np.ndarray,
    group: np.ndarray | None,
    rng: np.random.Generator,
) -> _Kind | None:
    """A sample of the kept rows with folds; None if there are too few."""
    chosen = np.flatnonzero(kept)
    if len(chosen) > _MAX_ROWS:
        chosen = np.sort(rng.choice(chosen, _MAX_ROWS, replace=False))
    mine = None if group is None else group[chosen]
    number, num_groups = group_numbers(mine, len(chosen))
    if len(chosen) < _LEAST_ROWS or num_groups < _NUM_FOLDS:
        return None
    fold = rng.permutation(num_groups)[number] % _NUM_FOLDS
    rows = split.pool.rows
    at = position[chosen]
    x = np.concatenate([rows.obs[at], rows.action[at]], axis=1).astype(np.float64)
    return _Kind(x, mine, fold)


def _told_apart(labelled: _Kind, unlabelled: _Kind, rng: np.random.Generator) -> Measured:
    both = np.concatenate([labelled.x, unlabelled.x])
    scale = both.std(axis=0)
    varies = scale > 0
    mean, scale = both.mean(axis=0)[varies], scale[varies]
    weight = rng.standard_normal((len(mean), _NUM_FEATURES)) / np.sqrt(max(len(mean), 1))
    phase = rng.uniform(0, 2 * np.pi, _NUM_FEATURES)

    def features(x: np.ndarray) -> np.ndarray:
        x = np.clip((x[:, varies] - mean) / scale, -5, 5)
        waves = np.sqrt(2) * np.cos(2 * x @ weight + phase)
        return np.concatenate([np.ones((len(x), 1)), x, x**2 - 1, waves], axis=1)

    f_p, f_u = features(labelled.x), features(unlabelled.x)
    place_p, place_u = np.empty(len(f_p)), np.empty(len(f_u))
    for fold in range(_NUM_FOLDS):
        in_p, in_u = labelled.fold == fold, unlabelled.fold == fold
        weights = _ridge(f_p[~in_p], f_u[~in_u])
        placed = placements(f_p[in_p] @ weights, f_u[in_u] @ weights)
        place_p[in_p], place_u[in_u] = placed
    return area(Placements(place_p, place_u), group_p=labelled.group, group_u=unlabelled.group)


def _ridge(f_p: np.ndarray, f_u: np.ndarray) -> np.ndarray:
    """Least squares with target +1 for labelled and -1 for unlabelled rows, both weighing alike."""
    gram = f_p.T @ f_p / len(f_p) + f_u.T @ f_u / len(f_u)
    smallest = min(len(f_p), len(f_u))
    gram += _RIDGE / smallest * np.eye(len(gram))
    return np.linalg.solve(gram, f_p.mean(axis=0) - f_u.mean(axis=0))


def _share_of_wrong_rows(judged: HeldOutScores) -> float:
    share = float(judged.kept_u.mean())
    return float(np.clip(1 - judged.alpha.value * float(judged.kept_p.mean()) / share, 0, 1))


def _unknown(found: Measured, judged: HeldOutScores, groups: str) -> Selection:
    few = "rows" if judged.group_p is None else f"rows or {groups}"
    sentence = (
        f"Whether the labelled rows are a random draw cannot be said: too few {few} are kept."
    )
    return Selection(found, is_random=True, sentence=sentence, is_known=False)


def _sentence(found: Measured, is_random: bool) -> str:
    if is_random:
        return "Nothing speaks against the labelled rows being a random draw of the target's."
    return (
        f"Labelled rows can be told from kept ones by state and action ({found.value:.2f}, chance "
        "is 0.50): they are no random draw of the target's rows, and alpha and recall may be off."
    )
