"""Train lanes side by side: one compiled program makes a chunk of updates of all lanes.

A lane is one training among many: a training set and a seed. All randomness, and the rows of every
batch, are drawn for a whole chunk before its loop, which then only computes.
"""

import contextlib
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl import __version__
from puorl.core.errors import ConfigError
from puorl.core.hashing import checked_seed
from puorl.core.resources import check_fork, drop_programs_if_full
from puorl.data.dataset import Dataset
from puorl.data.training_set import Chunks, TrainingSet
from puorl.nn import mlp
from puorl.rl import pool as rows_of
from puorl.rl.learner import Learner, Sizes, form_of
from puorl.rl.policy import Policy, stored_config
from puorl.rl.pool import ActionRange, Pool, Sets, with_own_rows

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
    """Make ``length`` updates of every lane; return states, sums of metrics, first bad updates."""
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
        """Make a cycle of updates; the leading axis of ``picked`` and ``noise`` is its phases."""
        targets = _targets(learner, lane, picked, noise, sizes)
        measured = {}
        for phase in range(learner.cycle):
            here, its_noise, *more = jax.tree.map(
                lambda x, phase=phase: x[phase], (picked, noise, *targets)
            )
            if learner.positions is None:
                packed, position = here
            else:
                position = learner.positions(lane, here, sets.num_rows[one], size)
                packed = rows_of.gather(pool, sets, one, position)
            batch = rows_of.unpack(packed, position, sizes.obs_dim, sizes.act_dim)
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


def _targets(
    learner: Learner, lane: Any, picked: Any, noise: Any, sizes: Sizes
) -> tuple[()] | tuple[Any]:
    """Compute the targets of all rows of a cycle at once, if the learner does; by phase."""
    if learner.precompute_targets is None:
        return ()
    packed, position = picked
    rows = rows_of.unpack(
        packed.reshape(-1, packed.shape[-1]), position.reshape(-1), sizes.obs_dim, sizes.act_dim
    )
    flat_noise = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), noise)
    found = learner.precompute_targets(lane, rows, flat_noise)
    return (jax.tree.map(lambda x: x.reshape(*position.shape, *x.shape[1:]), found),)


@cache
def program() -> Any:
    """Compile `run_chunk` for the device in use; its states are donated."""
    options = _GPU_OPTIONS if jax.default_backend() == "gpu" else None
    return jax.jit(
        run_chunk,
        static_argnames=("learner", "sizes", "length"),
        donate_argnums=0,
        compiler_options=options,
    )


def _over_updates_and_lanes(function: Any) -> Any:
    """Map f(key, number) over keys (lanes,) and numbers (updates,) to (updates, lanes, ...)."""
    return jax.vmap(jax.vmap(function, (0, None)), (None, 0))


def _first(bad: jax.Array, ends: jax.Array) -> jax.Array:
    """Return (lanes,) int32: the update after which bad (cycles, lanes) was first true, or -1."""
    return jnp.where(bad.any(axis=0), ends[jnp.argmax(bad, axis=0)], -1)


@partial(jax.jit, static_argnums=(1, 2))
def init_states(keys: jax.Array, learner: Learner, sizes: Sizes) -> Any:
    """Make fresh states of all lanes, one for each key."""
    # Copied, since some learners start two networks equal, and an update donates both.
    return jax.tree.map(jnp.copy, jax.vmap(lambda key: learner.init(key, sizes))(keys))


@partial(jax.jit, static_argnums=1)
def has_finite_actor(state: Any, learner: Learner) -> jax.Array:
    """Return (lanes,) bool: whether all numbers of a lane's policy are finite."""

    def one(lane: Any) -> jax.Array:
        leaves = jax.tree.leaves(learner.actor(lane))
        return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()

    return jax.vmap(one)(state)


@cache
def metric_names(learner: Learner, sizes: Sizes) -> tuple[str, ...]:
    """Return the names of the metrics of an update, in the order of the columns."""

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
_MOST_LANES = {"gpu": 64, "tpu": 64, "cpu": 16}
_EXPLODED = 100.0
_LARGEST_USUAL = 1e4
_LONGEST_HORIZON = 1e4


