"""PU: the labelled rows and those of the unlabelled that a filter keeps. The paper's own method."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from puorl.core.errors import ConfigError
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.methods.base import Method
from puorl.pu.config import FilterConfig, preset_config
from puorl.pu.filter import DomainFilter, Mode


@dataclass(frozen=True)
class PU(Method):
    """The rows of `DomainFilter.filter`; its docstring explains ``preset``, ``mode``, ``unit``."""

    name: ClassVar[str] = "pu"

    preset: str = "default"
    mode: Mode = "hard"
    unit: str = "transition"
    config: FilterConfig | None = None
    """The preset's config with changes."""
    filter: DomainFilter | None = None
    """A fitted filter to use for all training seeds, instead of settings for one."""

    def __post_init__(self) -> None:
        given = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        if self.filter is not None and given != ["filter"]:
            raise ConfigError(
                f"pu: expected a fitted filter or settings for one, got filter= and "
                f"{', '.join(given[:-1])}; set them where the filter is made"
            )

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> "PU":
        """Make the method; settings may be fields of the filter's config too."""
        own = {f.name: settings[f.name] for f in dataclasses.fields(cls) if f.name in settings}
        changes = {name: value for name, value in settings.items() if name not in own}
        preset = preset_config(own.get("preset", "default"))
        config = preset.changed(changes)
        return cls(**({"config": None if config == preset else config} | own))

    def settings(self) -> dict[str, Any]:
        """Return preset, mode, unit and the whole config of the filter."""
        config = self.config or preset_config(self.preset)
        own = {"preset": self.preset, "mode": self.mode, "unit": self.unit}
        return own | {"config": config.to_dict()}

    def prepare(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None = None
    ) -> TrainingSet:
        """Make the training set, after fitting a filter with this seed unless one is given."""
        fitted = self.filter
        if fitted is None:
            fitted = DomainFilter(self.preset, mode=self.mode, unit=self.unit, config=self.config)
            fitted.fit(split, seed=seed, checkpoint=checkpoint)
        chosen, num_labelled = fitted.filter(split), len(split.labelled)
        kept = len(chosen) - num_labelled
        if chosen.weight is not None:
            kept = float(chosen.weight[num_labelled:].sum(dtype="float64"))
        about = {
            "method": self.name,
            "num_rows": len(chosen),
            "num_kept": len(chosen) - num_labelled,
            "kept_fraction": kept / len(split.unlabelled),
            **fitted.metadata(split),
        }
        if self.config is not None:
            about["preset"] = f"{self.preset}, changed"
        return dataclasses.replace(chosen, about=about)
