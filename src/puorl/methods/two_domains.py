"""A split read as two domains, by the probability that a row is the target's; and networks.

Methods across domains are made for rows that are all labelled. Here labelled rows are the target's,
and each unlabelled one is with a probability: 0, that of a filter, or the truth.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.data.split import PUSplit

_EPSILON = 1e-3  # added to the deviation of standardised states
_CHUNK = 500  # steps of one compiled call
_BLOCK = 16_384  # rows scored at a time


class Domains(NamedTuple):
    """Rows of the target, then rows of the source."""

    rows: np.ndarray
    """(k,) int64. Pool positions: labelled rows, unlabelled ones that are rather the target's than
    not, and the others."""
    num_target: int
    """Number of rows before the others."""
    probability: np.ndarray
    """(k,) float32. Probability that a row is the target's; 1 for labelled ones."""
    x: jax.Array
    """(k, d + m + d) float32. State, action, next state (the state again where it is unknown)."""
    known: np.ndarray
    """(k,) bool. Whether the next state is known; other rows are neither trained on nor scored."""
    target: np.ndarray
    """(p,) int32. Positions in ``rows`` to train on as the target's; their next state is known."""
    source: np.ndarray
    """(u,) int32. The same for the source's."""


def as_domains(
    split: PUSplit,
    *,
    standardise: bool,
    probability: np.ndarray | None = None,
    seed: int = 0,
) -> Domains:
    """Read a split as two domains.

    Args:
        split: Labelled and unlabelled rows.
        standardise: Standardise states over all rows; actions are never changed.
        probability: (u,) float32. That unlabelled rows are the target's; 0 by default.
        seed: Seed of the one draw that makes a label of every probability, for training.

    Raises:
        DataError: A domain has no row with a known next state.
    """
    if probability is None:
        probability = np.zeros(len(split.unlabelled), np.float32)
    order = np.argsort(probability < 0.5, kind="stable")
    rows = np.concatenate([split.labelled, split.unlabelled[order]])
    probability = np.concatenate(
        [np.ones(len(split.labelled), np.float32), probability[order].astype(np.float32)]
    )
    num_target = int((probability >= 0.5).sum())
    shown = split.pool.rows[rows]
    known = shown.next_known
    before, after = shown.obs, np.where(known[:, None], shown.next_obs, shown.obs)
    if standardise:
        mean = before.mean(axis=0, dtype=np.float64)
        scale = before.std(axis=0, dtype=np.float64) + _EPSILON
        before, after = (before - mean) / scale, (after - mean) / scale
    x = np.concatenate([part.astype(np.float32) for part in (before, shown.action, after)], axis=1)
    # Drawn once: over many rows the losses are those of weighted rows, as expected.
    drawn = generator(seed, "methods", "labels").random(len(rows)) < probability
    target, source = (np.flatnonzero(known & d).astype(np.int32) for d in (drawn, ~drawn))
    for name, found in (("labelled", target), ("unlabelled", source)):
        if len(found) == 0:
            raise DataError(f"{name}: expected rows with a known next state, got none")
    return Domains(rows, num_target, probability, jnp.asarray(x), known, target, source)


def train(
    method: Any,
    seen: Domains,
    seed: int,
    *,
    init: Callable[[jax.Array, jax.Array], Any],
    step: Callable[[jax.Array, Any, Any], tuple[Any, jax.Array]],
    score: Callable[[Any, jax.Array], jax.Array],
    num_source: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Train two networks; return the scores of all rows and the mean losses of the last steps.

    Args:
        method: Its name seeds the keys; num_steps, batch_size and learning_rate are its settings.
        seen: The two domains.
        seed: Seed of weights and batches.
        init: Makes the initial state, networks first, from a key for each network.
        step: ``(learning_rate, state, (target rows, source rows)) -> state, losses``.
        score: ``(networks, rows) -> (n,) float32``.
        num_source: Source rows in a batch; target rows are ``batch_size``.
    """
    word = int(generator(seed, "methods", method.name).integers(2**31))
    first_key, second_key, batch_key = jax.random.split(jax.random.key(word), 3)
    state, losses = init(first_key, second_key), None
    source, target = jnp.asarray(seen.source), jnp.asarray(seen.target)
    rate = jnp.float32(method.learning_rate)
    for first in range(0, method.num_steps, _CHUNK):
        key = jax.random.fold_in(batch_key, first)
        length = min(_CHUNK, method.num_steps - first)
        shapes = (length, method.batch_size), (length, num_source)
        state, losses = _run(state, key, seen.x, target, source, rate, step, shapes)
    return np.array(_score_rows(score, state[0], seen.x)), np.asarray(losses)


@partial(jax.jit, static_argnames=("step", "shapes"))
def _run(state, key, x, target, source, learning_rate, step, shapes):
    source_key, target_key = jax.random.split(key)
    of_target = target[jax.random.randint(target_key, shapes[0], 0, len(target))]
    of_source = source[jax.random.randint(source_key, shapes[1], 0, len(source))]
    batches = x[of_target], x[of_source]
    state, losses = jax.lax.scan(partial(step, learning_rate), state, batches)
    return state, losses.mean(axis=0)


@partial(jax.jit, static_argnames="score")
def _score_rows(score: Callable[[Any, jax.Array], jax.Array], params: Any, x: jax.Array) -> Any:
    return jax.lax.map(lambda row: score(params, row[None])[0], x, batch_size=_BLOCK)
