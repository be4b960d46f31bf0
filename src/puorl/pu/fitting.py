"""From a split to a FilterModel: rows of each lane, the loop over epochs, and calibration."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.hashing import checked_seed, generator
from puorl.core.progress import progress_bar
from puorl.core.run_folder import Checkpoint
from puorl.core.stats import Estimate
from puorl.data.split import PUSplit
from puorl.pu import features, learners
from puorl.pu.alpha import alpha_estimate, bootstrap_interval, estimate_from_logits
from puorl.pu.config import FilterConfig
from puorl.pu.features import Encoded
from puorl.pu.learners import ClassifierState, Recipe, make_recipe, row_threshold
from puorl.pu.model import FilterModel
from puorl.pu.units import Grouping, Unit, find_threshold, group

MIN_LABELLED = 20
"""Fewer labelled rows leave fewer than two to hold out, and alpha cannot be estimated."""

MANY_TO_REJECT = 1_000
"""Labelled rows from which alpha is known well enough in training to reject rows by it."""
_NO_REJECTION = {"learner": "pvu", "alpha_estimator": "scott"}

Positions = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Pool positions of a lane: P and U to train on, P and U held out."""


class EpochState(NamedTuple):
    """The state of a fit after an epoch."""

    state: ClassifierState
    epoch: int
    alpha: np.ndarray
    """(epochs, lanes) float32. The estimates after every epoch so far."""


class HeldOutLogits(NamedTuple):
    """Logits of rows that their lane was not trained on, lane after lane."""

    p: np.ndarray
    u: np.ndarray


def fit(
    split: PUSplit,
    config: FilterConfig,
    *,
    unit: Unit,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool = False,
    choose: bool = False,
) -> FilterModel:
    """Fit one filter.

    With ``choose`` and few labelled rows, TEDn is fitted without rejection as well, and the clearer
    of the two is returned (see `clearer`).

    Raises:
        ConfigError: Unknown learner.
        DataError: Too few labelled rows, or features in which nothing varies.
    """
    recipe = make_recipe(config)
    grouping = group(split, unit, seed)
    num_labelled = len(split.labelled) if grouping is None else int(grouping.labelled.sum())
    if num_labelled < MIN_LABELLED:
        raise DataError(
            f"expected at least {MIN_LABELLED} labelled rows, so that some can be held out, got "
            f"{num_labelled}; label more rows"
        )
    pool = split.pool.rows
    total = features.num_steps(pool, config.features, config.residuals)
    show = progress and total > 0
    with progress_bar("models", total=total, unit="steps", show=show) as advance:
        [encoded] = features.fit_encoders(
            [pool],
            config.features,
            config.residuals,
            seeds=[seed],
            checkpoint=checkpoint,
            advance=advance,
        )
    lanes = split_lanes(split, grouping)
    rows = stack(lanes, [encoded.known] * len(lanes), seed)
    keys = lane_keys(seed, len(lanes))
    end = train(encoded.x, rows, recipe, config, keys, checkpoint=checkpoint, progress=progress)
    made = calibrate(split, config, unit, seed, encoded, rows, end, grouping)
    if not (choose and recipe.rejects) or num_labelled >= MANY_TO_REJECT:
        return made
    plain = config.changed(_NO_REJECTION)
    end = train(
        encoded.x,
        rows,
        make_recipe(plain),
        plain,
        keys,
        checkpoint=checkpoint,
        stage="classifier-without-rejection",
        title="filter, nothing rejected",
        progress=progress,
    )
    return clearer(made, calibrate(split, plain, unit, seed, encoded, rows, end, grouping))


def clearer(made: FilterModel, plain: FilterModel) -> FilterModel:
    """Choose between TEDn and a fit without rejection by the upper ends of alpha.

    With few labelled rows held out, TEDn's alpha in training is far too high at times. It then
    leaves rows of others out which look like the target's, and cannot tell them apart. The upper
    end of alpha holds for any classifier, so the lower one is of the better classifier; half is
    asked for, since the two vary with the rows that are held out.
    """
    return plain if plain.alpha.high < made.alpha.high / 2.0 else made


