"""TrainingSet: the rows and weights that a method passes to a learner, as positions in a pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.run_folder import WEIGHT
from puorl.data.dataset import Dataset

REPLACED = ("action", "next_obs")
"""Fields that replace the pool's."""
COLUMNS = ("rows", "weight", "reward", "critic_weight", "score", *REPLACED)
"""Fields of a training set that are arrays, one entry a row."""


@dataclass(frozen=True)
class Groups:
    """Batches drawn from two groups of rows, of the second only the rows with the best scores."""

    num_first: int
    """Rows of the first group, at the front of the set; the second group is the rest."""
    first_share: float = 0.5
    """Fraction of a batch that is drawn from the first group."""
    top: float = 1.0
    """Fraction of the rows drawn from the second group that is kept, by highest score."""

    def __post_init__(self) -> None:
        """Check the fractions."""
        if not 0.0 < self.first_share < 1.0:
            raise ConfigError(f"first_share: expected between 0 and 1, got {self.first_share}")
        if not 0.0 < self.top <= 1.0:
            raise ConfigError(f"top: expected above 0 and up to 1, got {self.top}")


class Chunks(Protocol):
    """Training sets of the same size, used in turn."""

    def chunk(self, number: int) -> "TrainingSet":
        """Read a chunk; numbers above the last start again from the first."""
        ...


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Rows of a pool to learn from; all methods of one setting share the pool."""

    pool: Dataset
    rows: np.ndarray
    """(k,) int64. Positions in the pool, each at most once but where actions are replaced."""
    weight: np.ndarray | None = None
    """(k,) float32 in [0, 1]. Weight of a row in every loss; None gives all rows weight 1."""
    returns: tuple[float, float] | None = None
    """Smallest and largest return of complete episodes before rows were drawn."""
    reward: np.ndarray | None = None
    """(k,) float. Rewards that replace the pool's, for a method that changes them."""
    critic_weight: np.ndarray | None = None
    """(k,) float32. Weight of a row in the critic's loss, multiplied with ``weight``."""
    score: np.ndarray | None = None
    """(k,) float32. Selects the best rows of the second group."""
    groups: Groups | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Results of the method that made the set, JSON-ready, e.g. its estimate of alpha."""
    chunks: "Chunks | None" = None
    """All chunks, if this set is one of several of which one at a time is in memory."""
    action: np.ndarray | None = None
    """(k, m) float. Actions that replace the pool's, for a method that changes them."""
    next_obs: np.ndarray | None = None
    """(k, d) float. Next states that replace the pool's, for a method that changes them."""

    def __post_init__(self) -> None:
        """Check positions, columns and groups."""
        if len(self.rows) == 0:
            raise DataError("training set: expected at least one row, got none")
        if self.rows.min() < 0 or self.rows.max() >= len(self.pool):
            raise DataError(
                f"training set: expected positions from 0 to {len(self.pool) - 1}, got "
                f"{self.rows.min()} to {self.rows.max()}"
            )
        for name in COLUMNS[1:]:
            column = getattr(self, name)
            if column is None:
                continue
            size = getattr(self.pool, name).shape[1:] if name in REPLACED else ()
            if column.shape != (len(self.rows), *size):
                raise DataError(
                    f"training set: expected one {name} a row, {(len(self.rows), *size)}, got "
                    f"{column.shape}"
                )
            if name not in REPLACED and not np.isfinite(column).all():
                raise DataError(f"training set: expected every {name} finite, got NaN or infinity")
        if self.weight is not None and (self.weight.min() < 0 or self.weight.max() <= 0):
            raise DataError(
                "training set: expected weights from 0 on, some above it, got "
                f"{self.weight.min():g} to {self.weight.max():g}"
            )
        if self.groups is not None and not 0 < self.groups.num_first < len(self.rows):
            raise DataError(
                f"training set: expected two groups in {len(self.rows)} rows, got a first group "
                f"of {self.groups.num_first}"
            )
        if self.groups is not None and self.groups.top < 1.0 and self.score is None:
            raise DataError("training set: expected a score to choose the best rows by, got none")

    @classmethod
    def whole(cls, dataset: Dataset, returns: tuple[float, float] | None = None) -> "TrainingSet":
        """Return the set of all rows of a dataset."""
        return cls(dataset, np.arange(len(dataset)), returns=returns)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dataset(self) -> Dataset:
        """The rows in the pool's order, as a dataset that can be saved.

        Where a method replaced values, the rows have these and its rewards. Rows with critic weight
        0 are left out then: they were never observed.
        """
        if self.action is None and self.next_obs is None:
            return self.pool[np.sort(self.rows)]
        order = self._order
        held = self.pool[self.rows[order]]
        own = {
            name: array[order].astype(getattr(held.rows, name).dtype)
            for name in (*REPLACED, "reward")
            if (array := getattr(self, name)) is not None
        }
        return Dataset(replace(held.rows, **own), held.columns, held.provenance)

    @property
    def _order(self) -> np.ndarray:
        """Places of the rows of `dataset`."""
        order = np.argsort(self.rows, kind="stable")
        if self.critic_weight is None or (self.action is None and self.next_obs is None):
            return order
        return order[self.critic_weight[order] > 0.0]

    def to_dataset(self) -> Dataset:
        """Return the rows as `dataset` does, with weights, if there are any, as a column."""
        kept = self.dataset
        if self.weight is None:
            return kept
        provenance = kept.provenance
        if WEIGHT in kept.columns:
            note = f"{WEIGHT}: the file's own column of this name is replaced by the filter's"
            provenance = replace(provenance, notes=(*provenance.notes, note))
        return Dataset(kept.rows, {**kept.columns, WEIGHT: self.weight[self._order]}, provenance)

    def to_pandas(self) -> Any:
        """Return the rows of `to_dataset` as a pandas DataFrame."""
        return self.to_dataset().to_pandas()

    def to_polars(self) -> Any:
        """Return the rows of `to_dataset` as a polars DataFrame."""
        return self.to_dataset().to_polars()

    def to_arrow(self) -> Any:
        """Return the rows of `to_dataset` as a pyarrow Table."""
        return self.to_dataset().to_arrow()

    def to_d3rlpy(self) -> Any:
        """Return the rows as d3rlpy's MDPDataset; see `Dataset.to_d3rlpy`. Weights are left out."""
        return self.dataset.to_d3rlpy()

    @cached_property
    def obs_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Weighted mean and standard deviation of the states, each (d,) float64."""
        obs = self.pool.obs[self.rows]
        if self.weight is None:
            return obs.mean(axis=0, dtype=np.float64), obs.std(axis=0, dtype=np.float64)
        weight = self.weight.astype(np.float64)
        mean = weight @ obs / weight.sum()
        return mean, np.sqrt(weight @ np.square(obs - mean) / weight.sum())
