"""Cross-fitting: scores of every row from networks not trained on it, and the report from them."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from puorl.core.hashing import generator
from puorl.core.run_folder import Checkpoint
from puorl.core.tasks import Workers, call_all
from puorl.data.split import PUSplit
from puorl.pu import fitting
from puorl.pu.checks.auroc import HeldOutScores
from puorl.pu.config import FilterConfig
from puorl.pu.fitting import HeldOutLogits
from puorl.pu.learners import make_recipe, row_threshold
from puorl.pu.model import FilterModel, Mode, cut_score, keep
from puorl.pu.report import FilterReport, make_report
from puorl.pu.units import by_episode

NUM_FOLDS, FEW_FOLDS = 5, 3
MANY_LABELLED = 3_000
"""Labelled rows from which ``FEW_FOLDS`` are enough: two thirds of them train nearly as well."""


def check_filter(
    model: FilterModel,
    split: PUSplit,
    mode: Mode,
    settings: Mapping[str, Any],
    *,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool = False,
    engine: Workers | None = None,
) -> FilterReport:
    """Fit again with rows held out, and run all checks on the choice of a fitted filter.

    Args:
        model: The fitted filter.
        split: The split that it was fitted on.
        mode: What it keeps.
        settings: Of the filter, JSON-ready.
        seed: Seed of the refits.
        checkpoint: Where the refits store their state.
        progress: Show bars.
        engine: Where the refits are made; here by default.
    """
    options = {"seed": seed, "checkpoint": checkpoint, "progress": progress}
    refit = partial(_refit, model, split, mode, options)
    scores, behaviour = call_all(refit, (cross_fit, cross_fit_behaviour), engine)
    score, grouping = model.score(split), model.grouping(split)
    made = make_report(
        split,
        scores,
        behaviour,
        kept=model.keep(split, score, mode),
        weight=score if mode == "soft" else None,
        num_scattered=0 if grouping is None else grouping.num_scattered,
        alpha_history=model.alpha_history.mean(axis=1).tolist(),
        settings={**settings, "sampling": split.sampling, "seed": seed},
        unit=model.unit,
        rng=generator(seed, "filter", "report"),
    )
    return dataclasses.replace(made, alpha=model.alpha)


def _refit(
    model: FilterModel,
    split: PUSplit,
    mode: Mode,
    options: Mapping[str, Any],
    make: Callable[..., HeldOutScores],
) -> HeldOutScores:
    return make(model, split, mode, **options)


def cross_fit(
    model: FilterModel,
    split: PUSplit,
    mode: Mode,
    *,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool = False,
) -> HeldOutScores:
    """Score every row with networks that were not trained on it.

    A fit over folds has held every row out already. A split by rows is fitted again over folds; the
    models of the dynamics used no labels and stay. Each of these networks keeps as many of its
    held-out unlabelled rows as the filter does: how much is kept differs from fit to fit, with the
    alpha that each estimates, and recall follows it.
    """
    grouping = model.grouping(split)
    if grouping is None and split.unit == "transition":
        kept = np.zeros(len(split.pool), bool)
        kept[split.unlabelled] = model.keep(split, model.score(split), mode)
        return _fit_folds(
            model, split, mode, kept, seed=seed, checkpoint=checkpoint, progress=progress
        )
    p, u = split.labelled, split.unlabelled
    if grouping is not None:
        p, u = np.flatnonzero(grouping.labelled), np.flatnonzero(~grouping.labelled)
    every = np.full(len(split.pool), np.nan, np.float32)
    positions = np.concatenate([p, u])
    every[positions] = model.held_out_logits(split, positions)
    cluster = split.pool.episode if grouping is None else grouping.cluster
    return _scores(model, p, u, HeldOutLogits(every[p], every[u]), cluster, mode)


def cross_fit_behaviour(
    model: FilterModel,
    split: PUSplit,
    mode: Mode,
    *,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool,
) -> HeldOutScores:
    """Do the same with (s, a) alone; one fold is enough for a split by rows."""
    config = behaviour_config(model.config)
    if model.unit.is_row and split.unit == "transition":
        behaviour = dataclasses.replace(model, config=config, encoder=model.encoder.behaviour())
        return _fit_folds(
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
    again = fitting.fit(
        split, config, unit=model.unit, seed=seed, checkpoint=own, progress=progress
    )
    return cross_fit(again, split, mode, seed=seed, checkpoint=own)


def behaviour_config(config: FilterConfig) -> FilterConfig:
    """Return the config of the same learner on (s, a) alone."""
    return dataclasses.replace(config.changed({"features": {"inputs": "sa"}}), residuals=None)


def match_keep_rate(
    held: HeldOutLogits, kept: np.ndarray, num_lanes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Decide about P and U with a threshold for each lane that keeps as many of its U as given.

    Args:
        held: Logits of held-out rows, lane after lane, of one size.
        kept: (u,) bool. What another network keeps of these unlabelled rows.
        num_lanes: Number of lanes.

    Returns:
        Kept rows of P and of U, (p,) and (u,) bool.

    >>> held = HeldOutLogits(np.array([3.0, 1.0, 9.0, 5.0]), np.array([2.0, 0.0, 8.0, 6.0]))
    >>> kept_p, kept_u = match_keep_rate(held, np.array([True, False, True, False]), 2)
    >>> kept_p.tolist(), kept_u.tolist()
    ([True, False, True, False], [True, False, True, False])
    """
    logit_p, logit_u = held.p.reshape(num_lanes, -1), held.u.reshape(num_lanes, -1)
    num_kept = kept.reshape(num_lanes, -1).sum(axis=1)
    cut = [cut_score(mine, int(num)) for mine, num in zip(logit_u, num_kept, strict=True)]
    level = np.array(cut)[:, None]
    return (logit_p >= level).ravel(), (logit_u >= level).ravel()


