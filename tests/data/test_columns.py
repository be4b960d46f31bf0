"""Which columns are which field."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError
from puorl.data import columns
from puorl.data.columns import (
    claim,
    has_decimal_comma,
    is_number,
    named,
    natural_key,
    seconds,
    typed,
)
from puorl.data.validate import FIELDS, FieldNames

TABLE = ["next_obs_0", "next_obs_1", "obs_1", "obs_0", "act_0", "reward", "robot"]


def _fields(header, **names):
    return claim(header, FieldNames(**names), "log").fields


def test_usual_names_and_natural_order():
    header = [f"obs_{i}" for i in (10, 9, 1, 0)] + ["Act_0", "Reward", "TERMINAL", "t", "ep"]
    claims = claim(header, FieldNames(), "log")
    assert claims.fields == {
        "obs": ("obs_0", "obs_1", "obs_9", "obs_10"),
        "action": ("Act_0",),
        "reward": ("Reward",),
        "terminal": ("TERMINAL",),
        "episode": ("ep",),
        "time": ("t",),
    }
    assert "obs = obs_0 … obs_10 (4)" in claims.notes[0]


def test_obs_pattern_leaves_next_obs_alone():
    for names in ({}, {"obs": "obs_*", "action": "act_*"}):
        fields = _fields(TABLE, **names)
        assert fields["obs"] == ("obs_0", "obs_1")
        assert fields["next_obs"] == ("next_obs_0", "next_obs_1")
    assert claim(TABLE, FieldNames(), "log").rest(TABLE) == ["robot"]


@pytest.mark.parametrize(
    ("given_names", "expected"),
    [
        ("b_*", ("b_2", "b_10")),
        ("b_?", ("b_2",)),
        (["b_10", "b_2"], ("b_10", "b_2")),
        ("b_10, b_2", ("b_10", "b_2")),
        (["a", "b_*"], ("a", "b_2", "b_10")),
        ("x,y", ("x,y",)),  # a column of that very name comes first
        ("q[0]", ("q[0]",)),
        ("q[*]", ("q[0]", "q[1]")),  # brackets are plain characters
    ],
)
def test_patterns_lists_and_commas(given_names, expected):
    header = ["a", "b_10", "b_2", "x,y", "x", "y", "q[1]", "q[0]", "action"]
    assert _fields(header, obs=given_names)["obs"] == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (["obs0", "obs1", "action0"], {"obs": ("obs0", "obs1"), "action": ("action0",)}),
        (["state", "action"], {"obs": ("state",), "action": ("action",)}),
        (["state.x", "state.y", "act.u"], {"obs": ("state.x", "state.y"), "action": ("act.u",)}),
        # numbered columns win over others with the same start
        (["obs_0", "obs_time", "act_0"], {"obs": ("obs_0",), "action": ("act_0",)}),
        (
            ["observation.state", "observation.images.top", "action", "next.reward"],
            {"obs": ("observation.state",), "action": ("action",), "reward": ("next.reward",)},
        ),
    ],
)
def test_other_usual_layouts(header, expected):
    assert _fields(header) == expected


def test_next_columns_beside_named_state():
    header = ["angle", "speed", "next_angle", "next_speed", "u", "next_u"]
    fields = _fields(header, obs="angle,speed", action="u")
    assert fields["next_obs"] == ("next_angle", "next_speed")
    assert fields["next_action"] == ("next_u",)
    assert "next_obs" not in _fields(header[:3] + header[4:], obs="angle,speed", action="u")


def test_named_column_is_not_guessed_again():
    fields = _fields(["obs_0", "act_0", "reward"], obs=["obs_0", "reward"])
    assert fields == {"obs": ("obs_0", "reward"), "action": ("act_0",)}


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"obs": "obs_*", "next_obs": "*obs_*"}, "'obs_0' is named for obs and again for next_obs"),
        ({"obs": ["obs_0", "obs_0"]}, "named for obs and again for obs"),
        ({"reward": "obs_0", "obs": "obs_*"}, "named for obs and again for reward"),
        ({"obs": "state_*"}, r"match 'state_\*' \(named for obs\), found: "),
        ({"obs": ["obs_0", "obs_7"]}, "column 'obs_7' .*found: obs_"),
        ({"reward": "rewrd"}, "column 'rewrd' .*found: reward, "),
        ({"reward": "rew*"}, r"column 'rew\*'"),
        ({"obs": []}, "empty list"),
    ],
)
def test_wrong_names(names, says):
    with pytest.raises(DataError, match=says):
        claim(TABLE, FieldNames(**names), "log")


@pytest.mark.parametrize(("header", "field"), [(["a", "act_0"], "obs"), (["obs_0", "b"], "action")])
def test_missing_required_field(header, field):
    with pytest.raises(
        DataError, match=f"expected {field} .*name one or more, as A,B, that are {field}"
    ):
        claim(header, FieldNames(), "log")


@pytest.mark.parametrize("name", ["done", "Dones", "next.done"])
def test_ambiguous_end_is_left_alone_and_noted(name):
    header = ["obs_0", "act_0", name]
    claims = claim(header, FieldNames(), "log")
    assert "terminal" not in claims.fields
    assert any(note.startswith(f"{name}: not used") for note in claims.notes)
    chosen = claim(header, FieldNames(terminal=name), "log")
    assert chosen.fields["terminal"] == (name,)
    assert not any("not used" in note for note in chosen.notes)


def test_named_returns_only_what_was_named():
    assert named(TABLE, FieldNames(reward="reward"), "log") == {"reward": ("reward",)}


@given(st.lists(st.integers(0, 10**30), min_size=1, unique=True))
def test_natural_order_is_numeric_order(numbers):
    ordered = sorted((f"obs_{i}" for i in numbers), key=natural_key)
    assert ordered == [f"obs_{i}" for i in sorted(numbers)]


@given(st.lists(st.text("ab01_", max_size=6), unique=True))
def test_natural_order_is_total(names):
    assert sorted(names, key=natural_key) == sorted(reversed(names), key=natural_key)


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (["1", " -2", "+3"], np.int64, [1, -2, 3]),
        (["1", "2.0"], np.float64, [1.0, 2.0]),
        (["1e3", ".5", "5."], np.float64, [1000.0, 0.5, 5.0]),
        (["0", "1"], np.int64, [0, 1]),
        (["true", "FALSE", " True"], np.bool_, [True, False, True]),
        (["007", "8"], "U3", ["007", "8"]),
        (["1", "x"], "U1", ["1", "x"]),
        (["true", "1"], "U4", ["true", "1"]),
        (["yes", "no"], "U3", ["yes", "no"]),
        (["a", ""], "U1", ["a", ""]),
        (["1_000", "2"], "U5", ["1_000", "2"]),
        (["1,5", "2"], "U3", ["1,5", "2"]),
        ([str(2**63 - 1), str(-(2**63) + 1)], np.int64, [2**63 - 1, -(2**63) + 1]),
        ([str(2**63)], "U19", [str(2**63)]),  # an id that no number here holds
        ([str(2**53 + 1), ""], "U16", [str(2**53 + 1), ""]),
        (["١"], "U1", ["١"]),
        ([" a "], "U3", [" a "]),
    ],
)
def test_whole_column_decides(cells, dtype, values):
    array = typed(cells)
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == values


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", ""], [1.0, np.nan]),
        (["", " "], [np.nan, np.nan]),
        (["true", "", "false"], [1.0, np.nan, 0.0]),
        (["nan", "-inf", "2"], [np.nan, -np.inf, 2.0]),
        ([], []),
    ],
)
def test_empty_cells_are_nan_among_numbers(cells, values):
    array = typed(cells)
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, values)


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1))
def test_whole_numbers_come_back(values):
    array = typed([str(v) for v in values])
    assert array.dtype == np.int64
    assert array.tolist() == values


@given(st.lists(st.floats(), min_size=1))
def test_floats_come_back_exactly(values):
    text = [repr(v) for v in values]
    expected = np.array(values, np.float64)
    array = typed([*text, "0.5"])[:-1]
    np.testing.assert_array_equal(array, expected)
    assert (np.signbit(array) == np.signbit(expected)).all() or np.isnan(expected).any()


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_text_is_kept_as_written(cells):
    assert typed([*cells, "text"]).tolist() == [*cells, "text"]


@pytest.mark.parametrize("cell", ["1_0", "0x10", "1,5", "", "1 2", "nano", "--1", "1e", "."])
def test_not_numbers(cell):
    assert not is_number(cell)


def test_decimal_comma():
    assert has_decimal_comma(" -1,25")
    assert not has_decimal_comma("1,250,000")


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (["1970-01-01T00:00:01Z", "1970-01-01T01:00:00+01:00"], [1.0, 0.0]),
        (["1970-01-02", "1970-01-01 00:00:00.25"], [86400.0, 0.25]),
        (["1969-12-31T23:59:59"], [-1.0]),
    ],
)
def test_seconds(stamps, expected):
    values, wrong, _ = seconds(stamps, "log")
    assert (values.tolist(), wrong) == (expected, [])


def test_other_text_among_stamps_is_counted():
    values, wrong, _ = seconds(["1970-01-01", "soon", "", "1970-01-02"], "log")
    np.testing.assert_array_equal(values, [0.0, np.nan, np.nan, 86_400.0])
    assert wrong == [1]
    with pytest.raises(DataError, match="expected numbers or ISO 8601 stamps, got 'soon' in row 1"):
        seconds(["", "soon"], "log")


def test_zones():
    mixed = ["2024-01-01T12:00", "2024-01-01T11:00Z", "2024-07-01T12:00", "2024-07-01T12:00+02:00"]
    with pytest.raises(DataError, match="got '2024-01-01T11:00Z' in row 1; .*--time-zone"):
        seconds(mixed, "log")
    values, _, notes = seconds(mixed, "log", "Europe/Berlin")
    assert notes == ()
    assert (
        "UTC; name theirs with --time-zone" in seconds(["1970-01-01"], "log: column t (time)")[2][0]
    )
    assert values[0] == values[1]
    assert values[2] == values[3]  # daylight saving time
    for name in ("Europe/Nowhere", "../etc/passwd", ""):
        with pytest.raises(ConfigError, match="expected the name of a zone"):
            seconds(mixed, "log", name)


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
    with pytest.raises(DataError, match="'done' is named for terminal and again for timeout"):
        columns.resolve(["obs", "act", "done"], FieldNames(terminal="done", timeout="done"), "f")


@pytest.mark.parametrize("field", ["obs", "action"])
def test_required_fields_must_be_found(field):
    keys = [k for k in ("observations", "actions", "battery") if not k.startswith(field[:3])]
    with pytest.raises(DataError, match=rf"{field} under.*battery.*the one that is {field}"):
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
