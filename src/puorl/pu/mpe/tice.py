"""TIcE: the label frequency from the purest region that a tree finds.

Bekker and Davis 2018, "Estimating the Class Prior in Positive and Unlabeled Data through Decision
Tree Induction".

In a region that holds target rows only, the labelled share is the label frequency c; anywhere else
it is lower. A best-first tree looks for regions with a high labelled share, and each region gives a
lower confidence bound on c; the highest bound counts. Then alpha = n_p (1 - c) / (c n_u), with
n_p and n_u the rows used (not 1 - (1 - c)/c, which is the share of the *other* rows at n_p = n_u).

The rows used are P and U without overlap, so the conversion is the same for one sample and for two.
We draw equally many rows of both: the bound is tighter when c is not small.
"""

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from puorl.core.errors import ConfigError
from puorl.pu.mpe.estimate import AlphaEstimate, alpha_from_label_frequency, check_features
from puorl.pu.mpe.rows import principal_components, subsample

_NUM_FOLDS = 5
_NUM_BINS = 4
_NUM_ROUNDS = 2
_MIN_ROWS = 10
_MAX_SPLITS = 500
_PROMISE_PRIOR = 10


class _Part(NamedTuple):
    """Rows scaled to [0, 1], and whether each is labelled."""

    x: np.ndarray
    labelled: np.ndarray

    def take(self, rows: np.ndarray) -> "_Part":
        return _Part(self.x[rows], self.labelled[rows])


class _Node(NamedTuple):
    """A box: its rows for growing the tree, its rows for the bound, and its sides."""

    grow: _Part
    bound: _Part
    low: np.ndarray
    high: np.ndarray


def tice(
    x_p: np.ndarray,
    x_u: np.ndarray,
    *,
    rng: np.random.Generator,
    delta: float | None = 0.1,
    num_rows: int = 10_000,
    num_dims: int = 100,
) -> AlphaEstimate:
    """Estimate alpha from the region with the highest labelled share.

    Args:
        x_p: (p, d) float. Features of labelled rows.
        x_u: (u, d) float. Features of unlabelled rows.
        rng: Draws rows and folds.
        delta: Chance that a bound fails; None for the paper's rule, ``1 / (1 + 0.004 rows)`` but
            at least 0.025, which puts alpha too high at these sizes (0.36 for 0.3). A larger one
            lets small boxes win by luck, which lowers alpha.
        num_rows: Most rows used of each set.
        num_dims: Principal components used if there are more columns.

    Raises:
        ConfigError: ``delta`` is not between 0 and 1.
    """
    if delta is not None and not 0 < delta < 1:
        raise ConfigError(f"tice: expected 0 < delta < 1 or None, got {delta}")
    x_p, x_u = check_features(x_p, x_u)
    num_rows = min(num_rows, len(x_p), len(x_u))
    x_p, x_u = subsample(x_p, num_rows, rng), subsample(x_u, num_rows, rng)
    x_p, x_u = principal_components(x_p, x_u, num_dims)
    x = np.concatenate([x_p, x_u])
    extent = np.ptp(x, axis=0)
    x = (x - x.min(axis=0)) / np.where(extent > 0, extent, 1.0)
    rows = _Part(x, np.arange(len(x)) < len(x_p))
    fold = rng.permutation(np.arange(len(x)) % _NUM_FOLDS)
    frequency = 0.5
    for _ in range(_NUM_ROUNDS):
        bounds = [
            _highest_bound(rows.take(fold == f), rows.take(fold != f), frequency, delta)
            for f in range(min(_NUM_FOLDS, len(x)))
        ]
        frequency = float(np.clip(np.mean(bounds), 1e-6, 1.0))
    return AlphaEstimate(alpha_from_label_frequency(frequency, len(x_p), len(x_u)), None, "tice")


def _highest_bound(grow: _Part, bound: _Part, frequency: float, delta: float | None) -> float:
    """The best lower bound on the label frequency over all boxes of a best-first tree."""
    num_dims = grow.x.shape[1]
    delta = max(0.025, 1 / (1 + 0.004 * len(bound.labelled))) if delta is None else delta
    root = _Node(grow, bound, np.zeros(num_dims), np.ones(num_dims))
    best = _lower_bound(bound.labelled, frequency, delta)
    queue, ticket = [(0.0, 0, root)], 0
    for _ in range(_MAX_SPLITS):
        if not queue:
            break
        node = heapq.heappop(queue)[2]
        for child in _split(node):
            if len(child.bound.labelled) >= _MIN_ROWS:
                best = max(best, _lower_bound(child.bound.labelled, frequency, delta))
                # The ticket decides between equals: nodes themselves cannot be compared.
                ticket += 1
                heapq.heappush(queue, (-_promise(child.grow.labelled), ticket, child))
    return best


def _lower_bound(labelled: np.ndarray, frequency: float, delta: float) -> float:
    num_rows = len(labelled)
    if num_rows == 0:
        return 0.0
    spread = frequency * (1 - frequency) * (1 - delta) / (delta * num_rows)
    return float(labelled.mean()) - math.sqrt(spread)


def _promise(labelled: np.ndarray) -> float:
    """Labelled share, held back for small boxes."""
    return float(labelled.sum()) / (len(labelled) + _PROMISE_PRIOR)


def _split(node: _Node) -> Iterator[_Node]:
    """Cut the box into quarters along the column with the most promising quarter."""
    if len(node.grow.labelled) < _MIN_ROWS:
        return
    column = _best_column(node)
    if column is None:
        return
    edge = np.linspace(node.low[column], node.high[column], _NUM_BINS + 1)
    grow_bin = _bins(node.grow.x[:, [column]], node.low[[column]], node.high[[column]])[:, 0]
    bound_bin = _bins(node.bound.x[:, [column]], node.low[[column]], node.high[[column]])[:, 0]
    for number in range(_NUM_BINS):
        low, high = node.low.copy(), node.high.copy()
        low[column], high[column] = edge[number], edge[number + 1]
        inside = node.grow.take(grow_bin == number), node.bound.take(bound_bin == number)
        if len(inside[0].labelled) >= _MIN_ROWS:
            yield _Node(*inside, low, high)


def _best_column(node: _Node) -> int | None:
    """The column with the most promising quarter; None if no column divides the rows."""
    num_rows, num_dims = node.grow.x.shape
    bins = _bins(node.grow.x, node.low, node.high) + _NUM_BINS * np.arange(num_dims)
    total = np.bincount(bins.ravel(), minlength=_NUM_BINS * num_dims)
    labelled = np.bincount(bins[node.grow.labelled].ravel(), minlength=_NUM_BINS * num_dims)
    promise = np.where(total >= _MIN_ROWS, labelled / (total + _PROMISE_PRIOR), 0.0)
    # A quarter with every row in it may be cut again, but not below what numbers can resolve.
    wide = np.repeat(node.high - node.low > 1e-6, _NUM_BINS)
    promise = np.where(wide, promise, 0.0)
    best = int(np.argmax(promise))
    return best // _NUM_BINS if promise[best] > 0 and num_rows else None


def _bins(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    scaled = (x - low) / np.maximum(high - low, 1e-12) * _NUM_BINS
    return np.clip(scaled.astype(np.int64), 0, _NUM_BINS - 1)