def split_lanes(split: PUSplit, grouping: Grouping | None) -> list[Positions]:
    """Return one lane of train and validation rows, or a lane a fold of units or episodes."""
    if grouping is not None:
        p, u = np.flatnonzero(grouping.labelled), np.flatnonzero(~grouping.labelled)
        return fold_lanes(p, u, grouping.fold[p], grouping.fold[u])
    if split.unit == "transition":
        return [(*split.part("train"), *split.part("validation"))]
    return fold_lanes(split.labelled, split.unlabelled, split.labelled_part, split.unlabelled_part)


def fold_lanes(
    p: np.ndarray, u: np.ndarray, fold_p: np.ndarray, fold_u: np.ndarray
) -> list[Positions]:
    """Return a lane for each fold, which holds that fold out."""
    return [
        (p[fold_p != fold], u[fold_u != fold], p[fold_p == fold], u[fold_u == fold])
        for fold in np.unique(fold_p)
    ]


def stack(lanes: Sequence[Positions], known: Sequence[np.ndarray], seed: int) -> learners.Rows:
    """Stack lanes, cut to equal size at random, with rows that are ``known``, (n,) bool a lane.

    Raises:
        DataError: A lane is left without rows.
    """
    columns = []
    for k, name in enumerate(learners.Rows._fields):
        parts = [lane[k][usable[lane[k]]] for lane, usable in zip(lanes, known, strict=True)]
        size = min(len(part) for part in parts)
        if size == 0:
            raise DataError(
                f"{name}: no row is left to use; label rows in more episodes, or decide by "
                "transition on a split by rows"
            )
        stream = generator(seed, "filter", "rows", name)
        same = [part if len(part) == size else stream.permutation(part)[:size] for part in parts]
        columns.append(jnp.asarray(np.stack(same), jnp.int32))
    return learners.Rows(*columns)


def lane_keys(seed: int, num_lanes: int) -> jax.Array:
    """(lanes,) keys of one seed."""
    return jax.random.split(jax.random.key(seed, impl="threefry2x32"), num_lanes)


def train(
    x: np.ndarray,
    rows: learners.Rows,
    recipe: Recipe,
    config: FilterConfig,
    keys: jax.Array,
    *,
    checkpoint: Checkpoint,
    stage: str = "classifier",
    title: str = "filter",
    progress: bool = False,
) -> EpochState:
    """Run all epochs of all lanes, with a bar that shows the estimate of alpha.

    ``x`` is (n, f) float32 for all lanes, or (lanes, n, f) with a pool each; ``stage`` is the name
    of this job in the checkpoint, ``title`` that of the bar.
    """
    point, shown = None, 0
    states = epochs(x, rows, recipe, config, keys=keys, checkpoint=checkpoint, stage=stage)
    with progress_bar(title, total=recipe.num_epochs, unit="epochs", show=progress) as advance:
        for point in states:
            advance(point.epoch - shown, f"alpha {point.alpha[-1].mean():.3f}")
            shown = point.epoch
    assert point is not None  # a recipe has at least one epoch
    return point


def epochs(
    x: np.ndarray,
    rows: learners.Rows,
    recipe: Recipe,
    config: FilterConfig,
    *,
    keys: jax.Array,
    checkpoint: Checkpoint,
    stage: str,
) -> Iterator[EpochState]:
    """Train all lanes; yield after every epoch, or once if a checkpoint is complete."""
    num_epochs = recipe.num_epochs
    initial = learners.init(config.network, x.shape[-1], keys)
    history = np.zeros((num_epochs, rows.train_p.shape[0]), np.float32)
    (state, history), first = checkpoint.restore(stage, (initial, history))
    history = np.array(history)
    if first == num_epochs:
        yield EpochState(state, num_epochs, history)
    shown = jax.device_put(x)
    for epoch in range(first, num_epochs):
        warm_up = epoch < recipe.num_warm_up
        state, metrics = learners.run_epoch(
            state, shown, rows, recipe=recipe, network=config.network, warm_up=warm_up
        )
        history[epoch] = np.asarray(metrics["alpha"])
        done = epoch + 1
        checkpoint.store(stage, (state, history), done, now=done == num_epochs)
        yield EpochState(state, done, history[:done])


