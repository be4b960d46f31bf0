import dataclasses

import jax
import numpy as np
import pytest

from puorl.core.checkpoint import Checkpoint
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.classifier import NetworkConfig
from puorl.pu.config import FilterConfig
from puorl.pu.cross_fit import cross_fit_behaviour, judge
from puorl.pu.dynamics import ResidualConfig
from puorl.pu.fitting import learn

SMALL = FilterConfig(
    network=NetworkConfig(hidden=(16,), batch_size=64, learning_rate=5e-3),
    residuals=ResidualConfig(hidden=(16,), num_steps=1_000, batch_size=32),
    num_warm_up=30,
    num_main=10,
)
WARM_UP = dataclasses.replace(SMALL, num_main=0)
"""For refits: one program to compile instead of two."""


class Killed(BaseException):
    """What no code catches."""


class Dying(Checkpoint):
    """Keeps every state, and dies right after one of them."""

    def __init__(self, folder, stage, done):
        super().__init__(folder, "job", seconds=-1.0)
        self._end = (stage, done)

    def store(self, stage, state, done, *, now=False):
        super().store(stage, state, done, now=now)
        if (stage, done) == self._end:
            raise Killed


@pytest.fixture(scope="module")
def split(world):
    both = Dataset.concatenate([world(600, 0.0, seed=1), world(900, 2.0, seed=2)])
    return PUSplit.from_mask(both, labelled=np.arange(len(both)) < 200)


def outcome(split, checkpoint):
    """All numbers that a fit and its report rest on."""
    learnt = learn(split, SMALL, unit="transition", seed=0, checkpoint=checkpoint)
    short = dataclasses.replace(learnt, config=WARM_UP)
    again = judge(short, split, "hard", seed=0, checkpoint=checkpoint)
    behaviour = cross_fit_behaviour(
        short, split, "hard", seed=0, checkpoint=checkpoint, progress=False
    )
    return {
        "score": learnt.probability(learnt.logits(split, split.unlabelled)),
        "alpha": np.array([learnt.alpha.value, *learnt.alpha.interval]),
        "alpha_history": learnt.alpha_history,
        "weights": np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(learnt.params)]),
        "cross-fit": np.concatenate([again.score_p, again.score_u]),
        "behaviour": np.concatenate([behaviour.score_p, behaviour.score_u]),
    }


@pytest.fixture(scope="module")
def uninterrupted(split):
    return outcome(split, Checkpoint(None))


@pytest.mark.parametrize(
    ("stage", "done"),
    [
        ("residuals-0", 500),
        ("classifier", 30),
        ("cross-fit", 30),
        *(
            pytest.param(*moment, marks=pytest.mark.slow)
            for moment in (
                ("residuals-0", 1_000),
                ("residuals-1", 500),
                ("residuals-1", 1_000),
                ("classifier", 1),
                ("classifier", 39),
                ("classifier", 40),
                ("cross-fit", 3),
                ("behaviour", 3),
                ("behaviour", 30),
            )
        ),
    ],
)
def test_a_fit_killed_anywhere_goes_on_to_the_same_end(tmp_path, split, uninterrupted, stage, done):
    with pytest.raises(Killed):
        outcome(split, Dying(tmp_path, stage, done))
    assert (tmp_path / f"{stage}.safetensors").exists()
    resumed = outcome(split, Checkpoint(tmp_path, "job"))
    for name, wanted in uninterrupted.items():
        np.testing.assert_array_equal(resumed[name], wanted, err_msg=name)


def test_a_finished_fit_is_read_and_not_learnt_again(tmp_path, split, uninterrupted, monkeypatch):
    outcome(split, Checkpoint(tmp_path, "job"))
    names = ("residuals-0", "residuals-1", "classifier", "cross-fit", "behaviour")
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.safetensors" for n in names}

    def never(*_, **__):
        raise AssertionError("a step was taken")

    monkeypatch.setattr("puorl.pu.classifier.run_epoch", never)
    monkeypatch.setattr("puorl.pu.dynamics._run", never)
    again = outcome(split, Checkpoint(tmp_path, "job"))
    for name, wanted in uninterrupted.items():
        np.testing.assert_array_equal(again[name], wanted, err_msg=name)
