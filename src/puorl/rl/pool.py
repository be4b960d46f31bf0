"""Rows on the device: one pool for all lanes, and tables of the rows that each lane may draw.

A training set is a line of every table; two lanes with the same set share its line.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.resources import require_memory
from puorl.data.dataset import Dataset
from puorl.data.training_set import REPLACED, Groups, TrainingSet
from puorl.data.transitions import Transitions
from puorl.rl.learner import Batch, Learner, Sizes

STATE_EPSILON = 1e-5
"""Added to the standard deviation of every state component that varies."""
_FLAT = 1e-9
"""Deviation, relative to the mean, of a component that never changes: rounding of sums."""
_MOST_WIDENED = 10.0
"""Width of the actions' range, relative to that of 99 % of the rows, above which a row is odd."""
ACTION_LIMIT = 1.0 - 1e-5
"""Actions of the data are clipped to this, so that the inverse of tanh stays finite."""
_RETURN_RANGE = 1000.0
"""IQL's rewards are scaled so that the returns of complete episodes have this range."""
_WEIGHT = 1
"""Column of the weights in `Sets.column`."""


class Pool(NamedTuple):
    """Packed rows, as the device holds them."""

    row: jax.Array
    """(n, width) float32: obs, action, next_obs, next_action, terminal side by side."""


class Sets(NamedTuple):
    """Tables of s training sets; k is the size of the largest."""

    row: jax.Array
    """(s, k) int32. Positions in the pool; shorter sets are padded with zeros."""
    column: jax.Array
    """(s, k, 4) float32. Reward (scaled), weight (1 on average), critic weight, score."""
    num_rows: jax.Array
    """(s,) int32."""
    first_size: jax.Array
    """(s,) int32. Rows of the first group, which comes first."""
    second_start: jax.Array
    """(s,) int32. Start of the second group: 0 if both are the whole set."""
    first_draws: jax.Array
    """(s,) int32. Rows of a batch that come from the first group."""
    num_kept: jax.Array | None
    """(s,) int32. Rows of a batch that are kept: all of the first group, the best of the second.

    None if every set keeps all, so that nothing is ranked.
    """
    centre: jax.Array
    """(s, width) float32. Subtracted from a packed row."""
    factor: jax.Array
    """(s, width) float32. Multiplied with the difference."""


class ActionRange(NamedTuple):
    """Range of actions, (m,) float64, that learners see as -1 to 1."""

    low: np.ndarray
    high: np.ndarray

    def inward(self, action: np.ndarray) -> np.ndarray:
        """Return actions (n, m) as learners see them, float32."""
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        scaled = (action - middle) / half
        return np.clip(scaled, -ACTION_LIMIT, ACTION_LIMIT).astype(np.float32)


Bounds = tuple[Sequence[float], Sequence[float]]
"""Lowest and highest value of each action component, as `Provenance.action_range` holds them."""


def action_range(action: np.ndarray, stated: Bounds | None = None) -> ActionRange:
    """Return stated bounds; else [-1, 1] if all actions are in it, else each component's range."""
    ends = (action.min(axis=0), action.max(axis=0)) if stated is None else stated
    low, high = (np.asarray(end, np.float64) for end in ends)
    if len(low) != action.shape[1]:
        raise DataError(
            f"action_range: expected bounds of {action.shape[1]} action columns, got {len(low)}"
        )
    if stated is None and max(-low.min(), high.max()) <= 1.0 + 1e-6:
        return ActionRange(np.full_like(low, -1.0), np.full_like(high, 1.0))
    flat = high - low <= 0.0  # a component that never moves: any width will do
    return ActionRange(np.where(flat, low - 1.0, low), np.where(flat, high + 1.0, high))


def with_action_bounds(chosen: TrainingSet, bounds: Sequence[Any] | None) -> TrainingSet:
    """Return the set with the user's bounds of actions: (low, high), each a number or one a column.

    Raises:
        ConfigError: Not finite, of another number, or low is not below high.
    """
    if bounds is None:
        return chosen
    width = chosen.pool.action.shape[1]
    try:
        ends = [np.broadcast_to(np.asarray(end, np.float64), width) for end in bounds]
    except (TypeError, ValueError):
        ends = []
    if len(ends) != 2 or not (np.isfinite(ends).all() and (ends[0] < ends[1]).all()):
        raise ConfigError(
            f"action_bounds: expected low and high, one or {width} finite numbers each, with low "
            f"below high, got {bounds!r}"
        )
    stated = tuple(ends[0].tolist()), tuple(ends[1].tolist())
    provenance = dataclasses.replace(chosen.pool.provenance, action_range=stated)
    pool = dataclasses.replace(chosen.pool, provenance=provenance)
    return dataclasses.replace(chosen, pool=pool)


