"""DomainFilter: learn from a few labelled rows which of the unlabelled ones are the target's."""

import os
from pathlib import Path
from typing import Any, get_args

import numpy as np

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import ConfigError, DataError, NotFittedError
from puorl.core.hashing import generator
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.pu import model as learnt_files
from puorl.pu.alpha import AlphaEstimate
from puorl.pu.checks.make import make_report
from puorl.pu.config import FilterConfig, preset_config
from puorl.pu.cross_fit import Mode, cross_fit_behaviour, judge, keep
from puorl.pu.fitting import identity, learn
from puorl.pu.model import FilterModel
from puorl.pu.report import FilterReport
from puorl.pu.units import group, parse_unit


class DomainFilter:
    """Tell the target's rows from the others, without a single negative label.

    ``fit`` learns from a split, ``score`` and ``predict`` judge its unlabelled rows in their
    order, ``filter`` hands what is kept to a learner, ``report`` says without labels how good that
    is. FilterModel things end in ``_``.
    """

    model_: FilterModel

    def __init__(
        self,
        preset: str = "default",
        *,
        mode: Mode = "hard",
        unit: str = "transition",
        config: FilterConfig | None = None,
    ) -> None:
        """Store the settings; they are checked in `fit`.

        Args:
            preset: ``default`` (about a minute for a million rows on two cores), ``thorough`` (the
                same with larger models of the dynamics: wants a GPU, or patience) or ``paper``
                (as published).
            mode: What `filter` keeps: ``hard``, rows more likely the target's than not;
                ``top_alpha``, the estimated share with the highest scores; ``soft``, all rows,
                weighted by how likely they are the target's.
            unit: What is decided about: ``transition``, ``window:50`` (steps), ``episode`` or
                ``column:robot_id``.
            config: Settings of one's own instead of a preset.
        """
        self.preset = preset
        self.mode: Mode = mode
        self.unit = unit
        self.config = config

    def fit(
        self,
        split: PUSplit,
        *,
        seed: int = 0,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> "DomainFilter":
        """Learn from the split; forgets earlier fits.

        Args:
            split: Labelled and unlabelled rows.
            seed: Seed of initial weights and batches.
            progress: Show a bar.
            checkpoint: Folder to keep the state in now and then; a killed fit that is called again
                with the same folder, split and settings goes on, with the same result.

        Raises:
            ConfigError: Unknown preset, mode, unit or learner.
            DataError: Too few labelled rows, or features in which nothing varies.
        """
        config = self._checked_config()
        kept = Checkpoint(checkpoint, identity("fit", split, config, self.unit, seed))
        self.model_ = learn(
            split, config, unit=self.unit, seed=seed, checkpoint=kept, progress=progress
        )
        self._split = split
        return self

    @property
    def alpha_(self) -> AlphaEstimate:
        """Share of target rows among the unlabelled, with its interval."""
        return self._fitted().alpha

    @property
    def alpha_history_(self) -> np.ndarray:
        """(epochs, lanes) float32. The estimate after every epoch."""
        return self._fitted().alpha_history

    def score(self, split: PUSplit) -> np.ndarray:
        """(u,) float32 in [0, 1]. How likely each unlabelled row is the target's.

        Rows whose next state is unknown cannot be judged and get the estimated share itself; so do
        units of such rows alone. Rows of a unit that has a labelled row are known, and get 1.
        """
        learnt = self._fitted()
        return learnt.probability(learnt.logits(split, split.unlabelled))

    def predict(self, split: PUSplit) -> np.ndarray:
        """(u,) bool. Which unlabelled rows are kept by the modes ``hard`` and ``top_alpha``.

        Rows of a unit that has a labelled row are known and always kept; alpha is of the others.
        """
        return self._kept(split, self.score(split))

    def filter(self, split: PUSplit) -> TrainingSet:
        """The labelled rows and what is kept of the unlabelled ones."""
        if self.mode == "soft":
            rows = np.concatenate([split.labelled, split.unlabelled])
            weight = np.concatenate([np.ones(len(split.labelled), np.float32), self.score(split)])
            return TrainingSet(split.pool, rows, weight, split.returns)
        kept = split.unlabelled[self.predict(split)]
        rows = np.concatenate([split.labelled, kept])
        return TrainingSet(split.pool, rows, None, split.returns)

    def report(
        self,
        split: PUSplit | None = None,
        *,
        seed: int | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> FilterReport:
        """How good the choice is, said without labels, and whether it can be made at all.

        Every row is judged by a network that did not learn from it (a split by rows is learnt again
        for that, with a fifth of its rows held out in turn), and the same learner is tried on
        (s, a) alone.

        Args:
            split: The split of `fit`; needed after `load` only.
            seed: Seed of the refits; that of `fit` by default.
            progress: Show bars.
            checkpoint: Folder, as in `fit`.

        Raises:
            DataError: Not the split that the filter was fitted on.
        """
        learnt = self._fitted()
        split = getattr(self, "_split", None) if split is None else split
        if split is None or split.fingerprint != learnt.split_fingerprint:
            raise DataError("report: expected the split that the filter was fitted on; pass it")
        seed = learnt.seed if seed is None else seed
        kept = Checkpoint(checkpoint, identity("report", split, learnt.config, learnt.unit, seed))
        judged = judge(learnt, split, self.mode, seed=seed, checkpoint=kept, progress=progress)
        behaviour = cross_fit_behaviour(
            learnt, split, self.mode, seed=seed, checkpoint=kept, progress=progress
        )
        score = self.score(split)
        unit = parse_unit(learnt.unit)
        is_row = unit.kind == "transition"
        scattered = 0 if is_row else group(split, unit, learnt.seed).num_scattered
        return make_report(
            split,
            judged,
            behaviour,
            kept=self._kept(split, score),
            weight=score if self.mode == "soft" else None,
            num_scattered=scattered,
            alpha_history=learnt.alpha_history.mean(axis=1).tolist(),
            settings=self._settings(split, seed),
            unit=learnt.unit,
            rng=generator(seed, "filter", "report"),
        )

    def metadata(self, split: PUSplit) -> dict[str, Any]:
        """Return what the fit found and its settings, JSON-ready."""
        model = self._fitted()
        interval = model.alpha.interval
        return {
            "seed": model.seed,
            "alpha": model.alpha.value,
            "alpha_interval": None if interval is None else list(interval),
            "preset": self.preset if self.config is None else "own settings",
            "mode": self.mode,
            "unit": self.unit,
            "fitted_on_this_split": model.split_fingerprint == split.fingerprint,
        }

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the networks (safetensors) and everything else (JSON)."""
        about = {"preset": self.preset, "mode": self.mode}
        return learnt_files.write(self._fitted(), folder, about, force=force)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "DomainFilter":
        """Read what `save` wrote.

        Raises:
            DataError: Not a filter, or one of another version.
        """
        learnt, about = learnt_files.read(folder)
        return cls.of(learnt, preset=about["preset"], mode=about["mode"])

    @classmethod
    def of(
        cls, learnt: FilterModel, *, preset: str = "default", mode: Mode = "hard"
    ) -> "DomainFilter":
        """A fitted filter from what was learnt elsewhere."""
        made = cls(preset, mode=mode, unit=learnt.unit, config=learnt.config)
        made.model_ = learnt
        return made

    def _checked_config(self) -> FilterConfig:
        if self.mode not in get_args(Mode):
            raise ConfigError(
                f"mode: expected one of {', '.join(get_args(Mode))}, got {self.mode!r}"
            )
        return self.config or preset_config(self.preset)

    def _fitted(self) -> FilterModel:
        if not hasattr(self, "model_"):
            raise NotFittedError("this filter has not learnt yet; call fit(split) first")
        return self.model_

    def _kept(self, split: PUSplit, score: np.ndarray) -> np.ndarray:
        learnt = self._fitted()
        unit = parse_unit(learnt.unit)
        if unit.kind == "transition":
            return keep(score, self.mode, learnt.alpha.value)
        kept = group(split, unit, learnt.seed).known[split.unlabelled]
        kept[~kept] = keep(score[~kept], self.mode, learnt.alpha.value)
        return kept

    def _settings(self, split: PUSplit, seed: int) -> dict[str, Any]:
        learnt = self._fitted()
        return {
            "preset": self.preset if self.config is None else "own settings",
            "learner": learnt.config.learner,
            "inputs": learnt.config.features.inputs,
            "mode": self.mode,
            "sampling": split.sampling,
            "seed": seed,
            "split": learnt.split_fingerprint,
        }
