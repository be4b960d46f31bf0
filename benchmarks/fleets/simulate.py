"""Fleets of machines with known types: tables of sensors and commands, as a plant would log them.

    python benchmarks/fleets/simulate.py list
    python benchmarks/fleets/simulate.py write OUT [--fleets pumps-impeller ...]

A fleet is named and seeded: the same name gives the same numbers. `write` leaves, for each fleet,
``log.csv`` (what a user has) and ``truth.csv`` (what he does not: types and operators of all runs).
"""

import argparse
import csv
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from operators import Habits, Hands, rounded
from physics import BELT, CRANE, FAN, PLANT, PUMP, VEHICLE, Machine, advance

Assignment = Literal["random", "correlated"]
Table = dict[str, np.ndarray]
KEYS = ("time", "unit", "run", "operator", "type")
"""Columns that are neither sensors nor commands."""
VERSION = 1
"""Of the numbers; to be raised with every change of physics, operators or fleets."""
PREFERENCE = 0.6
"""Where operators are correlated with types: part of the runs that a favourite drives."""
_BEGIN = datetime.datetime(2025, 3, 3, 6, 0, tzinfo=datetime.UTC)
_CALIBRATION = 0.01
"""Sensors read up to this much too high or too low, as a factor."""


@dataclass(frozen=True)
class Kind:
    """A type of unit: how its parameters differ from the nominal ones, and how many there are."""

    name: str
    count: int
    factors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Fleet:
    """All that makes a fleet."""

    name: str
    machine: Machine
    kinds: tuple[Kind, ...]
    """The first is ours."""
    seed: int
    held_out: bool
    """Not to be looked at while methods are tuned."""
    operators: int = 6
    assignment: Assignment = "random"
    runs: int = 4
    rows: int = 150
    """Of one run, before gaps are cut."""
    spread: tuple[float, float] = (0.03, 0.10)
    """Every parameter of a unit lies within a part of its type's value; that part is drawn from
    here, once for each parameter."""
    noise: float = 1.0
    """Factor on the noise of all sensors."""

    @property
    def num_units(self) -> int:
        """Of all types."""
        return sum(kind.count for kind in self.kinds)

    @property
    def sensors(self) -> tuple[str, ...]:
        """Names of the measured columns."""
        return tuple(sensor.name for sensor in self.machine.sensors)

    @property
    def commands(self) -> tuple[str, ...]:
        """Names of the columns that operators set."""
        return tuple(command.name for command in self.machine.commands)


def simulate(fleet: Fleet) -> Table:
    """The log of a fleet with its truth.

    Returns:
        Arrays of one length: ``time`` (seconds since 1970), ``unit``, ``run``, ``operator`` and
        ``type`` (text), then sensors and commands; unit by unit, each in the order of time. A row's
        commands act between it and the next. Some stretches of time are missing.
    """
    rng = np.random.default_rng(fleet.seed)
    kind = rng.permutation(np.repeat(np.arange(len(fleet.kinds)), [k.count for k in fleet.kinds]))
    parameters = draw_parameters(fleet, kind, rng)
    operator = assign_operators(fleet, kind, rng)
    habits = Habits.draw(fleet.machine, fleet.operators, rng)
    return record(fleet, kind, parameters, habits, operator, rng)


def record(
    fleet: Fleet,
    kind: np.ndarray,
    parameters: Table,
    habits: Habits,
    operator: np.ndarray,
    rng: np.random.Generator,
    *,
    unlogged: int = 0,
    drift: Mapping[str, np.ndarray] | None = None,
) -> Table:
    """Play all runs and log them, with gaps; as `simulate` returns it.

    Args:
        fleet: Names sensors, commands and types.
        kind: (units,) int. The types.
        parameters: (units,) each.
        habits: Of all operators.
        operator: (units, runs) int. Who drives.
        rng: Source of all that is random.
        unlogged: Rows at the start of every run that are played and not logged.
        drift: (units * runs, unlogged + rows) each: factors on parameters, row by row.
    """
    lanes = np.repeat(np.arange(len(kind)), fleet.runs)
    own = {name: value[lanes] for name, value in parameters.items()}
    played = replace(fleet, rows=fleet.rows + unlogged)
    logged = play(played, own, habits, operator.ravel(), rng, drift)
    kept = ~cut_gaps(len(lanes), fleet.rows, rng)
    time = draw_times(fleet, rng)

    unit_name = np.array([f"{fleet.machine.prefix}-{k + 1:03d}" for k in range(len(kind))])
    run = np.tile(np.arange(fleet.runs), len(kind))
    run_name = np.array([f"{unit_name[u]}/R{r + 1}" for u, r in zip(lanes, run, strict=True)])
    by_lane = {
        "unit": unit_name[lanes],
        "run": run_name,
        "operator": np.array([f"OP-{k + 1}" for k in operator.ravel()]),
        "type": np.array([fleet.kinds[k].name for k in kind])[lanes],
    }
    table = {"time": time[kept]}
    table |= {n: np.repeat(v[:, None], fleet.rows, axis=1)[kept] for n, v in by_lane.items()}
    return table | {name: value[:, unlogged:][kept] for name, value in logged.items()}


