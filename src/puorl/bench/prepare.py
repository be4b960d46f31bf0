"""Data first: every dataset of a plan, made once, on as many cores as there are."""

import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np

from puorl import __version__
from puorl.bench.settings import Source
from puorl.bench.suites import MethodChoice
from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, read_json, write_json
from puorl.core.hashing import generator
from puorl.core.progress import progress_bar
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods import base as methods
from puorl.methods.pu import PU
from puorl.pu.config import PRESETS, FilterConfig
from puorl.pu.filter import DomainFilter
from puorl.rl.pool import action_range

# The slowest to simulate first, so that no long one is left for the end.
_COST = {"walker2d": 3, "hopper": 2, "halfcheetah": 1}
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def collect_all(sources: Sequence[Source], *, workers: int, show: bool) -> None:
    """Fill the cache with all datasets; those that are in it already are only looked at.

    Args:
        sources: What to make.
        workers: Cores to use; where there are fewer datasets, each gets several. With 1, every
            dataset in turn takes what it finds.
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
        earlier = {name: os.environ.get(name) for name in _ONE_THREAD}
        threads = max(1, workers // len(order))
        # Matrix products must not start threads of their own.
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        try:
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(min(workers, len(order)), spawn) as pool:
                begun = {pool.submit(_collect, source, threads): source for source in order}
                for done in as_completed(begun):
                    done.result()
                    advance(begun[done].rows)
        finally:
            for name, value in earlier.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value


def _collect(source: Source, threads: int) -> None:
    source.collect(threads=threads)


_HASHED_COLUMNS = (("weight", 1.0), ("critic_weight", 1.0), ("score", 0.0))
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, bits well mixed: 2**64 over the golden ratio
_SHIFT = np.uint64(29)


def content(chosen: TrainingSet) -> str:
    """Hash of all values that a learner sees of the set, but the range of returns.

    That range counts only for learners that scale rewards by it.
    """
    marks = _row_marks(chosen)
    first = len(marks) if chosen.groups is None else chosen.groups.num_first
    digest = hashlib.blake2b(digest_size=16)
    for part in (marks[:first], marks[first:]):  # who is in which group is no matter of order
        digest.update(f"{len(part)}|".encode())
        digest.update(np.sort(part).tobytes())
    groups = chosen.groups
    drawn = None if groups is None else [groups.num_first, groups.first_share, groups.top]
    low, high = chosen.pool.action.min(axis=0), chosen.pool.action.max(axis=0)
    # Beyond [-1, 1] the pool's range of actions decides how they are scaled.
    beyond = max(-float(low.min()), float(high.max())) > 1.0 + 1e-6
    limits = [low.tolist(), high.tolist()] if beyond else None
    return hashing.of_settings({"rows": digest.hexdigest(), "groups": drawn, "actions": limits})


def _row_marks(chosen: TrainingSet) -> np.ndarray:
    """(k,) uint64. A number for every row that follows from its values alone."""
    pool, rows = chosen.pool, chosen.rows
    columns = [pool.obs, pool.action, pool.next_obs, pool.terminal[:, None]]
    if pool.next_action is not None:
        columns.append(pool.next_action)
    values = [column for matrix in columns for column in matrix[rows].T]
    if chosen.reward is not None:
        values.append(chosen.reward)
    elif pool.reward is not None:
        values.append(pool.reward[rows])
    for name, default in _HASHED_COLUMNS:
        given = getattr(chosen, name)
        values.append(np.full(len(rows), default) if given is None else given)
    factors = generator(0, "bench", "content").integers(2**63, size=len(values), dtype=np.uint64)
    marks = np.zeros(len(rows), np.uint64)
    for value, factor in zip(values, factors, strict=True):
        bits = value.astype(np.float32).view(np.uint32).astype(np.uint64)
        mixed = (bits + factor) * _SPREAD
        marks += (mixed ^ (mixed >> _SHIFT)) * (factor | np.uint64(1))
    return marks


def on_one_pool(sets: Mapping[str, TrainingSet]) -> dict[str, TrainingSet]:
    """The same sets with positions in a pool that holds the rows of all their pools.

    Raises:
        ConfigError: Pools whose actions have different ranges: together they would be scaled
            otherwise than alone.
    """
    pools = list({id(chosen.pool): chosen.pool for chosen in sets.values()}.values())
    if len(pools) == 1:
        return dict(sets)
    ranges = [np.stack(action_range(pool.action)) for pool in pools]
    if any(not np.array_equal(each, ranges[0]) for each in ranges):
        raise ConfigError("train: expected pools with actions of one range, to train them together")
    joined = Dataset.concatenate(pools)
    starts = np.cumsum([0, *(len(pool) for pool in pools)])
    first = {id(pool): int(start) for pool, start in zip(pools, starts, strict=False)}
    return {
        name: dataclasses.replace(chosen, pool=joined, rows=chosen.rows + first[id(chosen.pool)])
        for name, chosen in sets.items()
    }


_COLUMNS = ("rows", "weight", "reward", "critic_weight", "score")
_OF_FILTER = ("preset", "mode", "unit")


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a method hands to learners, and what became of it."""

    set: TrainingSet
    content: str
    seconds: float
    """What preparing took, when it was done."""
    filter: dict[str, Any] | None
    """How good the method's filter is, for one that has a filter."""


def method_settings(choice: MethodChoice) -> dict[str, Any]:
    """All settings of a method, defaults included, JSON-ready.

    Raises:
        ConfigError: Unknown method or setting.
    """
    if choice.name == "pu":
        own, config = _filter_settings(choice)
        made = {**own, "config": dataclasses.asdict(config)}
    else:
        made = dataclasses.asdict(cast(Any, methods.make(choice.name, **choice.settings)))
    return json.loads(json.dumps(made))


