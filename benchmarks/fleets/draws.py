"""Fleets drawn at random: many of them, for rates that ten named fleets cannot show.

    python benchmarks/fleets/draws.py [--first 0] [--count 20]

The number of a draw is its seed and decides what it may hold. Below `JUDGED_FROM` types differ in
the ways that methods may be developed on; from there on in other ways, and conveyors occur: these
draws are for the final judgement. What differs is as large as in the named fleets that are
decidable, and no draw repeats a named fleet's numbers.
"""

import argparse
from collections.abc import Mapping

import numpy as np
from physics import BELT, CRANE, FAN, PLANT, PUMP, VEHICLE, Machine
from simulate import Fleet, Kind

JUDGED_FROM, NUM_SEEDS = 1_000, 2_000
NUM_KNOWN = 3
"""Known units for which draws are made: ours are at least two more."""
LEAST_UNITS = 4
"""Of every other type: enough for a read-out."""
Range = tuple[float, float]
Shift = tuple[str, Mapping[str, Range]]
"""Name of a type, and the range of the factor on each parameter."""

DEVELOPMENT: Mapping[str, tuple[Shift, ...]] = {
    PUMP.name: (
        ("trimmed impeller", {"impeller": (0.70, 0.80)}),
        ("weak motor", {"torque": (0.62, 0.78)}),
        ("worn volute", {"head": (0.60, 0.75)}),
    ),
    PLANT.name: (
        ("bare", {"insulation": (1.6, 2.1), "leak": (1.6, 2.1)}),
        ("full", {"room_capacity": (1.35, 1.7)}),
        ("weak cooler", {"cooler": (0.50, 0.66)}),
    ),
    VEHICLE.name: (
        ("loaded", {"payload": (2.3, 3.8)}),
        ("worn brakes", {"brakes": (0.55, 0.72)}),
        ("old battery", {"resistance": (1.4, 1.8)}),
    ),
    CRANE.name: (
        ("full load", {"load": (1.6, 2.0)}),
        ("worn wheels", {"wheels": (1.5, 1.9)}),
        ("weak motor", {"motor": (0.62, 0.75)}),
    ),
    FAN.name: (
        ("fouled coil", {"coil": (0.55, 0.70)}),
        ("weak water pump", {"water": (0.55, 0.70)}),
        ("narrow duct", {"duct": (1.6, 2.2)}),
    ),
}
HELD_OUT: Mapping[str, tuple[Shift, ...]] = {
    PUMP.name: (
        ("worn bearing", {"friction": (1.7, 2.0)}),
        ("fouled pipe", {"pipe": (1.9, 2.4)}),
        ("thick liquid", {"hydraulic": (1.35, 1.6)}),
    ),
    PLANT.name: (
        ("weak heater", {"heater": (0.62, 0.75)}),
        ("scaled element", {"transfer": (0.55, 0.68)}),
        ("thick wall", {"wall_capacity": (1.45, 1.8)}),
    ),
    VEHICLE.name: (
        ("weak motor", {"motor": (0.64, 0.75)}),
        ("heavy frame", {"empty_mass": (1.35, 1.6)}),
        ("slow inverter", {"current_lag": (1.5, 2.0)}),
    ),
    CRANE.name: (
        ("heavy trolley", {"trolley": (1.4, 1.7)}),
        ("slow inverter", {"current_lag": (1.5, 2.0)}),
        ("slow hoist", {"hoist_lag": (1.5, 2.0)}),
    ),
    FAN.name: (
        ("dirty wheel", {"wheel": (0.62, 0.75)}),
        ("slipping belt", {"pulley": (0.68, 0.78)}),
        ("heavy coil", {"coil_capacity": (1.6, 2.0)}),
    ),
    BELT.name: (
        ("stiff rollers", {"rollers": (1.35, 1.6)}),
        ("weak motor", {"torque": (0.68, 0.78)}),
        ("slow feeder", {"feeder": (0.62, 0.75)}),
    ),
}
_FAMILIES = {machine.name: machine for machine in (PUMP, PLANT, VEHICLE, CRANE, FAN, BELT)}


def is_judged(seed: int) -> bool:
    """Whether a draw is kept for the final judgement."""
    return seed >= JUDGED_FROM


def shifts(seed: int) -> Mapping[str, tuple[Shift, ...]]:
    """Types that draws of this seed may hold, for each family."""
    return HELD_OUT if is_judged(seed) else DEVELOPMENT


def family_of(seed: int) -> Machine:
    """All families take turns."""
    names = list(shifts(seed))
    return _FAMILIES[names[seed % len(names)]]


def draw_kind(shift: Shift, count: int, rng: np.random.Generator) -> Kind:
    """A type of ``count`` units whose size of shift is drawn."""
    name, ranges = shift
    # One place in all ranges: what changes together changes by as much.
    place = rng.uniform()
    return Kind(
        name, count, {key: low + place * (high - low) for key, (low, high) in ranges.items()}
    )


def draw_fleet(seed: int) -> Fleet:
    """A fleet of 12 to 60 units of two to four types; the same seed gives the same fleet.

    Raises:
        ValueError: The seed is outside 0 to 1,999.
    """
    if not 0 <= seed < NUM_SEEDS:
        raise ValueError(f"seed: expected 0 to {NUM_SEEDS - 1:,}, got {seed}")
    rng = np.random.default_rng([20_261, seed])
    machine = family_of(seed)
    num_units = int(rng.integers(12, 61))
    num_ours = max(NUM_KNOWN + 2, round(rng.uniform(0.2, 0.6) * num_units))
    rest = num_units - num_ours
    num_others = min(int(rng.integers(1, 4)), rest // LEAST_UNITS)
    parts = rng.dirichlet(np.ones(num_others))
    counts = LEAST_UNITS + rng.multinomial(rest - LEAST_UNITS * num_others, parts)
    chosen = rng.choice(len(shifts(seed)[machine.name]), num_others, replace=False)
    others = [
        draw_kind(shifts(seed)[machine.name][k], int(count), rng)
        for k, count in zip(chosen, counts, strict=True)
    ]
    return Fleet(
        name=f"draw-{seed:04d}",
        machine=machine,
        kinds=(Kind("ours", num_ours), *others),
        seed=100_000 + seed,
        held_out=is_judged(seed),
        operators=int(rng.integers(4, 9)),
        assignment="correlated" if rng.uniform() < 0.5 else "random",
        runs=int(rng.integers(3, 6)),
        rows=int(rng.integers(120, 181)),
    )


def main() -> None:
    """List draws."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.count):
        fleet = draw_fleet(seed)
        kinds = ", ".join(
            f"{kind.count} {kind.name}"
            + "".join(f" ({name} x {factor:.2f})" for name, factor in kind.factors.items())
            for kind in fleet.kinds
        )
        print(f"{fleet.name} {fleet.machine.name}: {kinds}; {fleet.assignment} operators")


if __name__ == "__main__":
    main()
