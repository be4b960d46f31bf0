"""Measure each stage of filtering a log in partitions: time, rate and peak memory; append a row.

    python benchmarks/scale/measure.py FOLDER --workers 2 [--engine ray] [--memory] [--label TEXT]

Stages: starting Ray, where it is the engine; reading keys (`puorl.open`); inspecting; drawing the
sample; fitting on it; scoring all rows and writing the kept ones. Peak memory is the largest sum of
resident memory of this process and all below it, polled every 0.1 s; seconds of CPU are theirs
too. The fraction of rows decided rightly, by the truth that the generator wrote, and a hash of all
kept bytes go into the row as well. `--memory` does the same with all rows in memory; `--hashes`
compares files that puorl wrote with their hashes instead.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import threading
import time
from pathlib import Path

import numpy as np

import puorl
from puorl.core.formatting import parse_count

RESULTS = Path(__file__).parents[1] / "results" / "scale.jsonl"
NAMES = {"obs": "obs_*", "action": "act_*", "label": "checked"}
TRUTH = "machine"


class Memory:
    """Poll the resident memory of a process and of all below it."""

    def __init__(self) -> None:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.wait(0.1):
            self.peak = max(self.peak, sum(_resident(pid) for pid in _tree(os.getpid())))

    def take(self) -> int:
        """Return the peak since the last call."""
        peak, self.peak = self.peak, 0
        return peak


def _tree(pid: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
                below.setdefault(int(text.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
            except OSError:
                continue
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue += below.get(found[-1], [])
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _cpu() -> float:
    """Return the seconds of CPU of this process, of all below it, and of those that ended."""
    total = 0
    for pid in _tree(os.getpid()):
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
            total += sum(map(int, text.rsplit(")", 1)[1].split()[11:15]))
        except (OSError, IndexError):
            continue
    return total / os.sysconf("SC_CLK_TCK")


class Stages:
    """Times and peaks by stage."""

    def __init__(self) -> None:
        self.memory, self.found = Memory(), {}

    def __call__(self, name: str, make):
        """Run a stage and measure it."""
        begun, cpu = time.perf_counter(), _cpu()
        self.memory.take()
        made = make()
        self.found[name] = {
            "seconds": round(time.perf_counter() - begun, 2),
            "cpu_seconds": round(_cpu() - cpu, 2),
            "peak_bytes": self.memory.take(),
        }
        print(name, self.found[name], flush=True)
        return made


def accuracy(rows: puorl.Dataset, kept: np.ndarray, unlabelled: np.ndarray) -> tuple[int, int]:
    """Return the number of unlabelled rows decided rightly, and of all."""
    right = kept[unlabelled] == (rows.columns[TRUTH][unlabelled] == 0)
    return int(right.sum()), len(right)


def in_memory(folder: Path, stages: Stages, seed: int) -> dict:
    """Do everything with all rows in memory."""
    data = stages("load", lambda: puorl.load(folder, **NAMES))
    split = puorl.PUSplit.from_mask(data, seed=seed)
    flt = stages("fit", lambda: puorl.DomainFilter().fit(split, seed=seed))
    keep = stages("score", lambda: flt.predict(split))
    stages("score_again", lambda: flt.predict(split))  # compiled
    right, total = accuracy(data[split.unlabelled], keep, np.arange(len(keep)))
    return {
        "rows": len(data),
        "alpha": flt.alpha_.to_dict(),
        "accuracy": right / total,
        "kept": int(keep.sum()),
    }


def hashes(folder: Path, stages: Stages, work: Path) -> dict:
    """Write all rows as puorl does, and compare the files with their hashes, in pieces."""
    from puorl.data import hdf5, parquet

    data = puorl.load(folder, **NAMES)
    found, paths = (
        {"rows": len(data)},
        {m: work / f"rows.{m.__name__[11:]}" for m in (hdf5, parquet)},
    )
    for path in paths.values():
        puorl.save(data, path)
    del data
    for reader, path in paths.items():
        name = path.suffix[1:]
        stages(f"verify {name}", lambda reader=reader, path=path: reader.verify(str(path)))
        lazy = stages(f"open {name}", lambda path=path: puorl.open(path))
        stages(f"read {name}", lambda lazy=lazy: [len(part) for part in lazy])
        found[f"bytes {name}"] = path.stat().st_size
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Judge:
    """Count the rows of a partition that were decided rightly."""

    scorer: object

    def __call__(self, number: int, folder: Path) -> dict:
        """Score a partition and compare it with the truth."""
        found = self.scorer.score(number)  # type: ignore[attr-defined]
        right, total = accuracy(found.data, found.keep, np.flatnonzero(~found.labelled))
        return {"right": right, "total": total}


def streamed(folder: Path, stages: Stages, given, work: Path) -> dict:
    """Do everything partition by partition, with one start of the engine."""
    from puorl.core.tasks import Workers, started

    workers = Workers(given.engine, given.workers, given.address)
    with contextlib.ExitStack() as stack:
        if given.engine == "ray":
            stages("start", lambda: stack.enter_context(started(workers)))
        return stages_of(folder, stages, given, work, workers)


def stages_of(folder: Path, stages: Stages, given, work: Path, workers) -> dict:
    """Do everything partition by partition."""
    from puorl.core.tasks import run_tasks
    from puorl.pu.units import parse_unit
    from puorl.scale.filtering import KeepRows
    from puorl.scale.inspection import inspect
    from puorl.scale.sample import draw_sample

    lazy = stages("open", lambda: puorl.open(folder, workers=workers, **NAMES))
    if given.inspect:
        stages("inspect", lambda: inspect(lazy, work / "inspect", workers))
    unit, rows = parse_unit("transition"), parse_count(given.sample)
    sample = stages(
        "sample",
        lambda: draw_sample(lazy, unit, work / "sample", workers, rows=rows, seed=given.seed),
    )
    split = puorl.PUSplit.from_mask(sample.data, seed=given.seed)
    if given.model is not None:
        flt = puorl.DomainFilter.load(given.model)
    else:
        flt = stages("fit", lambda: puorl.DomainFilter().fit(split, seed=given.seed))
        flt.save(work / "model")
    model = given.model or work / "model"
    task = KeepRows(lazy, model.absolute())
    records = stages("score", lambda: run_tasks(task, len(lazy), work / "kept", workers))
    digest = hashlib.sha256()
    for path in sorted((work / "kept").glob("*.parquet")):
        digest.update(path.name.encode() + path.read_bytes())
    made = {
        "rows": sum(r["num_rows"] for r in records),
        "partitions": len(lazy),
        "kept": sum(r["num_kept"] for r in records),
        "kept_bytes_sha256": digest.hexdigest(),
        "alpha": flt.alpha_.to_dict(),
        "sample": sample.to_dict() | sample.cost(flt.alpha_),
    }
    if given.judge:
        judged = run_tasks(Judge(task), len(lazy), work / "judge", workers)
        made["accuracy"] = sum(r["right"] for r in judged) / sum(r["total"] for r in judged)
    return made


def main() -> None:
    """Measure and append a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, help="empty folder for results; a temporary one")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--address")
    parser.add_argument("--sample", default="1M")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--hashes", action="store_true", help="only compare hashes of own files")
    parser.add_argument("--inspect", action="store_true")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--model", type=Path, help="score with this filter instead of fitting one")
    parser.add_argument("--label", default="")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    import tempfile

    import jax

    stages = Stages()
    with tempfile.TemporaryDirectory(dir=given.folder.parent) as temporary:
        work = given.work or Path(temporary)
        if given.hashes:
            found = hashes(given.folder, stages, work)
        elif given.memory:
            found = in_memory(given.folder, stages, given.seed)
        else:
            found = streamed(given.folder, stages, given, work)
    size = sum(path.stat().st_size for path in given.folder.rglob("*.parquet"))
    row = {
        "label": given.label,
        "command": "hashes" if given.hashes else "memory" if given.memory else "stream",
        "engine": given.engine,
        "workers": given.workers,
        "seed": given.seed,
        "file_bytes": size,
        "refit": given.model is None,
        **found,
        "stages": stages.found,
        "load_average": os.getloadavg(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {
            "puorl": puorl.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "jax": jax.__version__,
        },
    }
    with open(given.results, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
