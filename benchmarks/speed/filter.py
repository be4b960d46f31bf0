"""How fast is the filter, and how much memory does it take? Beside PyTorch in the released style.

    python benchmarks/speed/filter.py [--rows 1M] [--rounds 3] [--save]

One cell (HalfCheetah, body mass, medium, 40 inputs, 30 % target rows, 1 % labelled), written to a
file of plain arrays that both sides read. Each side runs in a process of its own, in turns; the
table shows the best round, because whatever else runs on the machine can only slow it down. Compile
time counts: every round is the first fit of its process. The other side needs ``make bench-setup``
and is timed for two epochs; the rest is computed from the best of each part: 10 epochs that do not
rank, 100 that do.

Memory is the kernel's high-water mark of resident pages (VmHWM), which holds Python, JAX and the
data itself; data is the bytes of the pool's arrays. Linux only.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import puorl
from puorl.core.formatting import parse_count
from puorl.data.split import PUSplit
from puorl.data.transitions import Transitions
from puorl.pu.config import PRESETS

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "filter-speed.jsonl"
BENCH_PYTHON = HERE.parents[1] / ".venv-bench" / "bin" / "python"
FIELDS = ("obs", "action", "reward", "next_obs", "terminal", "timeout")
NUM_WARM_UP, NUM_MAIN = 10, 100
MOST_SECONDS, MOST_REPORT, LEAST_ROWS_PER_SECOND = 60.0, 2.0, 400_000
MOST_DATA, MOST_BESIDE = 2.0, 2**30
"""Peak memory: so many times the data, and so many bytes beside it."""


def main() -> None:
    """Measure, print a table, and append a row to the results if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="1M")
    parser.add_argument("--body", default="halfcheetah")
    parser.add_argument("--preset", default="default", choices=PRESETS)
    parser.add_argument("--labelled-fraction", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side")
    parser.add_argument("--no-report", action="store_true", help="fit and scores alone")
    parser.add_argument("--no-baseline", action="store_true", help="ours alone")
    parser.add_argument("--bench-python", type=Path, default=BENCH_PYTHON)
    parser.add_argument("--save", action="store_true", help="append to the results")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure", type=Path, metavar="FILE", help="internal")
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.preset, report=not args.no_report)))
        return
    if not args.no_baseline and not args.bench_python.exists():
        parser.error(f"{args.bench_python} is not there: run `make bench-setup` or --no-baseline")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        content = write_rows(file, args)
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(child(sys.executable, __file__, "--measure", file, *passed_on(args)))
            if not args.no_baseline:
                theirs.append(child(args.bench_python, HERE / "released_style.py", file))
    show(ours, theirs)
    if args.save:
        save(args, {"content": content, "ours": ours, "released_style": theirs})


def write_rows(file: Path, args: argparse.Namespace) -> dict[str, str]:
    """Rows, labels, parts and the truth as plain arrays; fingerprints of what they hold."""
    rows = parse_count(args.rows, name="rows")
    num_target = round(0.3 * rows)
    target = puorl.collect(args.body, quality="medium", rows=num_target, seed=0)
    other = puorl.collect(args.body, "body_mass", quality="medium", rows=rows - num_target, seed=0)
    split = puorl.make_split(
        target,
        other,
        rows=rows,
        labelled_fraction=args.labelled_fraction,
        seed=0,
        parts="stratified",
    )
    labelled = np.zeros(rows, bool)
    labelled[split.labelled] = True
    part = np.empty(rows, np.int8)
    part[split.labelled], part[split.unlabelled] = split.labelled_part, split.unlabelled_part
    arrays = {name: getattr(split.pool.rows, name) for name in FIELDS}
    truth = split.reveal("benchmark") == 0
    np.savez(file, labelled=labelled, part=part, is_target=truth, **arrays)
    return {
        "target": target.fingerprint,
        "other": other.fingerprint,
        "split": split.fingerprint,
    }


def read_split(file: Path) -> tuple[PUSplit, np.ndarray]:
    """The split without its sources, which would be counted as memory, and who is the target's."""
    with np.load(file, allow_pickle=False) as stored:
        rows = Transitions(**{name: stored[name] for name in FIELDS})
        labelled, part, truth = stored["labelled"], stored["part"], stored["is_target"]
    split = PUSplit(
        pool=puorl.Dataset(rows),
        labelled=np.flatnonzero(labelled),
        unlabelled=np.flatnonzero(~labelled),
        labelled_part=part[labelled],
        unlabelled_part=part[~labelled],
        unit="transition",
        sampling="one",
        returns=None,
        config={"made_by": "benchmarks/speed/filter.py"},
    )
    return split, truth[~labelled]


