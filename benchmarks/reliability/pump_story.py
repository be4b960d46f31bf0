"""A new user's afternoon: 30 pumps, 24,000 rows, 144 missing cells, text columns and no reward.

    python benchmarks/reliability/pump_story.py --save

Writes a log of 30 pumps, twelve of which are of the type of PMP-001, and goes from there to a
policy and a page with the command line alone. Where a command refuses, the next one is what its
message says. Each step is recorded with its seconds on the clock, the seconds of computation (which
other work on the machine hardly changes), its exit code and the last line of what it said.
"""

import argparse
import csv
import datetime
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "pump-story.jsonl"
NUM_PUMPS, NUM_OURS, NUM_RUNS, LENGTH, NUM_MISSING = 30, 12, 4, 200, 144
COLUMNS = ["--obs", "flow,pressure,temperature", "--action", "speed"]
COLUMNS += ["--episode", "run", "--time", "when"]
REWARD = "-abs(flow - 20) - 0.1 * abs(speed)"


def write_log(path: Path, seed: int) -> set[str]:
    """Write the log; return the pumps of the type of PMP-001."""
    draw = random.Random(seed)
    pumps = [f"PMP-{number:03d}" for number in range(1, NUM_PUMPS + 1)]
    ours = {pumps[0], *draw.sample(pumps[1:], NUM_OURS - 1)}
    rows = []
    for pump in pumps:
        gain = (5.0 if pump in ours else 3.5) * draw.uniform(0.95, 1.05)
        site, operator = draw.choice(["Nord", "Süd"]), draw.choice(["Ada", "Ben", "Cem"])
        for run in range(NUM_RUNS):
            flow, pressure, heat, bold = (
                draw.gauss(20, 5),
                draw.gauss(5, 1),
                40.0,
                draw.uniform(0.3, 1),
            )
            clock = datetime.datetime(2026, 5, 4, 6 + 3 * run, draw.randrange(60))
            for _ in range(LENGTH):
                speed = bold * draw.uniform(-1, 1)
                cells = [round(value, 3) for value in (flow, pressure, heat, speed)]
                status = draw.choice(["OK", "OK", "OK", "WARN"])
                stamp = clock.isoformat(sep=" ")
                rows.append([pump, f"{pump}/{run}", stamp, site, operator, *cells, status])
                flow += 0.1 * (pressure - 5) - 0.2 * (flow - 20) + gain * speed + draw.gauss(0, 0.3)
                pressure += 0.3 * speed - 0.1 * (pressure - 5) + draw.gauss(0, 0.05)
                heat += 0.5 * abs(speed) - 0.05 * (heat - 40) + draw.gauss(0, 0.05)
                clock += datetime.timedelta(seconds=10)
    for place in draw.sample(range(len(rows)), NUM_MISSING):
        rows[place][draw.randrange(5, 9)] = draw.choice(["", "n/a", "NaN"])
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ["pump_id", "run", "when", "site", "operator", "flow", "pressure", "temperature"]
        writer.writerow([*names, "speed", "status"])
        writer.writerows(rows)
    return ours


def steps() -> list[tuple[list[str], int]]:
    """List the commands, with the exit code that each is expected to have."""
    known = ["--labelled", "pump_id == 'PMP-001'", "--unit", "column:pump_id", "--out", "ours"]
    small = ["--steps", "3000", "--set", "hidden=64,64"]
    return [
        (["inspect", "pumps.csv", *COLUMNS], 0),
        (["filter", "pumps.csv", *COLUMNS, *known], 2),  # names --missing
        (["filter", "pumps.csv", *COLUMNS, "--missing", "drop", *known], 0),
        (["inspect", "ours"], 0),
        (["train", "ours", *small, "--out", "policy"], 2),  # names --reward and bc
        (["train", "ours", "--learner", "bc", *small, "--out", "clone"], 0),
        (["train", "ours", "--reward", REWARD, *small, "--out", "policy"], 0),
        (["score", "ours", "new.csv", *COLUMNS, "--missing", "drop"], 0),
        (["export", "policy/policies/seed-0.safetensors", "--out", "policy.onnx"], 0),
        (["export", "ours", "--out", "kept.parquet"], 0),
        (["report", "ours", "policy", "--out", "report.html"], 0),
    ]


def tell(seed: int) -> list[dict[str, Any]]:
    """Go through the story in an empty folder."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = write_log(folder / "pumps.csv", seed)
        write_log(folder / "new.csv", seed + 1)
        code = "import sys; from puorl.cli.main import main; sys.exit(main())"
        for words, expected in steps():
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True
            )
            seconds, after = (
                time.perf_counter() - began,
                resource.getrusage(resource.RUSAGE_CHILDREN),
            )
            said = (done.stdout + done.stderr).strip().splitlines()
            row = {
                "command": ["puorl", *words],
                "code": done.returncode,
                "as_expected": done.returncode == expected,
                "seconds": round(seconds, 1),
                "cpu_seconds": round(
                    after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
                ),
                "last_line": said[-1] if said else "",
            }
            print(json.dumps(row), flush=True)
            if done.returncode != expected:
                print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            rows.append(row)
        if (folder / "ours/keep.csv").is_file():
            with open(folder / "ours/keep.csv", newline="", encoding="utf-8") as file:
                kept = {row["pump_id"] for row in csv.DictReader(file)}
            rows.append({"kept": len(kept), "kept_ours": len(kept & ours), "ours": len(ours)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Tell the story, print it, append it if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="append to the results")
    args = parser.parse_args()
    began, load = time.perf_counter(), os.getloadavg()
    rows = tell(args.seed)
    row = {
        "seed": args.seed,
        "steps": rows,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(sum(step.get("cpu_seconds", 0.0) for step in rows), 1),
        "load": [load, os.getloadavg()],
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("puorl", "jax", "numpy")}
        | {"python": platform.python_version()},
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps({name: value for name, value in row.items() if name != "steps"}))
    if args.save:
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
