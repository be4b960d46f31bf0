"""Rows of the store: what decides a run, what came of it, and what it was made with."""

import datetime
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import jax

from puorl import __version__
from puorl.bench.group import Result
from puorl.bench.plan import Cell, Run
from puorl.bench.prepare import Prepared
from puorl.core import hashing
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.envs.evaluate import normalised_score

_OF_TRAINING = (
    "training", "returns", "scores", "curve", "error", "seconds", "group", "versions", "hardware",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Opened:
    """The rows of a setting, split."""

    split: PUSplit
    mark: str
    """Fingerprint of the split."""
    data: dict[str, Any]
    """Fingerprints and recipes, as they stand in a row."""

    @classmethod
    def of(cls, cell: Cell) -> "Opened":
        """Collect what a cell needs, or read it if it was collected before, and split it."""
        target = cell.setting.target.collect()
        others = [source.collect() for source, _ in cell.setting.others]
        split = cell.setting.split(target, others)
        mark = split.fingerprint
        data = {
            "target": target.fingerprint,
            "others": [other.fingerprint for other in others],
            "split": mark,
            "recipes": [_recipe(each) for each in (target, *others)],
        }
        return cls(split, mark, data)


def training_id(run: Run, prepared: Prepared) -> str:
    """Name of a training by its content: the rows, the learner, the seed."""
    scaled = run.cell.made.scale_rewards
    decided = {
        "content": prepared.content,
        "returns": prepared.set.returns if scaled else None,
        "seed": run.seed,
        **run.cell.training,
    }
    return hashing.of_settings(decided)[:16]


def finished(
    run: Run, opened: Opened, prepared: Prepared, training: str, result: Result, group: str
) -> dict[str, Any]:
    """The row of a run that was trained, to its end or until it was given up."""
    returns = scores = None
    if result.returns is not None:
        returns = [float(value) for value in result.returns]
        scores = [float(s) for s in normalised_score(run.cell.setting.body, result.returns)]
    return _row(
        run,
        training=training,
        returns=returns,
        scores=scores,
        curve=result.curve,
        error=result.error,
        seconds={**result.seconds, "prepare": prepared.seconds},
        group=group,
        same_as=None,
        **_findings(opened, prepared),
    )


def copied(
    run: Run, opened: Opened, prepared: Prepared, source: Mapping[str, Any]
) -> dict[str, Any]:
    """The row of a run whose training another row has already."""
    numbers = {name: source[name] for name in _OF_TRAINING}
    same_as = source["same_as"] or source["run"]
    return _row(run, **numbers, same_as=same_as, **_findings(opened, prepared))


def failed(run: Run, error: str, opened: Opened | None = None) -> dict[str, Any]:
    """The row of a run that came to no training."""
    return _row(
        run,
        training=None,
        returns=None,
        scores=None,
        curve=[],
        error=error,
        seconds={},
        group=None,
        same_as=None,
        filter=None,
        about={},
        num_rows=None,
        content=None,
        data={} if opened is None else opened.data,
    )


def now() -> str:
    """Time of a row."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


@cache
def device() -> str:
    """What numbers are computed on."""
    found = jax.devices()[0]
    return f"{found.platform}: {found.device_kind}"


def _findings(opened: Opened, prepared: Prepared) -> dict[str, Any]:
    return {
        "filter": prepared.filter,
        "about": dict(prepared.set.about),
        "num_rows": len(prepared.set),
        "content": prepared.content,
        "data": opened.data,
    }


def _row(run: Run, **found: Any) -> dict[str, Any]:
    budget = run.cell.budget
    return {
        "run": run.id,
        "training": found.pop("training"),
        "setting": run.cell.setting.to_dict(),
        "method": run.method.name,
        "variant": run.method.variant,
        "method_settings": run.method_settings,
        "learner": run.cell.made.name,
        "config": run.cell.config,
        "steps": budget.steps,
        "seed": run.seed,
        "evaluation": {"episodes": budget.episodes, "curve_episodes": budget.curve_episodes},
        "versions": _versions(),
        "hardware": {"device": device(), "cores": os.cpu_count()},
        **found,
        "time": now(),
    }


@cache
def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("jax", "numpy", "mujoco")}
    return {"puorl": __version__, "python": platform.python_version(), **packages}


def _recipe(dataset: Dataset) -> str | None:
    return (dataset.provenance.recipe or {}).get("recipe")
