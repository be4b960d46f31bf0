"""Only labelled positives (OLP): what is known to be the target's, and nothing else."""

from dataclasses import dataclass
from typing import ClassVar

from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet


@dataclass(frozen=True)
class OLP:
    """The labelled rows."""

    name: ClassVar[str] = "olp"
    needs_truth: ClassVar[bool] = False

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """What a learner is to train on; nothing is learnt, so the seed plays no part."""
        del seed
        about = {"method": self.name, "seed": None, "num_rows": len(split.labelled)}
        return TrainingSet(split.pool, split.labelled, returns=split.returns, about=about)
