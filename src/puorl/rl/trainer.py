"""Train many lanes at once: chunks of updates by one compiled program, points in between.

A lane is a training set and a seed. Lanes share the pool's rows and nothing else: no key, row or
statistic crosses from one to another. A lane's randomness is its key and the number of the update,
so that a run may stop at any point and go on as if it had not.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError
from puorl.core.prng import checked_seed
from puorl.data.dataset import Dataset
from puorl.data.training_set import TrainingSet
from puorl.rl import memory, program
from puorl.rl import pool as rows_of
from puorl.rl.learner import Learner, Sizes
from puorl.rl.pool import ActionRange, Pool, Sets

# Rows of many batches are gathered in one go; how many fit is a matter of memory and cache.
_CHUNK_BYTES = {"gpu": 512 << 20, "tpu": 512 << 20, "cpu": 16 << 20}
_LONGEST_CHUNK = 500
_EXPLODED = 100.0
_LARGEST_USUAL = 1e4
_LONGEST_HORIZON = 1e4


class Lane(NamedTuple):
    """An agent to train: the number of its training set, and its seed."""

    line: int
    seed: int


class Stopped(NamedTuple):
    """Why a lane was given up."""

    step: int
    reason: str


class Standing(NamedTuple):
    """Where a group of lanes stands: all that is needed to go on as if it had not stopped."""

    state: Any
    """States of all lanes, stacked."""
    infinite_at: np.ndarray
    """(lanes,) int32. The update after which a number was first not finite; -1 while none was."""
    large_at: np.ndarray
    """(lanes,) int32. The same for a value of the critic beyond its limit."""


@dataclass(frozen=True, eq=False)
class Work:
    """All that a group of lanes trains with, on the device."""

    learner: Learner
    lanes: tuple[Lane, ...]
    pool: Pool
    sets: Sets
    sizes: Sizes
    actions: ActionRange
    scaling: tuple[tuple[np.ndarray, np.ndarray] | None, ...]
    """Mean and divisor of the states of each training set, where they are normalised."""
    q_limit: np.ndarray
    """(lanes,) float32. Values beyond it cannot be right."""


@dataclass(frozen=True, eq=False)
class Point:
    """A rest on the way; the state's memory is reused as soon as training goes on."""

    step: int
    standing: Standing
    metrics: list[dict[str, float]]
    """Means over the updates since the last point, lane by lane."""
    stopped: tuple[Stopped | None, ...]
    """Lanes that were given up so far."""
    seconds: float
    """Time since the last point."""


def prepare(learner: Learner, sets: Sequence[TrainingSet], lanes: Sequence[Lane]) -> Work:
    """Put the rows and tables of a group of lanes on the device.

    Raises:
        ConfigError: No lanes, a lane without a set, sets of several pools, or more than fits.
        DataError: Rewards or next actions are missing.
    """
    if not lanes or not sets:
        raise ConfigError(
            f"train: expected lanes and training sets, got {len(lanes)} and {len(sets)}"
        )
    if any(not 0 <= lane.line < len(sets) for lane in lanes):
        raise ConfigError(f"train: expected lanes of training sets 0 to {len(sets) - 1}")
    dataset = _one_pool(sets)
    if learner.needs_next_action and dataset.next_action is None and dataset.episode is not None:
        dataset = dataset.with_next_action()
        sets = [replace(chosen, pool=dataset) for chosen in sets]
    if learner.positions is not None and any(chosen.groups for chosen in sets):
        raise ConfigError(f"{learner.name}: draws its rows itself, so it takes no groups")
    longest = max(len(chosen.rows) for chosen in sets)
    sizes = Sizes(dataset.obs.shape[1], dataset.action.shape[1], longest)
    memory.check_memory(learner, sizes, lanes=len(lanes), num_rows=len(dataset), sets=len(sets))
    actions = rows_of.action_range(dataset.action)
    held = rows_of.tables(
        sets,
        batch_size=learner.config.batch_size,
        normalise_states=learner.normalise_states,
        scale_rewards=learner.scale_rewards,
        next_action=learner.needs_next_action,
    )
    largest = np.abs(np.asarray(held.column[:, :, 0], np.float64)).max(axis=1)
    horizon = 1.0 / max(1.0 - getattr(learner.config, "gamma", 0.0), 1.0 / _LONGEST_HORIZON)
    limit = np.clip(_EXPLODED * horizon * largest, _LARGEST_USUAL, np.finfo(np.float32).max)
    return Work(
        learner=learner,
        lanes=tuple(lanes),
        pool=Pool(jnp.asarray(rows_of.pack(dataset.rows, actions))),
        sets=held,
        sizes=sizes._replace(num_rows=held.row.shape[1]),
        actions=actions,
        scaling=tuple(
            rows_of.state_scaling(chosen) if learner.normalise_states else None for chosen in sets
        ),
        q_limit=np.array([limit[lane.line] for lane in lanes], np.float32),
    )