def describe_odd_actions(action: np.ndarray, stated: Bounds | None = None) -> str | None:
    """Return a sentence if rows lie outside stated bounds, or if a few odd rows set the range."""
    low, high = action_range(action, stated)
    if stated is not None:
        slack = 1e-6 * (high - low)
        outside = int(((action < low - slack) | (action > high + slack)).any(axis=1).sum())
        text = f"actions of {outside:,} of {len(action):,} rows lie outside their bounds"
        return f"{text} and are clipped to them" if outside else None
    if (low == -1.0).all() and (high == 1.0).all():
        return None
    inner_low, inner_high = np.quantile(action, (0.005, 0.995), axis=0)
    usual = inner_high - inner_low
    ratio = np.divide(high - low, usual, out=np.zeros_like(high), where=usual > 0)
    worst = int(ratio.argmax())
    if ratio[worst] <= _MOST_WIDENED:
        return None
    return (
        f"action {worst}: its range {low[worst]:g} to {high[worst]:g}, which learners see as -1 to "
        f"1, is set by a few rows: 99 % lie in {inner_low[worst]:g} to {inner_high[worst]:g}, so "
        "that the learner can hardly tell these apart; give the bounds of actions (action_bounds), "
        "remove the odd rows, or clip their actions"
    )


def pack(rows: Transitions, actions: ActionRange) -> np.ndarray:
    """Return the rows of `Pool`; an unknown next state of a terminal row becomes its own state."""
    next_obs = np.where(np.isnan(rows.next_obs), rows.obs, rows.next_obs)
    action = actions.inward(rows.action)
    next_action = np.zeros_like(action)
    if rows.next_action is not None:
        known = np.isfinite(rows.next_action).all(axis=1)
        next_action[known] = actions.inward(rows.next_action[known])
    parts = (rows.obs, action, next_obs, next_action, rows.terminal[:, None])
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def reward_factor(chosen: TrainingSet) -> float | None:
    """Return the factor of IQL's rewards; None if no complete episodes are known."""
    if chosen.returns is None or chosen.returns[1] <= chosen.returns[0]:
        return None
    return _RETURN_RANGE / (chosen.returns[1] - chosen.returns[0])


def tables(
    sets: Sequence[TrainingSet],
    *,
    batch_size: int,
    normalise_states: bool,
    scale_rewards: bool,
    next_action: bool,
    fixed_factor: float = 1.0,
    needs_reward: bool = True,
) -> Sets:
    """Make the tables of training sets of one pool.

    Args:
        sets: All of the same pool.
        batch_size: Rows of a batch.
        normalise_states: Normalise states by each set's own statistics.
        scale_rewards: Multiply rewards by `reward_factor`.
        next_action: Leave out rows without a next action that are not terminal.
        fixed_factor: Multiply rewards by it where ``scale_rewards`` does not.
        needs_reward: Refuse rows without rewards; else they are zeros there.

    Raises:
        ConfigError: A batch is too small for two groups.
        DataError: Rewards are missing, or a set is left with no row.
    """
    rewards = [_rewards(chosen, needs_reward) for chosen in sets]
    factors = [(reward_factor(each) if scale_rewards else fixed_factor) or 1.0 for each in sets]
    lines = [
        _line(chosen, reward * factor, next_action)
        for chosen, reward, factor in zip(sets, rewards, factors, strict=True)
    ]
    longest = max(len(index) for index, _ in lines)
    index = np.zeros((len(sets), longest), np.int32)
    column = np.zeros((len(sets), longest, 4), np.float32)
    for i, (rows, columns) in enumerate(lines):
        index[i, : len(rows)], column[i, : len(rows)] = rows, columns
    num_rows = np.array([len(rows) for rows, _ in lines])
    first_size, second_start = num_rows.copy(), np.zeros_like(num_rows)
    first_draws = np.full(len(sets), batch_size)
    num_kept = np.full(len(sets), batch_size)
    for i, chosen in enumerate(sets):
        if chosen.groups is not None:
            first_size[i] = second_start[i] = chosen.groups.num_first
            first_draws[i] = round(batch_size * chosen.groups.first_share)
            if not 0 < first_draws[i] < batch_size:
                raise ConfigError(
                    f"first_share: expected rows of both groups in a batch of {batch_size}, got "
                    f"{first_draws[i]} of the first; make the batch larger"
                )
            best = round(chosen.groups.top * (batch_size - first_draws[i]))
            num_kept[i] = first_draws[i] + best
    centre, factor = zip(*(_scaling(chosen, normalise_states) for chosen in sets), strict=True)
    counts = {
        "num_rows": num_rows,
        "first_size": first_size,
        "second_start": second_start,
        "first_draws": first_draws,
    }
    return Sets(
        row=jnp.asarray(index),
        column=jnp.asarray(column),
        **{name: jnp.asarray(count, jnp.int32) for name, count in counts.items()},
        num_kept=jnp.asarray(num_kept, jnp.int32) if (num_kept < batch_size).any() else None,
        centre=jnp.asarray(np.stack(centre)),
        factor=jnp.asarray(np.stack(factor)),
    )


