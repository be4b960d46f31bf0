"""Units right with 1, 2, 3, 5, 10 known units, beside today's filter.

    python benchmarks/fleets/machines.py [--known 1 3] [--draws 5] [--fleets ...] [--held-out]
    python benchmarks/fleets/machines.py --read-outs [--held-out]
    python benchmarks/fleets/machines.py --show

Every draw knows other units of ours (the draws of `baseline.py`, so that rows can be compared) and
has another seed. The fleets that are not held out are measured; `--held-out` measures the others.
`--read-outs` asks what a classifier that is told the truth sees in the method's latents; a fleet is
decidable where that, or the read-out of `readout.py`, is right for 99 % of the units.
Raw rows hold every unit with its probability and truth; rows that are there are not measured again.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from baseline import RESULTS, Recorded, describe, mean_cell
from judged import judge, summary, summary_text
from method import Decision, Method, Task, chosen_method, embedded, method_options
from readout import DECIDABLE, auroc, held_out_logits, unit_types
from simulate import FLEETS, Fleet, Table, simulate, stack

import puorl

KNOWN = (1, 2, 3, 5, 10)


def main() -> None:
    """Measure what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", nargs="+", choices=list(FLEETS))
    parser.add_argument("--held-out", action="store_true", help="the fleets kept for the end")
    parser.add_argument("--known", nargs="+", type=int, default=list(KNOWN))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-machines.jsonl")
    parser.add_argument("--baseline", type=Path, default=RESULTS / "fleets-baseline.jsonl")
    parser.add_argument("--read-outs", action="store_true", help="measure read-outs alone")
    method_options(parser)
    args = parser.parse_args()
    names = [
        name
        for name, fleet in FLEETS.items()
        if fleet.held_out == args.held_out and (args.fleets is None or name in args.fleets)
    ]
    if args.fleets and set(args.fleets) != set(names):
        parser.error(
            "--fleets: expected fleets that are not held out, or all held out (--held-out)"
        )
    if args.held_out:
        print("WARNING: held-out fleets are for the final judgement; change no method after this.")
    recorded, method = Recorded(args.out), chosen_method(args)
    if not args.show:
        for name in names:
            table = simulate(FLEETS[name])
            if args.read_outs:
                measure_read_out(method, FLEETS[name], table, recorded)
                continue
            for known in args.known:
                measure(method, FLEETS[name], table, known, args.draws, recorded)
    print(text_table(method, recorded, Recorded(args.baseline), names, args.known, args.draws))


def dataset_of(table: Table, fleet: Fleet) -> puorl.Dataset:
    """The log as a user has it: types and operators are not passed on."""
    return puorl.Dataset.from_arrays(
        obs=stack(table, fleet.sensors),
        action=stack(table, fleet.commands),
        episode=table["run"],
        time=table["time"],
        columns={"unit": table["unit"]},
    )


def draw_task(fleet: Fleet, units: np.ndarray, ours: np.ndarray, known: int, seed: int) -> Task:
    """Known units of one draw, as `baseline.py` draws them."""
    rng = np.random.default_rng([fleet.seed, known, seed])
    return Task(units[rng.choice(np.flatnonzero(ours), known, replace=False)], seed)


def measure(
    method: Method, fleet: Fleet, table: Table, known: int, draws: int, recorded: Recorded
) -> None:
    """Add the draws that are missing, unless the fleet has too few units of ours."""
    if fleet.kinds[0].count <= known:
        return
    missing = [
        seed
        for seed in range(draws)
        if recorded.find(machine_config(method, fleet, known, seed)) is None
    ]
    if not missing:
        return
    units, ours = unit_types(table, fleet)
    data = dataset_of(table, fleet)
    tasks = [draw_task(fleet, units, ours, known, seed) for seed in missing]
    for task, decision in zip(tasks, decided(method, data, tasks, fleet.name), strict=False):
        measured = judge(decision, data, ours, task.known)
        recorded.add(machine_config(method, fleet, known, task.seed), measured)
        right = f"{measured['num_right']} of {measured['num_asked']} right"
        told = f"AUROC {measured['auroc']:.3f}, {measured['seconds']} s"
        print(f"{fleet.name} {known} known, draw {task.seed}: {right}, {told}", flush=True)


