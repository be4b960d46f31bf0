"""The compiled program: a chunk of updates of all lanes, in one loop on the device.

Everything random, and the rows of every batch, are drawn for the whole chunk before the loop, which
then only computes.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError
from puorl.core.hashing import checked_seed
from puorl.data.dataset import Dataset
from puorl.data.training_set import TrainingSet
from puorl.nn import mlp
from puorl.rl import pool
from puorl.rl import pool as rows_of
from puorl.rl.learner import Learner, Sizes
from puorl.rl.pool import ActionRange, Pool, Sets

# A new process may choose other kernels; without these it may also add in another order.
_GPU_OPTIONS = {
    "xla_gpu_deterministic_ops": True,
    "xla_gpu_exclude_nondeterministic_ops": True,
    # Its matrix products fail with an illegal instruction when many small ones run side by side.
    "xla_gpu_enable_triton_gemm": False,
    # Merged products of two updates come with copies that cost more than the second product.
    "xla_gpu_dot_merger_threshold_mb": 0,
}


@mlp.half_units()
def run_chunk(
    state: Any,
    keys: jax.Array,
    line: jax.Array,
    limit: jax.Array,
    pool: Pool,
    sets: Sets,
    start: jax.Array,
    *,
    learner: Learner,
    sizes: Sizes,
    length: int,
) -> tuple[Any, jax.Array, tuple[jax.Array, jax.Array]]:
    """``length`` updates of every lane: states, sums of metrics, first bad updates or -1."""
    size = learner.config.batch_size
    numbers = start + jnp.arange(length, dtype=jnp.int32)

    def randomness(key: jax.Array, number: jax.Array) -> tuple[jax.Array, Any]:
        rows_key, noise_key = jax.random.split(jax.random.fold_in(key, number))
        return rows_key, learner.noise(noise_key, size, sizes.act_dim)

    # The axis of updates comes first everywhere: the loop below takes slices of it.
    row_keys, noise = _over_updates_and_lanes(randomness)(keys, numbers)

    def drawn(row_key: jax.Array, one: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Else the draw is repeated for every column.
        position = jax.lax.optimization_barrier(rows_of.draw(row_key, sets, one, size))
        return rows_of.gather(pool, sets, one, position), position

    in_bulk = learner.positions is None
    picked = jax.vmap(jax.vmap(drawn), (0, None))(row_keys, line) if in_bulk else row_keys

    def one_lane(lane: Any, one: jax.Array, picked: Any, noise: Any) -> tuple[Any, jax.Array]:
        """A cycle of updates: the leading axis of ``picked`` and ``noise`` is its phases."""
        seen = (
            _foreseen(learner, lane, picked, noise, sizes) if learner.precompute_targets else None
        )
        measured = {}
        for phase in range(learner.cycle):
            here, its_noise, its_seen = _at(phase, (picked, noise, seen))
            if learner.positions is None:
                packed, position = here
            else:
                position = learner.positions(lane, here, sets.num_rows[one], size)
                packed = rows_of.gather(pool, sets, one, position)
            batch = rows_of.unpack(packed, position, sizes.obs_dim, sizes.act_dim)
            more = () if its_seen is None else (its_seen,)
            lane, metrics = learner.update(lane, batch, its_noise, phase, *more)
            measured |= metrics
        return lane, jnp.stack([measured[name] for name in sorted(measured)])

    def cycle(state: Any, xs: Any) -> tuple[Any, jax.Array]:
        return jax.vmap(one_lane, in_axes=(0, 0, 1, 1))(state, line, *xs)

    num_cycles = length // learner.cycle
    xs = jax.tree.map(lambda x: x.reshape(num_cycles, learner.cycle, *x.shape[1:]), (picked, noise))
    # On a GPU the second cycle starts while the first ends: 3 % at 140 lanes.
    unroll = 2 if jax.default_backend() == "gpu" else 1
    state, metrics = jax.lax.scan(cycle, state, xs, unroll=unroll)  # (cycles, lanes, names)
    names = metric_names(learner, sizes)
    ends = start + learner.cycle * jnp.arange(1, num_cycles + 1, dtype=jnp.int32)
    infinite = ~jnp.isfinite(metrics).all(axis=2)
    large = jnp.zeros_like(infinite)
    if "q" in names:
        q = metrics[:, :, names.index("q")]
        large = jnp.abs(q) > jnp.broadcast_to(limit, q.shape)
    total = learner.cycle * metrics.sum(axis=0)
    return state, total, (_first(infinite, ends), _first(large, ends))


def _foreseen(learner: Learner, lane: Any, picked: Any, noise: Any, sizes: Sizes) -> Any:
    """What the learner can say of all rows of a cycle at once, split into its phases again."""
    assert learner.precompute_targets is not None
    packed, position = picked
    rows = rows_of.unpack(
        packed.reshape(-1, packed.shape[-1]), position.reshape(-1), sizes.obs_dim, sizes.act_dim
    )
    side_by_side = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), noise)
    seen = learner.precompute_targets(lane, rows, side_by_side)
    return jax.tree.map(lambda x: x.reshape(*position.shape, *x.shape[1:]), seen)


def _at(phase: int, tree: Any) -> Any:
    return jax.tree.map(lambda x: x[phase], tree)


@cache
def program() -> Any:
    """`run_chunk`, compiled for the device that is used; its states are given away."""
    options = _GPU_OPTIONS if jax.default_backend() == "gpu" else None
    return jax.jit(
        run_chunk,
        static_argnames=("learner", "sizes", "length"),
        donate_argnums=0,
        compiler_options=options,
    )


def _over_updates_and_lanes(function: Any) -> Any:
    """f(key, number) for keys (lanes,) and numbers (updates,): leaves (updates, lanes, ...)."""
    return jax.vmap(jax.vmap(function, (0, None)), (None, 0))


def _first(bad: jax.Array, ends: jax.Array) -> jax.Array:
    """(lanes,) int32. After which update a lane was bad first, of bad (cycles, lanes); or -1."""
    return jnp.where(bad.any(axis=0), ends[jnp.argmax(bad, axis=0)], -1)


@partial(jax.jit, static_argnums=(1, 2))
def init_states(keys: jax.Array, learner: Learner, sizes: Sizes) -> Any:
    """Fresh states of all lanes, one for each key."""
    # Copied, since some learners start two networks equal, and both are given away at an update.
    return jax.tree.map(jnp.copy, jax.vmap(lambda key: learner.init(key, sizes))(keys))


@partial(jax.jit, static_argnums=1)
def has_finite_actor(state: Any, learner: Learner) -> jax.Array:
    """(lanes,) bool. Whether all numbers of a lane's policy are finite."""

    def one(lane: Any) -> jax.Array:
        leaves = jax.tree.leaves(learner.actor(lane))
        return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()

    return jax.vmap(one)(state)


