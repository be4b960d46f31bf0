"""KM2: how much of P can be taken out of U, in the space of kernel means.

Ramaswamy, Scott and Tewari 2016, "Mixture Proportion Estimation via Kernel Embedding of
Distributions".

With kernel means mu_U and mu_P, the point ``lambda mu_U + (1 - lambda) mu_P`` is the mean of a
distribution as long as no more than alpha of P was taken out of U, that is up to
``lambda = 1 / (1 - alpha)``. Beyond, its distance to the convex hull of all embedded rows grows;
lambda is found where the slope of that distance passes a threshold.

We differ from the authors' code in: (1) the kernel matrix is replaced by a pivoted Cholesky factor,
in which the projection onto the hull is an accelerated projected gradient (no quadratic-programming
package); (2) the slope comes from the projection itself (envelope theorem) instead of differences;
(3) lambda is searched up to 1,000 instead of 8, so that alpha may exceed 0.875; (4) means that lie
no further apart than chance would put them give 0.999 at once. alpha is about the U handed in, for
one sample and for two.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from puorl.core.errors import ConfigError
from puorl.pu.mpe.estimate import AlphaEstimate, check_features
from puorl.pu.mpe.rows import principal_components, squared_distances, subsample

Slope = Literal["published", "half"]

_MAX_LAMBDA = 1000.0
_MAX_RANK = 200
_RANK_TOLERANCE = 1e-4
_MAX_STEPS = 400
_GAP = 1e-4
"""Duality gap, relative to the squared distance, at which a projection is good enough."""
_SMALLEST_GAP = 1e-7


class _Embedding(NamedTuple):
    """Rows in a Euclidean space whose inner product is the kernel, and the means of both sets."""

    row: np.ndarray
    mean_u: np.ndarray
    mean_p: np.ndarray
    chance: float
    """Distance of the means that two samples of one distribution seldom exceed."""


def km2(
    x_p: np.ndarray,
    x_u: np.ndarray,
    *,
    rng: np.random.Generator,
    num_rows: int = 2000,
    num_dims: int = 50,
    slope: Slope = "published",
) -> AlphaEstimate:
    """Estimate alpha by how much of P can be taken out of U before a non-distribution is left.

    Args:
        x_p: (p, d) float. Features of labelled rows.
        x_u: (u, d) float. Features of unlabelled rows.
        rng: Draws rows.
        num_rows: Most rows used of each set.
        num_dims: Principal components used if there are more columns.
        slope: Where lambda is read off. ``published``: 1 / sqrt(rows), which stops early and puts
            alpha low (0.22 to 0.28 for 0.3 on separated Gaussians). ``half``: at half of the final
            slope, the middle of the bend that few rows smear out; nearly right for separated
            domains, too high for overlapping ones.

    Raises:
        ConfigError: Unknown ``slope``.
    """
    if slope not in get_args(Slope):
        raise ConfigError(f"slope: expected one of {', '.join(get_args(Slope))}, got {slope!r}")
    x_p, x_u = check_features(x_p, x_u)
    x_p, x_u = subsample(x_p, num_rows, rng), subsample(x_u, num_rows, rng)
    x_p, x_u = principal_components(x_p, x_u, num_dims)
    embedding = _embed(x_p, x_u)
    distance = float(np.linalg.norm(embedding.mean_u - embedding.mean_p))
    if distance < embedding.chance:
        return AlphaEstimate(1.0, None, "km2")
    threshold = 1.0 / np.sqrt(min(len(x_p), len(x_u)))
    if slope == "half":
        threshold = 0.5 * distance
    elif threshold > 0.9 * distance:
        # Too few rows to tell the means apart at that threshold: use the first variant's.
        threshold = 0.8 * _slope(embedding, 1.05) + 0.2 * distance
    low, high = 1.0, _MAX_LAMBDA
    while high - low > 0.005 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if _slope(embedding, middle) > threshold else (middle, high)
    return AlphaEstimate(1.0 - 1.0 / (low * high) ** 0.5, None, "km2")


def _slope(embedding: _Embedding, weight: float) -> float:
    """Derivative of the distance to the hull with respect to lambda."""
    direction = embedding.mean_u - embedding.mean_p
    target = embedding.mean_p + weight * direction
    residual = target - embedding.row.T @ project_onto_hull(embedding.row, target)
    length = float(np.linalg.norm(residual))
    return 0.0 if length < 1e-9 else float(residual @ direction) / length


def project_onto_hull(row: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(n,) convex weights of the rows whose mean comes nearest to the target.

    Args:
        row: (n, r) float64. Corners of the hull.
        target: (r,) float64.
    """
    step = 1.0 / max(float(np.linalg.eigvalsh(row.T @ row)[-1]), 1e-12)
    weight = np.full(len(row), 1.0 / len(row))
    ahead, momentum = weight, 1.0
    for _ in range(_MAX_STEPS):
        residual = row.T @ ahead - target
        gradient = row @ residual
        # The gap bounds the error only where the point ahead lies in the simplex itself.
        gap = gradient @ ahead - gradient.min() if ahead.min() >= 0 else np.inf
        if gap < _GAP * (residual @ residual) + _SMALLEST_GAP:
            return ahead
        following = _onto_simplex(ahead - step * gradient)
        change = following - weight
        if gradient @ change > 0:
            # The momentum leads uphill: start it again.
            momentum, ahead = 1.0, weight
            continue
        grown = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = following + (momentum - 1) / grown * change
        weight, momentum = following, grown
    return weight


