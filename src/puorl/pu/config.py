"""FilterConfig: all settings of a filter, and the presets."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from puorl.core.errors import ConfigError
from puorl.pu.classifier import NetworkConfig, Recipe
from puorl.pu.dynamics import ResidualConfig
from puorl.pu.features import FeatureConfig
from puorl.pu.learners import NNPU, PVU, TEDN, UPU

LEARNERS = {recipe.name: recipe for recipe in (TEDN, NNPU, UPU, PVU)}


@dataclass(frozen=True)
class FilterConfig:
    """All settings of a filter."""

    learner: str = "tedn"
    features: FeatureConfig = FeatureConfig()
    residuals: ResidualConfig | None = ResidualConfig()
    """Models of the dynamics whose residuals stand beside the inputs; None for the inputs alone."""
    network: NetworkConfig = NetworkConfig(hidden=(256, 128), layer_norm=True, averaging=0.998)
    bbe_constant: float = 4.0
    num_warm_up: int | None = None
    """Epochs of warm-up; None takes the learner's own number."""
    num_main: int | None = None
    """Epochs after it; None takes the learner's own number."""
    exact_ranking: bool = False
    """Rank all unlabelled rows in every epoch, as the released code does, instead of a sample."""

    def recipe(self) -> Recipe:
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

    @property
    def num_epochs(self) -> int:
        """Of warm-up and after it."""
        recipe = self.recipe()
        return recipe.num_warm_up + recipe.num_main

    def changed(self, changes: Mapping[str, Any]) -> "FilterConfig":
        """Return a copy with other values; a mapping changes fields of a field.

        >>> FilterConfig().changed({"network": {"hidden": (8,)}}).network.batch_size
        256

        Raises:
            ConfigError: Unknown field.
        """
        known = [field.name for field in dataclasses.fields(self)]
        values = {}
        for name, value in changes.items():
            if name not in known:
                raise ConfigError(f"pu: expected settings among {', '.join(known)}; got {name}")
            is_part = isinstance(value, Mapping)
            values[name] = dataclasses.replace(getattr(self, name), **value) if is_part else value
        return dataclasses.replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, JSON-ready."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "FilterConfig":
        """Read what `to_dict` made."""
        network, residuals = content["network"], content["residuals"]
        if residuals is not None:
            residuals = ResidualConfig(**(residuals | {"hidden": tuple(residuals["hidden"])}))
        parts = {
            "features": FeatureConfig(**content["features"]),
            "network": NetworkConfig(**(network | {"hidden": tuple(network["hidden"])})),
            "residuals": residuals,
        }
        return cls(**(dict(content) | parts))


PRESETS = {
    "default": FilterConfig(),
    "thorough": FilterConfig(
        residuals=ResidualConfig(hidden=(512, 512), num_steps=20_000, batch_size=1_024),
        network=NetworkConfig(hidden=(256, 256), layer_norm=True, averaging=0.998),
    ),
    "paper": FilterConfig(
        features=FeatureConfig(difference=False, standardise=False),
        residuals=None,
        network=NetworkConfig(),
        bbe_constant=1.0,
    ),
}


def preset_config(name: str) -> FilterConfig:
    """Return the settings of a preset.

    Raises:
        ConfigError: Unknown preset.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]
