"""The judged run: policies of five tasks by our estimators and by others', many processes at once.

    python benchmarks/ope/judged.py --workers 16 --out scratch/judged --seconds 540
    python benchmarks/ope/judged.py --join scratch/judged      (rows into results/ope.jsonl)

Every process has one core and writes rows of its own into a file of its own, so a run that is
stopped goes on with the same command. First each task is built (log, policies, true values), then
each task's policies are valued, some to a process. Needs one Python that has puorl, d3rlpy and, for
SCOPE-RL's estimators, ``scope-rl`` without its dependencies; ``Box2D`` for LunarLander.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import estimate
import tasks

HERE = Path(__file__).parent
SIDES = ("ours", "d3rlpy", "d3rlpy_scaled")
TOGETHER = {"ours": 2, "d3rlpy": 2, "d3rlpy_scaled": 2}
"""Policies of one process: our models of the machine are fitted once for them."""
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def main() -> None:
    """Run what is missing until the time is up, or join the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("scratch/judged"))
    parser.add_argument("--tasks", nargs="+", default=list(tasks.JUDGED))
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--most", type=int, default=12, help="policies of a task")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then; run again to go on")
    parser.add_argument("--join", type=Path, help="append the rows of this folder to the results")
    args = parser.parse_args()
    if args.join is not None:
        join(args.join)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + args.seconds
    built = [(f"task-{name}", [*common(args, name), "--policies", "0", "0"]) for name in args.tasks]
    done = run(built, args, ends)
    jobs = []
    for side in args.sides:
        for first in range(0, args.most, TOGETHER[side]):
            for name in args.tasks:
                last = min(first + TOGETHER[side], args.most)
                words = ["--side", side, "--policies", str(first), str(last)]
                jobs.append((f"{name}-{side}-{first:02d}", [*common(args, name), *words]))
    done = run(jobs, args, ends) and done
    print("complete" if done else "not complete: run it again", flush=True)


def common(args: argparse.Namespace, name: str) -> list[str]:
    """Return the words of a process for one task."""
    sizes = ["--rows", str(args.rows), "--updates", str(args.updates)]
    return ["--tasks", name, *sizes, "--cache", str(args.out / "tasks")]


def run(jobs: list[tuple[str, list[str]]], args: argparse.Namespace, ends: float) -> bool:
    """Run the jobs that are not done, one on each core; return whether all are."""
    cores = sorted(os.sched_getaffinity(0))
    free = [cores[i % len(cores)] for i in range(args.workers)]
    waiting = [job for job in jobs if not (args.out / f"{job[0]}.done").exists()]
    running: dict[str, tuple[subprocess.Popen[bytes], int, float]] = {}
    failed = 0
    while (waiting or running) and time.monotonic() < ends:
        while waiting and free:
            name, words = waiting.pop(0)
            core = free.pop()
            rows = ["--out", str(args.out / f"{name}.jsonl")]
            with open(args.out / f"{name}.log", "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, str(HERE / "estimate.py"), *words, *rows],
                    stdout=log,
                    stderr=log,
                    env=os.environ | ONE_THREAD,
                    preexec_fn=lambda core=core: os.sched_setaffinity(0, [core]),
                )
            running[name] = process, core, time.monotonic()
        time.sleep(0.2)
        for name, (process, core, began) in list(running.items()):
            if process.poll() is not None:
                del running[name]
                free.append(core)
                failed += process.returncode != 0
                if process.returncode == 0:
                    (args.out / f"{name}.done").touch()
                took = time.monotonic() - began
                print(f"{name}: code {process.returncode}, {took:.0f} s", flush=True)
    for process, _, _ in running.values():
        process.terminate()
        process.wait()
    return not waiting and not running and not failed


def join(folder: Path) -> None:
    """Append rows that the results do not have yet."""
    known = {estimate.key(row) for row in estimate.read(estimate.RESULTS)}
    paths = sorted(folder.glob("*.jsonl"))
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    added = 0
    with open(estimate.RESULTS, "a", encoding="utf-8") as file:
        for line, row in zip(lines, estimate.parsed(lines), strict=True):
            if estimate.key(row) not in known:
                file.write(line + "\n")
                known.add(estimate.key(row))
                added += 1
    print(f"{added} rows added of {len(lines)}")


if __name__ == "__main__":
    main()
