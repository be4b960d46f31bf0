"""How long a filter of machines takes: fit, decision, report, and a new unit.

    python benchmarks/fleets/speed.py --units 30 --rows 160 [--save]
    python benchmarks/fleets/speed.py --units 1000 --rows 200 [--save]
    python benchmarks/fleets/speed.py --family vehicles --units 420 --rows 150 --seed 11 [--save]

Machines of two types, a third of them ours, three known; some rows are missing. Pumps have five
runs each and types that nearly touch, vehicles four and types far apart. Run it on idle
cores. The process imports and compiles within the times. `--profile` also prints where time goes.
"""

import argparse
import cProfile
import datetime
import json
import os
import platform
import pstats
import resource
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from baseline import RESULTS
from machines import dataset_of
from physics import PUMP, VEHICLE
from readout import unit_types
from simulate import Fleet, Kind, simulate

KNOWN = 3
FAMILIES = {
    "pumps": (PUMP, {"impeller": 0.8}, 5),
    "vehicles": (VEHICLE, {"payload": 2.4}, 4),
}
"""Equations, what differs in the others, and runs of each machine."""


def main() -> None:
    """Measure and print; append a row if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", choices=list(FAMILIES), default="pumps")
    parser.add_argument("--units", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=200, help="of a run, before gaps are cut")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--save", action="store_true", help="append to the results")
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-speed.jsonl")
    args = parser.parse_args()
    profile = cProfile.Profile()
    if args.profile:
        profile.enable()
    fleet = make_fleet(args.family, args.units, args.rows, args.seed)
    measured = measure(fleet, args.preset, args.seed)
    if args.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
    config = {name: getattr(args, name) for name in ("family", "units", "rows", "preset", "seed")}
    row = {
        "config": {"benchmark": "speed", "runs": fleet.runs, "known": KNOWN, **config},
        "measured": measured,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("puorl", "jax", "numpy")}
        | {"python": platform.python_version()},
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps(row, indent=1))
    if args.save:
        with open(args.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def make_fleet(family: str, units: int, rows: int, seed: int) -> Fleet:
    """Machines of two types, a third of them ours."""
    machine, changed, runs = FAMILIES[family]
    kinds = Kind("ours", units // 3), Kind("other", units - units // 3, changed)
    return Fleet("speed", machine, kinds, seed, held_out=False, runs=runs, rows=rows)


def measure(fleet: Fleet, preset: str, seed: int) -> dict[str, Any]:
    """Seconds of the stages, and how many units are right."""
    import puorl

    table = simulate(fleet)
    data = dataset_of(table, fleet)
    units, ours = unit_types(table, fleet)
    known = units[np.flatnonzero(ours)[:KNOWN]]
    labelled = np.isin(data.columns["unit"], known)
    load = os.getloadavg()[0]
    seconds, used = {}, {}

    def timed(name: str, call: Any) -> Any:
        begin, cpu = time.perf_counter(), time.process_time()
        made = call()
        seconds[name], used[name] = time.perf_counter() - begin, time.process_time() - cpu
        return made

    flt = puorl.DomainFilter(preset, unit="column:unit")
    timed("fit", lambda: flt.fit(data, labelled, seed=seed))
    kept = timed("keep", lambda: flt.filter())
    report = timed("report", lambda: flt.report())
    new = data[np.flatnonzero(data.columns["unit"] == units[-1])]
    timed("first new unit", lambda: flt.predict_proba(new))
    timed("next new unit", lambda: flt.predict_proba(new))
    asked = ~np.isin(units, known)
    is_kept = np.isin(units, np.unique(data.columns["unit"][kept.rows]))
    whole = sum(seconds[name] for name in ("fit", "keep", "report"))
    return {
        "num_rows": len(data),
        "load_before": round(load, 2),
        "wall_s": {name: round(each, 2) for name, each in seconds.items()},
        "cpu_s": {name: round(each, 2) for name, each in used.items()},
        "wall_s_fit_keep_report": round(whole, 2),
        "units_right": float((is_kept == ours)[asked].mean()),
        "alpha": asdict(flt.alpha_),
        "true_alpha": float(np.isin(data.columns["unit"], units[ours])[~labelled].mean()),
        "verdict": report.verdict,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    main()
