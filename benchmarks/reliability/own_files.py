"""Damage every kind of file that puorl writes, and read it: nothing may be silently wrong.

One file of each kind is made, then damaged in many ways: one bit flipped, a block of zeros, a block
of other bytes, cut short, made longer, two places exchanged. The oracle compares what the damaged
file gives with what the whole one gave:

- ``same``: equal values (spaces in JSON, a page of HDF5 that nothing uses);
- ``told``: an error of puorl in one line, or, of a store of rows, a note and all other rows;
- ``wrong``: other values without a word;
- ``traceback``: any other exception.

    python benchmarks/reliability/own_files.py --inputs 12000
"""

import argparse
import dataclasses
import json
import logging
import platform
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax.numpy as jnp
import numpy as np

import puorl
from puorl.bench import group as groups
from puorl.bench import prepare as prepared_sets
from puorl.bench.store import Store
from puorl.core import hashing
from puorl.core.errors import PuorlError
from puorl.core.files import write_json
from puorl.core.run_folder import (
    FILTER_MARKER,
    KEEP_LIST,
    KEPT_PARTS,
    SETTINGS,
    Checkpoint,
    FilterSettings,
    KeptRows,
    read_as,
)
from puorl.data.labels import read_keep_list, write_keep_list
from puorl.data.parquet import fingerprint_of_parts
from puorl.data.training_files import open_training_rows, read_training_set
from puorl.envs.collect import Cache
from puorl.nn.numpy_mlp import SquashedGaussianActor, read_actor_file
from puorl.pu.config import FilterConfig, MachineConfig
from puorl.pu.learners import NetworkConfig
from puorl.pu.machines import files as machine_files
from puorl.pu.model import read_content
from puorl.rl.policy import Policy
from puorl.run_report.folders import read_paths

RESULTS = Path(__file__).parents[1] / "results" / "reliability-files.jsonl"
SMALL_FILTER = FilterConfig(
    learner="pvu",
    network=NetworkConfig(hidden=(8,), batch_size=32),
    residuals=None,
    num_warm_up=2,
    num_main=0,
)


class Kind(NamedTuple):
    """A kind of file: how one is made, and what its reader gives, as a hash."""

    make: Callable[[Path], list[Path]]
    """Fill an empty folder; return the files to damage."""
    read: Callable[[Path], str]
    """Read what the folder holds; raise PuorlError where it is damaged."""


def rows(num: int = 60) -> puorl.Dataset:
    """Small rows of whole episodes, with a column of text."""
    rng = np.random.default_rng(0)
    path = rng.normal(size=(num + 1, 3)).astype(np.float32)
    return puorl.Dataset.from_arrays(
        obs=path[:-1],
        next_obs=path[1:],
        action=rng.uniform(-1, 1, (num, 2)).astype(np.float32),
        reward=rng.normal(size=num).astype(np.float32),
        terminal=np.zeros(num, bool),
        timeout=(np.arange(num) + 1) % 20 == 0,
        episode=np.arange(num) // 20,
        columns={"robot": np.where(np.arange(num) % 2, "A7", "B1")},
    )


def digest(**values: Any) -> str:
    """Hash arrays and JSON values together."""
    arrays = {k: v for k, v in values.items() if isinstance(v, np.ndarray)}
    others = {k: v for k, v in values.items() if k not in arrays}
    text = json.dumps(others, sort_keys=True, default=str)
    return hashing.of_settings({"arrays": hashing.of_arrays(arrays), "others": text})


# ------------------------------------------------------------------------------- the kinds


def make_checkpoint(folder: Path) -> list[Path]:
    """Store a state of several dtypes."""
    Checkpoint(folder, "job").store("fit", _state(1.5), 7, now=True, metrics="0f")
    return [folder / "fit.safetensors"]


def read_checkpoint(folder: Path) -> str:
    """Restore it."""
    kept = Checkpoint(folder, "job")
    state, done = kept.restore("fit", _state(0.0))
    return digest(done=done, **{name: np.asarray(leaf) for name, leaf in state.items()})


