"""Pumps of one make; in some the volute is worn, and some of the others wear out while watched.

The simulator is this repository's own (`benchmarks/fleets`): differential equations of pumps, and
people with habits who drive them, noisy and rounded sensors, gaps. A worn volute gives less
pressure at the same speed. The folder `later` holds what ten other pumps did afterwards, five of
which wear out.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from simulator import Act, Log, main

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fleets"))
from operators import Habits, rounded
from physics import PUMP, advance
from simulate import Fleet, Kind, Table, draw_parameters
from simulate import record as record_fleet

LEFT = 0.7
"""What a worn volute leaves of the pressure."""
SIZES = {"small": (8, 8, 3), "full": (14, 14, 4)}
"""Sound pumps, worn pumps, runs of each."""
WATCHED, RUNS, ROWS = 10, 12, 200
"""Pumps that are watched afterwards, their runs, rows of a run."""
SENSORS = [sensor.name for sensor in PUMP.sensors]
COMMANDS = [command.name for command in PUMP.commands]


def record(size: str, seed: int) -> Log:
    """Run the fleet, and later the pumps that are watched."""
    rng = np.random.default_rng([seed, 3])
    sound, worn, runs = SIZES[size]
    kinds = Kind("sound", sound), Kind("worn volute", worn, {"head": LEFT}), Kind("later", WATCHED)
    fleet = Fleet("wear", PUMP, kinds, seed=seed, held_out=False, runs=runs)
    number = np.repeat(np.arange(3), [sound, worn, WATCHED])
    parameters = draw_parameters(fleet, number, rng)
    habits = Habits.draw(PUMP, fleet.operators, rng)
    mixed = rng.permutation(np.flatnonzero(number < 2))
    first = record_fleet(
        replace(fleet, kinds=kinds[:2]), number[mixed],
        {name: value[mixed] for name, value in parameters.items()}, habits,
        rng.integers(fleet.operators, size=(len(mixed), runs)), rng,
    )  # fmt: skip
    log = Log("pump")
    _fill(log, first)
    for name in dict.fromkeys(row["pump"] for row in log.rows):
        kind = str(first["type"][first["unit"] == name][0])
        log.add_unit(name, kind, is_ours=kind == "sound")
    log.later = _watch(fleet, parameters, number == 2, habits, rng)
    return log


def _watch(
    fleet: Fleet, parameters: Table, chosen: np.ndarray, habits: Habits, rng: np.random.Generator
) -> Log:
    """Follow pumps of which every second one wears out, at once or little by little."""
    total = RUNS * ROWS
    begin = (rng.uniform(0.4, 0.7, WATCHED) * total).astype(int)
    course = np.ones((WATCHED, total))
    for k in range(1, WATCHED, 2):
        length = 1 if k % 4 == 1 else 5 * ROWS // 2
        course[k] += (LEFT - 1.0) * np.clip((np.arange(total) - begin[k] + 1) / length, 0, 1)
    long = replace(fleet, kinds=(Kind("sound", WATCHED),), runs=RUNS, rows=ROWS)
    own = {name: value[chosen] for name, value in parameters.items()}
    table = record_fleet(
        long, np.zeros(WATCHED, int), own, habits,
        rng.integers(fleet.operators, size=(WATCHED, RUNS)), rng,
        drift={"head": course.reshape(-1, ROWS)},
    )  # fmt: skip
    watch = Log("pump")
    _fill(watch, table | {"unit": np.char.replace(table["unit"], "PMP-", "LATER-")})
    for k in range(WATCHED):
        kind = ("stays sound", "wears at once", "stays sound", "wears slowly")[k % 4]
        run, row = divmod(int(begin[k]), ROWS)
        # A run has no gap at its start.
        start = table["time"][table["run"] == f"PMP-{k + 1:03d}/R{run + 1}"][0]
        since = "" if k % 2 == 0 else float(start + PUMP.step * row)
        watch.add_unit(f"LATER-{k + 1:03d}", kind, is_ours=k % 2 == 0, worn_since=since)
    return watch


def _fill(log: Log, table: Table) -> None:
    names = np.char.replace(table["run"].astype(str), "/", "-")
    for i in range(len(names)):
        values = {name: float(table[name][i]) for name in (*SENSORS, *COMMANDS)}
        log.add(str(table["unit"][i]), str(names[i]), float(table["time"][i]), values)


def play(act: Act, start: int) -> Mapping[str, float]:
    """Hold 3 bar with a sound pump, with as little current as that needs."""
    rng = np.random.default_rng([start, 7])
    own = {name: np.array([value * rng.uniform(0.95, 1.05)])
           for name, value in PUMP.parameters.items()}  # fmt: skip
    state, total, off = PUMP.start(own, rng), 0.0, 0.0
    for _ in range(150):
        true = PUMP.show(state, own)
        seen = {s.name: float(rounded(true[s.name] + s.noise * rng.normal(size=1), s.resolution)[0])
                for s in PUMP.sensors}  # fmt: skip
        action = act(np.array([seen[name] for name in SENSORS]))
        command = {c.name: np.clip(action[k : k + 1], c.low, c.high)
                   for k, c in enumerate(PUMP.commands)}  # fmt: skip
        miss = abs(float(true["pressure_bar"][0]) - 3.0)
        total -= miss + 0.02 * float(true["motor_current_a"][0])
        off += miss
        state = advance(PUMP, state, command, own, rng)
    return {"return": round(total, 3), "bar_off": round(off / 150, 4)}


if __name__ == "__main__":
    main(record, play)
