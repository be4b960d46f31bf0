"""What a classifier sees of a row: (s, a, s') and its relatives, as one float32 matrix."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.resources import aligned_empty
from puorl.data.transitions import Transitions

Inputs = Literal["sas", "sa", "sar", "sars"]

_LIMIT = 100.0
"""Deviations beyond which a scaled value says no more."""
_GLITCH, _TAIL = 1_000.0, 0.001


@dataclass(frozen=True)
class FeatureConfig:
    """Which parts of a row are used, and in which form."""

    inputs: Inputs = "sas"
    """``sas``: (s, a, s'), for other dynamics; ``sar``: (s, a, r), for another reward; ``sars``:
    all; ``sa``: behaviour alone, to see whether it gives the domains away."""
    difference: bool = True
    """s' - s instead of s': a change of dynamics is small beside the state, not beside its step."""
    standardise: bool = True
    """Bring every column to mean 0 and deviation 1 over all rows; no labels are needed for that."""

    def __post_init__(self) -> None:
        """Refuse unknown inputs."""
        if self.inputs not in get_args(Inputs):
            raise ConfigError(
                f"inputs: expected one of {', '.join(get_args(Inputs))}, got {self.inputs!r}"
            )


class Scaling(NamedTuple):
    """Offset and divisor of every column, each (f,) float32."""

    mean: np.ndarray
    scale: np.ndarray
    limited: bool = True

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Scale in place; ``x`` is (n, f) float32. A glitch of a sensor is cut to the limit."""
        x -= self.mean
        x /= self.scale
        return np.clip(x, -_LIMIT, _LIMIT, out=x) if self.limited else x


def build(rows: Transitions, config: FeatureConfig) -> np.ndarray:
    """(n, f) float32, not yet scaled. Rows whose next state is unknown get NaN there.

    Differences are taken in the data's own precision, before anything is rounded to float32.

    Raises:
        DataError: The inputs need rewards and there are none.
    """
    parts = [rows.obs, rows.action]
    if "r" in config.inputs:
        if rows.reward is None:
            raise DataError(
                f"inputs {config.inputs!r} need rewards, and this data has none; use inputs='sas'"
            )
        parts.append(rows.reward[:, None])
    if config.inputs in ("sas", "sars"):
        parts.append(rows.next_obs - rows.obs if config.difference else rows.next_obs)
    made = aligned_empty((len(rows), sum(part.shape[1] for part in parts)))
    return np.concatenate(parts, axis=1, out=made, casting="same_kind")


def fit_scaling(x: np.ndarray, config: FeatureConfig) -> Scaling:
    """Mean and deviation of every column over the rows that are known; constant columns get 1."""
    width = x.shape[1]
    if not config.standardise:
        return Scaling(np.zeros(width, np.float32), np.ones(width, np.float32), limited=False)
    # Column by column: all at once needs several copies of the data in float64.
    mean = np.array([np.nanmean(column, dtype=np.float64) for column in x.T])
    deviation = np.array([np.nanstd(column, dtype=np.float64) for column in x.T])
    for column in _glitched(x, deviation):
        # A few absurd values would make everything else look constant.
        value = x[:, column]
        low, high = np.nanquantile(value, [_TAIL, 1 - _TAIL])
        usual = value[(value >= low) & (value <= high)]
        mean[column], deviation[column] = usual.mean(dtype=np.float64), usual.std(dtype=np.float64)
    # A column that only rounding moves carries nothing: dividing by it would blow noise up.
    varies = deviation > np.maximum(1e-6 * np.abs(mean), 1e-30)
    scale = np.where(varies, deviation, 1.0)
    return Scaling(np.asarray(mean, np.float32), np.asarray(scale, np.float32))


def _glitched(x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Columns whose deviation comes from a few values: far above that of their middle half."""
    sample = x[:: max(1, len(x) // 100_000)]
    low, high = np.nanquantile(sample, [0.25, 0.75], axis=0)
    middle = (high - low) / 1.349
    return np.flatnonzero((middle > 0) & (deviation > _GLITCH * middle))
