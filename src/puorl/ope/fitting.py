"""Fit several networks side by side: each lane draws its own rows, one compiled program for all.

On a CPU a core takes a stretch of one lane after the other, whose weights and moments stay in its
cache meanwhile. Cores work side by side if jax computes synchronously, as in our commands; else jax
takes turns. On a GPU all lanes are one batch. A lane computes the same whoever runs beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.hashing import generator
from puorl.core.progress import Advance, quiet
from puorl.core.resources import num_threads
from puorl.nn import mlp

Loss = Callable[[Any, Any], jax.Array]
"""(parameters, batch) -> mean loss."""
Prepare = Callable[[Any, Any], Any]
"""(parameters, rows) -> rows as the loss wants them, for all batches of a round at once."""
_AT_ONCE = 200
"""Updates of one compiled call, about."""
_BLOCK = 8_192
"""Rows that networks are applied to at a time."""
_WATCHED = 0.25
"""The last part of a fit that is watched."""


class FitState(NamedTuple):
    """All lanes; every leaf has a leading axis of lanes."""

    params: Any
    moments: mlp.Moments


class Draws(NamedTuple):
    """Rows that each lane may draw: positions (c, k) int32, and how many of them (c,) int32."""

    table: jax.Array
    num_rows: jax.Array


class Schedule(NamedTuple):
    """Lengths of a fit."""

    updates: int
    round: int
    """Updates between two calls of `Prepare`, which sees the parameters before them."""
    batch_size: int
    learning_rate: float


def fit(
    sizes: tuple[int, ...],
    loss: Loss,
    rows: Any,
    draws: Draws,
    schedule: Schedule,
    *,
    seed: int,
    purpose: str,
    prepare: Prepare | None = None,
    watch: Callable[[Any], Any] | None = None,
    advance: Advance = quiet,
) -> tuple[Any, list[np.ndarray]]:
    """Fit all lanes; return their parameters, and what ``watch`` saw in the last quarter.

    Args:
        sizes: Widths of the network, from input to output.
        loss: A function of a module, so that its compiled program is found again.
        rows: Tree of arrays with one leading axis of rows.
        draws: Rows of each lane.
        schedule: Updates and batches; the learning rate falls to zero over the second half.
        seed: Decides weights and batches.
        purpose: Names the random stream.
        prepare: Changes drawn rows by the parameters at the start of a round.
        watch: Looks at the parameters of some lanes now and then in the last quarter.
        advance: Is told of the updates made.
    """
    num_lanes = len(draws.num_rows)
    word = int(generator(seed, "ope", purpose).integers(2**31))
    init_key, batch_key = jax.random.split(jax.random.key(word, impl="threefry2x32"))
    state = _init(jax.random.split(init_key, num_lanes), sizes)
    on_cpu = jax.default_backend() == "cpu"
    parts = [slice(k, k + 1) for k in range(num_lanes)] if on_cpu else [slice(num_lanes)]
    rounds = -(-schedule.updates // schedule.round)
    at_once = max(1, _AT_ONCE // schedule.round)
    shape = (schedule.round, schedule.batch_size)

    def stretches(part: slice) -> Iterator[tuple[FitState, list[np.ndarray]]]:
        held, own, seen = _part(state, part), _part(draws, part), []
        for first in range(0, rounds, at_once):
            number = min(at_once, rounds - first)
            left = 2.0 * (1.0 - first / rounds)
            rate = jnp.float32(schedule.learning_rate * min(1.0, left))
            keys = jax.random.split(jax.random.fold_in(batch_key, first), (num_lanes, number))
            options = {"loss": loss, "prepare": prepare, "shape": shape}
            held = jax.block_until_ready(_rounds(held, keys[part], rows, own, rate, **options))
            if watch is not None and first + number > (1.0 - _WATCHED) * rounds:
                seen.append(np.asarray(watch(held.params)))
            if part.stop == num_lanes:  # the last lane tells for all
                advance(number * schedule.round)
            yield held, seen

    states, seen = zip(*_in_turns([stretches(part) for part in parts]), strict=True)
    return _joined(states).params, [np.concatenate(each) for each in zip(*seen, strict=True)]


def _in_turns(jobs: Sequence[Iterator[Any]]) -> list[Any]:
    """Run iterators to their ends on all cores; return the last result of each.

    A job queues up again after each result: five of them keep two cores busy all the time.
    """
    last = [next(job) for job in jobs[:1]] + [None] * (len(jobs) - 1)  # or each thread compiles
    with ThreadPoolExecutor(min(num_threads(None), len(jobs))) as threads:
        waiting = {threads.submit(next, job, None): k for k, job in enumerate(jobs)}
        while waiting:
            for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                number, result = waiting.pop(done), done.result()
                if result is not None:
                    last[number] = result
                    waiting[threads.submit(next, jobs[number], None)] = number
    return last


def _part(tree: Any, lanes: slice) -> Any:
    return jax.tree.map(lambda leaf: leaf[lanes], tree)


def _joined(states: Sequence[FitState]) -> FitState:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states)


@partial(jax.jit, static_argnames="sizes")
def _init(keys: jax.Array, sizes: tuple[int, ...]) -> FitState:
    def lane(key: jax.Array) -> FitState:
        last = mlp.Orthogonal(0.1)  # outputs start near 0
        params = mlp.init_mlp(key, sizes, init="orthogonal", last_init=last, layer_norm=True)
        return FitState(params, mlp.init_adam(params))

    # Both moments start equal, and donated arrays must not share memory.
    return jax.tree.map(jnp.copy, jax.vmap(lane)(keys))


@partial(jax.jit, static_argnames=("loss", "prepare", "shape"), donate_argnums=0)
def _rounds(
    state: FitState,
    keys: jax.Array,
    rows: Any,
    draws: Draws,
    rate: jax.Array,
    *,
    loss: Loss,
    prepare: Prepare | None,
    shape: tuple[int, int],
) -> FitState:
    def update(state: FitState, batch: Any) -> tuple[FitState, None]:
        grad = jax.grad(loss)(state.params, batch)
        made = mlp.apply_adam(state.params, grad, state.moments, learning_rate=rate)
        return FitState(*made), None

    def lane(state: FitState, keys: jax.Array, draws: Draws) -> FitState:
        def one_round(state: FitState, key: jax.Array) -> tuple[FitState, None]:
            drawn = draws.table[jax.random.randint(key, shape, 0, draws.num_rows)]
            batches = jax.tree.map(lambda each: each[drawn], rows)
            if prepare is not None:
                batches = prepare(state.params, batches)
            return jax.lax.scan(update, state, batches)

        return jax.lax.scan(one_round, state, keys)[0]

    if jax.default_backend() == "cpu":  # a product with an axis of lanes is slower there
        return jax.lax.map(lambda own: lane(*own), (state, keys, draws))
    return jax.vmap(lane)(state, keys, draws)


def as_draws(table: np.ndarray, count: np.ndarray) -> Draws:
    """Put the rows of all lanes on the device."""
    return Draws(jnp.asarray(table), jnp.asarray(count))


def in_blocks(function: Callable[..., Any], params: Any, *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of all lanes to rows, a block at a time; join (c, block, ...) along rows."""
    parts = [
        np.asarray(function(params, *(each[i : i + _BLOCK] for each in arrays)), np.float64)
        for i in range(0, len(arrays[0]), _BLOCK)
    ]
    return np.concatenate(parts, axis=1)
