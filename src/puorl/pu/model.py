"""FilterModel: the result of a fit, how it scores rows and decides, and its files."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.files import atomic_path, read_json, write_json
from puorl.core.resources import check_fork
from puorl.core.stats import Estimate
from puorl.data.dataset import Dataset
from puorl.data.fitted_columns import FittedColumns
from puorl.data.split import PUSplit
from puorl.data.transitions import Transitions
from puorl.nn import mlp
from puorl.pu import learners
from puorl.pu.alpha import NO_LOWER_END, NO_TARGET, current_estimate
from puorl.pu.config import FilterConfig
from puorl.pu.features import Encoder, Scaling, Task, residual
from puorl.pu.learners import BLOCK
from puorl.pu.units import Grouping, Unit, group, mean_over, number_units, parse_unit

Mode = Literal["hard", "top_alpha", "soft"]
_VERSION = 2
REPAIR = "take another copy, or fit and save it again"
_JSON, _ARRAYS = "filter.json", "filter.safetensors"


@dataclass(frozen=True, eq=False)
class FilterModel:
    """Encoder, networks, and the threshold of their logits."""

    config: FilterConfig
    unit: Unit
    seed: int
    encoder: Encoder
    params: mlp.Params
    """Networks, one lane each."""
    alpha: Estimate
    alpha_history: np.ndarray
    """(epochs, lanes) float32."""
    threshold: float
    """Logit above which a row or unit is kept."""
    spread: float
    """Logits for one unit of log-odds."""
    split_fingerprint: str
    """Of the split of the fit."""
    named: FittedColumns | None = None
    """Of the rows of the fit; None in filters from before they were stored."""

    def grouping(self, split: PUSplit) -> Grouping | None:
        """Return the units of a split; None where they are single rows."""
        return group(split, self.unit, self.seed)

    def logits(self, split: PUSplit, positions: np.ndarray) -> np.ndarray:
        """(k,) float32. Logits of pool rows; infinity for rows of units with a labelled row."""
        logit = self.held_out_logits(split, positions)
        grouping = self.grouping(split)
        if grouping is None:
            return logit
        return np.where(grouping.labelled[positions], np.float32(np.inf), logit)

    def held_out_logits(self, split: PUSplit, positions: np.ndarray) -> np.ndarray:
        """(k,) float32. Logits of pool rows, or of their whole units; NaN without a next state.

        Rows of the fitted split are scored by the lane that held them out, where there is one;
        other rows by the mean of all lanes.
        """
        grouping, rows = self.grouping(split), self._in_order(split.pool).rows
        lane = self._lanes(split, grouping)
        if grouping is not None:
            every = self.row_logits(rows, lane)
            return grouping.mean(every).astype(np.float32)[positions]
        return self.row_logits(rows[positions], None if lane is None else lane[positions])

    def _in_order(self, data: Dataset) -> Dataset:
        """Return rows with their columns in the order of the fit."""
        return data if self.named is None else self.named.order(data)

    def row_logits(self, rows: Transitions, lane: np.ndarray | None) -> np.ndarray:
        """(n,) float32. Logits of single rows, by the given lane or by the mean of all."""
        check_fork()
        if lane is None:
            return self._mean_logits(rows, self.params)
        result = np.full(len(rows), np.nan, np.float32)
        for k in range(self.params[0].w.shape[0]):
            mine = np.flatnonzero(lane == k)
            one = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], self.params)
            result[mine] = self._mean_logits(rows[mine], one)
        return result

    def probability(self, logit: np.ndarray) -> np.ndarray:
        """(n,) float32 in [0, 1]; alpha where the logit is NaN."""
        odds = np.clip((logit - self.threshold) / self.spread, -60, 60)
        chance = 1.0 / (1.0 + np.exp(-odds))
        return np.where(np.isnan(logit), self.alpha.value, chance).astype(np.float32)

    def score(self, split: PUSplit) -> np.ndarray:
        """(u,) float32 in [0, 1]. Probability that each unlabelled row is the target's."""
        return self.probability(self.logits(split, split.unlabelled))

    def score_rows(self, data: Dataset) -> np.ndarray:
        """(n,) float32 in [0, 1]. The same for any rows, without labels."""
        logit = self.row_logits(self._in_order(data).rows, None)
        if not self.unit.is_row:
            number = number_units(data, self.unit).number
            logit = mean_over(number, logit).astype(np.float32)
        return self.probability(logit)

    def keep(self, split: PUSplit, score: np.ndarray, mode: Mode) -> np.ndarray:
        """(u,) bool. Unlabelled rows that a mode keeps; rows of labelled units always."""
        grouping = self.grouping(split)
        if grouping is None:
            return keep(score, mode, self.alpha.value) & self.finds_target
        kept = grouping.labelled[split.unlabelled]
        kept[~kept] = keep(score[~kept], mode, self.alpha.value) & self.finds_target
        return kept

    @property
    def finds_target(self) -> bool:
        """False where alpha is about 0 and has no lower end: what is kept would be others' rows."""
        return not (self.alpha.value < NO_TARGET and self.alpha.low <= NO_LOWER_END)

    def _lanes(self, split: PUSplit, grouping: Grouping | None) -> np.ndarray | None:
        """(n,) int64. The lane that held out each pool row; None where all lanes score."""
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
        for start in range(0, len(rows), BLOCK):
            x = self.encoder.scaled(rows[start : start + BLOCK])
            unknown = np.isnan(x).any(axis=1)
            np.nan_to_num(x, copy=False)
            missing = min(BLOCK, len(rows)) - len(x)  # one shape for all blocks: compiled once
            shown = np.pad(x, ((0, missing), (0, 0))) if missing else x
            made = _logits_block(params, self.encoder.models, shown, self.encoder.tasks)
            result[start : start + len(x)] = np.asarray(made)[: len(x)]
            result[start : start + len(x)][unknown] = np.nan
        return result


