"""Environments of several bodies as one: the lanes of a training run, padded to common lengths."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.envs import bodies
from puorl.envs.domains import domain
from puorl.envs.simulator import Simulator, Step

# Time of a control step relative to the cheapest body, measured.
_STEP_COST = {"halfcheetah": 3, "hopper": 5, "walker2d": 8}


@dataclass(frozen=True)
class LaneSpec:
    """One agent: where it lives, and its seed."""

    body: str
    domain: str
    seed: int


def lane_specs(
    names: Sequence[str], domains: Sequence[str], num_seeds: int, seed: int
) -> tuple[LaneSpec, ...]:
    """Every body x domain x seed, body by body; a lane's seed does not depend on the others."""
    return tuple(
        LaneSpec(body, name, int(generator(seed, "lane", body, name, k).integers(2**31)))
        for body in names
        for name in domains
        for k in range(num_seeds)
    )


def padded_dims(lanes: Sequence[LaneSpec]) -> tuple[int, int]:
    """The longest observation and action among the lanes."""
    found = [bodies.body(lane.body) for lane in lanes]
    return max(body.obs_dim for body in found), max(body.act_dim for body in found)


def action_mask(lanes: Sequence[LaneSpec]) -> np.ndarray:
    """(lanes, act_dim) float32. 1 where the lane's body has that action component."""
    act_dim = padded_dims(lanes)[1]
    return np.array(
        [np.arange(act_dim) < bodies.body(lane.body).act_dim for lane in lanes], np.float32
    )


def share_threads(names: Sequence[str], threads: int) -> list[int]:
    """Split threads among bodies by what a control step costs; each gets at least one."""
    total = sum(_STEP_COST[body] for body in names)
    return [max(1, int(threads * _STEP_COST[body] / total)) for body in names]


class Fleet:
    """One simulator per body, stepped side by side; rows in the order of the lanes."""

    def __init__(
        self, lanes: Sequence[LaneSpec], *, num_envs: int, seed: int, threads: int
    ) -> None:
        names = list(dict.fromkeys(lane.body for lane in lanes))
        assert [lane.body for lane in lanes] == sorted((b.body for b in lanes), key=names.index)
        self._obs_dim, self._act_dim = padded_dims(lanes)
        self._seed = seed
        self._simulators: list[Simulator] = []
        self._rows: list[slice] = []
        self._threads = share_threads(names, threads)
        for body, num_threads in zip(names, self._threads, strict=True):
            specs = [domain(lane.body, lane.domain) for lane in lanes if lane.body == body]
            each = [spec for spec in specs for _ in range(num_envs)]
            self._simulators.append(Simulator(each, seed=seed, threads=num_threads))
            start = self._rows[-1].stop if self._rows else 0
            self._rows.append(slice(start, start + len(each)))
        self._pool = ThreadPoolExecutor(len(names))
        self.num_unstable = 0

    @property
    def obs(self) -> np.ndarray:
        """(n, obs_dim) float32. Current observations, zeros behind the end of shorter ones."""
        return self._gather([simulator.obs for simulator in self._simulators])

    def step(self, action: np.ndarray) -> Step:
        """Step all; each body takes its part of the action."""
        parts = list(
            self._pool.map(self._step_one, range(len(self._rows)), [action] * len(self._rows))
        )
        return Step(
            self._gather([part.next_obs for part in parts]),
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.terminal for part in parts]),
            np.concatenate([part.timeout for part in parts]),
        )

    def close(self) -> None:
        """End all threads."""
        self._pool.shutdown()
        for simulator in self._simulators:
            simulator.close()

    def _step_one(self, i: int, action: np.ndarray) -> Step:
        simulator = self._simulators[i]
        try:
            return simulator.step(action[self._rows[i], : simulator.act_dim])
        except DataError as error:
            # One state that explodes may not end hours of work: that body starts new episodes, and
            # the step counts as a cut one in which nothing happened.
            self.num_unstable += 1
            print(f"restarting {simulator.body.name}: {error}", flush=True)
            obs, num = simulator.obs, simulator.num_envs
            fresh = Simulator(
                simulator.domains, seed=self._seed + self.num_unstable, threads=self._threads[i]
            )
            simulator.close()
            self._simulators[i] = fresh
            return Step(obs, np.zeros(num), np.zeros(num, bool), np.ones(num, bool))

    def _gather(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        gathered = np.zeros((self._rows[-1].stop, self._obs_dim), np.float32)
        for rows, part in zip(self._rows, parts, strict=True):
            gathered[rows, : part.shape[1]] = part
        return gathered