def _rewards(chosen: TrainingSet, needs_reward: bool) -> np.ndarray:
    if chosen.reward is not None:
        return chosen.reward
    if chosen.pool.reward is not None:
        return chosen.pool.reward[chosen.rows]
    if needs_reward:
        raise DataError("training: expected rows with a reward, got none; name its column")
    return np.zeros(len(chosen.rows))


def _line(
    chosen: TrainingSet, reward: np.ndarray, next_action: bool
) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = chosen.rows, [reward]
    for name, default in (("weight", 1.0), ("critic_weight", 1.0), ("score", 0.0)):
        column = getattr(chosen, name)
        columns.append(np.full(len(rows), default) if column is None else column)
    packed = np.stack([column.astype(np.float32) for column in columns], axis=1)
    if not next_action:
        return rows, _with_mean_weight_one(packed, chosen.groups)
    if chosen.groups is not None:
        raise DataError("training: a learner that needs next actions takes no groups")
    usable = _followed(chosen.pool.rows)[rows]
    if not usable.any():
        raise DataError(
            "training: expected rows whose next action is known, got none; this learner needs "
            "whole episodes (or a column of next actions)"
        )
    return rows[usable], _with_mean_weight_one(packed[usable])


def _with_mean_weight_one(column: np.ndarray, groups: Groups | None = None) -> np.ndarray:
    """Scale weights to mean 1, so that they do not shift the balance between terms of a loss.

    The mean is that of a batch, in which groups have other shares than in the set. TD3+BC divides
    its Q term by its own size, where weights cancel; in the distance they do not.
    """
    mean = column[:, _WEIGHT].mean(dtype=np.float64)
    if groups is not None:
        parts = np.split(column[:, _WEIGHT], [groups.num_first])
        first, second = (part.mean(dtype=np.float64) for part in parts)
        mean = second + groups.first_share * (first - second)  # exactly 1 where both are
    if mean not in (0.0, 1.0):  # 0: all rows with weight were left out
        column[:, _WEIGHT] = column[:, _WEIGHT] / mean
    return column


def _followed(rows: Transitions) -> np.ndarray:
    """Return (n,) bool: whether the next action is known, or the row is terminal."""
    if rows.next_action is None:
        return np.zeros(len(rows), bool)
    return rows.terminal | np.isfinite(rows.next_action).all(axis=1)


def _scaling(chosen: TrainingSet, normalise_states: bool) -> tuple[np.ndarray, np.ndarray]:
    obs_dim, act_dim = chosen.pool.obs.shape[1], chosen.pool.action.shape[1]
    width = 2 * (obs_dim + act_dim) + 1
    centre, factor = np.zeros(width, np.float32), np.ones(width, np.float32)
    if normalise_states:
        mean, scale = state_scaling(chosen)
        for start in (0, obs_dim + act_dim):
            centre[start : start + obs_dim] = mean
            factor[start : start + obs_dim] = 1.0 / scale
    return centre, factor


