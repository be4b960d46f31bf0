from copy import deepcopy

import numpy as np
import pytest

from puorl.core.errors import DataError
from puorl.data.transitions import Note, Provenance, Transitions


def rows(n=4, **changes):
    made = {
        "obs": np.arange(2.0 * n).reshape(n, 2),
        "action": np.zeros((n, 1), np.float32),
        "next_obs": np.ones((n, 2)),
        "terminal": np.zeros(n, bool),
        "timeout": np.zeros(n, bool),
        **changes,
    }
    return Transitions(**made)


def test_only_present_fields_are_listed_in_their_order():
    assert list(rows(reward=np.zeros(4)).arrays()) == [
        "obs",
        "action",
        "next_obs",
        "reward",
        "terminal",
        "timeout",
    ]


def test_arrays_are_read_only_but_the_givers_are_not():
    mine = np.zeros((4, 2))
    made = rows(obs=mine)
    with pytest.raises(ValueError, match="read-only"):
        made.obs[0] = 1
    mine[0] = 1
    assert mine.flags.writeable


def test_slices_are_views_and_index_arrays_are_copies():
    made = rows()
    assert np.shares_memory(made[1:3].obs, made.obs)
    assert made[::-1].obs.tolist() == made.obs[::-1].tolist()
    picked = made[np.array([2, 0])]
    assert not np.shares_memory(picked.obs, made.obs)
    assert picked.obs.tolist() == made.obs[[2, 0]].tolist()
    assert len(made[np.array([True, False, False, True])]) == 2
    with pytest.raises(ValueError, match="read-only"):
        picked.obs[0] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.zeros(3)}, "reward: expected 1-dimensional with 4 rows"),
        ({"reward": np.zeros((4, 1))}, "reward: expected 1-dimensional"),
        ({"action": np.zeros(4)}, "action: expected 2-dimensional"),
        ({"terminal": np.zeros(4)}, "terminal: expected bool"),
        ({"episode": np.zeros(4)}, "episode: expected int"),
        ({"obs": np.zeros((4, 2), int)}, "obs: expected float"),
        ({"next_obs": np.zeros((4, 3))}, r"next_obs: expected shape \(4, 2\)"),
        ({"next_action": np.zeros((4, 2))}, r"next_action: expected shape \(4, 1\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        rows(**changes)


def test_next_known_and_size():
    next_obs = np.ones((4, 2))
    next_obs[2, 1] = np.nan
    made = rows(next_obs=next_obs)
    assert made.next_known.tolist() == [True, True, False, True]
    assert made.nbytes == 4 * (16 + 4 + 16 + 1 + 1)
    assert "obs: (4, 2) float64" in repr(made)


def test_notes_keep_their_kind_and_count_in_json_and_in_copies():
    notes = (Note("dropped_rows", 3), "plain", Note("no_breaks"))
    made = Provenance(notes=notes)
    for copy in (
        Provenance.from_json(made.to_json(), source="f"),
        deepcopy(made),
    ):
        assert copy == made
        assert copy.count("dropped_rows") == 3
        assert [type(note) for note in copy.notes] == [Note, str, Note]


def test_notes_of_older_files_are_sentences():
    text = (
        "next_obs: 14 last rows before a break have none and were dropped",
        "time: 2 gaps (over 1.5 x the median step) and 0 clock resets; no transition was built "
        "across them",
        "episode: no episode key, flags or time; all rows are taken as one episode in order "
        "(name the key with episode=)",
        "anything else",
    )
    read = Provenance.from_dict({"source": ["f"], "format": "csv", "notes": list(text)})
    assert read.count("dropped_rows") == 14
    assert read.count("time_gaps") == 2
    assert read.notes == (text[0], Note("time_gaps", 2), Note("no_breaks"), text[3])


@pytest.mark.parametrize("note", [3, {"kind": "nothing"}, {"kind": "dropped_rows"}, ["a"], None])
def test_damaged_notes_are_refused(note):
    with pytest.raises(DataError, match="notes cannot be"):
        Provenance.from_dict({"notes": [note]})
