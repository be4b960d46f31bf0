"""Machines that change while they are watched: delay of detection and false alarms.

    python benchmarks/fleets/drift.py [--pools 12] [--judged] [--method linear]
    python benchmarks/fleets/drift.py --show

A pool of units, three of ours known, is what a filter is fitted to. Ten more units of our type,
which it has not seen, are then watched for 40 windows of 100 rows, driven by the same operators.
Half of them change somewhere between 30 and 70 % of the record: a parameter goes to what it is in
another type, at once (step) or over 5 to 15 windows (ramp). A follower names the time at which a
machine was seen to have left its kind, or none. The first ten windows are its own: nothing changes
there. An alarm before a change, or without one, is false, and ends the watch.

`FOLLOWERS` is where another one is put in. Pools from 0 are for development; `--judged` takes those
from 1,000, which change in other ways (`draws.py`).
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from baseline import RESULTS, Recorded
from draws import JUDGED_FROM, Shift, draw_kind, family_of, shifts
from machines import dataset_of, decided
from method import Method, Task, chosen_method, method_options
from operators import Habits
from physics import Machine
from readout import unit_types
from simulate import VERSION, Fleet, Kind, Table, draw_parameters, record

import puorl
from puorl.pu.machines import drift

WINDOW, NUM_WINDOWS, NUM_FREE = 100, 40, 10
"""Rows of a window, windows of a record, and windows at its start in which nothing changes."""
NUM_WATCHED, NUM_KNOWN = 10, 3
_RUNS, _ROWS = 20, 200
"""Of a watched unit: every run has its operator."""
_CHANGES = (0.3, 0.7)
_RAMPS = (5, 15)
"""Windows of a ramp."""


@dataclass(frozen=True, eq=False)
class Watched:
    """The long record of one unit."""

    name: str
    data: puorl.Dataset
    change: str
    """``none``, ``step`` or ``ramp``."""
    begin: float | None
    """Time of the first row that is not as before."""
    factors: dict[str, float]
    """What its parameters are in the end, as factors."""


@dataclass(frozen=True, eq=False)
class Pool:
    """What a filter is fitted to, and the units that are watched after it."""

    fleet: Fleet
    table: Table
    known: np.ndarray
    watched: tuple[Watched, ...]


def make_pool(seed: int) -> Pool:
    """Draw a pool and the units that are watched; the same seed gives the same numbers."""
    rng = np.random.default_rng([20_265, seed])
    machine = family_of(seed)
    choice = shifts(seed)[machine.name]
    kinds = (
        Kind("ours", 14),
        draw_kind(choice[int(rng.integers(len(choice)))], 8, rng),
        # Of our type: the same nominal parameters.
        Kind("watched", NUM_WATCHED),
    )
    fleet = Fleet(
        name=f"drift-{seed:04d}",
        machine=machine,
        kinds=kinds,
        seed=seed,
        held_out=seed >= JUDGED_FROM,
    )
    number = np.repeat(np.arange(3), [kind.count for kind in kinds])
    # One call for all: how much a parameter varies between units is a matter of the fleet.
    parameters = draw_parameters(fleet, number, rng)
    habits = Habits.draw(machine, fleet.operators, rng)
    mixed = rng.permutation(np.flatnonzero(number < 2))
    base = replace(fleet, kinds=kinds[:2])
    table = record(
        base,
        number[mixed],
        {name: value[mixed] for name, value in parameters.items()},
        habits,
        rng.integers(fleet.operators, size=(len(mixed), fleet.runs)),
        rng,
    )
    units, ours = unit_types(table, base)
    known = units[rng.choice(np.flatnonzero(ours), NUM_KNOWN, replace=False)]
    own = {name: value[number == 2] for name, value in parameters.items()}
    watched = _watch(fleet, own, habits, choice, rng)
    return Pool(base, table, known, watched)


def _watch(
    fleet: Fleet,
    parameters: Table,
    habits: Habits,
    choice: Sequence[Shift],
    rng: np.random.Generator,
) -> tuple[Watched, ...]:
    """The records of all watched units: none, step, none, ramp and so on."""
    long = replace(fleet, kinds=(Kind("ours", NUM_WATCHED),), runs=_RUNS, rows=_ROWS)
    changes = [("none", "step", "none", "ramp")[k % 4] for k in range(NUM_WATCHED)]
    num_rows = _RUNS * _ROWS
    first = (rng.uniform(*_CHANGES, NUM_WATCHED) * num_rows).astype(int)
    course = {name: np.ones((NUM_WATCHED, num_rows)) for name in parameters}
    ends: list[Mapping[str, float]] = []
    for k, change in enumerate(changes):
        length = rng.uniform(*_RAMPS) * WINDOW if change == "ramp" else 1.0
        factors = draw_kind(choice[k % len(choice)], 1, rng).factors if change != "none" else {}
        part = np.clip((np.arange(num_rows) - first[k] + 1) / length, 0.0, 1.0)
        for name, factor in factors.items():
            course[name][k] += (factor - 1.0) * part
        ends.append(factors)
    table = record(
        long,
        np.zeros(NUM_WATCHED, int),
        parameters,
        habits,
        rng.integers(fleet.operators, size=(NUM_WATCHED, _RUNS)),
        rng,
        drift={name: value.reshape(-1, _ROWS) for name, value in course.items()},
    )
    units = np.unique(table["unit"])
    made = []
    for k, (unit, change) in enumerate(zip(units, changes, strict=True)):
        own = {name: column[table["unit"] == unit] for name, column in table.items()}
        name = watched_name(fleet.machine, k)
        own |= {"unit": np.full(len(own["unit"]), name)}
        begin = None if change == "none" else _time_of_row(own, int(first[k]), fleet.machine.step)
        made.append(Watched(name, dataset_of(own, long), change, begin, dict(ends[k])))
    return tuple(made)


def watched_name(machine: Machine, number: int) -> str:
    """Name of a watched unit, unlike those of the pool."""
    return f"{machine.prefix}-W{number + 1:02d}"


def _time_of_row(table: Table, row: int, step: float) -> float:
    """Time of the first logged row of a unit that is not before ``row``, gaps counted."""
    run = np.array([int(name.rpartition("R")[2]) - 1 for name in table["run"]])
    # No gap is at the start of a run.
    start = np.array([table["time"][run == k][0] for k in range(_RUNS)])
    number = run * _ROWS + np.round((table["time"] - start[run]) / step).astype(int)
    return float(table["time"][number >= row][0])


Follower = Callable[[Any, puorl.Dataset], float | None]


def follow_linear(fitted: Any, data: puorl.Dataset) -> float | None:
    """Time at which a linear model of the unit's own first windows misses more and more.

    A cumulative sum of the mean squared misfit of each window, in deviations of what the first
    windows have when each is left out. Knows no other unit.

    Args:
        fitted: Not looked at.
        data: Rows of one unit in the order of time.
    """
    del fitted
    x = np.hstack([data.obs, data.action]).astype(np.float64)
    free = NUM_FREE * WINDOW
    x = (x - x[:free].mean(axis=0)) / (x[:free].std(axis=0) + 1e-9)
    x = np.hstack([x, np.ones((len(x), 1))])
    change = data.next_obs.astype(np.float64) - data.obs
    window = np.arange(len(x)) // WINDOW

    def misfit(used: np.ndarray, asked: np.ndarray) -> float:
        gram = x[used].T @ x[used] + 1e-3 * used.sum() * np.eye(x.shape[1])
        weight = np.linalg.solve(gram, x[used].T @ change[used])
        spread = np.mean((change[used] - x[used] @ weight) ** 2, axis=0)
        return float(np.mean((change[asked] - x[asked] @ weight) ** 2 / spread))

    first = window < NUM_FREE
    usual = np.log([misfit(first & (window != k), window == k) for k in range(NUM_FREE)])
    total = 0.0
    for k in range(NUM_FREE, int(window.max()) + 1):
        rise = (np.log(misfit(first, window == k)) - usual.mean()) / usual.std(ddof=1)
        total = max(0.0, total + rise - 1.0)
        if total > 8.0:
            assert data.time is not None
            return float(data.time[window == k][-1])
    return None


def follow_dynamics(fitted: Any, data: puorl.Dataset) -> float | None:
    """Time at which the filter's own drift watch raises its alarm.

    Args:
        fitted: Filter that was fitted to the pool.
        data: Rows of one unit in the order of time.
    """
    window = np.arange(len(data)) // WINDOW
    [course] = drift.follow(fitted.model_, data, window)
    if course.alarm is None:
        return None
    assert data.time is not None
    return float(data.time[window == course.alarm][-1])


FOLLOWERS: dict[str, Follower] = {"linear": follow_linear, "dynamics": follow_dynamics}
NEEDS_FILTER = frozenset(FOLLOWERS) - {"linear"}


def judge_alarm(watched: Watched, alarm: float | None) -> dict[str, Any]:
    """What is recorded of one watch; windows are counted in rows, so that pauses do not count."""
    moment = watched.data.time
    assert moment is not None
    end = len(moment) if watched.begin is None else int(np.searchsorted(moment, watched.begin))
    raised = None if alarm is None else int(np.searchsorted(moment, alarm, side="right"))
    # Without a change every row is before it.
    is_false = raised is not None and raised <= end
    quiet = max(0, min(end, raised or end) - NUM_FREE * WINDOW)
    delay = None if raised is None or is_false else (raised - end) / WINDOW
    return {
        "change": watched.change,
        "factors": watched.factors,
        "num_rows": len(moment),
        "change_row": None if watched.begin is None else end,
        "alarm_row": raised,
        "false_alarm": is_false,
        "quiet_windows": quiet / WINDOW,
        "detected": None if watched.begin is None else delay is not None,
        "delay_windows": delay,
    }


def watch_config(method: Method, seed: int, name: str) -> dict[str, Any]:
    """All that decides a row of the results."""
    watch = {"pool": seed, "unit": name, "window": WINDOW, "version": VERSION}
    return method.config() | watch


def measure(method: Method, seed: int, recorded: Recorded) -> None:
    """Fit to a pool once and follow its watched units, unless all are there."""
    names = [watched_name(family_of(seed), k) for k in range(NUM_WATCHED)]
    if all(recorded.find(watch_config(method, seed, name)) for name in names):
        return
    pool, fitted, fit_seconds = make_pool(seed), None, None
    if method.name in NEEDS_FILTER:
        data = dataset_of(pool.table, pool.fleet)
        decisions = decided(method, data, [Task(pool.known, seed)], pool.fleet.name)
        if not decisions:
            return
        fitted, fit_seconds = decisions[0].fitted, decisions[0].seconds
    for watched in pool.watched:
        begin = time.perf_counter()
        alarm = FOLLOWERS[method.name](fitted, watched.data)
        seconds = {"fit_seconds": fit_seconds, "seconds": round(time.perf_counter() - begin, 2)}
        measured = judge_alarm(watched, alarm) | seconds
        recorded.add(watch_config(method, seed, watched.name), measured)
    print(f"{pool.fleet.name} {pool.fleet.machine.name}: {len(pool.watched)} watched", flush=True)


def text_table(found: list[dict[str, Any]]) -> str:
    """Detected, delay and false alarms, as Markdown."""
    lines = [
        "| change | watched | detected, % | delay, windows: median | 90 % | false alarms |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for change in ("step", "ramp", "none"):
        own = [m for m in found if m["change"] == change]
        if not own:
            continue
        wrong = sum(m["false_alarm"] for m in own)
        delay = [m["delay_windows"] for m in own if m["delay_windows"] is not None]
        asked = [m for m in own if m["detected"] is not None and not m["false_alarm"]]
        seen = f"{100.0 * np.mean([m['detected'] for m in asked]):.0f}" if asked else "–"
        late = [f"{np.quantile(delay, q):.1f}" if delay else "–" for q in (0.5, 0.9)]
        lines.append(f"| {change} | {len(own)} | {seen} | {late[0]} | {late[1]} | {wrong} |")
    quiet = sum(m["quiet_windows"] for m in found)
    wrong = sum(m["false_alarm"] for m in found)
    if quiet:
        rate = 1_000.0 * wrong / quiet
        lines.append(f"\nFalse alarms per 1,000 windows: {rate:.2f} ({wrong} in {quiet:,.0f})")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first pool, counted from 0 or 1,000")
    parser.add_argument("--pools", type=int, default=12, help="of ten watched units each")
    parser.add_argument("--judged", action="store_true", help="pools kept for the end")
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-drift.jsonl")
    method_options(parser)
    args = parser.parse_args()
    if args.method not in FOLLOWERS:
        parser.error(f"--method: expected one of {', '.join(FOLLOWERS)}, got {args.method}")
    if args.judged:
        print("WARNING: these pools are for the final judgement; change no method after this.")
    recorded, method = Recorded(args.out), chosen_method(args)
    first = args.first + JUDGED_FROM * args.judged
    seeds = range(first, first + args.pools)
    for seed in () if args.show else seeds:
        measure(method, seed, recorded)
    rows = [
        recorded.find(watch_config(method, seed, watched_name(family_of(seed), k)))
        for seed in seeds
        for k in range(NUM_WATCHED)
    ]
    print(text_table([row["measured"] for row in rows if row is not None]))


if __name__ == "__main__":
    main()
