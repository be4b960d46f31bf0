"""DEDPUL: alpha from the ratio of score densities.

Ivanov 2020, "DEDPUL: Difference-of-Estimated-Densities-based Positive-Unlabeled Learning".

Kernel densities of the P-versus-U logit on P and on U give the density ratio at every unlabelled
row; after smoothing, expectation maximisation finds the share of other rows that explains it.

We differ from the authors' code in: (1) densities are computed on a grid, which costs O(n) instead
of O(n^2), and the ratio is taken at ``_NUM_POINTS`` evenly spaced ranks of U where U has more rows;
(2) the kernel on P is never narrower than the one on U, or scores that saturate (many rows at
exactly 0 or 1) would give peaks of different height; (3) the mean ratio over U, which is 1 for true
densities, is lifted to 1 where smoothing lowered it, and the larger answer of expectation
maximisation and of the bend of its error counts: the former creeps to 0 where the ratio is a little
too low; (4) a failure is an error, never a silent alpha of 1.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from puorl.pu.mpe.estimate import AlphaEstimate, check_probabilities

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
