"""Estimators of alpha, the fraction of target rows among the unlabelled.

Every estimator takes held-out scores of labelled rows P and unlabelled rows U that share no row;
alpha is about exactly that U. With one sample the labelled rows were cut out of the pool, so alpha
lies a little below the pool's fraction of target rows (29/99 against 0.3 in the paper's setting);
with two samples U is the whole pool and alpha its fraction.

Intervals need no labels of other rows. For every threshold c the ratio ``r(c) = fraction of U above
c / fraction of P above c`` is alpha plus what other rows above c add. Each end comes from r:

- upper end: the least upper bound on r over all thresholds at which enough labelled rows remain,
  with the bootstrap's critical value for all of them at once, since the least one is chosen;
- lower end: the least lower bound over the same thresholds, which keep at least ``CLEAR_FRACTION``
  of the labelled rows. alpha has no lower bound unless the highest scores are of target rows alone.
  Where r still falls as the kept fraction goes from 0.7 to 0.3 the domains overlap: then thresholds
  continue to ``OVERLAP_FRACTION`` and the fall is subtracted once more; where r falls even there
  the lower end is 0, because the scores bound alpha from above only.

Coverage and median width of 95 % intervals, n_p = 1,000, n_u = 99,000, alpha 29/99, unit-variance
Gaussians ``gap`` apart. 200 fresh draws for the last line (measured again by
benchmarks/filter/coverage.py), 100 for the others, which use thresholds that keep 0.3 of P. Where
the domains overlap, misses are lower ends above alpha: the upper ends of all hold.

| construction | gap 8 | gap 4 | gap 2 | gap 1 |
|---|---|---|---|---|
| percentile bootstrap of BBE | 85 %, 0.011 | 92 %, 0.020 | 53 %, 0.059 | 0 %, 0.13 |
| the same, reflected at BBE | 96 %, 0.014 | 83 %, 0.020 | 30 %, 0.059 | 6 %, 0.13 |
| profile, each threshold separately | 69 %, 0.034 | 81 %, 0.038 | 90 %, 0.055 | 0 %, 0.08 |
| profile, all thresholds at once | 98 %, 0.055 | 98 %, 0.062 | 99 %, 0.088 | 0 %, 0.13 |
| upper end at once, lower separately | 98 %, 0.038 | 97 %, 0.044 | 90 %, 0.067 | 0 %, 0.10 |
| the same, overlap detected (this file) | 99 %, 0.029 | 98 %, 0.035 | 97 %, 0.141 | 96 %, 0.34 |
"""

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from puorl.core.errors import ConfigError, DataError
from puorl.core.stats import Estimate, binomial_upper_bound
from puorl.pu.config import check_choice

MAX_ALPHA = 0.999
"""At 1 every unlabelled row would be rejected from training as a target row: nothing is left."""


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
    fall below alpha where the domains separate; where they overlap it is nearer than BBE.

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
       creeps to 0 where the ratio is a little too low.
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
"""Labelled rows that the highest threshold keeps, where the domains separate."""
OVERLAP_FRACTION = 0.05
"""The same where they overlap."""
_LOW_FRACTION = 0.7
_HIGH_FRACTION = 0.3
_MIN_ROWS = 20
_NUM_BINS = 400
_KEPT_FRACTION = 0.8
_FEW_LABELS = 200


class _Profile(NamedTuple):
    """Logarithm of r at every threshold, thresholds descending, and its spread."""

    fraction_p: np.ndarray
    log_ratio: np.ndarray
    spread: np.ndarray
    deviation: np.ndarray
    """(reps, t): the bootstrap's log ratios minus ours."""


