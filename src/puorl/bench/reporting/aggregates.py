"""One number over many settings: interquartile mean and probability of improvement.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice". Runs
are resampled within each setting (stratified bootstrap) and the ends of the interval are the
percentiles. Settings that share a training (OLP and Oracle do, where only the other domain's rows
differ) are resampled together, since their runs are the same runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puorl.bench.stats import LEVEL
from puorl.core.errors import DataError

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
