"""DomainFilter: learn from a few labelled rows which of the unlabelled ones are the target's."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from safetensors.numpy import load_file, save_file

from puorl.core import nn
from puorl.core.errors import ConfigError, DataError, NotFittedError
from puorl.core.files import atomic_path, read_json, write_json
from puorl.core.prng import generator
from puorl.core.progress import progress_bar
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.pu import classifier, fit
from puorl.pu.features import FeatureConfig, Scaling, build, fit_scaling
from puorl.pu.intervals import bootstrap_interval
from puorl.pu.mpe.bbe import bbe
from puorl.pu.mpe.estimate import AlphaEstimate
from puorl.pu.nnpu import NNPU
from puorl.pu.pvu import PVU, decision_logit
from puorl.pu.tedn import TEDN
from puorl.pu.upu import UPU

Mode = Literal["hard", "top_alpha", "soft"]
LEARNERS = {recipe.name: recipe for recipe in (TEDN, NNPU, UPU, PVU)}


@dataclass(frozen=True)
class FilterConfig:
    """All settings of a filter."""

    learner: str = "tedn"
    features: FeatureConfig = FeatureConfig()
    network: classifier.NetworkConfig = classifier.NetworkConfig()
    bbe_constant: float = 4.0
    num_warm_up: int | None = None
    """Epochs of warm-up; None takes the learner's own number."""
    num_main: int | None = None
    """Epochs after it; None takes the learner's own number."""
    exact_ranking: bool = False
    """Rank all unlabelled rows in every epoch, as the released code does, instead of a sample."""

    def recipe(self) -> classifier.Recipe:
        """The learner with these settings.

        Raises:
            ConfigError: No such learner.
        """
        if self.learner not in LEARNERS:
            raise ConfigError(
                f"learner: expected one of {', '.join(LEARNERS)}, got {self.learner!r}"
            )
        changes: dict[str, Any] = {"bbe_constant": self.bbe_constant}
        if self.num_warm_up is not None:
            changes["num_warm_up"] = self.num_warm_up
        if self.num_main is not None:
            changes["num_main"] = self.num_main
        if self.exact_ranking:
            changes |= {"rank_sample": None, "alpha_sample": None}
        return dataclasses.replace(LEARNERS[self.learner], **changes)


PRESETS = {
    "default": FilterConfig(),
    "paper": FilterConfig(
        features=FeatureConfig(difference=False, standardise=False), bbe_constant=1.0
    ),
}


