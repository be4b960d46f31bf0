"""Runs that are cut after a few steps."""

import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.envs.collect import collect, return_statistics


def test_a_horizon_cuts_runs_as_timeouts(tmp_path):
    whole = collect("halfcheetah", quality="random", rows=1000, cache=False)
    short = collect("halfcheetah", quality="random", rows=500, horizon=200, cache=tmp_path)
    assert np.flatnonzero(short.timeout).tolist() == [199, 399, 499]
    assert not short.terminal.any()
    # It begins as the long run does: another horizon is no other seed.
    np.testing.assert_array_equal(short.obs[:200], whole.obs[:200])
    assert short.provenance.recipe["horizon"] == 200
    told = return_statistics(short)
    assert told.lengths.tolist() == [200, 200]
    np.testing.assert_allclose(told.mean_return, short.reward[:400].sum(dtype=np.float64) / 2)
    assert told.score is None  # D4RL's is of 1,000 steps
    # The cache knows them apart.
    longer = collect("halfcheetah", quality="random", rows=500, horizon=300, cache=tmp_path)
    assert np.flatnonzero(longer.timeout).tolist() == [299, 499]
    again = collect("halfcheetah", quality="random", rows=500, horizon="200", cache=tmp_path)
    assert again.fingerprint == short.fingerprint
    assert len(list(tmp_path.glob("*.hdf5"))) == 2


def test_without_a_horizon_nothing_is_another():
    """The recipe and the rows of a dataset that was made before there were horizons."""
    made = collect("halfcheetah", quality="random", rows=200, cache=False)
    assert "horizon" not in made.provenance.recipe
    own = collect("halfcheetah", quality="random", rows=200, horizon=1000, cache=False)
    assert own.provenance == made.provenance
    assert own.fingerprint == made.fingerprint


def test_noise_of_a_joint_is_drawn_for_short_runs():
    made = collect("hopper", "joint_noise", "random", rows=400, horizon=7, cache=False)
    assert np.bincount(made.episode).max() == 7
    assert made.timeout.sum() > 40


@pytest.mark.parametrize(
    ("horizon", "words"),
    [
        (0, "horizon: expected 1 to 1,000, the task's own limit, got 0"),
        (1001, "horizon: expected 1 to 1,000"),
        ("soon", "horizon: expected a whole number"),
    ],
)
def test_an_impossible_horizon_is_explained(horizon, words):
    with pytest.raises(ConfigError, match=words):
        collect("hopper", quality="random", rows=10, horizon=horizon, cache=False)
