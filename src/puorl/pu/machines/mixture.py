"""Types of machines: partitions of units by their latents, with few of them known.

Units of a type vary (wear, calibration) and types differ. Both are seen in the same latents, and
the larger variation need not be the type. All types share one covariance, so what counts is not
how far units lie apart but how empty the space between groups of them is.

Partitions of the units are compared by their marginal likelihood (`puorl.pu.machines.evidence`).
Expectation maximisation from many starts proposes them; the likeliest few are kept, and every
statement is a mean over them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from puorl.pu.machines.evidence import (
    PRIOR,
    SPACING,
    best_evidence,
    log_evidence,
    moments,
    partition_evidence,
)

MAX_TYPES = 5
SEEN = 4.0
"""Nats from which a second type, of machines or of drivers, counts as seen."""
SURE = 8.0
"""Nats from which a second view counts: it may reject units, so it must be surer."""
_NUM_STARTS, _MANY_UNITS = 40, 200
_NUM_ITERATIONS = 60
_NUM_REFINED, _NUM_MOVES = 8, 30
_CLOSE = 7.0
"""Nats below the likeliest partition from which others do not count."""
_MOST_KEPT = 12
_TEMPERATURE, _TEMPERATURE_WITHIN = 3.0, 2.0
"""Nats by which the gain of a lane, or of a partition within it, must be higher to weigh e times as
much: 1 would be right if latents were normal within types, as the likelihood assumes."""
_NUM_DIRECTIONS = 4
"""In which units' mean states and actions are compared."""
FALSELY_OUTSIDE = 1e-3
"""Chance of a unit of a known type to be called outside."""
_TINY, _TINY_FEW = 0.03, 2
"""Fraction of the units up to which a type is some odd ones; or their number, below a tenth."""
_FEW = 0.1
"""Fraction of a type's or a driver's units that may be wrong where types are matched."""
_NEAR_DRIVERS, _NEAR_TYPES = 1.3, 3.0
"""Groups are one driver, or one type under several, if others lie so many times farther apart."""


