"""The demo by seed: how often are the right robots found, and does a policy profit?

    python benchmarks/demo/runs.py [--seeds 0 1 2 3 4 5 6 7 8 9]
    python benchmarks/demo/runs.py --show

Runs `puorl demo` as a user does, each time with an empty cache, and keeps one row a seed. What is
in the results with the same settings is not run again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from puorl.demo import page, study

RESULTS = Path(__file__).parents[1] / "results" / "demo-runs.jsonl"
_CODE = "import sys; from puorl.cli.main import main; sys.exit(main())"


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=range(10))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true", help="print the table, run nothing")
    args = parser.parse_args()
    for seed in () if args.show else args.seeds:
        if find(args.out, seed) is None:
            row = run(seed)
            with open(args.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"seed {seed}: {row['wall_seconds']:.0f} s", flush=True)
    print(text_table([row for seed in args.seeds if (row := find(args.out, seed)) is not None]))


def find(path: Path, seed: int) -> dict[str, Any] | None:
    """The row of a seed with the demo's present settings."""
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    wanted = json.loads(json.dumps(vars(study.SETTINGS.seeded(seed)), default=vars))
    for row in rows:
        if row["puorl_demo"] == 2 and wanted.items() <= row["settings"].items():
            return row
    return None


def run(seed: int) -> dict[str, Any]:
    """All results of one demo, with its time and memory."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        out = subprocess.run(
            [sys.executable, "-c", _CODE, "demo", "--seed", str(seed), "--out", "demo", "--json"],
            cwd=folder,
            env=os.environ | {"PUORL_CACHE": str(Path(folder) / "cache")},
            stdout=subprocess.PIPE,
            check=True,
        )
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    spent = {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}
    return json.loads(out.stdout) | spent | {"memory_mib": round(after.ru_maxrss / 1024)}


def text_table(rows: list[dict[str, Any]]) -> str:
    """Robots right, verdict, scores and times by seed, as Markdown."""
    heads = ["robots right", "verdict", *study.TITLES.values(), "PU minus Oracle", "CPU", "wall"]
    lines = ["| seed | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for row in rows:
        truth, minus = row["filter"]["truth"], row["pu_minus"]["oracle"]
        scores = {name: row["methods"][name]["scores"] for name in study.TITLES}
        cells = [
            f"{truth['num_right']} of {truth['num_asked']}",
            row["filter"]["report"]["verdict"],
            *(page.as_estimate(study.mean_estimate(each)) for each in scores.values()),
            f"{minus['value']:+.1f} ({minus['low']:+.1f} to {minus['high']:+.1f})",
            f"{row['cpu_seconds']:.0f} s",
            f"{row['wall_seconds']:.0f} s",
        ]
        lines.append(f"| {row['seed']} | " + " | ".join(cells) + " |")
    above = [
        all(row["pu_minus"][name]["low"] > 0 for name in ("olp", "sharing_all")) for row in rows
    ]
    lines.append(f"\nPU is above OLP and Sharing-All in {int(np.sum(above))} of {len(rows)}.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