def _fit_folds(
    model: FilterModel,
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
    """Fit over folds; match the rate at which the filter keeps pool rows, ``kept`` (n,) bool."""
    config = model.config
    x, known = model.encoder(split.pool.rows)
    p, u = split.labelled[known[split.labelled]], split.unlabelled[known[split.unlabelled]]
    fold, cluster = _folds(split, p, u, seed)
    lanes = fitting.fold_lanes(p, u, fold[p], fold[u])[:num_lanes]
    rows = fitting.stack(lanes, [known] * len(lanes), seed)
    end = fitting.train(
        x,
        rows,
        make_recipe(config),
        config,
        fitting.lane_keys(seed + 1, len(lanes)),
        checkpoint=checkpoint,
        stage=stage,
        title=stage,
        progress=progress,
    )
    held = fitting.held_out_logits(end.state.average, x, rows)
    rng = generator(seed, "filter", stage, "interval")
    position_p, position_u = np.asarray(rows.held_p).ravel(), np.asarray(rows.held_u).ravel()
    clusters = None if cluster is None else cluster[position_p]
    if clusters is not None and len(np.unique(clusters)) < 2:
        clusters = None  # one fold of few episodes cannot be resampled
    alpha = fitting.estimate_alpha(held, config, clusters, rng)
    threshold = row_threshold(config.learner, alpha.value)
    again = dataclasses.replace(model, alpha=alpha, threshold=threshold)
    scores = _scores(again, position_p, position_u, held, cluster, mode)
    if kept is None:
        return scores
    kept_p, kept_u = match_keep_rate(held, kept[position_u], len(lanes))
    return dataclasses.replace(scores, kept_p=kept_p, kept_u=kept_u)


def _folds(
    split: PUSplit, p: np.ndarray, u: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """(n,) fold of each usable pool row, and (n,) episodes or rows of which others are copies.

    Rows of one episode stay together, since neighbouring rows are alike, and so do copies.
    """
    num_folds = NUM_FOLDS if len(split.labelled) < MANY_LABELLED else FEW_FOLDS
    found = by_episode(split, num_folds, seed)
    if found is not None:
        return found
    fold, original = np.full(len(split.pool), -1), split.originals
    for name, positions in (("p", p), ("u", u)):
        if original is not None:
            positions = positions[original[positions] == positions]
        order = generator(seed, "filter", "cross-fit", name).permutation(len(positions))
        fold[positions[order]] = np.arange(len(positions)) % num_folds
    return fold if original is None else fold[original], original


def _scores(
    model: FilterModel,
    p: np.ndarray,
    u: np.ndarray,
    held: HeldOutLogits,
    cluster: np.ndarray | None,
    mode: Mode,
) -> HeldOutScores:
    seen_p, seen_u = ~np.isnan(held.p), ~np.isnan(held.u)
    p, u = p[seen_p].astype(np.int64), u[seen_u].astype(np.int64)
    score_p, score_u = model.probability(held.p[seen_p]), model.probability(held.u[seen_u])
    kept_u = keep(score_u, mode, model.alpha.value) & model.finds_target
    # Labelled rows are kept by the same rule: the least score that was kept, or one half.
    least = score_u[kept_u].min() if mode == "top_alpha" and kept_u.any() else 0.5
    return HeldOutScores(
        p,
        u,
        score_p,
        score_u,
        (score_p >= least) & model.finds_target,
        kept_u,
        None if cluster is None else cluster[p],
        None if cluster is None else cluster[u],
        model.alpha,
    )
