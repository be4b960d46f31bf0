"""Cars that must keep their lane; some have worn tyres, which slip where others hold.

The simulator is `highway-env`: its task of lane keeping, with the bicycle model whose tyres slip.
Worn tyres have less friction, front and rear. All cars are driven by the same kind of driver: a
controller of offset and heading with gains that differ from run to run, and a hand that is not
quite steady. A run ends where the car leaves its lane.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from simulator import Act, Log, main, numbered

GRIP = 0.35
"""What worn tyres leave of the friction."""
SPREAD = 0.05
"""Friction and speed of every car differ by up to this."""
SPEED = 17.0
"""Metres a second; the task's own 8.3 is too slow to slip."""
REACH = 2.0
"""Metres from the middle at which a step is worth nothing."""
SIZES = {"small": (12, 5, 100), "full": (24, 8, 150)}
"""Cars, runs of each, steps of a run: ten a second."""
_HORIZON = 200


class Car(NamedTuple):
    """What differs between cars."""

    friction: float
    speed: float

    @classmethod
    def draw(cls, rng: np.random.Generator, *, is_worn: bool) -> "Car":
        """Draw a car."""
        one, other = 1 + SPREAD * rng.uniform(-1, 1, 2)
        return cls(15.0 * one * (GRIP if is_worn else 1.0), SPEED * other)


class Drive:
    """A run of a car on the winding road."""

    def __init__(self, car: Car, seed: int) -> None:
        import gymnasium
        import highway_env  # noqa: F401

        self._env: Any = gymnasium.make("lane-keeping-v0").unwrapped
        self._env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        vehicle = self._vehicle = self._env.vehicle
        self._lane = self._env.road.network.get_lane(("a", "b", 0))
        self._env.lane, self._env.lanes = self._lane, []
        along = rng.uniform(0.0, 100.0)
        vehicle.position = self._lane.position(along, rng.uniform(-2.0, 2.0))
        vehicle.heading = self._lane.heading_at(along) + rng.uniform(-0.15, 0.15)
        vehicle.speed = car.speed
        # Of the instance: the class keeps the task's own.
        vehicle.FRICTION_FRONT = vehicle.FRICTION_REAR = car.friction

    @property
    def offset(self) -> float:
        """Metres to the middle of the lane."""
        return float(self._lane.local_coordinates(self._vehicle.position)[1])

    @property
    def state(self) -> np.ndarray:
        """Offset, heading against the lane, slip, turning, speed, and how the lane bends ahead."""
        car = self._vehicle
        along, offset = self._lane.local_coordinates(car.position)
        here = self._lane.heading_at(along)
        turned = (car.heading - here + np.pi) % (2 * np.pi) - np.pi
        bends = [self._lane.heading_at(along + ahead) - here for ahead in (4.0, 8.0, 14.0)]
        return np.array([offset, turned, car.lateral_speed, car.yaw_rate, car.speed, *bends], float)

    def step(self, steering: float) -> tuple[float, bool]:
        """Steer for a tenth of a second; return the reward, and whether the car left its lane."""
        self._env.step(np.array([np.clip(steering, -1, 1)]))
        left = abs(self.offset) > self._lane.width / 2
        return (-10.0 if left else 1.0 - (self.offset / REACH) ** 2), left


def record(size: str, seed: int) -> Log:
    """Drive all cars."""
    rng = np.random.default_rng([seed, 6])
    count, runs, steps = SIZES[size]
    worn = rng.permutation(count) >= count // 2
    log = Log("car")
    for number in range(count):
        name, car = f"CAR-{number + 1:02d}", Car.draw(rng, is_worn=worn[number])
        log.add_unit(name, "worn tyres" if worn[number] else "sound", is_ours=not worn[number])
        for run in range(runs):
            drive = Drive(car, int(rng.integers(2**31)))
            near, turn, look = rng.uniform((0.02, 0.3, 0.3), (0.15, 1.2, 1.2))
            obs, left = drive.state, False
            for step in range(steps):
                if left:
                    break
                action = -near * obs[0] - turn * (obs[1] - look * obs[6]) - 0.05 * obs[3]
                action = float(np.clip(action + 0.08 * rng.normal(), -1, 1))
                reward, left = drive.step(action)
                log.add(name, f"{name}-{run}", round(0.1 * step, 1), {
                    **numbered("obs", obs), "steering": round(action, 4),
                    "reward": round(reward, 4), "left": int(left),
                })  # fmt: skip
                obs = drive.state
    return log


def play(act: Act, start: int) -> Mapping[str, float]:
    """Drive a sound car that was not logged."""
    car = Car.draw(np.random.default_rng([start, 8]), is_worn=False)
    drive, total, steps, left = Drive(car, start), 0.0, 0, False
    while steps < _HORIZON and not left:
        reward, left = drive.step(float(act(drive.state)[0]))
        total, steps = total + reward, steps + 1
    return {"return": round(total, 3), "left": int(left)}


if __name__ == "__main__":
    main(record, play)
