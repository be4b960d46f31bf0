"""AlphaEstimate, and what alpha means for data of one sample and of two.

Estimators are handed labelled rows P and unlabelled rows U that share no row, and alpha is the
share of target rows in exactly that U. This reading makes them indifferent to how the labels came
about:

- one sample: labelled rows were cut out of the pool, so U lacks them and alpha lies a little below
  the pool's share of target rows (29/99 against 0.3 in the paper's setting);
- two samples: P is a sample of its own, U is the whole pool, and alpha is the pool's share.

Among the target rows of P and U together the labelled share is ``c = n_p / (n_p + alpha n_u)`` in
both cases, so one conversion serves both. What differs is what c means (how often a target row of
the pool gets a label, or merely how large a sample was taken) and the share in the pool itself:
`pool_fraction`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from puorl.core.errors import ConfigError, DataError

Sampling = Literal["one", "two"]

MAX_ALPHA = 0.999
"""At 1 every unlabelled row would be rejected from training as a target row: nothing is left."""


@dataclass(frozen=True)
class AlphaEstimate:
    """How many of the unlabelled rows are the target's, clipped to [0, 0.999].

    >>> AlphaEstimate(1.3, None, "bbe").value
    0.999
    """

    value: float
    """Share of target rows among the unlabelled."""
    interval: tuple[float, float] | None
    """Lower and upper end, or None where none was computed."""
    method: str
    """Name of the estimator."""

    def __post_init__(self) -> None:
        """Clip to the range in which an estimate can be used.

        Raises:
            DataError: The value or an end of the interval is not a number.
        """
        numbers = (self.value, *(self.interval or ()))
        if not np.all(np.isfinite(numbers)):
            raise DataError(
                f"{self.method}: expected a finite estimate of alpha, got {numbers}; "
                "check the scores for constant or non-finite values"
            )
        object.__setattr__(self, "value", clip_alpha(self.value))
        if self.interval is not None:
            low, high = self.interval
            object.__setattr__(self, "interval", (clip_alpha(low), clip_alpha(high)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        content = asdict(self)
        return content | {"interval": None if self.interval is None else list(self.interval)}


def clip_alpha(value: float) -> float:
    """The nearest number in [0, 0.999]."""
    return float(min(max(value, 0.0), MAX_ALPHA))


def alpha_from_label_frequency(frequency: float, num_p: int, num_u: int) -> float:
    """Turn the labelled share c of all target rows (P and U together) into alpha.

    >>> alpha_from_label_frequency(0.2, 10, 100)
    0.4

    Raises:
        DataError: The frequency is not in (0, 1].
    """
    if not 0 < frequency <= 1:
        raise DataError(f"label frequency: expected a number in (0, 1], got {frequency}")
    return num_p * (1 - frequency) / (frequency * num_u)


def label_frequency(alpha: float, num_p: int, num_u: int) -> float:
    """The labelled share of all target rows, P and U together.

    With one sample it is the chance that a target row of the pool was labelled; with two it only
    reflects how large a labelled sample was taken.
    """
    return num_p / (num_p + alpha * num_u)


def pool_fraction(alpha: float, num_p: int, num_u: int, sampling: Sampling) -> float:
    """Share of target rows in the pool that the data was drawn from.

    >>> round(pool_fraction(29 / 99, 10_000, 990_000, "one"), 6)
    0.3

    Raises:
        ConfigError: Unknown sampling.
    """
    if sampling not in get_args(Sampling):
        raise ConfigError(f"sampling: expected one or two, got {sampling!r}")
    return alpha if sampling == "two" else (num_p + alpha * num_u) / (num_p + num_u)


def check_scores(score_p: np.ndarray, score_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as floating-point arrays of one axis, none empty, all finite.

    Raises:
        DataError: They are not.
    """
    return _checked(score_p, "score_p", ndim=1), _checked(score_u, "score_u", ndim=1)


