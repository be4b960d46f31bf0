"""Which columns are which field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import DataError
from puorl.data.columns import claim, named, natural_key
from puorl.data.validate import FieldNames

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
    with pytest.raises(DataError, match=f"expected {field} .*name it with {field}="):
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
