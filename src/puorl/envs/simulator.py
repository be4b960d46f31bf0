"""Many environments of one body, stepped together on MuJoCo's own thread pool."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import ConfigError, DataError, require
from puorl.core.hashing import generator
from puorl.core.resources import num_threads
from puorl.envs import bodies
from puorl.envs.domains import DomainSpec, apply_physics, noise_width, reward_factors

# Not 0, to which MuJoCo itself sets the clock when a simulation explodes.
_CLOCK_START = 1.0


class Step(NamedTuple):
    """Result of one control step; one row per environment."""

    next_obs: np.ndarray
    """(n, d) float64. The state after the action, also at the end of an episode."""
    reward: np.ndarray
    """(n,) float64."""
    terminal: np.ndarray
    """(n,) bool. The task ended: the body fell."""
    timeout: np.ndarray
    """(n,) bool. Cut by the step limit; never together with ``terminal``."""


class Simulator:
    """Many environments of one body, stepped together; each may have its own domain.

    One call of ``mujoco.rollout`` makes a control step of all. The result is a function of domains,
    seed and actions alone, whatever the number of threads and the other environments, because each
    environment has a random stream of its own.

    Each control step starts the contact solver cold, so a step depends on nothing but the state and
    the action: a logged transition can be recomputed. (gymnasium starts it warm; the difference is
    of the order of 1e-12.)

    Args:
        domains: One per environment, all of one body.
        seed: Seed of all random streams.
        threads: Physics threads; all the cores this process may use if None.
        streams: Number of each environment's random stream; 0, 1, 2, ... if None.
        auto_reset: Start the next episode at once where one has ended.
        max_steps: Steps after which an episode is cut as a timeout; the task's own limit if None.
    """

    def __init__(
        self,
        domains: Sequence[DomainSpec],
        *,
        seed: int,
        threads: int | None = None,
        streams: Sequence[int] | None = None,
        auto_reset: bool = True,
        max_steps: int | None = None,
    ) -> None:
        mujoco = require("mujoco", extra="sim", purpose="simulating")
        rollout = require("mujoco.rollout", extra="sim", purpose="simulating")
        found = list(dict.fromkeys(spec.body for spec in domains))
        if len(found) != 1:
            raise ConfigError(
                "simulator: expected one or more domains of a single body, got "
                f"{', '.join(found) or 'none'}; use one simulator per body"
            )
        self.body = bodies.body(found[0])
        self.domains = tuple(domains)
        self.seed = seed
        self.auto_reset = auto_reset
        self.max_steps = self.body.max_steps if max_steps is None else max_steps
        self.streams = tuple(map(int, range(len(domains)) if streams is None else streams))
        if len(self.streams) != len(domains):
            raise ConfigError(
                f"streams: expected one for each of {len(domains)} domains, got {len(self.streams)}"
            )
        compiled = {spec: bodies.load_model(self.body, spec.masses) for spec in set(domains)}
        for spec, shifted in compiled.items():
            apply_physics(shifted, self.body, spec.shifts)
        self.models: list[Any] = [compiled[spec] for spec in domains]
        model = self.models[0]
        count = min(num_threads(threads), len(domains))
        # With one thread the caller's own is used: no hand-over in every step.
        self._pool = rollout.Rollout(nthread=count if count > 1 else 0)
        self._workers = [mujoco.MjData(model) for _ in range(count)]
        self._ctrl = int(mujoco.mjtState.mjSTATE_CTRL.value)
        num_state = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        assert num_state == 1 + model.nq + model.nv, "state must be time, positions, velocities"
        self._nq = model.nq
        self.dt = model.opt.timestep * self.body.frame_skip
        self._start = np.concatenate([model.qpos0, np.zeros(model.nv)])

        self._noise_width = np.array([noise_width(self.body, spec.shifts) for spec in domains])
        # An episode's noise is drawn at its start, so that no step pays a call per environment.
        noise_shape = len(domains), self.max_steps, self.body.act_dim
        self._noise = np.zeros(noise_shape) if self._noise_width.any() else None
        self._factors = np.array([reward_factors(spec.shifts) for spec in domains])
        self._state = np.zeros((len(domains), num_state))
        self._elapsed = np.zeros(len(domains), np.int64)
        self._allocate()
        self.reseed(seed)

    @property
    def num_envs(self) -> int:
        """Number of environments that are stepped."""
        return len(self._state)

    @property
    def obs_dim(self) -> int:
        """Length of an observation."""
        return self.body.obs_dim

    @property
    def act_dim(self) -> int:
        """Length of an action."""
        return self.body.act_dim

    @property
    def qpos(self) -> np.ndarray:
        """(n, nq) float64. True positions, x included."""
        return self._coordinates(self._state)[0].copy()

    @property
    def qvel(self) -> np.ndarray:
        """(n, nv) float64. True velocities, not clipped."""
        return self._coordinates(self._state)[1].copy()

    def reseed(self, seed: int) -> None:
        """Start again, as a simulator made with that seed."""
        self.seed = seed
        # Every episode draws equally many numbers, so they do not depend on earlier episodes.
        self._rngs = [generator(seed, "simulator", stream) for stream in self.streams]
        self.reset()

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Start a new episode in the environments of ``mask`` (n,) bool, or in all."""
        chosen = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        for env in chosen:
            rng = self._rngs[env]
            self._state[env, 1:] = self.body.draw_start(rng, self._start)
            if self._noise is not None and self._noise_width[env].any():
                self._noise[env] = self._noise_width[env] * rng.uniform(
                    -1, 1, self._noise[env].shape
                )
        self._state[chosen, 0] = _CLOCK_START
        self._elapsed[chosen] = 0
        obs = np.empty((self.num_envs, self.obs_dim)) if mask is None else self.obs.copy()
        obs[chosen] = self.body.observe(*self._coordinates(self._state[chosen]))
        self.obs = obs

    def step(self, action: np.ndarray) -> Step:
        """Make one control step of every environment; reset those whose episode ended.

        Args:
            action: (n, m) float. Intended actions; clipped to [-1, 1].

        Returns:
            True next states, rewards and ends. ``self.obs`` then holds the states after resets.

        Raises:
            DataError: Wrong shape, or an action or a state that is not a number.
        """
        action = np.asarray(action, np.float64)
        if action.shape != (self.num_envs, self.act_dim):
            raise DataError(
                f"action: expected shape {(self.num_envs, self.act_dim)}, got {action.shape}"
            )
        action = np.clip(action, -1.0, 1.0)
        if np.isnan(action).any():
            row = int(np.isnan(action).any(axis=1).argmax())
            raise DataError(f"action: expected numbers, got NaN (first in environment {row})")
        before = self._state[:, 1].copy()
        self._advance(action)
        qpos, qvel = self._coordinates(self._state)
        next_obs = self.body.observe(qpos, qvel)
        healthy = self.body.healthy(qpos, qvel)
        reward = self._reward(action, before, qpos[:, 0])
        self._elapsed += 1
        timeout = (self._elapsed >= self.max_steps) & healthy
        self.obs = next_obs
        ended = ~healthy | timeout
        if self.auto_reset and ended.any():
            self.reset(ended)
        return Step(next_obs, reward, ~healthy, timeout)

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Put every environment into a given state, at the start of an episode.

        Args:
            qpos: (n, nq) float64. Positions.
            qvel: (n, nv) float64. Velocities.
        """
        self._state[:, 0] = _CLOCK_START
        self._state[:, 1:] = np.concatenate([qpos, qvel], axis=1)
        self._elapsed[:] = 0
        self.obs = self.body.observe(qpos, qvel)

    def keep(self, mask: np.ndarray) -> None:
        """Keep only the environments of ``mask`` (n,) bool; they behave as before."""
        rows = np.flatnonzero(mask)
        self.models = [self.models[row] for row in rows]
        self.domains = tuple(self.domains[row] for row in rows)
        self.streams = tuple(self.streams[row] for row in rows)
        self._rngs = [self._rngs[row] for row in rows]
        for name in ("_noise_width", "_factors", "_state", "_elapsed", "_noise", "obs"):
            held = getattr(self, name)
            setattr(self, name, None if held is None else held[rows])
        self._allocate()

    def close(self) -> None:
        """End the threads; the simulator cannot be stepped any more."""
        self._pool.close()

    def __enter__(self) -> "Simulator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _allocate(self) -> None:
        num, body = self.num_envs, self.body
        self._control = np.zeros((num, body.frame_skip, body.act_dim))
        self._trace = np.zeros((num, body.frame_skip, self._state.shape[1]))
        self._row = np.arange(num)
        # Few, large chunks: handing them out is slow compared to a step.
        self._chunk = max(1, num // (4 * len(self._workers)))

    def _advance(self, action: np.ndarray) -> None:
        executed = action
        if self._noise is not None:
            executed = np.clip(action + self._noise[self._row, self._elapsed], -1.0, 1.0)
        self._control[:] = executed[:, None, :]
        self._pool.rollout(
            self.models,
            self._workers,
            self._state,
            self._control,
            control_spec=self._ctrl,
            skip_checks=True,
            nstep=self.body.frame_skip,
            state=self._trace,
            chunk_size=self._chunk,
        )
        after = self._trace[:, -1]
        # MuJoCo resets an exploded state, and with it the clock.
        if not (after[:, 0] > self._state[:, 0]).all():
            worst = int(np.argmin(after[:, 0] - self._state[:, 0]))
            raise DataError(
                f"simulation of {self.domains[worst].text} became unstable in environment {worst}; "
                "use a milder shift"
            )
        self._state[:] = after

    def _reward(self, action: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        # Of the intended action, as it is stored: all domains share r(s, a, s').
        forward = (after - before) / self.dt
        cost = self.body.ctrl_cost * np.square(action).sum(axis=1)
        factor = self._factors
        bonus = self.body.healthy_reward * factor[:, 2]
        return forward * factor[:, 0] + bonus - cost * factor[:, 1]

    def _coordinates(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return state[:, 1 : 1 + self._nq], state[:, 1 + self._nq :]
