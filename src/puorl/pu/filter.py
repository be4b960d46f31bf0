"""DomainFilter: find the target's rows among unlabelled ones, given a few labelled rows."""

import os
from pathlib import Path
from typing import Any, get_args

import numpy as np

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import DataError, NotFittedError
from puorl.core.hashing import generator
from puorl.core.resources import check_fork
from puorl.core.stats import Estimate
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.pu import model as model_files
from puorl.pu.config import AlphaEstimator, FilterConfig, check_choice, preset_config
from puorl.pu.cross_fit import cross_fit, cross_fit_behaviour
from puorl.pu.fitting import fit, identity
from puorl.pu.model import FilterModel, Mode
from puorl.pu.report import FilterReport, make_report
from puorl.pu.units import parse_unit


class DomainFilter:
    """Separate the target's rows from others without negative labels.

    ``fit`` learns from a split, ``score`` and ``predict`` return a number and a decision for each
    unlabelled row, ``filter`` makes a training set, ``report`` estimates without further labels how
    good it is. Attributes that end in ``_`` exist after `fit`.
    """

    model_: FilterModel

    def __init__(
        self,
        preset: str = "default",
        *,
        mode: Mode = "hard",
        unit: str = "transition",
        alpha_estimator: AlphaEstimator | None = None,
        config: FilterConfig | None = None,
    ) -> None:
        """Store the settings; they are checked in `fit`.

        Args:
            preset: ``default`` (a minute for a million rows on two cores), ``thorough`` (larger
                models of the dynamics, for a GPU) or ``paper`` (as published).
            mode: What `filter` keeps: ``hard``, rows more likely the target's than not;
                ``top_alpha``, the fraction alpha with the highest scores; ``soft``, all rows,
                weighted by their score.
            unit: What is decided about: ``transition``, ``window:50`` (steps), ``episode`` or
                ``column:robot_id``.
            alpha_estimator: ``bbe`` (default), ``en``, ``scott`` or ``dedpul``.
            config: Settings instead of a preset.
        """
        self.preset = preset
        self.mode: Mode = mode
        self.unit = unit
        self.alpha_estimator = alpha_estimator
        self.config = config

    def fit(
        self,
        split: PUSplit,
        *,
        seed: int = 0,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> "DomainFilter":
        """Fit to a split, instead of earlier ones.

        Args:
            split: Labelled and unlabelled rows.
            seed: Seed of initial weights and batches.
            progress: Show a bar.
            checkpoint: Folder for progress; the same call continues a killed fit.

        Raises:
            ConfigError: Unknown preset, mode, unit, estimator or learner.
            DataError: Too few labelled rows, or features in which nothing varies.
        """
        check_fork()
        check_choice("mode", self.mode, get_args(Mode))
        config, unit = self.config or preset_config(self.preset), parse_unit(self.unit)
        if self.alpha_estimator is not None:
            config = config.changed({"alpha_estimator": self.alpha_estimator})
        store = Checkpoint(checkpoint, identity("fit", split, config, unit, seed))
        self.model_ = fit(split, config, unit=unit, seed=seed, checkpoint=store, progress=progress)
        self._split = split
        return self

    @property
    def alpha_(self) -> Estimate:
        """Fraction of target rows among the unlabelled, with its interval."""
        return self._fitted().alpha

    @property
    def alpha_history_(self) -> np.ndarray:
        """(epochs, lanes) float32. The estimate after every epoch."""
        return self._fitted().alpha_history

    def score(self, split: PUSplit) -> np.ndarray:
        """(u,) float32 in [0, 1]. Probability that each unlabelled row is the target's.

        Rows without a next state get alpha itself, rows of a unit with a labelled row get 1.
        """
        return self._fitted().score(split)

    def predict(self, split: PUSplit) -> np.ndarray:
        """(u,) bool. Unlabelled rows that are kept; rows of a unit with a labelled row always."""
        return self._fitted().keep(split, self.score(split), self.mode)

    def filter(self, split: PUSplit) -> TrainingSet:
        """Return the labelled rows and the kept unlabelled ones."""
        if self.mode == "soft":
            rows = np.concatenate([split.labelled, split.unlabelled])
            weight = np.concatenate([np.ones(len(split.labelled), np.float32), self.score(split)])
            return TrainingSet(split.pool, rows, weight, split.returns)
        rows = np.concatenate([split.labelled, split.unlabelled[self.predict(split)]])
        return TrainingSet(split.pool, rows, None, split.returns)

    def report(
        self,
        split: PUSplit | None = None,
        *,
        seed: int | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> FilterReport:
        """Estimate without further labels how good the choice is, and whether it can be made.

        Args:
            split: The split of `fit`; needed after `load` only.
            seed: Seed of the refits; that of `fit` by default.
            progress: Show bars.
            checkpoint: As in `fit`.

        Raises:
            DataError: Not the split that the filter was fitted on.
        """
        model = self._fitted()
        split = getattr(self, "_split", None) if split is None else split
        if split is None or split.fingerprint != model.split_fingerprint:
            raise DataError("report: expected the split that the filter was fitted on; pass it")
        seed = model.seed if seed is None else seed
        store = Checkpoint(checkpoint, identity("report", split, model.config, model.unit, seed))
        scores, behaviour = (
            make(model, split, self.mode, seed=seed, checkpoint=store, progress=progress)
            for make in (cross_fit, cross_fit_behaviour)
        )
        score, grouping = self.score(split), model.grouping(split)
        return make_report(
            split,
            scores,
            behaviour,
            kept=model.keep(split, score, self.mode),
            weight=score if self.mode == "soft" else None,
            num_scattered=0 if grouping is None else grouping.num_scattered,
            alpha_history=model.alpha_history.mean(axis=1).tolist(),
            settings=self._settings() | {"sampling": split.sampling, "seed": seed},
            unit=model.unit,
            rng=generator(seed, "filter", "report"),
        )

    def metadata(self, split: PUSplit) -> dict[str, Any]:
        """Return settings and results of the fit, JSON-ready."""
        model, settings = self._fitted(), self._settings()
        return {
            "seed": model.seed,
            "alpha": model.alpha.value,
            "alpha_interval": [model.alpha.low, model.alpha.high],
            "preset": settings["preset"],
            "mode": self.mode,
            "unit": str(model.unit),
            "fitted_on_this_split": model.split_fingerprint == split.fingerprint,
        }

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the networks (safetensors) and everything else (JSON)."""
        metadata = {"preset": self.preset, "mode": self.mode}
        return model_files.write(self._fitted(), folder, metadata, force=force)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "DomainFilter":
        """Read what `save` wrote."""
        model, content = model_files.read(folder)
        return cls.of(model, content["preset"], content["mode"])

    @classmethod
    def of(cls, model: FilterModel, preset: str = "default", mode: Mode = "hard") -> "DomainFilter":
        """Make a fitted filter from a model."""
        made = cls(preset, mode=mode, unit=str(model.unit), config=model.config)
        made.model_ = model
        return made

    def _fitted(self) -> FilterModel:
        if not hasattr(self, "model_"):
            raise NotFittedError("this filter is not fitted; call fit(split) first")
        return self.model_

    def _settings(self) -> dict[str, Any]:
        config = self._fitted().config
        return {
            "preset": self.preset if self.config is None else "own settings",
            "learner": config.learner,
            "inputs": config.features.inputs,
            "mode": self.mode,
            "split": self._fitted().split_fingerprint,
        }
