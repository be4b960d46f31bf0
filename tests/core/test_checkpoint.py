import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.checkpoint import Checkpoint
from puorl.pu.classifier import NetworkConfig
from puorl.pu.config import FilterConfig
from puorl.pu.judging import judge, judge_behaviour
from puorl.pu.learning import learn
from puorl.pu.residuals import ResidualConfig

SMALL = FilterConfig(
    network=NetworkConfig(hidden=(16,), batch_size=64, learning_rate=5e-3),
    residuals=ResidualConfig(hidden=(16,), num_steps=1_000, batch_size=32),
    num_warm_up=30,
    num_main=10,
)
WARM_UP = dataclasses.replace(SMALL, num_main=0)
"""For refits: one program to compile instead of two."""


def state(seed):
    rng = np.random.default_rng(seed)
    key = jax.random.key(seed, impl="threefry2x32")
    weights = {"w": jnp.asarray(rng.normal(size=(2, 3)), jnp.float32), "n": jnp.arange(seed, 9)}
    return (weights, jax.random.split(key, 2), key)


def test_what_is_stored_comes_back(tmp_path):
    Checkpoint(tmp_path, "job").store("fit", state(1), 7, now=True)
    (weights, keys, key), done = Checkpoint(tmp_path, "job").restore("fit", state(0))
    wanted, wanted_keys, wanted_key = state(1)
    assert done == 7
    for name in ("w", "n"):
        np.testing.assert_array_equal(weights[name], wanted[name])
        assert weights[name].dtype == wanted[name].dtype
    # Keys are keys again: they draw what the stored ones would have drawn.
    assert (keys.dtype, keys.shape) == (wanted_keys.dtype, wanted_keys.shape)
    assert jax.random.bits(key) == jax.random.bits(wanted_key) != jax.random.bits(state(0)[2])
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(wanted_keys))


def test_stages_are_kept_apart(tmp_path):
    kept = Checkpoint(tmp_path, "job")
    kept.store("one", state(1), 1, now=True)
    kept.store("two", state(2), 2, now=True)
    assert [kept.restore(stage, state(0))[1] for stage in ("one", "two", "three")] == [1, 2, 0]


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept, fresh = Checkpoint(None, "job"), state(0)
    kept.store("fit", state(1), 7, now=True)
    assert kept.restore("fit", fresh) == (fresh, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_written_now_and_then_or_at_once(tmp_path):
    rarely = Checkpoint(tmp_path / "rarely", "job", seconds=3600.0)
    rarely.store("fit", state(1), 1)
    assert rarely.restore("fit", state(0))[1] == 0
    rarely.store("fit", state(1), 2, now=True)
    rarely.store("fit", state(1), 3)
    assert rarely.restore("fit", state(0))[1] == 2
    always = Checkpoint(tmp_path / "always", "job", seconds=-1.0)
    for done in (1, 2):
        always.store("fit", state(1), done)
        assert always.restore("fit", state(0))[1] == done


def test_a_state_of_another_job_is_refused(tmp_path):
    Checkpoint(tmp_path, "job").store("fit", state(1), 7, now=True)
    with pytest.raises(DataError, match="expected a state of this very job"):
        Checkpoint(tmp_path, "another").restore("fit", state(0))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_cut_file_is_refused(tmp_path, share):
    Checkpoint(tmp_path, "job").store("fit", state(1), 7, now=True)
    [path] = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="expected a whole state.*remove it to begin anew"):
        Checkpoint(tmp_path, "job").restore("fit", state(0))


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
    behaviour = judge_behaviour(short, split, "hard", seed=0, checkpoint=checkpoint, progress=False)
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
        ("residuals-0", 1_000),
        ("residuals-1", 500),
        ("residuals-1", 1_000),
        ("classifier", 1),
        ("classifier", 30),
        ("classifier", 39),
        ("classifier", 40),
        ("cross-fit", 3),
        ("cross-fit", 30),
        ("behaviour", 3),
        ("behaviour", 30),
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
    monkeypatch.setattr("puorl.pu.residuals._run", never)
    again = outcome(split, Checkpoint(tmp_path, "job"))
    for name, wanted in uninterrupted.items():
        np.testing.assert_array_equal(again[name], wanted, err_msg=name)
