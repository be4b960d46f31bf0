"""From a split to trained lanes: which rows each lane sees, and the loop over epochs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core import hashing
from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import DataError
from puorl.core.hashing import checked_seed, generator
from puorl.core.progress import progress_bar
from puorl.data.split import PUSplit
from puorl.pu import classifier, encoder
from puorl.pu.alpha import AlphaEstimate, bbe
from puorl.pu.config import FilterConfig
from puorl.pu.encoder import Encoded
from puorl.pu.intervals import bootstrap_interval
from puorl.pu.learners import decision_logit
from puorl.pu.model import FilterModel
from puorl.pu.units import Grouping, find_threshold, group, parse_unit

MIN_LABELLED = 20
"""Fewer labelled rows leave fewer than two to hold out, and alpha cannot be estimated."""
NUM_FOLDS, FEW_FOLDS = 5, 3

Positions = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Pool positions: P and U to train on, P and U held out."""


class Progress(NamedTuple):
    """Where the fit stands after an epoch."""

    lanes: classifier.Lane
    epoch: int
    num_epochs: int
    alpha: np.ndarray
    """(epochs, lanes) float32. The estimates after every epoch so far."""


def own_lanes(split: PUSplit) -> list[Positions]:
    """A split by rows is one lane with its train and validation parts; by episodes, its folds."""
    if split.unit == "transition":
        train, held = split.part("train"), split.part("validation")
        return [(*train, *held)]
    return fold_lanes(split.labelled, split.unlabelled, split.labelled_part, split.unlabelled_part)


def fold_lanes(
    p: np.ndarray, u: np.ndarray, fold_p: np.ndarray, fold_u: np.ndarray
) -> list[Positions]:
    """A lane for each fold, which holds that fold out."""
    return [
        (p[fold_p != fold], u[fold_u != fold], p[fold_p == fold], u[fold_u == fold])
        for fold in np.unique(fold_p)
    ]


def random_folds(num_rows: int, num_folds: int, seed: int, name: str) -> np.ndarray:
    """(n,) int64. Folds of nearly equal size."""
    order = generator(seed, "filter", "cross-fit", name).permutation(num_rows)
    fold = np.empty(num_rows, np.int64)
    fold[order] = np.arange(num_rows) % num_folds
    return fold


def check_enough(num_labelled: int) -> None:
    """Complain about labels that are too few, before any work.

    Raises:
        DataError: Too few labelled rows to hold any out.
    """
    if num_labelled < MIN_LABELLED:
        raise DataError(
            f"expected at least {MIN_LABELLED} labelled rows, so that some can be held out, got "
            f"{num_labelled}; label more rows"
        )


def stack(lanes: Sequence[Positions], known: Sequence[np.ndarray], seed: int) -> classifier.Rows:
    """Lanes of equal size, of rows whose features are complete.

    Args:
        lanes: What each lane trains on and holds out.
        known: (n,) bool over each lane's pool: rows that can be used.
        seed: Which rows are dropped where lanes differ in size.

    Raises:
        DataError: A lane is left without rows.
    """
    columns = []
    for k, name in enumerate(classifier.Rows._fields):
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
    return classifier.Rows(*columns)


def epochs(
    x: np.ndarray,
    rows: classifier.Rows,
    recipe: classifier.Recipe,
    network: classifier.NetworkConfig,
    *,
    keys: jax.Array,
    checkpoint: Checkpoint | None = None,
    stage: str = "classifier",
) -> Iterator[Progress]:
    """Train all lanes; yields after every epoch, and once at once if a checkpoint is complete.

    Args:
        x: (n, f) float32 features for all lanes, or (lanes, n, f) with a pool each.
        rows: From `stack`, or one's own.
        recipe: The learner.
        network: Network and optimiser.
        keys: One for each lane, from `lane_keys`.
        checkpoint: Where to keep what is learnt so far.
        stage: Name of this job in the checkpoint.
    """
    checkpoint = checkpoint or Checkpoint(None)
    num_epochs = recipe.num_warm_up + recipe.num_main
    fresh = classifier.init(network, x.shape[-1], keys)
    history = np.zeros((num_epochs, rows.train_p.shape[0]), np.float32)
    (lanes, history), first = checkpoint.restore(stage, (fresh, history))
    history = np.array(history)
    if first == num_epochs:
        yield Progress(lanes, num_epochs, num_epochs, history)
    shown = jax.device_put(x)
    for epoch in range(first, num_epochs):
        warm_up = epoch < recipe.num_warm_up
        lanes, metrics = classifier.run_epoch(
            lanes, shown, rows, recipe=recipe, network=network, warm_up=warm_up
        )
        history[epoch] = np.asarray(metrics["alpha"])
        done = epoch + 1
        checkpoint.store(stage, (lanes, history), done, now=done == num_epochs)
        yield Progress(lanes, done, num_epochs, history[:done])


