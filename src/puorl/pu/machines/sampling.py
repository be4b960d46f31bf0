"""Large fleets: what units are like is learnt from a sample of them; the others are judged by it.

Networks learn from the rows of some hundred units as from those of a small fleet. Types of machines
are found among fewer: within a type latents are not normal, and the more units there are, the
likelier are partitions into groups of wear. Networks have not seen these: what they learnt blurs
the latents of their own units. Of all others z alone is estimated: from few rows first, and from
more where these leave a doubt. Single episodes have no wear: their types are found among the whole
sample.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.pu.machines import dynamics
from puorl.pu.machines.decisions import (
    LaneChances,
    decide,
    in_all,
    is_undecided,
    judge_lanes,
    project,
    quality,
)
from puorl.pu.machines.dynamics import Batch, UnitLatents
from puorl.pu.machines.findings import UnitTable
from puorl.pu.machines.mixture import SEEN, mahalanobis
from puorl.pu.machines.model import Asked, Judged, MachineModel
from puorl.pu.machines.sequences import Sequences, build
from puorl.pu.machines.views import ViewModel, estimate_latents, thin
from puorl.pu.units import Units

_NUM_UNITS, _MOST_UNITS = 150, 2_000
"""Units of a sample: at least, and at most where units are short."""
_NUM_ROWS = 150_000
"""Rows of all of them together, from which networks learn."""
_NUM_TYPED = 40
"""Units among which types of machines are found. 30 to 50 do as well; of 100 and more, groups of
wear are often called types."""
_MOST_KNOWN = 0.4
"""Fraction of the sample that may be labelled: how common types are is learnt from the others."""
_FIRST_ROWS = 100
"""Rows of a unit that are asked first."""
_CLEAR = 1e-3
"""Probability, from 0 or 1, within which these are enough."""
_STEPS_MORE = 2
"""Steps of z with more rows, which start from those with few."""


class Driving(NamedTuple):
    """How units are driven among which types were found."""

    view: ViewModel
    z: np.ndarray
    """(units, size). Its latents, in the metric of their likelihood."""
    driver: np.ndarray
    """(units,) int64. Who drives each."""


def draw_sample(label: np.ndarray, num_rows: np.ndarray, seed: int) -> np.ndarray:
    """(units,) bool. Units that are learnt from: all, unless there are many.

    Args:
        label: (units,) int. Known type of each, -1 for unknown.
        num_rows: (units,) int. Rows of each.
        seed: Of the draw.
    """
    size = int(np.clip(_NUM_ROWS / num_rows.mean(), _NUM_UNITS, _MOST_UNITS))
    if len(label) <= size:
        return np.ones(len(label), bool)
    return _draw(label, size, seed)


def draw_typed(label: np.ndarray, sample: np.ndarray, seed: int) -> np.ndarray:
    """(units,) bool. Units among which types of machines are found: labelled ones, and others.

    The others are not of the sample, or as few as can be.
    """
    order = np.lexsort((np.arange(len(label)), sample & (label < 0)))
    free = max(int((~sample | (label >= 0)).sum()), min(_NUM_TYPED, len(label)))
    typed = np.zeros(len(label), bool)
    typed[order[:free]] = _draw(label[order[:free]], _NUM_TYPED, seed)
    return typed


def _draw(label: np.ndarray, size: int, seed: int) -> np.ndarray:
    """(units,) bool. So many units at random: labelled ones first, but most are unknown.

    Where labelled ones are too many, as many of each kind are drawn as there is room for.
    """
    if len(label) <= size:
        return np.ones(len(label), bool)
    order = generator(seed, "machines", "sample").permutation(len(label))
    kinds = [order[label[order] == kind] for kind in range(label.max() + 1)]
    most = int(_MOST_KNOWN * size)
    while sum(map(len, kinds)) > most:
        largest = max(range(len(kinds)), key=lambda kind: (len(kinds[kind]), kind))
        kinds[largest] = kinds[largest][:-1]
    known, unknown = np.concatenate(kinds), order[label[order] < 0]
    drawn = np.zeros(len(label), bool)
    drawn[np.concatenate([known, unknown[: size - len(known)]])] = True
    return drawn


def take_units(found: Units, wanted: np.ndarray) -> Units:
    """Return some units, numbered anew, in the same order, with their rows."""
    if wanted.all():
        return found
    of = wanted[found.number]
    number = (np.cumsum(wanted) - 1)[found.number[of]]
    cluster = number
    if found.cluster is not found.number:
        cluster = np.unique(found.cluster[of], return_inverse=True)[1].reshape(-1)
    return Units(found.name[wanted], number, cluster)


def data_of(data: Dataset, found: Units, wanted: np.ndarray) -> Dataset:
    """Return the rows of some units, (units,) bool, for `take_units`."""
    return data if wanted.all() else data[wanted[found.number]]


def judge_others(
    model: MachineModel,
    latents: Sequence[Sequence[UnitLatents]],
    driving: Driving,
    data: Dataset,
    found: Units,
    label: np.ndarray,
    typed: np.ndarray,
) -> tuple[MachineModel, list[LaneChances], np.ndarray]:
    """Return the model of some units with decisions about all units of the fleet.

    With it, opinions about all units, and how far each is trusted to be of a known type.

    Args:
        model: What these units show.
        latents: Of these units, for each view and lane of the model.
        driving: Of these units.
        data: Rows of all units.
        found: All units.
        label: (units,) int. Known type of each, -1 for unknown.
        typed: (units,) bool. Those among which types were found.
    """
    asked, kept = model.with_weighty_lanes()
    latents = [[own[k] for k in wanted] for own, wanted in zip(latents, kept, strict=True)]
    others, rest = take_units(found, ~typed), data_of(data, found, ~typed)
    built, _ = build(rest.rows, others.number, model.config.machines, model.scalings)
    rows = _Rows(built, others.number[built.position], len(others.name))
    driver, gain = _drivers(driving, asked, rows), model.finding.gain
    judged = _judge(asked, rows, driver)
    ordinary = judged.ordinary
    if is_undecided(model.finding.seen, judged.lanes):  # even odds for all but odd units
        ordinary = ordinary.where_unseen()
    table = decide(
        asked.views,
        judged.latents,
        judged.lanes,
        others,
        label[~typed],
        driver,
        seen=model.finding.seen,
        ordinary=ordinary,
    )
    place = np.argsort(np.concatenate([np.flatnonzero(typed), np.flatnonzero(~typed)]))

    def joined(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        return np.concatenate([one, two])[place]

    own = judge_lanes(asked.views, latents, model.median_rows, driving.driver, fitted=True)
    lanes = []
    for one, two in zip(own, judged.lanes, strict=True):
        each = one._replace(chance=joined(one.chance.T, two.chance.T).T)
        if one.grouped.size:
            pair = (chances.swapaxes(0, 1) for chances in (one.grouped, two.grouped))
            each = each._replace(grouped=joined(*pair).swapaxes(0, 1))
        lanes.append(each)
    position = _position(
        asked, jax.tree.map(joined, latents, judged.latents), joined(driving.driver, driver)
    )
    columns = {k: joined(getattr(model.units, k), each) for k, each in table._asdict().items()}
    table = UnitTable(**columns | {"position": position})
    trusted = joined(np.ones(len(model.units)), ordinary.trust)
    alpha, recall, precision = quality(
        table, lanes, model.finding.seen, model.seed, trusted=trusted
    )
    num_odd = int((~typed & (table.cluster < 0)).sum()) if gain < SEEN else 0
    made = replace(
        model,
        units=table,
        alpha=alpha,
        recall=recall,
        precision=precision,
        finding=replace(
            model.finding,
            num_labelled=int((label == 0).sum()),
            num_odd=model.finding.num_odd + num_odd,
        ),
    )
    return made, lanes, trusted


class _Rows(NamedTuple):
    """Rows of units that were not learnt from."""

    rows: Sequences
    unit: np.ndarray
    num_units: int


def _drivers(driving: Driving, model: MachineModel, rows: _Rows) -> np.ndarray:
    """(units,) int64. Who drives each: the nearest driver of the sample, by behaviour."""
    if not driving.driver.any():
        return np.zeros(rows.num_units, np.int64)
    batch = thin(dynamics.make_batch("behaviour", rows.rows, rows.unit), _FIRST_ROWS)
    own = estimate_latents(driving.view, 0, batch, rows.num_units, model.config.machines)
    hot = np.eye(int(driving.driver.max()) + 1)[driving.driver]
    mean = (hot / hot.sum(axis=0)).T @ driving.z
    away = driving.z - mean[driving.driver]
    spread = away.T @ away / len(away) + 1e-9 * np.eye(away.shape[1])
    z = driving.view.embed(0, own.z)
    return np.argmin(mahalanobis(z[:, None] - mean, spread), axis=1)


def _judge(model: MachineModel, rows: _Rows, driver: np.ndarray) -> Judged:
    """Judge units by few rows each, and again by more where these are not clear."""
    batches = [dynamics.make_batch(view.view, rows.rows, rows.unit) for view in model.views]
    few = [thin(batch, _FIRST_ROWS) for batch in batches]
    asked = model.ask(few, rows.num_units)
    judged = _judged(model, asked, driver)
    chance = in_all(judged.lanes, [each.weight @ each.chance for each in judged.lanes])
    chance = chance * judged.ordinary.trust
    units = np.flatnonzero((chance > _CLEAR) & (chance < 1.0 - _CLEAR))
    if not len(units):
        return judged
    more = [_rows_of(batch, units, rows.num_units) for batch in batches]
    start = [[own.z[units] for own in lanes] for lanes in asked.latents]
    again = model.ask(more, len(units), start, _STEPS_MORE)
    return _judged(model, asked.replaced(units, again), driver)


def _judged(model: MachineModel, asked: Asked, driver: np.ndarray) -> Judged:
    lanes = judge_lanes(model.views, asked.latents, model.median_rows, driver)
    return Judged(asked.latents, lanes, model.ordinary(asked, driver))


def _rows_of(batch: Batch, units: np.ndarray, num_units: int) -> Batch:
    """Return the rows of some units, numbered anew."""
    place = np.full(num_units, -1)
    place[units] = np.arange(len(units))
    number = place[np.asarray(batch.unit)]
    used = number >= 0
    made = jax.tree.map(lambda leaf: leaf[used], batch)
    return made._replace(unit=jnp.asarray(number[used], jnp.int32))


def _position(
    model: MachineModel, latents: Sequence[Sequence[UnitLatents]], driver: np.ndarray
) -> np.ndarray:
    """(units, 2) float64. Places of all units on one map."""
    view, mixture = model.best
    number = next(k for k, each in enumerate(model.views) if each is view)
    z = view.embed(mixture.lane, latents[number][mixture.lane].z)
    return project(mixture, z - mixture.shift[driver])[0]