@cache
def metric_names(learner: Learner, sizes: Sizes) -> tuple[str, ...]:
    """What an update measures, in the order of the columns."""

    def one_cycle(key: jax.Array) -> dict[str, jax.Array]:
        size = learner.config.batch_size
        width = 2 * (sizes.obs_dim + sizes.act_dim) + 5
        state, found = learner.init(key, sizes), {}
        batch = rows_of.unpack(
            jnp.ones((size, width)), jnp.zeros(size, jnp.int32), sizes.obs_dim, sizes.act_dim
        )
        for phase in range(learner.cycle):
            noise = learner.noise(key, size, sizes.act_dim)
            state, metrics = learner.update(state, batch, noise, phase)
            found |= metrics
        return found

    return tuple(sorted(jax.eval_shape(one_cycle, jax.random.key(0, impl="threefry2x32"))))


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


class TrainState(NamedTuple):
    """Where a group of lanes stands: all that is needed to go on as if it had not stopped."""

    state: Any
    """States of all lanes, stacked."""
    infinite_at: np.ndarray
    """(lanes,) int32. The update after which a number was first not finite; -1 while none was."""
    large_at: np.ndarray
    """(lanes,) int32. The same for a value of the critic beyond its limit."""


@dataclass(frozen=True, eq=False)
class TrainJob:
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
class Progress:
    """A rest on the way; the state's memory is reused as soon as training goes on."""

    step: int
    train_state: TrainState
    metrics: list[dict[str, float]]
    """Means over the updates since the last point, lane by lane."""
    stopped: tuple[Stopped | None, ...]
    """Lanes that were given up so far."""
    seconds: float
    """Time since the last point."""


