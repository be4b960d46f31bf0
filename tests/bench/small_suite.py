"""A suite of seconds, methods that fail, kills, and the program that test_runner kills."""

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from puorl.bench import group as groups
from puorl.bench.plan import make_plan
from puorl.bench.runner import run
from puorl.bench.settings import Setting
from puorl.bench.store import Store
from puorl.bench.suites import Budget, LearnerChoice, MethodChoice, Part, Suite
from puorl.data.training_set import Groups, TrainingSet
from puorl.envs.evaluate import Evaluator
from puorl.methods import Method

LEARNER = LearnerChoice("bc", settings={"hidden": (4,), "batch_size": 8})
BUDGET = Budget(steps=12, episodes=2, points=2, curve_episodes=1, checkpoints_per_eval=3)


def small(*names, qualities=("ME/ME", "ME/R"), learner=LEARNER):
    """Two settings of the same target."""
    settings = [Setting("body_mass", "hopper", q, 0.05, rows=600) for q in qualities]
    methods = tuple(MethodChoice(name) for name in names or ("olp", "sharing_all", "oracle"))
    return Suite("small", "", tuple(Part(s, learner, methods) for s in settings), BUDGET)


def numbers(out):
    """What a run is worth, by run: all of it must be the same however often it was killed."""
    names = (
        "training",
        "returns",
        "scores",
        "curve",
        "error",
        "num_rows",
        "content_hash",
        "filter",
    )
    return {key: {n: row[n] for n in names} for key, row in Store(out).latest().items()}


@contextmanager
def killed_while_training(after=None):
    """The run inside is interrupted: at its first point, or once the point ``after`` is written."""
    written = groups._Pace.on_checkpoint

    def interrupted(self, point, lanes):
        if after is not None:
            written(self, point, lanes)
        if after in (None, point.step):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups._Pace, "on_checkpoint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


@dataclass(frozen=True)
class Broken(Method):
    """Cannot prepare anything."""

    name: ClassVar[str] = "broken"

    def prepare(self, split, *, seed):
        raise ValueError("this method is broken")


@dataclass(frozen=True)
class Unusable(Method):
    """Prepares what no learner with small batches can draw from."""

    name: ClassVar[str] = "unusable"

    def prepare(self, split, *, seed):
        return TrainingSet(split.pool, np.arange(100), groups=Groups(50, first_share=0.01))


def main(out, pause):
    """Run the small suite, with a pause at every checkpoint so that there is time to be killed."""
    evaluated = Evaluator.__call__

    def slowly(self, previous, step, policies):
        time.sleep(pause)
        return evaluated(self, previous, step, policies)

    Evaluator.__call__ = slowly
    run(make_plan(small(), seeds=2), Path(out))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
