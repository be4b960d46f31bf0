"""TrainingSet: what a method hands to a learner, as positions in the pool."""

from dataclasses import dataclass

import numpy as np

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Rows of a pool to learn from; all methods of one setting share the pool."""

    pool: Dataset
    rows: np.ndarray
    """(k,) int64. Positions in the pool, each at most once."""
    weight: np.ndarray | None = None
    """(k,) float32 in [0, 1]. How much a row counts in every loss; None counts all alike."""
    returns: tuple[float, float] | None = None
    """Smallest and largest return of complete episodes before rows were drawn."""

    def __post_init__(self) -> None:
        """Refuse positions that are none, and weights that do not fit."""
        if len(self.rows) == 0:
            raise DataError("training set: expected at least one row, got none")
        if self.rows.min() < 0 or self.rows.max() >= len(self.pool):
            raise DataError(
                f"training set: expected positions from 0 to {len(self.pool) - 1}, got "
                f"{self.rows.min()} to {self.rows.max()}"
            )
        if self.weight is not None and self.weight.shape != self.rows.shape:
            raise DataError(
                f"training set: expected one weight a row, {self.rows.shape}, got "
                f"{self.weight.shape}"
            )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dataset(self) -> Dataset:
        """The rows themselves in the pool's order, as a dataset that can be saved."""
        return self.pool[np.sort(self.rows)]
