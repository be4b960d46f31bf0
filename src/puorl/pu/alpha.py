"""Estimators of alpha, the fraction of target rows among the unlabelled.

Every estimator takes held-out scores of labelled rows P and unlabelled rows U that share no row;
alpha is about exactly that U. With one sample the labelled rows were cut out of the pool, so alpha
lies a little below the pool's fraction of target rows (29/99 against 0.3 in the paper's setting);
with two samples U is the whole pool and alpha its fraction.

Intervals need no labels of other rows. For every threshold c the ratio ``r(c) = fraction of U above
c / fraction of the target above c`` is alpha plus what other rows above c add. With thresholds at
labelled scores the target's fractions are order statistics of uniform numbers, so that draws of
them are exact for any number of labelled rows. Each end comes from draws of r:

- upper end: the least upper bound on r over all thresholds that keep ``CLEAR_FRACTION`` of the
  labelled rows, with the critical value for all of them at once, since the least one is chosen;
  thresholds at which r is surely above its least do not count (intersection bounds; Chernozhukov,
  Lee and Rosen 2013). This needs no assumption;
- lower end: 0 unless it is shown that r has nearly stopped falling. What the others add is assumed
  to fall at least as the inverse root of the missed fraction of the target: by half while four
  times as many labelled rows fall below the threshold. Between two such thresholds r then falls by
  at least what others still add at the higher one, and r minus this fall bounds alpha from below.
  A pair counts where the same law leaves at most half of all others above its lower threshold; this
  must be shown (an equivalence test), which takes more than a few labels.

No data can show that the highest scores are of target rows alone. Where others look exactly like
the target, or a few of them nearly do, the lower end is too high and the upper end still holds.

Coverage and width over labels, overlap and alpha: docs/filter.md, benchmarks/filter/coverage.py.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from puorl.core.errors import ConfigError, DataError
from puorl.core.stats import Estimate, binomial_upper_bound
from puorl.pu.config import check_choice

MAX_ALPHA = 0.999
"""At 1 every unlabelled row would be rejected from training as a target row: nothing is left."""
NO_TARGET = 0.02
"""Below it hardly any unlabelled row is the target's."""
NO_LOWER_END = 1e-3
"""A lower end of alpha below this counts as none."""


def alpha_estimate(
    value: float, interval: tuple[float, float] | None = None, *, method: str
) -> Estimate:
    """Make an estimate of alpha, clipped to [0, 0.999].

    >>> alpha_estimate(1.3, method="bbe").value
    0.999

    Raises:
        DataError: The value or an end of the interval is not finite.
    """
    numbers = (value, *(interval or ()))
    if not np.all(np.isfinite(numbers)):
        raise DataError(
            f"{method}: expected a finite estimate of alpha, got {numbers}; check the scores for "
            "constant or non-finite values"
        )
    return Estimate(*map(clip_alpha, numbers), method=method)


