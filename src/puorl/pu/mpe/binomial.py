"""Exact binomial confidence bounds for many counts at once, with NumPy alone."""

import math

import numpy as np

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