class Lane(NamedTuple):
    """One training among many side by side: the number of its training set, and its seed."""

    line: int
    seed: int


class Stopped(NamedTuple):
    """When and why a lane was given up."""

    step: int
    reason: str


class TrainState(NamedTuple):
    """State of a group of lanes: all that is needed to resume its training exactly."""

    state: Any
    """States of all lanes, stacked."""
    infinite_at: np.ndarray
    """(lanes,) int32. The update after which a number was first not finite, or -1."""
    large_at: np.ndarray
    """(lanes,) int32. The same for a value of the critic beyond its limit."""


@dataclass(frozen=True, eq=False)
class TrainJob:
    """Learner, rows and tables of a group of lanes, on the device."""

    learner: Learner
    lanes: tuple[Lane, ...]
    pool: Pool
    sets: Sets
    sizes: Sizes
    actions: ActionRange
    scaling: tuple[tuple[np.ndarray, np.ndarray] | None, ...]
    """Mean and divisor of the states of each training set; None if they are not normalised."""
    q_limit: np.ndarray
    """(lanes,) float32. No policy can reach values beyond it."""
    codes: tuple[str, ...] | None = None
    """Codes of discrete actions."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of states and actions, by their key in a policy's metadata, where they are known."""
    chunks: Chunks | None = None
    """All chunks, if the rows are one of several; each interval uses one."""

    def with_chunk(self, number: int) -> "TrainJob":
        """Put the rows of another chunk on the device; all scales stay those of the first."""
        if self.chunks is None:
            return self
        chosen, room = self.chunks.chunk(number), self.sets.row.shape[1]
        held = _tables(self.learner, [chosen])
        pool = Pool(jnp.asarray(rows_of.pack(chosen.pool.rows, self.actions)))
        # Of one shape, or it would be compiled again: rows without a next action are left out.
        count = jnp.minimum(held.num_rows, room)
        row = jnp.zeros_like(self.sets.row).at[:, : held.row.shape[1]].set(held.row[:, :room])
        column = (
            jnp.zeros_like(self.sets.column).at[:, : held.row.shape[1]].set(held.column[:, :room])
        )
        sets = self.sets._replace(row=row, column=column, num_rows=count, first_size=count)
        return replace(self, pool=pool, sets=sets)


@dataclass(frozen=True, eq=False)
class Progress:
    """State and metrics after an interval; training reuses the state's memory when it goes on."""

    step: int
    train_state: TrainState
    metrics: list[dict[str, float]]
    """Means over the updates of the interval, lane by lane."""
    stopped: tuple[Stopped | None, ...]
    """For every lane, why it was given up."""
    seconds: float
    """Duration of the interval."""


def prepare(learner: Learner, sets: Sequence[TrainingSet], lanes: Sequence[Lane]) -> TrainJob:
    """Put the rows and tables of a group of lanes on the device.

    Raises:
        ConfigError: No lanes, a lane without a set, sets of several pools, or too little memory.
        DataError: Rewards or next actions are missing.
    """
    check_fork()
    drop_programs_if_full()
    if not lanes or not sets:
        raise ConfigError(
            f"train: expected lanes and training sets, got {len(lanes)} and {len(sets)}"
        )
    if any(not 0 <= lane.line < len(sets) for lane in lanes):
        raise ConfigError(f"train: expected lanes of training sets 0 to {len(sets) - 1}")
    dataset = sets[0].pool
    if any(chosen.pool is not dataset for chosen in sets):
        raise ConfigError("train: expected training sets of one pool, got several pools")
    sets = with_own_rows(sets)
    dataset = sets[0].pool
    if learner.discrete != (dataset.action_codes is not None):
        form = form_of(learner.name, dataset.action_codes)  # or says that there is none
        kinds = ("discrete", "continuous") if learner.discrete else ("continuous", "discrete")
        raise ConfigError(
            f"{learner.name}: expected {kinds[0]} actions, got {kinds[1]} ones; make {form}"
        )
    if learner.needs_next_action and dataset.next_action is None and dataset.episode is not None:
        dataset = dataset.with_next_action()
        sets = [replace(chosen, pool=dataset) for chosen in sets]
    if learner.positions is not None and any(chosen.chunks for chosen in sets):
        raise ConfigError(f"{learner.name}: needs all rows in memory, as it ranks them; no chunks")
    if learner.positions is not None and any(chosen.groups for chosen in sets):
        raise ConfigError(f"{learner.name}: draws its rows itself, so it takes no groups")
    longest = max(len(chosen.rows) for chosen in sets)
    sizes = Sizes(dataset.obs.shape[1], dataset.action.shape[1], longest)
    rows_of.check_memory(learner, sizes, lanes=len(lanes), num_rows=len(dataset), sets=len(sets))
    actions = rows_of.action_range(dataset.action, dataset.provenance.action_range)
    held = _tables(learner, sets)
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
        codes=dataset.action_codes,
        names=_names(dataset),
        chunks=sets[0].chunks,
    )