def check_probabilities(score_p: np.ndarray, score_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for scores that must be probabilities.

    Raises:
        DataError: They are not.
    """
    pair = check_scores(score_p, score_u)
    for name, score in zip(("score_p", "score_u"), pair, strict=True):
        if score.min() < 0 or score.max() > 1:
            raise DataError(
                f"{name}: expected probabilities in [0, 1], got values from {score.min():g} to "
                f"{score.max():g}; apply a sigmoid to logits first"
            )
    return pair


def check_features(x_p: np.ndarray, x_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 arrays (rows, columns) of the same columns, none empty, all finite.

    Raises:
        DataError: They are not.
    """
    x_p, x_u = _checked(x_p, "x_p", ndim=2), _checked(x_u, "x_u", ndim=2)
    if x_p.shape[1] != x_u.shape[1]:
        raise DataError(
            f"x_u: expected the {x_p.shape[1]} columns of x_p, got {x_u.shape[1]}; "
            "build both from the same inputs"
        )
    return x_p.astype(np.float64), x_u.astype(np.float64)


def _checked(values: np.ndarray, name: str, *, ndim: int) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if values.ndim != ndim or values.size == 0:
        raise DataError(
            f"{name}: expected a non-empty array with {ndim} axes, got shape {values.shape}"
        )
    num_bad = int(np.count_nonzero(~np.isfinite(values)))
    if num_bad:
        raise DataError(
            f"{name}: expected finite numbers, got {num_bad} of {values.size} that are not; "
            "check the classifier's input for missing values"
        )
    return values


_BISECTIONS = 50
_TINY = 1e-300


def upper_bounds(count: np.ndarray, num_rows: int, delta: float) -> np.ndarray:
    """The p for which seeing at most ``count`` of ``num_rows`` has chance ``delta``.

    Args:
        count: (t,) int. Successes, each between 0 and ``num_rows``.
        num_rows: Trials.
        delta: Chance that the bound fails.

    Returns:
        (t,) float64 Clopper-Pearson bounds; 1 where every trial succeeded.

    >>> round(float(upper_bounds(np.array([0]), 10, 0.1)[0]), 6) == round(1 - 0.1**0.1, 6)
    True
    """
    count = np.asarray(count, np.int64)
    low, high = count / num_rows, np.ones(len(count))
    open_end = count < num_rows
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = np.zeros(len(count), bool)
        above[open_end] = cdf(count[open_end], num_rows, middle[open_end]) > delta
        low, high = np.where(above, middle, low), np.where(above, high, middle)
        if np.all(high - low < 1e-12):
            break
    return np.where(open_end, (low + high) / 2, 1.0)


def cdf(count: np.ndarray, num_rows: int, prob: np.ndarray) -> np.ndarray:
    """Chance of at most ``count`` successes: the incomplete beta function I_{1-p}(n-k, k+1)."""
    first, second = (num_rows - count).astype(np.float64), count + 1.0
    x = 1.0 - prob
    # The continued fraction converges fast below the mean of the beta distribution only.
    swap = x > (first + 1) / (first + second + 2)
    a, b = np.where(swap, second, first), np.where(swap, first, second)
    y = np.where(swap, prob, x)
    with np.errstate(divide="ignore"):
        log_front = a * np.log(y) + b * np.log1p(-y) - _log_beta(a, b) - np.log(a)
    tail = np.exp(log_front) * _fraction(a, b, y)
    return np.clip(np.where(swap, 1.0 - tail, tail), 0.0, 1.0)


def _fraction(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Lentz's evaluation of the incomplete beta function's continued fraction."""
    c = np.ones_like(x)
    d = 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d.copy()
    for m in range(1, 5000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _off_zero(1.0 + term * d)
            c = _off_zero(1.0 + term / c)
            value = value * c * d
        if np.all(np.abs(c * d - 1.0) < 1e-13):
            break
    return value


def _off_zero(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < _TINY, _TINY, x)


def _log_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


class Thresholds(NamedTuple):
    """Rows at or above each threshold, thresholds descending."""

    num_p: np.ndarray
    """(t,) int64. Labelled rows at or above the threshold, at least two."""
    num_u: np.ndarray
    """(t,) int64. Unlabelled rows at or above it, at least three."""


def best_thresholds(score_p: np.ndarray, score_u: np.ndarray) -> Thresholds:
    """One threshold for each number of labelled rows above it: the one with fewest unlabelled.

    Thresholds are scores of unlabelled rows; a run of equal scores counts as one, and the lowest
    score is never used. An estimate that grows with ``num_u`` and is fixed by ``num_p`` otherwise
    has its minimum here, so at most ``len(score_p)`` thresholds need looking at. May be empty.
    """
    ascending_p, ascending_u = np.sort(score_p), np.sort(score_u)
    if len(ascending_u) < 4:
        return Thresholds(np.zeros(0, np.int64), np.zeros(0, np.int64))
    # With three rows above it a threshold has at least the third highest score.
    ceiling = np.minimum(ascending_p[::-1], ascending_u[-3])
    below = np.searchsorted(ascending_u, ceiling, side="right") - 1
    threshold = ascending_u[np.maximum(below[below >= 0], 0)]
    threshold = np.unique(threshold[threshold > ascending_u[0]])[::-1]
    num_u = len(ascending_u) - np.searchsorted(ascending_u, threshold, side="left")
    num_p = len(ascending_p) - np.searchsorted(ascending_p, threshold, side="left")
    enough = num_p >= 2
    return Thresholds(num_p[enough], num_u[enough])


def bbe(
    score_p: np.ndarray,
    score_u: np.ndarray,
    *,
    k: float = 4.0,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> AlphaEstimate:
    """Estimate alpha from the bin of highest scores that is best known.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        k: Constant in the logarithm of the bound; 1 is the paper's setting.
        delta: Chance that the bound may fail.
        gamma: Slack of the bound.

    Returns:
        The estimate; 0 if no threshold has two labelled and three unlabelled rows above it.

    >>> bbe(np.r_[np.full(50, 0.9)], np.r_[np.full(31, 0.9), np.full(69, 0.1)]).value
    0.3
    """
    score_p, score_u = check_scores(score_p, score_u)
    num_p, num_u = best_thresholds(score_p, score_u)
    if len(num_p) == 0:
        return AlphaEstimate(0.0, None, "bbe")
    share_p = num_p / len(score_p)
    # The authors count U above the threshold from 0; kept, so that numbers agree to the last digit.
    ratio = (num_u - 1) / len(score_u) / share_p
    slack = bound_slack(len(score_p), len(score_u), k=k, delta=delta, gamma=gamma)
    best = np.argmin(ratio + slack / share_p)
    return AlphaEstimate(float(ratio[best]), None, "bbe")


def bound_slack(
    num_p: int, num_u: int, *, k: float = 4.0, delta: float = 0.1, gamma: float = 0.01
) -> float:
    """What the bound adds to the numerator of the ratio.

    Raises:
        ConfigError: The constants give no bound.
    """
    if not (0 < delta < k and gamma >= 0):
        raise ConfigError(
            f"bbe: expected 0 < delta < k and gamma >= 0, got delta={delta}, k={k}, gamma={gamma}"
        )
    log = math.log(k / delta)
    return (1 + gamma) * (math.sqrt(log / (2 * num_u)) + math.sqrt(log / (2 * num_p)))


def en(score_p: np.ndarray, score_u: np.ndarray) -> AlphaEstimate:
    """Estimate alpha as the quotient of mean scores.

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
            "the classifier has not learnt the labelled rows"
        )
    return AlphaEstimate(float(score_u.mean(dtype=np.float64)) / mean_p, None, "en")


def scott(score_p: np.ndarray, score_u: np.ndarray, *, delta: float = 0.1) -> AlphaEstimate:
    """Estimate alpha by the least upper bound over all thresholds.

    Args:
        score_p: (p,) float. Held-out labelled rows, higher = more like the target, any scale.
        score_u: (u,) float. Held-out unlabelled rows.
        delta: Chance that one bound, above or below the line, fails.

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
        return AlphaEstimate(0.0, None, "scott")
    above = upper_bounds(num_u, len(score_u), delta)
    below = 1.0 - upper_bounds(len(score_p) - num_p, len(score_p), delta)
    ratio = above / np.maximum(below, 1e-12)
    return AlphaEstimate(float(ratio.min()), None, "scott")


_RATIO_CAP = 50.0
_PROB_FLOOR = 1e-7
_GRID_SIZE = 8192
# Below it P lies where U has no rows, and there is nothing to correct.
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
) -> AlphaEstimate:
    """Estimate alpha from densities of logits.

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
    return AlphaEstimate(1.0 - others, None, "dedpul")


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
    share = position - left
    mass = np.bincount(left, 1 - share, _GRID_SIZE) + np.bincount(left + 1, share, _GRID_SIZE)
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
    """The share a of others with ``mean(max(0, 1 - ratio (1 - a))) = a``, approached from 0."""
    others = 0.0
    for _ in range(_MAX_STEPS):
        mean = _mean_posterior(ratio, others)
        if abs(mean - others) < _TOLERANCE:
            return mean
        others = mean
    return others


def _bend(ratio: np.ndarray) -> float:
    """The share of others at which the error of the fixed point bends most, while it is small."""
    grid = np.arange(0.0, 1.0, 0.001)
    error = np.array([_mean_posterior(ratio, a) for a in grid]) - grid
    bend = np.full(len(grid), -np.inf)
    bend[1:-1] = error[:-2] - 2 * error[1:-1] + error[2:]
    bend[error >= 0.05] = -np.inf
    best = int(np.argmax(bend))
    return float(grid[best]) if bend[best] > 1e-9 else 1.0


def _mean_posterior(ratio: np.ndarray, others: float) -> float:
    return float(np.maximum(0.0, 1.0 - ratio * (1.0 - others)).mean())


ESTIMATORS: dict[str, Callable[..., AlphaEstimate]] = {
    "bbe": bbe,
    "en": en,
    "scott": scott,
    "dedpul": dedpul,
}
"""Estimators by name; each takes held-out scores ``(score_p, score_u)``."""


def estimator(name: str) -> Callable[..., AlphaEstimate]:
    """Return the estimator of that name.

    >>> estimator("bbe").__name__
    'bbe'

    Raises:
        ConfigError: No such estimator.
    """
    if name not in ESTIMATORS:
        raise ConfigError(f"alpha_estimator: expected one of {', '.join(ESTIMATORS)}, got {name!r}")
    return ESTIMATORS[name]
