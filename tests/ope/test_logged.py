"""Episodes that judge: their order, units, lanes and refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.ope.logged import LoggedEpisodes, draw_lanes


def dataset(rows, *, time=None, **changes):
    num = len(rows)
    rng = np.random.default_rng(0)
    fields = {
        "obs": rng.normal(5.0, 2.0, (num, 2)),
        "next_obs": rng.normal(5.0, 2.0, (num, 2)),
        "action": np.linspace(-3, 5, num)[:, None],
        "reward": np.arange(num, dtype=float),
        "episode": np.asarray(rows),
        "time": None if time is None else np.asarray(time, float),
    }
    return Dataset.from_arrays(**(fields | changes))


def test_episodes_are_read_in_order_even_if_interleaved():
    logged = LoggedEpisodes.of(dataset([7, 3, 7, 3, 7]))
    assert logged.place.tolist() == [[1, 3, -1], [0, 2, 4]]
    assert logged.starts.tolist() == [1, 0]
    assert logged.in_steps(logged.reward).tolist() == [[1, 3, 0], [0, 2, 4]]


def test_rows_after_a_gap_do_not_follow_from_the_start():
    logged = LoggedEpisodes.of(dataset([0, 0, 0, 0, 1, 1], time=[0, 1, 9, 10, 0, 1]))
    assert logged.place.tolist() == [[0, 1], [4, 5]]
    assert len(logged.reward) == 6  # they still serve to fit


def test_units_are_standard_and_actions_span_their_range():
    logged = LoggedEpisodes.of(dataset([0] * 50 + [1] * 50))
    np.testing.assert_allclose(logged.obs.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(logged.obs.std(axis=0), 1, atol=1e-5)
    assert (logged.action.min(), logged.action.max()) == (-1.0, 1.0)
    np.testing.assert_allclose(logged.standardise(logged.state), logged.obs)
    chosen = logged.choices(lambda obs: np.full((len(obs), 1), 5.0), logged.state)
    assert (chosen == 1.0).all()


def test_an_unknown_next_state_of_a_terminal_row_is_no_number_problem():
    ends = np.array([False, True, False, False])
    data = dataset([0, 0, 1, 1, 1], terminal=np.append(ends, False), next_obs=None)
    assert np.isnan(data.next_obs).any()
    assert np.isfinite(LoggedEpisodes.of(data).next_obs).all()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"reward": None}, "expected rows with a reward"),
        ({"episode": np.zeros(6, int)}, "two or more labelled episodes to judge from, got 1"),
    ],
)
def test_rows_that_cannot_judge_are_refused(changes, match):
    with pytest.raises(DataError, match=match):
        LoggedEpisodes.of(dataset([0, 0, 0, 1, 1, 1], **changes))


def test_other_things_than_policies_are_refused():
    logged = LoggedEpisodes.of(dataset([0, 0, 1, 1]))
    with pytest.raises(ConfigError, match=r"a policy with act\(obs\)"):
        logged.choices("policy", logged.state)
    with pytest.raises(DataError, match=r"mine: expected finite actions of shape \(4, 1\)"):
        logged.choices(lambda obs: np.zeros((len(obs), 3)), logged.state, "mine")
    with pytest.raises(DataError, match="expected finite actions"):
        logged.choices(lambda obs: np.full((len(obs), 1), np.nan), logged.state)


def test_codes_must_be_one_hot():
    with pytest.raises(DataError, match="a log of action codes.*--action-kind discrete"):
        LoggedEpisodes.of(dataset([0, 0, 1, 1]), discrete=True)


@given(st.integers(2, 40), st.integers(1, 6), st.integers(0, 50))
def test_lanes_never_draw_their_own_fold(num_episodes, num_lanes, seed):
    lanes = draw_lanes(num_episodes, num_lanes, seed)
    assert lanes.weight.shape == (num_lanes, num_episodes)
    for lane in range(num_lanes):
        assert lanes.weight[lane, lanes.fold == lane].sum() == 0
    if num_lanes > 1 and num_episodes >= 2 * num_lanes:
        assert set(lanes.fold) == set(range(num_lanes))


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 50))
def test_tables_hold_the_rows_of_the_drawn_episodes(num_episodes, num_lanes, seed):
    episode = np.random.default_rng(seed).permutation(np.repeat(np.arange(num_episodes), 3))
    lanes = draw_lanes(num_episodes, num_lanes, seed)
    table, count = lanes.tables(episode)
    for lane in range(num_lanes):
        found = np.bincount(table[lane, : count[lane]], minlength=len(episode))
        assert (found == lanes.weight[lane, episode]).all()
