"""Means with intervals from few runs, and the sources of their spread. All in float64."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puorl.core.stats import LEVEL, Estimate, student_t


@dataclass(frozen=True)
class SampleSummary:
    """Number, mean and standard deviation of independent values, such as scores of runs."""

    num: int
    mean: float
    std: float
    """With n - 1 in the denominator; NaN for a single value."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "SampleSummary":
        """Summarise one or more values.

        >>> SampleSummary.of([1.0, 2.0, 3.0])
        SampleSummary(num=3, mean=2.0, std=1.0)
        """
        array = np.asarray(values, np.float64)
        std = float(array.std(ddof=1)) if len(array) > 1 else math.nan
        return cls(len(array), float(array.mean()), std)

    @classmethod
    def from_interval(cls, mean: float, half_width: float, num: int) -> "SampleSummary":
        """Recover the standard deviation from a mean and its Student interval."""
        return cls(num, mean, half_width * math.sqrt(num) / student_t(num - 1))

    @property
    def half_width(self) -> float:
        """Half the width of Student's interval of the mean; NaN for a single value."""
        if self.num < 2:
            return math.nan
        return student_t(self.num - 1) * self.std / math.sqrt(self.num)

    @property
    def estimate(self) -> Estimate:
        """The mean with Student's interval."""
        return Estimate(self.mean, self.mean - self.half_width, self.mean + self.half_width)


def difference(one: SampleSummary, other: SampleSummary) -> Estimate:
    """Welch's interval of ``one`` minus ``other``; no interval where either has a single value.

    Welch's degrees of freedom are rounded down, which widens the interval.
    """
    value = one.mean - other.mean
    if one.num < 2 or other.num < 2:
        return Estimate(value)
    parts = [each.std**2 / each.num for each in (one, other)]
    variance = sum(parts)
    if variance == 0:
        return Estimate(value, value, value)
    # Scaled before they are squared: tiny variances must not underflow.
    fractions = [part / variance for part in parts]
    freedom = 1 / (fractions[0] ** 2 / (one.num - 1) + fractions[1] ** 2 / (other.num - 1))
    half = student_t(max(1, math.floor(freedom + 1e-9))) * math.sqrt(variance)
    return Estimate(value, value - half, value + half)


@dataclass(frozen=True)
class Spread:
    """Standard deviations of a score by training seed and by split seed."""

    num_splits: int
    num_runs: int
    training: float
    """Between training seeds on one split; NaN where no split has two runs."""
    split: float
    """Added by another split; 0 where the splits differ by no more than training seeds would
    make them, NaN where there is one split or ``training`` is not known."""
    total: float
    """Of a run with a new split and a new training seed; NaN where it is not known."""


def spread(runs: Mapping[int, Sequence[float]]) -> Spread:
    """Divide the variance of runs on several splits: a one-way model with random splits.

    With a splits of n_i runs, MSW and MSB the mean squares within and between splits, the variance
    between splits is (MSB - MSW) / n0 where n0 = (N - sum n_i**2 / N) / (a - 1) (Searle 1971); not
    below 0.

    Args:
        runs: Split seed to the scores of its training seeds.
    """
    splits = [np.asarray(each, np.float64) for each in runs.values() if len(each)]
    sizes = np.array([len(each) for each in splits], np.float64)
    num, num_splits = int(sizes.sum()), len(splits)
    inner = num - num_splits
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in splits)
    within = squares / inner if inner else math.nan
    if num_splits < 2:
        return Spread(num_splits, num, math.sqrt(within), math.nan, math.nan)
    means = np.array([each.mean() for each in splits])
    grand = float(sizes @ means) / num
    between = float(sizes @ (means - grand) ** 2) / (num_splits - 1)
    if not inner:  # one run a split: only the sum of both variances is known
        return Spread(num_splits, num, math.nan, math.nan, math.sqrt(between))
    typical = (num - float(sizes @ sizes) / num) / (num_splits - 1)
    added = max(0.0, (between - within) / typical)
    return Spread(num_splits, num, math.sqrt(within), math.sqrt(added), math.sqrt(within + added))


REPETITIONS = 2000
_TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


@dataclass(frozen=True)
class SettingScores:
    """Scores of one method in one setting."""

    score: np.ndarray
    """(runs,) float64."""
    training: tuple[str, ...] = ()
    """Ids of the trainings; settings in which all are equal are resampled together."""


class Aggregate(NamedTuple):
    """An estimate over settings with its bootstrap interval, and the number of values behind it."""

    estimate: Estimate
    num_settings: int
    num_runs: int


def iqm(score: np.ndarray) -> float:
    """Interquartile mean: the mean after a quarter of the values is cut from each end.

    Args:
        score: Any shape. A quarter that is no whole number of values is rounded down.

    >>> iqm(np.array([0.0, 1.0, 3.0, 100.0]))
    2.0
    """
    return float(_iqms(np.asarray(score, np.float64).reshape(1, -1))[0])


def iqm_interval(
    settings: Sequence[SettingScores], rng: np.random.Generator, *, repetitions: int = REPETITIONS
) -> Aggregate:
    """Interquartile mean over all runs of all settings; each run has the same weight."""
    drawn = np.concatenate(_resample(settings, rng, repetitions), axis=1)
    pooled = np.concatenate([each.score for each in settings])
    low, high = np.quantile(_iqms(drawn), _TAILS)
    return Aggregate(Estimate(iqm(pooled), float(low), float(high)), len(settings), len(pooled))


def improvement(one: np.ndarray, other: np.ndarray) -> float:
    """Probability that a run of ``one`` beats a run of ``other``; a draw counts half.

    >>> improvement(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
    0.625
    """
    return float(_improvements(one[None, :], other[None, :])[0])


def improvement_interval(
    one: Sequence[SettingScores],
    other: Sequence[SettingScores],
    rng: np.random.Generator,
    *,
    repetitions: int = REPETITIONS,
) -> Aggregate:
    """Probability that method ``one`` beats ``other``, averaged over the same settings of both."""
    value = np.mean([improvement(a.score, b.score) for a, b in zip(one, other, strict=True)])
    drawn = zip(_resample(one, rng, repetitions), _resample(other, rng, repetitions), strict=True)
    means = np.mean([_improvements(a, b) for a, b in drawn], axis=0)
    low, high = np.quantile(means, _TAILS)
    num_runs = sum(len(each.score) for each in (*one, *other))
    return Aggregate(Estimate(float(value), float(low), float(high)), len(one), num_runs)


def profile_intervals(
    settings: Sequence[SettingScores],
    levels: Sequence[float],
    rng: np.random.Generator,
    *,
    repetitions: int = REPETITIONS,
) -> tuple[Estimate, ...]:
    """Performance profile: the fraction of runs above each level, averaged over settings."""
    drawn = _resample(settings, rng, repetitions)
    found = []
    for level in levels:
        value = np.mean([(each.score > level).mean() for each in settings])
        means = np.mean([(scores > level).mean(axis=1) for scores in drawn], axis=0)
        low, high = np.quantile(means, _TAILS)
        found.append(Estimate(float(value), float(low), float(high)))
    return tuple(found)


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
    settings: Sequence[SettingScores], rng: np.random.Generator, repetitions: int
) -> list[np.ndarray]:
    """Draw (repetitions, runs) scores of every setting, with replacement."""
    picks: dict[tuple[str, ...], np.ndarray] = {}
    drawn = []
    for index, each in enumerate(settings):
        size = len(each.score)
        name = each.training or (str(index), "alone")
        if name not in picks:
            picks[name] = rng.integers(size, size=(repetitions, size))
        drawn.append(each.score[picks[name]])
    return drawn