def current_estimate(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored `Estimate`; older files have ``interval``, a list or null."""
    ends = content.get("interval") or (content.get("low"), content.get("high"))
    low, high = (math.nan if end is None else end for end in ends)
    return {"value": content["value"], "low": low, "high": high, "method": content["method"]}


def clip_alpha(value: float) -> float:
    """Return the nearest number in [0, 0.999]."""
    return float(min(max(value, 0.0), MAX_ALPHA))


def check_scores(score_p: np.ndarray, score_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both as floating-point arrays of one axis, not empty and finite.

    Raises:
        DataError: They are not.
    """
    return _checked(score_p, "score_p"), _checked(score_u, "score_u")


def check_probabilities(score_p: np.ndarray, score_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both as `check_scores` does, after checking that they lie in [0, 1].

    Raises:
        DataError: They do not.
    """
    pair = check_scores(score_p, score_u)
    for name, score in zip(("score_p", "score_u"), pair, strict=True):
        if score.min() < 0 or score.max() > 1:
            raise DataError(
                f"{name}: expected probabilities in [0, 1], got values from {score.min():g} to "
                f"{score.max():g}; apply a sigmoid to logits first"
            )
    return pair


def _checked(values: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if values.ndim != 1 or values.size == 0:
        raise DataError(
            f"{name}: expected a non-empty array with one axis, got shape {values.shape}"
        )
    num_bad = int(np.count_nonzero(~np.isfinite(values)))
    if num_bad:
        raise DataError(
            f"{name}: expected finite numbers, got {num_bad} of {values.size} that are not; "
            "check the classifier's input for missing values"
        )
    return values


def best_thresholds(score_p: np.ndarray, score_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(t,) int64 each. Rows of P (at least 2) and of U (at least 3) above the best thresholds.

    For each number of rows of P this is the threshold with the fewest rows of U. Thresholds are
    scores of U, descending; equal scores count as one, and the lowest score is never used. A ratio
    of U to P has its minimum at one of these at most ``len(score_p)`` thresholds. May be empty.
    """
    ascending_p, ascending_u = np.sort(score_p), np.sort(score_u)
    if len(ascending_u) < 4:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # With three rows above it a threshold has at least the third highest score.
    ceiling = np.minimum(ascending_p[::-1], ascending_u[-3])
    below = np.searchsorted(ascending_u, ceiling, side="right") - 1
    threshold = ascending_u[np.maximum(below[below >= 0], 0)]
    threshold = np.unique(threshold[threshold > ascending_u[0]])[::-1]
    num_u = len(ascending_u) - np.searchsorted(ascending_u, threshold, side="left")
    num_p = len(ascending_p) - np.searchsorted(ascending_p, threshold, side="left")
    enough = num_p >= 2
    return num_p[enough], num_u[enough]


def bbe(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    k: float = 4.0,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> Estimate:
    """Best bin estimation: the ratio of U to P above the threshold with the least upper bound.

    Garg et al. 2021, "Mixture Proportion Estimation and PU Learning". Above a high threshold hardly
    any other row remains, and the ratio comes close to alpha from above. Nearly exact where the
    domains separate, too high where they overlap. Differs from the authors' code in speed and in
    the clip to [0, 0.999] only; ``k`` is 4 in their current code and was 1 for the PUORL paper.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        k: Constant in the logarithm of the bound; 1 is the paper's setting.
        delta: Probability that the bound fails.
        gamma: Slack of the bound.

    Returns:
        The estimate; 0 if no threshold has two labelled and three unlabelled rows above it.

    >>> bbe(np.r_[np.full(50, 0.9)], np.r_[np.full(31, 0.9), np.full(69, 0.1)]).value
    0.3
    """
    score_p, score_u = check_scores(score_p, score_u)
    num_p, num_u = best_thresholds(score_p, score_u)
    if len(num_p) == 0:
        return alpha_estimate(0.0, method="bbe")
    fraction_p = num_p / len(score_p)
    # Count U above the threshold from 0, as the authors do: numbers agree to the last digit.
    ratio = (num_u - 1) / len(score_u) / fraction_p
    slack = bound_slack(len(score_p), len(score_u), k=k, delta=delta, gamma=gamma)
    best = np.argmin(ratio + slack / fraction_p)
    return alpha_estimate(float(ratio[best]), method="bbe")


def bound_slack(
    num_p: int, num_u: int, *, k: float = 4.0, delta: float = 0.1, gamma: float = 0.01
) -> float:
    """Return what the bound adds to the numerator of the ratio.

    Raises:
        ConfigError: The constants give no bound.
    """
    if not (0 < delta < k and gamma >= 0):
        raise ConfigError(
            f"bbe: expected 0 < delta < k and gamma >= 0, got delta={delta}, k={k}, gamma={gamma}"
        )
    log = math.log(k / delta)
    return (1 + gamma) * (math.sqrt(log / (2 * num_u)) + math.sqrt(log / (2 * num_p)))


def en(score_p: np.ndarray, score_u: np.ndarray) -> Estimate:
    """EN: the quotient of mean probabilities.

    Elkan and Noto 2008, "Learning classifiers from only positive and unlabeled data". Too high
    where the domains overlap or the classifier is not calibrated.

    Args:
        score_p: (p,) float. Probability of the target (or of being labelled) of held-out labelled
            rows.
        score_u: (u,) float. The same for held-out unlabelled rows.

    >>> en(np.array([0.8, 1.0]), np.array([0.9, 0.0, 0.0])).value
    0.3333333333333333

    Raises:
        DataError: Not probabilities, or all labelled rows have 0.
    """
    score_p, score_u = check_probabilities(score_p, score_u)
    mean_p = float(score_p.mean(dtype=np.float64))
    if mean_p == 0:
        raise DataError(
            "score_p: expected some probabilities above 0, got only zeros; "
            "the classifier has not fitted the labelled rows"
        )
    return alpha_estimate(float(score_u.mean(dtype=np.float64)) / mean_p, method="en")


def scott(score_p: np.ndarray, score_u: np.ndarray, *, delta: float = 0.1) -> Estimate:
    """Scott's estimator: the least upper bound of the ratio of U to P over all thresholds.

    Scott 2015, "A Rate of Convergence for Mixture Proportion Estimation, with Application to
    Learning from Noisy Labels". Each bound is exact for its own threshold, so the least of them may
    fall below alpha where the domains separate; where they overlap it is nearer than BBE. Rows of U
    at or above a threshold are all counted, while BBE counts one less, as its authors' code does.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        delta: Probability that one bound, above or below the line, fails.

    Returns:
        The estimate; 0 if no threshold has two labelled and three unlabelled rows above it.

    Raises:
        ConfigError: ``delta`` is not between 0 and 1.
    """
    if not 0 < delta < 1:
        raise ConfigError(f"scott: expected 0 < delta < 1, got {delta}")
    score_p, score_u = check_scores(score_p, score_u)
    num_p, num_u = best_thresholds(score_p, score_u)
    if len(num_p) == 0:
        return alpha_estimate(0.0, method="scott")
    above = binomial_upper_bound(num_u, len(score_u), delta)
    below = 1.0 - binomial_upper_bound(len(score_p) - num_p, len(score_p), delta)
    ratio = above / np.maximum(below, 1e-12)
    return alpha_estimate(float(ratio.min()), method="scott")


_RATIO_CAP = 50.0
_PROB_FLOOR = 1e-7
_GRID_SIZE = 8192
# Below it P lies where U has no rows, and no correction applies.
_LEAST_MEAN_RATIO = 0.4
_NUM_POINTS = 4000
_MAX_STEPS = 1000
_TOLERANCE = 1e-5


def dedpul(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    bandwidth_p: float = 0.1,
    bandwidth_u: float = 0.05,
) -> Estimate:
    """DEDPUL: alpha from the ratio of the densities of logits on P and on U.

    Ivanov 2020, "DEDPUL: Difference-of-Estimated-Densities-based Positive-Unlabeled Learning".
    Deviations from the authors' code:
    1. Densities are computed on a grid, and the ratio at evenly spaced ranks of U.
    2. The kernel on P is never narrower than the one on U: saturated scores would give peaks of
       different height.
    3. The mean ratio over U, 1 for true densities, is lifted to 1 where smoothing lowered it, and
       the larger answer of expectation maximisation and of the bend of its error counts: the former
       creeps to 0 where the ratio is a little too low. This costs where domains overlap
       (docs/filter.md has both errors).
    4. A failure is an error, never an alpha of 1.

    Args:
        score_p: (p,) float. Probability of the target (or of being labelled) of held-out labelled
            rows.
        score_u: (u,) float. The same for held-out unlabelled rows.
        bandwidth_p: Width of the kernel on P, in standard deviations of P's logits.
        bandwidth_u: Width of the kernel on U, in standard deviations of U's logits.
    """
    score_p, score_u = check_probabilities(score_p, score_u)
    ratio = density_ratio(score_p, score_u, bandwidth_p=bandwidth_p, bandwidth_u=bandwidth_u)
    ratio = ratio / np.clip(ratio.mean(), _LEAST_MEAN_RATIO, 1.0)
    others = min(_fixed_point(ratio), _bend(ratio))
    return alpha_estimate(1.0 - others, method="dedpul")


def density_ratio(
    score_p: np.ndarray, score_u: np.ndarray, *, bandwidth_p: float, bandwidth_u: float
) -> np.ndarray:
    """Smoothed f_p / f_u over the unlabelled rows, sorted: (min(u, 4000),) float64."""
    logit_p, logit_u = _logit(score_p), np.sort(_logit(score_u))
    width_u = bandwidth_u * max(float(logit_u.std()), 1e-6)
    width_p = max(bandwidth_p * float(logit_p.std()), width_u)
    rank = np.linspace(0, len(logit_u) - 1, min(len(logit_u), _NUM_POINTS)).round().astype(np.int64)
    point = logit_u[rank]
    density_p = _grid_density(logit_p, point, width_p)
    density_u = _grid_density(logit_u, point, width_u)
    ratio = np.minimum(density_p / np.maximum(density_u, 1e-300), _RATIO_CAP)
    ratio = _rolling_median(ratio, half_width=5)
    # On the target's side the ratio can only grow with the score; beyond it noise may do anything.
    middle = (float(logit_p.mean()) + float(logit_u.mean())) / 2
    start = int(np.searchsorted(point, middle))
    ratio[start:] = np.maximum.accumulate(ratio[start:])
    return np.sort(_rolling_median(ratio, half_width=max(len(ratio) // 20, 1)))


def _logit(prob: np.ndarray) -> np.ndarray:
    prob = np.clip(prob.astype(np.float64), _PROB_FLOOR, 1 - _PROB_FLOOR)
    return np.log(prob) - np.log1p(-prob)


def _grid_density(sample: np.ndarray, at: np.ndarray, width: float) -> np.ndarray:
    """Gaussian kernel density of ``sample``, evaluated at the sorted points ``at``."""
    low = min(sample.min(), at[0]) - 4 * width
    high = max(sample.max(), at[-1]) + 4 * width
    step = (high - low) / (_GRID_SIZE - 1)
    position = (sample - low) / step
    left = np.minimum(position.astype(np.int64), _GRID_SIZE - 2)
    weight = position - left
    mass = np.bincount(left, 1 - weight, _GRID_SIZE) + np.bincount(left + 1, weight, _GRID_SIZE)
    reach = min(max(int(np.ceil(5 * width / step)), 1), _GRID_SIZE // 2 - 1)
    offset = np.arange(-reach, reach + 1) * step / width
    kernel = np.exp(-0.5 * offset**2)
    density = np.convolve(mass, kernel / kernel.sum(), mode="same") / (len(sample) * step)
    return np.interp(at, low + step * np.arange(_GRID_SIZE), density)


def _rolling_median(values: np.ndarray, *, half_width: int) -> np.ndarray:
    """Median over a centred window; the ends are padded with themselves."""
    padded = np.pad(values, half_width, mode="edge")
    return np.median(sliding_window_view(padded, 2 * half_width + 1), axis=-1)


def _fixed_point(ratio: np.ndarray) -> float:
    """The fraction a of others with ``mean(max(0, 1 - ratio (1 - a))) = a``, approached from 0."""
    others = 0.0
    for _ in range(_MAX_STEPS):
        mean = _mean_posterior(ratio, others)
        if abs(mean - others) < _TOLERANCE:
            return mean
        others = mean
    return others


def _bend(ratio: np.ndarray) -> float:
    """The fraction of others at which the error of the fixed point bends most while it is small."""
    grid = np.arange(0.0, 1.0, 0.001)
    error = np.array([_mean_posterior(ratio, a) for a in grid]) - grid
    bend = np.full(len(grid), -np.inf)
    bend[1:-1] = error[:-2] - 2 * error[1:-1] + error[2:]
    bend[error >= 0.05] = -np.inf
    best = int(np.argmax(bend))
    return float(grid[best]) if bend[best] > 1e-9 else 1.0


def _mean_posterior(ratio: np.ndarray, others: float) -> float:
    return float(np.maximum(0.0, 1.0 - ratio * (1.0 - others)).mean())


ESTIMATORS: dict[str, Callable[..., Estimate]] = {
    "bbe": bbe,
    "en": en,
    "scott": scott,
    "dedpul": dedpul,
}
"""Estimators by name; each takes held-out scores ``(score_p, score_u)``."""


def estimate_from_logits(
    name: str, logit_p: np.ndarray, logit_u: np.ndarray, *, bbe_constant: float = 4.0
) -> Estimate:
    """Estimate alpha from held-out logits.

    >>> estimate_from_logits("en", np.full(4, 40.0), np.array([40.0, -40.0])).value
    0.5

    Raises:
        ConfigError: Unknown estimator.
    """
    if name == "bbe":
        return bbe(logit_p, logit_u, k=bbe_constant)
    check_choice("alpha_estimator", name, ESTIMATORS)
    pair = (1.0 / (1.0 + np.exp(-np.float64(logit))) for logit in (logit_p, logit_u))
    return ESTIMATORS[name](*pair)


CLEAR_FRACTION = 0.4
"""Fraction of labelled rows that every threshold of the upper end keeps, at least."""
_CHOICE = 0.04
"""Part of the upper end's error that is spent on the choice of thresholds."""
LEAST_MISSED = 0.09
"""Fraction of labelled rows below the higher threshold of the first pair of the lower end. At lower
thresholds others fall more slowly than the law says, where domains overlap."""
_NEXT_MISSED = 1.9
"""Factor from pair to pair."""
_MOST_MISSED = 0.7
_MISSED_RATIO = 4
"""Of the labelled rows below the two thresholds of a pair."""
_LEAST_ROWS = 8
_PRECISE = 0.03
"""A pair whose bound is this far below its median is precise enough to be preferred."""
_NUM_THRESHOLDS = 25


class _Profile(NamedTuple):
    """Draws of the true fractions above thresholds at labelled scores, thresholds ascending."""

    num_missed: np.ndarray
    """(t,) int. Labelled rows below each threshold."""
    missed: np.ndarray
    """(reps, t): the target's fraction below."""
    above_u: np.ndarray
    """(t,) or (reps, t): the unlabelled fraction at or above."""


def bootstrap_interval(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    value: float | None = None,
    rng: np.random.Generator,
    reps: int = 1000,
    level: float = 0.95,
    groups_p: np.ndarray | None = None,
    groups_u: np.ndarray | None = None,
) -> tuple[float, float]:
    """Compute an interval for alpha from held-out scores, extended to hold a given estimate.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        value: An estimate that the interval must hold.
        rng: Draws the true fractions.
        reps: Number of draws.
        level: Probability that the interval covers alpha.
        groups_p: (p,) int. Episode of each labelled row: whole episodes are weighted, since rows
            of one episode carry less information than as many independent ones.
        groups_u: (u,) int. The same for U. The interval is then about the alpha of other episodes
            from the same source; leave it out for the alpha of exactly these rows.

    Returns:
        Lower and upper end in [0, 0.999].

    >>> rng = np.random.default_rng(0)
    >>> u = np.r_[rng.normal(8, 1, 300), rng.normal(0, 1, 700)]
    >>> low, high = bootstrap_interval(rng.normal(8, 1, 500), u, rng=rng)
    >>> 0.2 < low < 0.3 < high
    True

    Raises:
        DataError: Scores or groups that cannot be used.
        ConfigError: ``reps`` or ``level`` out of range.
    """
    score_p, score_u = check_scores(score_p, score_u)
    if reps < 20 or not 0 < level < 1:
        raise ConfigError(
            f"interval: expected reps >= 20 and 0 < level < 1, got reps={reps}, level={level}"
        )
    profile = _draw_profile(score_p, score_u, groups_p, groups_u, reps, rng)
    tail = (1 - level) / 2
    low = _lower_end(profile, len(score_p), tail)
    high = _upper_end(profile, len(score_p), len(score_u), tail)
    if value is not None:
        low, high = min(low, value), max(high, value)
    return clip_alpha(min(low, high)), clip_alpha(high)


def _draw_profile(
    score_p: np.ndarray,
    score_u: np.ndarray,
    groups_p: np.ndarray | None,
    groups_u: np.ndarray | None,
    reps: int,
    rng: np.random.Generator,
) -> _Profile:
    """Draw from the distribution of the true fractions below labelled scores.

    These are order statistics of uniform numbers whatever the target's distribution, so that
    quantiles of the draws are exact for any number of independent labelled rows.
    """
    ascending, num_p, num_u = np.sort(score_p), len(score_p), len(score_u)
    wanted = np.geomspace(1, max((1 - CLEAR_FRACTION) * num_p, 1), _NUM_THRESHOLDS)
    chosen = np.concatenate([[0], wanted, *_pairs(num_p)]).round().astype(np.int64)
    threshold = np.unique(ascending[np.minimum(chosen, num_p - 1)])
    cell_p, cell_u = (np.searchsorted(threshold, s, side="right") for s in (score_p, score_u))
    num_cells = len(threshold) + 1
    above = np.cumsum(np.bincount(cell_u, minlength=num_cells)[::-1])[-2::-1] / num_u
    num_missed = np.searchsorted(ascending, threshold, side="left")
    worth = 1.0
    if groups_u is None:
        # The target's rows in U are a sample too: alpha is about these, not about their source.
        clear = num_missed <= (1 - CLEAR_FRACTION) * num_p
        least = float((above / (1 - num_missed / num_p))[clear].min())
        worth = 1 / (1 + num_p / (least * num_u + 1))
    else:
        mass = _weighted(cell_u, groups_u, "groups_u", num_cells, 1.0, reps, rng)
        above = np.cumsum(mass[:, ::-1], axis=1)[:, -2::-1] / mass.sum(axis=1, keepdims=True)
    mass = _weighted(cell_p, groups_p, "groups_p", num_cells, worth, reps, rng)
    missed = np.cumsum(mass, axis=1)
    return _Profile(num_missed, np.clip(missed[:, :-1] / missed[:, -1:], 1e-9, 1 - 1e-9), above)


def _pairs(num_p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the labelled rows below the lower and the higher threshold of each pair."""
    steps = int(math.log(_MOST_MISSED / LEAST_MISSED) / math.log(_NEXT_MISSED)) + 1
    higher = (num_p * LEAST_MISSED * _NEXT_MISSED ** np.arange(steps)).round()
    higher = higher[higher >= _LEAST_ROWS]
    return (higher / _MISSED_RATIO).round(), higher


def _weighted(
    cell: np.ndarray,
    groups: np.ndarray | None,
    name: str,
    num_cells: int,
    worth: float,
    reps: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """(reps, cells) float64. Random weight of each cell, with one more row or group in the first.

    Every row or group weighs a gamma variate of shape ``worth``.
    """
    if groups is None:
        shape = worth * np.bincount(cell, minlength=num_cells)
        shape[0] += worth
        return rng.standard_gamma(shape, (reps, num_cells))
    groups = np.asarray(groups)
    if groups.shape != cell.shape:
        raise DataError(f"{name}: expected shape {cell.shape}, got {groups.shape}")
    number = np.unique(groups, return_inverse=True)[1]
    num_groups = int(number.max()) + 1
    if num_groups < 2:
        raise DataError(f"{name}: expected at least two groups to resample, got one")
    num_rows = np.zeros((num_groups + 1, num_cells))
    np.add.at(num_rows, (number, cell), 1.0)
    num_rows[-1, 0] = len(cell) / num_groups
    return rng.standard_gamma(worth, (reps, num_groups + 1)) @ num_rows


def _upper_end(profile: _Profile, num_p: int, num_u: int, tail: float) -> float:
    clear = profile.num_missed <= (1 - CLEAR_FRACTION) * num_p
    # One row more: a fraction of U that is 0 has no logarithm, and alpha may be one row's.
    log_ratio = (np.log(profile.above_u + 1 / num_u) - np.log1p(-profile.missed))[:, clear]
    highest = -_lower_bounds(-log_ratio, _CHOICE / 2 * tail).max()
    may_be_least = _lower_bounds(log_ratio, _CHOICE / 2 * tail) <= highest
    chosen = -log_ratio[:, may_be_least]
    return float(np.exp(-_lower_bounds(chosen, (1 - _CHOICE) * tail).max()))


def _lower_end(profile: _Profile, num_p: int, tail: float) -> float:
    first, second = (
        np.searchsorted(profile.num_missed, num, side="right") - 1 for num in _pairs(num_p)
    )
    apart = (profile.num_missed[second] >= _LEAST_ROWS) & (first < second)
    if not apart.any():
        return 0.0
    first, second = first[apart], second[apart]
    ratio = profile.above_u / (1 - profile.missed)
    fall = np.maximum(ratio[:, first] - ratio[:, second], 0.0)
    left = np.sqrt(np.minimum(profile.missed[:, first] / profile.missed[:, second], 1 - 1e-9))
    shown = _lower_bounds((1 - ratio[:, first]) * (1 - left) - fall, tail) >= 0
    if not shown.any():
        return 0.0
    alpha = (ratio[:, second] - left / (1 - left) * fall)[:, shown]
    # The more labelled rows are missed, the surer is the law: prefer that to a narrower interval.
    precise = np.median(alpha, axis=0) - np.quantile(alpha, tail, axis=0) <= _PRECISE
    deepest = int(np.flatnonzero(precise)[-1]) if precise.any() else 0
    return float(max(_lower_bounds(alpha[:, deepest:], tail).max(), 0.0))


def _lower_bounds(drawn: np.ndarray, tail: float) -> np.ndarray:
    """(t,) float64. Bounds that all columns of (reps, t) draws exceed at once, but for ``tail``."""
    middle = np.median(drawn, axis=0)
    reach = np.maximum(middle - np.quantile(drawn, tail, axis=0), 1e-12)
    critical = float(np.quantile(np.max((middle - drawn) / reach, axis=1), 1 - tail))
    return middle - critical * reach
