"""Measure every snapshot of a run with a few episodes, while the run goes on.

    python benchmarks/behaviour/screen.py --work FOLDER --workers 6

For each snapshot ``screened/STEPS.npz``: returns and lengths (lanes, episodes) and the states of
the first steps. It ends when the file ``trained`` is in the folder and nothing is left to measure.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import multiprocessing
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import numpy as np
from checkpoint import Snapshot, list_snapshots
from choose import Agent, load_actor, measure
from starts import NUM_STEPS

from puorl.core.files import atomic_path, read_json
from puorl.core.hashing import generator

EPISODES = 10
FIRST_STEPS = 200_000
"""Snapshots before this many steps of training are no candidates."""


def screen(snapshot: Snapshot, lanes: list[dict], out: Path) -> None:
    """Measure all lanes of one snapshot."""
    actors = []
    for i, lane in enumerate(lanes):
        agent = Agent(i, lane["domain"], lane["seed"], snapshot.num_steps, snapshot.path)
        actors.append((lane["domain"], load_actor(lane["body"], agent)))
    # Another seed at every snapshot, so that no start state is met by all.
    seed = int(generator(0, "screen", snapshot.num_steps).integers(2**31))
    found = measure(
        lanes[0]["body"], actors, episodes=EPISODES, seed=seed, threads=1, start_steps=NUM_STEPS
    )
    arrays = {
        name: np.stack([getattr(each, name) for each in found])
        for name in ("returns", "length", "starts")
    }
    with atomic_path(out, force=True) as part, open(part, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _lower_priority() -> None:
    os.nice(15)


def main() -> None:
    """Follow a run until it has ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("scratch/behaviour"))
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--first-steps", type=int, default=FIRST_STEPS)
    given = parser.parse_args()
    folder = given.work / "screened"
    folder.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    begun: dict[int, Future[None]] = {}
    with ProcessPoolExecutor(given.workers, spawn, initializer=_lower_priority) as pool:
        while True:
            ended = (given.work / "trained").exists()
            snapshots = list_snapshots(given.work)
            lanes = read_json(given.work / "run.json")["lanes"] if snapshots else []
            for snapshot in snapshots:
                steps = snapshot.num_steps
                out = folder / f"{steps:09d}.npz"
                if steps >= given.first_steps and steps not in begun and not out.exists():
                    begun[steps] = pool.submit(screen, snapshot, lanes, out)
            for future in begun.values():
                if future.done():
                    future.result()
            if ended:
                break
            time.sleep(2.0)
        for future in begun.values():
            future.result()
    print(f"{len(begun)} snapshots screened", flush=True)


if __name__ == "__main__":
    main()
