import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import DataError
from puorl.data import columns
from puorl.data.validate import FIELDS, FieldNames

D4RL = ["observations", "actions", "rewards", "terminals", "timeouts", "next_observations"]


def test_d4rl_keys_are_found_without_being_named():
    assert columns.resolve(D4RL, FieldNames(), "f") == {
        "obs": "observations",
        "action": "actions",
        "reward": "rewards",
        "next_obs": "next_observations",
        "terminal": "terminals",
        "timeout": "timeouts",
    }


def test_every_field_has_usual_names_and_no_name_is_shared():
    assert set(columns.USUAL) == set(FIELDS)
    every = [name for names in columns.USUAL.values() for name in names]
    assert len(every) == len(set(every))
    assert not set(every) & set(columns.AMBIGUOUS_END)
    assert all(name == name.lower() for name in every)


@given(st.sampled_from(FIELDS), st.data())
def test_capitals_do_not_matter(field, data):
    usual = data.draw(st.sampled_from(columns.USUAL[field]))
    key = data.draw(st.sampled_from([usual.upper(), usual.title(), usual]))
    assert columns.find(field, ["noise", key]) == key


def test_the_most_telling_name_wins():
    assert columns.find("obs", ["state", "observations"]) == "observations"
    assert columns.find("obs", ["OBS", "obs"]) == "obs"


def test_explicit_names_win_over_usual_ones():
    found = columns.resolve(["obs", "act", "sensors"], FieldNames(obs="sensors"), "f")
    assert found == {"obs": "sensors", "action": "act"}


def test_a_key_named_for_one_field_is_not_found_for_another():
    found = columns.resolve(["obs", "act", "truncated"], FieldNames(terminal="truncated"), "f")
    assert found["terminal"] == "truncated"
    assert "timeout" not in found


def test_a_named_key_that_is_absent_lists_close_ones_first():
    keys = ["aaa", "zzz", "robot_state", "act"]
    with pytest.raises(
        DataError, match=r"f: expected the key 'robot_states'.*found: robot_state, "
    ):
        columns.resolve(keys, FieldNames(obs="robot_states"), "f")


def test_one_key_cannot_be_two_fields():
    with pytest.raises(DataError, match="'done' is named for both terminal and timeout"):
        columns.resolve(["obs", "act", "done"], FieldNames(terminal="done", timeout="done"), "f")


@pytest.mark.parametrize("field", ["obs", "action"])
def test_required_fields_must_be_found(field):
    keys = [k for k in ("observations", "actions", "battery") if not k.startswith(field[:3])]
    with pytest.raises(DataError, match=rf"expected {field} under.*battery.*name it with {field}="):
        columns.resolve(keys, FieldNames(), "f")


@pytest.mark.parametrize("key", ["done", "dones", "Done"])
def test_done_is_not_guessed(key):
    keys = ["obs", "act", key]
    found = columns.resolve(keys, FieldNames(), "f")
    assert key not in found.values()
    [note] = columns.notes_on_ends(keys, found.values())
    assert f"terminal={key!r}" in note
    named = columns.resolve(keys, FieldNames(terminal=key), "f")
    assert named["terminal"] == key
    assert columns.notes_on_ends(keys, named.values()) == []


def test_lists_of_columns_are_for_tables():
    assert columns.named_arrays(["a"], FieldNames(obs=["a"]), "f") == {"obs": "a"}
    with pytest.raises(DataError, match=r"one key for obs in an array file, got 2 \(a, b\)"):
        columns.named_arrays(["a", "b"], FieldNames(obs=["a", "b"]), "f")


def test_long_lists_are_cut():
    text = columns.listed([f"key{i}" for i in range(50)], near="key7")
    assert text.startswith("key7, ")
    assert text.endswith(" and 30 more")
    assert columns.listed([], near="x") == "nothing"