def keep(score: np.ndarray, mode: Mode, alpha: float) -> np.ndarray:
    """(n,) bool. Rows that a mode keeps; ``soft`` counts as ``hard``.

    Rows of equal scores are kept or rejected together, so that no unit is divided: ``top_alpha``
    comes as near to its number as that allows.
    """
    if mode != "top_alpha":
        return score >= 0.5
    return score >= cut_score(score, int(alpha * len(score)))


def cut_score(score: np.ndarray, num_kept: int) -> float:
    """Return the least score to keep so that ``num_kept`` rows are, or as near as ties allow.

    Infinite for none or all: rows that score below all of these are then kept too.
    """
    if num_kept == 0:
        return np.inf
    if num_kept == len(score):
        return -np.inf
    value, count = np.unique(score, return_counts=True)
    at_or_above = np.cumsum(count[::-1])[::-1]
    return float(value[np.argmin(np.abs(at_or_above - num_kept))])


@partial(jax.jit, static_argnames="tasks")
def _logits_block(
    params: mlp.Params, models: tuple[mlp.Params, ...], x: jax.Array, tasks: tuple[Task, ...]
) -> jax.Array:
    pairs = zip(models, tasks, strict=True)
    x = jnp.concatenate([x, *(residual(m, x, task) for m, task in pairs)], axis=1)
    return jax.vmap(learners.logits, in_axes=(0, None))(params, x).mean(axis=0)


def write(
    model: FilterModel, folder: str | os.PathLike[str], metadata: dict[str, Any], *, force: bool
) -> Path:
    """Write the networks as safetensors and everything else as JSON."""
    scaling = model.encoder.scaling
    arrays = {"mean": scaling.mean, "scale": scaling.scale, "alpha_history": model.alpha_history}
    arrays |= params_to_arrays("classifier", model.params)
    for i, params in enumerate(model.encoder.models):
        arrays |= params_to_arrays(f"model{i}", params)
    content = {
        "puorl_filter": _VERSION,
        **metadata,
        "unit": str(model.unit),
        "seed": model.seed,
        "config": model.config.to_dict(),
        "tasks": [list(task) for task in model.encoder.tasks],
        "num_behaviour": model.encoder.num_behaviour,
        "alpha": model.alpha.to_dict(),
        "threshold": model.threshold,
        "spread": model.spread,
        "split": model.split_fingerprint,
        "columns": None if model.named is None else model.named.to_dict(),
    }
    return write_files(folder, content, arrays, force=force)


def write_files(
    folder: str | os.PathLike[str],
    content: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    force: bool,
) -> Path:
    """Write the two files of a filter of any kind, with the hash of the arrays."""
    with atomic_path(folder, force=force, marker=_JSON) as part:
        part.mkdir()
        write_json(part / _JSON, content | {"arrays": hashing.of_arrays(arrays)})
        save_file(arrays, part / _ARRAYS)
    return Path(folder)