class DomainFilter:
    """Tell the target's rows from the others, without a single negative label.

    ``fit`` learns from a split, ``score`` and ``predict`` judge its unlabelled rows in their
    order, ``filter`` hands what is kept to a learner. Learnt things end in ``_``.
    """

    def __init__(
        self, preset: str = "default", *, mode: Mode = "hard", config: FilterConfig | None = None
    ) -> None:
        """Store the settings; they are checked in `fit`.

        Args:
            preset: ``default`` (standardised s, a, s' - s) or ``paper`` (as published).
            mode: What `filter` keeps: ``hard``, rows more likely the target's than not;
                ``top_alpha``, the estimated share with the highest scores; ``soft``, all rows,
                weighted by how likely they are the target's.
            config: Settings of one's own instead of a preset.
        """
        self.preset = preset
        self.mode = mode
        self.config = config

    def fit(self, split: PUSplit, *, seed: int = 0, progress: bool = False) -> "DomainFilter":
        """Learn from the split; forgets earlier fits.

        Args:
            split: Labelled and unlabelled rows.
            seed: Seed of initial weights and batches.
            progress: Show a bar.

        Raises:
            ConfigError: Unknown preset, mode or learner.
            DataError: Too few labelled rows, or features in which nothing varies.
        """
        config = self._checked_config()
        recipe = config.recipe()
        x = build(split.pool.rows, config.features)
        self.scaling_ = fit_scaling(x, config.features)
        known = np.logical_not(np.isnan(x).any(axis=1))
        if not (np.nanmax(x, axis=0) > np.nanmin(x, axis=0)).any():
            raise DataError("every column is constant: there is nothing to tell rows apart by")
        x = np.nan_to_num(self.scaling_(x), copy=False)
        rows = fit.lane_rows(split, known, seed)
        history = []
        total = recipe.num_warm_up + recipe.num_main
        with progress_bar("filter", total=total, unit="epochs", show=progress) as advance:
            for point in fit.epochs(x, rows, recipe, config.network, seed=seed):
                history.append(point.alpha)
                self.params_ = point.lanes.params
                advance(1)
        self.alpha_history_ = np.stack(history)
        self.config_ = config
        self.folds_ = None if split.unit == "transition" else np.unique(split.labelled_part)
        self.split_fingerprint_ = split.fingerprint
        self.alpha_ = self._estimate_alpha(split, x, rows, seed)
        return self

    def score(self, split: PUSplit) -> np.ndarray:
        """(u,) float32 in [0, 1]. How likely each unlabelled row is the target's.

        Rows whose next state is unknown cannot be judged and get the estimated share itself.
        """
        logit = self._logits(split, split.unlabelled)
        if self.config_.learner == "pvu":
            # These odds are of being labelled; shift them to those of being the target's.
            logit = logit - np.float32(decision_logit(self.alpha_.value))
        probability = 1.0 / (1.0 + np.exp(-np.clip(logit, -60, 60)))
        return np.where(np.isnan(logit), self.alpha_.value, probability).astype(np.float32)

    def predict(self, split: PUSplit) -> np.ndarray:
        """(u,) bool. Which unlabelled rows are kept by the modes ``hard`` and ``top_alpha``."""
        score = self.score(split)
        if self.mode == "top_alpha":
            kept = np.zeros(len(score), bool)
            kept[np.argsort(-score, kind="stable")[: int(self.alpha_.value * len(score))]] = True
            return kept
        return score >= 0.5

    def filter(self, split: PUSplit) -> TrainingSet:
        """The labelled rows and what is kept of the unlabelled ones."""
        if self.mode == "soft":
            rows = np.concatenate([split.labelled, split.unlabelled])
            weight = np.concatenate([np.ones(len(split.labelled), np.float32), self.score(split)])
            return TrainingSet(split.pool, rows, weight, split.returns)
        kept = split.unlabelled[self.predict(split)]
        rows = np.concatenate([split.labelled, kept])
        return TrainingSet(split.pool, rows, None, split.returns)

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the network (safetensors) and everything else (JSON)."""
        self._require_fitted()
        arrays = {"mean": self.scaling_.mean, "scale": self.scaling_.scale}
        arrays["alpha_history"] = self.alpha_history_
        for i, layer in enumerate(self.params_):
            arrays[f"w{i}"], arrays[f"b{i}"] = np.asarray(layer.w), np.asarray(layer.b)
        content = {
            "puorl_filter": 1,
            "preset": self.preset,
            "mode": self.mode,
            "config": dataclasses.asdict(self.config_),
            "alpha": self.alpha_.to_dict(),
            "folds": None if self.folds_ is None else self.folds_.tolist(),
            "split": self.split_fingerprint_,
        }
        with atomic_path(folder, force=force, marker="filter.json") as part:
            part.mkdir()
            write_json(part / "filter.json", content)
            save_file(arrays, part / "filter.safetensors")
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "DomainFilter":
        """Read what `save` wrote.

        Raises:
            DataError: Not a filter, or one of another version.
        """
        folder = Path(folder)
        content = read_json(folder / "filter.json")
        if not isinstance(content, dict) or content.get("puorl_filter") != 1:
            raise DataError(f"{folder}: expected a saved filter of version 1, got something else")
        try:
            arrays = load_file(folder / "filter.safetensors")
            made = cls(content["preset"], mode=content["mode"], config=_config(content["config"]))
            made.config_ = _config(content["config"])
            made.scaling_ = Scaling(arrays["mean"], arrays["scale"])
            made.alpha_history_ = arrays["alpha_history"]
            num_layers = sum(name[0] == "w" for name in arrays)
            made.params_ = tuple(
                nn.Layer(arrays[f"w{i}"], arrays[f"b{i}"])  # pyright: ignore[reportArgumentType]
                for i in range(num_layers)
            )
            interval = content["alpha"]["interval"]
            made.alpha_ = AlphaEstimate(
                content["alpha"]["value"],
                None if interval is None else tuple(interval),
                content["alpha"]["method"],
            )
            made.folds_ = None if content["folds"] is None else np.array(content["folds"])
            made.split_fingerprint_ = content["split"]
        except (OSError, KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
            raise DataError(f"{folder}: expected a whole saved filter, got: {error}") from error
        return made

    def _checked_config(self) -> FilterConfig:
        if self.mode not in get_args(Mode):
            raise ConfigError(
                f"mode: expected one of {', '.join(get_args(Mode))}, got {self.mode!r}"
            )
        if self.config is not None:
            return self.config
        if self.preset not in PRESETS:
            raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}, got {self.preset!r}")
        return PRESETS[self.preset]

    def _require_fitted(self) -> None:
        if not hasattr(self, "params_"):
            raise NotFittedError("this filter has not learnt yet; call fit(split) first")

    def _estimate_alpha(
        self, split: PUSplit, x: np.ndarray, rows: classifier.Rows, seed: int
    ) -> AlphaEstimate:
        """BBE on all held-out rows of all lanes, with an interval."""
        held_p, held_u = np.asarray(rows.held_p), np.asarray(rows.held_u)
        score_p = np.concatenate([self._lane_logits(k, x[p]) for k, p in enumerate(held_p)])
        score_u = np.concatenate([self._lane_logits(k, x[u]) for k, u in enumerate(held_u)])
        episode = split.pool.episode
        groups = (
            episode[held_p.ravel()] if split.unit == "episode" and episode is not None else None
        )

        def estimator(p: np.ndarray, u: np.ndarray) -> AlphaEstimate:
            return bbe(p, u, k=self.config_.bbe_constant)

        rng = generator(seed, "filter", "interval")
        interval = bootstrap_interval(estimator, score_p, score_u, rng=rng, groups_p=groups)
        return dataclasses.replace(estimator(score_p, score_u), interval=interval)

    def _lane_logits(self, lane: int, x: np.ndarray) -> np.ndarray:
        one = tuple(
            nn.Layer(layer.w[lane : lane + 1], layer.b[lane : lane + 1]) for layer in self.params_
        )
        return classifier.score_rows(one, x)[0]

    def _logits(self, split: PUSplit, positions: np.ndarray) -> np.ndarray:
        """(k,) float32. Logits of unlabelled rows; NaN where the next state is unknown."""
        self._require_fitted()
        x = build(split.pool.rows[positions], self.config_.features)
        if x.shape[1] != len(self.scaling_.mean):
            raise DataError(
                f"expected rows with {len(self.scaling_.mean)} inputs, as in fit, got {x.shape[1]}"
            )
        unknown = np.isnan(x).any(axis=1)
        x = np.nan_to_num(self.scaling_(x), copy=False)
        if self.folds_ is not None and split.fingerprint == self.split_fingerprint_:
            # Cross-fitting: every episode is judged by the lane that did not learn from it.
            logit = np.empty(len(x), np.float32)
            for lane, fold in enumerate(self.folds_):
                mine = split.unlabelled_part == fold
                logit[mine] = self._lane_logits(lane, x[mine])
        else:
            logit = classifier.score_rows(self.params_, x).mean(axis=0)
        logit[unknown] = np.nan
        return logit


def _config(content: dict[str, Any]) -> FilterConfig:
    network = dict(content["network"])
    network["hidden"] = tuple(network["hidden"])
    parts = {
        "features": FeatureConfig(**content["features"]),
        "network": classifier.NetworkConfig(**network),
    }
    return FilterConfig(**{**content, **parts})
