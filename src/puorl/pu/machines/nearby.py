"""A second look at single episodes whose latents leave a doubt: what others do at the same place.

Latents of a short episode say where it went, not how it moves: the network errs where it fell, and
z takes that up. Once types are seen, many episodes are surely of one or the other, and most of them
have been at the same states. So each row in doubt is predicted by a linear model of the rows
nearest to it, with slopes that all units share and an offset for each type. What either type would
make of it differs by that offset alone, whatever is hard to predict there.

How far the mean of such rows tells units apart is measured on units that are sure, each judged by
the rows of others, at their rows nearest to those in doubt. Where it does not, nothing is changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.pu.machines.decisions import LaneChances, decide_again, quality
from puorl.pu.machines.model import MachineModel
from puorl.pu.machines.sequences import Scaling
from puorl.pu.units import Units

_SURE, _AGREED = 0.95, 0.9
"""Probability from which a unit counts as surely ours, and below one less it as surely another,
where models agree so far."""
_NUM_LOOKS = 2
"""In the second, what is left is compared with what the first tells surely, too."""
_FEW_ROWS, _MANY_ROWS = 5, 150
"""Rows by which a unit is judged, at least and at most."""
_MOST_ASKED = 10_000
"""Rows of all units in doubt together, and of those by which it is measured how well this tells."""
_NUM_REFERENCE = 60_000
"""Rows of either type that others are compared with."""
_FEWEST_SURE, _MOST_SURE = 5, 100
"""Units of either type by which it is measured how well this tells, at least and at most."""
_NUM_NEIGHBOURS, _SLACK = 2.5, 1.0
"""Neighbours of a row, in those that its linear model has numbers; and by how much farther they may
be than the nearest, which are hardly nearer but take three times as long."""
_MOST_NUMBERS = 80
"""Numbers of a linear model: nothing is near where there are more columns."""
_LEAST_SHARE = 0.03
"""Fraction of the neighbours, by weight, that either type must have."""
_USUAL, _NUM_USUAL = 0.99, 2_000
"""Fraction of the rows of sure units, and how many are asked, that have neighbours as near as a row
in doubt must."""
_RIGHT = 0.95
"""Fraction of the sure units on either side that must be told rightly."""
_SLOPE_RIDGE, _TYPE_RIDGE = 1e-2, 1.0
"""Rows that the priors of slopes and of the offset of a type are worth."""
_DEGREES = 4.0
_MOST_NATS = 4.5
"""A unit is not told more surely than this."""
_BLOCK = 1_000
"""Rows that are compared at once."""


class Rows(NamedTuple):
    """Rows of several units."""

    x: np.ndarray
    """(n, f) float. States and actions, standardised."""
    change: np.ndarray
    """(n, d) float. What came of them, standardised."""
    unit: np.ndarray
    """(n,) int. Unit of each."""

    @classmethod
    def of(cls, data: Dataset, unit: np.ndarray) -> "Rows":
        """Standardise rows with known ends."""
        x, change = np.hstack([data.obs, data.action]), data.next_obs - data.obs
        known = np.isfinite(x).all(axis=1) & np.isfinite(change).all(axis=1)
        x, change = x[known], change[known]
        return cls(Scaling.of(x)(x), Scaling.of(change)(change), unit[known])

    def take(self, which: np.ndarray | slice) -> "Rows":
        """Return some of them."""
        return Rows(*(part[which] for part in self))


def look_again(
    model: MachineModel,
    lanes: Sequence[LaneChances],
    data: Dataset,
    found: Units,
    *,
    trusted: np.ndarray | None = None,
) -> MachineModel:
    """Return the model with the units in doubt decided by what others do at the same place.

    Args:
        model: With all units of the data.
        lanes: Opinions about these.
        data: Rows of all units.
        found: The units.
        trusted: As in `quality`.
    """
    table = model.units
    known = table.labelled | (table.cluster < 0) | np.isin(table.probability, (0.0, 1.0))
    sure = np.abs(table.probability - 0.5) >= _SURE - 0.5
    in_doubt = ~known & ~(sure & (table.agreement >= _AGREED))
    if not in_doubt.any():
        return model
    rows = Rows.of(data, found.number)
    side = np.where(in_doubt | (table.cluster < 0), 0, np.where(table.keep, 1, -1))
    count = [1.0 + ((sign * side > 0) & ~table.labelled).sum() for sign in (1, -1)]
    prior = float(np.log(count[0] / count[1]))
    nats = np.full(len(table), np.nan)
    for number in range(_NUM_LOOKS):
        rng = generator(model.seed, "machines", f"nearby-{number}")
        again = log_ratio(rows, side, in_doubt & (side == 0), rng)
        nats = np.where(np.isfinite(again), again, nats)
        told = in_doubt & (np.abs(nats + prior) > np.log(_SURE / (1.0 - _SURE)))
        side[told] = np.sign(nats[told] + prior).astype(int)
        if not told.any():
            break
    table, lanes = decide_again(table, lanes, nats, prior, model.finding.seen, trusted)
    alpha, recall, precision = quality(
        table, lanes, model.finding.seen, model.seed, trusted=trusted
    )
    return replace(model, units=table, alpha=alpha, recall=recall, precision=precision)


def log_ratio(
    rows: Rows, side: np.ndarray, asked: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(units,) float64. By how many nats ours is likelier; NaN where nothing can be said.

    Args:
        rows: Of all units.
        side: (units,) int. 1 for units that are surely ours, -1 for those that surely are not, 0
            for others.
        asked: (units,) bool. Units in doubt.
        rng: Draws the rows that are compared.
    """
    none = np.full(len(side), np.nan)
    if rows.x.shape[1] + 2 > _MOST_NUMBERS or not asked.any():
        return none
    if min((side > 0).sum(), (side < 0).sum()) < _FEWEST_SURE:
        return none
    doubtful = rows.take(_rows_asked(rows.unit, asked, rng))
    if not len(doubtful.unit):
        return none
    reference = rows.take(_reference(rows.unit, side, rng))
    compared = Compared(reference, side)
    sure = reference.take(_nearest_of_sure(reference, side, doubtful, rng))
    mean, variance, size = _by_unit(compared.row_nats(sure), sure.unit, len(side))
    is_told = np.isfinite(mean)
    ours, others = (mean[is_told & (sign * side > 0)] for sign in (1, -1))
    if min(len(ours), len(others)) < _FEWEST_SURE:
        return none
    if min(_told_rightly(ours, others), _told_rightly(-others, -ours)) < _RIGHT:
        return none
    num, middle = len(ours) + len(others), (ours.mean() + others.mean()) / 2.0
    between = (ours.var() * len(ours) + others.var() * len(others)) / (num - 2)
    # Of the spread between sure units the part due to their number of rows is known.
    within = float(variance[is_told].mean())
    usual = float((1.0 / size[is_told]).mean())
    mean, _, size = _by_unit(compared.row_nats(doubtful), doubtful.unit, len(side))
    spread = between + within * np.maximum(1.0 / np.maximum(size, 1) - usual, 0.0)
    nats = (mean - middle) * (ours.mean() - others.mean()) / np.maximum(spread, 1e-12)
    return np.clip(nats, -_MOST_NATS, _MOST_NATS)


