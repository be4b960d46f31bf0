"""Is a new unit of a known type? What is usual of units that networks have not seen.

A new unit is not like one of the fit: networks and types were made to suit those. So it is compared
with what is usual of units that were left out:

- z (`UnitFit`). Units of the fit are estimated as new ones are, from the mean of the fit on, and
  each is compared with types that the others make. Where units are few these are uncertain, and a
  unit that is left out is far from them.
- Rows (`RowFit`). They are compared with rows of fitted units that were held out in training.

To leave units out of the training of networks would take many times as long. By how much units that
networks have not seen are farther away, and how heavy the tails are, was set on drawn fleets for
development; ``benchmarks/fleets/newcomers.py`` measures the rates on others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from puorl.pu.machines.dynamics import View
from puorl.pu.machines.evidence import PRIOR, SPACING
from puorl.pu.machines.mixture import Mixture, mahalanobis

FALSELY_NONE = 1e-2
"""Chance of a new unit of a known type to be called none of these."""
_FARTHER = 1.3
"""Square of the distance of z, in that of fitted units."""
_WORSE, _WORSE_BY_FEW = 1.5, 15.0
"""Scale of the misfit of rows, in that of fitted units; and what of it falls with the number of
units where sensors are related: of few, a network learns each by heart."""
_DEGREES, _DEGREES_OF_ROWS = 15.0, 12.0
"""Degrees of freedom at most: units of a type are not normal."""
_LEAST_DEGREES = 3.0
_BLOCK = 20
"""Rows that are averaged, to see how much neighbours are alike."""


class Ordinary(NamedTuple):
    """How odd units look."""

    chance: np.ndarray
    """(n,) float64. Chance of a unit of a known type to look as odd as each: z, and rows."""
    rate: float
    """Chance at which they are called none of these."""

    @classmethod
    def of(cls, chances: Sequence[np.ndarray], rate: float) -> "Ordinary":
        """Combine several tests: the least chance counts, as often as there are tests."""
        return cls(np.minimum(len(chances) * np.min(chances, axis=0), 1.0), rate)

    @property
    def is_outside(self) -> np.ndarray:
        """(n,) bool. Units that are none of these."""
        return self.chance < self.rate

    @property
    def trust(self) -> np.ndarray:
        """(n,) float64. Chance that units are of any known type.

        As common as it is for an ordinary unit to look so: even odds.
        """
        return 1.0 / (1.0 + self.rate / np.maximum(self.chance, np.finfo(float).tiny))

    def where_unseen(self) -> "Ordinary":
        """Trust all but those outside: where no types are seen, nobody else is dropped."""
        return self._replace(chance=np.where(self.is_outside, self.chance, np.inf))


class RowMeans(NamedTuple):
    """How well rows of units are predicted."""

    mean: np.ndarray
    """(n,) float64. Mean negative log-likelihood."""
    num_rows: np.ndarray
    """(n,) int."""


class RowFit(NamedTuple):
    """How well one lane predicts rows of fitted units that it was not trained on, in nats a row."""

    lane: int
    mean: float
    """Of the units' mean negative log-likelihoods."""
    between: float
    """Their variance, less what the number of rows explains."""
    within: float
    """Variance of rows of a unit: that of the mean of n rows is this over n."""
    num_units: int

    @classmethod
    def of(cls, lane: int, nll: np.ndarray, unit: np.ndarray) -> "RowFit":
        """Summarise rows, (n,) float, in the order of time within each unit, (n,) int."""
        size = np.bincount(unit)
        size = size[size > 0]
        place = np.arange(len(unit)) - np.repeat(np.cumsum(size) - size, size)
        block = np.cumsum(place % _BLOCK == 0) - 1
        length = np.bincount(block)
        whole = length[block] == _BLOCK
        number = np.unique(unit, return_inverse=True)[1].reshape(-1)
        mean = np.bincount(number, nll) / size
        apart = np.bincount(block[whole], (nll - mean[number])[whole])
        apart = apart[np.unique(block[whole])] / _BLOCK
        within = float(_BLOCK * np.mean(np.square(apart))) if len(apart) else float(nll.var())
        between = float(mean.var(ddof=1) - within * np.mean(1.0 / size))
        return cls(lane, float(mean.mean()), max(between, 0.0), within, len(size))

    def probability(self, rows: RowMeans) -> np.ndarray:
        """(n,) float64. Chance that a unit of the fit is predicted as badly as this or worse."""
        from scipy import stats  # takes time to import

        within = self.within / np.maximum(rows.num_rows, 1)
        variance = self.between * (1.0 + 1.0 / self.num_units) + within
        away = (rows.mean - self.mean) / np.sqrt(np.maximum(variance, 1e-12))
        return np.asarray(stats.t.sf(away, max(self.num_units - 1, 1)))

    def new_probability(self, rows: RowMeans, view: View) -> np.ndarray:
        """(n,) float64. The same for units that networks have not seen."""
        from scipy import stats  # takes time to import

        within = self.within / np.maximum(rows.num_rows, 1)
        # Few units hardly show how much units vary: at least as much as their rows explain.
        between = np.maximum(self.between, within)
        variance = between * (1.0 + 1.0 / self.num_units) + within
        away = (rows.mean - self.mean) / np.sqrt(np.maximum(variance, 1e-12))
        degrees = min(max(self.num_units - 1, 1), _DEGREES_OF_ROWS)
        worse = _WORSE + (_WORSE_BY_FEW / self.num_units if view == "relations" else 0.0)
        return np.asarray(stats.t.sf(away / worse, degrees))


