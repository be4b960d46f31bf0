"""Score one log with Ray tasks and with Ray Data, and compare time and bytes; append a row each.

    python benchmarks/scale/ray_data.py FOLDER MODEL [--workers 2] [--ways tasks,numbers,rows]

Ways: `tasks`, as `puorl filter --engine ray` does it; `numbers`, a Ray dataset of the numbers of
partitions, whose map reads, scores and writes each; `rows`, a Ray dataset of the rows themselves
(`read_parquet`, `map_batches`, `write_parquet`), scored in batches as Ray cuts them. Each way is
run twice in one start of Ray, so that the second finds the workers warm. Seconds of CPU are those
of all processes that Ray has at the end.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import NAMES, _cpu

import puorl
from puorl.core.files import read_json
from puorl.core.tasks import ONE_THREAD, Workers, finish, part_path, run_tasks, started
from puorl.scale.filtering import KeepRows, _loaded

RESULTS = Path(__file__).parents[1] / "results" / "scale-ray-data.jsonl"
REMOTE = {"num_cpus": 1, "runtime_env": {"env_vars": ONE_THREAD}}


def hash_of(folder: Path) -> str:
    """Hash names and bytes of all parts."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.parquet")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def by_tasks(task: KeepRows, lazy, folder: Path, workers: Workers) -> int:
    """Score partitions as tasks."""
    return sum(r["num_kept"] for r in run_tasks(task, len(lazy), folder, workers))


def by_numbers(task: KeepRows, lazy, folder: Path, workers: Workers) -> int:
    """Score partitions in a map over a Ray dataset of their numbers."""
    import ray.data

    def do(row: dict) -> dict:
        finish(task, folder, int(row["number"]))
        return row

    folder.mkdir(exist_ok=True)
    items = [{"number": i} for i in range(len(lazy))]
    ray.data.from_items(items, override_num_blocks=len(items)).map(do, **REMOTE).take_all()
    records = [read_json(part_path(folder, i, ".json")) for i in range(len(lazy))]
    return sum(record["num_kept"] for record in records)


def score_batch(table, model: str):
    """Keep rows of a batch as Ray cuts it; an episode that crosses its border loses a row."""
    import pyarrow as pa

    data = puorl.load(table.to_pandas(), **NAMES)
    score = _loaded(model).predict_proba(data)
    keep = (score >= 0.5) | data.columns["labelled"]
    arrays = {f"obs_{i}": data.obs[keep, i] for i in range(data.obs.shape[1])}
    arrays |= {f"act_{i}": data.action[keep, i] for i in range(data.action.shape[1])}
    return pa.table(arrays | {"score": np.where(data.columns["labelled"], 1, score)[keep]})


def by_rows(task: KeepRows, lazy, folder: Path, workers: Workers) -> int:
    """Score rows in batches of a Ray dataset of rows."""
    import ray.data

    files = [source.path for source in lazy.sources]
    made = ray.data.read_parquet(files).map_batches(
        score_batch,
        fn_kwargs={"model": str(task.model)},
        batch_size=65_536,
        batch_format="pyarrow",
        **REMOTE,
    )
    made.write_parquet(str(folder), compression="zstd")
    return ray.data.read_parquet(str(folder)).count()


WAYS = {"tasks": by_tasks, "numbers": by_numbers, "rows": by_rows}


def main() -> None:
    """Run all ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partition-rows", type=int)
    parser.add_argument("--ways", default=",".join(WAYS))
    given = parser.parse_args()
    lazy = puorl.open(given.folder, partition_rows=given.partition_rows, **NAMES)
    task, workers = KeepRows(lazy, given.model.absolute()), Workers("ray", given.workers)
    for way in given.ways.split(","):
        seconds, cpu = [], []
        with tempfile.TemporaryDirectory(dir=given.folder.parent) as temporary:
            with started(workers) as ray:
                for name in ("first", "again"):
                    begun, before = time.perf_counter(), _cpu()
                    kept = WAYS[way](task, lazy, Path(temporary) / name, workers)
                    seconds.append(round(time.perf_counter() - begun, 2))
                    cpu.append(round(_cpu() - before, 2))
            row = {
                "way": way,
                "rows": lazy.num_rows,
                "partitions": len(lazy),
                "workers": given.workers,
                "seconds": seconds[0],
                "cpu_seconds": cpu[0],
                "seconds_again": seconds[1],
                "cpu_seconds_again": cpu[1],
                "kept": kept,
                "kept_bytes_sha256": hash_of(Path(temporary) / "first"),
                "load_average": os.getloadavg(),
                "cores": len(os.sched_getaffinity(0)),
                "puorl": puorl.__version__,
                "ray": ray.__version__,
            }
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
