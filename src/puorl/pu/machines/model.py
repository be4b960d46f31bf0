"""MachineModel: the result of a fit, its decisions about units, and units that it has not seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.core.stats import Estimate
from puorl.data.dataset import Dataset
from puorl.data.fitted_columns import FittedColumns
from puorl.data.split import PUSplit
from puorl.nn import mlp
from puorl.pu.config import FilterConfig, MachineConfig
from puorl.pu.machines import dynamics, slopes
from puorl.pu.machines.dynamics import UnitLatents, View
from puorl.pu.machines.findings import RESERVED, Finding, UnitTable
from puorl.pu.machines.mixture import SEEN, SURE, Mixture, mahalanobis, weights
from puorl.pu.machines.naming import (
    class_chances,
    even_odds,
    is_joined,
    told,
    with_none,
    with_ours,
)
from puorl.pu.machines.newcomers import (
    FALSELY_NONE,
    FALSELY_OUTSIDE,
    Ordinary,
    RowFit,
    RowMeans,
    UnitFit,
)
from puorl.pu.machines.sequences import Scalings, build
from puorl.pu.model import Mode, keep
from puorl.pu.units import Unit, Units, number_units

_MOST_ROWS = {"dynamics": 1_000, "relations": 250, "behaviour": 1_000, "slopes": 1_000}
"""Rows of a unit at most that its latents are estimated from; a relation is a product a sensor."""
_MOST_UNITS, _LEAST_ROWS = 200, 100
"""Units from which each gives fewer rows, so that all together give no more; but at least some."""
_NUM_DRAWS, _LEAST_DRAWS = 2_000, 200
_MISJUDGED = 0.01
"""Fraction of sure decisions that are wrong, as a deviation: 57 of 5,333 were in drawn fleets."""
_MOST_DRAWN = 20_000_000
"""Units that are drawn for intervals, in all draws: with many, the draws are fewer."""
_LEAST_WEIGHT = 0.01
"""Weight of a lane from which it decides."""


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
        return _clearest([self])[1].lane

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


class Asked(NamedTuple):
    """What the networks say of groups of rows: units, or windows of them."""

    latents: list[list[UnitLatents]]
    """For each view and lane."""
    rows: list[RowMeans]
    """How well they are predicted, for each view."""

    def replaced(self, groups: np.ndarray, more: "Asked") -> "Asked":
        """Return the same with some groups that were asked again."""

        def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            made = old.copy()
            made[groups] = new
            return made

        return jax.tree.map(put, self, more)


class Judged(NamedTuple):
    """What follows for them."""

    latents: list[list[UnitLatents]]
    lanes: "list[LaneChances]"
    ordinary: Ordinary


@dataclass(frozen=True, eq=False)
class MachineModel:
    """Views with their networks and types, and the decisions about the units of the fit."""

    config: FilterConfig
    unit: Unit
    seed: int
    scalings: Scalings
    views: tuple[ViewModel, ...]
    median_rows: float
    """Rows of a unit of the fit."""
    units: UnitTable
    alpha: Estimate
    recall: Estimate
    precision: Estimate
    finding: Finding
    split_fingerprint: str
    names: tuple[str, ...] = ()
    """Names of the types 1, 2 and so on of which units were labelled."""
    row_fits: tuple[RowFit, ...] = ()
    """For each view; none in filters from before they were measured."""
    unit_fits: tuple[UnitFit, ...] = ()
    """The same for z."""
    named: FittedColumns | None = None
    """Of the rows of the fit; None in filters from before they were stored."""

    @property
    def best(self) -> tuple[ViewModel, Mixture]:
        """The view and partition that see types best."""
        return _clearest(self.views)

    def in_order(self, data: Dataset) -> Dataset:
        """Return rows with their columns in the order of the fit.

        Raises:
            DataError: Other columns than those of the fit.
        """
        sizes = len(self.scalings.state.mean), len(self.scalings.action.mean)
        return (self.named or FittedColumns(*sizes)).order(data)

    def explain(self, data: Dataset, name: str) -> list[tuple[str, float]]:
        """Return the outcomes that tell a unit from ours, the most telling first.

        For each column of s', over all horizons: nats a row by which the mean latents of our type
        explain it worse than the unit's own.

        Raises:
            DataError: No such unit, or other columns than those of the fit.
        """
        data = self.in_order(data)
        found = number_units(data, self.unit)
        if name not in found.name:
            near = ", ".join(map(str, found.name[:5]))
            raise DataError(f"{name}: no such unit; expected one of {near}, ...")
        rows, _ = build(data.rows, found.number, self.config.machines, self.scalings)
        number = found.number[rows.position]
        mine = number == int(np.flatnonzero(found.name == name)[0])
        view, mixture = self.best
        lane = mixture.lane
        batch = dynamics.make_batch(
            view.view, type(rows)(*(a[mine] for a in rows)), number[mine] * 0
        )
        own = estimate_latents(view, lane, batch, 1, self.config.machines)
        size = view.sizes[lane]
        ours = view.centre[lane].copy()
        root = view.root[lane][:size, :size]
        ours[:size] += np.linalg.solve(root.T, mixture.mean[0])
        params = dynamics.lane(view.params, lane)
        worse = dynamics.outputs_nll(
            view.view, params, batch, ours[None], view.horizon
        ) - dynamics.outputs_nll(view.view, params, batch, own.z, view.horizon)
        names = data.provenance.obs_names or tuple(f"obs_{k}" for k in range(data.obs.shape[1]))
        by_column = worse.mean(axis=0).reshape(-1, len(names)).sum(axis=0)
        order = np.argsort(-by_column)
        return [(names[k], float(by_column[k])) for k in order]

    @property
    def alpha_history(self) -> np.ndarray:
        """(0, 1) float32. Alpha is estimated once."""
        return np.zeros((0, 1), np.float32)

    def score_rows(self, data: Dataset) -> np.ndarray:
        """(n,) float32 in [0, 1]. Each row has the probability of its unit."""
        table = self.predict_units(data)
        return table.probability.astype(np.float32)[number_units(data, self.unit).number]

    def score(self, split: PUSplit) -> np.ndarray:
        """(u,) float32 in [0, 1]. The same for the unlabelled rows of a split."""
        if split.fingerprint == self.split_fingerprint:
            number = number_units(split.pool, self.unit).number
            return self.units.probability.astype(np.float32)[number[split.unlabelled]]
        score = self.score_rows(split.pool)
        number = number_units(split.pool, self.unit).number
        known = np.zeros(int(number.max()) + 1, bool)
        known[number[split.labelled]] = True
        return np.where(known[number], np.float32(1.0), score)[split.unlabelled]

    def keep(self, split: PUSplit, score: np.ndarray, mode: Mode) -> np.ndarray:
        """(u,) bool. Unlabelled rows that a mode keeps; rows of labelled units always."""
        number = number_units(split.pool, self.unit).number
        kept = np.isin(number, number[split.labelled])[split.unlabelled]
        kept[~kept] = keep(score[~kept], mode, self.alpha.value)
        return kept

    def predict_units(self, data: Dataset) -> UnitTable:
        """Decide about the units of new data: z is estimated, nothing else is learnt.

        Raises:
            DataError: Other columns than those of the fit.
        """
        data = self.in_order(data)
        found = number_units(data, self.unit)
        rows, _ = build(data.rows, found.number, self.config.machines, self.scalings)
        number = found.number[rows.position]
        batches = [dynamics.make_batch(view.view, rows, number) for view in self.views]
        judged = self.judge(self.ask(batches, len(found.name)))
        unlabelled = np.full(len(found.name), -1)
        return decide(
            self.views,
            judged.latents,
            judged.lanes,
            found,
            unlabelled,
            seen=self.finding.seen,
            ordinary=judged.ordinary,
        )

    def ask(
        self,
        batches: Sequence[dynamics.Batch],
        num_groups: int,
        start: Sequence[Sequence[np.ndarray]] | None = None,
        num_iterations: int = 8,
    ) -> "Asked":
        """Estimate z of groups of rows by all lanes, and how ordinary their rows are.

        Args:
            batches: Rows, for each view.
            num_groups: Groups that they belong to.
            start: First guesses of z, for each view and lane; None for the mean of the fit.
            num_iterations: As in `estimate_latents`.
        """
        latents = [
            [
                estimate_latents(
                    view,
                    lane,
                    batch,
                    num_groups,
                    self.config.machines,
                    start=None if start is None else start[k][lane],
                    num_iterations=num_iterations,
                )
                for lane in range(len(view.sizes))
            ]
            for k, (view, batch) in enumerate(zip(self.views, batches, strict=True))
        ]
        means = [
            mean_nll(view, fit.lane, batch, own[fit.lane])
            for view, batch, own, fit in zip(
                self.views, batches, latents, self.row_fits, strict=False
            )
        ]
        return Asked(latents, means)

    def judge(self, asked: "Asked") -> "Judged":
        """Return what follows for groups of rows of units that are not of the fit."""
        lanes = judge_lanes(self.views, asked.latents, self.median_rows)
        ordinary = self.ordinary_of_new(asked) if self.unit_fits else self.ordinary(asked)
        if self.finding.gain < SEEN:
            ordinary = ordinary.where_unseen()
        return Judged(asked.latents, lanes, ordinary)

    def with_weighty_lanes(self) -> tuple["MachineModel", list[np.ndarray]]:
        """Return a model of the lanes that decide, with their numbers: others change nothing."""
        best = max(mixture.gain for view in self.views for mixture in view.mixtures)
        views, kept = [], []
        for view in self.views:
            weight, lane = weights(view.mixtures), np.array([m.lane for m in view.mixtures])
            total = np.bincount(lane, weight, minlength=len(view.sizes))
            decides = max(m.gain for m in view.mixtures) >= min(best, SURE)
            wanted = np.flatnonzero((total >= _LEAST_WEIGHT) & decides)
            wanted = np.union1d(wanted, [view.lane])
            views.append(view.with_lanes(wanted))
            kept.append(wanted)
        # Old filters have no fits of rows.
        fits = [
            fit._replace(lane=int(np.searchsorted(wanted, fit.lane)))
            for fit, wanted in zip(self.row_fits, kept, strict=False)
        ]
        return replace(self, views=tuple(views), row_fits=tuple(fits)), kept

    def with_unit_fits(
        self, latents: Sequence[np.ndarray], driver: np.ndarray, stride: int = 1
    ) -> "MachineModel":
        """Return the same with where units lie if they are estimated as new ones.

        Args:
            latents: (units, size), for each view. z of units that types were found among.
            driver: (units,) int. As in `judge_lanes`.
            stride: Every so many units are given.
        """
        made = []
        for view, own in zip(self.views, latents, strict=True):
            mixture = _clearest([view])[1]
            z = view.embed(mixture.lane, own) - mixture.shift[driver[::stride]]
            member = mixture.member[::stride]
            made.append(UnitFit.of(mixture, z[member >= 0], member[member >= 0]))
        return replace(self, unit_fits=tuple(made))

    def with_row_fits(
        self,
        data: Dataset,
        found: Units | None = None,
        driver: np.ndarray | None = None,
    ) -> "MachineModel":
        """Return the same with how well rows of its own data are predicted.

        Rows that were held out in training are asked, so that units never seen are compared with
        what is usual for rows never seen.

        Args:
            data: Rows of the units that were learnt from.
            found: These units; by default those of the rows.
            driver: (units,) int. As in `judge_lanes`: where given, types were found among these
                units, and `with_unit_fits` has theirs.
        """
        config = self.config.machines
        found = number_units(data, self.unit) if found is None else found
        rows, _ = build(data.rows, found.number, config, self.scalings)
        number, held = found.number[rows.position], dynamics.held_out(rows, self.seed)
        stride = -(-len(found.name) // _MOST_UNITS)  # some hundred units tell what is usual
        used = number % stride == 0
        rows = type(rows)(*(part[used] for part in rows))
        number, held = number[used] // stride, held[used]
        num_units = -(-len(found.name) // stride)
        made, latents = [], []
        for view in self.views:
            lane = view.lane
            batch = dynamics.make_batch(view.view, rows, number)
            own = estimate_latents(view, lane, batch, num_units, config)
            latents.append(own.z)
            most = most_rows(view.view, num_units)
            asked = thin(type(batch)(*(leaf[held] for leaf in batch)), most)
            if view.view == "slopes":  # their model of all units has seen these rows, too
                shown = slope_rows(thin(type(batch)(*(leaf[~held] for leaf in batch)), most))
                num_present = rows.state.shape[1] + rows.action.shape[1]
                view = view._replace(params=slopes.fit(shown, num_units, num_present))
                own = estimate_latents(view, lane, batch, num_units, config)
            params = dynamics.lane(view.params, lane)
            nll = dynamics.outputs_nll(view.view, params, asked, own.z, view.horizon).sum(axis=1)
            made.append(RowFit.of(lane, nll.astype(np.float64), np.asarray(asked.unit)))
        model = replace(self, row_fits=tuple(made))
        return model if driver is None else model.with_unit_fits(latents, driver, stride)

    def ordinary(self, asked: "Asked", driver: np.ndarray | None = None) -> Ordinary:
        """Return how odd units of the fit look; ``driver`` is as in `judge_lanes`."""
        from scipy import stats  # takes time to import

        pairs = zip(self.row_fits, asked.rows, strict=True)
        chances = [fit.probability(rows) for fit, rows in pairs]
        for view, own in zip(self.views, asked.latents, strict=True):
            mixture = _clearest([view])[1]
            lane = mixture.lane
            who = np.zeros(len(own[lane].z), int) if driver is None else driver
            z = view.embed(lane, own[lane].z) - mixture.shift[who]
            spread = mixture.covariance + _extra(view, lane, own[lane], self.median_rows)
            nearest = np.min([mahalanobis(z - mean, spread) for mean in mixture.mean], axis=0)
            n = float(mixture.num_units.sum())
            ratio = nearest / (z.shape[1] * (1.0 + 1.0 / n))
            degrees = max(n - mixture.num_types, 2.0)
            chances.append(np.asarray(stats.f.sf(ratio, z.shape[1], degrees)))
        return Ordinary.of(chances, FALSELY_OUTSIDE)

    def ordinary_of_new(self, asked: "Asked") -> Ordinary:
        """Return how odd units look that are not of the fit."""
        each = zip(self.views, self.row_fits, asked.rows, strict=True)
        chances = [fit.new_probability(rows, view.view) for view, fit, rows in each]
        for view, own, fit in zip(self.views, asked.latents, self.unit_fits, strict=True):
            lane = view.lane
            extra = _extra(view, lane, own[lane], self.median_rows)
            chances.append(fit.new_probability(view.embed(lane, own[lane].z), extra))
        return Ordinary.of(chances, FALSELY_NONE)


def label_others(
    data: Dataset,
    found: Units,
    label: np.ndarray,
    labelled_as: Mapping[str, np.ndarray | str],
) -> np.ndarray:
    """(units,) int64. Labels with units of named other types: 1 for the first name, and so on.

    Args:
        data: The pool.
        found: Its units.
        label: (units,) int. 0 for units known to be ours, -1 for others.
        labelled_as: Names, each with (n,) bool over the pool, or a condition.

    Raises:
        ConfigError: A name that types have already.
        DataError: No rows, or a unit that is labelled twice.
    """
    label = label.copy()
    for number, (name, rows) in enumerate(labelled_as.items(), start=1):
        if not name or name in RESERVED:
            raise ConfigError(
                f"labelled_as: expected a name of your own, got {name!r}, which is reserved"
            )
        who = f"labelled_as {name}"
        mask = data.labelled_where(rows, who) if isinstance(rows, str) else np.asarray(rows, bool)
        if mask.shape != (len(data),) or not mask.any():
            raise DataError(
                f"labelled_as {name}: expected a mask over {len(data):,} rows, or a condition, "
                f"that holds for some of them, got {int(mask.sum()):,} of {mask.size:,}"
            )
        units = np.unique(found.number[mask])
        twice = units[label[units] >= 0]
        if len(twice):
            raise DataError(
                f"labelled_as {name}: expected units that have no other label, got "
                f"{found.name[twice[0]]}; label each unit once"
            )
        label[units] = number
    return label


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
    shared = _MOST_ROWS[view] * _MOST_UNITS // num_groups
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


class LaneChances(NamedTuple):
    """What the partitions of one view say of all units."""

    view: View
    chance: np.ndarray
    """(partitions, n) float64. Probability to be ours."""
    weight: np.ndarray
    """(partitions,) float64. Weight of each opinion."""
    prior: float
    """Fraction of units that are ours."""
    grouped: np.ndarray = np.zeros((0, 0, 0))
    """(partitions, n, groups + 1) float64. Probability of each group of known units, and of all
    others; empty where no other type is named."""
    shared: np.ndarray = np.zeros((0, 0))
    """As `Mixture.classes`."""


def judge_lanes(
    views: Sequence[ViewModel],
    latents: Sequence[Sequence[UnitLatents]],
    median_rows: float,
    driver: np.ndarray | None = None,
    *,
    fitted: bool = False,
) -> list[LaneChances]:
    """Return what every view says that sees types; what the best one says, if none does.

    Args:
        views: The models.
        latents: z of the units, for each view and lane.
        median_rows: Rows of a unit at which no further uncertainty is added.
        driver: (n,) int. Who drives each unit; None where that is not known, or one drives all.
        fitted: Whether these are the units of the fit.
    """
    gain = [max(mixture.gain for mixture in view.mixtures) for view in views]
    made = []
    for number, view in enumerate(views):
        if gain[number] < max(gain) and gain[number] < SURE:
            continue
        chance, prior, grouped = [], [], []
        for mixture in view.mixtures:
            own = latents[number][mixture.lane]
            who = np.zeros(len(own.z), int) if driver is None else driver
            extra = _extra(view, mixture.lane, own, median_rows)
            z = view.embed(mixture.lane, own.z) - mixture.shift[who]
            chance.append(mixture.ours_probability(z, extra, fitted=fitted))
            prior.append(mixture.shares[list(mixture.ours)].sum())
            if mixture.classes.size:
                grouped.append(mixture.group_probability(z, extra, fitted=fitted))
        weight = weights(view.mixtures)
        prior = float(weight @ np.array(prior))
        each = LaneChances(view.view, np.stack(chance), weight, prior)
        if grouped:
            each = each._replace(grouped=np.stack(grouped), shared=view.mixtures[0].classes)
        made.append(each)
    return made


def _clearest(views: Sequence[ViewModel]) -> tuple[ViewModel, Mixture]:
    pairs = [(view, mixture) for view in views for mixture in view.mixtures]
    return max(pairs, key=lambda pair: (pair[1].num_types > 1, pair[1].gain))


def decide(
    views: Sequence[ViewModel],
    latents: Sequence[Sequence[UnitLatents]],
    lanes: Sequence[LaneChances],
    found: Units,
    label: np.ndarray,
    driver: np.ndarray | None = None,
    *,
    seen: float | np.ndarray,
    ordinary: Ordinary | None = None,
) -> UnitTable:
    """Combine all opinions to a decision about every unit: ours is ours in every view that counts.

    Args:
        views: The models.
        latents: z of the units, for each view and lane.
        lanes: Result of `judge_lanes`.
        found: Names and sizes of the units.
        label: (n,) int. 0 for units that are known to be ours, above 0 for those known to be of
            another type, -1 for unknown ones.
        driver: As in `judge_lanes`.
        seen: Chance that types are seen, for all units or each. What is not seen leaves even odds.
        ordinary: How odd units look; None for the units of the fit, whose types are known.
    """
    shared = lanes[0].shared
    raw = even_odds(in_all(lanes, [each.weight @ each.chance for each in lanes]), shared)
    said = chance_of_ours(lanes, seen, ordinary)
    prior = even_odds(in_all(lanes, [np.array(each.prior) for each in lanes]), shared)
    prior = 0.5 + seen * (prior - 0.5)
    probability = np.where(label < 0, said, label == 0)
    keep = probability >= 0.5
    agreement = _agreement(lanes, keep, ordinary)
    number = next(i for i, view in enumerate(views) if view is _clearest(views)[0])
    view, mixture = _clearest(views)
    k = mixture.lane
    own = latents[number][k]
    who = np.zeros(len(own.z), int) if driver is None else driver
    z = view.embed(k, own.z) - mixture.shift[who]
    spread = _extra(view, k, own, float(np.median(own.num_rows)))
    if ordinary is None:
        outside = mixture.is_outside(z, spread) & ~keep
    else:
        outside = ordinary.is_outside
    if not shared.size:
        other = 1 + np.argmax(mixture.log_density(z)[:, 1:], axis=1)
        cluster, classes = np.where(outside, -1, np.where(keep, 0, other)), np.zeros((len(z), 0))
    else:
        if ordinary is None:
            fitted = Ordinary(mixture.ordinary(z, spread), FALSELY_OUTSIDE)
            known = np.where(keep, 1.0, fitted.trust)
        else:
            known = ordinary.trust
        classes, votes = _judge_classes(lanes, known, label, raw, said, seen)
        cluster = told(classes, np.where(outside, -1, mixture.nearest_unnamed(z)))
        agreement = np.minimum(agreement, votes)
    position, scale = project(mixture, z)
    clipped = np.clip(said, 1e-12, 1.0 - 1e-12)
    return UnitTable(
        name=found.name,
        num_rows=found.num_rows,
        labelled=label == 0,
        probability=probability,
        evidence=np.log(clipped / (1.0 - clipped)) - np.log(prior / (1.0 - prior)),
        misfit=np.square(z - mixture.mean[0]).sum(axis=1) / 2.0,
        keep=keep,
        cluster=np.where(label >= 0, label, cluster),
        agreement=agreement,
        position=position,
        spread=np.sqrt(view.inflation[k] / np.maximum(own.num_rows, 1)) * scale,
        classes=classes,
    )


def _judge_classes(
    lanes: Sequence[LaneChances],
    known: np.ndarray,
    label: np.ndarray,
    raw: np.ndarray,
    said: np.ndarray,
    seen: float | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the chance of each class, and the weight of the lanes for the likeliest one.

    That is 1 for ours, since how far lanes agree on it is known, and for units that are known.

    Args:
        lanes: As in `decide`.
        known: (n,). How far each unit is trusted to be of a known type.
        label: As in `decide`.
        raw: (n,). Probability to be ours that all lanes give.
        said: (n,). The same after what is not seen, and what is not trusted.
        seen: As in `decide`.
    """
    shared = lanes[0].shared
    pairs = [(each.weight, each.grouped) for each in lanes]
    grouped = in_all(lanes, [np.tensordot(weight, each, 1) for weight, each in pairs])
    classes = with_none(class_chances(grouped, shared, raw, seen), known, said)
    classes[label >= 0] = np.eye(classes.shape[1])[label[label >= 0]]
    chosen = [np.tensordot(weight, with_none(each, known) >= 0.5, 1) for weight, each in pairs]
    votes = in_all(lanes, chosen) @ shared
    best = np.argmax(classes, axis=1)
    settled = (best == 0) | (label >= 0)
    return classes, np.where(settled, 1.0, votes[np.arange(len(votes)), best])


