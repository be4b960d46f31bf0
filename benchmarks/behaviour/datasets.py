"""Collect every dataset of the table in docs/data.md and write down what came out.

python benchmarks/behaviour/datasets.py --rows 1M --out benchmarks/results/datasets.jsonl

One line of JSON per dataset; those that are there already are not made again. Pictures and the
table are drawn from these lines by draw.py.
"""

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import os
import platform
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path

import numpy as np

from puorl.core.formatting import parse_count
from puorl.envs import behaviour
from puorl.envs.collect import QUALITIES, collect, return_statistics

# The slowest to simulate first, so that no long one is left for the end.
BODIES = ("walker2d", "hopper", "halfcheetah")
DOMAINS = ("nominal", "body_mass", "joint_noise")
NUM_BINS = 40


@dataclasses.dataclass(frozen=True)
class Cell:
    """One dataset to make."""

    body: str
    domain: str
    quality: str
    rows: int
    seed: int


def measure(cell: Cell) -> dict:
    """Make one dataset on one core; a failure is a result too."""
    start = time.perf_counter()
    row: dict = dataclasses.asdict(cell)
    try:
        dataset = collect(
            cell.body, cell.domain, cell.quality, cell.rows, cell.seed, threads=1, cache=False
        )
        made = return_statistics(dataset)
        recipe = dataset.provenance.recipe
        assert recipe is not None
        row |= {
            "episodes": made.num_episodes,
            "whole_episodes": len(made.returns),
            "return_mean": made.mean_return,
            "return_std": float(made.returns.std()),
            "return_min": float(made.returns.min()),
            "return_max": float(made.returns.max()),
            "score": made.score,
            "length_mean": float(made.lengths.mean()),
            "policies": [each["name"] for each in recipe["policies"]],
            "recipe": recipe["recipe"],
            "content": dataset.fingerprint,
            "histogram": histogram(made.returns),
            "error": None,
        }
    except Exception:
        row["error"] = traceback.format_exc()
    seconds = round(time.perf_counter() - start, 2)
    return row | {"seconds": seconds, "versions": versions()}


def histogram(returns: np.ndarray) -> dict:
    """Counts in equal bins from the smallest return to the largest."""
    counts, edges = np.histogram(returns, NUM_BINS)
    return {"low": float(edges[0]), "high": float(edges[-1]), "counts": counts.tolist()}


def versions() -> dict:
    """What the numbers were made with."""
    packages = {name: version(name) for name in ("puorl", "mujoco", "gymnasium", "numpy")}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


def read_rows(path: Path) -> list[dict]:
    """The results so far; a last line that was cut off by a kill does not count."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            print(f"{path}: one broken line left out")
    return rows


def cells(rows: int, seed: int, done: list[dict], wanted: Sequence[str]) -> Iterator[Cell]:
    """What is still to be made; a line of older versions of the policies does not count."""
    made = {
        (*(row[field.name] for field in dataclasses.fields(Cell)), *row["policies"])
        for row in done
        if row["error"] is None
    }
    for body, domain, quality in itertools.product(BODIES, DOMAINS, QUALITIES):
        cell = Cell(body, domain, quality, rows, seed)
        if body in wanted and (*dataclasses.astuple(cell), *players(cell)) not in made:
            yield cell


def players(cell: Cell) -> list[str]:
    """Names of the policies that act in a dataset."""
    if cell.quality == "random":
        return ["random"]
    if cell.quality == "medium-replay":
        return [behaviour.find(cell.body, level=rung).name for rung in behaviour.ladder(cell.body)]
    levels = ("medium", "expert") if cell.quality == "medium-expert" else (cell.quality,)
    return [behaviour.find(cell.body, cell.domain, level).name for level in levels]


def run(todo: list[Cell], out: Path, *, workers: int, deadline: float) -> None:
    """Make datasets side by side, one per core, and add each to the file when it is done."""
    # One core per dataset: matrix products must not start threads of their own.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    out.parent.mkdir(parents=True, exist_ok=True)
    ahead = iter(todo)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool, out.open("a") as file:
        running: set[Future[dict]] = {
            pool.submit(measure, cell) for cell in itertools.islice(ahead, workers)
        }
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                row = future.result()
                file.write(json.dumps(row, allow_nan=False) + "\n")
                file.flush()
                print(describe(row), flush=True)
            if time.monotonic() < deadline:
                running |= {
                    pool.submit(measure, cell) for cell in itertools.islice(ahead, len(finished))
                }


def describe(row: dict) -> str:
    """One line for the screen."""
    name = f"{row['body']}/{row['domain']}/{row['quality']}"
    if row["error"] is not None:
        return f"{name}: {row['error'].strip().splitlines()[-1]}"
    return (
        f"{name}: return {row['return_mean']:,.1f} (std {row['return_std']:,.1f}), "
        f"length {row['length_mean']:.0f}, {row['rows'] / row['seconds']:,.0f} rows/s"
    )


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="1M", help="rows of each dataset")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bodies", nargs="+", default=BODIES, choices=BODIES)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/datasets.jsonl"))
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="datasets at a time")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no dataset after this")
    chosen = parser.parse_args()
    done = read_rows(chosen.out)
    todo = list(cells(parse_count(chosen.rows, name="rows"), chosen.seed, done, chosen.bodies))
    print(f"{len(todo)} datasets to make, {len(done)} lines in {chosen.out}")
    deadline = time.monotonic() + 60 * chosen.minutes
    run(todo, chosen.out, workers=chosen.workers, deadline=deadline)


if __name__ == "__main__":
    main()
