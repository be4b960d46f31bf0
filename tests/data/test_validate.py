import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from puorl.core.errors import DataError
from puorl.data.validate import canonical, column, require_finite, sums_to_finite


def fields(n=3, **changes):
    made = {"obs": np.arange(2.0 * n).reshape(n, 2), "action": np.zeros((n, 1)), **changes}
    return {k: v for k, v in made.items() if v is not None}


def check(**changes):
    return canonical(fields(**changes), source="here")


@pytest.mark.parametrize("name", ["obs", "action"])
def test_required_fields(name):
    with pytest.raises(DataError, match=rf"here: expected {name}, found only"):
        check(**{name: None})


@pytest.mark.parametrize(
    ("dtype", "becomes"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float32),
        (np.int8, np.float32),
        (np.uint16, np.float32),
        (bool, np.float32),
        (np.int32, np.float64),
        (np.uint64, np.float64),
        (">f4", np.float32),
        (">f8", np.float64),
    ],
)
def test_numbers_become_the_narrowest_float_that_is_exact(dtype, becomes):
    obs = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    result = check(obs=obs)["obs"]
    assert result.dtype == becomes
    assert result.dtype.isnative
    np.testing.assert_array_equal(result, obs.astype(float))


def test_floats_are_not_copied():
    obs = np.ones((3, 2), np.float32)
    assert np.shares_memory(check(obs=obs)["obs"], obs)


@pytest.mark.parametrize(
    "big",
    [
        np.array([1_700_000_000_000_000_001] * 3),
        np.array([-(2**63), 0, 2**63 - 1]),
        np.array([2**64 - 1, 0, 1], np.uint64),
    ],
)
def test_integers_that_float64_cannot_hold_are_refused(big):
    with pytest.raises(DataError, match="reward: .*integers above 2\\^53; subtract the first"):
        check(reward=big)


def test_nanoseconds_since_1970_and_dates_are_times():
    start = 1_700_000_000_000_000_000
    ticks = start + np.array([0, 20_000_000, 40_000_000])
    np.testing.assert_allclose(np.diff(check(time=ticks)["time"]), 2e7, rtol=1e-4)
    dates = ticks.astype("datetime64[ns]")
    np.testing.assert_allclose(np.diff(check(time=dates)["time"]), 0.02, rtol=1e-4)
    with pytest.raises(DataError, match="time: 1 of 3 rows are NaN"):
        check(time=np.array([dates[0], dates[1], "NaT"], "datetime64[ns]"))


def test_integers_up_to_the_limit_are_exact():
    time = np.array([-(2**53), 0, 2**53])
    np.testing.assert_array_equal(check(time=time)["time"].astype(np.int64), time)


@pytest.mark.parametrize("name", ["obs", "action", "reward", "next_obs", "terminal", "episode"])
@pytest.mark.parametrize("bad", ["object", "complex", "structured", "datetime"])
def test_what_is_not_a_number_is_refused(name, bad):
    plain = np.zeros((3, 2 if name in ("obs", "next_obs") else 1))
    made = {
        "object": plain.astype(object),
        "complex": plain.astype(complex),
        "structured": plain.astype([("x", "f4")]),
        "datetime": plain.astype("M8[s]"),
    }[bad]
    with pytest.raises(DataError, match=rf"here: {name}: expected"):
        check(**{name: made})


def test_columns_of_one_are_squeezed_for_single_values():
    result = check(reward=np.ones((3, 1)), terminal=np.zeros((3, 1)), episode=np.zeros((3, 1), int))
    assert {result[k].shape for k in ("reward", "terminal", "episode")} == {(3,)}


def test_a_flat_state_is_one_value_a_row():
    assert check(obs=np.arange(3.0))["obs"].shape == (3, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs": np.zeros((3, 2, 2))}, r"obs: expected \(rows, values\), got shape \(3, 2, 2\)"),
        ({"obs": np.zeros((3, 0))}, "obs: expected at least one value a row"),
        ({"obs": np.float64(1)}, r"obs: expected \(rows, values\), got shape \(\)"),
        ({"reward": np.zeros((3, 2))}, r"reward: expected one value a row, got shape \(3, 2\)"),
        ({"reward": np.float64(1)}, r"reward: expected one value a row, got shape \(\)"),
        ({"reward": np.zeros(4)}, "reward has 4 rows where obs has 3"),
        ({"action": np.zeros((2, 1))}, "action has 2 rows where obs has 3"),
        ({"next_obs": np.zeros((3, 3))}, r"next_obs has shape \(3, 3\) where obs has \(3, 2\)"),
        ({"next_action": np.zeros((3, 2))}, "next_action has shape"),
        ({"n": 0}, "expected at least one row, found none"),
        ({"terminal": np.array([0, 1, 2])}, "terminal: expected 0/1 .*2.* in row 2"),
        ({"terminal": np.array([0, np.nan, 1])}, "terminal: expected 0/1 .*nan.* in row 1"),
        ({"timeout": np.array(["a", "b", "c"])}, "timeout: expected 0/1 .* got dtype <U1"),
        ({"episode": np.array([0.5, 1, 2])}, "episode: expected whole numbers"),
        ({"episode": np.array([1e300, 1, 2])}, "episode: expected whole numbers"),
        ({"episode": np.array([2**63, 1, 2], np.uint64)}, "episode: ids above"),
        ({"episode": np.array([b"\xff", b"a", b"b"])}, "episode: expected UTF-8 text"),
    ],
)
def test_refusals_say_what_came(changes, message):
    with pytest.raises(DataError, match=f"here: {message}"):
        check(**changes)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["obs", "action", "reward", "time"])
