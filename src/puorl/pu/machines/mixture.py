"""Types of machines: a mixture over the latents of units, with few of them known.

Units of a type vary (wear, calibration) and types differ. Both are seen in the same latents, and
the larger variation need not be the type. All types share one covariance, so what counts is not
how far units lie apart but how empty the space between groups of them is. The covariance is drawn
towards a sphere in the metric of the likelihood, where a distance is the number of nats a row that
parts two units: few units could be split along some direction by chance.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MAX_TYPES = 5
SEEN = 3.0
"""Nats from which a second type, of machines or of drivers, counts as seen."""
_PRIOR = 3.0
"""Weight of the sphere, in units."""
_EXTRA = 6.0
"""Nats that every type beyond the second must bring: wear makes groups, too."""
_NUM_STARTS = 40
_NUM_ITERATIONS = 80
_TEMPERATURE = 3.0
"""Nats by which a lane's gain must be higher to weigh e times as much."""


class Mixture(NamedTuple):
    """Types found in the latents of one lane."""

    mean: np.ndarray
    """(types, size). The first is ours."""
    covariance: np.ndarray
    """(size, size). Of units of a type."""
    num_units: np.ndarray
    """(types,). Units of each type, as a sum of probabilities."""
    gain: float
    """Nats by which these types explain the units better than one type would, less what their
    number costs (BIC)."""
    shift: np.ndarray = np.zeros((1, 1))
    """(drivers, size). What each way of driving adds to the latents; 0 for the first."""
    ours: tuple[int, ...] = (0,)
    """Types that are our machine: more than one where drivers change how it looks."""

    @property
    def num_types(self) -> int:
        """Types, ours included."""
        return len(self.mean)

    def log_density(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n, types) float64. Log predictive density of units: Student t, for few units.

        Args:
            z: (n, size).
            extra: (n, size, size). Covariance to add for each unit, e.g. since it has few rows.
        """
        n, size = float(self.num_units.sum()), z.shape[1]
        degrees = max(n + _PRIOR - self.num_types, 2.0)
        spread = self.covariance if extra is None else self.covariance + extra
        made = []
        for mean, count in zip(self.mean, self.num_units, strict=True):
            square = mahalanobis(z - mean, spread * (1.0 + 1.0 / max(count, 1.0)))
            _, size_log = np.linalg.slogdet(spread * (1.0 + 1.0 / max(count, 1.0)))
            made.append(-0.5 * (degrees + size) * np.log1p(square / degrees) - 0.5 * size_log)
        return np.stack(made, axis=1)

    def log_probability(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n, types) float64. Log probability of each type."""
        joint = self.log_density(z, extra) + np.log(
            (self.num_units + 1.0) / (self.num_units + 1.0).sum()
        )
        return joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)

    def ours_probability(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n,) float64. Probability to be ours."""
        return np.exp(self.log_probability(z, extra)[:, list(self.ours)]).sum(axis=1)

    def with_near(self) -> "Mixture":
        """Count types that lie near ours, seen from the others, as ours driven in another way."""
        group = _merge_near(self.mean)
        ours = tuple(np.flatnonzero(group == group[0]).tolist())
        return self._replace(ours=ours) if len(ours) < self.num_types else self

    def is_outside(self, z: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        """(n,) bool. Units that lie outside all types."""
        from scipy import stats  # takes time to import

        spread = self.covariance if extra is None else self.covariance + extra
        nearest = np.min([mahalanobis(z - mean, spread) for mean in self.mean], axis=0)
        size, n = z.shape[1], float(self.num_units.sum())
        degrees = max(n - self.num_types, 2.0)
        return nearest > size * stats.f.ppf(1.0 - _OUTSIDE, size, degrees) * (1.0 + 1.0 / n)


_OUTSIDE = 1e-3
"""Chance of a unit of a known type to be called outside."""


def mahalanobis(difference: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """(n,) float64. Squared distances; one covariance for all, or one each."""
    solved = np.linalg.solve(
        np.broadcast_to(covariance, (len(difference), *covariance.shape[-2:])),
        difference[..., None],
    )
    return np.einsum("ni,ni->n", difference, solved[..., 0])


def fit_mixture(
    z: np.ndarray,
    label: np.ndarray,
    rng: np.random.Generator,
    driver: np.ndarray | None = None,
) -> Mixture:
    """Find the types of units.

    Args:
        z: (n, size) float. In the metric of the likelihood.
        label: (n,) int. Known type of each unit, 0 for ours; -1 for unknown.
        rng: Draws starts.
        driver: (n,) int. Who drives each unit: every driver shifts the latents of all types by the
            same amount, which is estimated; 0 has no shift. None for one driver.
    """
    driver = np.zeros(len(z), int) if driver is None else driver
    least = max(int(label.max()) + 1, 2)
    single = _em(z, np.where(label >= 0, 0, -1), 1, rng, driver)
    best, best_value = None, -np.inf
    for num_types in range(least, max(MAX_TYPES, least) + 1):
        if num_types > max(len(z) // 3, least):
            break
        found = _em(z, label, num_types, rng, driver)
        gain = found.value - single.value
        value = gain - _EXTRA * (num_types - least)
        if value > best_value:
            best, best_value = Mixture(*found[:3], gain, found.shift), value
    assert best is not None
    return best


def weights(mixtures: Sequence[Mixture]) -> np.ndarray:
    """(lanes,) float64. Weight of each lane's opinion: lanes that see types clearly weigh more."""
    gain = np.array([mixture.gain for mixture in mixtures])
    weight = np.exp((gain - gain.max()) / _TEMPERATURE)
    return weight / weight.sum()