def lane_keys(seed: int, num_lanes: int) -> jax.Array:
    """(lanes,) keys of one seed."""
    return jax.random.split(jax.random.key(seed, impl="threefry2x32"), num_lanes)


def learn(
    split: PUSplit,
    config: FilterConfig,
    *,
    unit: str,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool = False,
) -> FilterModel:
    """One filter.

    Raises:
        ConfigError: Unknown unit or learner.
        DataError: Too few labelled rows, or features in which nothing varies.
    """
    kind = parse_unit(unit)
    grouping = None if kind.kind == "transition" else group(split, kind, seed)
    lanes = own_lanes(split) if grouping is None else _unit_lanes(grouping)
    config.recipe()  # complains before the work
    known = len(split.labelled) if grouping is None else int(grouping.known.sum())
    check_enough(known)
    [encoded] = _encode([split], config, [seed], checkpoint, progress)
    rows = stack(lanes, [encoded.known] * len(lanes), seed)
    keys = lane_keys(seed, len(lanes))
    end = train(encoded.x, rows, config, keys, checkpoint=checkpoint, progress=progress)
    return settle(split, config, unit, seed, encoded, rows, end, grouping)


def learn_many(
    splits: Sequence[PUSplit], config: FilterConfig, *, seeds: Sequence[int]
) -> list[FilterModel]:
    """A filter for each split by rows; they must be of one size, and one program trains all."""
    nowhere = Checkpoint(None)
    encoded = _encode(splits, config, seeds, nowhere, progress=False)
    lanes = [own_lanes(split)[0] for split in splits]
    rows = stack(lanes, [each.known for each in encoded], seeds[0])
    keys = jnp.concatenate([lane_keys(seed, 1) for seed in seeds])
    x = np.stack([each.x for each in encoded])
    end = train(x, rows, config, keys, checkpoint=nowhere)
    made = []
    for k, (split, seed) in enumerate(zip(splits, seeds, strict=True)):
        own = classifier.Rows(*(column[k : k + 1] for column in rows))
        params = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], end.lanes)
        one = Progress(params, end.epoch, end.num_epochs, end.alpha[:, k : k + 1])
        made.append(settle(split, config, "transition", seed, encoded[k], own, one, None))
    return made


def train(
    x: np.ndarray,
    rows: classifier.Rows,
    config: FilterConfig,
    keys: jax.Array,
    *,
    checkpoint: Checkpoint,
    stage: str = "classifier",
    title: str = "filter",
    progress: bool = False,
) -> Progress:
    """All epochs of all lanes, with a bar that shows the estimate of alpha."""
    point = None
    with progress_bar(title, total=config.num_epochs, unit="epochs", show=progress) as advance:
        shown = 0
        for point in epochs(
            x, rows, config.recipe(), config.network, keys=keys, checkpoint=checkpoint, stage=stage
        ):
            advance(point.epoch - shown, f"alpha {point.alpha[-1].mean():.3f}")
            shown = point.epoch
    assert point is not None  # a recipe has at least one epoch
    return point


def settle(
    split: PUSplit,
    config: FilterConfig,
    unit: str,
    seed: int,
    encoded: Encoded,
    rows: classifier.Rows,
    end: Progress,
    grouping: Grouping | None,
) -> FilterModel:
    """Estimate alpha from held-out rows, and find where decisions turn."""
    held = held_out_logits(end.lanes.average, encoded.x, rows)
    position_p, position_u = np.asarray(rows.held_p).ravel(), np.asarray(rows.held_u).ravel()
    rng = generator(seed, "filter", "interval")
    threshold, spread = 0.0, 1.0
    if grouping is not None:
        units_p = _unit_means(held.p, grouping.number[position_p])
        units_u = _unit_means(held.u, grouping.number[position_u])
        rough = bbe(units_p.mean, units_u.mean, k=config.bbe_constant)
        size_u = np.bincount(grouping.number)[units_u.number]
        turn = find_threshold(units_p.mean, units_u.mean, size_u, alpha=rough.value)
        low, high = bootstrap_interval(
            None,
            np.repeat(units_p.mean, units_p.num_rows),
            np.repeat(units_u.mean, size_u),
            rng=rng,
            groups_p=np.repeat(_together(grouping, units_p.number), units_p.num_rows),
        )
        interval = (min(low, turn.alpha), max(high, turn.alpha))
        alpha = AlphaEstimate(turn.alpha, interval, rough.method)
        threshold = turn.threshold
        spread = max(float(np.abs(units_p.mean - threshold).mean()) / 3.0, 1e-3)
    else:
        episode = split.pool.episode if split.unit == "episode" else None
        groups = None if episode is None else episode[position_p]
        alpha = estimate_alpha(held, config, groups, rng)
        threshold = row_threshold(config, alpha)
    return FilterModel(
        config=config,
        unit=unit,
        seed=seed,
        encoder=encoded.encoder,
        params=end.lanes.average,
        alpha=alpha,
        alpha_history=np.asarray(end.alpha),
        threshold=threshold,
        spread=spread,
        split_fingerprint=split.fingerprint,
    )


