"""Sharing-All: labelled and unlabelled rows alike, as if all were the target's."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet


@dataclass(frozen=True)
class SharingAll:
    """All rows of the split."""

    name: ClassVar[str] = "sharing_all"
    needs_truth: ClassVar[bool] = False

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """What a learner is to train on; nothing is learnt, so the seed plays no part."""
        del seed
        rows = np.concatenate([split.labelled, split.unlabelled])
        about = {"method": self.name, "seed": None, "num_rows": len(rows)}
        return TrainingSet(split.pool, rows, returns=split.returns, about=about)
