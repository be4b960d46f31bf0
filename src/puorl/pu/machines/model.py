"""MachineModel: the result of a fit, its decisions about units, and units that it has not seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.stats import Estimate
from puorl.data.dataset import Dataset
from puorl.data.fitted_columns import FittedColumns
from puorl.data.split import PUSplit
from puorl.pu.config import FilterConfig
from puorl.pu.machines import dynamics, slopes
from puorl.pu.machines.decisions import LaneChances, decide, is_undecided, judge_lanes
from puorl.pu.machines.dynamics import UnitLatents
from puorl.pu.machines.findings import RESERVED, Finding, UnitTable
from puorl.pu.machines.mixture import FALSELY_OUTSIDE, SURE, Mixture, weights
from puorl.pu.machines.newcomers import (
    FALSELY_NONE,
    Ordinary,
    RowFit,
    RowMeans,
    UnitFit,
)
from puorl.pu.machines.sequences import Scalings, build
from puorl.pu.machines.views import (
    MOST_UNITS,
    ViewModel,
    clearest,
    estimate_latents,
    extra_covariance,
    mean_nll,
    most_rows,
    slope_rows,
    thin,
)
from puorl.pu.model import Mode, keep
from puorl.pu.units import Unit, Units, number_units

_LEAST_WEIGHT = 0.01
"""Weight of a lane from which it decides."""


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
        return clearest(self.views)

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
        if is_undecided(self.finding.seen, lanes):
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
            mixture = clearest([view])[1]
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
        stride = -(-len(found.name) // MOST_UNITS)  # some hundred units tell what is usual
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
        pairs = zip(self.row_fits, asked.rows, strict=True)
        chances = [fit.probability(rows) for fit, rows in pairs]
        for view, own in zip(self.views, asked.latents, strict=True):
            mixture = clearest([view])[1]
            lane = mixture.lane
            who = np.zeros(len(own[lane].z), int) if driver is None else driver
            z = view.embed(lane, own[lane].z) - mixture.shift[who]
            spread = extra_covariance(view, lane, own[lane], self.median_rows)
            chances.append(mixture.ordinary(z, spread))
        return Ordinary.of(chances, FALSELY_OUTSIDE)

    def ordinary_of_new(self, asked: "Asked") -> Ordinary:
        """Return how odd units look that are not of the fit."""
        each = zip(self.views, self.row_fits, asked.rows, strict=True)
        chances = [fit.new_probability(rows, view.view) for view, fit, rows in each]
        for view, own, fit in zip(self.views, asked.latents, self.unit_fits, strict=True):
            lane = view.lane
            extra = extra_covariance(view, lane, own[lane], self.median_rows)
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
        if not name or name in RESERVED or (len(name) == 1 and name.isupper()):
            raise ConfigError(
                f"labelled_as: expected a name of your own, got {name!r}, which is reserved "
                "(so are single capital letters: types without a name have them)"
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
