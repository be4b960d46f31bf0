"""Data and training sets of runs: collected once, prepared once, and read again after a kill."""

import dataclasses
import hashlib
import multiprocessing
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl import __version__, methods
from puorl.bench.settings import RENAMED_COLUMNS, Setting, Source, rename_fields, settings_id
from puorl.bench.suites import MethodChoice
from puorl.core import hashing
from puorl.core.errors import ConfigError
from puorl.core.files import atomic_path, read_json, write_json
from puorl.core.hashing import generator
from puorl.core.progress import progress_bar
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.training_set import COLUMNS, Groups, TrainingSet
from puorl.rl.pool import action_range, with_own_rows

# The slowest to simulate first, so that no long one is left for the end.
_COST = {"walker2d": 3, "hopper": 2, "halfcheetah": 1}
_THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_HASHED_COLUMNS = {"weight": 1.0, "critic_weight": 1.0, "score": 0.0}
"""Columns of a training set to the value that stands for an absent column."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, bits well mixed: 2**64 over the golden ratio
_SHIFT = np.uint64(29)


def collect_all(sources: Sequence[Source], *, workers: int, show: bool) -> None:
    """Collect all datasets that are not in the cache.

    Args:
        sources: Datasets.
        workers: Cores to use; with fewer datasets than that, each gets several. With 1, one dataset
            is collected after the other, with as many threads as it takes by itself.
        show: Show a progress bar.
    """
    order = sorted(sources, key=lambda s: -s.rows * _COST.get(s.body, 1))
    total = sum(source.rows for source in order)
    with progress_bar("collecting", total=total, show=show) as advance:
        if min(workers, len(order)) <= 1:
            for source in order:
                source.collect()
                advance(source.rows)
            return
        earlier = {name: os.environ.get(name) for name in _THREAD_LIMITS}
        threads = max(1, workers // len(order))
        # Matrix products must not start threads of their own.
        os.environ.update(dict.fromkeys(_THREAD_LIMITS, "1"))
        try:
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(min(workers, len(order)), spawn) as pool:
                tasks = {pool.submit(_collect, source, threads): source for source in order}
                for task in as_completed(tasks):
                    task.result()
                    advance(tasks[task].rows)
        finally:
            for name, value in earlier.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value


def _collect(source: Source, threads: int) -> None:
    source.collect(threads=threads)


@dataclass(frozen=True, eq=False)
class SettingData:
    """The rows of a setting, split into labelled and unlabelled ones."""

    split: PUSplit
    fingerprints: dict[str, Any]
    """Fingerprints and recipes of the datasets and of the split, as a row contains them."""

    @classmethod
    def load(cls, setting: Setting) -> "SettingData":
        """Collect the rows, or read them from the cache, and split them."""
        target = setting.target.collect()
        others = [source.collect() for source, _ in setting.others]
        split = setting.split(target, others)
        fingerprints = {
            "target": target.fingerprint,
            "others": [other.fingerprint for other in others],
            "split": split.fingerprint,
            "recipes": [(each.provenance.recipe or {}).get("recipe") for each in (target, *others)],
        }
        return cls(split, fingerprints)


@dataclass(frozen=True, eq=False)
class PreparedSet:
    """The training set of a method, and findings about it."""

    set: TrainingSet
    content_hash: str
    seconds: float
    """Time that the method took."""
    filter: dict[str, Any] | None
    """Quality of the method's filter; None for a method without one."""


def prepare(folder: Path, data: SettingData, choice: MethodChoice, *, seed: int) -> PreparedSet:
    """Read the training set of a method from ``folder``, or make it and write it there.

    Args:
        folder: Prepared sets.
        data: Rows to choose from.
        choice: The method.
        seed: Seed of the method.
    """
    split, method, entry = data.split, choice.make(), methods.METHODS[choice.name]
    identity = {
        "split": data.fingerprints["split"],
        "method": choice.name,
        "settings": method.settings(),
        "seed": seed,
        "puorl": __version__,
    }
    path = folder / settings_id(identity)
    if (kept := _read(path, split)) is not None:
        return kept
    checkpoint = path.with_name(f"{path.name}-fit")
    start = time.perf_counter()
    options = {"checkpoint": checkpoint} if entry.resumable else {}
    made = method.prepare(split, seed=seed, **options)
    seconds = round(time.perf_counter() - start, 2)
    graded = _grade(made, split) if entry.has_filter else None
    prepared = PreparedSet(made, content_hash(made), seconds, graded)
    _write(path, prepared, identity)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return _read(path, split) or prepared  # as the next process will read it: the same dtypes


def content_hash(chosen: TrainingSet) -> str:
    """Hash all values of a set that a learner trains on, except the range of returns.

    That range matters only to learners that scale rewards by it.
    """
    [chosen] = with_own_rows([chosen])
    marks = _row_hashes(chosen)
    groups = chosen.groups
    first = len(marks) if groups is None else groups.num_first
    digest = hashlib.blake2b(digest_size=16)
    for part in (marks[:first], marks[first:]):  # the order within a group has no effect
        digest.update(f"{len(part)}|".encode())
        digest.update(np.sort(part).tobytes())
    sampling = None if groups is None else [groups.num_first, groups.first_share, groups.top]
    low, high = chosen.pool.action.min(axis=0), chosen.pool.action.max(axis=0)
    # Beyond [-1, 1] actions are scaled by their range in the pool.
    is_beyond = max(-float(low.min()), float(high.max())) > 1.0 + 1e-6
    limits = [low.tolist(), high.tolist()] if is_beyond else None
    return hashing.of_settings({"rows": digest.hexdigest(), "groups": sampling, "actions": limits})