def _state(value: float) -> dict[str, Any]:
    return {"w": jnp.full((5, 3), value, jnp.float32), "step": jnp.full((), int(value), jnp.int32)}


def make_filter(folder: Path) -> list[Path]:
    """Fit a tiny filter and save it."""
    data = rows(400)
    data = dataclasses.replace(data, columns={"labelled": np.arange(400) % 10 == 0})
    split = puorl.PUSplit.from_mask(data, data.columns["labelled"])
    puorl.DomainFilter(config=SMALL_FILTER).fit(split).save(folder / "model")
    return sorted((folder / "model").iterdir())


def read_filter(folder: Path) -> str:
    """Load the filter."""
    flt = puorl.DomainFilter.load(folder / "model")
    model, arrays = flt.model_, {}
    for i, layer in enumerate(model.params):
        arrays |= {f"w{i}": np.asarray(layer.w), f"b{i}": np.asarray(layer.b)}
    plain = (model.threshold, model.spread, model.seed, model.alpha.to_dict(), model.unit)
    scaling = model.encoder.scaling
    return digest(
        plain=plain, mode=flt.mode, config=model.config.to_dict(), split=model.split_fingerprint,
        mean=scaling.mean, scale=scaling.scale, history=model.alpha_history, **arrays,
    )  # fmt: skip


def make_machines(folder: Path) -> list[Path]:
    """Fit a tiny filter that decides about machines by how they move, and save it."""
    data = rows(480)
    data = dataclasses.replace(data, columns={"robot": np.repeat(list("abcdef"), 80)})
    split = puorl.PUSplit.from_mask(data, data.columns["robot"] == "a", unit="episode")
    config = FilterConfig(
        machines=MachineConfig(
            hidden=(4,), latent_sizes=(1,), num_seeds=1, num_steps=4, batch_size=32, horizons=(1,)
        )
    )
    puorl.DomainFilter(unit="column:robot", config=config).fit(split).save(folder / "model")
    return sorted((folder / "model").iterdir())


def read_machines(folder: Path) -> str:
    """Load it, and write what was loaded."""
    model = puorl.DomainFilter.load(folder / "model").model_
    with tempfile.TemporaryDirectory() as place:
        machine_files.write(model, Path(place) / "again", {}, force=False)
        return digest(content=read_content(Path(place) / "again"))


def make_policy(folder: Path) -> list[Path]:
    """Save a policy."""
    layer = {"w": np.linspace(-1, 1, 6).reshape(3, 2), "b": np.ones(2)}
    Policy.of("tanh", [layer], metadata={"seed": 3}).save(folder / "policy.safetensors")
    return [folder / "policy.safetensors"]


def read_policy(folder: Path) -> str:
    """Load it."""
    policy = Policy.load(folder / "policy.safetensors")
    return digest(fingerprint=policy.fingerprint, metadata=policy.metadata)


def make_behaviour(folder: Path) -> list[Path]:
    """Save a behaviour policy."""
    layers = ((np.linspace(-1, 1, 12).reshape(3, 4), np.ones(4)),)
    SquashedGaussianActor(layers).save(folder / "actor.safetensors", {"steps": 12})
    return [folder / "actor.safetensors"]


def read_behaviour(folder: Path) -> str:
    """Load it."""
    path = folder / "actor.safetensors"
    _, found = read_actor_file(path)
    # Where the name of the hash itself was hit, it is one more entry.
    data = {name: value for name, value in found.items() if len(str(value)) != 32}
    return digest(policy=SquashedGaussianActor.load(path).fingerprint, data=data)


def make_run(folder: Path) -> list[Path]:
    """Train a tiny policy in a folder."""
    options = {"steps": 20, "hidden": (4,), "batch_size": 8, "seed": 0}
    puorl.train("bc", rows(), out=folder / "run", **options)
    run = folder / "run"
    return [run / "run.json", run / "record.json", run / "metrics.jsonl"]


