"""FilterModel: all that a fit leaves behind, and how it judges rows."""

import dataclasses
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from puorl.core.errors import DataError
from puorl.core.files import atomic_path, read_json, write_json
from puorl.data.split import PUSplit
from puorl.data.transitions import Transitions
from puorl.nn import mlp
from puorl.pu import classifier, dynamics
from puorl.pu.alpha import AlphaEstimate
from puorl.pu.config import FilterConfig
from puorl.pu.dynamics import Task
from puorl.pu.encoder import Encoder
from puorl.pu.features import Scaling
from puorl.pu.units import Grouping, group, parse_unit

_VERSION = 2
_BLOCK = 16_384


@dataclass(frozen=True, eq=False)
class FilterModel:
    """Encoder, networks, and where their logits turn from no to yes."""

    config: FilterConfig
    unit: str
    seed: int
    encoder: Encoder
    params: mlp.Params
    """Networks, one lane each."""
    alpha: AlphaEstimate
    alpha_history: np.ndarray
    """(epochs, lanes) float32."""
    threshold: float
    """Logit at which the decision turns."""
    spread: float
    """Logits for one unit of log-odds."""
    split_fingerprint: str
    """Of the split that was learnt from."""

    def logits(self, split: PUSplit, positions: np.ndarray) -> np.ndarray:
        """(k,) float32. Logits of pool rows, of their whole units where units are larger.

        NaN where the next state is unknown, infinity for rows whose unit has a labelled row.
        """
        unit = parse_unit(self.unit)
        if unit.kind == "transition":
            return self.held_out_logits(split, positions)
        grouping = group(split, unit, self.seed)
        every = self._unit_logits(split, grouping)
        return np.where(grouping.known, np.float32(np.inf), every)[positions]

    def held_out_logits(self, split: PUSplit, positions: np.ndarray) -> np.ndarray:
        """(k,) float32. The same without regard to what is known.

        Rows of the split that was learnt from are judged by the lane that did not learn from them,
        where there is one; others by the mean of all lanes.
        """
        unit = parse_unit(self.unit)
        if unit.kind != "transition":
            return self._unit_logits(split, group(split, unit, self.seed))[positions]
        lane = self._lanes(split, None)
        rows = split.pool.rows[positions]
        return self.row_logits(rows, None if lane is None else lane[positions])

    def row_logits(self, rows: Transitions, lane: np.ndarray | None) -> np.ndarray:
        """(n,) float32. Logits of single rows, by the given lane or by the mean of all."""
        result = np.full(len(rows), np.nan, np.float32)
        num_lanes = self.params[0].w.shape[0]
        if lane is None:
            result[:] = self._mean_logits(rows, self.params)
            return result
        for k in range(num_lanes):
            mine = np.flatnonzero(lane == k)
            one = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], self.params)
            result[mine] = self._mean_logits(rows[mine], one)
        return result

    def probability(self, logit: np.ndarray) -> np.ndarray:
        """(n,) float32 in [0, 1]; the estimated share itself where the logit is NaN."""
        odds = np.clip((logit - self.threshold) / self.spread, -60, 60)
        chance = 1.0 / (1.0 + np.exp(-odds))
        return np.where(np.isnan(logit), self.alpha.value, chance).astype(np.float32)

    def _unit_logits(self, split: PUSplit, grouping: Grouping) -> np.ndarray:
        every = self.row_logits(split.pool.rows, self._lanes(split, grouping))
        return grouping.mean(every).astype(np.float32)

    def _lanes(self, split: PUSplit, grouping: Grouping | None) -> np.ndarray | None:
        """(n,) int64. The lane that did not learn from each pool row; None: ask all of them."""
        if split.fingerprint != self.split_fingerprint:
            return None
        if grouping is not None:
            return grouping.fold
        if split.unit == "transition":
            return None
        lane = np.empty(len(split.pool), np.int64)
        lane[split.labelled], lane[split.unlabelled] = split.labelled_part, split.unlabelled_part
        return np.searchsorted(np.unique(split.labelled_part), lane)

    def _mean_logits(self, rows: Transitions, params: mlp.Params) -> np.ndarray:
        result = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), _BLOCK):
            x = self.encoder.scaled(rows[start : start + _BLOCK])
            unknown = np.isnan(x).any(axis=1)
            np.nan_to_num(x, copy=False)
            missing = min(_BLOCK, len(rows)) - len(x)  # one shape for all blocks: compiled once
            shown = np.pad(x, ((0, missing), (0, 0))) if missing else x
            made = _logits_block(params, self.encoder.models, shown, self.encoder.tasks)
            result[start : start + len(x)] = np.asarray(made)[: len(x)]
            result[start : start + len(x)][unknown] = np.nan
        return result