def decide_again(
    table: UnitTable,
    lanes: Sequence[LaneChances],
    nats: np.ndarray,
    prior: float,
    seen: float,
    trusted: np.ndarray | None = None,
) -> tuple[UnitTable, list[LaneChances]]:
    """Return decisions and opinions with other evidence for some units.

    Args:
        table: Decisions.
        lanes: The opinions that they follow from.
        nats: (n,) float. By how much ours is likelier; NaN for units that stay as they are.
        prior: Log odds to be ours, of any unit.
        seen: As in `decide`.
        trusted: (n,) float. As in `quality`.
    """
    asked = np.isfinite(nats)
    chance = np.where(asked, 1.0 / (1.0 + np.exp(-np.nan_to_num(nats) - prior)), 0.5)
    again = [each._replace(chance=np.where(asked, chance, each.chance)) for each in lanes]
    said = even_odds(chance, lanes[0].shared)
    said = (0.5 + seen * (said - 0.5)) * (1.0 if trusted is None else trusted)
    keep = np.where(asked, said >= 0.5, table.keep)
    # What is no longer ours is of the type that lies nearest on the map.
    others = np.unique(table.cluster[table.cluster > 0])
    cluster = np.where(keep, 0, table.cluster)
    if len(others):
        place = np.stack([table.position[table.cluster == k].mean(axis=0) for k in others])
        away = np.square(table.position[:, None] - place).sum(axis=2)
        cluster = np.where(~keep & (cluster == 0), others[np.argmin(away, axis=1)], cluster)
    classes = table.classes
    if lanes[0].shared.size:
        classes = np.where(asked[:, None], with_ours(classes, said), classes)
        unnamed = np.where(cluster < classes.shape[1] - 1, -1, cluster)
        cluster = told(classes, unnamed)
    changed = {
        "probability": said,
        "evidence": nats,
        "keep": keep,
        "cluster": cluster,
        "agreement": np.ones(len(nats)),  # of all models, which are not asked
    }
    columns = {k: np.where(asked, v, getattr(table, k)) for k, v in changed.items()}
    return UnitTable(**table._asdict() | columns | {"classes": classes}), again


