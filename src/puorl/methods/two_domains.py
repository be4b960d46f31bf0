"""Shared by DARA and IGDF: a split read as two labelled domains, and the training of networks.

Both methods are made for rows that are all labelled. Here labelled rows stand for the target and
unlabelled rows for the source, although some of them are the target's (as in the PUORL paper's
appendix on baselines).
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
    """Labelled rows as the target's, unlabelled rows as the source's."""

    rows: np.ndarray
    """(k,) int64. Pool positions: the labelled rows, then the unlabelled ones."""
    x: jax.Array
    """(k, d + m + d) float32. State, action, next state (the state again where it is unknown)."""
    known: np.ndarray
    """(k,) bool. Whether the next state is known; other rows are neither trained on nor scored."""
    target: np.ndarray
    """(p,) int32. Positions in ``rows`` of the labelled rows that are known."""
    source: np.ndarray
    """(u,) int32. Positions in ``rows`` of the unlabelled rows that are known."""


def as_domains(split: PUSplit, *, standardise: bool) -> Domains:
    """Read a split as two labelled domains.

    Args:
        split: Labelled and unlabelled rows.
        standardise: Standardise states over all rows; actions are never changed.

    Raises:
        DataError: A domain has no row with a known next state.
    """
    rows = np.concatenate([split.labelled, split.unlabelled])
    shown = split.pool.rows[rows]
    known = shown.next_known
    before, after = shown.obs, np.where(known[:, None], shown.next_obs, shown.obs)
    if standardise:
        mean = before.mean(axis=0, dtype=np.float64)
        scale = before.std(axis=0, dtype=np.float64) + _EPSILON
        before, after = (before - mean) / scale, (after - mean) / scale
    x = np.concatenate([part.astype(np.float32) for part in (before, shown.action, after)], axis=1)
    positions, num_labelled = np.flatnonzero(known).astype(np.int32), len(split.labelled)
    target, source = positions[positions < num_labelled], positions[positions >= num_labelled]
    for name, found in (("labelled", target), ("unlabelled", source)):
        if len(found) == 0:
            raise DataError(f"{name}: expected rows with a known next state, got none")
    return Domains(rows, jnp.asarray(x), known, target, source)


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