class UnitFit(NamedTuple):
    """Where units of the fit lie in the latents of one lane if they are estimated as new ones."""

    mean: np.ndarray
    """(types, size)."""
    covariance: np.ndarray
    """(size, size). Of units of a type."""
    distance: float
    """Mean square of a unit's distance from the nearest type, of the others', for each number of z:
    more than 1 where few units were fitted."""
    num_units: int

    @classmethod
    def of(cls, mixture: Mixture, z: np.ndarray, member: np.ndarray) -> "UnitFit":
        """Summarise units.

        Args:
            mixture: Types, whose covariance is what that of these units is drawn to.
            z: (n, size) float. In the metric of the likelihood, without shifts of drivers.
            member: (n,) int. Their types.
        """
        hot = np.eye(mixture.num_types)[member]
        mean, covariance = _moments(z, hot, mixture.covariance)
        away = []
        for unit in np.flatnonzero(hot.sum(axis=0)[member] > 1.0):  # others show its type
            others = np.arange(len(z)) != unit
            own = _moments(z[others], hot[others], mixture.covariance)
            away.append(mahalanobis(z[unit] - own[0], own[1]).min())
        distance = float(np.mean(away)) / z.shape[1] if away else 1.0
        return cls(mean, covariance, distance, len(z))

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        arrays = {"mean": self.mean.tolist(), "covariance": self.covariance.tolist()}
        return self._asdict() | arrays

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "UnitFit":
        """Return what `to_dict` made."""
        mean, covariance = (np.asarray(content[name]) for name in ("mean", "covariance"))
        return cls(mean, covariance, content["distance"], content["num_units"])

    def new_probability(self, z: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """(n,) float64. Chance that a new unit of a type is as far from all types as this.

        Args:
            z: (n, size).
            extra: (n, size, size). Covariance to add for each unit, since it has few rows.
        """
        from scipy import stats  # takes time to import

        spread = self.covariance + extra
        nearest = np.min([mahalanobis(z - mean, spread) for mean in self.mean], axis=0)
        ratio = nearest / (z.shape[1] * self.distance * _FARTHER)
        degrees = np.clip(self.num_units - len(self.mean), _LEAST_DEGREES, _DEGREES)
        return np.asarray(stats.f.sf(ratio, z.shape[1], degrees))


def _moments(z: np.ndarray, hot: np.ndarray, usual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means of types, and the covariance of units of a type, drawn to a usual one.

    Args:
        z: (n, size) float.
        hot: (n, types) float. 1 for the type of each unit.
        usual: (size, size) float.
    """
    mean = (hot.T @ z + SPACING * z.mean(axis=0)) / (hot.sum(axis=0) + SPACING)[:, None]
    left = z - hot @ mean
    return mean, (left.T @ left + PRIOR * usual) / (len(z) + PRIOR)
