"""Prepared training sets: every method once for each split, kept so that no kill costs a fit.

A filter is fitted once, frozen, and shared by all training seeds and learners of its split.
"""

import dataclasses
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np

from puorl import __version__
from puorl.bench.running.content import content
from puorl.bench.suites import MethodChoice
from puorl.core import fingerprint
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, read_json, write_json
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods import base as methods
from puorl.methods.pu import PU
from puorl.pu.config import PRESETS, FilterConfig
from puorl.pu.filter import DomainFilter

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
    path = folder / fingerprint.of_settings(identity)[:16]
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
            "arrays": fingerprint.of_arrays(arrays),
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
        if fingerprint.of_arrays(arrays) != about["arrays"]:
            return None
        groups = None if about["groups"] is None else Groups(**about["groups"])
        returns = None if about["returns"] is None else tuple(about["returns"])
        chosen = TrainingSet(
            split.pool, **arrays, groups=groups, returns=returns, about=about["about"]
        )
        return Prepared(chosen, about["content"], about["seconds"], about["filter"])
    except (DataError, OSError, BadZipFile, ValueError, KeyError, TypeError):
        return None