def read_run(folder: Path) -> str:
    """Read it as `puorl report` does."""
    [training] = read_paths([str(folder / "run")]).trainings
    return digest(
        settings=dataclasses.asdict(training.settings),
        record=dataclasses.asdict(training.record),
        metrics=training.metrics,
        policies=sorted(training.policies),
    )


def _make_kept(suffix: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        data, name = rows(), f"kept{suffix}"
        puorl.save(data, folder / name, format=None if suffix else "minari")
        (folder / FILTER_MARKER).parent.mkdir()
        write_json(folder / FILTER_MARKER, {})
        settings = FilterSettings(
            {"paths": ["rows.csv"], "mode": "hard"}, {"puorl": "0"}, {"data": "0"},
            KeptRows(name, len(data), data.fingerprint), (0.0, 3.5),
        )  # fmt: skip
        write_json(folder / SETTINGS, dataclasses.asdict(settings))
        files = [path for path in (folder / name).rglob("*") if path.is_file()]
        return [folder / SETTINGS, *(files or [folder / name])]

    return make


def make_kept_parts(folder: Path) -> list[Path]:
    """Write kept rows of two partitions, as `puorl filter --stream` does."""
    settings, _ = _make_kept(".npz")(folder)
    data, parts = rows(), folder / KEPT_PARTS
    for number, part in enumerate((data[:40], data[40:])):
        puorl.save(part, parts / f"part-{number:06d}.parquet")
    kept = KeptRows(KEPT_PARTS, len(data), fingerprint_of_parts(parts))
    content = dataclasses.replace(read_as(FilterSettings, settings), kept=kept)
    write_json(settings, dataclasses.asdict(content), force=True)
    return [settings, *sorted(parts.iterdir())]


def read_kept(folder: Path) -> str:
    """Read the kept rows as `puorl train` does."""
    found = read_training_set([str(folder)])
    return digest(fingerprint=found.pool.fingerprint, returns=found.returns, rows=found.rows)


def read_streamed(folder: Path) -> str:
    """Read the kept rows in partitions, as `puorl train --chunk-rows` does."""
    with mock.patch("puorl.data.lazy.PARTITION_ROWS", 20), mock.patch("puorl.data.hdf5._BLOCK", 16):
        lazy, returns = open_training_rows([str(folder)])
        return digest(fingerprint=lazy.to_dataset().fingerprint, returns=returns)


def make_keep_list(folder: Path) -> list[Path]:
    """List some rows beside their settings, as `puorl filter` does."""
    settings, _ = _make_kept(".npz")(folder)
    data, listed = rows(), folder / KEEP_LIST
    write_keep_list(listed, data, np.arange(len(data)) % 3 == 0, score=np.linspace(0, 1, len(data)))
    content = read_as(FilterSettings, settings)
    content = dataclasses.replace(content, keep_list=hashing.of_bytes(listed))
    write_json(settings, dataclasses.asdict(content), force=True)
    return [settings, listed]


def read_list(folder: Path) -> str:
    """Read it as ``--labelled`` does."""
    return digest(rows=read_keep_list(folder / KEEP_LIST, rows()))


def make_split(folder: Path) -> list[Path]:
    """Save a split."""
    puorl.PUSplit.from_mask(rows(), np.arange(60) % 5 == 0).save(folder / "split")
    return sorted(path for path in (folder / "split").iterdir() if path.is_file())


def read_split(folder: Path) -> str:
    """Load it with its rows."""
    split = puorl.PUSplit.load(folder / "split", rows())
    return digest(fingerprint=split.fingerprint, config=dict(split.config))


def make_store(folder: Path) -> list[Path]:
    """Append rows to a store."""
    store = Store(folder)
    for number in range(8):
        store.append(
            {
                "run": f"{number:06x}", "method": "pu", "learner": "iql", "seed": number,
                "steps": 1000, "scores": [90.25 + number, 11.5], "curve": [[100, 1.5]],
                "setting": {"rows": 100}, "error": None, "time": "2026-01-01",
            }
        )  # fmt: skip
    return [store.path]


def read_store(folder: Path) -> str:
    """Read the rows; a row that is left out must be told, and no other may differ."""
    found = Store(folder).read()
    whole = {each["run"]: each for each in _rows_of_store()}
    if any({k: row[k] for k in row if k in whole[row["run"]]} != whole[row["run"]]
           for row in found.rows if row["run"] in whole):  # fmt: skip
        return "another row"
    if len(found.rows) < len(whole):
        told = PuorlError("; ".join(found.notes))
        if not found.notes:
            return "a row is gone without a word"
        raise told
    return digest(names=[row["run"] for row in found.rows])


def _rows_of_store() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder))
        return Store(folder).rows()


