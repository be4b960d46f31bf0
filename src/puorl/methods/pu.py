"""PU: the labelled rows and what a filter keeps of the unlabelled ones. The paper's own method."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from puorl.core.errors import ConfigError
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.pu.cross_fit import Mode
from puorl.pu.filter import DomainFilter


@dataclass(frozen=True)
class PU:
    """What `DomainFilter.filter` hands over; see there for ``preset``, ``mode`` and ``unit``."""

    name: ClassVar[str] = "pu"
    needs_truth: ClassVar[bool] = False

    preset: str = "default"
    mode: Mode = "hard"
    unit: str = "transition"
    filter: DomainFilter | None = None
    """A fitted filter with settings of its own: one then serves all training seeds."""

    def __post_init__(self) -> None:
        """Refuse settings that a fitted filter would silently overrule."""
        own = [f.name for f in dataclasses.fields(self) if f.name != "filter"]
        given = [name for name in own if getattr(self, name) != getattr(PU, name)]
        if self.filter is not None and given:
            raise ConfigError(
                f"pu: expected a fitted filter or settings for one, got filter= and "
                f"{', '.join(given)}; set them where the filter is made"
            )

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """What a learner is to train on.

        Args:
            split: Labelled and unlabelled rows.
            seed: Seed of the fit; a filter that was handed in keeps its own.

        Raises:
            ConfigError: Unknown preset, mode or unit.
            DataError: Too few labelled rows, or features in which nothing varies.
            NotFittedError: The filter that was handed in has not learnt yet.
        """
        fitted = self.filter
        if fitted is None:
            fitted = DomainFilter(self.preset, mode=self.mode, unit=self.unit)
            fitted.fit(split, seed=seed)
        chosen = fitted.filter(split)
        return dataclasses.replace(chosen, about=self._about(fitted, split, chosen))

    def _about(self, fitted: DomainFilter, split: PUSplit, chosen: TrainingSet) -> dict[str, Any]:
        alpha, num_labelled = fitted.alpha_, len(split.labelled)
        num_kept = len(chosen) - num_labelled
        weight = chosen.weight
        kept = num_kept if weight is None else float(weight[num_labelled:].sum(dtype="float64"))
        return {
            "method": self.name,
            "seed": fitted.model_.seed,
            "num_rows": len(chosen),
            "num_kept": num_kept,
            "kept_fraction": kept / len(split.unlabelled),
            "alpha": alpha.value,
            "alpha_interval": None if alpha.interval is None else list(alpha.interval),
            "preset": fitted.preset if fitted.config is None else "own settings",
            "mode": fitted.mode,
            "unit": fitted.unit,
            "fitted_on_this_split": fitted.model_.split_fingerprint == split.fingerprint,
        }
