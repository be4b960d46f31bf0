"""Views of machines: lanes that see units in latents, and the estimates of new ones."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from puorl.nn import mlp
from puorl.pu.config import MachineConfig
from puorl.pu.machines import dynamics, slopes
from puorl.pu.machines.dynamics import UnitLatents, View
from puorl.pu.machines.mixture import Mixture
from puorl.pu.machines.newcomers import RowMeans

_MOST_ROWS = {"dynamics": 1_000, "relations": 250, "behaviour": 1_000, "slopes": 1_000}
"""Rows of a unit at most that its latents are estimated from; a relation is a product a sensor."""
MOST_UNITS, _LEAST_ROWS = 200, 100
"""Units from which each gives fewer rows, so that all together give no more; but at least some."""


class ViewModel(NamedTuple):
    """Lanes of one view, and the types that each finds."""

    view: View
    params: mlp.Params
    sizes: tuple[int, ...]
    """Size of z in each lane."""
    centre: np.ndarray
    """(lanes, size). Mean z of the fitted units."""
    root: np.ndarray
    """(lanes, size, size). From z to the metric of the likelihood."""
    inflation: np.ndarray
    """(lanes,). How much more z varies from run to run of a unit than its rows would explain."""
    mixtures: tuple[Mixture, ...]
    """Likely partitions of the fitted units, of all lanes."""
    held_out_nll: np.ndarray
    """(lanes,). Mean over held-out rows."""
    horizon: int = 0
    """Number of the horizon by which z is judged, for ``dynamics``."""

    def embed(self, lane: int, z: np.ndarray) -> np.ndarray:
        """(n, size of the lane) float64. Latents in the metric of the likelihood."""
        size = self.sizes[lane]
        return (z - self.centre[lane])[:, :size] @ self.root[lane][:size, :size]

    @property
    def lane(self) -> int:
        """The lane that sees types best."""
        return clearest([self])[1].lane

    def with_lanes(self, wanted: np.ndarray) -> "ViewModel":
        """Return a model of some lanes, in the order of their numbers."""
        names = ("centre", "root", "inflation", "held_out_nll")
        return self._replace(
            params=jax.tree.map(lambda leaf: leaf[wanted], self.params),
            sizes=tuple(self.sizes[k] for k in wanted),
            mixtures=tuple(
                mixture._replace(lane=int(np.searchsorted(wanted, mixture.lane)))
                for mixture in self.mixtures
                if mixture.lane in wanted
            ),
            **{name: getattr(self, name)[wanted] for name in names},
        )


def estimate_latents(
    view: ViewModel,
    lane: int,
    rows: dynamics.Batch,
    num_groups: int,
    config: MachineConfig,
    *,
    start: np.ndarray | None = None,
    num_iterations: int = 8,
) -> UnitLatents:
    """Estimate z of groups of rows by one lane; at most a thousand rows of each are used."""
    rows = thin(rows, most_rows(view.view, num_groups))
    size = view.centre.shape[1]
    used = (np.arange(size) < view.sizes[lane]).astype(np.float64)
    if view.view == "slopes":
        z = slopes.estimate(dynamics.lane(view.params, lane), slope_rows(rows), num_groups)
        count = np.bincount(np.asarray(rows.unit), minlength=num_groups)
        return UnitLatents(z * used, count[:, None, None] * np.diag(used), count)
    if start is None:
        start = np.repeat(view.centre[lane][None], num_groups, axis=0)
    return dynamics.fit_latents(
        view.view,
        dynamics.lane(view.params, lane),
        used,
        rows,
        start,
        num_iterations=num_iterations,
        penalty=config.penalty,
        horizon=view.horizon,
    )


def slope_rows(rows: dynamics.Batch) -> slopes.Rows:
    """Return the rows as `puorl.pu.machines.slopes` reads them."""
    return slopes.Rows(*(np.asarray(getattr(rows, name)) for name in slopes.Rows._fields))


def mean_nll(view: ViewModel, lane: int, rows: dynamics.Batch, own: UnitLatents) -> RowMeans:
    """Return the mean negative log-likelihood of each group's rows given z, and their number."""
    rows = thin(rows, most_rows(view.view, len(own.z)))
    params = dynamics.lane(view.params, lane)
    nll = dynamics.outputs_nll(view.view, params, rows, own.z, view.horizon).sum(axis=1)
    unit = np.asarray(rows.unit)
    count = np.bincount(unit, minlength=len(own.z))
    total = np.bincount(unit, nll, minlength=len(own.z))
    return RowMeans(total / np.maximum(count, 1), count)


def most_rows(view: View, num_groups: int) -> int:
    """Return how many rows of each group are used, at most."""
    shared = _MOST_ROWS[view] * MOST_UNITS // num_groups
    return max(min(_MOST_ROWS[view], shared), _LEAST_ROWS)


def thin(rows: dynamics.Batch, most: int) -> dynamics.Batch:
    """Keep evenly spread rows of each group, at most a number of them."""
    kept = thin_rows(np.asarray(rows.unit), most)
    return rows if len(kept) == len(rows.unit) else type(rows)(*(leaf[kept] for leaf in rows))


def thin_rows(unit: np.ndarray, most: int) -> np.ndarray:
    """(k,) int64. Evenly spread rows of each unit, at most a number of them."""
    order, size = np.argsort(unit, kind="stable"), np.bincount(unit)
    size = size[size > 0]
    place = np.arange(len(unit)) - np.repeat(np.cumsum(size) - size, size)
    stride = np.repeat(np.maximum(size / most, 1.0), size)
    return np.sort(order[np.floor(place / stride) != np.floor((place - 1) / stride)])


def clearest(views: Sequence[ViewModel]) -> tuple[ViewModel, Mixture]:
    """Return the view and the partition that see types best."""
    pairs = [(view, mixture) for view in views for mixture in view.mixtures]
    return max(pairs, key=lambda pair: (pair[1].num_types > 1, pair[1].gain))


def extra_covariance(
    view: ViewModel, lane: int, own: UnitLatents, median_rows: float
) -> np.ndarray:
    """(n, size, size). Covariance that units with fewer rows than usual have besides."""
    more = np.maximum(1.0 / np.maximum(own.num_rows, 1) - 1.0 / median_rows, 0.0)
    return view.inflation[lane] * more[:, None, None] * np.eye(view.sizes[lane])