def measure(file: Path, preset: str, *, report: bool) -> dict[str, Any]:
    """Seconds and peak bytes of a fit, its final scores and its report, in this process."""
    split, truth = read_split(file)
    marks = {"loaded": high_water()}
    flt = puorl.DomainFilter(preset)
    begin = time.perf_counter()
    flt.fit(split, seed=0)
    seconds = {"fit": time.perf_counter() - begin}
    score, seconds["score"] = timed_score(flt, split)
    marks["scored"] = high_water()
    seconds["score_again"] = min(timed_score(flt, split)[1] for _ in range(3))
    if report:
        begin = time.perf_counter()
        flt.report(split, seed=0)
        seconds["report"] = time.perf_counter() - begin
        marks["reported"] = high_water()
    return {
        "seconds": {name: round(taken, 3) for name, taken in seconds.items()},
        "peak": marks,
        "data": sum(array.nbytes for array in split.pool.rows.arrays().values()),
        "num_scored": len(score),
        "accuracy": float(np.mean((score >= 0.5) == truth)),
        "alpha": flt.alpha_.to_dict(),
    }


def timed_score(flt: puorl.DomainFilter, split: PUSplit) -> tuple[np.ndarray, float]:
    """Scores of all unlabelled rows, and how long they took."""
    begin = time.perf_counter()
    score = flt.predict_proba(split)
    return score, time.perf_counter() - begin


def high_water() -> int:
    """Most bytes that this process has ever had in memory."""
    [line] = [s for s in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in s]
    return 1024 * int(line.split()[1])


def passed_on(args: argparse.Namespace) -> list[str]:
    """What the measuring process must know."""
    return ["--preset", args.preset, *(["--no-report"] if args.no_report else [])]


def child(*command: str | Path) -> dict[str, Any]:
    """Run a side in a process of its own; its last line is JSON."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[1]} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def released_epoch(theirs: list[dict[str, Any]], rank: str) -> tuple[float, float]:
    """Seconds of an epoch in the released style without and with ranking: its best parts."""
    epochs = [epoch for measured in theirs for epoch in measured["epochs"]]
    plain = min(epoch["train"] for epoch in epochs) + min(epoch["alpha"] for epoch in epochs)
    return plain, plain + min(epoch[rank] for epoch in epochs)


def show(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """The best round of each side, and what it may be."""
    best = min(ours, key=lambda m: m["seconds"]["fit"] + m["seconds"]["score"])
    seconds = best["seconds"]
    whole = seconds["fit"] + seconds["score"]
    rate = best["num_scored"] / seconds["score_again"]
    limit = MOST_DATA * best["data"] + MOST_BESIDE
    print(f"{'':40}{'measured':>12}{'limit':>14}")
    print(f"{'fit and final scores (s)':40}{whole:>12.1f}{MOST_SECONDS:>14.0f}")
    print(f"{'scoring (rows/s)':40}{rate:>12,.0f}{LEAST_ROWS_PER_SECOND:>14,}")
    if "report" in seconds:
        print(
            f"{'report (x fit and scores)':40}{seconds['report'] / whole:>12.2f}{MOST_REPORT:>14}"
        )
    for mark, peak in best["peak"].items():
        print(f"{f'peak memory, {mark} (MiB)':40}{peak / 2**20:>12,.0f}{limit / 2**20:>14,.0f}")
    print(f"{'data (MiB)':40}{best['data'] / 2**20:>12,.0f}")
    print(f"{'accuracy, alpha':40}{best['accuracy']:>12.2%}{best['alpha']['value']:>14.3f}")
    for rank, name in (("rank", "row by row"), ("sliced_rank", "sliced")) if theirs else ():
        plain, epoch = released_epoch(theirs, rank)
        slow = NUM_WARM_UP * plain + NUM_MAIN * epoch
        print(f"{f'released style, {name}: epoch (s)':40}{epoch:>12.2f}")
        print(f"{f'released style, {name}: 110 epochs (s)':40}{slow:>12.0f}")
        print(f"{f'released style, {name}: x our fit':40}{slow / seconds['fit']:>12.1f}")


def save(args: argparse.Namespace, measured: dict[str, Any]) -> None:
    """Append raw numbers with all that is needed to read them later."""
    row = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "config": {
            "body": args.body,
            "rows": parse_count(args.rows, name="rows"),
            "labelled_fraction": args.labelled_fraction,
            "preset": args.preset,
            "filter": asdict(PRESETS[args.preset]),
            "rounds": args.rounds,
        },
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: version(name) for name in ("puorl", "jax", "numpy", "mujoco")}
        | {"python": platform.python_version()},
        "measured": measured,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with open(args.out, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def cpu_model() -> str:
    """Name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (s.split(":", 1)[1].strip() for s in lines if s.startswith("model name")), "unknown"
    )


if __name__ == "__main__":
    main()
