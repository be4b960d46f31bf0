"""From a split to trained lanes: which rows each lane sees, and the loop over epochs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import DataError
from puorl.core.prng import generator
from puorl.data.split import PUSplit
from puorl.pu import classifier

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
