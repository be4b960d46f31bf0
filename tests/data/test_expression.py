"""The condition language: against direct NumPy, and against garbage."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.data.expression import evaluate

COLUMNS = {
    "robot": np.array(["A7", "B1", "it's", "", "A7", "C"]),
    "speed": np.array([0.5, -1.0, np.nan, 2.5, 0.1, np.inf]),
    "speed32": np.array([0.5, -1.0, np.nan, 2.5, 0.1, 3.0], np.float32),
    "count": np.array([0, 1, 2, -3, 2**60, 1]),
    "checked": np.array([0, 1, 1, 0, 0, 1], np.uint8),
    "ok": np.array([True, False, True, True, False, False]),
    "odd name`s": np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    "obs-1": np.zeros(6),
    "obs.state": np.array([5, 4, 3, 2, 1, 0]),
}
OPERATORS = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("robot == 'A7'", [0, 4]),
        ('robot != "A7"', [1, 2, 3, 5]),
        ("robot == 'it''s'", [2]),
        ("robot == ''", [3]),
        ("speed > 0 and robot == 'A7' or ok == true", [0, 2, 3, 4]),
        ("speed > 0 and (robot == 'A7' or ok == TRUE)", [0, 3, 4]),
        ("not ok", [1, 4, 5]),
        ("NOT (ok OR checked)", [4]),
        ("checked == true", [1, 2, 5]),
        ("ok == 0", [1, 4, 5]),
        ("speed != 0.5", [1, 3, 4, 5]),  # NaN is false under != too
        ("speed32 == 0.1", [4]),  # the literal takes the column's width
        ("speed32 < 1e300", [0, 1, 3, 4, 5]),
        ("count == 1152921504606846976", [4]),
        ("count == 1152921504606846977", []),  # not rounded to float64
        ("count > 1e3", [4]),
        ("checked != -1", [0, 1, 2, 3, 4, 5]),
        ("count in [1, 2]", [1, 2, 5]),
        ("robot in ('A7', 'C')", [0, 4, 5]),
        ("robot not in ['A7']", [1, 2, 3, 5]),
        ("speed not in [0.5]", [1, 3, 4, 5]),
        ("`odd name``s` >= 5", [4, 5]),
        ("obs.state<+2", [4, 5]),
        ("  count<=-3  ", [3]),
    ],
)
def test_conditions(condition, rows):
    result = evaluate(condition, COLUMNS)
    assert result.dtype == bool
    assert np.flatnonzero(result).tolist() == rows


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("", "at character 1: expected a column, got the end"),
        ("robot = 'A7'", "at character 7: .*write =="),
        ("robot == A7", "at character 10: .*text stands in quotes: 'A7'"),
        ("robot == 'A7", "at character 10: .*the quote is not closed"),
        ("robot == 7", "'robot' holds text"),
        ("robot == true", "'robot' holds text"),
        ("robot < 'B'", "holds text, which has no order"),
        ("speed == 'fast'", "'speed' holds numbers"),
        ("ok > false", "no order"),
        ("ok > 0", "no order"),
        ("ok == 2", "holds true/false"),
        ("count == true", "holds whole numbers where true/false or 0/1 is needed"),
        ("speed", "holds numbers where true/false or 0/1 is needed"),
        ("robot", "holds text where"),
        ("sped > 1", r"'sped'; known columns: speed, speed32, .*; did you mean speed\?$"),
        ("nosuch > 1", "unknown name 'nosuch'; known columns: [^;]*$"),
        ("odd name`s > 5", "write the column .* in backticks: `odd name``s`$"),
        ('"odd name`s" > 5', "write the column .* in backticks: `odd name``s`$"),
        ("ok and obs-1 > 5", "write the column 'obs-1' in backticks: `obs-1`$"),
        ("`odd names` > 5", "did you mean `odd name``s`"),
        ("1 < speed", "at character 1: expected a column .*got '1'"),
        ("0 < speed < 1", "expected a column"),
        ("speed < 1 < 2", "at character 11: expected and, or, or the end, got '<'"),
        ("speed > 1 &", "at character 11: .*write and"),
        ("speed > 1 and", "at character 14: expected a column, got the end"),
        ("(speed > 1", r"expected '\)', got the end"),
        ("speed > 1)", r"got '\)'"),
        ("speed > 1e999", "too large"),
        ("speed > 1.2.3", "at character 9"),
        ("speed > nan", "text stands in quotes: 'nan'"),
        ("count in []", "expected a value"),
        ("count in [1", r"expected ',' or '\]'"),
        ("count in 1", r"expected '\['"),
        ("count not 1", "expected in"),
        ("__import__('os')", "expected and, or, or the end"),
        ("(" * 51 + "ok" + ")" * 51, "nested deeper than 50"),
        ("not " * 5000 + "ok", "nested deeper than 50"),
    ],
)
def test_mistakes_are_explained(condition, says):
    with pytest.raises(ConfigError, match=says):
        evaluate(condition, COLUMNS)


def test_long_chains_are_no_nesting():
    assert evaluate(" and ".join(["ok"] * 5000), COLUMNS).tolist() == COLUMNS["ok"].tolist()


def test_values_that_are_not_one_a_row_are_refused():
    with pytest.raises(ConfigError, match="not one value a row"):
        evaluate("x == 1", {"x": np.zeros((2, 2))})


def _quoted(text, quote):
    return quote + text.replace(quote, quote * 2) + quote


@st.composite
def comparisons(draw):
    """A comparison as text, and its value computed by NumPy alone."""
    name = draw(st.sampled_from(["speed", "count", "odd name`s", "robot", "ok"]))
    values = COLUMNS[name]
    word = _quoted(name, "`") if draw(st.booleans()) or " " in name else name
    if name == "ok":
        literal = draw(st.booleans())
        operator = draw(st.sampled_from(["==", "!="]))
        text = draw(st.sampled_from([str(literal), str(literal).lower(), str(int(literal))]))
    elif name == "robot":
        literal = draw(st.sampled_from([*COLUMNS["robot"].tolist(), 'say "x"']))
        operator = draw(st.sampled_from(["==", "!="]))
        text = _quoted(literal, draw(st.sampled_from(["'", '"'])))
    else:
        literal = draw(
            st.sampled_from([0, 1, -3, 2.5, 0.1]) | st.floats(-1e6, 1e6) | st.integers(-9, 9)
        )
        operator = draw(st.sampled_from(list(OPERATORS)))
        text = repr(literal)
    expected = OPERATORS[operator](values, literal)
    if values.dtype.kind == "f":
        expected = expected & ~np.isnan(values)
    space = draw(st.sampled_from(["", " ", "\t "]))
    return f"{word}{space}{operator}{space}{text}", expected


def _combined(children):
    def negated(child):
        return f"not ({child[0]})", ~child[1]

    def joined(parts_and_word):
        parts, word = parts_and_word
        value = np.logical_and.reduce if word == "and" else np.logical_or.reduce
        return f" {word} ".join(f"({t})" for t, _ in parts), value([v for _, v in parts])

    def without_parentheses(ands):
        # and binds tighter than or: groups of and, joined by or
        text = " or ".join(" and ".join(t for t, _ in group) for group in ands)
        return text, np.logical_or.reduce(
            [np.logical_and.reduce([v for _, v in group]) for group in ands]
        )

    groups = st.lists(st.lists(comparisons(), min_size=1, max_size=3), min_size=1, max_size=3)
    several = st.lists(children, min_size=2, max_size=3)
    return (
        children.map(negated)
        | st.tuples(several, st.sampled_from(["and", "or"])).map(joined)
        | groups.map(without_parentheses)
    )


@settings(max_examples=400, deadline=None)
@given(st.recursive(comparisons(), _combined, max_leaves=12))
def test_any_tree_equals_numpy(tree):
    text, expected = tree
    assert evaluate(text, COLUMNS).tolist() == expected.tolist()


@settings(max_examples=600, deadline=None)
@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            "speed robot ok count `odd name``s` and or not in == != < <= ( ) [ ] , 1 -2.5 'A7' "
            'true " ` . 9e99 1e400 nosuch'.split(" ")
        ),
        max_size=12,
    ).map(" ".join)
)
def test_garbage_raises_nothing_but_config_error(text):
    try:
        result = evaluate(text, COLUMNS)
    except ConfigError:
        return
    assert result.shape == (6,)
    assert result.dtype == bool


def test_many_values_need_no_more_memory_than_few():
    columns = {"x": np.arange(50_000) % 3_000}
    values = ", ".join(map(str, range(0, 4_000, 2)))
    tracemalloc.start()
    try:
        found = evaluate(f"x in [{values}]", columns)
        also = evaluate(" or ".join(f"x == {i}" for i in range(0, 1_000, 2)), columns)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.tolist() == (columns["x"] % 2 == 0).tolist()
    assert also.sum() == ((columns["x"] % 2 == 0) & (columns["x"] < 1_000)).sum()
    assert peak < 10 * columns["x"].nbytes
