import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.transitions import Provenance


def make(n=6, *, start=0.0, columns=None, provenance=None, **more):
    obs = start + np.arange(2.0 * n).reshape(n, 2)
    return Dataset.from_arrays(
        **{
            "obs": obs,
            "action": np.ones((n, 1)),
            "reward": np.arange(float(n)),
            "next_obs": obs + 2,
            "terminal": np.zeros(n, bool),
            "timeout": np.arange(n) == n - 1,
            "episode": np.zeros(n, int),
        }
        | more,
        columns=columns,
        provenance=provenance,
    )


def test_fields_are_reachable_on_the_dataset():
    data = make()
    for name, array in data.rows.arrays().items():
        assert getattr(data, name) is array
    assert data.time is None
    assert data.next_action is None


def test_slices_are_views_with_their_columns():
    data = make(columns={"robot": np.array(list("aabbcc"))})
    part = data[2:4]
    assert np.shares_memory(part.obs, data.obs)
    assert np.shares_memory(part.columns["robot"], data.columns["robot"])
    assert part.columns["robot"].tolist() == ["b", "b"]
    assert part.provenance == data.provenance
    assert data[[0, 5]].columns["robot"].tolist() == ["a", "c"]
    assert len(data[data.reward > 3]) == 2


def test_everything_is_read_only():
    data = make(columns={"x": np.arange(6)})
    for array in (*data.rows.arrays().values(), *data.columns.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(TypeError):
        data.columns["y"] = np.arange(6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.rows = data.rows


def test_columns_of_another_length_are_refused():
    with pytest.raises(DataError, match="column x has 5 rows where obs has 6"):
        make(columns={"x": np.arange(5)})
    with pytest.raises(DataError, match="column x: 5 values for 6 rows"):
        dataclasses.replace(make(), columns={"x": np.arange(5)})


def test_columns_lose_the_rows_that_were_dropped():
    data = Dataset.from_arrays(
        obs=np.arange(5.0)[:, None],
        action=np.zeros((5, 1)),
        episode=np.array(["a", "a", "b", "b", "b"]),
        columns={"row": np.arange(5)},
    )
    assert data.columns["row"].tolist() == [0, 2, 3]
    assert data.obs[:, 0].tolist() == [0, 2, 3]


def test_missing_fields_and_notes_are_recorded():
    data = Dataset.from_arrays(
        obs=np.arange(3.0),
        action=np.zeros(3),
        provenance=Provenance(domain="moon", notes=("mine",)),
    )
    assert data.provenance.domain == "moon"
    assert data.provenance.missing == ("reward", "next_obs", "terminal", "timeout")
    assert data.provenance.notes[0] == "mine"
    assert len(data.provenance.notes) > 1
    assert data.reward is None


def test_fingerprint_is_of_the_content_only():
    data = make(columns={"x": np.arange(6)})
    assert data.fingerprint == make(columns={"x": np.arange(6)}).fingerprint
    elsewhere = dataclasses.replace(data, provenance=Provenance(source=("other",), domain="moon"))
    assert elsewhere.fingerprint == data.fingerprint
    assert data[np.arange(6)].fingerprint == data[:].fingerprint == data.fingerprint


@given(st.integers(0, 5), st.sampled_from(["obs", "action", "reward", "next_obs"]))
def test_fingerprint_changes_with_any_value(row, name):
    data = make()
    changed = np.array(data.rows.arrays()[name])
    changed[row] = np.nextafter(changed[row], np.inf)
    assert make(**{name: changed}).fingerprint != data.fingerprint


def test_fingerprint_changes_with_fields_columns_and_order():
    data = make()
    others = [
        make(columns={"x": np.arange(6)}),
        make(columns={"y": np.arange(6)}),
        make(columns={"x": np.arange(6.0)}),
        make(reward=None),
        make(obs=data.obs.astype(np.float32), next_obs=data.next_obs.astype(np.float32)),
        data[::-1],
        data[:5],
        data,
    ]
    assert len({d.fingerprint for d in others}) == len(others)


def test_where_sees_columns_named_states_and_fields():
    data = make(
        columns={"robot": np.array(list("aabbcc"))},
        provenance=Provenance(obs_names=("angle", "speed"), action_names=("torque",)),
    )
    assert data.where("robot == 'b'").tolist() == [False, False, True, True, False, False]
    assert data.where("angle >= 8 and torque == 1").tolist() == [False] * 4 + [True] * 2
    assert data.where("reward < 1").tolist() == [True] + [False] * 5


def test_with_next_action():
    data = make(action=np.arange(6.0)[:, None]).with_next_action()
    np.testing.assert_array_equal(data.next_action[:, 0], [1, 2, 3, 4, 5, np.nan])


def test_joining_keeps_episodes_apart_and_adds_up():
    one = make(4, episode=np.array([7, 7, 9, 9]), provenance=Provenance(source=("a",), domain="m"))
    two = make(3, start=50, provenance=Provenance(source=("b",), domain="m"))
    both = Dataset.concatenate([one, two])
    assert both.episode.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert both.provenance.source == ("a", "b")
    assert both.provenance.domain == "m"
    assert both.num_episodes == 3
    np.testing.assert_array_equal(both.obs, np.concatenate([one.obs, two.obs]))
    np.testing.assert_array_equal(both.next_obs, np.concatenate([one.next_obs, two.next_obs]))


def test_joining_is_associative_in_content():
    parts = [make(k + 2, start=10.0 * k) for k in range(3)]
    flat = Dataset.concatenate(parts)
    nested = Dataset.concatenate([Dataset.concatenate(parts[:2]), parts[2]])
    assert flat.fingerprint == nested.fingerprint


def test_joining_leaves_out_what_only_some_have_and_says_so():
    one = make(4, columns={"x": np.arange(4), "y": np.arange(4), "z": np.arange(4)})
    two = make(3, reward=None, columns={"y": np.arange(3.5, 6), "z": np.array(list("abc"))})
    both = Dataset.concatenate([one, two])
    assert both.reward is None
    assert both.columns["y"].tolist() == [0, 1, 2, 3, 3.5, 4.5, 5.5]
    assert list(both.columns) == ["y"]
    assert any("left out: reward, x, z" in note for note in both.provenance.notes)


def test_joining_adds_up_what_the_notes_count():
    part = make(5, next_obs=None, episode=np.array([0, 0, 0, 1, 1]), time=[0.0, 1, 2, 0, 0])
    both = Dataset.concatenate([part, part])
    told = [note[:21] for note in Dataset.concatenate([both, part]).provenance.notes]
    assert told == ["time: 3 stamps repeat", "next_obs: 6 last rows", "episode: renumbered o"]


def test_a_plain_note_is_not_counted():
    text = "next_obs: {} last rows before a break have none and were dropped"
    rows = make(5, next_obs=None)
    provenance = Dataset.concatenate(
        [make(provenance=Provenance(notes=(text, "dropped_rows"))), rows, rows]
    ).provenance
    assert provenance.notes[:2] == (text, "dropped_rows")
    assert provenance.count("dropped_rows") == 2


def test_joining_refuses_what_does_not_fit():
    with pytest.raises(DataError, match="at least one dataset"):
        Dataset.concatenate([])
    with pytest.raises(DataError, match=r"equal state and action sizes.*\(2, 1\), \(2, 3\)"):
        Dataset.concatenate([make(), make(action=np.ones((6, 3)))])
    names = [Provenance(obs_names=pair) for pair in (("angle", "speed"), ("speed", "angle"))]
    with pytest.raises(DataError, match="expected the same obs_names"):
        Dataset.concatenate([make(provenance=p) for p in names])


def test_joining_one_is_itself():
    data = make()
    assert Dataset.concatenate([data]) is data


def test_repr_names_the_shape_and_the_fingerprint():
    data = make()
    assert "6 rows, 1 episodes, obs 2, action 1" in repr(data)
    assert data.fingerprint[:12] in repr(data)


def test_what_happens_to_the_given_arrays_does_not_reach_the_dataset():
    obs, mark = np.arange(8.0).reshape(4, 2), np.arange(4)
    arrays = {"obs": obs, "next_obs": obs.copy(), "action": obs[:, :1], "columns": {"mark": mark}}
    data = Dataset.from_arrays(**arrays)
    before = data.fingerprint
    obs[:] = -1
    mark[:] = -1
    assert Dataset.from_arrays(**arrays).fingerprint != before
    assert data[:].fingerprint == before


def test_masked_and_ragged_arrays_are_refused():
    obs = np.ma.masked_array(np.arange(8.0).reshape(4, 2), mask=False)
    assert len(Dataset.from_arrays(obs=obs, action=np.zeros((4, 1)))) == 3
    obs[2, 1] = np.ma.masked
    with pytest.raises(DataError, match="obs: expected a value in every place, got 1 masked"):
        Dataset.from_arrays(obs=obs, action=np.zeros((4, 1)))
    with pytest.raises(DataError, match="action: expected rows of equal length"):
        Dataset.from_arrays(obs=np.zeros((2, 1)), action=[[1, 2], [3]])


def test_text_as_pandas_holds_it_is_text():
    names = np.array(["a", "a", "b", "b"], dtype=object)
    data = Dataset.from_arrays(
        obs=np.zeros((4, 1)), action=np.zeros((4, 1)), episode=names, columns={"site": names}
    )
    assert (data.episode.tolist(), data.columns["site"].tolist()) == ([0, 1], ["a", "b"])
    with pytest.raises(DataError, match="got dtype object"):
        Dataset.from_arrays(
            obs=np.zeros((2, 1)), action=np.zeros((2, 1)), episode=np.array(["a", 1], dtype=object)
        )
