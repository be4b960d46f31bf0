"""Do 95 % intervals hold the truth? Alpha, recall and probabilities on many drawn fleets.

    python benchmarks/fleets/intervals.py --read-outs [--judged]
    python benchmarks/fleets/intervals.py [--count 200] [--first 0] [--known 3] [--judged]
    python benchmarks/fleets/intervals.py --show

One draw of known units for each fleet of `draws.py`. Whether a fleet can be decided at all is told
by its read-out (folds drawn once); rates are given over all fleets and over the decidable ones, and
the others are listed. Fleets below 1,000 are for development; `--judged` takes those from there on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from baseline import RESULTS, Recorded, describe
from draws import JUDGED_FROM, NUM_KNOWN, NUM_SEEDS, draw_fleet
from judged import summary, summary_text
from machines import machine_config, measure
from method import Method, chosen_method, method_options
from readout import DECIDABLE, read_out
from simulate import Fleet, Table, simulate


def main() -> None:
    """Measure what is missing, print the rates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first fleet, counted from 0 or 1,000")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--known", type=int, default=NUM_KNOWN)
    parser.add_argument("--judged", action="store_true", help="fleets kept for the end")
    parser.add_argument("--read-outs", action="store_true", help="measure read-outs alone")
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-intervals.jsonl")
    method_options(parser)
    args = parser.parse_args()
    first = args.first + JUDGED_FROM * args.judged
    last = first + args.count
    if last > (NUM_SEEDS if args.judged else JUDGED_FROM):
        parser.error(f"--first and --count: expected at most {JUDGED_FROM:,} fleets of either kind")
    if args.judged and not args.read_outs:
        print("WARNING: these fleets are for the final judgement; change no method after this.")
    recorded, method = Recorded(args.out), chosen_method(args)
    for seed in () if args.show else range(first, last):
        fleet = draw_fleet(seed)
        table = simulate(fleet)
        measure_read_out(fleet, table, recorded)
        if not args.read_outs:
            measure(method, fleet, table, args.known, 1, recorded)
    print(text(method, recorded, [draw_fleet(seed) for seed in range(first, last)], args.known))


def read_out_config(fleet: Fleet) -> dict[str, Any]:
    """All that decides the read-out of a drawn fleet."""
    return {"method": "read-out", "fleet": describe(fleet), "num_draws": 1}


def measure_read_out(fleet: Fleet, table: Table, recorded: Recorded) -> None:
    """Add the read-out of a fleet, unless it is there."""
    if recorded.find(read_out_config(fleet)) is None:
        found = read_out(table, fleet, num_draws=1)
        recorded.add(read_out_config(fleet), {"accuracy": found.accuracy, "auroc": found.auroc})


def text(method: Method, recorded: Recorded, fleets: Sequence[Fleet], known: int) -> str:
    """Rates over all fleets, the decidable ones and their families; the names of the others."""
    every, decidable, excluded = [], [], []
    by_family: dict[str, list[dict[str, Any]]] = {}
    for fleet in fleets:
        told = recorded.find(read_out_config(fleet))
        row = recorded.find(machine_config(method, fleet, known, 0))
        counts = told is not None and told["measured"]["accuracy"] >= DECIDABLE
        if told is not None and not counts:
            accuracy = 100.0 * told["measured"]["accuracy"]
            excluded.append(f"{fleet.name} ({fleet.machine.name}, {accuracy:.1f} %)")
        if row is None:
            continue
        every.append(row["measured"])
        if counts:
            decidable.append(row["measured"])
            by_family.setdefault(fleet.machine.name, []).append(row["measured"])
    lines = [f"{known} known units"]
    if every:
        lines.append(f"all fleets: {summary_text(summary(every))}")
    if decidable:
        lines.append(f"decidable fleets: {summary_text(summary(decidable))}")
        least = np.quantile([m["num_right"] / m["num_asked"] for m in decidable], [0.0, 0.05, 0.5])
        lines.append(
            "units right, lowest, 5 % quantile, median: " + ", ".join(f"{q:.3f}" for q in least)
        )
    lines += [f"- {name}: {summary_text(summary(found))}" for name, found in by_family.items()]
    lines.append(
        f"Read-out below 99 %, {len(excluded)} of {len(fleets)}: {', '.join(excluded) or 'none'}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