def measure_read_out(method: Method, fleet: Fleet, table: Table, recorded: Recorded) -> None:
    """Add what a classifier over units sees in the latents of all lanes, unless it is there."""
    config = read_out_config(method, fleet)
    if recorded.find(config) is not None:
        return
    units, ours = unit_types(table, fleet)
    first = np.unique(table["unit"], return_index=True)[1]
    names = [kind.name for kind in fleet.kinds]
    number = np.array([names.index(name) for name in table["type"][first]])
    made, seconds = embedded(dataset_of(table, fleet), method.filter_config, 0)
    inputs = []
    for view, lanes in zip(made.views, made.latents, strict=True):
        each = [view.embed(lane, found.z) for lane, found in enumerate(lanes)]
        inputs += [*each, np.hstack(each)]
    logit = held_out_logits(inputs, number)
    measured = {
        "accuracy": float(np.mean((logit > 0) == ours)),
        "auroc": auroc(logit, ours),
        "num_units": len(units),
        "seconds": round(seconds, 2),
    }
    recorded.add(config, measured)
    told = f"{100.0 * measured['accuracy']:.1f} %, AUROC {measured['auroc']:.3f}"
    print(f"{fleet.name} read-out of z: {told}", flush=True)


def read_out_config(method: Method, fleet: Fleet) -> dict[str, Any]:
    """All that decides a row of a read-out of the latents."""
    return method.config() | {"fleet": describe(fleet), "question": "read-out", "seed": 0}


def decided(
    method: Method, data: puorl.Dataset, tasks: Sequence[Task], name: str
) -> list[Decision]:
    """The decisions; none where the method fails, which is printed: it must not stop the others."""
    try:
        return method.decide(data, tasks)
    except Exception as error:
        print(f"{name}: FAILED {type(error).__name__}: {error}", flush=True)
        return []


def machine_config(method: Method, fleet: Fleet, known: int, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    return method.config() | {"fleet": describe(fleet), "known": known, "seed": seed}


def text_table(
    method: Method,
    recorded: Recorded,
    baseline: Recorded,
    names: Sequence[str],
    known: Sequence[int],
    draws: int,
) -> str:
    """Percent of asked units right, mean over draws, AUROC in brackets; today's filter beside it.

    Below the table, over all decidable fleets: intervals and calibration for each number of known
    units, and the fleets that do not count.
    """
    heads = [f"{title} {k}" for k in known for title in (method.name, "filter")]
    lines = [
        "| fleet | read-out | " + " | ".join(heads) + " |",
        "|---|--:" + "|--:" * len(heads) + "|",
    ]
    judged: dict[int, list[dict[str, Any]]] = {k: [] for k in known}
    excluded = []
    for name in names:
        fleet = FLEETS[name]
        told = [
            baseline.find({"method": "read-out", "fleet": describe(fleet)}),
            recorded.find(read_out_config(method, fleet)),
        ]
        accuracy = max((row["measured"]["accuracy"] for row in told if row), default=None)
        counts = accuracy is not None and accuracy >= DECIDABLE
        cells = ["–" if accuracy is None else f"{100.0 * accuracy:.1f}"]
        for k in known:
            rows = [recorded.find(machine_config(method, fleet, k, s)) for s in range(draws)]
            found = [row["measured"] for row in rows if row is not None]
            cells.append(mean_cell(found) + (f" of {len(found)}" if 0 < len(found) < draws else ""))
            cells.append(mean_cell(_draws_of_baseline(baseline, fleet, k)))
            if counts:
                judged[k] += found
        if not counts:
            excluded.append(f"{name} ({cells[0]} %)")
        lines.append(f"| {name}{' *' if fleet.held_out else ''} | " + " | ".join(cells) + " |")
    lines += ["", "Decidable fleets together:"]
    lines += [
        f"- {k} known: {summary_text(summary(found))}" for k, found in judged.items() if found
    ]
    return "\n".join(
        [*lines, f"Not counted (read-out below 99 %): {', '.join(excluded) or 'none'}"]
    )


def _draws_of_baseline(recorded: Recorded, fleet: Fleet, known: int) -> list[dict[str, Any]]:
    """What was measured of the filter, whichever settings its presets have had."""
    wanted = {"method": "filter", "fleet": json.loads(json.dumps(describe(fleet))), "known": known}
    return [row["measured"] for row in recorded.rows if wanted.items() <= row["config"].items()]


if __name__ == "__main__":
    main()
