"""HeldOutScores: what a filter says of rows it did not learn from; all that a report needs."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

from puorl.core.checkpoint import Checkpoint
from puorl.core.hashing import generator
from puorl.data.split import PUSplit
from puorl.pu import fitting
from puorl.pu.alpha import AlphaEstimate
from puorl.pu.config import FilterConfig
from puorl.pu.fitting import HeldOut, estimate_alpha, held_out_logits, learn, row_threshold, train
from puorl.pu.model import FilterModel
from puorl.pu.units import Grouping, by_episode, group, parse_unit


@dataclass(frozen=True, eq=False)
class HeldOutScores:
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


Mode = Literal["hard", "top_alpha", "soft"]

MANY_LABELLED = 3_000
"""Labelled rows from which three folds are enough: two thirds of them teach nearly as much."""


def keep(score: np.ndarray, mode: Mode, alpha: float) -> np.ndarray:
    """(n,) bool. Which rows a mode keeps; soft weights count as hard.

    Rows of equal scores are kept or left together, so that no unit is cut in two: ``top_alpha``
    comes as near to its number as that allows, and keeps some where it should.
    """
    if mode != "top_alpha":
        return score >= 0.5
    return score >= _cut(score, int(alpha * len(score)))


def judge(
    learnt: FilterModel,
    split: PUSplit,
    mode: Mode,
    *,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool = False,
) -> HeldOutScores:
    """What a filter says of rows it did not learn from.

    Fits over folds have held every row out already. A split by rows is learnt again, five times
    with a fifth of P and of U held out, or three times with a third where labels are many; the
    models of the dynamics saw no labels and stay. Each of these networks keeps as many of its
    held-out unlabelled rows as the filter does: how much is kept differs from fit to fit, with the
    alpha that each has found, and recall goes with it.
    """
    unit = parse_unit(learnt.unit)
    if unit.kind == "transition" and split.unit == "transition":
        kept = np.zeros(len(split.pool), bool)
        score = learnt.probability(learnt.logits(split, split.unlabelled))
        kept[split.unlabelled] = keep(score, mode, learnt.alpha.value)
        return _judge_again(
            learnt, split, mode, kept, seed=seed, checkpoint=checkpoint, progress=progress
        )
    grouping = None if unit.kind == "transition" else group(split, unit, learnt.seed)
    p, u = _sets(split, grouping)
    every = np.full(len(split.pool), np.nan, np.float32)
    positions = np.concatenate([p, u])
    every[positions] = learnt.held_out_logits(split, positions)
    number = split.pool.episode if grouping is None else grouping.together
    return _judgement(learnt, p, u, HeldOut(every[p], every[u]), number, mode)


def cross_fit_behaviour(
    learnt: FilterModel,
    split: PUSplit,
    mode: Mode,
    *,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool,
) -> HeldOutScores:
    """The same learner with (s, a) alone; of a split by rows one fold is enough."""
    config = behaviour_config(learnt.config)
    if parse_unit(learnt.unit).kind == "transition" and split.unit == "transition":
        encoder = learnt.encoder.behaviour()
        behaviour = dataclasses.replace(learnt, config=config, encoder=encoder)
        return _judge_again(
            behaviour,
            split,
            mode,
            None,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            num_lanes=1,
            stage="behaviour",
        )
    own = checkpoint.named("behaviour")
    again = learn(split, config, unit=learnt.unit, seed=seed, checkpoint=own, progress=progress)
    return judge(again, split, mode, seed=seed, checkpoint=own)


def behaviour_config(config: FilterConfig) -> FilterConfig:
    """The same learner without anything of the dynamics."""
    features = dataclasses.replace(config.features, inputs="sa")
    return dataclasses.replace(config, features=features, residuals=None)


def _judge_again(
    learnt: FilterModel,
    split: PUSplit,
    mode: Mode,
    kept: np.ndarray | None,
    *,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool,
    num_lanes: int | None = None,
    stage: str = "cross-fit",
) -> HeldOutScores:
    """Learn over folds; ``kept`` is what the filter keeps of the pool, (n,) bool, to keep alike."""
    x, known = learnt.encoder(split.pool.rows)
    p, u = split.labelled[known[split.labelled]], split.unlabelled[known[split.unlabelled]]
    fold, number = _folds(split, p, u, seed)
    lanes = fitting.fold_lanes(p, u, fold[p], fold[u])[:num_lanes]
    rows = fitting.stack(lanes, [known] * len(lanes), seed)
    keys = fitting.lane_keys(seed + 1, len(lanes))
    end = train(
        x,
        rows,
        learnt.config,
        keys,
        checkpoint=checkpoint,
        stage=stage,
        title=stage,
        progress=progress,
    )
    held = held_out_logits(end.lanes.average, x, rows)
    rng = generator(seed, "filter", stage, "interval")
    position_p, position_u = np.asarray(rows.held_p).ravel(), np.asarray(rows.held_u).ravel()
    groups = None if number is None else number[position_p]
    if groups is not None and len(np.unique(groups)) < 2:
        groups = None  # one fold of few episodes: nothing to resample
    alpha = estimate_alpha(held, learnt.config, groups, rng)
    threshold = row_threshold(learnt.config, alpha)
    again = dataclasses.replace(learnt, alpha=alpha, threshold=threshold)
    judged = _judgement(again, position_p, position_u, held, number, mode)
    if kept is None:
        return judged
    kept_p, kept_u = match_keep_rate(held, kept[position_u], len(lanes))
    return dataclasses.replace(judged, kept_p=kept_p, kept_u=kept_u)


def match_keep_rate(
    held: HeldOut, kept: np.ndarray, num_lanes: int
) -> tuple[np.ndarray, np.ndarray]:
    """What lanes keep of P and of U, each cut where it keeps as many of its U as are kept.

    Args:
        held: Logits of held-out rows, lane after lane, of one size.
        kept: (u,) bool. What another network keeps of these unlabelled rows.
        num_lanes: Number of lanes.

    >>> held = HeldOut(np.array([3.0, 1.0, 9.0, 5.0]), np.array([2.0, 0.0, 8.0, 6.0]))
    >>> kept_p, kept_u = match_keep_rate(held, np.array([True, False, True, False]), 2)
    >>> kept_p.tolist(), kept_u.tolist()
    ([True, False, True, False], [True, False, True, False])
    """
    logit_p, logit_u = held.p.reshape(num_lanes, -1), held.u.reshape(num_lanes, -1)
    wanted = kept.reshape(num_lanes, -1).sum(axis=1)
    cut = [_cut(mine, int(num)) for mine, num in zip(logit_u, wanted, strict=True)]
    level = np.array(cut)[:, None]
    return (logit_p >= level).ravel(), (logit_u >= level).ravel()


def _cut(score: np.ndarray, wanted: int) -> float:
    """The least score to keep so that so many are kept, or as near as equal scores allow.

    Infinite where none is wanted, or all: rows that score below all of these are kept then too.
    """
    if wanted == 0:
        return np.inf
    if wanted == len(score):
        return -np.inf
    value, count = np.unique(score, return_counts=True)
    at_or_above = np.cumsum(count[::-1])[::-1]
    return float(value[np.argmin(np.abs(at_or_above - wanted))])


def _folds(
    split: PUSplit, p: np.ndarray, u: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """(n,) fold of each pool row that is known, and (n,) episodes where rows carry them.

    Rows of one episode stay together: a labelled row's neighbours know too much of it.
    """
    num_folds = fitting.NUM_FOLDS if len(split.labelled) < MANY_LABELLED else fitting.FEW_FOLDS
    if split.pool.episode is not None:
        grouping = by_episode(split, num_folds, seed)
        if grouping is not None:
            return grouping
    fold = np.full(len(split.pool), -1)
    fold[p] = fitting.random_folds(len(p), num_folds, seed, "p")
    fold[u] = fitting.random_folds(len(u), num_folds, seed, "u")
    return fold, None


def _judgement(
    learnt: FilterModel,
    p: np.ndarray,
    u: np.ndarray,
    held: HeldOut,
    number: np.ndarray | None,
    mode: Mode,
) -> HeldOutScores:
    seen_p, seen_u = ~np.isnan(held.p), ~np.isnan(held.u)
    p, u = p[seen_p].astype(np.int64), u[seen_u].astype(np.int64)
    score_p, score_u = learnt.probability(held.p[seen_p]), learnt.probability(held.u[seen_u])
    kept_u = keep(score_u, mode, learnt.alpha.value)
    # Labelled rows are kept by the same rule: the least score that was kept, or one half.
    least = score_u[kept_u].min() if mode == "top_alpha" and kept_u.any() else 0.5
    return HeldOutScores(
        p,
        u,
        score_p,
        score_u,
        score_p >= least,
        kept_u,
        None if number is None else number[p],
        None if number is None else number[u],
        learnt.alpha,
    )


def _sets(split: PUSplit, grouping: Grouping | None) -> tuple[np.ndarray, np.ndarray]:
    if grouping is None:
        return split.labelled, split.unlabelled
    return np.flatnonzero(grouping.known), np.flatnonzero(~grouping.known)
