"""FilterConfig: all settings of a filter, and the presets."""

import dataclasses
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

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "FilterConfig":
        """Read what `dataclasses.asdict` made, after a trip through JSON."""
        network, models = dict(content["network"]), content["residuals"]
        network["hidden"] = tuple(network["hidden"])
        if models is not None:
            models = ResidualConfig(**(models | {"hidden": tuple(models["hidden"])}))
        parts = {
            "features": FeatureConfig(**content["features"]),
            "network": NetworkConfig(**network),
            "residuals": models,
        }
        return cls(**(content | parts))


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
