"""Collect rows and prepare the training sets of a suite side by side, before `puorl bench run`.

    python benchmarks/paper/prepare.py paper --only 'halfcheetah iql' --out results

`puorl bench run` prepares one set after the other, so that a GPU waits for the filters of a single
process. Here each set is a task of a process on the CPU. `puorl bench run` with the same arguments
then finds all of them in ``--out`` and begins to train.
"""

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before jax is imported, and for all processes: a GPU is left to the training.
os.environ["JAX_PLATFORMS"] = "cpu"

from puorl.bench import make_plan
from puorl.bench.plan import Plan, needed_sources
from puorl.bench.prepare import SettingData, collect_all, prepare
from puorl.bench.suites import find_suite


@dataclass(frozen=True)
class Job:
    """One training set of a plan."""

    suite: str
    only: str
    out: Path
    number: int


def make(suite: str, only: str) -> Plan:
    """Make the plan; a set does not depend on the seed of a training."""
    return make_plan(find_suite(suite), seeds=1, only=only)


def prepare_one(job: Job) -> str:
    """Prepare one set; return what was done."""
    run = make(job.suite, job.only).runs[job.number]
    cell, begin = run.cell, time.perf_counter()
    data = SettingData.load(cell.setting)
    made = prepare(job.out / "prepared", data, run.method, seed=cell.setting.split_seed)
    seconds = time.perf_counter() - begin
    return f"{cell.title}: {run.method.label}, {len(made.set.rows):,} rows, {seconds:.0f} s"


def take_cores(turn: Any, cores: list[int], num_processes: int) -> None:
    """Keep a new process to cores of its own: jax starts as many threads as it sees cores."""
    with turn.get_lock():
        number = turn.value
        turn.value += 1
    os.sched_setaffinity(0, cores[number % num_processes :: num_processes])


def main() -> None:
    """Collect, then prepare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suite")
    parser.add_argument("--only", default="", help="as in puorl bench run")
    parser.add_argument("--out", type=Path, required=True, help="as in puorl bench run")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    plan, begin = make(args.suite, args.only), time.perf_counter()
    collect_all(needed_sources(plan.cells), workers=args.processes, show=False)
    print(f"collected: {time.perf_counter() - begin:.0f} s", flush=True)
    jobs = [Job(args.suite, args.only, args.out, k) for k in range(len(plan.runs))]
    # Filters take longest: first, so that none is left for the end.
    jobs.sort(key=lambda job: plan.runs[job.number].method.name not in ("pu", "pu_share"))
    spawn = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0))
    num = min(args.processes, len(jobs), len(cores))
    turn = spawn.Value("i", 0)
    with ProcessPoolExecutor(num, spawn, take_cores, (turn, cores, num)) as pool:
        for task in as_completed([pool.submit(prepare_one, job) for job in jobs]):
            print(task.result(), flush=True)
    print(f"prepared: {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