@partial(jax.jit, static_argnames="tasks")
def _logits_block(
    params: mlp.Params, models: tuple[mlp.Params, ...], x: jax.Array, tasks: tuple[Task, ...]
) -> jax.Array:
    pairs = zip(models, tasks, strict=True)
    x = jnp.concatenate([x, *(dynamics.residual(m, x, task) for m, task in pairs)], axis=1)
    return jax.vmap(classifier.logits, in_axes=(0, None))(params, x).mean(axis=0)


def write(
    learnt: FilterModel, folder: str | os.PathLike[str], about: dict[str, Any], *, force: bool
) -> Path:
    """Networks as safetensors, everything else as JSON."""
    scaling = learnt.encoder.scaling
    arrays = {"mean": scaling.mean, "scale": scaling.scale, "alpha_history": learnt.alpha_history}
    arrays |= _arrays("classifier", learnt.params)
    for i, params in enumerate(learnt.encoder.models):
        arrays |= _arrays(f"model{i}", params)
    content = {
        "puorl_filter": _VERSION,
        **about,
        "unit": learnt.unit,
        "seed": learnt.seed,
        "config": dataclasses.asdict(learnt.config),
        "tasks": [list(task) for task in learnt.encoder.tasks],
        "num_behaviour": learnt.encoder.num_behaviour,
        "alpha": learnt.alpha.to_dict(),
        "threshold": learnt.threshold,
        "spread": learnt.spread,
        "split": learnt.split_fingerprint,
    }
    with atomic_path(folder, force=force, marker="filter.json") as part:
        part.mkdir()
        write_json(part / "filter.json", content)
        save_file(arrays, part / "filter.safetensors")
    return Path(folder)


def read(folder: str | os.PathLike[str]) -> tuple[FilterModel, dict[str, Any]]:
    """What `write` wrote, and all that stands in the JSON file.

    Raises:
        DataError: Not a filter, or one of another version.
    """
    folder = Path(folder)
    content = read_json(folder / "filter.json")
    if not isinstance(content, dict) or content.get("puorl_filter") != _VERSION:
        raise DataError(
            f"{folder}: expected a saved filter of version {_VERSION}, got something else; fit and "
            "save it again"
        )
    try:
        arrays = load_file(folder / "filter.safetensors")
        config = FilterConfig.from_dict(content["config"])
        tasks = tuple(
            Task(*(tuple(map(tuple, columns)) for columns in task)) for task in content["tasks"]
        )
        models = tuple(_params(f"model{i}", arrays) for i in range(len(tasks)))
        limited = config.features.standardise
        scaling = Scaling(arrays["mean"], arrays["scale"], limited)
        interval = content["alpha"]["interval"]
        learnt = FilterModel(
            config=config,
            unit=content["unit"],
            seed=content["seed"],
            encoder=Encoder(config.features, scaling, tasks, models, content["num_behaviour"]),
            params=_params("classifier", arrays),
            alpha=AlphaEstimate(
                content["alpha"]["value"],
                None if interval is None else tuple(interval),
                content["alpha"]["method"],
            ),
            alpha_history=arrays["alpha_history"],
            threshold=content["threshold"],
            spread=content["spread"],
            split_fingerprint=content["split"],
        )
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder}: expected a whole saved filter, got: {error}") from error
    return learnt, content


def _arrays(name: str, params: mlp.Params) -> dict[str, np.ndarray]:
    made = {}
    for i, layer in enumerate(params):
        made[f"{name}.w{i}"], made[f"{name}.b{i}"] = np.asarray(layer.w), np.asarray(layer.b)
        if layer.norm is not None:
            made[f"{name}.scale{i}"] = np.asarray(layer.norm.scale)
            made[f"{name}.offset{i}"] = np.asarray(layer.norm.offset)
    return made


def _params(name: str, arrays: dict[str, np.ndarray]) -> mlp.Params:
    count = sum(key.startswith(f"{name}.w") for key in arrays)
    if not count:
        raise KeyError(name)
    return tuple(_layer(name, i, arrays) for i in range(count))


def _layer(name: str, i: int, arrays: dict[str, np.ndarray]) -> mlp.Layer:
    w, b = jnp.asarray(arrays[f"{name}.w{i}"]), jnp.asarray(arrays[f"{name}.b{i}"])
    if f"{name}.scale{i}" not in arrays:
        return mlp.Layer(w, b)
    scale, offset = arrays[f"{name}.scale{i}"], arrays[f"{name}.offset{i}"]
    return mlp.Layer(w, b, mlp.LayerNorm(jnp.asarray(scale), jnp.asarray(offset)))