def state_scaling(chosen: TrainingSet) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and divisor of the set's states, each (d,) float32; 1 for one that is constant.

    Divided by epsilon alone, the smallest change of such a component would decide every action.
    """
    mean, std = chosen.obs_statistics
    scale = np.where(constant_states(chosen), 1.0, std + STATE_EPSILON)
    return mean.astype(np.float32), scale.astype(np.float32)


def constant_states(chosen: TrainingSet) -> np.ndarray:
    """Return (d,) bool: components of the state that are the same in all rows."""
    mean, std = chosen.obs_statistics
    return std <= _FLAT * np.abs(mean)


def notes_on(learner: Learner, chosen: TrainingSet) -> list[str]:
    """Return what a user should know of the rows: notes of their reader, and our own."""
    notes = list(chosen.pool.provenance.notes)
    still = np.flatnonzero(constant_states(chosen)) if learner.normalise_states else ()
    if len(still):
        listed = ", ".join(map(str, still[:10])) + (", ..." if len(still) > 10 else "")
        notes.append(f"state {listed}: never changes, so it is centred but not scaled")
    if chosen.pool.reward is None:
        notes.append(f"no rewards: {learner.name} copies the actions of all rows, good or bad")
    return notes


# ------------------------------------------------------------------------ one lane, one batch


def draw(key: jax.Array, sets: Sets, line: jax.Array, batch_size: int) -> jax.Array:
    """Draw positions (b,) int32 in the training set: first group, then second."""
    of_first = jnp.arange(batch_size) < sets.first_draws[line]
    second_start = sets.second_start[line]
    size = jnp.where(of_first, sets.first_size[line], sets.num_rows[line] - second_start)
    drawn = jax.random.randint(key, (batch_size,), 0, size)
    return drawn + jnp.where(of_first, 0, second_start)


def best(score: jax.Array, of_first: jax.Array, num_kept: jax.Array) -> jax.Array:
    """Return (b,) float32, 1 for the rows to keep: the first group, then the highest scores.

    Of equal scores the earlier one comes first, so that exactly ``num_kept`` rows are kept.
    """
    score = jnp.where(of_first, jnp.inf, score)
    last = jnp.broadcast_to(jnp.sort(score, descending=True)[num_kept - 1], score.shape)
    above, equal = score > last, score == last
    room = num_kept - jnp.sum(above)
    return (above | (equal & (jnp.cumsum(equal) <= room))).astype(jnp.float32)


def gather(pool: Pool, sets: Sets, line: jax.Array, position: jax.Array) -> jax.Array:
    """Return the rows at these positions of the training set, packed: (b, width + 4) float32.

    Packed, because rows of many batches are gathered at once and held until they are used.
    """
    row = pool.row[sets.row[line, position]]
    row = (row - _repeated(sets.centre[line], row)) * _repeated(sets.factor[line], row)
    column = sets.column[line, position]
    reward, weight, critic_weight, score = jnp.unstack(column, axis=1)
    if sets.num_kept is None:
        keep = jnp.ones_like(score)
    else:
        of_first = jnp.arange(len(position)) < sets.first_draws[line]
        keep = best(score, of_first, sets.num_kept[line])
    side = jnp.stack([reward, keep, weight, critic_weight], axis=1)
    return jnp.concatenate([row, side], axis=1)


def unpack(packed: jax.Array, position: jax.Array, obs_dim: int, act_dim: int) -> Batch:
    """Return what `gather` packed, by name."""
    ends = np.cumsum([obs_dim, act_dim, obs_dim, act_dim, 1])
    obs, action, next_obs, next_action, terminal, side = jnp.split(packed, ends, axis=1)
    reward, keep, weight, critic_weight = jnp.unstack(side, axis=1)
    return Batch(
        obs=obs,
        action=action,
        reward=reward,
        next_obs=next_obs,
        terminal=terminal[:, 0],
        next_action=next_action,
        keep=keep,
        weight=weight,
        critic_weight=critic_weight,
        position=position,
    )


def _repeated(line: jax.Array, rows: jax.Array) -> jax.Array:
    return jnp.broadcast_to(line, rows.shape)


def check_rows(learner: Learner, chosen: TrainingSet) -> None:
    """Warn if few rows set the range of actions, or if the scale of rewards is unknown.

    Raises:
        DataError: The learner needs rewards, and there are none.
    """
    reward = chosen.pool.reward if chosen.reward is None else chosen.reward
    if learner.needs_reward and reward is None:
        raise DataError(
            f"{learner.name}: expected rows with a reward, got none; name its column or give a "
            "formula with --reward (reward= in Python), or choose the learner bc, which needs none"
        )
    known = chosen.pool.provenance.action_range
    if not learner.discrete and (odd := describe_odd_actions(chosen.pool.action, known)):
        warnings.warn(odd, stacklevel=4)
    if learner.scale_rewards and reward is not None and reward_factor(chosen) is None:
        size = float(np.abs(reward).mean())
        warnings.warn(
            f"{learner.name}: rewards are not scaled, since fewer than two complete episodes with "
            f"different returns are known; their mean size is {size:.3g} a step, and "
            f"reward_scale={1.0 / size if size > 0 else 1.0:.3g} (--set) would make it 1",
            stacklevel=4,
        )


_LARGEST = 2**31 - 1
"""Rows, columns and updates are counted in 32 bits on the device."""
_LONGEST_CYCLE = 100
"""Updates of a cycle are compiled one by one."""
_NUMBER = 4
"""Bytes of a float32 or int32."""
_MORE_PER_ROW = 5
"""Numbers of a drawn row besides the packed ones: reward, three weights, position."""


def check_counts(learner: Learner, **numbers: int) -> None:
    """Refuse whole numbers that do not fit into 32 bits.

    Args:
        learner: Its settings are checked.
        **numbers: Others, by name.

    Raises:
        ConfigError: One is 2**31 or more, or a cycle is too long to be compiled.
    """
    if learner.cycle > _LONGEST_CYCLE:
        raise ConfigError(
            f"{learner.name}: expected a cycle of at most {_LONGEST_CYCLE} updates, "
            f"got {learner.cycle:,}; lower policy_delay"
        )
    settings = dataclasses.asdict(learner.config)
    for name, value in {**settings, **numbers}.items():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, int) and each > _LARGEST:
                raise ConfigError(f"{name}: expected {_LARGEST:,} or less, got {each:,}")


def check_memory(learner: Learner, sizes: Sizes, *, lanes: int, num_rows: int, sets: int) -> None:
    """Refuse lanes that cannot fit on the device together.

    Args:
        learner: What is to be trained.
        sizes: Of its states.
        lanes: Agents that train side by side.
        num_rows: Rows of the pool.
        sets: Training sets in the tables.

    Raises:
        ConfigError: They need more memory than the device has left.
    """
    check_counts(learner)
    parts = _parts(learner, sizes, lanes=lanes, num_rows=num_rows, sets=sets)
    repairs = {
        "a batch": "lower batch_size or hidden, or train fewer seeds at once",
        "networks": "lower hidden, or train fewer seeds at once",
        "rows": "train on fewer rows",
    }
    most = max(parts, key=lambda name: parts[name])
    require_memory(
        sum(parts.values()),
        f"training {lanes} of {learner.name} side by side, most of it for {most}",
        repair=repairs[most],
        free=_free_on_device(),
    )


def _parts(
    learner: Learner, sizes: Sizes, *, lanes: int, num_rows: int, sets: int
) -> dict[str, int]:
    """Return bytes by purpose."""
    size = learner.config.batch_size
    width = 2 * (sizes.obs_dim + sizes.act_dim) + 1
    key = jax.random.key(0, impl="threefry2x32")
    state = jax.tree.leaves(jax.eval_shape(lambda k: learner.init(k, sizes), key))
    noise = jax.eval_shape(lambda k: learner.noise(k, size, sizes.act_dim), key)
    layers = [leaf.shape[-1] for leaf in state if leaf.ndim >= 2]
    drawn = size * (width + _MORE_PER_ROW) + sum(leaf.size for leaf in jax.tree.leaves(noise))
    made = size * max(layers, default=0)  # the widest layer's output for a batch
    return {
        "a batch": _NUMBER * lanes * (learner.cycle * drawn + made),
        "networks": _NUMBER * lanes * sum(leaf.size for leaf in state),
        "rows": _NUMBER * (num_rows * width + sets * sizes.num_rows * _MORE_PER_ROW),
    }


def _free_on_device() -> int | None:
    """Return the bytes left on the device; None on a CPU, which has the machine's memory."""
    stats: dict[str, Any] = jax.devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None


