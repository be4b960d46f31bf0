"""Verdicts on six controls: same or other dynamics, same or other driver, with and without overlap.

    python benchmarks/fleets/controls.py [--kinds own-driver-apart ...] [--draws 20] [--judged]
    python benchmarks/fleets/controls.py --show

A control is a pool of 24 units of one family, four known. Half are of another type where dynamics
differ. What the verdict must be is known from how the pool was made:

==================  =====================================================  ==========
kind                who drives what                                        verdict
==================  =====================================================  ==========
same                one type, six operators at random                      neither
dynamics            two types, six operators at random                     dynamics
behaviour           one type; the known by A, the others by A or B         behaviour
both                two types, A and B drive both; the known by A          both
own-driver          two types, A drives ours and B the others; A and B     both
                    use the same ranges
own-driver-apart    the same, but set-points and commands of A and B lie   confounded
                    apart, and so do the states
==================  =====================================================  ==========

Draws from 0 are for development; `--judged` takes those from 1,000, whose types differ in other
ways (`draws.py`).
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from baseline import RESULTS, Recorded
from draws import JUDGED_FROM, draw_kind, family_of, shifts
from judged import judge
from machines import dataset_of, decided
from method import Method, Task, chosen_method, method_options
from operators import Habits
from physics import MACHINES, Machine
from readout import read_out, unit_types
from scipy.spatial import KDTree
from simulate import VERSION, Fleet, Kind, Table, draw_parameters, record, stack

VERDICTS: Mapping[str, str] = {
    "same": "neither",
    "dynamics": "dynamics",
    "behaviour": "behaviour",
    "both": "both",
    "own-driver": "both",
    "own-driver-apart": "confounded",
}
NUM_UNITS, NUM_KNOWN = 24, 4
LEAST_SHARED, MOST_SHARED = 0.2, 0.05
"""`overlap` of ours and others: at least, where each has a driver; at most, where all is apart."""
_MOST_ATTEMPTS = 50
_UNLOGGED = 150
"""Rows after which a run has left its random start, where drivers keep to ranges of their own."""
_NUM_NEIGHBOURS, _NUM_SEARCHED, _NUM_COMPARED = 10, 60, 2_000


@dataclass(frozen=True, eq=False)
class Control:
    """A pool with its truth."""

    kind: str
    fleet: Fleet
    table: Table
    known: np.ndarray
    """(k,) str. Known units."""
    verdict: str
    """What is true of the pool."""


def control(kind: str, family: str, seed: int) -> Control:
    """Make a control; the same arguments give the same numbers.

    Args:
        kind: One of `VERDICTS`.
        family: Name of a machine, among those that draws of this seed may hold.
        seed: Of the draw; from `JUDGED_FROM` on for the final judgement.

    Raises:
        ValueError: No draw of this family overlaps as its kind must.
    """
    for attempt in range(_MOST_ATTEMPTS):
        made = _draw(kind, family, seed, attempt)
        shared = overlap_of(made)
        if kind == "own-driver" and shared < LEAST_SHARED:
            continue
        if kind == "own-driver-apart" and shared > MOST_SHARED:
            continue
        return made
    raise ValueError(f"{kind}: expected {family} to have such a control, got none ({seed=})")


def _draw(kind: str, family: str, seed: int, attempt: int) -> Control:
    """One attempt; where the machine itself moves the states, drivers cannot make them overlap."""
    machine = MACHINES[family]
    rng = np.random.default_rng([20_262, seed, list(VERDICTS).index(kind), attempt])
    has_two = kind not in ("same", "behaviour")
    choice = shifts(seed)[family]
    other = draw_kind(choice[int(rng.integers(len(choice)))], NUM_UNITS // 2, rng)
    ours = Kind("ours", NUM_UNITS // 2 if has_two else NUM_UNITS)
    fleet = Fleet(
        name=f"{kind}-{family}-{seed:04d}",
        machine=machine,
        kinds=(ours, other) if has_two else (ours,),
        seed=seed,
        held_out=seed >= JUDGED_FROM,
        operators=6 if kind in ("same", "dynamics") else 2,
    )
    number = rng.permutation(np.arange(NUM_UNITS) // (NUM_UNITS // 2)) * has_two
    driver = assign_drivers(kind, fleet, number, rng)
    apart = kind == "own-driver-apart"
    habits = two_drivers(machine, rng, apart=apart)
    if fleet.operators > 2:
        habits = Habits.draw(machine, fleet.operators, rng)
    parameters = draw_parameters(fleet, number, rng)
    unlogged = _UNLOGGED if apart else 0
    table = record(fleet, number, parameters, habits, driver, rng, unlogged=unlogged)
    units, is_ours = unit_types(table, fleet)
    candidates = np.flatnonzero(is_ours & (driver[:, 0] == 0) | is_ours & (fleet.operators > 2))
    known = units[rng.choice(candidates, NUM_KNOWN, replace=False)]
    return Control(kind, fleet, table, known, VERDICTS[kind])


def assign_drivers(
    kind: str, fleet: Fleet, number: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(units, runs) int. Who drives; a unit keeps its driver unless operators are random."""
    if fleet.operators > 2:
        return rng.integers(fleet.operators, size=(len(number), fleet.runs))
    driver = number
    if kind in ("behaviour", "both"):
        # Of each type half by either; the known come from the first half of ours.
        driver = np.zeros(len(number), int)
        for k in np.unique(number):
            own = rng.permutation(np.flatnonzero(number == k))
            driver[own[len(own) // 2 :]] = 1
    return np.repeat(driver[:, None], fleet.runs, axis=1)


def two_drivers(machine: Machine, rng: np.random.Generator, *, apart: bool) -> Habits:
    """Habits of A and B: a slow and steady hand and a quick and restless one.

    Args:
        machine: What is driven.
        rng: Source of the draw.
        apart: Whether their set-points and commands keep to different ends of the ranges, instead
            of sharing most of them.
    """
    shape = 1, len(machine.commands)

    def pair(first: tuple[float, float], second: tuple[float, float]) -> np.ndarray:
        return np.vstack([rng.uniform(*first, shape), rng.uniform(*second, shape)])

    habits = Habits(
        hold=np.array([rng.uniform(25.0, 40.0), rng.uniform(10.0, 18.0)]),
        middle=pair((0.4, 0.6), (0.4, 0.6)),
        width=pair((0.7, 0.9), (0.7, 0.9)),
        gain=pair((0.5, 0.7), (1.4, 1.8)),
        dither=pair((0.0, 0.01), (0.03, 0.06)),
        period=pair((10.0, 20.0), (4.0, 8.0)),
        shake=pair((0.005, 0.015), (0.02, 0.04)),
        slowness=pair((0.4, 0.6), (0.0, 0.15)),
    )
    if not apart:
        return habits
    ends = ((0.10, 0.15), (0.85, 0.90))
    return replace(
        habits,
        middle=pair(*(ends if rng.uniform() < 0.5 else ends[::-1])),
        width=pair((0.15, 0.25), (0.15, 0.25)),
        gain=pair((0.5, 0.6), (1.0, 1.2)),
        dither=pair((0.0, 0.01), (0.01, 0.02)),
        shake=pair((0.005, 0.01), (0.01, 0.015)),
    )


def overlap(table: Table, fleet: Fleet, first: np.ndarray, *, seed: int = 0) -> float:
    """How much two groups of units share their states and commands: 1 as if shuffled, 0 apart.

    Of a row's nearest neighbours among other units (states and commands in standard deviations, as
    many rows of each group), the part that is of the other group, over one half.

    Args:
        table: As `simulate` makes it.
        fleet: Names its sensors and commands.
        first: (n,) bool. Rows of the first group.
        seed: Of the rows that are compared.
    """
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [rng.choice(np.flatnonzero(part), _NUM_COMPARED // 2) for part in (first, ~first)]
    )
    x = stack(table, (*fleet.sensors, *fleet.commands))
    x = ((x - x.mean(axis=0)) / x.std(axis=0))[rows]
    near = KDTree(x).query(x, _NUM_SEARCHED)[1]
    group, unit = first[rows], table["unit"][rows]
    elsewhere = unit[near] != unit[:, None]
    counted = elsewhere & (np.cumsum(elsewhere, axis=1) <= _NUM_NEIGHBOURS)
    return float(min(1.0, 2.0 * np.mean((group[near] != group[:, None])[counted])))


def overlap_of(made: Control) -> float:
    """Overlap of our units with the others, or of A's with B's where there is one type."""
    column, first = ("type", "ours") if len(made.fleet.kinds) > 1 else ("operator", "OP-1")
    return overlap(made.table, made.fleet, made.table[column] == first)


def decidable_of(made: Control) -> float | None:
    """Units right by the read-out that is told the truth; None where there is nothing to tell."""
    if len(made.fleet.kinds) == 1:
        return None
    return read_out(made.table, made.fleet, num_draws=1).accuracy


def control_config(method: Method, kind: str, family: str, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    pool = {"control": kind, "family": family, "seed": seed, "version": VERSION}
    return method.config() | pool


def measure(method: Method, kind: str, seed: int, recorded: Recorded) -> None:
    """Add the verdict on one control, unless it is there."""
    family = family_of(seed).name
    config = control_config(method, kind, family, seed)
    if recorded.find(config) is not None:
        return
    made = control(kind, family, seed)
    data = dataset_of(made.table, made.fleet)
    ours = unit_types(made.table, made.fleet)[1]
    for decision in decided(method, data, [Task(made.known, seed)], made.fleet.name):
        measured = judge(decision, data, ours, made.known)
        measured |= {"true_verdict": made.verdict, "overlap": overlap_of(made)}
        measured |= {"read_out": decidable_of(made)}
        recorded.add(config, measured)
        told = f"{decision.verdict} (true: {made.verdict})"
        print(f"{made.fleet.name}: {told}, {measured['seconds']} s", flush=True)


def text_table(method: Method, recorded: Recorded, kinds: list[str], seeds: range) -> str:
    """Right verdicts of each kind, what was said instead, overlap, and units right, as Markdown."""
    lines = [
        "| control | truth | draws | right, % | said | overlap, median | units right, % "
        "| read-out, % |",
        "|---|---|--:|--:|---|--:|--:|--:|",
    ]
    wrongly = []
    for kind in kinds:
        found = [
            row["measured"]
            for seed in seeds
            if (row := recorded.find(control_config(method, kind, family_of(seed).name, seed)))
        ]
        if not found:
            lines.append(f"| {kind} | {VERDICTS[kind]} | 0 | – | – | – | – | – |")
            continue
        said = Counter(str(m["verdict"]) for m in found)
        if VERDICTS[kind] != "confounded":
            wrongly += [m["verdict"] == "confounded" for m in found]
        right = 100.0 * said[VERDICTS[kind]] / len(found)
        text = ", ".join(f"{name} {count}" for name, count in said.most_common())
        middle = f"{np.median([m['overlap'] for m in found]):.2f}"
        told = [m["read_out"] for m in found if m["read_out"] is not None]
        read = f"{100.0 * np.mean(told):.1f}" if told else "–"
        units = 100.0 * np.mean([m["num_right"] / m["num_asked"] for m in found])
        cells = [kind, VERDICTS[kind], len(found), f"{right:.0f}", text]
        cells += [middle, f"{units:.1f}", read]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if wrongly:
        rate = 100.0 * np.mean(wrongly)
        lines.append(f"\nConfounded where it is not: {rate:.1f} % of {len(wrongly)}")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=list(VERDICTS), default=list(VERDICTS))
    parser.add_argument("--first", type=int, default=0, help="first draw, counted from 0 or 1,000")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--judged", action="store_true", help="draws kept for the end")
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-controls.jsonl")
    method_options(parser)
    args = parser.parse_args()
    first = args.first + JUDGED_FROM * args.judged
    if args.judged:
        print("WARNING: these draws are for the final judgement; change no method after this.")
    recorded, method = Recorded(args.out), chosen_method(args)
    seeds = range(first, first + args.draws)
    if not args.show:
        for seed in seeds:
            for kind in args.kinds:
                measure(method, kind, seed, recorded)
    print(text_table(method, recorded, args.kinds, seeds))


if __name__ == "__main__":
    main()