def _onto_simplex(values: np.ndarray) -> np.ndarray:
    """The nearest point with non-negative entries of sum 1."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, len(values) + 1)
    last = np.count_nonzero(descending > excess) - 1
    return np.maximum(values - excess[last], 0.0)


def _embed(x_p: np.ndarray, x_u: np.ndarray) -> _Embedding:
    """Embed all rows with the Gaussian width that holds the two means furthest apart."""
    x = np.concatenate([x_u, x_p])
    square = squared_distances(x, x)
    typical = max(float(np.median(square[: len(x_u), len(x_u) :])), 1e-12)
    contrast = np.r_[np.full(len(x_u), 1.0 / len(x_u)), np.full(len(x_p), -1.0 / len(x_p))]
    best, best_kernel = -np.inf, square
    for factor in np.logspace(-1, 1, 5):
        kernel = np.exp(square * (-0.5 / (typical * factor**2)))
        apart = float(contrast @ kernel @ contrast)
        if apart > best:
            best, best_kernel = apart, kernel
    # Under one distribution the squared distance has this mean; twice that is seldom reached.
    expected = (1.0 - float(best_kernel.mean())) * (1 / len(x_u) + 1 / len(x_p))
    chance = max((2.0 * expected) ** 0.5, 1e-9)
    row = _pivoted_cholesky(best_kernel)
    return _Embedding(row, row[: len(x_u)].mean(axis=0), row[len(x_u) :].mean(axis=0), chance)


def _pivoted_cholesky(kernel: np.ndarray) -> np.ndarray:
    """(n, r) factor whose rows have the kernel as inner product, up to a small remainder."""
    num_rows = len(kernel)
    factor = np.zeros((num_rows, min(_MAX_RANK, num_rows)))
    remainder = np.diag(kernel).copy()
    for column in range(factor.shape[1]):
        pivot = int(np.argmax(remainder))
        if remainder[pivot] < _RANK_TOLERANCE:
            return factor[:, :column]
        known = factor[:, :column] @ factor[pivot, :column]
        factor[:, column] = (kernel[:, pivot] - known) / np.sqrt(remainder[pivot])
        remainder = np.maximum(remainder - factor[:, column] ** 2, 0.0)
    return factor
