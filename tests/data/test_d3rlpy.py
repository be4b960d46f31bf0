"""Rows for libraries that take the following row's state as the next state, such as d3rlpy."""

import numpy as np
import pytest

import puorl
from puorl.core.errors import DataError
from puorl.data.episodes import padded_runs


def kept_rows(*, seed=0, keep=0.5, reward=True):
    """Rows of five episodes, two of which end in a terminal, of which a random half was kept."""
    rng = np.random.default_rng(seed)
    path = rng.normal(size=(5, 31, 3)).astype(np.float32)
    step, episode = np.tile(np.arange(30), 5), np.repeat(np.arange(5), 30)
    data = puorl.Dataset.from_arrays(
        obs=path[:, :-1].reshape(150, 3),
        next_obs=path[:, 1:].reshape(150, 3),
        action=rng.uniform(-1, 1, (150, 2)).astype(np.float32),
        reward=rng.normal(size=150).astype(np.float32) if reward else None,
        terminal=(step == 29) & (episode < 2),
        timeout=(step == 29) & (episode >= 2),
        episode=episode,
    )
    return data[rng.random(150) < keep]


def transitions(arrays):
    """What such a library makes of the arrays: all rows but the last of a run that was cut."""
    found = []
    for i in range(len(arrays["rewards"])):
        if arrays["timeouts"][i]:
            continue
        last = bool(arrays["terminals"][i])
        then = None if last else arrays["observations"][i + 1].tolist()
        row = (arrays[name][i].tolist() for name in ("observations", "actions", "rewards"))
        found.append((*row, then, last))
    return found


def expected(data):
    rows = zip(data.obs, data.action, data.reward, data.next_obs, data.terminal, strict=True)
    return [
        (obs.tolist(), act.tolist(), float(reward), None if end else then.tolist(), bool(end))
        for obs, act, reward, then, end in rows
    ]


@pytest.mark.parametrize("keep", [0.05, 0.5, 1.0])
def test_no_transition_is_lost_or_made_up(keep):
    data = kept_rows(keep=keep)
    key = repr
    assert sorted(transitions(padded_runs(data.rows)), key=key) == sorted(expected(data), key=key)


def test_rewards_are_needed():
    with pytest.raises(DataError, match="expected rows with a reward, got none"):
        padded_runs(kept_rows(reward=False).rows)


def test_d3rlpy_can_use_every_kept_row():
    pytest.importorskip("d3rlpy")
    data = kept_rows()
    made = data.to_d3rlpy()
    assert made.transition_count == len(data)
    found = []
    for episode in made.episodes:
        for i in range(episode.transition_count):
            got = made.transition_picker(episode, i)
            then = None if got.terminal else got.next_observation.tolist()
            reward = float(got.reward[0])
            values = (
                got.observation.tolist(),
                got.action.tolist(),
                reward,
                then,
                bool(got.terminal),
            )
            found.append(values)
    assert sorted(found, key=repr) == sorted(expected(data), key=repr)


def test_d3rlpy_gets_the_positions_of_codes():
    d3rlpy = pytest.importorskip("d3rlpy")
    rows = np.arange(12) % 3
    data = puorl.Dataset.from_arrays(
        obs=np.arange(12.0)[:, None], action=np.array(["a", "b", "c"])[rows], reward=np.ones(12)
    )
    made = data.to_d3rlpy()
    info = made.dataset_info
    assert (info.action_space, info.action_size) == (d3rlpy.ActionSpace.DISCRETE, 3)
    assert made.episodes[0].actions[:11, 0].tolist() == rows[:11].tolist()
