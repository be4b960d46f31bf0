"""The range of actions that a source gives, and where it ends up."""

import warnings

import minari
import numpy as np
import pytest
from gymnasium import spaces

import puorl
from puorl.core.errors import DataError
from puorl.data.transitions import Provenance


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def foreign(name, *lengths, action):
    """A dataset made by Minari itself; every action is 1."""
    episodes = [
        minari.data_collector.EpisodeBuffer(
            observations=np.arange(2.0 * (n + 1), dtype=np.float32).reshape(-1, 2),
            actions=np.ones((n, 3), np.float32),
            rewards=np.arange(n, dtype=np.float64),
            terminations=np.zeros(n, bool),
            truncations=np.arange(n) == n - 1,
        )
        for n in lengths
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for author, code and so on
        minari.create_dataset_from_buffers(
            name, episodes, observation_space=unbounded(2), action_space=action
        )


def unbounded(width):
    return spaces.Box(-np.inf, np.inf, shape=(width,), dtype=np.float32)


def bounded(low, high):
    return spaces.Box(np.float32(low), np.float32(high), dtype=np.float32)


def test_the_range_of_actions_is_carried_over(home, tmp_path):
    space = bounded([-2, -1, 0], [2, 1, 3])
    foreign("test/foreign-v0", 4, 3, action=space)
    ds = puorl.load(home / "test" / "foreign-v0")
    assert ds.provenance.action_range == ((-2.0, -1.0, 0.0), (2.0, 1.0, 3.0))
    puorl.save(ds, tmp_path / "a.npz")  # through another format, cut, and joined
    again = puorl.load(tmp_path / "a.npz")[:4]
    puorl.save(puorl.Dataset.concatenate([again, again]), home / "kept-v0")
    assert minari.load_dataset("kept-v0").action_space == space
    assert puorl.load(home / "kept-v0").provenance.action_range == ds.provenance.action_range


def test_a_range_that_does_not_hold_is_not_given(home):
    foreign("test/foreign-v0", 3, action=bounded([-9] * 3, [0] * 3))
    ds = puorl.load(home / "test" / "foreign-v0")
    puorl.save(ds, home / "beyond-v0")
    assert minari.load_dataset("beyond-v0").action_space == unbounded(3)
    foreign("test/half-v0", 3, action=bounded([-9] * 3, [np.inf] * 3))
    other = puorl.load(home / "test" / "half-v0")
    assert other.provenance.action_range is None
    assert puorl.Dataset.concatenate([ds, other]).provenance.action_range is None


@pytest.mark.parametrize("damaged", [[[1.0]], [[1.0], [2.0, 3.0]], [[1.0], ["x"]], 3, [1.0, 2.0]])
def test_a_damaged_range_is_refused(damaged):
    with pytest.raises(DataError, match="action_range cannot be"):
        Provenance.from_dict({"action_range": damaged})


def test_collected_rows_know_their_range(home):
    pytest.importorskip("mujoco")
    data = puorl.collect("hopper", "nominal", "random", 50, 0, cache=False)
    puorl.save(data, home / "hopper-v0")
    assert minari.load_dataset("hopper-v0").action_space == bounded([-1] * 3, [1] * 3)
