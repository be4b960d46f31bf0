"""Score one log in many ways and compare the bytes of what is kept; append a row for each way.

    python benchmarks/scale/same_bytes.py FOLDER MODEL

Ways: local with 1 and 2 workers; Ray with 1, 2 and 4; 2 local workers of which one is killed three
times at random; a driver that is killed and resumed; Ray on two nodes, of which one is killed.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import puorl
from puorl.core.tasks import Workers, run_tasks
from puorl.scale.filtering import KeepRows

RESULTS = Path(__file__).parents[1] / "results" / "scale-same-bytes.jsonl"
NAMES = {"obs": "obs_*", "action": "act_*", "label": "checked"}
PARTITION_ROWS = 65_536


def hash_of(folder: Path) -> str:
    """Hash names and bytes of all parts."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.parquet")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def done(folder: Path) -> int:
    """Count the finished partitions."""
    return len(list(folder.glob("part-*.json")))


def children() -> list[int]:
    """Return the processes that this one started and that work on partitions."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    found = []
    for pid in map(int, text.split()):
        try:
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def kill_workers(folder: Path, killed: list[int], times: int) -> None:
    """Kill a random worker after each of some finished partitions."""
    rng, seen = random.Random(0), 0
    while len(killed) < times:
        time.sleep(0.05)
        if done(folder) > seen and (found := children()):
            seen = done(folder)
            killed.append(rng.choice(found))
            os.kill(killed[-1], signal.SIGKILL)


def on_two_nodes(task: KeepRows, count: int, folder: Path) -> dict:
    """Run on a Ray cluster of two nodes, and remove one when some partitions are done."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    other = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()

    def remove() -> None:
        while done(folder) < 3:
            time.sleep(0.05)
        cluster.remove_node(other, allow_graceful=False)

    thread = threading.Thread(target=remove, daemon=True)
    thread.start()
    try:
        run_tasks(task, count, folder, Workers("ray", address=cluster.address))
    finally:
        thread.join()
        cluster.shutdown()
    return {"nodes": 2, "removed": 1}


def main() -> None:
    """Run all ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--ways", default="")
    parser.add_argument("--into", type=Path, help="only score into this folder, and return")
    given = parser.parse_args()
    lazy = puorl.open(given.folder, partition_rows=PARTITION_ROWS, **NAMES)
    task = KeepRows(lazy, given.model.absolute())
    if given.into is not None:
        run_tasks(task, len(lazy), given.into, Workers(number=2))
        return
    ways = given.ways.split(",") if given.ways else [
        "local-1", "local-2", "killed-workers", "killed-driver", "ray-1", "ray-2", "ray-4",
        "ray-nodes",
    ]  # fmt: skip
    for way in ways:
        with tempfile.TemporaryDirectory() as temporary:
            folder, more = Path(temporary) / "kept", {}
            folder.mkdir()
            begun = time.perf_counter()
            engine, _, number = way.partition("-")
            if way == "killed-workers":
                killed: list[int] = []
                thread = threading.Thread(target=kill_workers, args=(folder, killed, 3))
                thread.start()
                run_tasks(task, len(lazy), folder, Workers(number=2))
                thread.join()
                more = {"killed": len(killed)}
            elif way == "killed-driver":
                command = [sys.executable, __file__, given.folder, given.model, "--into", folder]
                driver = subprocess.Popen([str(word) for word in command])
                while done(folder) < 4:
                    time.sleep(0.05)
                driver.kill()
                driver.wait()
                more = {"finished_before": done(folder)}
                run_tasks(task, len(lazy), folder, Workers(number=2))
            elif way == "ray-nodes":
                more = on_two_nodes(task, len(lazy), folder)
            else:
                run_tasks(task, len(lazy), folder, Workers(engine, int(number)))  # type: ignore
            row = {
                "way": way,
                "rows": lazy.num_rows,
                "partitions": len(lazy),
                "seconds": round(time.perf_counter() - begun, 1),
                "kept_bytes_sha256": hash_of(folder),
                **more,
                "load_average": os.getloadavg(),
                "cores": len(os.sched_getaffinity(0)),
                "puorl": puorl.__version__,
            }
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