def make_evaluation(folder: Path) -> list[Path]:
    """Write what `puorl evaluate --out` writes."""
    scored = {"policy": "a", "group": "", "returns": [1.5, 2.5], "lengths": [3, 4], "scores": None}
    content = {"env": "hopper", "episodes": 2, "seed": 0, "policies": [scored], "means": []}
    write_json(folder / "hopper.json", content)
    return [folder / "hopper.json"]


def read_evaluation(folder: Path) -> str:
    """Read it as `puorl report` does."""
    [found] = read_paths([str(folder / "hopper.json")]).evaluations
    return digest(found=dataclasses.asdict(found))


def make_prepared(folder: Path) -> list[Path]:
    """Write a prepared set of the benchmark."""
    chosen = puorl.TrainingSet.whole(rows())
    made = prepared_sets.PreparedSet(chosen, "0f" * 16, 1.5, None)
    prepared_sets._write(folder / "set", made, {"method": "olp"})
    return [folder / "set.json", folder / "set.npz"]


def read_prepared(folder: Path) -> str:
    """Read it; a damaged one is made again, which counts as told."""
    split = puorl.PUSplit.from_mask(rows(), np.arange(60) % 5 == 0)
    found = prepared_sets._read(folder / "set", split)
    if found is None:
        raise PuorlError("made again")
    return digest(rows=found.set.rows, content=found.content_hash, seconds=found.seconds)


def make_cache(folder: Path) -> list[Path]:
    """Store collected rows."""
    data = rows()
    source = dataclasses.replace(data.provenance, recipe={"recipe": "abc"})
    Cache(folder).write("abc", dataclasses.replace(data, provenance=source))
    return [folder / "abc.hdf5", folder / "abc.json"]


def read_cache(folder: Path) -> str:
    """Read them; damaged ones are collected again, which counts as told."""
    found = Cache(folder).read("abc")
    if found is None:
        raise PuorlError("made again")
    return digest(rows=found.fingerprint)


def make_lanes(folder: Path) -> list[Path]:
    """Write the lanes of a group of the benchmark."""
    lane = groups.RunLane("9f", "c1", "t1", "pu", 3, None)
    write_json(folder / "lanes.json", {"lanes": [dataclasses.asdict(lane)]})
    return [folder / "lanes.json"]


def read_lanes(folder: Path) -> str:
    """Read them; none is a group of another version, which is trained again."""
    found = groups._read_lanes(folder / "lanes.json")
    if not found:
        raise PuorlError("trained again")
    return digest(lanes=[dataclasses.asdict(lane) for lane in found])


KINDS = {
    "checkpoint": Kind(make_checkpoint, read_checkpoint),
    "filter": Kind(make_filter, read_filter),
    "filter of machines": Kind(make_machines, read_machines),
    "policy": Kind(make_policy, read_policy),
    "behaviour policy": Kind(make_behaviour, read_behaviour),
    "run folder": Kind(make_run, read_run),
    "kept rows, hdf5": Kind(_make_kept(".hdf5"), read_kept),
    "kept rows, npz": Kind(_make_kept(".npz"), read_kept),
    "kept rows, parquet": Kind(_make_kept(".parquet"), read_kept),
    "kept rows, minari": Kind(_make_kept(""), read_kept),
    "kept rows, partitions": Kind(make_kept_parts, read_kept),
    "kept rows, hdf5, streamed": Kind(_make_kept(".hdf5"), read_streamed),
    "kept rows, parquet, streamed": Kind(_make_kept(".parquet"), read_streamed),
    "kept rows, partitions, streamed": Kind(make_kept_parts, read_streamed),
    "keep-list": Kind(make_keep_list, read_list),
    "split": Kind(make_split, read_split),
    "bench rows": Kind(make_store, read_store),
    "evaluation": Kind(make_evaluation, read_evaluation),
    "prepared set": Kind(make_prepared, read_prepared),
    "collected rows": Kind(make_cache, read_cache),
    "lanes of a group": Kind(make_lanes, read_lanes),
}


