"""Estimators by name, and the settings of the networks that they fit; no JAX."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from puorl.core.errors import ConfigError

ESTIMATORS = {
    "blend": "mean of fitted Q and the model",
    "fqe": "fitted Q evaluation",
    "model": "roll-out in a learnt model",
    "dr": "doubly robust",
    "pdis": "per-decision importance sampling",
    "wis": "weighted importance sampling",
    "behaviour": "the logged policy's own return",
}
"""Title of every estimator by its name, in the order of tables."""
DENSITIES = ("dr", "pdis", "wis")
"""Estimators that need the probability of a logged action under the policy."""


@dataclass(frozen=True)
class OPEConfig:
    """Settings of the networks; every network is fitted ``critics`` times, as lanes."""

    critics: int = 5
    """Lanes. Each leaves out one fold of the episodes."""
    updates: int = 20_000
    """Updates of each critic of fitted Q evaluation."""
    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 128
    learning_rate: float = 3e-4
    target_interval: int = 20
    """Updates of a critic between two updates of its target network."""
    model_updates: int = 20_000
    """Updates of each model of the dynamics; the behaviour's has a quarter."""
    num_draws: int = 500
    """Bootstrap draws of episodes for the intervals of estimators without critics."""

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("critics", "updates", "batch_size", "target_interval", "model_updates"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if self.updates % self.target_interval:
            raise ConfigError(
                f"updates: expected a multiple of target_interval ({self.target_interval}), got "
                f"{self.updates}"
            )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "OPEConfig":
        """Make a config of some settings; the others have their defaults.

        Raises:
            ConfigError: An unknown setting, or a value out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        if unknown := sorted(set(settings) - set(known)):
            raise ConfigError(
                f"ope: expected settings among {', '.join(known)}; got {', '.join(unknown)}"
            )
        fixed: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in settings.items()
        }
        return cls(**fixed)