def row_threshold(config: FilterConfig, alpha: AlphaEstimate) -> float:
    """Logit at which a single row is as likely the target's as not."""
    # P-versus-U gives odds of being labelled; shift them to those of being the target's.
    return float(decision_logit(alpha.value)) if config.learner == "pvu" else 0.0


class HeldOut(NamedTuple):
    """Logits of rows that their lane did not learn from."""

    p: np.ndarray
    u: np.ndarray


def held_out_logits(params, x: np.ndarray, rows: classifier.Rows) -> HeldOut:
    """Each lane's held-out rows, judged by that lane; lanes one after the other."""
    made = []
    for positions in (np.asarray(rows.held_p), np.asarray(rows.held_u)):
        parts = []
        for k, mine in enumerate(positions):
            one = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], params)
            parts.append(classifier.score_rows(one, x[mine])[0])
        made.append(np.concatenate(parts))
    return HeldOut(*made)


def estimate_alpha(
    held: HeldOut, config: FilterConfig, groups: np.ndarray | None, rng: np.random.Generator
) -> AlphaEstimate:
    """BBE on held-out logits, with an interval."""

    def estimator(p: np.ndarray, u: np.ndarray) -> AlphaEstimate:
        return bbe(p, u, k=config.bbe_constant)

    interval = bootstrap_interval(estimator, held.p, held.u, rng=rng, groups_p=groups)
    value = estimator(held.p, held.u)
    return AlphaEstimate(value.value, interval, value.method)


def identity(job: str, split: PUSplit, config: FilterConfig, unit: str, seed: int) -> str:
    """Hash of all that decides a result."""
    settings = {
        "job": job,
        "split": split.fingerprint,
        "config": repr(config),
        "unit": unit,
        "seed": checked_seed(seed),
        "jax": jax.__version__,
    }
    return hashing.of_settings(settings)


def _encode(
    splits: Sequence[PUSplit],
    config: FilterConfig,
    seeds: Sequence[int],
    checkpoint: Checkpoint,
    progress: bool,
) -> list[Encoded]:
    pools = [split.pool.rows for split in splits]
    total = encoder.num_steps(pools[0], config.features, config.residuals)
    show = progress and total > 0
    with progress_bar("models", total=total, unit="steps", show=show) as advance:
        return encoder.learn(
            pools,
            config.features,
            config.residuals,
            seeds=seeds,
            checkpoint=checkpoint,
            advance=advance,
        )


def _unit_lanes(grouping: Grouping) -> list[Positions]:
    p, u = np.flatnonzero(grouping.known), np.flatnonzero(~grouping.known)
    return fold_lanes(p, u, grouping.fold[p], grouping.fold[u])


class _Means(NamedTuple):
    number: np.ndarray
    mean: np.ndarray
    num_rows: np.ndarray
    """Judged rows; lanes of one size leave a few out."""


def _unit_means(logit: np.ndarray, number: np.ndarray) -> _Means:
    """Mean logit of every unit that has judged rows."""
    num_rows = np.bincount(number)
    there = np.flatnonzero(num_rows)
    return _Means(there, np.bincount(number, logit)[there] / num_rows[there], num_rows[there])


def _together(grouping: Grouping, units: np.ndarray) -> np.ndarray:
    """Which units depend on each other: the episodes of windows."""
    of_unit = np.empty(int(grouping.number.max()) + 1, np.int64)
    of_unit[grouping.number] = grouping.together
    return of_unit[units]
