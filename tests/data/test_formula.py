"""Formulas over columns: against NumPy's arithmetic, and against garbage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError, PuorlError
from puorl.data.expression import compute, is_formula
from puorl.data.formats import load, save

COLUMNS = {
    "x": np.array([1.0, -2.5, 3.0]),
    "y": np.array([2, 5, -1]),
    "on": np.array([True, False, True]),
    "pump": np.array(["a", "b", "c"]),
    "odd name": np.array([0.5, 1.5, 2.5]),
}


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("-abs(x - 5) - 0.01*y", -np.abs(COLUMNS["x"] - 5) - 0.01 * COLUMNS["y"]),
        ("2 - 3 - 4", np.full(3, -5.0)),
        ("-x**2", -(COLUMNS["x"] ** 2)),
        ("2**-1", np.full(3, 0.5)),
        ("8 / 4 / 2", np.full(3, 1.0)),
        ("min(x, y, 0) + max(x, 1e-3)", np.minimum(np.minimum(COLUMNS["x"], COLUMNS["y"]), 0)
         + np.maximum(COLUMNS["x"], 1e-3)),
        ("`odd name` * on", COLUMNS["odd name"] * COLUMNS["on"]),
        ("+x - -y", COLUMNS["x"] + COLUMNS["y"]),
    ],
)  # fmt: skip
def test_values(formula, expected):
    np.testing.assert_array_equal(compute(formula, COLUMNS), expected)
    assert is_formula(formula)


_FLOATS = {name: np.asarray(COLUMNS[name], float) for name in ("x", "y", "on")}
_LEAVES = st.sampled_from([*_FLOATS.items(), ("1.5", 1.5), ("2", 2.0), ("0.25", 0.25)])
_SIGNS = {"+": np.add, "-": np.subtract, "*": np.multiply}


def _combined(parts):
    """Formulas with their values, computed beside the text."""
    return (
        st.tuples(parts, st.sampled_from(list(_SIGNS)), parts).map(
            lambda t: (f"({t[0][0]} {t[1]} {t[2][0]})", _SIGNS[t[1]](t[0][1], t[2][1]))
        )
        | parts.map(lambda part: (f"abs({part[0]})", np.abs(part[1])))
        | parts.map(lambda part: (f"-{part[0]}", np.negative(part[1])))
    )


@settings(max_examples=100, deadline=None)
@given(st.recursive(_LEAVES, _combined, max_leaves=8))
def test_any_tree_equals_numpy(made):
    formula, expected = made
    np.testing.assert_array_equal(compute(formula, COLUMNS), np.broadcast_to(expected, (3,)))


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=30)
    | st.lists(
        st.sampled_from("x y on pump abs( min( ( ) + - * / ** , 1 2e3 ` z".split()), max_size=10
    ).map(" ".join)
)
def test_garbage_raises_nothing_but_our_errors(formula):
    try:
        found = compute(formula, COLUMNS)
    except PuorlError:
        return
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("x +", "expected a number or a column, got the end"),
        ("presure * 2", "unknown name 'presure'"),
        ("pump * 2", "expected numbers in column 'pump', got text"),
        ("abs(x, y)", "expected one value for abs, got 2"),
        ("(x", "expected '\\)'"),
        ("x y", "expected an operator or the end, got 'y'"),
        ("(" * 60 + "x" + ")" * 60, "nested deeper than 50"),
        ("__import__('os')", "near character"),
    ],
)
def test_what_is_wrong_is_told(formula, says):
    with pytest.raises(ConfigError, match=says):
        compute(formula, COLUMNS)


def test_rows_without_a_finite_value():
    with pytest.raises(DataError, match="got nan in row 1 and 1 such rows"):
        compute("sqrt(x)", COLUMNS)


@pytest.mark.parametrize("name", ["reward", "env/reward", "r-t", "gain (mean)", "rew_1"])
def test_names_are_no_formulas(name):
    assert not is_formula(name)


def test_a_log_without_rewards(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("obs_pressure,act_speed,power\n4,1,10\n6,0,20\n5,0,30\n")
    data = load(path, reward="-abs(obs_pressure - 5) - 0.01*power")
    np.testing.assert_allclose(data.reward, [-1.1, -1.2])
    assert "reward" not in data.provenance.missing
    with pytest.raises(ConfigError, match=r"log.csv: reward: formula .*unknown name 'pressure'"):
        load(path, reward="-abs(pressure)")


def test_columns_that_were_used_are_known(tmp_path):
    text = "speed,gear,clock,run,cost\n" + "".join(
        f"{i}.5,{'lr'[i % 2]},{i},a,{i}\n" for i in range(8)
    )
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(text)
    fields = {"obs": ["speed"], "action": "gear", "time": "clock", "episode": "run"}
    data = load(tmp_path / "*.csv", reward="-cost", **fields)
    used = fields | {"action": ["gear"]}
    assert data.used_columns == used | {"reward": "-cost"}
    copy = load(save(data, tmp_path / "copy.parquet"))
    assert copy.provenance == data.provenance  # a copy has names of its own, which are not compared
    assert copy.used_columns["reward"] == "reward"