def train(
    work: Work,
    *,
    steps: int,
    point_every: int,
    standing: Standing | None = None,
    done: int = 0,
) -> Iterator[Point]:
    """Train all lanes and yield a point every ``point_every`` updates.

    Args:
        work: From `prepare`.
        steps: Updates in all.
        point_every: Updates between two points; the last stretch may be shorter.
        standing: From an earlier point, to go on; fresh by default.
        done: Updates behind it.

    Raises:
        ConfigError: Numbers of updates that do not fit the learner's cycle.
    """
    check_steps(work.learner, steps=steps, point_every=point_every)
    state, infinite, large = fresh(work) if standing is None else standing
    names = program.metric_names(work.learner, work.sizes)
    while done < steps:
        began = time.perf_counter()
        length = min(point_every, steps - done)
        state, metrics, (new_infinite, new_large) = _stretch(work, state, done, length)
        done += length
        infinite = np.where(infinite < 0, new_infinite, infinite)
        # What an update measures is older than what it leaves behind.
        sound = np.asarray(program.has_finite_actor(state, work.learner))
        infinite = np.where((infinite < 0) & ~sound, np.int32(done), infinite)
        large = np.where(large < 0, new_large, large)
        by_lane = [dict(zip(names, map(float, line), strict=True)) for line in metrics]
        standing = Standing(state, infinite, large)
        yield Point(done, standing, by_lane, stopped(work, standing), time.perf_counter() - began)


def stopped(work: Work, standing: Standing) -> tuple[Stopped | None, ...]:
    """For every lane, why it was given up."""
    ends = zip(standing.infinite_at, standing.large_at, work.q_limit, strict=True)
    return tuple(_stopped(*each) for each in ends)


def check_steps(learner: Learner, **numbers: int) -> None:
    """Refuse numbers of updates that are not whole cycles.

    Raises:
        ConfigError: One is not a positive multiple of the learner's cycle, or beyond counting.
    """
    memory.check_counts(learner, **numbers)
    for name, number in numbers.items():
        if number < 1 or number % learner.cycle:
            raise ConfigError(
                f"{name}: expected a multiple of {learner.cycle}, the updates of one cycle of "
                f"{learner.name}, got {number}"
            )


def fresh(work: Work) -> Standing:
    """Where all lanes stand before the first update."""
    state = program.init_states(_keys(work.lanes, "init"), work.learner, work.sizes)
    never = np.full(len(work.lanes), -1, np.int32)
    return Standing(state, never, never)


def _stretch(
    work: Work, state: Any, done: int, length: int
) -> tuple[Any, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Run ``length`` updates in chunks; mean metrics (lanes, names), and first bad updates."""
    keys = _keys(work.lanes, "updates")
    line = jnp.array([lane.line for lane in work.lanes], jnp.int32)
    limit = jnp.asarray(work.q_limit)
    run = program.program()
    sums, firsts = [], []
    for chunk in _chunk_lengths(work, length):
        state, total, first = run(
            state, keys, line, limit, work.pool, work.sets, np.int32(done),
            learner=work.learner, sizes=work.sizes, length=chunk,
        )  # fmt: skip
        done += chunk
        sums.append(total)
        firsts.append(first)
    metrics = np.sum([np.asarray(total, np.float64) for total in sums], axis=0) / length
    infinite, large = (np.stack([np.asarray(f[i]) for f in firsts]) for i in (0, 1))
    return state, metrics, (_earliest(infinite), _earliest(large))


def _earliest(firsts: np.ndarray) -> np.ndarray:
    late = np.where(firsts < 0, np.iinfo(np.int32).max, firsts).min(axis=0)
    return np.where(late == np.iinfo(np.int32).max, -1, late)


def _stopped(infinite: int, large: int, limit: float) -> Stopped | None:
    if large >= 0 and (infinite < 0 or large <= infinite):
        reason = f"the critic's values passed {limit:,.0f}, which no policy can reach"
        return Stopped(int(large), reason)
    return None if infinite < 0 else Stopped(int(infinite), "a loss or a value is not finite")


def _keys(lanes: Sequence[Lane], purpose: str) -> jax.Array:
    number = ("init", "updates").index(purpose)
    seeds = jnp.array([checked_seed(lane.seed) for lane in lanes], jnp.uint32)
    return _keys_of(seeds, number)


@partial(jax.jit, static_argnums=1)
def _keys_of(seeds: jax.Array, number: int) -> jax.Array:
    # Named, since another default generator would ignore every lane's key but the first.
    def one(seed: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), number)

    return jax.vmap(one)(seeds)


def _chunk_lengths(work: Work, length: int) -> list[int]:
    """A stretch in chunks of one length, as long as memory allows; the last one may be shorter.

    Another length is another program to compile, so one that divides the stretch is preferred.
    """
    cycle = work.learner.cycle
    room = _CHUNK_BYTES.get(jax.default_backend(), _CHUNK_BYTES["cpu"]) // _bytes_an_update(work)
    most = max(1, min(room, _LONGEST_CHUNK, length) // cycle) * cycle
    fitting = max(n for n in range(cycle, most + 1, cycle) if length % n == 0)
    chunk = most if fitting < most / 4 else fitting
    rest = length % chunk
    return [chunk] * (length // chunk) + ([rest] if rest else [])


def _bytes_an_update(work: Work) -> int:
    size, act_dim = work.learner.config.batch_size, work.sizes.act_dim
    noise = jax.eval_shape(
        lambda key: work.learner.noise(key, size, act_dim), jax.random.key(0, impl="threefry2x32")
    )
    drawn = sum(4 * leaf.size for leaf in jax.tree.leaves(noise))
    return len(work.lanes) * (drawn + 4 * size * (work.pool.row.shape[1] + 5))


def _one_pool(sets: Sequence[TrainingSet]) -> Dataset:
    dataset = sets[0].pool
    if any(chosen.pool is not dataset for chosen in sets):
        raise ConfigError("train: expected training sets of one pool, got several pools")
    return dataset
