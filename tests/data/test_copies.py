"""Copies of rows and of episodes: found, told, and held out together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.data import transitions as copies
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit


def dataset(state, episode=None, reward=None):
    state = np.asarray(state, float)[:, None]
    return Dataset.from_arrays(
        obs=state,
        action=np.zeros_like(state),
        next_obs=state + 1,
        reward=reward,
        episode=None if episode is None else np.asarray(episode),
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([-1.5, -0.0, 0.0, 2.0, 3.0]), min_size=1, max_size=30))
def test_originals_are_the_first_equal_rows(states):
    rows = dataset(states).rows
    first = [states.index(state) for state in states]  # 0.0 == -0.0
    found = copies.find_originals(rows)
    assert (list(range(len(states))) if found is None else found.tolist()) == first
    assert (found is None) == (len(set(states)) == len(states))
    assert copies.count_copies(rows) == len(states) - len(set(states))


def test_every_field_counts():
    one = dataset([1, 1], reward=np.array([0.0, 1.0]))
    assert copies.find_originals(one.rows) is None
    assert copies.count_copies(dataset([1, 1]).rows) == 1


def test_different_rows_have_different_hashes():
    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(
        obs=rng.integers(0, 50, (50_000, 3)).astype(float),
        action=rng.integers(0, 50, (50_000, 2)).astype(float),
        next_obs=np.zeros((50_000, 3)),
    )
    values = np.concatenate([data.obs, data.action], axis=1)
    assert copies.count_copies(data.rows) == 50_000 - len(np.unique(values, axis=0))


@pytest.mark.parametrize("labelled_copy", [False, True])
def test_copies_of_a_row_have_one_part(labelled_copy):
    state = np.tile(np.arange(400.0), 5)
    mask = state < 40
    if labelled_copy:
        mask[400:] = False  # the same rows once more, without their labels
    split = PUSplit.from_mask(dataset(state), mask, seed=3)
    part = np.empty(2_000, int)
    part[split.labelled], part[split.unlabelled] = split.labelled_part, split.unlabelled_part
    assert all(len(set(part[state == one])) == 1 for one in range(400))
    assert np.bincount(part[:40]).tolist() == [32, 4, 4]
    assert np.bincount(part[40:400]).tolist() == [288, 36, 36]
    [note] = split.pool.provenance.notes[-1:]
    assert note.startswith("1600 rows repeat another row exactly")
    assert split.originals.tolist() == (np.arange(2_000) % 400).tolist()


def test_a_machine_at_rest_is_no_copy():
    state = np.append(np.arange(500.0), np.zeros(500))
    split = PUSplit.from_mask(dataset(state), state > 450, seed=0)
    rest = np.isin(split.unlabelled, np.flatnonzero(state == 0))
    assert set(split.unlabelled_part[rest]) == {0, 1, 2}
    assert not any("repeat" in note for note in split.pool.provenance.notes)


def test_copies_of_an_episode_have_one_fold():
    state = np.tile(np.arange(300.0), 3)  # a log of 30 episodes, three times
    episode = np.arange(900) // 10
    split = PUSplit.from_mask(dataset(state, episode), state < 100, unit="episode", seed=1)
    fold = np.empty(900, int)
    fold[split.labelled], fold[split.unlabelled] = split.labelled_part, split.unlabelled_part
    assert fold[:300].tolist() == fold[300:600].tolist() == fold[600:].tolist()
    assert set(fold) == set(range(5))
    merged = copies.merge_copies(episode, split.pool.rows)
    assert merged.tolist() == (episode % 30).tolist()
    assert copies.merge_copies(episode[:300], split.pool.rows[:300]).tolist() == (
        episode[:300].tolist()
    )


def test_without_copies_the_parts_are_those_of_earlier_versions():
    rows, mask = dataset(np.arange(200.0)), np.arange(200) < 20
    split = PUSplit.from_mask(rows, mask, seed=7)
    assert split.fingerprint == "806ddff566ee9a102e347908580cff21"
    folds = dataset(np.arange(200.0), np.arange(200) // 5)
    split = PUSplit.from_mask(folds, mask, seed=7, unit="episode")
    assert split.fingerprint == "070b09eca443139083d4a18d8ebae8ef"