def _row_hashes(chosen: TrainingSet) -> np.ndarray:
    """(k,) uint64. Hash of every row's values."""
    pool, rows = chosen.pool, chosen.rows
    columns = [pool.obs, pool.action, pool.next_obs, pool.terminal[:, None]]
    if pool.next_action is not None:
        columns.append(pool.next_action)
    values = [column for matrix in columns for column in matrix[rows].T]
    if chosen.reward is not None:
        values.append(chosen.reward)
    elif pool.reward is not None:
        values.append(pool.reward[rows])
    for name, default in _HASHED_COLUMNS.items():
        given = getattr(chosen, name)
        values.append(np.full(len(rows), default) if given is None else given)
    factors = generator(0, "bench", "content").integers(2**63, size=len(values), dtype=np.uint64)
    hashes = np.zeros(len(rows), np.uint64)
    for value, factor in zip(values, factors, strict=True):
        bits = value.astype(np.float32).view(np.uint32).astype(np.uint64)
        mixed = (bits + factor) * _MULTIPLIER
        hashes += (mixed ^ (mixed >> _SHIFT)) * (factor | np.uint64(1))
    return hashes


def join_pools(sets: Mapping[str, TrainingSet]) -> dict[str, TrainingSet]:
    """Return the same sets with positions in one pool that holds the rows of all their pools.

    Raises:
        ConfigError: Actions of the pools have different ranges, by which they are scaled.
    """
    pools = list({id(chosen.pool): chosen.pool for chosen in sets.values()}.values())
    if len(pools) == 1:
        return dict(sets)
    ranges = [np.stack(action_range(pool.action, pool.provenance.action_range)) for pool in pools]
    if any(not np.array_equal(each, ranges[0]) for each in ranges):
        raise ConfigError("train: expected pools with actions of one range, to train them together")
    joined = Dataset.concatenate(pools)
    starts = np.cumsum([0, *(len(pool) for pool in pools)])
    first = {id(pool): int(start) for pool, start in zip(pools, starts, strict=False)}
    return {
        name: dataclasses.replace(chosen, pool=joined, rows=chosen.rows + first[id(chosen.pool)])
        for name, chosen in sets.items()
    }


def _grade(made: TrainingSet, split: PUSplit) -> dict[str, Any]:
    """Compare a filter with the truth, over all unlabelled rows."""
    truth = split.reveal("benchmark")[split.unlabelled] == 0
    rows = np.zeros(len(split.pool), bool)
    rows[made.rows if made.weight is None else made.rows[made.weight >= 0.5]] = True
    kept = rows[split.unlabelled]
    num_right = int((kept & truth).sum())
    return {
        **{name: made.metadata[name] for name in ("preset", "seed", "alpha", "alpha_interval")},
        "true_alpha": float(truth.mean()),
        "accuracy": float((kept == truth).mean()),
        "recall": num_right / max(1, int(truth.sum())),
        "precision": num_right / max(1, int(kept.sum())),
        "kept": int(kept.sum()),
    }


def _write(path: Path, prepared: PreparedSet, identity: dict[str, Any]) -> None:
    chosen = prepared.set
    arrays = {name: a for name in COLUMNS if (a := getattr(chosen, name)) is not None}
    with atomic_path(path.with_suffix(".npz"), force=True) as part:
        np.savez(part, allow_pickle=False, **arrays)
    # Last: this file says that the other is complete.
    write_json(
        path.with_suffix(".json"),
        {
            "made_for": identity,
            "arrays": hashing.of_arrays(arrays),
            "groups": None if chosen.groups is None else dataclasses.asdict(chosen.groups),
            "returns": chosen.returns,
            "metadata": dict(chosen.metadata),
            "content_hash": prepared.content_hash,
            "filter": prepared.filter,
            "seconds": prepared.seconds,
        },
        force=True,
    )


def _read(path: Path, split: PUSplit) -> PreparedSet | None:
    """Read a prepared set; None where there is none, or a damaged one."""
    if not path.with_suffix(".json").exists():
        return None
    try:
        content = rename_fields(read_json(path.with_suffix(".json")), RENAMED_COLUMNS)
        # Opened here: NumPy would leave a damaged file open.
        with (
            open(path.with_suffix(".npz"), "rb") as file,
            np.load(file, allow_pickle=False) as held,
        ):
            arrays = {name: held[name] for name in held.files}
        if hashing.of_arrays(arrays) != content["arrays"]:
            return None
        chosen = TrainingSet(
            split.pool,
            **arrays,
            groups=None if content["groups"] is None else Groups(**content["groups"]),
            returns=None if content["returns"] is None else tuple(content["returns"]),
            metadata=content["metadata"],
        )
        return PreparedSet(chosen, content["content_hash"], content["seconds"], content["filter"])
    except Exception:  # zipfile and NumPy raise almost any exception on damaged files
        return None
