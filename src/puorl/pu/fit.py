"""From a split to trained lanes: which rows each lane sees, and the loop over epochs."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import DataError
from puorl.core.prng import generator
from puorl.data.split import PUSplit
from puorl.pu import classifier

MIN_LABELLED = 10
"""Fewer labelled rows leave none to hold out."""


class Progress(NamedTuple):
    """Where the fit stands after an epoch."""

    lanes: classifier.Lane
    epoch: int
    num_epochs: int
    alpha: np.ndarray
    """(lanes,) float32. The estimates after this epoch."""
    loss: np.ndarray
    """(lanes,) float32. Mean loss of the epoch."""


def lane_rows(split: PUSplit, known: np.ndarray, seed: int) -> classifier.Rows:
    """What each lane trains on and holds out, as positions in the pool.

    A split by rows gives one lane with the split's own train and validation parts. A split by
    episodes gives a lane for each fold, which holds that fold out.

    Args:
        split: Labelled and unlabelled rows.
        known: (n,) bool over the pool: rows whose features are complete.
        seed: Which rows are dropped where lanes must be of equal size.

    Raises:
        DataError: Too few labelled rows to hold any out.
    """
    if len(split.labelled) < MIN_LABELLED:
        raise DataError(
            f"expected at least {MIN_LABELLED} labelled rows, so that some can be held out, got "
            f"{len(split.labelled)}; label more rows"
        )
    if split.unit == "transition":
        train, held = split.part("train"), split.part("validation")
        lanes = [(train[0], train[1], held[0], held[1])]
    else:
        lanes = []
        for fold in np.unique(split.labelled_part):
            out_p, out_u = split.labelled_part == fold, split.unlabelled_part == fold
            p, u = split.labelled, split.unlabelled
            lanes.append((p[~out_p], u[~out_u], p[out_p], u[out_u]))
    columns = []
    for k, name in enumerate(classifier.Rows._fields):
        parts = [lane[k][known[lane[k]]] for lane in lanes]
        size = min(len(part) for part in parts)
        if size == 0:
            raise DataError(
                f"{name}: no row is left to use; label rows in more episodes, or split by rows"
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
    seed: int,
) -> Iterator[Progress]:
    """Train all lanes; yields after every epoch.

    Args:
        x: (n, f) float32. Scaled features of the pool.
        rows: From `lane_rows`, or one's own.
        recipe: The learner.
        network: Network and optimiser.
        seed: Seed of initial weights and batches.
    """
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), rows.train_p.shape[0])
    lanes = classifier.init(network, x.shape[1], keys)
    shown = jnp.asarray(x)
    num_epochs = recipe.num_warm_up + recipe.num_main
    for epoch in range(num_epochs):
        lanes, metrics = classifier.run_epoch(
            lanes,
            shown,
            rows,
            recipe=recipe,
            network=network,
            warm_up=epoch < recipe.num_warm_up,
        )
        yield Progress(
            lanes,
            epoch + 1,
            num_epochs,
            np.asarray(metrics["alpha"]),
            np.asarray(metrics["loss"]),
        )