def prepare(learner: Learner, sets: Sequence[TrainingSet], lanes: Sequence[Lane]) -> TrainJob:
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
    pool.check_memory(learner, sizes, lanes=len(lanes), num_rows=len(dataset), sets=len(sets))
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
    return TrainJob(
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
    work: TrainJob,
    *,
    steps: int,
    point_every: int,
    train_state: TrainState | None = None,
    done: int = 0,
) -> Iterator[Progress]:
    """Train all lanes and yield a point every ``point_every`` updates.

    Args:
        work: From `prepare`.
        steps: Updates in all.
        point_every: Updates between two points; the last stretch may be shorter.
        train_state: From an earlier point, to go on; fresh by default.
        done: Updates behind it.

    Raises:
        ConfigError: Numbers of updates that do not fit the learner's cycle.
    """
    check_steps(work.learner, steps=steps, point_every=point_every)
    state, infinite, large = fresh(work) if train_state is None else train_state
    names = metric_names(work.learner, work.sizes)
    while done < steps:
        began = time.perf_counter()
        length = min(point_every, steps - done)
        state, metrics, (new_infinite, new_large) = run_interval(work, state, done, length)
        done += length
        infinite = np.where(infinite < 0, new_infinite, infinite)
        # What an update measures is older than what it leaves behind.
        sound = np.asarray(has_finite_actor(state, work.learner))
        infinite = np.where((infinite < 0) & ~sound, np.int32(done), infinite)
        large = np.where(large < 0, new_large, large)
        by_lane = [dict(zip(names, map(float, line), strict=True)) for line in metrics]
        train_state = TrainState(state, infinite, large)
        yield Progress(
            done, train_state, by_lane, stopped(work, train_state), time.perf_counter() - began
        )


def stopped(work: TrainJob, train_state: TrainState) -> tuple[Stopped | None, ...]:
    """For every lane, why it was given up."""
    ends = zip(train_state.infinite_at, train_state.large_at, work.q_limit, strict=True)
    return tuple(_stopped(*each) for each in ends)


def check_steps(learner: Learner, **numbers: int) -> None:
    """Refuse numbers of updates that are not whole cycles.

    Raises:
        ConfigError: One is not a positive multiple of the learner's cycle, or beyond counting.
    """
    pool.check_counts(learner, **numbers)
    for name, number in numbers.items():
        if number < 1 or number % learner.cycle:
            raise ConfigError(
                f"{name}: expected a multiple of {learner.cycle}, the updates of one cycle of "
                f"{learner.name}, got {number}"
            )


def fresh(work: TrainJob) -> TrainState:
    """Where all lanes stand before the first update."""
    state = init_states(_keys(work.lanes, "init"), work.learner, work.sizes)
    never = np.full(len(work.lanes), -1, np.int32)
    return TrainState(state, never, never)


def run_interval(
    work: TrainJob, state: Any, done: int, length: int
) -> tuple[Any, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Run ``length`` updates in chunks; mean metrics (lanes, names), and first bad updates."""
    keys = _keys(work.lanes, "updates")
    line = jnp.array([lane.line for lane in work.lanes], jnp.int32)
    limit = jnp.asarray(work.q_limit)
    run = program()
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


def _chunk_lengths(work: TrainJob, length: int) -> list[int]:
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


def _bytes_an_update(work: TrainJob) -> int:
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