def test_values_must_be_finite(name, value):
    array = np.zeros((3, 2) if name == "obs" else (3, 1))
    array[1, -1] = value
    with pytest.raises(
        DataError, match=rf"{name}: 1 of 3 rows are NaN or infinite \(first: row 1\)"
    ):
        check(**{name: array})


def test_an_unknown_next_state_is_allowed_only_in_terminal_rows():
    next_obs = np.array([[1.0, 2], [np.nan, np.nan], [3, 4]])
    terminal = np.array([False, True, False])
    kept = check(next_obs=next_obs, terminal=terminal)["next_obs"]
    np.testing.assert_array_equal(kept, next_obs)
    for flags in (~terminal, None):
        with pytest.raises(DataError, match="1 of 3 rows are NaN without being terminal.*row 1"):
            check(next_obs=next_obs, terminal=flags)


def test_an_infinite_next_state_is_never_allowed():
    next_obs = np.array([[1.0, 2], [np.inf, np.nan], [3, 4]])
    with pytest.raises(DataError, match="next_obs: row 1 is infinite"):
        check(next_obs=next_obs, terminal=np.ones(3, bool))


def test_an_unknown_next_action_is_allowed_anywhere():
    assert np.isnan(check(next_action=np.full((3, 1), np.nan))["next_action"]).all()


def test_state_and_next_state_share_the_wider_dtype():
    result = check(obs=np.zeros((3, 2), np.float32), next_obs=np.zeros((3, 2)))
    assert result["obs"].dtype == result["next_obs"].dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool, ">i2"])
def test_flags_of_any_kind_become_bool(dtype):
    result = check(terminal=np.array([0, 1, 0]).astype(dtype))["terminal"]
    assert result.dtype == bool
    assert result.tolist() == [False, True, False]


def test_text_ids_are_numbered_in_order_of_appearance():
    ids = np.array(["run b", "run a", "run b", "run c"])
    expected = [0, 1, 0, 2]
    assert check(n=4, episode=ids)["episode"].tolist() == expected
    assert check(n=4, episode=np.char.encode(ids))["episode"].tolist() == expected


@given(st.lists(st.text(max_size=3), min_size=1, max_size=20))
def test_text_ids_keep_equal_and_different(ids):
    numbered = check(n=len(ids), episode=np.array(ids))["episode"]
    held = np.array(ids).tolist()  # NumPy drops trailing NULs
    first_seen = list(dict.fromkeys(held))
    assert numbered.tolist() == [first_seen.index(text) for text in held]


@given(npst.arrays(np.float32, npst.array_shapes(min_dims=1, max_dims=2, max_side=5)))
def test_the_cheap_test_never_calls_a_bad_array_finite(array):
    if sums_to_finite(array):
        assert np.isfinite(array).all()


def test_finite_values_whose_sum_overflows_are_accepted():
    huge = np.full((4, 2), np.finfo(np.float32).max)
    assert not sums_to_finite(huge)
    require_finite("obs", huge, source="here")


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 2], np.int8),
        np.array([True, False]),
        np.array(["a", "bc"]),
        np.array([0.5, np.nan]),
    ],
)
def test_plain_columns_are_kept_as_they_are(array):
    result = column("c", array, source="here")
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)


def test_columns_are_made_native_flat_and_decoded():
    assert column("c", np.array([[1], [2]]), source="here").tolist() == [1, 2]
    assert column("c", np.array([1, 2], ">i4"), source="here").dtype == np.dtype("=i4")
    assert column("c", np.array(["é".encode()]), source="here").tolist() == ["é"]


@pytest.mark.parametrize(
    "array",
    [
        np.array([None, 1]),
        np.zeros((2, 2)),
        np.zeros(2, complex),
        np.float64(1),
        np.array([b"\xff\xfe"]),
        np.zeros(2, "M8[s]"),
    ],
)
def test_other_columns_are_refused(array):
    with pytest.raises(DataError, match="here: .*c.*expected"):
        column("c", array, source="here")