class Mixture(NamedTuple):
    """A partition of units into types, in the latents of one lane."""

    mean: np.ndarray
    """(types, size). The first is ours."""
    covariance: np.ndarray
    """(size, size). Of units of a type."""
    num_units: np.ndarray
    """(types,). Units of each type."""
    gain: float
    """Nats by which this partition explains the units better than one type would; or one type and a
    few odd units, where these bring most of the nats: they do not show that the others differ."""
    shift: np.ndarray = np.zeros((1, 1))
    """(drivers, size). What each way of driving adds to the latents; 0 for the first."""
    ours: tuple[int, ...] = (0,)
    """Types that are our machine: more than one where drivers change how it looks."""
    lane: int = 0
    """Whose latents these are."""
    member: np.ndarray = np.zeros(0, np.int64)
    """(units of the fit,) int64. Their types; -1 for those that did not shape them."""
    num_known: np.ndarray = np.zeros(1)
    """(types,). Units of each type that were labelled: they do not count for its share."""
    odd_gain: float = 0.0
    """Nats that these odd units bring, which are theirs alone; 0 where there are none."""
    classes: np.ndarray = np.zeros((0, 0))
    """(groups + 1, classes). How the probability of each group of known units, and of all other
    types, is shared by ours, the names, and none of these; empty where no other type is named.
    Names that are not told apart are one group, which is one type."""

    @property
    def num_types(self) -> int:
        """Types, ours included."""
        return len(self.mean)

    @property
    def shares(self) -> np.ndarray:
        """(types,) float64. How common each type is among units that are not known."""
        count = self.num_units - self.num_known + 1.0
        return count / count.sum()

    @property
    def named(self) -> np.ndarray:
        """(k,) int64. Types other than the first of which units were labelled."""
        return np.flatnonzero((self.num_known > 0) & (np.arange(self.num_types) > 0))

    @property
    def fair(self) -> np.ndarray:
        """(types,) bool. Ours, those with known units, and all of more than a few odd units."""
        first = np.arange(self.num_types) == 0
        return ~_is_odd(self.num_units) | (self.num_known > 0) | first

    def log_density(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n, types) float64. Log predictive density of new units: Student t, for few units.

        Args:
            z: (n, size).
            extra: (n, size, size). Covariance to add for each unit, e.g. since it has few rows.
        """
        wider = 1.0 + 1.0 / (self.num_units + SPACING)
        spread = self.covariance * wider[:, None, None]
        if extra is not None:
            spread = spread + extra[:, None]
        degrees = float(self.num_units.sum()) + PRIOR
        return _log_student(z[:, None] - self.mean, spread, degrees)

    def log_probability(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n, types) float64. Log probability of each type, for new units."""
        return _normalised(self.log_density(z, extra) + np.log(self.shares))

    def fitted_log_probability(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n, types) float64. The same for the units of the fit, each judged by the others."""
        unit, own = np.arange(len(z)), self.member
        count = np.tile(np.asarray(self.num_units, np.float64), (len(z), 1))
        weight = count[unit, own] + SPACING
        count[unit, own] -= 1.0
        away = z - self.mean[own]
        mean = np.tile(self.mean, (len(z), 1, 1))
        mean[unit, own] -= away / (weight - 1.0)[:, None]
        degrees = float(self.num_units.sum()) + PRIOR
        scatter = self.covariance * degrees - (weight / (weight - 1.0))[:, None, None] * (
            away[:, :, None] * away[:, None]
        )
        wider = 1.0 + 1.0 / (count + SPACING)
        spread = scatter[:, None] / (degrees - 1.0) * wider[..., None, None]
        if extra is not None:
            spread = spread + extra[:, None]
        density = _log_student(z[:, None] - mean, spread, degrees - 1.0)
        unknown = np.maximum(count - self.num_known, 0.0)  # below 0 for units that are known
        return _normalised(density + np.log(unknown + 1.0))

    def ours_probability(
        self, z: np.ndarray, extra: np.ndarray | None = None, *, fitted: bool = False
    ) -> np.ndarray:
        """(n,) float64. Probability to be ours, of new units or of those of the fit."""
        return np.exp(self._all(z, extra, fitted)[:, list(self.ours)]).sum(axis=1)

    def group_probability(
        self, z: np.ndarray, extra: np.ndarray | None = None, *, fitted: bool = False
    ) -> np.ndarray:
        """(n, groups + 1) float64. The same of each group of known units, and of all others."""
        found = np.exp(self._all(z, extra, fitted))
        last = len(self.classes) - 1
        group = np.minimum(np.arange(self.num_types), last)
        group[list(self.ours)] = 0
        return found @ np.eye(last + 1)[group]

    def nearest_unnamed(self, z: np.ndarray) -> np.ndarray:
        """(n,) int64. The likeliest type that has no name, numbered after the names; or -1."""
        num_groups, num_classes = self.classes.shape[0] - 1, self.classes.shape[1] - 1
        free = np.setdiff1d(np.arange(num_groups, self.num_types), self.ours)
        if not len(free):
            return np.full(len(z), -1)
        return num_classes - num_groups + free[np.argmax(self.log_density(z)[:, free], axis=1)]

    def _all(self, z: np.ndarray, extra: np.ndarray | None, fitted: bool) -> np.ndarray:
        """(n, types) float64. Log probability of new units, or of those of the fit."""
        found = self.log_probability(z, extra)
        if fitted:
            of = self.member >= 0
            own = self._replace(member=self.member[of])
            found[of] = own.fitted_log_probability(z[of], None if extra is None else extra[of])
        return found

    def with_near(self) -> "Mixture":
        """Count types that lie near ours, seen from the others, as ours driven in another way.

        A few odd units lie far from all: where these alone are the others, they are left out. So
        are named types: someone says that these are others.
        """
        for asked in (np.arange(self.num_types), np.flatnonzero(self.fair)):
            group = _merge_near(self.mean[asked], _NEAR_TYPES)
            ours = np.union1d(np.setdiff1d(asked[group == group[0]], self.named), self.ours)
            if self.fair[np.setdiff1d(asked, ours)].any():
                return self._replace(ours=tuple(ours.tolist()))
        return self

    def with_driven(self, driver: np.ndarray) -> "Mixture":
        """Count a type that one driver alone has as ours, where that driver lacks ours.

        Drivers may change how far machines lie apart, not only where. So a driver who shares
        another type with the known units' driver, and whose further type lies on our side of it,
        has ours.

        Args:
            driver: (units of the fit,) int. 0 drives most of the known units.
        """
        ours, count = list(self.ours), self._count_by(driver)
        for who in range(1, count.shape[1]):
            shared = np.where(count[:, 0] > 0, count[:, who], 0)
            shared[ours] = 0
            if count[ours, who].sum() > _FEW * count[:, who].sum() or not shared.any():
                continue
            other = self.mean[np.argmax(shared)]
            side = (self.mean - other) @ (self.mean[0] - other)
            side[count[:, who] < (1.0 - _FEW) * count.sum(axis=1)] = 0.0
            side[self.named] = 0.0
            if side.max() > 0.0:
                ours.append(int(np.argmax(side)))
        return self._replace(ours=tuple(ours))

    def with_least_shifts(self, driver: np.ndarray, label: np.ndarray) -> "Mixture":
        """Give units of a driver who has one type alone to the type that shifts them least.

        Shifts are free, so any type explains the units of such a driver as well as another. Few who
        are on the other side do not belong to that driver, and shape types no more.

        Args:
            driver: (units of the fit,) int. As in `fit_types`.
            label: (units of the fit,) int. As in `fit_types`.
        """
        count, member, shift = self._count_by(driver), self.member.copy(), self.shift.copy()
        for who in set(range(1, count.shape[1])) - set(driver[label >= 0].tolist()):
            kind, others = int(np.argmax(count[:, who])), count.sum(axis=1) - count[:, who]
            if count[kind, who] < (1.0 - _FEW) * count[:, who].sum() or not others[kind]:
                continue
            needed = shift[who] + self.mean[kind] - self.mean
            size = np.square(needed).sum(axis=1)
            size[(others == 0) | ~self.fair] = np.inf
            least = int(np.argmin(size))
            if least != kind:
                own = (driver == who) & (member >= 0)
                member[own] = np.where(member[own] == kind, least, -1)
                shift[who] = needed[least]
        num_units = np.bincount(member[member >= 0], minlength=self.num_types).astype(float)
        return self._replace(member=member, shift=shift, num_units=num_units)

    def _count_by(self, driver: np.ndarray) -> np.ndarray:
        """(types, drivers) int. Units that shape types."""
        of = self.member >= 0
        count = np.zeros((self.num_types, int(driver.max()) + 1), int)
        np.add.at(count, (self.member[of], driver[of]), 1)
        return count

    def is_outside(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n,) bool. Units that lie outside all types."""
        return self.ordinary(z, extra) < FALSELY_OUTSIDE

    def ordinary(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n,) float64. Chance of a unit of a known type to lie as far from all types as each."""
        from scipy import stats  # takes time to import

        spread = self.covariance if extra is None else self.covariance + extra
        nearest = np.min([mahalanobis(z - mean, spread) for mean in self.mean], axis=0)
        size, n = z.shape[1], float(self.num_units.sum())
        degrees = max(n - self.num_types, 2.0)
        return np.asarray(stats.f.sf(nearest / (size * (1.0 + 1.0 / n)), size, degrees))


def mahalanobis(difference: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """(...,) float64. Squared distances; covariances are broadcast."""
    shape = np.broadcast_shapes(difference.shape[:-1], covariance.shape[:-2])
    solved = np.linalg.solve(
        np.broadcast_to(covariance, (*shape, *covariance.shape[-2:])),
        np.broadcast_to(difference, (*shape, difference.shape[-1]))[..., None],
    )
    return np.einsum("...i,...i->...", difference, solved[..., 0])


def _log_student(difference: np.ndarray, spread: np.ndarray, degrees: float) -> np.ndarray:
    """Log density of a multivariate Student t, up to a constant of its degrees."""
    square, size = mahalanobis(difference, spread), difference.shape[-1]
    tail = 0.5 * (degrees + size) * np.log1p(square / degrees)
    return -tail - 0.5 * np.linalg.slogdet(spread)[1]


def _normalised(joint: np.ndarray) -> np.ndarray:
    return joint - np.logaddexp.reduce(joint, axis=-1, keepdims=True)


def fit_types(
    z: np.ndarray,
    label: np.ndarray,
    rng: np.random.Generator,
    driver: np.ndarray | None = None,
    *,
    lane: int = 0,
    shapes: np.ndarray | None = None,
) -> tuple[Mixture, ...]:
    """Find the likeliest partitions of units into two types or more, the best first.

    Args:
        z: (n, size) float. In the metric of the likelihood.
        label: (n,) int. Known type of each unit, 0 for ours; -1 for unknown.
        rng: Draws starts.
        driver: (n,) int. Who drives each unit: every driver shifts the latents of all types by the
            same amount, which is estimated; 0 has no shift. None for one driver.
        lane: Number to note in the results.
        shapes: (n,) bool. Units that shape types, of every driver some; None for all.
    """
    n = len(z)
    driver = np.zeros(n, int) if driver is None else driver
    if shapes is not None and not shapes.all():
        made = fit_types(z[shapes], label[shapes], rng, driver[shapes], lane=lane)
        member = np.full((len(made), n), -1)
        member[:, shapes] = [mixture.member for mixture in made]
        return tuple(
            mixture._replace(member=own) for mixture, own in zip(made, member, strict=True)
        )
    least = max(int(label.max()) + 1, 2)
    one_type = best_evidence(z, np.zeros(n, int), np.minimum(label, 0), driver)
    found: dict[bytes, tuple[float, np.ndarray, np.ndarray, float]] = {}
    for num_types in range(least, max(MAX_TYPES, least) + 1):
        if num_types > max(n // 3, least):
            break
        for each in _search(z, label, num_types, rng, driver):
            # The same may be found again among more types, one of them empty, which is less likely.
            key = each[1].tobytes()
            found[key] = max(found.get(key, each), each, key=lambda one: one[0])
    ranked = sorted(found.values(), key=lambda each: -each[0])
    chosen = [each for each in ranked[:_MOST_KEPT] if each[0] >= ranked[0][0] - _CLOSE]
    if all(each[1].max() == 0 for each in chosen):  # one type; decisions must name another
        chosen.append(
            next((each for each in ranked if each[1].max() > 0), _halves(z, label, driver))
        )
    odd, odd_gain = max(_odd_units(z, each[1], label, driver) for each in chosen), 0.0
    if odd - one_type > ranked[0][0] - odd:  # they bring most of the nats
        one_type, odd_gain = odd, odd - one_type
    made = []
    for value, member, shift, sphere in chosen:
        num_types = int(member.max()) + 1
        made.append(
            _posterior(z - shift[driver], member, num_types, label, sphere)._replace(
                gain=value - one_type, odd_gain=odd_gain, shift=shift, lane=lane
            )
        )
    return tuple(made)


def _is_odd(count: np.ndarray) -> np.ndarray:
    """(types,) bool. Types that are a few odd units, given how many units each has."""
    n = count.sum()
    return (count <= _TINY * n) | ((count <= _TINY_FEW) & (count < _FEW * n))


def _odd_units(z: np.ndarray, member: np.ndarray, label: np.ndarray, driver: np.ndarray) -> float:
    """Log marginal likelihood of one type and the odd units of a partition: types that hold few.

    Types of which units are known are none of these: someone says that they exist.
    """
    odd = _is_odd(np.bincount(member))
    odd[label[label >= 0]] = False
    if not odd.any():
        return -np.inf
    number = np.where(odd, np.cumsum(odd), 0)[member]
    return best_evidence(z, number, np.minimum(label, 0), driver)


def _halves(
    z: np.ndarray, label: np.ndarray, driver: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, float]:
    """Return a partition into halves, as `_search` does, where no other was found."""
    member = np.where(label >= 0, label, z[:, 0] > np.median(z[:, 0])).astype(int)
    value, sphere = log_evidence(z, member[None], int(member.max()) + 1, label)
    shift = np.zeros((int(driver.max()) + 1, z.shape[1]))
    return float(value[0]), member, shift, float(sphere[0])


def split_evidence(z: np.ndarray, mixture: Mixture, kept: np.ndarray, label: np.ndarray) -> float:
    """Nats by which a partition is likelier than with the types of some units joined to one.

    Args:
        z: (n, size). Latents that the partition was found in.
        mixture: The partition.
        kept: (n,) bool. Units that are to be of one type; infinite where they are already.
        label: (n,) int. As in `fit_types`.
    """
    of = mixture.member >= 0
    z, kept, label = z[of], kept[of], label[of]
    mixture = mixture._replace(member=mixture.member[of])
    joined = np.isin(mixture.member, np.unique(mixture.member[kept]))
    if len(np.unique(mixture.member[joined])) < 2:
        return float("inf")
    coarse = np.unique(np.where(joined, -1, mixture.member), return_inverse=True)[1].reshape(-1)
    own = np.where(label >= 0, coarse, -1)
    fine = log_evidence(z, mixture.member[None], mixture.num_types, label)[0][0]
    return float(fine - log_evidence(z, coarse[None], int(coarse.max()) + 1, own)[0][0])


def join_alike(mixture: Mixture, z: np.ndarray, label: np.ndarray, driver: np.ndarray) -> Mixture:
    """Count types as ours that their own units do not surely tell from ours.

    All types share one covariance. Where others vary less than ours it is too small for ours, and
    cuts them in two or more, wherever all known units are on one side. So ours and one other type
    are asked by themselves, again with those that have joined. Where only ours and odd units would
    be left, but some nats are seen, these are less than sure and stay what they are; with fewer,
    there are no more nats than were found on the way.

    Args:
        mixture: A partition.
        z: (n, size). Latents that it was found in.
        label: (n,) int. As in `fit_types`.
        driver: (n,) int. As in `fit_types`.
    """
    ours, most = list(mixture.ours), 0.0
    named = mixture.member[label > 0]
    others = [kind for kind in np.flatnonzero(mixture.fair).tolist() if kind not in {*ours, *named}]
    while others:
        nats = [_nats_apart(mixture.member, ours, kind, z, label, driver) for kind in others]
        if min(nats) >= SURE:
            break
        most = max(most, min(nats))
        ours.append(others.pop(int(np.argmin(nats))))
    left = np.setdiff1d(np.arange(mixture.num_types), ours)
    if mixture.fair[left].any():
        return mixture._replace(ours=tuple(ours))
    if most >= SEEN:
        return mixture
    return mixture._replace(ours=tuple(ours), gain=min(mixture.gain, most))


def _nats_apart(
    member: np.ndarray,
    ours: Sequence[int],
    kind: int,
    z: np.ndarray,
    label: np.ndarray,
    driver: np.ndarray,
) -> float:
    """Nats by which units of ours and of another type are two types rather than one.

    Only units of drivers who have both are asked; infinite without any.
    """
    pair = np.where(np.isin(member, ours), 0, np.where(member == kind, 1, -1))
    of = pair >= 0
    count = np.zeros((2, int(driver.max()) + 1))
    np.add.at(count, (pair[of], driver[of]), 1.0)
    has_both = count > (_FEW if count.shape[1] > 1 else 0.0) * count.sum(axis=0)
    has_both[0, driver[of & (label == 0)]] = True
    of &= has_both.all(axis=0)[driver]
    if not of.any():
        return np.inf
    own = np.unique(driver[of], return_inverse=True)[1].reshape(-1)
    return partition_evidence(z[of], pair[of], label[of], own)


def weights(mixtures: Sequence[Mixture]) -> np.ndarray:
    """(partitions,) float64. Weight of each opinion.

    Partitions of one lane weigh by their likelihood, and lanes by how clearly they see types.
    """
    lane, gain = np.array([m.lane for m in mixtures]), np.array([m.gain for m in mixtures])
    weight = np.zeros(len(gain))
    for k in np.unique(lane):
        own = gain[lane == k] / _TEMPERATURE_WITHIN
        total = np.logaddexp.reduce(own)
        clear = (_TEMPERATURE_WITHIN * total - gain.max()) / _TEMPERATURE
        weight[lane == k] = np.exp(clear + own - total)
    return weight / weight.sum()


def _posterior(
    z: np.ndarray, member: np.ndarray, num_types: int, label: np.ndarray, sphere: float
) -> Mixture:
    """Return what a partition says of means and covariance."""
    n, size = z.shape
    count, mean, scatter = moments(z, member[None], num_types)
    covariance = (scatter[0] + PRIOR * sphere * np.eye(size)) / (n + PRIOR)
    known = np.bincount(member[label >= 0], minlength=num_types)
    return Mixture(mean[0], covariance, count[0], 0.0, member=member, num_known=known)


def _search(
    z: np.ndarray, label: np.ndarray, num_types: int, rng: np.random.Generator, driver: np.ndarray
) -> list[tuple[float, np.ndarray, np.ndarray, float]]:
    """Return likely partitions: evidence, types of the units, shifts of drivers, sphere."""
    fixed = np.flatnonzero(label >= 0)
    first = _means_by(driver, z)
    start = np.eye(num_types)[_starts(z - (first - first[0])[driver], label, num_types, rng)]
    member, shift = _maximise(z, start, fixed, driver)
    member, chosen = np.unique(_numbered(member, label), axis=0, return_index=True)
    shift = shift[chosen]
    value, sphere = log_evidence(z - shift[:, driver], member, num_types, label)
    found = []
    for k in np.argsort(-value)[:_NUM_REFINED]:
        if value[k] < value.max() - 2.0 * _CLOSE:
            break
        own = z - shift[k, driver]
        best, ends, around = _refine(
            own, member[k], label, num_types, float(value[k]), float(sphere[k])
        )
        if len(np.unique(ends)) < num_types:
            best, ends, around = float(value[k]), member[k], float(sphere[k])
        found.append((best, _numbered(ends[None], label)[0], shift[k], around))
    return found


def _refine(
    z: np.ndarray,
    member: np.ndarray,
    label: np.ndarray,
    num_types: int,
    value: float,
    sphere: float,
) -> tuple[float, np.ndarray, float]:
    """Move units to other types while that makes the partition likelier: all at once, or one."""
    fixed = np.flatnonzero(label >= 0)
    for _ in range(_NUM_MOVES):
        chance = _posterior(z, member, num_types, label, sphere).fitted_log_probability(z)
        chance[fixed] = -np.inf
        chance[fixed, member[fixed]] = 0.0
        wanted = np.argmax(chance, axis=1)
        moved = np.flatnonzero(wanted != member)
        if not len(moved):
            break
        surer = chance[moved, wanted[moved]] - chance[moved, member[moved]]
        lone = member.copy()
        lone[moved[np.argmax(surer)]] = wanted[moved[np.argmax(surer)]]
        trial = np.stack([wanted, lone])
        values, spheres = log_evidence(z, trial, num_types, label)
        best = int(np.argmax(values))
        if values[best] <= value:
            break
        value, member, sphere = float(values[best]), trial[best], float(spheres[best])
    return float(value), member, float(sphere)


def _numbered(member: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Number types without a known unit in the order in which they occur; others stay."""
    least = int(label.max()) + 1
    made = member.copy()
    for row in made:
        kinds, first = np.unique(row, return_index=True)
        free = kinds >= least
        order = kinds[free][np.argsort(first[free])]
        name = np.arange(int(row.max()) + 1)
        name[order] = least + np.arange(len(order))
        row[:] = name[row]
    return made


