"""A suite of seconds, methods that fail, and the program that test_runner kills."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from puorl.bench.plan import make_plan
from puorl.bench.running.evaluation import Watch
from puorl.bench.running.runner import run
from puorl.bench.settings import Setting
from puorl.bench.suites import Budget, LearnerChoice, MethodChoice, Part, Suite
from puorl.data.training_set import Groups, TrainingSet

LEARNER = LearnerChoice("bc", settings={"hidden": (4,), "batch_size": 8})
BUDGET = Budget(steps=12, episodes=2, points=2, curve_episodes=1, rests=3)


def small(*names, qualities=("ME/ME", "ME/R"), learner=LEARNER):
    """Two settings of the same target."""
    settings = [Setting("body_mass", "hopper", q, 0.05, rows=600) for q in qualities]
    methods = tuple(MethodChoice(name) for name in names or ("olp", "sharing_all", "oracle"))
    return Suite("small", "", tuple(Part(s, learner, methods) for s in settings), BUDGET)


@dataclass(frozen=True)
class Broken:
    """Cannot prepare anything."""

    name: ClassVar[str] = "broken"
    needs_truth: ClassVar[bool] = False

    def prepare(self, split, *, seed):
        raise ValueError("this method is broken")


@dataclass(frozen=True)
class Unusable:
    """Prepares what no learner with small batches can draw from."""

    name: ClassVar[str] = "unusable"
    needs_truth: ClassVar[bool] = False

    def prepare(self, split, *, seed):
        return TrainingSet(split.pool, np.arange(100), groups=Groups(50, first_share=0.01))


def main(out, pause):
    """Run the small suite, with a rest after every stretch so that there is time to be killed."""
    measure = Watch.measure

    def slowly(self, step, policies):
        time.sleep(pause)
        return measure(self, step, policies)

    Watch.measure = slowly
    run(make_plan(small(), seeds=2), Path(out))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
