"""DomainFilter: find the target's rows among unlabelled ones, given a few labelled rows."""

import dataclasses
import os
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from puorl.core.errors import ConfigError, DataError, NotFittedError
from puorl.core.formatting import check_choice
from puorl.core.resources import check_fork, drop_programs_if_full
from puorl.core.run_folder import Checkpoint
from puorl.core.stats import Estimate
from puorl.core.tasks import Workers
from puorl.data.dataset import Dataset
from puorl.data.fitted_columns import FittedColumns
from puorl.data.split import PUSplit, Sampling
from puorl.data.training_set import TrainingSet
from puorl.pu import model as model_files
from puorl.pu.config import AlphaEstimator, Evidence, FilterConfig, Parameters, preset_config
from puorl.pu.cross_fit import check_filter
from puorl.pu.fitting import fit, identity
from puorl.pu.machines import files as machine_files
from puorl.pu.machines import fitting as machines
from puorl.pu.machines.findings import UnitTable
from puorl.pu.machines.model import MachineModel
from puorl.pu.machines.report import MachineReport, class_names, make_machine_report
from puorl.pu.model import FilterModel, Mode, keep
from puorl.pu.report import FilterReport
from puorl.pu.units import held_out_unit, parse_unit, uses_dynamics


class DomainFilter(Parameters):
    """Separate the target's rows from others without negative labels.

    ``fit`` learns from a dataset with labels or from a split, ``predict_proba`` and ``predict``
    return a number and a decision for each row, ``filter`` makes a training set, ``report``
    estimates without further labels how good it is. Attributes that end in ``_`` exist after `fit`.
    As in scikit-learn, ``get_params`` and ``set_params`` give and change the arguments of the
    constructor, and ``sklearn.base.clone`` makes an unfitted copy.
    """

    model_: FilterModel | MachineModel

    def __init__(
        self,
        preset: str = "default",
        *,
        mode: Mode = "hard",
        unit: str = "transition",
        evidence: Evidence = "auto",
        alpha_estimator: AlphaEstimator | None = None,
        config: FilterConfig | None = None,
    ) -> None:
        """Store the settings; `fit` checks each of them.

        Args:
            preset: ``default`` (a minute for a million rows on two cores), ``thorough`` (larger
                models of the dynamics, for a GPU), ``paper`` (as published) or ``robots`` (for
                single episodes of robots whose whole state is logged).
            mode: What `filter` keeps: ``hard``, rows more likely the target's than not;
                ``top_alpha``, the fraction alpha with the highest scores; ``soft``, all rows,
                weighted by their score.
            unit: What is decided about: ``transition``, ``window:50`` (steps), ``episode`` or
                ``column:robot_id``.
            evidence: What decides about units larger than a row: ``dynamics``, how each unit moves,
                for which one labelled unit is enough; ``rows``, the mean score of its rows, for
                which ten or more are needed. ``auto`` is ``dynamics`` for units, ``rows`` for rows.
            alpha_estimator: ``bbe`` (default), ``en``, ``scott`` or ``dedpul``.
            config: Settings instead of a preset.

        Raises:
            ConfigError: Single rows with ``dynamics``.
        """
        if unit == "transition":
            uses_dynamics(evidence, parse_unit(unit))
        self.preset = preset
        self.mode: Mode = mode
        self.unit = unit
        self.evidence: Evidence = evidence
        self.alpha_estimator = alpha_estimator
        self.config = config

    def __repr__(self) -> str:
        """Show what differs from the defaults, and the result of the fit."""
        fitted = f"fitted: alpha {self.alpha_.value:.1%}" if hasattr(self, "model_") else ""
        return self._describe(fitted)

    def fit(
        self,
        data: PUSplit | Dataset,
        labelled: np.ndarray | str | None = None,
        *,
        sampling: Sampling = "one",
        seed: int = 0,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        labelled_as: Mapping[str, np.ndarray | str] | None = None,
        engine: Workers | None = None,
    ) -> "DomainFilter":
        """Fit to labelled and unlabelled rows, instead of earlier ones.

        Args:
            data: All rows, or a split of them.
            labelled: Which rows of a dataset are labelled: a mask (n,), or a condition such as
                ``"pump == 'P-01'"``; by default the column that ``load(label=...)`` made.
            sampling: As in `PUSplit.from_mask`, for a dataset.
            seed: Seed of initial weights and batches, and of what is held out of a dataset.
            progress: Show a bar.
            checkpoint: Folder for progress; the same call continues a killed fit.
            labelled_as: Names of other domains, each with rows of units known to belong to it:
                (n,) bool over the pool, or a condition. For ``dynamics`` only.
            engine: Where the views of ``dynamics`` are fitted; here by default.

        Raises:
            ConfigError: Unknown preset, mode, unit, estimator or learner; ``labelled_as`` where
                rows decide.
            DataError: Too few labelled rows, or features in which nothing varies.
        """
        check_fork()
        drop_programs_if_full()
        check_choice("mode", self.mode, get_args(Mode))
        check_choice("evidence", self.evidence, get_args(Evidence))
        config, unit = self.config or preset_config(self.preset), parse_unit(self.unit)
        split = self._as_split(data, labelled, sampling, seed)
        if self.alpha_estimator is not None:
            config = config.changed({"alpha_estimator": self.alpha_estimator})
        by_dynamics = uses_dynamics(self.evidence, unit)
        job = "machines" if by_dynamics else "fit"
        store = Checkpoint(checkpoint, identity(job, split, config, unit, seed))
        if labelled_as and not by_dynamics:
            raise ConfigError(
                "labelled_as: expected units that are decided by dynamics, got rows; name them "
                "with unit='column:NAME' or 'episode'"
            )
        # An estimator that was asked for stays, and the paper's settings are as its code.
        as_given = config.alpha_estimator != "bbe" or self.alpha_estimator is not None
        as_paper = self.preset == "paper" or config == preset_config("paper")
        learn = partial(fit, choose=not (as_given or as_paper))
        if by_dynamics:
            learn = partial(machines.fit, labelled_as=labelled_as, engine=engine)
        made = learn(split, config, unit=unit, seed=seed, checkpoint=store, progress=progress)
        self.model_ = dataclasses.replace(made, named=FittedColumns.of(split.pool))
        self._split = split
        return self

    @property
    def alpha_(self) -> Estimate:
        """Fraction of target rows among the unlabelled, with its interval."""
        return self._fitted().alpha

    @property
    def alpha_history_(self) -> np.ndarray:
        """(epochs, lanes) float32. The estimate after every epoch; empty for ``dynamics``."""
        return self._fitted().alpha_history

    @property
    def units_(self) -> UnitTable:
        """Every unit with its evidence and decision, where units were decided by dynamics."""
        return self._machines("units_").units

    @property
    def classes_(self) -> tuple[str, ...]:
        """Names of the columns of ``units_.classes``: ours, the other names, and none of these.

        Empty where no other type is named, as the columns are.
        """
        model = self._machines("classes_")
        return class_names(model.names) if model.units.classes.shape[1] else ()

    @property
    def recall_(self) -> Estimate:
        """Fraction of the target's unlabelled rows that is kept, where dynamics decided."""
        return self._machines("recall_").recall

    @property
    def verdict_(self) -> str:
        """Verdict on the decisions, where dynamics decided."""
        return self._machines("verdict_").finding.verdict

    def predict_proba(self, data: PUSplit | Dataset) -> np.ndarray:
        """Probability that each row is the target's, float32 in [0, 1].

        Args:
            data: A split, for its unlabelled rows: rows without a next state get alpha itself,
                rows of a unit with a labelled row get 1. Or a dataset that the filter need not
                have seen, for all of its rows; labels are not needed.
        """
        model = self._fitted()
        _check_rows("predict_proba", data, PUSplit)
        if isinstance(data, PUSplit):
            return model.score(data)
        return model.score_rows(data)

    def predict(self, data: PUSplit | Dataset) -> np.ndarray:
        """Rows that are kept, bool, for the rows of `predict_proba`."""
        score, model = self.predict_proba(data), self._fitted()
        if isinstance(data, PUSplit):
            return model.keep(data, score, self.mode)
        return keep(score, self.mode, model.alpha.value) & getattr(model, "finds_target", True)

    def predict_units(self, data: Dataset) -> UnitTable:
        """Decide about units that the filter need not have seen; no model is trained.

        Raises:
            ConfigError: The filter decides by rows.
        """
        model = self._machines("predict_units")
        _check_rows("predict_units", data)
        return model.predict_units(data)

    def score(self, split: PUSplit) -> np.ndarray:
        """Return `predict_proba` of a split; the old name, to be removed."""
        warnings.warn("score is called predict_proba now", DeprecationWarning, stacklevel=2)
        return self.predict_proba(split)

    def filter(self, split: PUSplit | None = None) -> TrainingSet:
        """Return the labelled rows and the kept unlabelled ones.

        Args:
            split: By default that of `fit`.
        """
        split = self._fitted_split("filter") if split is None else split
        if self.mode == "soft":
            rows = np.concatenate([split.labelled, split.unlabelled])
            known = np.ones(len(split.labelled), np.float32)
            weight = np.concatenate([known, self.predict_proba(split)])
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
        engine: Workers | None = None,
    ) -> FilterReport | MachineReport:
        """Estimate without further labels how good the choice is, and whether it can be made.

        Args:
            split: The split of `fit`; needed after `load` only.
            seed: Seed of the refits; that of `fit` by default.
            progress: Show bars.
            checkpoint: As in `fit`.
            engine: Where the refits are made; here by default.

        Raises:
            DataError: Not the split that the filter was fitted on.
        """
        model = self._fitted()
        split = self._fitted_split("report") if split is None else split
        if split.fingerprint != model.split_fingerprint:
            raise DataError("report: expected the split that the filter was fitted on; pass it")
        settings = self._settings() | {"fields": split.pool.used_columns}
        if isinstance(model, MachineModel):
            return make_machine_report(model, settings | {"seed": model.seed})
        seed = model.seed if seed is None else seed
        store = Checkpoint(checkpoint, identity("report", split, model.config, model.unit, seed))
        options = {"seed": seed, "checkpoint": store, "progress": progress, "engine": engine}
        return check_filter(model, split, self.mode, settings, **options)

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
        model = self._fitted()
        files = machine_files if isinstance(model, MachineModel) else model_files
        return files.write(model, folder, metadata, force=force)  # pyright: ignore[reportArgumentType]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "DomainFilter":
        """Read what `save` wrote."""
        read = machine_files.read if machine_files.holds(folder) else model_files.read
        model, content = read(folder)
        return cls.of(model, content["preset"], content["mode"])

    @classmethod
    def of(
        cls, model: FilterModel | MachineModel, preset: str = "default", mode: Mode = "hard"
    ) -> "DomainFilter":
        """Make a fitted filter from a model."""
        evidence = "dynamics" if isinstance(model, MachineModel) else "rows"
        made = cls(preset, mode=mode, unit=str(model.unit), evidence=evidence, config=model.config)
        made.model_ = model
        return made

    def _as_split(
        self, data: Any, labelled: np.ndarray | str | None, sampling: Sampling, seed: int
    ) -> PUSplit:
        if isinstance(data, Dataset):
            held_out = held_out_unit(self.evidence, parse_unit(self.unit))
            return PUSplit.from_mask(data, labelled, sampling=sampling, unit=held_out, seed=seed)
        _check_rows("fit", data, PUSplit)
        if labelled is not None:
            raise ConfigError("fit: expected labels with a Dataset only; a split has its own")
        return data

    def _fitted_split(self, name: str) -> PUSplit:
        self._fitted()
        if not hasattr(self, "_split"):
            raise DataError(f"{name}: expected the split that the filter was fitted on; pass it")
        return self._split

    def _machines(self, name: str) -> MachineModel:
        model = self._fitted()
        if not isinstance(model, MachineModel):
            raise ConfigError(
                f"{name}: expected a filter that decides by dynamics, got one that decides by "
                "rows; fit with unit='column:NAME' or 'episode' and evidence='dynamics'"
            )
        return model

    def _fitted(self) -> FilterModel | MachineModel:
        if not hasattr(self, "model_"):
            raise NotFittedError("this filter is not fitted; call fit(split) first")
        return self.model_

    def _settings(self) -> dict[str, Any]:
        model = self._fitted()
        return {
            "preset": self.preset if self.config is None else "own settings",
            "learner": model.config.learner,
            "inputs": model.config.features.inputs,
            "mode": self.mode,
            "split": model.split_fingerprint,
        }


def _check_rows(name: str, data: Any, *others: type) -> None:
    """Refuse what was not read yet: names of files, tables, arrays."""
    if not isinstance(data, (Dataset, *others)):
        wanted = " or ".join(f"a {each.__name__}" for each in (Dataset, *others))
        raise ConfigError(
            f"{name}: expected {wanted}, got {type(data).__name__}; read files and DataFrames with "
            "puorl.load, arrays with puorl.Dataset.from_arrays"
        )
