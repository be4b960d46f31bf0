"""A model of our machine in which policies act: learnt from the others' rows, then tuned on ours.

Few rows are ours, and physics is mostly shared. So networks first learn the change of the state and
the reward from the others' rows, with a rate that falls to 0, and go on with batches of which half
are ours. A further input says whose row it is, so that where machines contradict each other the
model is no compromise. It must be precise: in a model with twice the error Hopper fell early,
whoever acted (benchmarks/notes/sharing.md). A task ends where logged tasks ended: beyond the states
that anyone acted in, in a column in which a terminal row went beyond them.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.envs.evaluate import Actor
from puorl.nn import mlp

_MARGIN = 0.1
"""How far beyond the logged range a state may go, as a fraction of that range."""
_EPSILON = 1e-6
_LEAST_SCALE = 1e-3
_POINTS = 10  # compiled stretches of a fit
_TUNING_RATE = 0.3
"""Of the first rate, when our rows join."""
_BLOCK = 16_384


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the networks."""

    num_members: int = 3
    hidden: tuple[int, ...] = (256, 256)
    num_steps: int = 24_000
    """Updates with the others' rows."""
    num_tuning: int = 3_000
    """Updates with batches of which half are ours."""
    batch_size: int = 256
    learning_rate: float = 1e-3


