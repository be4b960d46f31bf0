"""Fewer rows and fewer columns, for estimators that compare every row with every other."""

import numpy as np


def subsample(x: np.ndarray, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    """At most so many rows, drawn without replacement."""
    return x if len(x) <= num_rows else x[rng.choice(len(x), num_rows, replace=False)]


def principal_components(
    x_p: np.ndarray, x_u: np.ndarray, num_dims: int
) -> tuple[np.ndarray, np.ndarray]:
    """Both sets in the leading principal directions of all rows; unchanged if they have no more."""
    if x_p.shape[1] <= num_dims:
        return x_p, x_u
    pooled = np.concatenate([x_p, x_u])
    mean = pooled.mean(axis=0)
    # eigh sorts ascending: the last columns are the leading directions.
    direction = np.linalg.eigh(np.cov(pooled - mean, rowvar=False))[1][:, ::-1][:, :num_dims]
    return (x_p - mean) @ direction, (x_u - mean) @ direction


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(len(x), len(y)) float64."""
    square = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :] - 2.0 * (x @ y.T)
    return np.maximum(square, 0.0)