def _means_by(driver: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(drivers, size). Mean latents of each driver's units."""
    drives = np.eye(int(driver.max()) + 1)[driver]
    return (drives / drives.sum(axis=0)).T @ z


def _maximise(
    z: np.ndarray, member: np.ndarray, fixed: np.ndarray, driver: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Expectation maximisation from many starts at once; types of units, and shifts of drivers.

    Args:
        z: (n, size).
        member: (starts, n, types). 1 for the type of each unit.
        fixed: (k,) int. Units that keep their type.
        driver: (n,) int.
    """
    n, size = z.shape
    num_types = member.shape[2]
    z = z - z.mean(axis=0)
    drives = np.eye(int(driver.max()) + 1)[driver]
    by_driver = drives / drives.sum(axis=0)
    first = by_driver.T @ z
    shift = np.tile(first - first[0], (len(member), 1, 1))
    held = member[:, fixed] > 0
    sphere = np.full(len(member), z.var(axis=0).mean() + 1e-12)
    floor, eye = 1e-6 * sphere[0], np.eye(size)
    for _ in range(_NUM_ITERATIONS):
        count = member.sum(axis=1) + 1e-9
        own = z - shift[:, driver]
        mean = member.transpose(0, 2, 1) @ own / count[..., None]
        if shift.shape[1] > 1:
            shift = by_driver.T @ (z - member @ mean)
            shift[:, 0] = 0.0
            own = z - shift[:, driver]
            mean = member.transpose(0, 2, 1) @ own / count[..., None]
        within = own.transpose(0, 2, 1) @ own - (
            (count[..., None] * mean).transpose(0, 2, 1) @ mean
        )
        covariance = (within + PRIOR * sphere[:, None, None] * eye) / (n + PRIOR) + floor * eye
        inverse = np.linalg.inv(covariance)
        sphere = np.maximum(size / np.trace(inverse, axis1=1, axis2=2), floor)
        root = np.linalg.cholesky(inverse)
        seen, centre = own @ root, mean @ root
        square = np.square(centre).sum(axis=2)[:, None] - 2.0 * seen @ centre.transpose(0, 2, 1)
        share = np.log((count + 1.0) / (n + num_types))
        joint = share[:, None] - 0.5 * square  # up to a constant of the unit
        joint[:, fixed] = np.where(held, joint[:, fixed], -np.inf)
        last, member = member, np.exp(_normalised(joint))
        if np.abs(member - last).max() < 1e-3:
            break
    return np.argmax(member, axis=2), shift


def find_drivers(
    z: np.ndarray, label: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return who drives each unit, (n,) int, and the nats for more than one way of driving.

    Args:
        z: (n, size) float. Latents of behaviour.
        label: (n,) int. 0 for units known to be ours: their most frequent driver gets 0.
        rng: Draws starts.
    """
    found = fit_types(z, np.full(len(z), -1), rng)[0]
    if found.gain < SEEN:
        return np.zeros(len(z), int), found.gain
    # Machines shift how they are driven a little, too: near groups are one driver.
    driver = _merge_near(found.mean, _NEAR_DRIVERS)[np.argmax(found.log_density(z), axis=1)]
    order = np.argsort(-np.bincount(driver[label == 0], minlength=driver.max() + 1), kind="stable")
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    return np.unique(rank[driver], return_inverse=True)[1].reshape(-1), found.gain


def find_ranges(x: np.ndarray, unit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(units,) int. Groups of units by where their states and actions lie; 0 for all if none.

    Args:
        x: (n, f) float. Standardised states and actions of some rows.
        unit: (n,) int. Unit of each.
        rng: Draws starts.
    """
    mean = np.stack([x[unit == k].mean(axis=0) for k in range(int(unit.max()) + 1)])
    away = mean.astype(np.float64) - mean.mean(axis=0)
    _, _, direction = np.linalg.svd(away, full_matrices=False)
    found = fit_types(away @ direction[:_NUM_DIRECTIONS].T, np.full(len(mean), -1), rng)[0]
    return found.member if found.gain >= SEEN else np.zeros(len(mean), int)


def _merge_near(mean: np.ndarray, least: float) -> np.ndarray:
    """(k,) int. Groups of means: nearest are joined, until the next join is relatively farthest."""
    group = [np.arange(len(mean))]
    joins = []
    apart = np.sqrt(np.square(mean[:, None] - mean).sum(axis=2))
    while group[-1].max() > 0:
        now = group[-1]
        between = np.where(now[:, None] == now, np.inf, apart)
        one, two = np.unravel_index(np.argmin(between), between.shape)
        joins.append(float(between[one, two]))
        joined = np.where(now == now[two], now[one], now)
        group.append(np.unique(joined, return_inverse=True)[1].reshape(-1))
    ratio = [later / max(first, 1e-12) for first, later in zip(joins, joins[1:], strict=False)]
    return group[1 + int(np.argmax(ratio))] if ratio and max(ratio) > least else group[0]


def _starts(
    z: np.ndarray, label: np.ndarray, num_types: int, rng: np.random.Generator
) -> np.ndarray:
    """(starts, n) int. Cuts at the widest gaps along random directions, and nearest centres."""
    n, size = z.shape
    made = np.zeros((_NUM_STARTS if n < _MANY_UNITS else _NUM_STARTS // 5, n), int)
    for number, start in enumerate(made):
        if number % 2 == 0:
            along = z @ rng.normal(size=size)
            order = np.argsort(along)
            gap, edge = np.diff(along[order]), max(1, n // 10)
            gap[:edge] *= 0.5  # a lone unit at an end is seldom a type
            gap[-edge:] *= 0.5
            cut = np.sort(np.argsort(-gap)[: num_types - 1])
            start[order] = np.searchsorted(cut, np.arange(n), side="left")
        else:
            centre = z[rng.choice(n, num_types, replace=False)]
            start[:] = np.argmin(np.square(z[:, None] - centre).sum(axis=2), axis=1)
        ours = np.bincount(start[label == 0], minlength=num_types).argmax()
        start[:] = np.where(start == ours, 0, np.where(start == 0, ours, start))
    made[:, label >= 0] = label[label >= 0]
    return made
