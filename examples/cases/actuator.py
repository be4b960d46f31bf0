"""Ants that all walk with one gait; in some, the two motors of a leg are weak.

The robot is gymnasium's Ant, with its reward (metres a second along x, one for staying upright,
minus the effort). The gait is ours: legs trot after a clock that the log has as two columns, and
steer towards x. How far they swing, how fast, and how much the motors tremble is drawn for every
run, in the same way for all robots: behaviour is matched, and only the machines differ.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from simulator import Act, Log, main, numbered

WEAK, STRENGTH = (2, 3), 0.6
"""Motors of the front left leg, and what is left of their torque."""
WEAR = 0.03
"""Every motor and every mass of every robot differs by up to this."""
SIZES = {"small": (12, 4, 100), "full": (24, 8, 150)}
"""Robots, runs of each, steps of a run."""
_SIDE = np.array([1.0, 1.0, -1.0, -1.0])
_FIRST = np.array([0.0, np.pi, 0.0, np.pi])
_KNEE = np.array([0.87, -0.87, -0.87, 0.87])
_MOTOR = [6, 7, 0, 1, 2, 3, 4, 5]
"""Joint of each motor: the simulator counts motors from the last leg on."""
_HORIZON = 300


class Gait(NamedTuple):
    """How a robot walks; found by random search on a sound robot."""

    rate: float = 1.593
    swing: float = 0.337
    lift: float = 0.076
    lag: float = -1.099
    stiffness: float = 1.11
    damping: float = 0.035
    steering: float = 0.369
    tremble: float = 0.0

    def torque(self, obs: np.ndarray, phase: float) -> np.ndarray:
        """Return the torques (8,) for a state of the simulator (27,)."""
        w, x, y, z = obs[1:5]
        yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        swing = self.swing * np.clip(1 + _SIDE * self.steering * yaw, 0.2, 2.0)
        knee = _KNEE + np.sign(_KNEE) * self.lift * np.cos(phase + _FIRST + self.lag)
        target = np.stack([_SIDE * swing * np.sin(phase + _FIRST), knee], axis=1).ravel()
        return (self.stiffness * (target - obs[5:13]) - self.damping * obs[19:27])[_MOTOR]


class Robot:
    """One robot: gymnasium's Ant with its own wear."""

    def __init__(self, rng: np.random.Generator, *, is_weak: bool) -> None:
        import gymnasium

        made = gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False)
        self._env = made.unwrapped
        model = self._env.model
        model.actuator_gear[:, 0] *= 1 + WEAR * rng.uniform(-1, 1, model.nu)
        model.body_mass[:] *= 1 + WEAR * rng.uniform(-1, 1, model.nbody)
        if is_weak:
            model.actuator_gear[WEAK, 0] *= STRENGTH
        self.phase, self._obs = 0.0, np.zeros(27)

    def start(self, seed: int) -> np.ndarray:
        """Begin a run; return the state (29,)."""
        self._obs, _ = self._env.reset(seed=seed)
        self.phase = 2 * np.pi * np.random.default_rng(seed).uniform()
        return self.state

    @property
    def state(self) -> np.ndarray:
        """What is logged: the simulator's state and the clock of the gait."""
        return np.r_[self._obs, np.sin(self.phase), np.cos(self.phase)]

    def step(self, action: np.ndarray, rate: float = Gait().rate) -> tuple[float, bool]:
        """Act for a step; return the reward, and whether the robot fell."""
        self._obs, reward, fell, _, _ = self._env.step(np.clip(action, -1, 1))
        self.phase += 2 * np.pi * rate * self._env.dt
        return float(reward), bool(fell)


def record(size: str, seed: int) -> Log:
    """Let all robots walk."""
    rng = np.random.default_rng([seed, 4])
    count, runs, steps = SIZES[size]
    weak = rng.permutation(count) >= count // 2
    log = Log("robot")
    for number in range(count):
        name, robot = f"ANT-{number + 1:02d}", Robot(rng, is_weak=weak[number])
        kind = "weak leg" if weak[number] else "sound"
        log.add_unit(name, kind, is_ours=not weak[number])
        for run in range(runs):
            gait = Gait(
                swing=rng.uniform(0.15, 0.45), lift=rng.uniform(0.02, 0.2),
                stiffness=rng.uniform(0.7, 1.3), tremble=rng.uniform(0.05, 0.25),
            )  # fmt: skip
            obs, fell = robot.start(int(rng.integers(2**31))), False
            for step in range(steps):
                if fell:
                    break
                action = gait.torque(obs[:27], robot.phase) + gait.tremble * rng.normal(size=8)
                action = np.clip(action, -1, 1)
                reward, fell = robot.step(action)
                log.add(name, f"{name}-{run}", round(0.05 * step, 2), {
                    **numbered("obs", obs), **numbered("act", action),
                    "reward": round(reward, 4), "fell": int(fell),
                })  # fmt: skip
                obs = robot.state
    return log


def play(act: Act, start: int) -> Mapping[str, float]:
    """Walk on a sound robot that was not logged."""
    robot = Robot(np.random.default_rng([start, 5]), is_weak=False)
    obs, total, steps, fell = robot.start(start), 0.0, 0, False
    while steps < _HORIZON and not fell:
        reward, fell = robot.step(act(obs))
        obs, total, steps = robot.state, total + reward, steps + 1
    return {"return": round(total, 2), "steps": steps, "fell": int(fell)}


if __name__ == "__main__":
    main(record, play)
