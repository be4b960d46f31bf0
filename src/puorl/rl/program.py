"""The compiled program: a chunk of updates of all lanes, in one loop on the device.

Everything random, and the rows of every batch, are drawn for the whole chunk before the loop, which
then only computes.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from puorl.core import nn
from puorl.rl import pool as rows_of
from puorl.rl.learner import Learner, Sizes
from puorl.rl.pool import Pool, Sets

# A new process may choose other kernels; without these it may also add in another order.
_GPU_OPTIONS = {
    "xla_gpu_deterministic_ops": True,
    "xla_gpu_exclude_nondeterministic_ops": True,
    # Its matrix products fail with an illegal instruction when many small ones run side by side.
    "xla_gpu_enable_triton_gemm": False,
    # Merged products of two updates come with copies that cost more than the second product.
    "xla_gpu_dot_merger_threshold_mb": 0,
}


@nn.half_units()
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
        seen = _foreseen(learner, lane, picked, noise, sizes) if learner.foresee else None
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
    assert learner.foresee is not None
    packed, position = picked
    rows = rows_of.unpack(
        packed.reshape(-1, packed.shape[-1]), position.reshape(-1), sizes.obs_dim, sizes.act_dim
    )
    side_by_side = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), noise)
    seen = learner.foresee(lane, rows, side_by_side)
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