def with_own_rows(sets: Sequence[TrainingSet]) -> list[TrainingSet]:
    """Return the same sets of one pool, at whose end are the rows with replaced values.

    Only these rows are added, so that a learner sees rows of a pool, whatever a method changed.
    Sets without replaced values, of any pools, are returned as they are.
    """
    if all(chosen.action is None and chosen.next_obs is None for chosen in sets):
        return list(sets)
    parts, made, end = [sets[0].pool.rows], [], len(sets[0].pool)
    for chosen in sets:
        held, changed = chosen.pool.rows, np.zeros(len(chosen), bool)
        given = {name: a for name in REPLACED if (a := getattr(chosen, name)) is not None}
        for name, array in given.items():
            given[name] = array.astype(getattr(held, name).dtype)
            differs = given[name] != getattr(held, name)[chosen.rows]
            changed |= (differs & ~np.isnan(given[name])).any(axis=1)
        rows = chosen.rows.copy()
        rows[changed] = end + np.arange(changed.sum())
        end += int(changed.sum())
        own = {name: array[changed] for name, array in given.items()}
        parts.append(dataclasses.replace(held[chosen.rows[changed]], **own))
        made.append(rows)
    arrays = [part.arrays() for part in parts]
    joined = {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
    pool = Dataset(Transitions(**joined), {}, sets[0].pool.provenance)
    plain = {"pool": pool, "action": None, "next_obs": None}
    return [
        dataclasses.replace(chosen, rows=rows, **plain)
        for chosen, rows in zip(sets, made, strict=True)
    ]