def bootstrap_interval(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    value: float | None = None,
    rng: np.random.Generator,
    reps: int = 200,
    level: float = 0.95,
    groups_p: np.ndarray | None = None,
    groups_u: np.ndarray | None = None,
) -> tuple[float, float]:
    """Compute an interval for alpha from held-out scores, extended to hold a given estimate.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        value: An estimate that the interval must hold.
        rng: Draws the resamples.
        reps: Number of resamples.
        level: Probability that the interval covers alpha.
        groups_p: (p,) int. Episode of each labelled row: whole episodes are resampled, since rows
            of one episode carry less information than as many independent ones.
        groups_u: (u,) int. The same for U. The interval is then about the alpha of other episodes
            from the same source; leave it out for the alpha of exactly these rows.

    Returns:
        Lower and upper end in [0, 0.999].

    >>> rng = np.random.default_rng(0)
    >>> u = np.r_[rng.normal(8, 1, 300), rng.normal(0, 1, 700)]
    >>> low, high = bootstrap_interval(rng.normal(8, 1, 500), u, rng=rng)
    >>> low < 0.3 < high
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
    count_p, count_u = _binned(score_p, score_u)
    profile = _profile(
        _resampled(count_p, groups_p, "groups_p", reps, rng),
        _resampled(count_u, groups_u, "groups_u", reps, rng),
        count_p,
        count_u,
    )
    low, high = _ends(profile, level, num_p=len(score_p))
    num_independent = len(score_p) if groups_p is None else len(np.unique(groups_p))
    if num_independent < _FEW_LABELS:
        high = max(high, _few_labels_bound(score_p, score_u, num_independent, (1 - level) / 2))
    if value is not None:
        low, high = min(low, value), max(high, value)
    return clip_alpha(low), clip_alpha(high)


class _Binned(NamedTuple):
    """Bin of each row (highest scores first), and rows in each bin."""

    bin: np.ndarray
    num_rows: np.ndarray


def _binned(score_p: np.ndarray, score_u: np.ndarray) -> tuple[_Binned, _Binned]:
    """Bin the scores at quantiles of both sets, so that resamples need no sorting."""
    level = np.linspace(0, 1, _NUM_BINS // 2 + 1)[1:-1]
    edge = np.unique(np.concatenate([np.quantile(score_p, level), np.quantile(score_u, level)]))

    def cut(score: np.ndarray) -> _Binned:
        number = len(edge) - np.searchsorted(edge, score, side="right")
        return _Binned(number, np.bincount(number, minlength=len(edge) + 1))

    return cut(score_p), cut(score_u)


def _resampled(
    rows: _Binned, groups: np.ndarray | None, name: str, reps: int, rng: np.random.Generator
) -> np.ndarray:
    """(reps, bins) float64. Rows in each bin after resampling rows, or whole groups."""
    num_rows = len(rows.bin)
    if groups is None:
        return rng.multinomial(num_rows, rows.num_rows / num_rows, size=reps).astype(np.float64)
    groups = np.asarray(groups)
    if groups.shape != (num_rows,):
        raise DataError(f"{name}: expected shape ({num_rows},), got {groups.shape}")
    number = np.unique(groups, return_inverse=True)[1]
    num_groups = int(number.max()) + 1
    if num_groups < 2:
        raise DataError(f"{name}: expected at least two groups to resample, got one")
    drawn = rng.multinomial(num_groups, np.full(num_groups, 1 / num_groups), size=reps)
    return np.stack([np.bincount(rows.bin, times[number], len(rows.num_rows)) for times in drawn])


def _profile(
    resampled_p: np.ndarray, resampled_u: np.ndarray, rows_p: _Binned, rows_u: _Binned
) -> _Profile:
    above_p, above_u = np.cumsum(rows_p.num_rows), np.cumsum(rows_u.num_rows)
    fraction_p, fraction_u = above_p / above_p[-1], above_u / above_u[-1]
    log_ratio = _log_fraction(above_u) - _log_fraction(above_p)
    again = _log_fraction(np.cumsum(resampled_u, axis=1)) - _log_fraction(
        np.cumsum(resampled_p, axis=1)
    )
    deviation = again - log_ratio
    # The bootstrap has no spread where a count is 0; the binomial formula does.
    binomial = (1 - fraction_p) / (above_p + 0.5) + (1 - fraction_u) / (above_u + 0.5)
    spread = np.sqrt(np.maximum(deviation.var(axis=0), binomial))
    return _Profile(fraction_p, log_ratio, np.maximum(spread, 1e-9), deviation)


def _log_fraction(above: np.ndarray) -> np.ndarray:
    """Logarithm of the fraction above each threshold; half a row is added so that 0 has one."""
    return np.log((above + 0.5) / (above[..., -1:] + 0.5))


def _ends(profile: _Profile, level: float, *, num_p: int) -> tuple[float, float]:
    tail = (1 - level) / 2
    pointwise = NormalDist().inv_cdf(1 - tail)
    clear = _first(profile, CLEAR_FRACTION, num_p)
    lowest = np.max((-profile.deviation / profile.spread)[:, clear:], axis=1)
    together = max(float(np.quantile(lowest, 1 - tail)), pointwise)
    high = np.exp(np.min((profile.log_ratio + together * profile.spread)[clear:]))
    return _lower_end(profile, pointwise, clear, num_p), float(high)


def _lower_end(profile: _Profile, pointwise: float, clear: int, num_p: int) -> float:
    bound = np.exp(profile.log_ratio - pointwise * profile.spread)
    start, end = _first(profile, _LOW_FRACTION, num_p), _first(profile, _HIGH_FRACTION, num_p)
    if not _falls(profile, start, end):
        return float(bound[clear:].min())
    top = _first(profile, OVERLAP_FRACTION, num_p)
    if _falls(profile, end, top):
        return 0.0
    # If the others' fraction keeps falling, they still add less than they lost on the way up.
    lost = np.exp(profile.log_ratio[start]) - np.exp(profile.log_ratio[end])
    return float(max(min(bound[top:].min(), bound[end] - lost), 0.0))


def _few_labels_bound(
    score_p: np.ndarray, score_u: np.ndarray, num_independent: int, tail: float
) -> float:
    """Upper end at the threshold that keeps four fifths of P, exact for any number of labels.

    The bootstrap underestimates how far labelled scores reach down when there are few.
    """
    threshold = np.quantile(score_p, 1 - _KEPT_FRACTION, method="lower")
    kept = float((score_p >= threshold).mean())
    missed = np.array([num_independent - int(kept * num_independent)])
    least = 1.0 - float(binomial_upper_bound(missed, num_independent, tail)[0])
    return float((score_u >= threshold).mean()) / least if least > 0 else 1.0


def _first(profile: _Profile, fraction: float, num_p: int) -> int:
    """Return the highest threshold that keeps this fraction of P, and enough rows for a spread."""
    return int(np.argmax(profile.fraction_p >= max(fraction, min(_MIN_ROWS / num_p, 1.0))))


def _falls(profile: _Profile, start: int, end: int) -> bool:
    """Return whether r falls significantly from a low threshold to a high one."""
    fall = profile.log_ratio[start] - profile.log_ratio[end]
    spread = float((profile.deviation[:, start] - profile.deviation[:, end]).std())
    return bool(fall > 2 * max(spread, 1e-9))