# ------------------------------------------------------------------------------- the damage


def damages(content: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield one damaged copy after another, without end; no two places are alike."""
    size = len(content)
    while True:
        place = rng.randrange(size)
        end = min(size, place + rng.choice((1, 2, 8, 64, 512)))
        yield "bit", _put(content, place, bytes([content[place] ^ (1 << rng.randrange(8))]))
        yield "bit", _put(content, rng.randrange(size // 2 + 1), bytes([rng.randrange(256)]))
        yield "zeros", _put(content, place, bytes(end - place))
        yield "bytes", _put(content, place, rng.randbytes(end - place))
        yield "cut", content[:place]
        yield "longer", content + rng.randbytes(rng.choice((1, 8, 512)))
        other = rng.randrange(size)
        moved = _put(content, place, content[other : other + 8])
        yield "exchanged", _put(moved, other, content[place : place + 8])[:size]


def _put(content: bytes, place: int, new: bytes) -> bytes:
    return content[:place] + new + content[place + len(new) :]


def fuzz(name: str, num: int, seed: int) -> dict[str, Any]:
    """Damage files of one kind ``num`` times; return counts by damage and outcome."""
    kind, rng = KINDS[name], random.Random(f"{seed} {name}")
    counts: Counter[str] = Counter()
    bad: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "made"
        folder.mkdir()
        files = kind.make(folder)
        whole = kind.read(folder)
        sources = {path: damages(path.read_bytes(), rng) for path in files}
        contents = {path: path.read_bytes() for path in files}
        for number in range(num):
            path = files[number % len(files)]
            how, damaged = next(sources[path])
            if damaged == contents[path]:
                continue
            path.write_bytes(damaged)
            outcome = _outcome(kind, folder, whole)
            path.write_bytes(contents[path])
            counts[f"{how}: {outcome.partition(' ')[0]}"] += 1
            if not outcome.startswith(("same", "told")):
                bad.append(f"{path.name} {how}: {outcome}"[:300])
        shutil.rmtree(folder)
    total = Counter({key: 0 for key in ("same", "told", "wrong", "traceback")})
    for key, count in counts.items():
        total[key.partition(": ")[2]] += count
    return {
        "kind": name, "inputs": sum(counts.values()), **total, "by_damage": dict(counts),
        "bad": bad[:5], "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def _outcome(kind: Kind, folder: Path, whole: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "same" if kind.read(folder) == whole else "wrong"
    except PuorlError as error:
        return "told" if "\n" not in str(error) else "traceback of several lines"
    except Exception as error:
        return f"traceback {error!r}"


def main() -> None:
    """Damage files of all kinds, print the counts, append them to the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=12_000, help="damaged files in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    config = {"seed": given.seed, "python": platform.python_version(), "puorl": puorl.__version__}
    config |= {name: version(name) for name in ("numpy", "h5py", "pyarrow", "safetensors")}
    silent = 0
    logging.disable()  # a damaged cache is logged
    for name in given.kinds:
        found = fuzz(name, -(-given.inputs // len(given.kinds)), given.seed)
        silent += found["wrong"] + found["traceback"]
        print(*(f"{key}={found[key]}" for key in ("kind", "inputs", "same", "told", "wrong")),
              f"traceback={found['traceback']}", *found["bad"])  # fmt: skip
        with open(given.out, "a", encoding="utf-8") as file:
            file.write(json.dumps({**found, **config}) + "\n")
    sys.exit(1 if silent else 0)


if __name__ == "__main__":
    main()