def chance_of_ours(
    lanes: Sequence[LaneChances], seen: float | np.ndarray, ordinary: Ordinary | None
) -> np.ndarray:
    """(n,) float64. Chance to be ours by all opinions, as far as types are seen; as in `decide`."""
    said = even_odds(in_all(lanes, [e.weight @ e.chance for e in lanes]), lanes[0].shared)
    said = 0.5 + seen * (said - 0.5)
    return said if ordinary is None else said * ordinary.trust


def _agreement(
    lanes: Sequence[LaneChances], keep: np.ndarray, ordinary: Ordinary | None
) -> np.ndarray:
    """(n,) float64. Weight of the lanes that decide alike, each with how odd a unit looks.

    So no lane calls a unit ours that is unlike all others.
    """
    odd = 1.0 if ordinary is None else ordinary.trust
    kept = [each.chance * odd >= 0.5 for each in lanes]
    pairs = list(zip(lanes, kept, strict=True))
    agree = in_all(lanes, [each.weight @ (own | ~keep) for each, own in pairs])
    return agree * np.where(keep, 1.0, np.max([each.weight @ ~own for each, own in pairs], axis=0))


def in_all(lanes: Sequence[LaneChances], said: Sequence[np.ndarray]) -> np.ndarray:
    """Return the chance to be ours in all views, given that in each.

    Horizons of one model see nearly the same, so the least of theirs counts; views of different
    models err each in their own way.
    """
    least: dict[View, np.ndarray] = {}
    for each, chance in zip(lanes, said, strict=True):
        least[each.view] = np.minimum(least.get(each.view, 1.0), chance)
    return np.prod(list(least.values()), axis=0)


