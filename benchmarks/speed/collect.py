"""How long a million rows take, with a shipped policy, on the cores of this machine.

python benchmarks/speed/collect.py [--rows 1M] [--bodies hopper] [--save]
"""

import argparse
import datetime
import json
import os
import platform
import resource
import time
from importlib.metadata import version
from pathlib import Path

import puorl
from puorl.core.counts import parse_count

RESULTS = Path(__file__).parents[1] / "results" / "collect.jsonl"


def main() -> None:
    """Collect once per body, print and keep the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1M")
    parser.add_argument("--bodies", nargs="+", default=["hopper"])
    parser.add_argument("--save", action="store_true", help=f"append to {RESULTS.name}")
    given = parser.parse_args()
    rows = parse_count(given.rows)
    for body in given.bodies:
        begin = time.perf_counter()
        data = puorl.collect(body, quality="medium", rows=rows, seed=0, cache=False)
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{body}: {rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s")
        row = {
            "date": datetime.date.today().isoformat(),
            "body": body,
            "rows": rows,
            "seconds": round(seconds, 2),
            "peak_mib": round(peak),
            "cores": len(os.sched_getaffinity(0)),
            "content": data.fingerprint,
            "versions": {p: version(p) for p in ("puorl", "mujoco", "numpy")}
            | {"python": platform.python_version()},
        }
        if given.save:
            with open(RESULTS, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
