"""Methods that train nothing: labelled rows (OLP), all rows (Sharing-All), true rows (Oracle)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.methods.base import Method


@dataclass(frozen=True)
class OLP(Method):
    """Only labelled positives: the labelled rows."""

    name: ClassVar[str] = "olp"

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """Make the training set; nothing is random, so the seed is ignored."""
        del seed
        return _training_set(self.name, split, split.labelled)


@dataclass(frozen=True)
class SharingAll(Method):
    """All rows of the split, as if all were the target's."""

    name: ClassVar[str] = "sharing_all"

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """Make the training set; nothing is random, so the seed is ignored."""
        del seed
        return _training_set(self.name, split, np.concatenate([split.labelled, split.unlabelled]))


@dataclass(frozen=True)
class Oracle(Method):
    """All true target rows. It reads the truth: an upper bound for other methods."""

    name: ClassVar[str] = "oracle"

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """Make the training set; nothing is random, so the seed is ignored.

        Raises:
            DataError: The truth of this split is unknown.
        """
        del seed
        found = split.unlabelled[is_target(split)]
        rows = np.concatenate([split.labelled, found])
        return _training_set(self.name, split, rows, alpha=len(found) / len(split.unlabelled))


def is_target(split: PUSplit) -> np.ndarray:
    """Return the truth about the unlabelled rows, (u,) bool."""
    return split.reveal("oracle")[split.unlabelled] == 0


def _training_set(name: str, split: PUSplit, rows: np.ndarray, **found: Any) -> TrainingSet:
    metadata = {"method": name, "seed": None, "num_rows": len(rows), **found}
    return TrainingSet(split.pool, rows, returns=split.returns, metadata=metadata)