def draw_parameters(fleet: Fleet, kind: np.ndarray, rng: np.random.Generator) -> Table:
    """(units,) of each physical parameter: nominal x factor of the type x wear of the unit."""
    made = {}
    for name, nominal in fleet.machine.parameters.items():
        factor = np.array([k.factors.get(name, 1.0) for k in fleet.kinds])[kind]
        half = rng.uniform(*fleet.spread)
        made[name] = nominal * factor * (1.0 + rng.uniform(-half, half, len(kind)))
    return made


def assign_operators(fleet: Fleet, kind: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(units, runs) int. Who drives: anyone, or more often a favourite of the type."""
    shape = len(kind), fleet.runs
    anyone = rng.integers(fleet.operators, size=shape)
    if fleet.assignment == "random":
        return anyone
    # Operator k is a favourite of type k modulo the number of types.
    turn = rng.integers(-(-fleet.operators // len(fleet.kinds)), size=shape)
    favourite = (kind[:, None] + turn * len(fleet.kinds)) % fleet.operators
    return np.where(rng.uniform(size=shape) < PREFERENCE, favourite, anyone)


def play(
    fleet: Fleet,
    parameters: Table,
    habits: Habits,
    operator: np.ndarray,
    rng: np.random.Generator,
    drift: Mapping[str, np.ndarray] | None = None,
) -> Table:
    """(lanes, rows) of each sensor and command; ``drift`` are factors on parameters, as large."""
    machine = fleet.machine
    state = machine.start(parameters, rng)
    units = len(operator) // fleet.runs
    gain = {
        s.name: np.repeat(1.0 + rng.uniform(-_CALIBRATION, _CALIBRATION, units), fleet.runs)
        for s in machine.sensors
    }
    hands = Hands(machine, habits, operator, rng)
    logged: dict[str, list[np.ndarray]] = {n: [] for n in (*fleet.sensors, *fleet.commands)}
    for row in range(fleet.rows):
        now = parameters | {n: parameters[n] * f[:, row] for n, f in (drift or {}).items()}
        true = machine.show(state, now)
        reading = {}
        for s in machine.sensors:
            noise = fleet.noise * s.noise * rng.normal(size=len(operator))
            reading[s.name] = rounded(gain[s.name] * true[s.name] + noise, s.resolution)
        command = hands.act(reading)
        for name, value in (reading | command).items():
            logged[name].append(value)
        state = advance(machine, state, command, now, rng)
    return {name: np.stack(values, axis=1) for name, values in logged.items()}


def cut_gaps(num_lanes: int, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    """(lanes, rows) bool. What was lost: up to two stretches in half of the runs."""
    lost = np.zeros((num_lanes, num_rows), bool)
    row = np.arange(num_rows)
    for _ in range(2):
        begin = rng.integers(5, num_rows, num_lanes)
        length = rng.integers(2, max(3, num_rows // 8), num_lanes)
        length = np.where(rng.uniform(size=num_lanes) < 0.3, length, 0)
        lost |= (row >= begin[:, None]) & (row < (begin + length)[:, None])
    return lost


def draw_times(fleet: Fleet, rng: np.random.Generator) -> np.ndarray:
    """(lanes, rows) float. Seconds since 1970; the runs of a unit follow each other."""
    duration = fleet.rows * fleet.machine.step
    pause = np.round(rng.uniform(0.5, 8.0, (fleet.num_units, fleet.runs)) * duration)
    begin = np.cumsum(pause + duration, axis=1).ravel()
    return _BEGIN.timestamp() + begin[:, None] + fleet.machine.step * np.arange(fleet.rows)


def stack(table: Table, names: tuple[str, ...]) -> np.ndarray:
    """(n, len(names)) float64. Some columns side by side."""
    return np.stack([table[name] for name in names], axis=1).astype(np.float64)


def followed(table: Table, step: float) -> np.ndarray:
    """(n,) bool. Rows whose next row is the same run's, one step later."""
    same = table["run"][1:] == table["run"][:-1]
    near = np.diff(table["time"]) < 1.5 * step
    return np.append(same & near, False)


def write(fleet: Fleet, folder: Path) -> None:
    """Write ``log.csv`` and ``truth.csv`` of a fleet."""
    folder.mkdir(parents=True, exist_ok=True)
    table = simulate(fleet)
    values = (*fleet.sensors, *fleet.commands)
    with open(folder / "log.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["timestamp", "unit_id", "run_id", *values])
        for k in range(len(table["time"])):
            moment = datetime.datetime.fromtimestamp(float(table["time"][k]), datetime.UTC)
            text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            numbers = [f"{float(table[name][k]):.6g}" for name in values]
            writer.writerow([text, table["unit"][k], table["run"][k], *numbers])
    ours = fleet.kinds[0].name
    first = np.unique(table["run"], return_index=True)[1]
    with open(folder / "truth.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["unit_id", "run_id", "operator", "type", "ours"])
        for k in first:
            names = [table[name][k] for name in ("unit", "run", "operator", "type")]
            writer.writerow([*names, int(table["type"][k] == ours)])


FLEETS = {
    fleet.name: fleet
    for fleet in (
        Fleet(
            "pumps-impeller",
            PUMP,
            (Kind("full", 10), Kind("trimmed", 20, {"impeller": 0.80})),
            seed=101,
            held_out=False,
        ),
        Fleet(
            "pumps-bearing",
            PUMP,
            (
                Kind("healthy", 16),
                Kind("worn bearing", 14, {"friction": 1.75}),
                Kind("fouled pipe", 10, {"pipe": 2.0}),
            ),
            seed=102,
            held_out=True,
            assignment="correlated",
        ),
        Fleet(
            "tanks-insulation",
            PLANT,
            (Kind("insulated", 12), Kind("bare", 12, {"insulation": 1.8, "leak": 1.8})),
            seed=103,
            held_out=False,
        ),
        Fleet(
            "tanks-heater",
            PLANT,
            (
                Kind("strong", 9),
                Kind("weak heater", 9, {"heater": 0.72}),
                Kind("scaled element", 9, {"transfer": 0.65}),
            ),
            seed=104,
            held_out=True,
            assignment="correlated",
        ),
        Fleet(
            "trucks-payload",
            VEHICLE,
            (
                Kind("light", 14),
                Kind("loaded", 14, {"payload": 2.4}),
                Kind("overloaded", 8, {"payload": 3.6}),
            ),
            seed=105,
            held_out=False,
            assignment="correlated",
        ),
        Fleet(
            "carts-motor",
            VEHICLE,
            (Kind("sound", 10), Kind("weak motor", 14, {"motor": 0.72})),
            seed=106,
            held_out=True,
        ),
        Fleet(
            "cranes-load",
            CRANE,
            (
                Kind("half load", 8),
                Kind("full load", 8, {"load": 1.8}),
                Kind("worn wheels", 8, {"wheels": 1.6}),
                Kind("weak motor", 6, {"motor": 0.7}),
            ),
            seed=107,
            held_out=False,
        ),
        Fleet(
            "belts-drive",
            BELT,
            (
                Kind("good", 20),
                Kind("stiff rollers", 20, {"rollers": 1.4}),
                Kind("weak motor", 20, {"torque": 0.78}),
            ),
            seed=108,
            held_out=True,
            runs=3,
        ),
        Fleet(
            "fans-coil",
            FAN,
            (Kind("clean", 12), Kind("fouled coil", 12, {"coil": 0.84})),
            seed=109,
            held_out=False,
        ),
        Fleet(
            "pumps-subtle",
            PUMP,
            (Kind("new", 15), Kind("used", 15, {"friction": 1.25})),
            seed=110,
            held_out=True,
        ),
    )
}


def main() -> None:
    """List the fleets, or write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("list", "write"))
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--fleets", nargs="+", choices=list(FLEETS), default=list(FLEETS))
    args = parser.parse_args()
    if args.action == "write" and args.out is None:
        parser.error("write: expected a folder")
    for name in args.fleets:
        fleet = FLEETS[name]
        if args.action == "write":
            write(fleet, args.out / name)
        kinds = ", ".join(f"{kind.count} {kind.name}" for kind in fleet.kinds)
        print(f"{name}: {kinds}{'; held out' if fleet.held_out else ''}")


if __name__ == "__main__":
    main()
