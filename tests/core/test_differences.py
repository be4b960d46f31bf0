import pytest

from puorl.core.formatting import describe_changes

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
