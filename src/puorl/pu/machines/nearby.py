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
from puorl.pu.machines.model import LaneChances, MachineModel, decide_again, quality
from puorl.pu.machines.sequences import Scaling
from puorl.pu.units import Units

_SURE = 0.95
"""Probability from which a unit counts as surely ours, and below one less it as surely another."""
_NUM_LOOKS = 2
"""What the first look tells surely is compared with in the second."""
_FEW_ROWS, _MANY_ROWS = 5, 50
"""Rows by which a unit is judged, at least and at most."""
_MOST_ASKED = 10_000
"""Rows of all units in doubt together."""
_NUM_REFERENCE = 20_000
"""Rows of either type that others are compared with."""
_MOST_SURE = 100
"""Units of either type by which it is measured how well this tells."""
_NUM_NEIGHBOURS = 2.5
"""Neighbours of a row, in those that its linear model has numbers."""
_MOST_NUMBERS = 80
"""Numbers of a linear model: nothing is near where there are more columns."""
_LEAST_SHARE = 0.03
"""Fraction of the neighbours, by weight, that either type must have."""
_RIGHT = 0.95
"""Fraction of the sure units on either side that must be told rightly."""
_SLOPE_RIDGE, _TYPE_RIDGE = 1e-2, 1.0
"""Rows that the priors of slopes and of the offset of a type are worth."""
_DEGREES = 4.0
_MOST_NATS = 6.0
"""A unit is not decided more surely than this."""
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
    in_doubt = ~table.labelled & (table.probability > 1.0 - _SURE) & (table.probability < _SURE)
    if not in_doubt.any():
        return model
    rows = Rows.of(data, found.number)
    side = np.where(in_doubt, 0, np.where(table.keep, 1, -1))
    nats = np.full(len(table), np.nan)
    for number in range(_NUM_LOOKS):
        rng = generator(model.seed, "machines", f"nearby-{number}")
        found_nats = log_odds(rows, side, in_doubt, rng)
        nats = np.where(np.isfinite(found_nats), found_nats, nats)
        told = in_doubt & (np.abs(nats) > np.log(_SURE / (1.0 - _SURE)))
        side[told] = np.sign(nats[told]).astype(int)
    chance = 1.0 / (1.0 + np.exp(-nats))
    table, lanes = decide_again(table, lanes, chance, model.finding.seen)
    if trusted is not None:
        trusted = np.where(np.isfinite(chance), 1.0, trusted)
    alpha, recall, precision = quality(
        table, lanes, model.finding.seen, model.seed, trusted=trusted
    )
    return replace(model, units=table, alpha=alpha, recall=recall, precision=precision)


def log_odds(
    rows: Rows, side: np.ndarray, asked: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(units,) float64. Log odds to be ours; NaN where nothing can be said.

    Args:
        rows: Of all units.
        side: (units,) int. 1 for units that are surely ours, -1 for those that surely are not, 0
            for others.
        asked: (units,) bool. Units in doubt.
        rng: Draws the rows that are compared.
    """
    nats = np.full(len(side), np.nan)
    if rows.x.shape[1] + 2 > _MOST_NUMBERS or min((side > 0).sum(), (side < 0).sum()) < 2:
        return nats
    doubtful = rows.take(_rows_asked(rows.unit, asked, rng))
    if not len(doubtful.unit):
        return nats
    reference = rows.take(_reference(rows.unit, side, rng))
    sure = reference.take(_nearest_of_sure(reference, side, doubtful, rng))
    mean = _mean_nats(reference, side, sure, len(side))
    ours, others = (mean[(sign * side > 0) & np.isfinite(mean)] for sign in (1, -1))
    if min(len(ours), len(others)) < 2:
        return nats
    middle = (ours.mean() + others.mean()) / 2.0
    if min((ours > middle).mean(), (others < middle).mean()) < _RIGHT:
        return nats
    spread = (ours.var() * len(ours) + others.var() * len(others)) / (len(ours) + len(others) - 2)
    mean = _mean_nats(reference, side, doubtful, len(side))
    nats = (mean - middle) * (ours.mean() - others.mean()) / max(spread, 1e-12)
    nats += np.log((side > 0).sum() / (side < 0).sum())
    return np.clip(nats, -_MOST_NATS, _MOST_NATS)


def _rows_asked(unit: np.ndarray, asked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(k,) int. Rows at random of the units in doubt, the same number of each."""
    each = min(_MOST_ASKED // max(int(asked.sum()), 1), _MANY_ROWS)
    return _some_of_each(np.flatnonzero(asked[unit]), unit, max(each, _FEW_ROWS), rng)


def _reference(unit: np.ndarray, side: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(k,) int. Rows at random of sure units, as many of either type."""
    parts = [np.flatnonzero(side[unit] == sign) for sign in (1, -1)]
    size = min(_NUM_REFERENCE, *map(len, parts))
    return np.sort(np.concatenate([rng.choice(part, size, replace=False) for part in parts]))


def _nearest_of_sure(
    reference: Rows, side: np.ndarray, doubtful: Rows, rng: np.random.Generator
) -> np.ndarray:
    """(k,) int. Of some sure units, as many rows as those in doubt have, nearest to these."""
    from scipy.spatial import KDTree

    chosen = np.zeros(len(side), bool)
    for sign in (1, -1):
        units = np.intersect1d(np.flatnonzero(side == sign), reference.unit)
        chosen[rng.permutation(units)[:_MOST_SURE]] = True
    size = int(np.median(np.unique(doubtful.unit, return_counts=True)[1]))
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


def _mean_nats(reference: Rows, side: np.ndarray, rows: Rows, num_units: int) -> np.ndarray:
    """(units,) float64. Mean of `row_nats` over a unit's rows; NaN with too few."""
    nats = row_nats(reference, side, rows)
    known = np.isfinite(nats)
    count = np.bincount(rows.unit[known], minlength=num_units)
    total = np.bincount(rows.unit[known], nats[known], minlength=num_units)
    return np.where(count >= _FEW_ROWS, total / np.maximum(count, 1), np.nan)


def row_nats(reference: Rows, side: np.ndarray, rows: Rows) -> np.ndarray:
    """(n,) float64. By how much our type explains each row better than others; NaN if unknown.

    Args:
        reference: Rows of sure units.
        side: (units,) int. As in `log_odds`.
        rows: Those that are asked; rows of their own units are not compared with them.
    """
    from scipy.spatial import KDTree

    tree = KDTree(reference.x)
    num = min(int(_NUM_NEIGHBOURS * (rows.x.shape[1] + 2)), len(reference.x))
    made = []
    for first in range(0, len(rows.x), _BLOCK):
        part = rows.take(np.s_[first : first + _BLOCK])
        far, near = map(np.asarray, tree.query(part.x, num))
        made.append(_compare(reference.take(near), side, part, far))
    return np.concatenate(made) if made else np.zeros(0)


def _compare(near: Rows, side: np.ndarray, rows: Rows, far: np.ndarray) -> np.ndarray:
    """(n,) float64. As `row_nats`, with the neighbours of each row, (n, k, ...), and distances."""
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