def read_content(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the JSON file of a filter of any kind.

    Raises:
        DataError: It is no JSON object.
    """
    content = read_json(Path(folder) / _JSON, repair=REPAIR)
    if not isinstance(content, dict):
        raise DataError(f"{folder}: expected a saved filter, got something else; {REPAIR}")
    return content


def read_arrays(folder: str | os.PathLike[str], content: dict[str, Any]) -> dict[str, np.ndarray]:
    """Read the arrays of a filter of any kind, once they fit to the hash in its JSON file."""
    file = Path(folder) / _ARRAYS
    arrays = load_file(file)
    hashing.check(file, content.get("arrays"), hashing.of_arrays(arrays), repair=REPAIR)
    return arrays


def read(folder: str | os.PathLike[str]) -> tuple[FilterModel, dict[str, Any]]:
    """Read what `write` wrote; return the model and the content of the JSON file.

    Raises:
        DataError: Not a filter, or one of another version.
    """
    content = read_content(folder)
    if content.get("puorl_filter") != _VERSION:
        raise DataError(
            f"{folder}: expected a saved filter of version {_VERSION}, got something else; fit and "
            "save it again"
        )
    try:
        arrays = read_arrays(folder, content)
        config = FilterConfig.from_dict(content["config"])
        tasks = tuple(
            Task(*(tuple(map(tuple, columns)) for columns in task)) for task in content["tasks"]
        )
        models = tuple(params_from_arrays(f"model{i}", arrays) for i in range(len(tasks)))
        limited = config.features.standardise
        scaling = Scaling(arrays["mean"], arrays["scale"], limited)
        model = FilterModel(
            config=config,
            unit=parse_unit(content["unit"]),
            seed=hashing.checked_seed(content["seed"]),
            encoder=Encoder(config.features, scaling, tasks, models, content["num_behaviour"]),
            params=params_from_arrays("classifier", arrays),
            alpha=Estimate(**current_estimate(content["alpha"])),
            alpha_history=arrays["alpha_history"],
            threshold=float(content["threshold"]),
            spread=float(content["spread"]),
            split_fingerprint=content["split"],
            named=FittedColumns.stored(content.get("columns")),
        )
        # Traced, not computed: networks whose layers do not fit together raise here.
        rows = jax.ShapeDtypeStruct((1, len(scaling.mean)), np.float32)
        jax.eval_shape(partial(_logits_block, tasks=tasks), model.params, models, rows)
        numbers = np.array([model.threshold, model.spread, model.alpha.value], np.float64)
        if not (np.isfinite(numbers).all() and model.spread > 0 and 0 <= model.alpha.value <= 1):
            raise ValueError(f"threshold, spread and alpha {numbers}")
        if absent := {"preset", "mode"} - content.keys():
            raise KeyError(*absent)
    except DataError:
        raise
    except Exception as error:  # without a hash, as of version 0.1, damage can be anywhere
        raise DataError(
            f"{folder}: expected a whole saved filter, got: {error!r}; {REPAIR}"
        ) from error
    return model, content


def params_to_arrays(name: str, params: mlp.Params) -> dict[str, np.ndarray]:
    """Name every array of some networks, for a file."""
    made = {}
    for i, layer in enumerate(params):
        made[f"{name}.w{i}"], made[f"{name}.b{i}"] = np.asarray(layer.w), np.asarray(layer.b)
        if layer.norm is not None:
            made[f"{name}.scale{i}"] = np.asarray(layer.norm.scale)
            made[f"{name}.offset{i}"] = np.asarray(layer.norm.offset)
    return made


def params_from_arrays(name: str, arrays: dict[str, np.ndarray]) -> mlp.Params:
    """Read what `params_to_arrays` named."""

    def array(part: str, i: int) -> jax.Array:
        return jnp.asarray(arrays[f"{name}.{part}{i}"])

    made = []
    for i in range(sum(key.startswith(f"{name}.w") for key in arrays)):
        has_norm = f"{name}.scale{i}" in arrays
        norm = mlp.LayerNorm(array("scale", i), array("offset", i)) if has_norm else None
        made.append(mlp.Layer(array("w", i), array("b", i), norm))
    if not made:
        raise KeyError(name)
    return tuple(made)