def prepare(
    folder: Path, split: PUSplit, mark: str, choice: MethodChoice, *, seed: int
) -> Prepared:
    """The training set of a method, read if it was made before, else made and kept.

    Args:
        folder: Where prepared sets are kept.
        split: What to prepare.
        mark: The split's fingerprint.
        choice: The method.
        seed: Seed of whatever it learns.
    """
    identity = {
        "split": mark,
        "method": choice.name,
        "settings": method_settings(choice),
        "seed": seed,
        "puorl": __version__,
    }
    path = folder / hashing.of_settings(identity)[:16]
    kept = _read(path, split)
    if kept is not None:
        return kept
    began = time.perf_counter()
    made = _make(choice, split, seed, path.with_name(f"{path.name}-fit"))
    seconds = time.perf_counter() - began
    graded = _grade(made, split) if choice.name == "pu" else None
    done = Prepared(made, content(made), round(seconds, 2), graded)
    _write(path, done, identity)
    shutil.rmtree(path.with_name(f"{path.name}-fit"), ignore_errors=True)
    # As the next process will read it: same dtypes, same bytes.
    return _read(path, split) or done


def _make(choice: MethodChoice, split: PUSplit, seed: int, checkpoint: Path) -> TrainingSet:
    if choice.name != "pu":
        return methods.make(choice.name, **choice.settings).prepare(split, seed=seed)
    own, config = _filter_settings(choice)
    flt = DomainFilter(own["preset"], mode=own["mode"], unit=own["unit"], config=config)
    flt.fit(split, seed=seed, checkpoint=checkpoint)
    made = PU(filter=flt).prepare(split, seed=seed)
    changed = config != PRESETS[own["preset"]]
    preset = f"{own['preset']}, changed" if changed else own["preset"]
    return dataclasses.replace(made, about={**made.about, "preset": preset})


def _filter_settings(choice: MethodChoice) -> tuple[dict[str, Any], FilterConfig]:
    """What `PU` takes, and the filter's config with the changes that the choice names."""
    given = {name: value for name, value in choice.settings.items() if name in _OF_FILTER}
    own = {name: getattr(methods.make("pu", **given), name) for name in _OF_FILTER}
    if own["preset"] not in PRESETS:
        raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}, got {own['preset']!r}")
    config = PRESETS[own["preset"]]
    changes = {}
    known = [field.name for field in dataclasses.fields(config)]
    for name, value in choice.settings.items():
        if name in _OF_FILTER:
            continue
        if name not in known:
            raise ConfigError(
                f"pu: expected settings among {', '.join([*_OF_FILTER, *known])}; got {name}"
            )
        if isinstance(value, Mapping):
            value = dataclasses.replace(getattr(config, name), **value)
        changes[name] = value
    return own, dataclasses.replace(config, **changes)


def _grade(made: TrainingSet, split: PUSplit) -> dict[str, Any]:
    """The filter against the truth, over all unlabelled rows."""
    truth = split.reveal("benchmark")[split.unlabelled] == 0
    rows = np.zeros(len(split.pool), bool)
    chosen = made.rows if made.weight is None else made.rows[made.weight >= 0.5]
    rows[chosen] = True
    kept = rows[split.unlabelled]
    right = int((kept & truth).sum())
    about = made.about
    return {
        "preset": about["preset"],
        "seed": about["seed"],
        "alpha": about["alpha"],
        "alpha_interval": about["alpha_interval"],
        "true_alpha": float(truth.mean()),
        "accuracy": float((kept == truth).mean()),
        "recall": right / max(1, int(truth.sum())),
        "precision": right / max(1, int(kept.sum())),
        "kept": int(kept.sum()),
    }


def _write(path: Path, done: Prepared, identity: dict[str, Any]) -> None:
    arrays = {
        name: getattr(done.set, name) for name in _COLUMNS if getattr(done.set, name) is not None
    }
    with atomic_path(path.with_suffix(".npz"), force=True) as part:
        np.savez(part, allow_pickle=False, **arrays)
    groups = done.set.groups
    # Last: where it stands, all is whole.
    write_json(
        path.with_suffix(".json"),
        {
            "made_for": identity,
            "arrays": hashing.of_arrays(arrays),
            "groups": None if groups is None else dataclasses.asdict(groups),
            "returns": done.set.returns,
            "about": dict(done.set.about),
            "content": done.content,
            "filter": done.filter,
            "seconds": done.seconds,
        },
        force=True,
    )


def _read(path: Path, split: PUSplit) -> Prepared | None:
    """What was kept, or None where nothing is or it is damaged."""
    if not path.with_suffix(".json").exists():
        return None
    try:
        about = read_json(path.with_suffix(".json"))
        # Opened here: NumPy would leave a damaged file open.
        with (
            open(path.with_suffix(".npz"), "rb") as file,
            np.load(file, allow_pickle=False) as held,
        ):
            arrays = {name: held[name] for name in held.files}
        if hashing.of_arrays(arrays) != about["arrays"]:
            return None
        groups = None if about["groups"] is None else Groups(**about["groups"])
        returns = None if about["returns"] is None else tuple(about["returns"])
        chosen = TrainingSet(
            split.pool, **arrays, groups=groups, returns=returns, about=about["about"]
        )
        return Prepared(chosen, about["content"], about["seconds"], about["filter"])
    except (DataError, OSError, BadZipFile, ValueError, KeyError, TypeError):
        return None