def _extra(view: ViewModel, lane: int, own: UnitLatents, median_rows: float) -> np.ndarray:
    """(n, size, size). Covariance that units with fewer rows than usual have besides."""
    more = np.maximum(1.0 / np.maximum(own.num_rows, 1) - 1.0 / median_rows, 0.0)
    return view.inflation[lane] * more[:, None, None] * np.eye(view.sizes[lane])


def project(mixture: Mixture, z: np.ndarray) -> tuple[np.ndarray, float]:
    """Return two coordinates in which types differ most, and the scale of the map.

    The first leads from our type to the nearest other one, in deviations of a type's units.
    """
    root = np.linalg.cholesky(np.linalg.inv(mixture.covariance))
    seen, mean = (z - mixture.mean[0]) @ root, (mixture.mean - mixture.mean[0]) @ root
    scale = float(
        np.exp(np.log(np.diag(np.linalg.cholesky(np.linalg.inv(mixture.covariance)))).mean())
    )
    away = mean[1:][np.argmin(np.square(mean[1:]).sum(axis=1))]
    first = away / max(np.linalg.norm(away), 1e-12)
    rest = seen - np.outer(seen @ first, first)
    between = mean - np.outer(mean @ first, first)
    _, sizes, directions = np.linalg.svd(
        np.vstack([10.0 * between, rest - rest.mean(axis=0)]), full_matrices=False
    )
    second = directions[0] if len(sizes) and z.shape[1] > 1 else np.zeros(z.shape[1])
    return np.stack([seen @ first, seen @ second], axis=1), scale


