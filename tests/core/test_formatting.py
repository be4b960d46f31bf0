import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.core.formatting import describe_changes, parse_count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1000000", 10**6),
        ("1_000_000", 10**6),
        ("1e6", 10**6),
        ("1E6", 10**6),
        ("1e+6", 10**6),
        ("1M", 10**6),
        ("1m", 10**6),
        ("2.5k", 2500),
        ("0.25M", 250_000),
        ("3B", 3 * 10**9),
        (" 7 ", 7),
        (12, 12),
        (1e6, 10**6),
    ],
)
def test_counts(text, value):
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "1.5",
        "1e-3",
        "k",
        "1kk",
        "ten",
        "1e999",
        "nan",
        "inf",
        "0x10",
        "1 000",
        "1_",
        "1__0",
        "1e60",
        None,
    ],
)
def test_what_is_no_count(text):
    with pytest.raises(ConfigError, match="rows: expected a whole number"):
        parse_count(text, name="rows")


@given(st.integers(0, 10**15))
def test_integers_survive_in_every_spelling(value):
    assert parse_count(value) == parse_count(str(value)) == parse_count(f"{value:_}") == value


@given(st.text(max_size=12))
def test_any_text_is_a_count_or_a_config_error(text):
    try:
        count = parse_count(text)
    except ConfigError:
        return
    assert count >= 0


MARK, OTHER = "0" * 32, "f" * 32


@pytest.mark.parametrize(
    ("earlier", "now", "said"),
    [
        ({}, {}, ""),
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, ""),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "b was 2, is 3"),
        ({"a": 1}, {"b": None}, "a was 1, is absent; b was absent, is None"),
        ({"a": None}, {}, "a was None, is absent"),
        (
            {"data": MARK, "labels": MARK},
            {"data": OTHER, "labels": OTHER},
            "data differs; labels differ",
        ),
        ({"data": MARK}, {}, "data differs"),
        ({"a": "x" * 50}, {"a": 1}, f"a was {'x' * 40}..., is 1"),
    ],
)
def test_told(earlier, now, said):
    assert describe_changes(earlier, now) == said
