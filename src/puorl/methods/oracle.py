"""Oracle: every true target row. It asks for the truth, so it is a yardstick, not a choice."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet


@dataclass(frozen=True)
class Oracle:
    """The labelled rows and all target rows among the unlabelled."""

    name: ClassVar[str] = "oracle"
    needs_truth: ClassVar[bool] = True

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """What a learner is to train on; nothing is learnt, so the seed plays no part.

        Raises:
            DataError: Nobody knows the truth of this split.
        """
        del seed
        truth = split.reveal("oracle")
        found = split.unlabelled[truth[split.unlabelled] == 0]
        rows = np.concatenate([split.labelled, found])
        about = {
            "method": self.name,
            "seed": None,
            "num_rows": len(rows),
            "alpha": len(found) / len(split.unlabelled),
        }
        return TrainingSet(split.pool, rows, returns=split.returns, about=about)