def quality(
    table: UnitTable,
    lanes: Sequence[LaneChances],
    seen: float,
    seed: int,
    *,
    trusted: np.ndarray | None = None,
) -> tuple[Estimate, Estimate, Estimate]:
    """Return alpha, recall and precision over the rows of unlabelled units, with intervals.

    Lanes are drawn by their weight and units by their probabilities: where lanes disagree or units
    lie between types, the intervals are wide. Some units are misjudged by all lanes alike, about
    one in a hundred. With the chance that no types are seen, any fraction is as likely as any
    other; where that is likelier than not, the intervals say nothing.

    Args:
        table: The decisions.
        lanes: Result of `judge_lanes`.
        seen: Result of `visibility`.
        seed: Of the draws.
        trusted: (n,) float. `Ordinary.trust`; by default all units are of known types.
    """
    asked = ~table.labelled
    rows, keep = table.num_rows[asked].astype(float), table.keep[asked]
    rng = generator(seed, "machines", "quality")
    num_draws = max(min(_NUM_DRAWS, _MOST_DRAWN // max(len(rows), 1)), _LEAST_DRAWS)
    ours = np.ones((num_draws, len(rows)), bool)
    place = {view: rng.uniform(size=ours.shape) for view in dict.fromkeys(e.view for e in lanes)}
    for each in lanes:
        lane = rng.choice(len(each.weight), num_draws, p=each.weight)
        ours &= place[each.view] < each.chance[lane][:, asked]
    blind = rng.uniform(size=num_draws) >= seen
    anyone = rng.uniform(size=ours.shape) < rng.uniform(size=(num_draws, 1))
    ours = np.where(blind[:, None], anyone, ours)
    if is_joined(lanes[0].shared):  # any fraction of these may be of the name
        ours &= rng.uniform(size=ours.shape) < rng.uniform(size=(num_draws, 1))
    if trusted is not None:
        ours &= rng.uniform(size=ours.shape) < trusted[asked]
    # With many units chance alone would leave hardly an interval.
    lost, found = np.abs(rng.normal(0.0, _MISJUDGED, (2, num_draws)))
    own = [ours[:, group] @ rows[group] for group in (keep, ~keep)]
    all_rows = [rows[group].sum() for group in (keep, ~keep)]
    kept, dropped = (a * (1.0 - lost) + (n - a) * found for a, n in zip(own, all_rows, strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        alpha = (kept + dropped) / rows.sum()
        recall, precision = kept / (kept + dropped), kept / (rows @ keep)
    mean = table.probability[asked]
    total = float(mean @ rows)
    values = (
        total / float(rows.sum()),
        float((mean * keep) @ rows) / total if total > 0 else np.nan,
        float((mean * keep) @ rows) / float(rows @ keep) if keep.any() else np.nan,
    )
    made = []
    for value, draws in zip(values, (alpha, recall, precision), strict=True):
        known = draws[np.isfinite(draws)]
        low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
        if seen < 0.5:
            low, high = 0.0, 1.0
        made.append(
            Estimate(float(value), float(min(low, value)), float(max(high, value)), "mixture")
        )
    return made[0], made[1], made[2]
