"""What it saves that commands keep compiled programs: `puorl filter` without, first, and again.

    python benchmarks/speed/programs.py [--rounds 2] [--save]

The log is that of the README, made by the script in `docs/own-data.md`. In each round the command
runs with nothing kept (`JAX_ENABLE_COMPILATION_CACHE=false`), with an empty cache, and with the
cache of the run before; all three must write the same table of units. Run it on idle cores.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stamped import append

ROOT = Path(__file__).parents[2]
_CODE = "import sys; from puorl.cli.main import main; sys.exit(main())"
_WORDS = ("--episode", "run", "--time", "seconds", "--labelled", "pump == 'P-01'")


def main() -> None:
    """Measure, print the ratios, append a row if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="append to the results")
    args = parser.parse_args()
    page = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")
    script = next(s for s in re.findall(r"```python\n(.*?)```", page, re.S) if "pumps.csv" in s)
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as name:
            folder, load = Path(name), os.getloadavg()[0]
            subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)
            runs = {kind: run(folder, kind) for kind in ("nothing kept", "first", "again")}
            tables = {(folder / kind / "units.csv").read_bytes() for kind in runs}
        assert len(tables) == 1, "expected the same units.csv from all runs"
        ratio = runs["nothing kept"]["cpu_s"] / runs["again"]["cpu_s"]
        measured = {"load_before": round(load, 2), "runs": runs, "cpu_ratio": round(ratio, 2)}
        print(json.dumps(measured))
        if args.save:
            append(ROOT / "benchmarks" / "results" / "programs.jsonl", measured)


def run(folder: Path, kind: str) -> dict[str, float]:
    """Seconds of one `puorl filter`, by the clock and of the processor."""
    environ = os.environ | {"PUORL_CACHE": str(folder / "cache")}
    environ["JAX_ENABLE_COMPILATION_CACHE"] = str(kind != "nothing kept").lower()
    words = ["filter", "pumps.csv", *_WORDS, "--unit", "column:pump", "--out", kind]
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", _CODE, *words],
        cwd=folder,
        env=environ,
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(time.perf_counter() - begin, 2), "cpu_s": round(used, 2)}


if __name__ == "__main__":
    main()