def _told_rightly(high: np.ndarray, low: np.ndarray) -> float:
    """Fraction of the first that lie beyond the middle of both sides, each left out of its own."""
    own_mean = (high.sum() - high) / (len(high) - 1)
    return float((high > (own_mean + low.mean()) / 2.0).mean())


def _by_unit(
    nats: np.ndarray, unit: np.ndarray, num_units: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and variance of the rows of each unit, NaN with too few, and their number."""
    known = np.isfinite(nats)
    size = np.bincount(unit[known], minlength=num_units)
    few = np.where(size >= _FEW_ROWS, size, np.nan)
    mean = np.bincount(unit[known], nats[known], minlength=num_units) / few
    apart = np.square(nats[known] - mean[unit[known]])
    return mean, np.bincount(unit[known], apart, minlength=num_units) / (few - 1.0), size


def _rows_asked(unit: np.ndarray, asked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(k,) int. Rows at random of the units in doubt, the same number of each."""
    chosen = np.zeros(len(asked), bool)
    chosen[rng.permutation(np.flatnonzero(asked))[: _MOST_ASKED // _FEW_ROWS]] = True
    each = min(_MOST_ASKED // int(chosen.sum()), _MANY_ROWS)
    return _some_of_each(np.flatnonzero(chosen[unit]), unit, each, rng)


def _reference(unit: np.ndarray, side: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(k,) int. Rows at random of sure units, as many of either type, in a random order.

    Where states repeat, neighbours are the first of many.
    """
    parts = [np.flatnonzero(side[unit] == sign) for sign in (1, -1)]
    size = min(_NUM_REFERENCE, *map(len, parts))
    return rng.permutation(
        np.concatenate([rng.choice(part, size, replace=False) for part in parts])
    )


def _nearest_of_sure(
    reference: Rows, side: np.ndarray, doubtful: Rows, rng: np.random.Generator
) -> np.ndarray:
    """(k,) int. Of some sure units, as many rows as those in doubt have, nearest to these."""
    from scipy.spatial import KDTree

    size = int(np.median(np.unique(doubtful.unit, return_counts=True)[1]))
    most = max(min(_MOST_SURE, _MOST_ASKED // (2 * size)), _FEWEST_SURE)
    chosen = np.zeros(len(side), bool)
    for sign in (1, -1):
        units = np.intersect1d(np.flatnonzero(side == sign), reference.unit)
        chosen[rng.permutation(units)[:most]] = True
    rows = np.flatnonzero(chosen[reference.unit])
    far = np.asarray(KDTree(doubtful.x).query(reference.x[rows])[0])
    return _some_of_each(rows[np.argsort(far, kind="stable")], reference.unit, size, None)


def _some_of_each(
    rows: np.ndarray, unit: np.ndarray, size: int, rng: np.random.Generator | None
) -> np.ndarray:
    """(k,) int. Of each unit the first rows, or some at random."""
    if rng is not None:
        rows = rng.permutation(rows)
    order = np.argsort(unit[rows], kind="stable")
    own = unit[rows][order]
    place = np.arange(len(own)) - np.searchsorted(own, own)
    return np.sort(rows[order][place < size])


class Compared:
    """Rows of sure units, by which others are told.

    Args:
        reference: The rows.
        side: (units,) int. As in `log_ratio`.
    """

    def __init__(self, reference: Rows, side: np.ndarray) -> None:
        from scipy.spatial import KDTree

        self._reference, self._side = reference, side
        self._tree = KDTree(reference.x)
        num = int(_NUM_NEIGHBOURS * (reference.x.shape[1] + 2))
        self._num_neighbours = min(num, len(reference.x))
        far = self._query(reference.x[:_NUM_USUAL])[0]
        self._farthest = float(np.quantile(np.median(far, axis=1), _USUAL))

    def _query(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        far, near = self._tree.query(x, self._num_neighbours, eps=_SLACK)
        return np.asarray(far), np.asarray(near)

    def row_nats(self, rows: Rows) -> np.ndarray:
        """(n,) float64. By how much our type explains each row better than others; NaN if unknown.

        Rows of a row's own unit are not compared with it; far from all others nothing is known.
        """
        made = []
        for first in range(0, len(rows.x), _BLOCK):
            part = rows.take(np.s_[first : first + _BLOCK])
            far, near = self._query(part.x)
            nats = _compare(self._reference.take(near), self._side, part, far)
            made.append(np.where(np.median(far, axis=1) <= self._farthest, nats, np.nan))
        return np.concatenate(made) if made else np.zeros(0)


def _compare(near: Rows, side: np.ndarray, rows: Rows, far: np.ndarray) -> np.ndarray:
    """(n,) float64. As `Compared.row_nats`, with the neighbours of each row, and distances."""
    kind = side[near.unit].astype(float)
    weight = np.exp(-0.5 * np.square(far / (np.median(far, axis=1, keepdims=True) + 1e-12)))
    weight = weight * (near.unit != rows.unit[:, None])
    total = weight.sum(axis=1)
    share = (weight * (kind > 0)).sum(axis=1) / np.maximum(total, 1e-12)
    given = np.concatenate(
        [np.ones((*kind.shape, 1)), near.x - rows.x[:, None], kind[..., None]], axis=2
    )
    ridge = np.r_[1e-9, np.full(rows.x.shape[1], _SLOPE_RIDGE), _TYPE_RIDGE]
    weighed = (given * weight[..., None]).transpose(0, 2, 1)
    square = weighed @ given + np.diag(ridge)
    model = np.linalg.solve(square, weighed @ near.change)
    missed = np.square(near.change - given @ model) * weight[..., None]
    variance = missed.sum(axis=1) / np.maximum(total, 1e-12)[:, None] + 1e-12
    away, offset = rows.change - model[:, 0], model[:, -1]
    nats = np.log1p(np.square(away + offset) / (_DEGREES * variance)) - np.log1p(
        np.square(away - offset) / (_DEGREES * variance)
    )
    both = (np.minimum(share, 1.0 - share) >= _LEAST_SHARE) & (total > 1e-9)
    return np.where(both, 0.5 * (_DEGREES + 1.0) * nats.sum(axis=1), np.nan)