class OwnModel(NamedTuple):
    """Fitted networks; members have a leading axis."""

    params: mlp.Params
    centre: np.ndarray
    scale: np.ndarray
    """(d + m,) Of states and actions."""
    middle: np.ndarray
    unit: np.ndarray
    """(d + 1,) Mean and deviation of our changes of the state, and of our reward."""
    low: np.ndarray
    high: np.ndarray
    """(d,) Edges at which states are kept."""
    ends: tuple[np.ndarray, np.ndarray]
    """(d,) Below and above which tasks end; infinite where they never do."""
    rewards: tuple[float, float]

    def step(self, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return next states (k, n, d), rewards (k, n), and whether tasks go on (k, n)."""
        out = self.middle + self.unit * self._predict(np.concatenate([obs, action], axis=-1))
        moved = obs + out[..., :-1]
        goes_on = ((moved > self.ends[0]) & (moved < self.ends[1])).all(axis=-1)
        kept = np.clip(moved, self.low, self.high).astype(np.float32)
        return kept, np.clip(out[..., -1], *self.rewards), goes_on

    def error(self, pool: Dataset, rows: np.ndarray) -> float:
        """Return the mean squared error of the members' mean, in units of our changes."""
        total, num = 0.0, len(self.params[0].w)
        for first in range(0, len(rows), _BLOCK):
            part = rows[first : first + _BLOCK]
            x, y = _inputs(pool, part), (_outcomes(pool, part) - self.middle) / self.unit
            out = self._predict(np.broadcast_to(x, (num, *x.shape))).mean(axis=0)
            total += float(np.square(out - y).mean(axis=1).sum())
        return total / len(rows)

    def _predict(self, x: np.ndarray) -> np.ndarray:
        x = _with_owner((x - self.centre) / self.scale, 1.0)
        return np.asarray(_predict(self.params, jnp.asarray(x)))


def fit(
    pool: Dataset, ours: np.ndarray, theirs: np.ndarray, config: ModelConfig, *, seed: int
) -> OwnModel:
    """Fit the model.

    Args:
        pool: All rows, with rewards.
        ours: Positions of our rows with known next states.
        theirs: Positions of others' rows with known next states.
        config: Settings.
        seed: Of weights and batches.
    """
    if not (len(ours) and len(theirs)):
        raise DataError(f"model: expected rows of both, got {len(ours)} and {len(theirs)}")
    assert pool.reward is not None
    both = np.concatenate([ours, theirs])
    x, y = _inputs(pool, both), _outcomes(pool, both)
    centre, scale = x.mean(axis=0), x.std(axis=0) + _LEAST_SCALE
    middle, unit = y[: len(ours)].mean(axis=0), y[: len(ours)].std(axis=0) + _EPSILON
    x, y = (x - centre) / scale, ((y - middle) / unit).astype(np.float32)
    parts = slice(len(ours)), slice(len(ours), None)
    mine, rest = (
        (jnp.asarray(_with_owner(x[part], owner)), jnp.asarray(y[part]))
        for part, owner in zip(parts, (1.0, 0.0), strict=True)
    )
    word = int(generator(seed, "comparison", "own model").integers(2**31))
    first, second, third = jax.random.split(jax.random.key(word), 3)
    sizes = (x.shape[1] + 1, *config.hidden, y.shape[1])
    params = mlp.init_ensemble(first, config.num_members, sizes)
    rate, half = config.learning_rate, config.batch_size // 2
    params = _trained(params, second, (rest,), (2 * half,), config.num_steps, rate)
    rate *= _TUNING_RATE
    params = _trained(params, third, (rest, mine), (half, half), config.num_tuning, rate)
    obs, after = pool.obs[both], pool.next_obs[both[pool.terminal[both]]]
    low, high = obs.min(axis=0), obs.max(axis=0)
    ends = (
        np.where((after < low).any(axis=0), low, -np.inf),
        np.where((after > high).any(axis=0), high, np.inf),
    )
    margin = _MARGIN * (high - low)
    reward = pool.reward[both]
    rewards = float(reward.min()), float(reward.max())
    edges = low - margin, high + margin
    return OwnModel(params, centre, scale, middle, unit, *edges, ends, rewards)


def roll_out(model: OwnModel, policy: Actor, start: np.ndarray, horizon: int) -> np.ndarray:
    """(k, n) float64. Sum of rewards of a policy from each start, in each member.

    Args:
        model: Where it acts.
        policy: Who acts.
        start: (n, d) float32.
        horizon: Steps.
    """
    num = len(model.params[0].w)
    obs = np.broadcast_to(start, (num, *start.shape)).astype(np.float32)
    alive = np.ones(obs.shape[:2], bool)
    total = np.zeros(obs.shape[:2])
    for _ in range(horizon):
        action = policy.act(obs.reshape(-1, obs.shape[2])).reshape(*obs.shape[:2], -1)
        obs, reward, goes_on = model.step(obs, action)
        total += np.where(alive, reward, 0.0)
        alive &= goes_on
        if not alive.any():
            break
    return total


def _inputs(pool: Dataset, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([pool.obs[rows], pool.action[rows]], axis=1).astype(np.float64)


def _outcomes(pool: Dataset, rows: np.ndarray) -> np.ndarray:
    assert pool.reward is not None
    change = pool.next_obs[rows] - pool.obs[rows]
    return np.concatenate([change, pool.reward[rows, None]], axis=1).astype(np.float64)


def _with_owner(x: np.ndarray, owner: float) -> np.ndarray:
    """Append a column that is 1 where a row is ours."""
    flag = np.full((*x.shape[:-1], 1), owner)
    return np.concatenate([x, flag], axis=-1).astype(np.float32)


def _apply(params: mlp.Params, x: jax.Array) -> jax.Array:
    return mlp.apply_mlp(params, x, jax.nn.silu)


@jax.jit
def _predict(params: mlp.Params, x: jax.Array) -> jax.Array:
    return jax.vmap(_apply)(params, x)


def _trained(
    params: mlp.Params,
    key: jax.Array,
    sources: tuple[tuple[jax.Array, jax.Array], ...],
    counts: tuple[int, ...],
    num_steps: int,
    rate: float,
) -> mlp.Params:
    state: Any = params, mlp.init_adam(params)
    for point in range(_POINTS):
        begin, end = (num_steps * i // _POINTS for i in (point, point + 1))
        if end > begin:
            own = jax.random.fold_in(key, point)
            rates = 0.5 * rate * (1.0 + np.cos(np.pi * np.arange(begin, end) / num_steps))
            state = _run(state, own, jnp.asarray(rates, jnp.float32), sources, counts)
    return state[0]


@partial(jax.jit, static_argnames="counts")
def _run(state: Any, key: jax.Array, rates: jax.Array, sources: Any, counts: Any) -> Any:
    num = state[0][0].w.shape[0]

    def step(state: Any, given: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        key, rate = given
        drawn = []
        for (x, y), count, own in zip(
            sources, counts, jax.random.split(key, len(counts)), strict=True
        ):
            rows = jax.random.randint(own, (num, count), 0, len(x))
            drawn.append((x[rows], y[rows]))
        x, y = (jnp.concatenate(each, axis=1) for each in zip(*drawn, strict=True))

        def loss(params: mlp.Params) -> jax.Array:
            return jnp.square(jax.vmap(_apply)(params, x) - y).mean(axis=(1, 2)).sum()

        params, moments = state
        return mlp.apply_adam(params, jax.grad(loss)(params), moments, learning_rate=rate), None

    return jax.lax.scan(step, state, (jax.random.split(key, len(rates)), rates))[0]
