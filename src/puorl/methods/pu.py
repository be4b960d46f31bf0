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
        fields = [field.name for field in dataclasses.fields(cls)]
        own: dict[str, Any] = {name: settings[name] for name in fields if name in settings}
        changes = {name: value for name, value in settings.items() if name not in own}
        preset = preset_config(own.get("preset", "default"))
        if (config := preset.changed(changes)) != preset:
            own["config"] = config
        return cls(**own)

    def settings(self) -> dict[str, Any]:
        """Return preset, mode, unit and the whole config of the filter."""
        config = (self.config or preset_config(self.preset)).to_dict()
        return {"preset": self.preset, "mode": self.mode, "unit": self.unit, "config": config}

    def prepare(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None = None
    ) -> TrainingSet:
        """Make the training set, after fitting a filter with this seed unless one is given."""
        fitted = self.filter
        if fitted is None:
            fitted = DomainFilter(self.preset, mode=self.mode, unit=self.unit, config=self.config)
            fitted.fit(split, seed=seed, checkpoint=checkpoint)
        chosen = fitted.filter(split)
        num_kept = len(chosen) - len(split.labelled)
        weight = chosen.weight
        kept = num_kept if weight is None else float(weight[-num_kept:].sum(dtype=float))
        metadata = {
            "method": self.name,
            "num_rows": len(chosen),
            "num_kept": num_kept,
            "kept_fraction": kept / len(split.unlabelled),
            **fitted.metadata(split),
            **({} if self.config is None else {"preset": f"{self.preset}, changed"}),
        }
        return dataclasses.replace(chosen, metadata=metadata)
