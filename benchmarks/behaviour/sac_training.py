"""The loop around soft actor-critic: steps given environments and learns alongside."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import sac

from puorl.core.errors import ConfigError


class Environments(Protocol):
    """What is stepped: lanes * num_envs environments, lane by lane, which reset themselves."""

    @property
    def obs(self) -> np.ndarray:
        """Current observations, (n, obs_dim)."""
        ...

    def step(self, action: np.ndarray) -> Any:
        """Step all; returns next_obs, reward, terminal, timeout as attributes."""
        ...


class Episodes(NamedTuple):
    """Finished episodes in the order they ended: lane, return and length of each, (n,)."""

    lane: np.ndarray
    returns: np.ndarray
    length: np.ndarray


class Point(NamedTuple):
    """Where training stands: the agents, what ended since the last point, the last metrics."""

    state: sac.State
    episodes: Episodes
    metrics: dict[str, np.ndarray]


_act = jax.jit(sac.act)
_act_at_random = jax.jit(sac.act_at_random, static_argnames="num_envs")
_insert = jax.jit(sac.insert, donate_argnums=0)
_learn = jax.jit(sac.learn, static_argnames="config", donate_argnums=0)


def train(
    state: sac.State,
    env: Environments,
    config: sac.SACConfig,
    *,
    num_iterations: int,
    point_every: int,
) -> Iterator[Point]:
    """Step every environment ``num_iterations`` times and yield a point every ``point_every``.

    A state's memory is reused as training goes on: of a point, copy what shall outlive the next.

    Args:
        state: From ``sac.init`` or an earlier point.
        env: lanes * num_envs environments; lane i owns rows i * num_envs and following.
        config: Settings; the same as for ``sac.init``.
        num_iterations: Steps of each environment; a multiple of ``point_every``.
        point_every: Iterations between two points.

    Yields:
        Points; the metrics are empty as long as nothing is learnt (warm-up).
    """
    if num_iterations % point_every:
        raise ConfigError(
            f"num_iterations: expected a multiple of point_every={point_every}, "
            f"got {num_iterations}"
        )
    log = _EpisodeLog(state.lane.action_mask.shape[0], config.num_envs)
    for _ in range(num_iterations // point_every):
        state, metrics = _run(state, env, config, point_every, log)
        yield Point(state, log.take(), {name: np.asarray(m) for name, m in metrics.items()})


def _run(
    state: sac.State,
    env: Environments,
    config: sac.SACConfig,
    num_iterations: int,
    log: "_EpisodeLog",
) -> tuple[sac.State, dict[str, jax.Array]]:
    start = int(state.replay.num_inserts)
    metrics: dict[str, jax.Array] = {}
    rows = None
    for iteration in range(start, start + num_iterations):
        obs = np.array(env.obs, np.float32)
        action = _choose(state.lane, obs, iteration, config)
        if rows is not None:
            # The updates are only queued here: they run while the simulator steps.
            state, metrics = _take_in(state, rows, iteration - 1, config)
        step = env.step(action)
        rows = sac.pack(obs, action, step.reward, step.next_obs, step.terminal)
        log.add(step.reward, step.terminal | step.timeout)
    assert rows is not None
    return _take_in(state, rows, start + num_iterations - 1, config)


def _warms_up(iteration: int, config: sac.SACConfig) -> bool:
    return iteration * config.num_envs < config.warm_up_steps


def _choose(lane: sac.Lane, obs: np.ndarray, iteration: int, config: sac.SACConfig) -> np.ndarray:
    number = np.int32(iteration)
    lanes, act_dim = lane.action_mask.shape
    if _warms_up(iteration, config):
        action = _act_at_random(lane.key, lane.action_mask, config.num_envs, number)
    else:
        obs = obs.reshape(lanes, config.num_envs, -1)
        action = _act(lane.params.actor, lane.key, lane.action_mask, obs, number)
    return np.asarray(action).reshape(lanes * config.num_envs, act_dim)


def _take_in(
    state: sac.State, rows: np.ndarray, iteration: int, config: sac.SACConfig
) -> tuple[sac.State, dict[str, jax.Array]]:
    rows = rows.reshape(state.lane.action_mask.shape[0], config.num_envs, -1)
    if _warms_up(iteration, config):
        return _insert(state, rows), {}
    return _learn(state, rows, config=config)


class _EpisodeLog:
    """Adds up rewards until an episode ends."""

    def __init__(self, lanes: int, num_envs: int) -> None:
        self._lane = np.repeat(np.arange(lanes), num_envs)
        self._sum = np.zeros(lanes * num_envs)
        self._length = np.zeros(lanes * num_envs, np.int64)
        self._ended: list[Episodes] = []

    def add(self, reward: np.ndarray, done: np.ndarray) -> None:
        self._sum += reward
        self._length += 1
        if done.any():
            self._ended.append(Episodes(self._lane[done], self._sum[done], self._length[done]))
            self._sum[done] = 0.0
            self._length[done] = 0

    def take(self) -> Episodes:
        """Hand over the episodes that ended since the last call."""
        none = Episodes(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
        ended = Episodes(*map(np.concatenate, zip(none, *self._ended, strict=True)))
        self._ended = []
        return ended
