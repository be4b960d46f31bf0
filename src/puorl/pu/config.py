"""All settings of a filter, and the presets. Free of jax, so that a command line starts fast."""

import dataclasses
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from puorl.core.errors import ConfigError
from puorl.core.formatting import check_choice

Inputs = Literal["sas", "sa", "sar", "sars"]
Evidence = Literal["auto", "dynamics", "rows"]
AlphaEstimator = Literal["bbe", "en", "scott", "dedpul"]


@dataclass(frozen=True)
class FeatureConfig:
    """Parts of a row that are used, and their form."""

    inputs: Inputs = "sas"
    """``sas``: (s, a, s'), for other dynamics; ``sar``: (s, a, r), for another reward; ``sars``:
    all; ``sa``: behaviour alone, to check whether it separates the domains."""
    difference: bool = True
    """Use s' - s instead of s': a change of dynamics is large relative to the step only."""
    standardise: bool = True
    """Scale every column to mean 0 and deviation 1 over all rows."""

    def __post_init__(self) -> None:
        check_choice("inputs", self.inputs, get_args(Inputs))


@dataclass(frozen=True)
class ResidualConfig:
    """Networks of the forward and the inverse model of the dynamics."""

    hidden: tuple[int, ...] = (128, 128)
    num_steps: int = 8_000
    """At most; fewer for little data (see max_passes)."""
    batch_size: int = 512
    learning_rate: float = 1e-3
    """At the start; it falls to 0 as a half cosine."""
    max_passes: int = 40
    """Passes through the rows at most, against overfitting of little data."""

    def steps_for(self, num_rows: int) -> int:
        """Return the number of gradient steps for data of this size."""
        return max(1, min(self.num_steps, self.max_passes * num_rows // self.batch_size + 1))


@dataclass(frozen=True)
class NetworkConfig:
    """Network and optimiser of the classifier; the defaults are the paper's."""

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    """Coupled L2, as Adam's weight decay in PyTorch."""
    batch_size: int = 256
    """Rows of P and rows of U in a batch, each."""
    layer_norm: bool = False
    """Normalise hidden layers."""
    averaging: float = 0.0
    """Score with a running mean of the weights with this memory; 0 takes the latest."""


@dataclass(frozen=True)
class MachineConfig:
    """Models of how units move (`puorl.pu.machines`), for units larger than a row."""

    hidden: tuple[int, ...] = (64, 64)
    latent_sizes: tuple[int, ...] = (4, 8)
    """Sizes of z, the numbers that describe a unit; each is tried with every seed, as lanes."""
    num_seeds: int = 2
    num_steps: int = 2_500
    batch_size: int = 512
    learning_rate: float = 1e-3
    """At the start; it falls to 0 as a half cosine, as that of z does."""
    latent_learning_rate: float = 1e-2
    noise: float = 0.3
    """Deviation of the noise on z in training."""
    penalty: float = 1e-3
    """On |z|²."""
    latent_start: float = 0.0
    """Fraction of the steps before z begins to move: what states and actions tell is learnt first,
    so that less of how a unit is driven goes into z."""
    num_trusted: int = 1
    """Lanes that decide where several drive: those that predict held-out rows best."""
    num_lags: int = 2
    """Rows before the present one that a model sees: sensors are noisy."""
    horizons: tuple[int, ...] = (1, 4, 12)
    """Rows ahead that it learns to predict; units are judged by the first."""

    @property
    def lanes(self) -> tuple[int, ...]:
        """Size of z in each lane."""
        return tuple(size for size in self.latent_sizes for _ in range(self.num_seeds))


@dataclass(frozen=True)
class FilterConfig:
    """All settings of a filter."""

    learner: str = "tedn"
    """One of `puorl.pu.learners.LEARNERS`."""
    features: FeatureConfig = FeatureConfig()
    residuals: ResidualConfig | None = ResidualConfig()
    """Models of the dynamics whose residuals are added to the inputs; None for the inputs alone."""
    network: NetworkConfig = NetworkConfig(hidden=(256, 128), layer_norm=True, averaging=0.998)
    bbe_constant: float = 4.0
    """Constant ``k`` of BBE; 1 is that of the paper's released code."""
    num_warm_up: int | None = None
    """Epochs of warm-up; None takes the learner's own number."""
    num_main: int | None = None
    """Epochs after it; None takes the learner's own number."""
    exact_ranking: bool = False
    """Rank all unlabelled rows in every epoch, as the released code does, instead of a sample."""
    alpha_estimator: AlphaEstimator = "bbe"
    """Estimator of the final alpha, from held-out scores; epochs always use BBE."""
    machines: MachineConfig = MachineConfig()
    """Used where units are decided by their dynamics."""

    def __post_init__(self) -> None:
        check_choice("alpha_estimator", self.alpha_estimator, get_args(AlphaEstimator))

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
        content = json.loads(json.dumps(dataclasses.asdict(self)))
        # Hashes of settings from before these fields existed stay valid.
        if content["alpha_estimator"] == "bbe":
            del content["alpha_estimator"]
        if self.machines == MachineConfig():
            del content["machines"]
        else:
            for name in ("latent_start", "num_trusted"):
                if getattr(self.machines, name) == getattr(MachineConfig, name):
                    del content["machines"][name]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "FilterConfig":
        """Read what `to_dict` made."""
        network, residuals = content["network"], content["residuals"]
        if residuals is not None:
            residuals = ResidualConfig(**(residuals | {"hidden": tuple(residuals["hidden"])}))
        parts: dict[str, Any] = {
            "features": FeatureConfig(**content["features"]),
            "network": NetworkConfig(**(network | {"hidden": tuple(network["hidden"])})),
            "residuals": residuals,
        }
        if "machines" in content:
            lists = {k: tuple(v) for k, v in content["machines"].items() if isinstance(v, list)}
            parts["machines"] = MachineConfig(**{**content["machines"], **lists})
        return cls(**(dict(content) | parts))


PRESETS = {
    "default": FilterConfig(),
    "thorough": FilterConfig(
        residuals=ResidualConfig(hidden=(512, 512), num_steps=20_000, batch_size=1_024),
        network=NetworkConfig(hidden=(256, 256), layer_norm=True, averaging=0.998),
    ),
    "robots": FilterConfig(
        machines=MachineConfig(
            hidden=(256, 256),
            latent_sizes=(1,),
            num_seeds=6,
            num_steps=6_000,
            penalty=0.003,
            latent_start=0.15,
            num_trusted=3,
            num_lags=0,
            horizons=(1,),
        )
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
    check_choice("preset", name, PRESETS)
    return PRESETS[name]


class Parameters:
    """The manners of scikit-learn: arguments of the constructor are attributes of the same name."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: each.default for name, each in inspect.signature(cls).parameters.items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor by name; ``deep`` makes no difference."""
        del deep
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; they count from the next `fit` on.

        Raises:
            ConfigError: No such argument.
        """
        for name in params:
            check_choice("set_params", name, tuple(self._defaults()))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def _describe(self, *more: str) -> str:
        """Show the arguments that differ from the defaults."""
        defaults = self._defaults()
        given = {k: v for k, v in self.get_params().items() if v != defaults[k]}
        words = [
            f"{k}={'FilterConfig(...)' if k == 'config' else repr(v)}" for k, v in given.items()
        ]
        return f"{type(self).__name__}({', '.join([*words, *filter(None, more)])})"
