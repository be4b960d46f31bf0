"""PU: the labelled rows and those of the unlabelled that a filter keeps. The paper's own method."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from puorl.core import hashing
from puorl.core.errors import ConfigError
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.methods.base import Method
from puorl.pu.config import Evidence, FilterConfig, preset_config
from puorl.pu.filter import DomainFilter, Mode

_last_fit: dict[str, DomainFilter] = {}
"""The filter that was fitted last, by all that decides it: methods of one split share it."""


@dataclass(frozen=True)
class Filtering(Method):
    """Settings of a filter; the docstring of `DomainFilter` explains all but the last two."""

    preset: str = "default"
    mode: Mode = "hard"
    unit: str = "transition"
    evidence: Evidence = "auto"
    config: FilterConfig | None = None
    """The preset's config with changes."""
    filter: DomainFilter | None = None
    """A fitted filter to use for all training seeds, instead of settings for one."""

    def __post_init__(self) -> None:
        names = ("preset", "mode", "unit", "evidence", "config")
        given = [n for n in names if getattr(self, n) != getattr(Filtering, n)]
        if self.filter is not None and given:
            raise ConfigError(
                f"{self.name}: expected a fitted filter or settings for one, got filter= and "
                f"{', '.join(given)}; set them where the filter is made"
            )
        super().__post_init__()

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Self:
        """Make the method; settings may be fields of the filter's config too."""
        fields = [field.name for field in dataclasses.fields(cls)]
        own: dict[str, Any] = {name: settings[name] for name in fields if name in settings}
        changes = {name: value for name, value in settings.items() if name not in own}
        preset = own.get("config") or preset_config(own.get("preset", "default"))
        if (config := preset.changed(changes)) != preset:
            own["config"] = config
        return cls(**own)

    def settings(self) -> dict[str, Any]:
        """Return all settings, with the whole config of the filter."""
        config = (self.config or preset_config(self.preset)).to_dict()
        own = dataclasses.replace(self, config=None, filter=None)
        held = json.loads(json.dumps(dataclasses.asdict(own)))
        # Hashes of settings from before there was a choice of evidence stay valid.
        left_out = ("filter", "evidence") if self.evidence == "auto" else ("filter",)
        return {name: held[name] for name in held if name not in left_out} | {"config": config}

    def fitted(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None = None
    ) -> DomainFilter:
        """Return the given filter, or fit one with this seed."""
        if self.filter is not None:
            return self.filter
        config = (self.config or preset_config(self.preset)).to_dict()
        decides = {
            "split": split.fingerprint,
            "preset": self.preset,
            "config": config,
            "unit": self.unit,
            "evidence": self.evidence,
            "seed": seed,
        }
        key = hashing.of_settings(decides)
        made = DomainFilter(
            self.preset,
            mode=self.mode,
            unit=self.unit,
            evidence=self.evidence,
            config=self.config,
        )
        if key not in _last_fit:
            made.fit(split, seed=seed, checkpoint=checkpoint)
            _last_fit.clear()
            _last_fit[key] = made
        made.model_ = _last_fit[key].model_
        return made

    def found(self, fitted: DomainFilter, split: PUSplit) -> dict[str, Any]:
        """Return results of the filter for the metadata of a training set."""
        changed = {} if self.config is None else {"preset": f"{self.preset}, changed"}
        return {**fitted.metadata(split), **changed}


@dataclass(frozen=True)
class PU(Filtering):
    """The rows of `DomainFilter.filter`."""

    name: ClassVar[str] = "pu"

    def prepare(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None = None
    ) -> TrainingSet:
        """Make the training set, after fitting a filter with this seed unless one is given."""
        fitted = self.fitted(split, seed=seed, checkpoint=checkpoint)
        chosen = fitted.filter(split)
        num_kept = len(chosen) - len(split.labelled)
        weight = chosen.weight
        kept = num_kept if weight is None else float(weight[-num_kept:].sum(dtype=float))
        metadata = {
            "method": self.name,
            "num_rows": len(chosen),
            "num_kept": num_kept,
            "kept_fraction": kept / len(split.unlabelled),
            **self.found(fitted, split),
        }
        return dataclasses.replace(chosen, metadata=metadata)
