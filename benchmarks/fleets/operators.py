"""People with habits: schedules of set-points, gains, dithering, a slow or a quick hand."""

from dataclasses import dataclass

import numpy as np
from physics import Command, Lanes, Machine, Values


@dataclass(frozen=True, eq=False)
class Habits:
    """How each operator of a fleet drives; arrays are (operators,) or (operators, commands)."""

    hold: np.ndarray
    """Mean number of rows between two set-points."""
    middle: np.ndarray
    """Favourite place in the range of set-points, 0 to 1."""
    width: np.ndarray
    """Part of the range that is used."""
    gain: np.ndarray
    """Factor on the usual gain."""
    dither: np.ndarray
    """Amplitude of a wobble, as a part of the command's range."""
    period: np.ndarray
    """Rows of one wobble."""
    shake: np.ndarray
    """Deviation of what is added at random, as a part of the command's range."""
    slowness: np.ndarray
    """Part of the last command that is kept."""

    @classmethod
    def draw(cls, machine: Machine, count: int, rng: np.random.Generator) -> "Habits":
        """Habits of ``count`` operators."""
        shape = count, len(machine.commands)
        return cls(
            hold=rng.uniform(10.0, 40.0, count),
            middle=rng.uniform(0.3, 0.7, shape),
            width=rng.uniform(0.5, 0.9, shape),
            gain=np.exp(rng.uniform(np.log(0.5), np.log(1.8), shape)),
            dither=rng.uniform(0.0, 0.06, shape),
            period=rng.uniform(4.0, 20.0, shape),
            shake=rng.uniform(0.005, 0.04, shape),
            slowness=rng.uniform(0.0, 0.6, shape),
        )


class Hands:
    """The operators of all lanes, at work."""

    def __init__(
        self, machine: Machine, habits: Habits, operator: np.ndarray, rng: np.random.Generator
    ) -> None:
        """Sit down.

        Args:
            machine: What is driven.
            habits: Of all operators.
            operator: (lanes,) int. Who drives.
            rng: Source of everything random here.
        """
        self._machine = machine
        self._rng = rng
        self._hold = habits.hold[operator]
        self._of = {
            name: getattr(habits, name)[operator].T
            for name in ("middle", "width", "gain", "dither", "period", "shake", "slowness")
        }
        shape = len(machine.commands), len(operator)
        self._phase = rng.uniform(0.0, 2.0 * np.pi, shape)
        self._aim = rng.uniform(-0.5, 0.5, shape)
        self._sum = np.zeros(shape)
        self._last: np.ndarray | None = None
        self._row = 0

    def act(self, reading: Values) -> Lanes:
        """(lanes,) of each command, from what the sensors show."""
        num_lanes = len(self._hold)
        moves = self._rng.uniform(size=self._aim.shape) < 1.0 / self._hold
        self._aim = np.where(moves, self._rng.uniform(-0.5, 0.5, self._aim.shape), self._aim)
        made = {}
        raw = np.zeros((len(self._machine.commands), num_lanes))
        for k, command in enumerate(self._machine.commands):
            raw[k] = self._wanted(k, command, reading)
            span = command.high - command.low
            wave = np.sin(2.0 * np.pi * self._row / self._of["period"][k] + self._phase[k])
            raw[k] += span * self._of["dither"][k] * wave
            if self._last is not None:
                raw[k] += self._of["slowness"][k] * (self._last[k] - raw[k])
            raw[k] += span * self._of["shake"][k] * self._rng.normal(size=num_lanes)
            raw[k] = np.clip(raw[k], command.low, command.high)
            made[command.name] = rounded(raw[k], command.resolution)
        self._last = raw
        self._row += 1
        return made

    def _wanted(self, k: int, command: Command, reading: Values) -> np.ndarray:
        low, high = command.setpoints
        first = self._first_with(k, command.sensor)
        place = self._of["middle"][first] + self._of["width"][first] * self._aim[first]
        goal = low + (high - low) * np.clip(place, 0.0, 1.0)
        if command.sensor is None:
            return goal
        error = goal - reading[command.sensor]
        if command.integral:
            most = 0.5 * (command.high - command.low) / command.integral
            self._sum[k] = np.clip(self._sum[k] + error, -most, most)
        pushed = command.gain * error + command.integral * self._sum[k]
        return command.base + self._of["gain"][k] * pushed

    def _first_with(self, k: int, sensor: str | None) -> int:
        if sensor is None:
            return k
        return next(j for j, other in enumerate(self._machine.commands) if other.sensor == sensor)


def rounded(value: np.ndarray, resolution: float) -> np.ndarray:
    """The nearest multiples of ``resolution``, without the dust of binary fractions."""
    if resolution == 0.0:
        return value
    return np.round(np.round(value / resolution) * resolution, 6) + 0.0  # no minus zero
