"""How fast is data read and split? Against plain h5py on the same file.

    python benchmarks/speed/data.py [--rows 1000000] [--rounds 7] [--save]

One D4RL-layout file (17-dim states, 6-dim actions, float32), stored plain and with gzip. Both
sides take turns, round by round, from the page cache, and each counts with its best round, because
whatever else runs on the machine can only slow a side down.

Memory is the kernel's own high-water mark of resident pages (VmHWM) in a fresh process for each
side, minus the mark just before reading: unlike tracemalloc it sees HDF5's buffers, and unlike
ru_maxrss it does not inherit the parent's peak. Linux only.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import puorl

RESULTS = Path(__file__).parents[1] / "results" / "data.jsonl"
STORAGE = {"plain": {}, "gzip": {"compression": "gzip", "chunks": True}}
EPISODE = 1000
MOST_TIME, MOST_MEMORY, MOST_SPLIT_SECONDS = 1.5, 1.5, 2.0


def main() -> None:
    """Measure, print a table, and append a row to the results if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each side")
    parser.add_argument("--save", action="store_true", help=f"append to {RESULTS.name}")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--measure-memory", nargs=2, metavar=("SIDE", "FILE"), help="internal")
    args = parser.parse_args()
    if args.measure_memory:
        side, file = args.measure_memory
        print(json.dumps(peak_of_reading(SIDES[side], Path(file))))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder), args.rows)
        measured: dict[str, Any] = {
            name: {"seconds": race(path, args.rounds), "memory": memory(path)}
            for name, path in files.items()
        }
        measured["split_seconds"] = split_seconds(files["plain"], args.rows, args.rounds)
    show(measured)
    if args.save:
        save(args, measured)


def write_files(folder: Path, rows: int) -> dict[str, Path]:
    """The same rows in every way of storing them."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(0.05 * rng.standard_normal((rows + 1, 17), np.float32), axis=0)
    states = (walk % 3).astype(np.float32)
    last = np.arange(rows) % EPISODE == EPISODE - 1
    died = last & (rng.random(rows) < 0.3)
    arrays = {
        "observations": states[:-1],
        "actions": rng.uniform(-1, 1, (rows, 6)).astype(np.float32),
        "rewards": rng.standard_normal(rows, np.float32),
        "next_observations": states[1:],
        "terminals": died,
        "timeouts": last & ~died,
    }
    files = {}
    for name, options in STORAGE.items():
        files[name] = folder / f"{name}.hdf5"
        with h5py.File(files[name], "w") as file:
            for key, array in arrays.items():
                file.create_dataset(key, data=array, **options)
    return files


def read_h5py(path: Path) -> dict[str, np.ndarray]:
    """What a user does by hand."""
    with h5py.File(path, "r") as file:
        return {key: array[()] for key, array in stored(file).items()}


def stored(file: h5py.File) -> dict[str, h5py.Dataset]:
    """The arrays of a flat file."""
    return {str(key): item for key, item in file.items() if isinstance(item, h5py.Dataset)}


SIDES: dict[str, Callable[[Path], Any]] = {"h5py": read_h5py, "puorl": puorl.load}


def race(path: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round of each side, taking turns."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for counted in [False] + [True] * rounds:
        for side, read in SIDES.items():
            begin = time.perf_counter()
            held = read(path)
            taken = time.perf_counter() - begin
            del held
            if counted:
                seconds[side].append(round(taken, 5))
    return seconds


def memory(path: Path) -> dict[str, dict[str, int]]:
    """Peak and data bytes of each side, in a fresh process."""
    result = {}
    for side in SIDES:
        command = [sys.executable, __file__, "--measure-memory", side, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result[side] = json.loads(done.stdout)
    return result


def peak_of_reading(read: Callable[[Path], Any], path: Path) -> dict[str, int]:
    """Bytes that the process grew by while reading, and bytes of the arrays in the file."""
    with tempfile.TemporaryDirectory() as folder:  # imports and lazy set-up happen here
        read(write_files(Path(folder), 2000)["gzip"])
    with h5py.File(path, "r") as file:
        data = sum(array.nbytes for array in stored(file).values())
    before = high_water()
    held = read(path)
    grown = high_water() - before
    del held
    return {"grown": grown, "data": data}


def high_water() -> int:
    """Most bytes that this process has ever had in memory."""
    [line] = [s for s in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in s]
    return 1024 * int(line.split()[1])


def split_seconds(path: Path, rows: int, rounds: int) -> list[float]:
    """Seconds to build the paper's split from two domains that are already loaded."""
    target, other = puorl.load(path), puorl.load(path)
    seconds = []
    for seed in range(rounds):
        begin = time.perf_counter()
        split = puorl.make_split(target, other, rows=rows, seed=seed)
        seconds.append(round(time.perf_counter() - begin, 4))
        assert len(split.labelled) == round(0.01 * rows)
    return seconds


def show(measured: dict[str, Any]) -> None:
    """One line a measurement: both sides, the ratio, and what it may be."""
    print(f"{'':22}{'h5py':>10}{'puorl':>10}{'ratio':>8}{'limit':>8}")
    for name in STORAGE:
        best = {side: min(rounds) for side, rounds in measured[name]["seconds"].items()}
        grown = {side: peak["grown"] / 2**20 for side, peak in measured[name]["memory"].items()}
        data = measured[name]["memory"]["puorl"]["data"] / 2**20
        line(f"load, {name} (s)", best["h5py"], best["puorl"], best["h5py"], MOST_TIME)
        line(f"peak, {name} (MiB)", grown["h5py"], grown["puorl"], data, MOST_MEMORY)
    print("(peak: ratio to the bytes of the arrays in the file)")
    best_split = min(measured["split_seconds"])
    print(f"{'split (s)':22}{'':>10}{best_split:>10.3f}{'':>8}{MOST_SPLIT_SECONDS:>7.1f}s")


def line(name: str, theirs: float, ours: float, reference: float, limit: float) -> None:
    """A line of the table."""
    print(f"{name:22}{theirs:>10.4g}{ours:>10.4g}{ours / reference:>7.2f}x{limit:>7.1f}x")


def save(args: argparse.Namespace, measured: dict[str, Any]) -> None:
    """Append raw numbers with all that is needed to read them later."""
    row = {
        "date": args.date,
        "rows": args.rows,
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "h5py": h5py.__version__,
            "hdf5": h5py.version.hdf5_version,
            "puorl": puorl.__version__,
        },
        "measured": measured,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def cpu_model() -> str:
    """Name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (s.split(":", 1)[1].strip() for s in lines if s.startswith("model name")), "unknown"
    )


if __name__ == "__main__":
    main()
