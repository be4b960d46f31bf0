"""How long a million rows take, with a shipped policy, on the cores of this machine.

python benchmarks/speed/collect.py [--rows 1M] [--bodies hopper] [--save]
"""

import argparse
import resource
import time
from pathlib import Path

from stamped import append

import puorl
from puorl.core.formatting import parse_count

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
        measured = {
            "body": body,
            "rows": rows,
            "seconds": round(seconds, 2),
            "peak_mib": round(peak),
            "content": data.fingerprint,
        }
        if given.save:
            append(RESULTS, measured)


if __name__ == "__main__":
    main()
