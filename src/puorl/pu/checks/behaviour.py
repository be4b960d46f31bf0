"""Checks of the labels: do (s, a) alone separate the domains, and are labels a random draw?

Shortcut: the same learner, given (s, a) alone, is compared with the one with all inputs. Target
rows among the unlabelled lower both AUROCs by the same factor ``1 - alpha``, so the fraction of the
AUROC above one half that behaviour explains does not depend on alpha.

Selection: held-out labelled rows that are kept are compared with kept unlabelled rows, in (s, a).
The filter chose both by the same rule, so its preferences do not distinguish them. Labels given in
some places only do, and so do the wrong rows among the kept ones: the latter explain at most half
of their fraction, which is allowed for. Undetectable: where the filter keeps only what looks like
labelled rows, the kept rows look like them, and recall is overestimated. The model is ridge
regression on the columns, their squares and random features, cross-fitted by group.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puorl.core.stats import Estimate, group_numbers
from puorl.data.split import PUSplit
from puorl.pu.checks.auroc import (
    CHANCE,
    DETECTABLE_AUROC,
    HeldOutScores,
    Placements,
    auroc_of,
    placements,
)

LARGE_FRACTION = 0.8
"""From here on it is a shortcut: where all inputs separate the domains perfectly, (s, a) alone
would order nine of ten pairs of a target row and another correctly."""
_LEAST_LOW_END = 0.5
"""Lower end of the fraction from which behaviour explains more than all else does."""


@dataclass(frozen=True)
class Shortcut:
    """Result of the check whether behaviour, (s, a) alone, separates the domains."""

    auroc: Estimate
    """Of held-out labelled against unlabelled rows, with all inputs."""
    auroc_behaviour: Estimate
    """The same, with (s, a) alone."""
    fraction: float
    """Fraction of the AUROC above one half that behaviour alone gives; 0 to 1."""
    is_shortcut: bool
    is_sure: bool = True
    """False where the intervals are too wide to decide."""

    @property
    def hardly_separated(self) -> bool:
        """Whether all inputs separate so little that there is nothing to explain."""
        return self.auroc.low <= CHANCE and self.auroc.value < DETECTABLE_AUROC

    @property
    def is_large(self) -> bool:
        """Whether the fraction is that of a shortcut, certain or not."""
        return self.fraction >= LARGE_FRACTION


@dataclass(frozen=True)
class Selection:
    """Result of the check whether labelled rows are a random draw of the target's rows."""

    auroc: Estimate
    """Of labelled against kept unlabelled rows; 0.5 for a random draw."""
    is_random: bool
    """Nothing contradicts it."""
    sentence: str
    is_known: bool = True
    """False where too little is kept to decide."""


def check_shortcut(full: HeldOutScores, behaviour: HeldOutScores) -> Shortcut:
    """Compare the AUROC of all inputs with that of (s, a) alone.

    Args:
        full: Scores with all inputs.
        behaviour: Scores with (s, a), by the same learner.
    """
    found, by_behaviour = full.auroc, behaviour.auroc
    whole = found.value - CHANCE
    fraction = float(np.clip((by_behaviour.value - CHANCE) / whole, 0, 1)) if whole > 0 else 0.0
    # Both AUROCs come from the same rows and rise together; independence is cautious.
    half_width = np.hypot(by_behaviour.half_width, fraction * found.half_width)
    error = float(half_width) / whole if whole > 0 else np.inf
    is_large = fraction >= LARGE_FRACTION
    detectable = found.low > CHANCE and by_behaviour.low > CHANCE
    is_shortcut = detectable and is_large and fraction - error > _LEAST_LOW_END
    # A shortcut and its absence are allowed the same error.
    is_close = fraction + error < LARGE_FRACTION or error < LARGE_FRACTION - _LEAST_LOW_END
    is_none = found.low > CHANCE and not is_large and is_close
    return Shortcut(found, by_behaviour, fraction, is_shortcut, bool(is_shortcut or is_none))


_MAX_ROWS = 20_000
"""Rows of each kind that are compared."""
_LEAST_ROWS = 20
_NUM_FOLDS = 5
_NUM_FEATURES = 128
_RIDGE = 10.0
_WIDE = 0.4
"""An interval wider than this holds any draw."""
_ALLOWED = 0.03
"""AUROC above one half that makes no practical difference."""


class _Kind(NamedTuple):
    """Kept rows of one kind."""

    x: np.ndarray
    group: np.ndarray | None
    fold: np.ndarray


def check_selection(
    split: PUSplit, scores: HeldOutScores, *, rng: np.random.Generator, groups: str = "episodes"
) -> Selection:
    """Separate kept labelled rows from kept unlabelled ones, as far as possible.

    Args:
        split: The rows.
        scores: Which are kept.
        rng: Draws rows, folds and features.
        groups: Plural name of groups of rows.
    """
    labelled = _kind(split, scores.position_p, scores.kept_p, scores.group_p, rng)
    unlabelled = _kind(split, scores.position_u, scores.kept_u, scores.group_u, rng)
    if labelled is None or unlabelled is None:
        return _unknown(Estimate(CHANCE, 0.0, 1.0), scores, groups)
    found = _cross_fitted_auroc(labelled, unlabelled, rng)
    kept_p, kept_u = float(scores.kept_p.mean()), float(scores.kept_u.mean())
    wrong = float(np.clip(1 - scores.alpha.value * kept_p / kept_u, 0, 1))
    if found.low > 0.5 + max(_ALLOWED, wrong / 2):
        sentence = (
            f"State and action separate labelled rows from kept ones (AUROC {found.value:.2f}, "
            "chance is 0.50): they are no random draw of the target's rows, and alpha and recall "
            "may be off."
        )
        return Selection(found, is_random=False, sentence=sentence)
    if 2 * found.half_width > _WIDE:
        return _unknown(found, scores, groups)
    sentence = "Nothing contradicts that the labelled rows are a random draw of the target's."
    return Selection(found, is_random=True, sentence=sentence)


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


def _cross_fitted_auroc(labelled: _Kind, unlabelled: _Kind, rng: np.random.Generator) -> Estimate:
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
    return auroc_of(Placements(place_p, place_u), group_p=labelled.group, group_u=unlabelled.group)


def _ridge(f_p: np.ndarray, f_u: np.ndarray) -> np.ndarray:
    """Least squares to +1 for labelled and -1 for unlabelled rows, both sets weighted alike."""
    gram = f_p.T @ f_p / len(f_p) + f_u.T @ f_u / len(f_u)
    smallest = min(len(f_p), len(f_u))
    gram += _RIDGE / smallest * np.eye(len(gram))
    return np.linalg.solve(gram, f_p.mean(axis=0) - f_u.mean(axis=0))


def _unknown(found: Estimate, scores: HeldOutScores, groups: str) -> Selection:
    few = "rows" if scores.group_p is None else f"rows or {groups}"
    sentence = f"Whether the labelled rows are a random draw is not known: too few {few} are kept."
    return Selection(found, is_random=True, sentence=sentence, is_known=False)
