"""Class-prior estimation by the penalised L1 distance.

du Plessis, Niu and Sugiyama 2015 and 2017, "Class-prior estimation for learning from positive and
unlabeled data".

alpha is the largest share of P that fits under U: the distance between ``theta p`` and ``u`` with
an infinite penalty wherever ``theta p > u``. Its dual over functions ``sum_l a_l phi_l - 1`` with
Gaussian bumps phi_l and a_l >= 0 has a closed form. With ``b = theta mean_P(phi) - mean_U(phi)``:

    a = max(0, b) / lambda,        distance(theta) = a . b - theta + 1.

Width and lambda are chosen by cross-validation for every theta. alpha is about the U handed in, for
one sample and for two.
"""

from typing import NamedTuple

import numpy as np

from puorl.pu.mpe.estimate import MAX_ALPHA, AlphaEstimate, check_features
from puorl.pu.mpe.rows import principal_components, squared_distances, subsample

_NUM_FOLDS = 5


class _Means(NamedTuple):
    """Means of the basis functions over the rows of each fold, (fold, basis), and fold sizes."""

    fold: np.ndarray
    size: np.ndarray

    def without(self, number: int) -> np.ndarray:
        keep = np.arange(len(self.size)) != number
        return self.size[keep] @ self.fold[keep] / self.size[keep].sum()

    def all(self) -> np.ndarray:
        return self.size @ self.fold / self.size.sum()


def pen_l1(
    x_p: np.ndarray,
    x_u: np.ndarray,
    *,
    rng: np.random.Generator,
    num_basis: int = 300,
    num_rows: int = 4000,
    num_dims: int = 50,
) -> AlphaEstimate:
    """Estimate alpha as the largest share of P that fits under U.

    Args:
        x_p: (p, d) float. Features of labelled rows.
        x_u: (u, d) float. Features of unlabelled rows.
        rng: Draws rows, centres and folds.
        num_basis: Gaussian bumps, centred on rows of U.
        num_rows: Most rows used of each set.
        num_dims: Principal components used if there are more columns.
    """
    x_p, x_u = check_features(x_p, x_u)
    x_p, x_u = principal_components(x_p, x_u, num_dims)
    x_p, x_u = subsample(x_p, num_rows, rng), subsample(x_u, num_rows, rng)
    centre = subsample(x_u, num_basis, rng)
    square_p, square_u = squared_distances(x_p, centre), squared_distances(x_u, centre)
    fold_p, fold_u = _folds(len(x_p), rng), _folds(len(x_u), rng)
    typical = max(float(np.median(square_u)), 1e-12)
    theta = np.append(np.arange(0.002, MAX_ALPHA, 0.002), MAX_ALPHA)
    best_score, distance = np.full(len(theta), -np.inf), np.full(len(theta), np.inf)
    for width in np.logspace(-2, 1, 10):
        scale = -0.5 / (typical * width**2)
        mean_p = _fold_means(np.exp(square_p * scale), fold_p)
        mean_u = _fold_means(np.exp(square_u * scale), fold_u)
        for penalty in np.logspace(-3, 1, 10):
            score, candidate = _evaluate(mean_p, mean_u, theta, float(penalty))
            better = score > best_score
            best_score = np.where(better, score, best_score)
            distance = np.where(better, candidate, distance)
    return AlphaEstimate(float(theta[np.argmin(distance)]), None, "pen_l1")


def _folds(num_rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.arange(num_rows) % min(_NUM_FOLDS, num_rows))


def _fold_means(basis: np.ndarray, fold: np.ndarray) -> _Means:
    numbers = range(int(fold.max()) + 1)
    size = np.array([np.count_nonzero(fold == number) for number in numbers], np.float64)
    return _Means(np.stack([basis[fold == number].mean(axis=0) for number in numbers]), size)


def _evaluate(
    mean_p: _Means, mean_u: _Means, theta: np.ndarray, penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Held-out dual value and distance from all rows, each (theta,)."""
    num_folds = min(len(mean_p.size), len(mean_u.size))
    score = np.zeros(len(theta))
    for number in range(num_folds if num_folds > 1 else 0):
        train = theta[:, None] * mean_p.without(number) - mean_u.without(number)
        test = theta[:, None] * mean_p.fold[number] - mean_u.fold[number]
        score += (np.maximum(0.0, train) * test).sum(axis=1) / (penalty * num_folds)
    full = theta[:, None] * mean_p.all() - mean_u.all()
    distance = (np.maximum(0.0, full) ** 2).sum(axis=1) / penalty - theta + 1.0
    return score, distance