class _Fit(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    num_units: np.ndarray
    shift: np.ndarray
    value: float
    """Log posterior less the cost of the parameters."""


def _em(
    z: np.ndarray,
    label: np.ndarray,
    num_types: int,
    rng: np.random.Generator,
    driver: np.ndarray | None = None,
) -> _Fit:
    """Expectation maximisation from many starts at once; return the best end."""
    n, size = z.shape
    driver = np.zeros(n, int) if driver is None else driver
    drives = np.eye(int(driver.max()) + 1)[driver]
    by_driver = drives / drives.sum(axis=0)
    first = by_driver.T @ z
    shift = first - first[0]
    member = np.eye(num_types)[_starts(z - shift[driver], label, num_types, rng)]
    shift = np.tile(shift, (len(member), 1, 1))
    fixed = np.flatnonzero(label >= 0)
    sphere = np.full(len(member), z.var(axis=0).mean() + 1e-12)
    floor, eye = 1e-6 * sphere[0], np.eye(size)
    last = value = np.full(len(member), -np.inf)
    mean = covariance = count = np.empty(0)
    for _ in range(_NUM_ITERATIONS):
        count = member.sum(axis=1) + 1e-9
        own = z - shift[:, driver]
        mean = np.einsum("rnk,rnd->rkd", member, own) / count[..., None]
        if shift.shape[1] > 1:
            shift = by_driver.T @ (z - member @ mean)
            shift[:, 0] = 0.0
            own = z - shift[:, driver]
        apart = own[:, :, None] - mean[:, None]
        within = np.einsum("rnk,rnki,rnkj->rij", member, apart, apart, optimize=True)
        covariance = (within + _PRIOR * sphere[:, None, None] * eye) / (n + _PRIOR) + floor * eye
        inverse = np.linalg.inv(covariance)
        size_log = np.linalg.slogdet(covariance)[1]
        trace = np.trace(inverse, axis1=1, axis2=2)
        sphere = np.maximum(size / trace, floor)
        square = np.square(np.einsum("rnki,rij->rnkj", apart, np.linalg.cholesky(inverse)))
        share = np.log((count + 1.0) / (n + num_types))
        constant = size_log[:, None, None] + size * np.log(2 * np.pi)
        joint = share[:, None] - 0.5 * (square.sum(axis=3) + constant)
        joint[:, fixed] = np.where(np.eye(num_types)[label[fixed]] > 0, joint[:, fixed], -np.inf)
        total = np.logaddexp.reduce(joint, axis=2)
        member = np.exp(joint - total[..., None])
        prior = 0.5 * _PRIOR * (size * np.log(sphere) - size_log - sphere * trace)
        value = total.sum(axis=1) + prior
        if np.abs(value - last).max() < 1e-4:
            break
        last = value
    best = int(np.argmax(value))
    cost = 0.5 * (num_types * size + num_types - 1) * np.log(n)
    return _Fit(mean[best], covariance[best], count[best], shift[best], float(value[best] - cost))


def find_drivers(
    z: np.ndarray, label: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return who drives each unit, (n,) int, and the nats for more than one way of driving.

    Args:
        z: (n, size) float. Latents of behaviour.
        label: (n,) int. 0 for units known to be ours: their most frequent driver gets 0.
        rng: Draws starts.
    """
    found = fit_mixture(z, np.full(len(z), -1), rng)
    if found.gain < SEEN:
        return np.zeros(len(z), int), found.gain
    # Machines shift how they are driven a little, too: near groups are one driver.
    driver = _merge_near(found.mean)[np.argmax(found.log_density(z), axis=1)]
    order = np.argsort(-np.bincount(driver[label == 0], minlength=driver.max() + 1), kind="stable")
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    return np.unique(rank[driver], return_inverse=True)[1].reshape(-1), found.gain


def _merge_near(mean: np.ndarray) -> np.ndarray:
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
    return group[1 + int(np.argmax(ratio))] if ratio and max(ratio) > _NEAR else group[0]


_NEAR = 3.0
"""Groups are one driver if others lie so many times farther apart."""


def _starts(
    z: np.ndarray, label: np.ndarray, num_types: int, rng: np.random.Generator
) -> np.ndarray:
    """(starts, n) int. Cuts at the widest gaps along random directions, and nearest centres."""
    n, size = z.shape
    made = np.zeros((_NUM_STARTS if num_types > 1 else 1, n), int)
    for number, start in enumerate(made if num_types > 1 else made[:0]):
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