def _names(dataset: Dataset) -> dict[str, tuple[str, ...]]:
    given = dataset.provenance
    widths = {"obs_names": dataset.obs.shape[1], "action_names": dataset.action.shape[1]}
    return {key: names for key, n in widths.items() if len(names := getattr(given, key)) == n}


def _tables(learner: Learner, sets: Sequence[TrainingSet]) -> Sets:
    return rows_of.tables(
        sets,
        batch_size=learner.config.batch_size,
        normalise_states=learner.normalise_states,
        scale_rewards=learner.scale_rewards,
        next_action=learner.needs_next_action,
        fixed_factor=learner.reward_factor,
        needs_reward=learner.needs_reward,
    )


def train(
    job: TrainJob,
    *,
    steps: int,
    interval: int,
    train_state: TrainState | None = None,
    done: int = 0,
) -> Iterator[Progress]:
    """Train all lanes and yield their progress every ``interval`` updates.

    Args:
        job: From `prepare`.
        steps: Updates in all.
        interval: Updates between two yields; the last interval may be shorter.
        train_state: State to resume from; fresh by default.
        done: Updates made before.

    Raises:
        ConfigError: Numbers of updates that are not whole cycles of the learner.
    """
    check_steps(job.learner, steps=steps, interval=interval)
    state, infinite, large = fresh(job) if train_state is None else train_state
    names = metric_names(job.learner, job.sizes)
    while done < steps:
        began = time.perf_counter()
        length = min(interval, steps - done)
        job = job.with_chunk(done // interval)
        state, metrics, (new_infinite, new_large) = run_interval(job, state, done, length)
        done += length
        infinite = np.where(infinite < 0, new_infinite, infinite)
        # The metrics of an update are older than the weights it leaves behind.
        sound = np.asarray(has_finite_actor(state, job.learner))
        infinite = np.where((infinite < 0) & ~sound, np.int32(done), infinite)
        large = np.where(large < 0, new_large, large)
        by_lane = [dict(zip(names, map(float, line), strict=True)) for line in metrics]
        train_state = TrainState(state, infinite, large)
        seconds = time.perf_counter() - began
        yield Progress(done, train_state, by_lane, stopped(job, train_state), seconds)


def stopped(job: TrainJob, train_state: TrainState) -> tuple[Stopped | None, ...]:
    """Return, for every lane, why it was given up, or None."""
    ends = zip(train_state.infinite_at, train_state.large_at, job.q_limit, strict=True)
    return tuple(_stopped(*each) for each in ends)


def check_steps(learner: Learner, **numbers: int) -> None:
    """Refuse numbers of updates that are not whole cycles.

    Raises:
        ConfigError: One is not a positive multiple of the learner's cycle, or is too large.
    """
    rows_of.check_counts(learner, **numbers)
    for name, number in numbers.items():
        if number < 1 or number % learner.cycle:
            raise ConfigError(
                f"{name}: expected a multiple of {learner.cycle}, the updates of one cycle of "
                f"{learner.name}, got {number}"
            )


def fresh(job: TrainJob) -> TrainState:
    """Return the state of all lanes before the first update."""
    state = init_states(_keys(job.lanes, "init"), job.learner, job.sizes)
    never = np.full(len(job.lanes), -1, np.int32)
    return TrainState(state, never, never)


def run_interval(
    job: TrainJob, state: Any, done: int, length: int
) -> tuple[Any, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Make ``length`` updates in chunks; return mean metrics (lanes, names), first bad updates."""
    keys = _keys(job.lanes, "updates")
    line = jnp.array([lane.line for lane in job.lanes], jnp.int32)
    limit = jnp.asarray(job.q_limit)
    run = program()
    sums, firsts = [], []
    for chunk in _chunk_lengths(job, length):
        state, total, first = run(
            state, keys, line, limit, job.pool, job.sets, np.int32(done),
            learner=job.learner, sizes=job.sizes, length=chunk,
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


def _chunk_lengths(job: TrainJob, length: int) -> list[int]:
    """Split an interval into chunks as long as memory allows; the last one may be shorter.

    Another length is another program to compile, so one that divides the interval is preferred.
    """
    cycle = job.learner.cycle
    room = _CHUNK_BYTES.get(jax.default_backend(), _CHUNK_BYTES["cpu"]) // _bytes_per_update(job)
    most = max(1, min(room, _LONGEST_CHUNK, length) // cycle) * cycle
    fitting = max(n for n in range(cycle, most + 1, cycle) if length % n == 0)
    chunk = most if fitting < most / 4 else fitting
    rest = length % chunk
    return [chunk] * (length // chunk) + ([rest] if rest else [])


def _bytes_per_update(job: TrainJob) -> int:
    size, act_dim = job.learner.config.batch_size, job.sizes.act_dim
    noise = jax.eval_shape(
        lambda key: job.learner.noise(key, size, act_dim), jax.random.key(0, impl="threefry2x32")
    )
    drawn = sum(4 * leaf.size for leaf in jax.tree.leaves(noise))
    return len(job.lanes) * (drawn + 4 * size * (job.pool.row.shape[1] + 5))


def policies(job: TrainJob, train_state: TrainState, *, steps: int) -> list[Policy | None]:
    """Return the policy of every lane, on the host; None for a lane that was given up."""
    # One lane's function, so that it may name axes as the learner's module does.
    params = jax.device_get(jax.vmap(job.learner.actor)(train_state.state))
    lost = stopped(job, train_state)
    metadata = {
        "learner": job.learner.name,
        "config": stored_config(job.learner.config),
        "steps": steps,
        "versions": versions(),
        **job.names,
    }
    made: list[Policy | None] = []
    for i, lane in enumerate(job.lanes):
        if lost[i] is not None:
            made.append(None)
            continue
        mean, scale = job.scaling[lane.line] or (None, None)
        made.append(
            Policy.of(
                job.learner.actor_kind,
                jax.tree.map(lambda leaf, i=i: leaf[i], params),
                mean=mean,
                scale=scale,
                low=job.actions.low,
                high=job.actions.high,
                codes=job.codes,
                metadata=metadata | {"seed": lane.seed},
            )
        )
    return made


def copied(progress: Progress) -> Progress:
    """Return the progress with states of its own, which training does not overwrite."""
    state = jax.tree.map(jnp.copy, progress.train_state.state)
    return replace(progress, train_state=progress.train_state._replace(state=state))


def most_lanes() -> int:
    """Return how many lanes to train together on the device in use."""
    return _MOST_LANES.get(jax.default_backend(), _MOST_LANES["cpu"])


def versions() -> dict[str, str]:
    """Return the versions and the device that decide the last bits of a training."""
    device = jax.devices()[0]
    return {
        "puorl": __version__,
        "jax": version("jax"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind}",
    }


def repeats_exactly(compiled: Path, earlier: Mapping[str, str]) -> bool:
    """Return whether this process computes the same bits as one with those versions did.

    Another compilation for a GPU may choose other kernels, so compiled programs must be kept.
    """
    same_program = jax.default_backend() == "cpu" or any(compiled.glob("*"))
    return same_program and earlier == versions()


@contextlib.contextmanager
def compilation_cache(folder: Path) -> Iterator[None]:
    """On a GPU, keep compiled programs in a folder and reuse those that are there."""
    if jax.default_backend() != "gpu":
        yield
        return
    from jax.experimental.compilation_cache import compilation_cache as cache

    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    earlier = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    cache.reset_cache()
    try:
        yield
    finally:
        for name, value in earlier.items():
            jax.config.update(name, value)
        cache.reset_cache()