def calibrate(
    split: PUSplit,
    config: FilterConfig,
    unit: Unit,
    seed: int,
    encoded: Encoded,
    rows: learners.Rows,
    end: EpochState,
    grouping: Grouping | None,
) -> FilterModel:
    """Estimate alpha from held-out rows and set the threshold of decisions."""
    held = held_out_logits(end.state.average, encoded.x, rows)
    rng = generator(seed, "filter", "interval")
    position_p = np.asarray(rows.held_p).ravel()
    if grouping is None:
        cluster = split.pool.episode if split.unit == "episode" else split.originals
        clusters = None if cluster is None else cluster[position_p]
        alpha = estimate_alpha(held, config, clusters, rng)
        threshold, spread = row_threshold(config.learner, alpha.value), 1.0
    else:
        position_u = np.asarray(rows.held_u).ravel()
        alpha, threshold, spread = _calibrate_units(
            held, grouping, position_p, position_u, config, rng
        )
    return FilterModel(
        config=config,
        unit=unit,
        seed=seed,
        encoder=encoded.encoder,
        params=end.state.average,
        alpha=alpha,
        alpha_history=np.asarray(end.alpha),
        threshold=threshold,
        spread=spread,
        split_fingerprint=split.fingerprint,
    )


def held_out_logits(params, x: np.ndarray, rows: learners.Rows) -> HeldOutLogits:
    """Score each lane's held-out rows with that lane."""
    made = []
    for positions in (np.asarray(rows.held_p), np.asarray(rows.held_u)):
        parts = []
        for k, mine in enumerate(positions):
            one = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], params)
            parts.append(learners.score_rows(one, x[mine])[0])
        made.append(np.concatenate(parts))
    return HeldOutLogits(*made)


def estimate_alpha(
    held: HeldOutLogits,
    config: FilterConfig,
    clusters_p: np.ndarray | None,
    rng: np.random.Generator,
) -> Estimate:
    """Estimate alpha from held-out logits, with an interval."""
    found = _point_estimate(held.p, held.u, config)
    interval = bootstrap_interval(held.p, held.u, value=found.value, rng=rng, groups_p=clusters_p)
    return alpha_estimate(found.value, interval, method=found.method)


def identity(job: str, split: PUSplit, config: FilterConfig, unit: Unit, seed: int) -> str:
    """Return a hash of all that decides a result."""
    settings = {
        "job": job,
        "split": split.fingerprint,
        "config": config.to_dict(),
        "unit": str(unit),
        "seed": checked_seed(seed),
        "jax": jax.__version__,
    }
    return hashing.of_settings(settings)


def _point_estimate(logit_p: np.ndarray, logit_u: np.ndarray, config: FilterConfig) -> Estimate:
    name = config.alpha_estimator
    return estimate_from_logits(name, logit_p, logit_u, bbe_constant=config.bbe_constant)


def _calibrate_units(
    held: HeldOutLogits,
    grouping: Grouping,
    position_p: np.ndarray,
    position_u: np.ndarray,
    config: FilterConfig,
    rng: np.random.Generator,
) -> tuple[Estimate, float, float]:
    """Estimate alpha, the threshold and the spread from mean logits of units."""
    units_p, mean_p, size_p = _unit_means(held.p, grouping.number[position_p])
    units_u, mean_u, _ = _unit_means(held.u, grouping.number[position_u])
    rough = _point_estimate(mean_p, mean_u, config)
    # All rows of U: lanes of equal size leave a few unscored.
    size_u = np.bincount(grouping.number)[units_u]
    threshold = find_threshold(mean_p, mean_u, size_u, alpha=rough.value)
    cluster = np.empty(int(grouping.number.max()) + 1, np.int64)
    cluster[grouping.number] = grouping.cluster
    interval = bootstrap_interval(
        np.repeat(mean_p, size_p),
        np.repeat(mean_u, size_u),
        value=threshold.alpha,
        rng=rng,
        groups_p=np.repeat(cluster[units_p], size_p),
    )
    alpha = alpha_estimate(threshold.alpha, interval, method=rough.method)
    spread = max(float(np.abs(mean_p - threshold.logit).mean()) / 3.0, 1e-3)
    return alpha, threshold.logit, spread


def _unit_means(logit: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the units that have scored rows, the mean logit of each, and its scored rows."""
    num_rows = np.bincount(number)
    present = np.flatnonzero(num_rows)
    mean = np.bincount(number, logit)[present] / num_rows[present]
    return present, mean, num_rows[present]
