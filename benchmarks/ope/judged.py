"""The judged run: policies of five tasks by our estimators and by others', many processes at once.

    python benchmarks/ope/judged.py --workers 16 --gpu --out scratch/judged --seconds 540
    python benchmarks/ope/judged.py --join scratch/judged      (rows into results/ope.jsonl)

Every process has one core and writes rows of its own into a file of its own, so a run that is
stopped goes on with the same command. First each task is built (log, policies, true values), then
its policies are valued. Needs one Python that has puorl, d3rlpy and, for
SCOPE-RL's estimators, ``scope-rl`` without its dependencies; ``Box2D`` for LunarLander.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import estimate
import tasks

HERE = Path(__file__).parent
SIDES = ("ours", "d3rlpy", "d3rlpy_scaled")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ON_CPU = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
ON_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Job(NamedTuple):
    """A process: its name, what it is told, the task that must be there, and its device."""

    name: str
    words: list[str]
    needs: str = ""
    gpu: bool = False


def main() -> None:
    """Run what is missing until the time is up, or join the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gpu", action="store_true", help="our networks are fitted on a GPU")
    parser.add_argument("--out", type=Path, default=Path("scratch/judged"))
    parser.add_argument("--tasks", nargs="+", default=list(tasks.JUDGED))
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--most", type=int, default=12, help="policies of a task")
    parser.add_argument("--together", type=int, default=4, help="policies that we value at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then; run again to go on")
    parser.add_argument("--join", type=Path, help="append the rows of this folder to the results")
    args = parser.parse_args()
    if args.join is not None:
        join(args.join)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    jobs = [Job(f"task-{n}", [*common(args, n), "--policies", "0", "0"]) for n in args.tasks]
    for side in args.sides:
        # Our policies share the models of a task; on a GPU all of them, as programs compile once.
        on_gpu = args.gpu and side == "ours"
        size = args.most if on_gpu else args.together if side == "ours" else 1
        for first in range(0, args.most, size):
            for name in args.tasks:
                words = ["--side", side, "--policies", str(first), str(first + size)]
                words += ["--together", "3"] if on_gpu else []
                job = Job(f"{name}-{side}-{first:02d}", [*common(args, name), *words], name, on_gpu)
                jobs.append(job)
    done = run(jobs, args)
    print("complete" if done else "not complete: run it again", flush=True)


def common(args: argparse.Namespace, name: str) -> list[str]:
    """Return the words of a process for one task."""
    sizes = ["--rows", str(args.rows), "--updates", str(args.updates)]
    return ["--tasks", name, *sizes, "--cache", str(args.out / "tasks")]


def run(jobs: list[Job], args: argparse.Namespace) -> bool:
    """Run the jobs that are not done, one on each core; return whether all are."""
    ends = time.monotonic() + args.seconds
    cores = sorted(os.sched_getaffinity(0))
    free = [cores[i % len(cores)] for i in range(args.workers)]
    waiting = [job for job in jobs if not (args.out / f"{job.name}.done").exists()]
    running: dict[str, tuple[subprocess.Popen[bytes], int, float]] = {}
    failed = 0
    while (waiting or running) and time.monotonic() < ends:
        built = {name for name in args.tasks if (args.out / f"task-{name}.done").exists()}
        ready = [job for job in waiting if not job.needs or job.needs in built]
        if not ready and not running:
            break
        for job in ready[: len(free)]:
            waiting.remove(job)
            core = free.pop()
            rows = ["--out", str(args.out / f"{job.name}.jsonl")]
            with open(args.out / f"{job.name}.log", "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, str(HERE / "estimate.py"), *job.words, *rows],
                    stdout=log,
                    stderr=log,
                    env=os.environ | ONE_THREAD | (ON_GPU if job.gpu else ON_CPU),
                    preexec_fn=lambda core=core: os.sched_setaffinity(0, [core]),
                )
            running[job.name] = process, core, time.monotonic()
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
