"""Means with intervals from few runs, and where their spread comes from. All in float64."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from puorl.core.errors import DataError

LEVEL = 0.95
"""Of every interval."""


@dataclass(frozen=True)
class Summary:
    """Runs of one method in one setting, as their number, mean and spread."""

    num: int
    mean: float
    std: float
    """With n - 1 in the denominator; NaN for a single run."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        """Summarise one or more values.

        >>> Summary.of([1.0, 2.0, 3.0])
        Summary(num=3, mean=2.0, std=1.0)
        """
        array = np.asarray(values, np.float64)
        std = float(array.std(ddof=1)) if len(array) > 1 else math.nan
        return cls(len(array), float(array.mean()), std)

    @classmethod
    def published(cls, mean: float, half: float, num: int) -> "Summary":
        """What a mean and half the width of its Student interval say about the spread."""
        return cls(num, mean, half * math.sqrt(num) / student_quantile(num - 1))

    @property
    def half(self) -> float:
        """Half the width of Student's interval of the mean; NaN for a single run."""
        if self.num < 2:
            return math.nan
        return student_quantile(self.num - 1) * self.std / math.sqrt(self.num)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half


@dataclass(frozen=True)
class Difference:
    """One mean minus another, with an interval."""

    value: float
    low: float
    high: float

    @property
    def is_above(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low > 0

    @property
    def is_below(self) -> bool:
        """Whether the interval lies below 0."""
        return self.high < 0


def difference(one: Summary, other: Summary) -> Difference:
    """Welch's interval of ``one`` minus ``other``; unknown ends are NaN.

    Welch's degrees of freedom are rounded down, which makes the interval rather too wide.
    """
    value = one.mean - other.mean
    if one.num < 2 or other.num < 2:
        return Difference(value, math.nan, math.nan)
    parts = [each.std**2 / each.num for each in (one, other)]
    spread = sum(parts)
    if spread == 0:
        return Difference(value, value, value)
    # Scaled before they are squared: tiny spreads must not underflow.
    shares = [part / spread for part in parts]
    freedom = 1 / (shares[0] ** 2 / (one.num - 1) + shares[1] ** 2 / (other.num - 1))
    half = student_quantile(max(1, math.floor(freedom + 1e-9))) * math.sqrt(spread)
    return Difference(value, value - half, value + half)


@cache
def student_quantile(freedom: int, level: float = LEVEL) -> float:
    """The t that |T| stays below with probability ``level``, for whole degrees of freedom.

    >>> round(student_quantile(4), 3)
    2.776
    """
    low, high = 0.0, math.pi / 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _student_mass(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _student_mass(angle: float, freedom: int) -> float:
    """P(|T| < t) at t = sqrt(freedom) tan(angle): the finite sums of Abramowitz & Stegun 26.7.3-4.

    They are exact, so that no expansion is needed where it would be worst: for few runs.
    """
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@dataclass(frozen=True)
class Spread:
    """The two meanings of a seed: how much each moves the score, as standard deviations."""

    num_splits: int
    num_runs: int
    training: float
    """Between training seeds on one split; NaN where no split has two runs."""
    split: float
    """What another split adds; 0 where the splits differ by no more than training seeds would
    make them, NaN where there is one split or ``training`` is not known."""
    total: float
    """Of a run with a new split and a new training seed; NaN where it is not known."""


def spread(runs: Mapping[int, Sequence[float]]) -> Spread:
    """Take apart the variance of runs on several splits: a one-way model with random splits.

    With a splits of n_i runs, MSW and MSB the mean squares within and between splits, the splits'
    share is (MSB - MSW) / n0 where n0 = (N - sum n_i**2 / N) / (a - 1) (Searle 1971); not below 0.

    Args:
        runs: Split seed to the scores of its training seeds.
    """
    groups = [np.asarray(each, np.float64) for each in runs.values() if len(each)]
    sizes = np.array([len(each) for each in groups], np.float64)
    num, splits = int(sizes.sum()), len(groups)
    inner = num - splits
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in groups)
    within = squares / inner if inner else math.nan
    if splits < 2:
        return Spread(splits, num, math.sqrt(within), math.nan, math.nan)
    means = np.array([each.mean() for each in groups])
    grand = float(sizes @ means) / num
    between = float(sizes @ (means - grand) ** 2) / (splits - 1)
    if not inner:  # one run a split: both sources together is all that can be seen
        return Spread(splits, num, math.nan, math.nan, math.sqrt(between))
    typical = (num - float(sizes @ sizes) / num) / (splits - 1)
    added = max(0.0, (between - within) / typical)
    return Spread(splits, num, math.sqrt(within), math.sqrt(added), math.sqrt(within + added))


REPETITIONS = 2000
_TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


@dataclass(frozen=True)
class Runs:
    """Runs of one method in one setting."""

    score: np.ndarray
    """(runs,) float64."""
    training: tuple[str, ...] = ()
    """Ids of the trainings; settings in which all are equal are resampled together."""


@dataclass(frozen=True)
class Aggregate:
    """A number over settings, with its bootstrap interval."""

    value: float
    low: float
    high: float
    num_settings: int
    num_runs: int


def iqm(score: np.ndarray) -> float:
    """Mean of what remains when a quarter of the values is cut from each end.

    Args:
        score: Any shape. A quarter that is no whole number of values is rounded down.

    >>> iqm(np.array([0.0, 1.0, 3.0, 100.0]))
    2.0
    """
    return float(_iqms(np.asarray(score, np.float64).reshape(1, -1))[0])


def iqm_interval(
    tasks: Sequence[Runs], rng: np.random.Generator, *, repetitions: int = REPETITIONS
) -> Aggregate:
    """Interquartile mean over all runs of all settings; each run weighs the same.

    Args:
        tasks: One entry a setting, each with one run or more.
        rng: Where the resampling draws from.
        repetitions: Number of bootstrap samples.
    """
    _check(tasks)
    drawn = np.concatenate(_resample(tasks, rng, repetitions), axis=1)
    pooled = np.concatenate([each.score for each in tasks])
    low, high = np.quantile(_iqms(drawn), _TAILS)
    return Aggregate(iqm(pooled), float(low), float(high), len(tasks), len(pooled))


def improvement(one: np.ndarray, other: np.ndarray) -> float:
    """Chance that a run of ``one`` beats a run of ``other``; a draw counts half.

    >>> improvement(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
    0.625
    """
    return float(_improvements(one[None, :], other[None, :])[0])


def improvement_interval(
    one: Sequence[Runs],
    other: Sequence[Runs],
    rng: np.random.Generator,
    *,
    repetitions: int = REPETITIONS,
) -> Aggregate:
    """The chance that ``one`` beats ``other``, averaged over settings.

    Args:
        one: A method's runs, one entry a setting.
        other: The other method's, in the same settings.
        rng: Where the resampling draws from.
        repetitions: Number of bootstrap samples.
    """
    _check(one)
    _check(other)
    value = np.mean([improvement(a.score, b.score) for a, b in zip(one, other, strict=True)])
    drawn = zip(_resample(one, rng, repetitions), _resample(other, rng, repetitions), strict=True)
    means = np.mean([_improvements(a, b) for a, b in drawn], axis=0)
    low, high = np.quantile(means, _TAILS)
    num_runs = sum(len(each.score) for each in (*one, *other))
    return Aggregate(float(value), float(low), float(high), len(one), num_runs)


def _check(tasks: Sequence[Runs]) -> None:
    if not tasks or any(len(each.score) == 0 for each in tasks):
        raise DataError("aggregate: expected one run or more in one setting or more, got none")


def _iqms(score: np.ndarray) -> np.ndarray:
    """(samples, values) to (samples,)."""
    ordered = np.sort(score, axis=1)
    cut = score.shape[1] // 4
    return ordered[:, cut : score.shape[1] - cut].mean(axis=1)


def _improvements(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(samples, m) and (samples, n) to (samples,)."""
    sign = np.sign(one[:, :, None] - other[:, None, :])
    return (sign.mean(axis=(1, 2)) + 1) / 2


def _resample(
    tasks: Sequence[Runs], rng: np.random.Generator, repetitions: int
) -> list[np.ndarray]:
    """For every setting (repetitions, runs): its runs, drawn with replacement."""
    picks: dict[tuple[str, ...], np.ndarray] = {}
    drawn = []
    for index, each in enumerate(tasks):
        size = len(each.score)
        name = each.training or (str(index), "alone")
        if name not in picks:
            picks[name] = rng.integers(size, size=(repetitions, size))
        drawn.append(each.score[picks[name]])
    return drawn
