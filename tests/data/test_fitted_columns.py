"""New data meets the columns of a fit: put in order by name, or refused."""

import dataclasses
import json

import numpy as np
import pytest

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.fitted_columns import FittedColumns


def with_names(obs, action, **more):
    """Each column holds ten times its place in the alphabet, and the row."""
    rows = np.arange(4.0)[:, None]

    def matrix(names):
        return rows + 10.0 * np.array([ord(name[0]) - ord("a") for name in names])

    data = Dataset.from_arrays(
        obs=matrix(obs), action=matrix(action), next_obs=1.0 + matrix(obs), **more
    )
    names = {"obs_names": tuple(obs), "action_names": tuple(action)}
    limits = tuple(map(float, data.action.min(axis=0))), tuple(map(float, data.action.max(axis=0)))
    origin = dataclasses.replace(data.provenance, **names, action_range=limits)
    return dataclasses.replace(data, provenance=origin)


def test_columns_in_another_order_are_put_in_that_of_the_fit():
    fitted, given = with_names("abc", "uv"), with_names("cab", "vu").with_next_action()
    made = FittedColumns.of(fitted).order(given)
    want = fitted.with_next_action()
    for name, array in want.rows.arrays().items():
        np.testing.assert_array_equal(getattr(made.rows, name), array)
    for name in ("obs_names", "action_names", "action_range"):
        assert getattr(made.provenance, name) == getattr(want.provenance, name)
    assert FittedColumns.of(fitted).order(fitted) is fitted


@pytest.mark.parametrize(
    ("obs", "action", "says"),
    [
        ("abd", "uv", "obs: expected the columns that the filter was fitted on (a, b, c), got a, "
         "b, d, without c and with d; name the same columns with --obs (obs=)"),
        ("abcd", "uv", "(a, b, c), got a, b, c, d, with d; name"),
        ("abc", "uw", "action: expected the columns that the filter was fitted on (u, v), got u, "
         "w, without v and with w; name the same columns with --action (action=)"),
    ],
)  # fmt: skip
def test_other_columns_are_refused_with_the_repair(obs, action, says):
    with pytest.raises(DataError) as refused:
        FittedColumns.of(with_names("abc", "uv")).order(with_names(obs, action))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_names_that_are_not_known_are_not_compared_but_sizes_are():
    fitted = FittedColumns.of(with_names("abc", "uv"))
    rows = np.zeros((5, 4))
    nameless = Dataset.from_arrays(obs=rows[:, :3], action=rows[:, :2], next_obs=rows[:, :3])
    assert fitted.order(nameless) is nameless
    assert FittedColumns(3, 2).order(with_names("xyz", "uv")).provenance.obs_names == tuple("xyz")
    narrow = Dataset.from_arrays(obs=rows, action=rows[:, :2], next_obs=rows)
    with pytest.raises(DataError, match="expected 3 state and 2 action components.* got 4 and 2"):
        fitted.order(narrow)


def test_discrete_actions_are_put_in_order_by_their_codes():
    def coded(actions, codes):
        obs = np.arange(8.0).reshape(4, 2)
        return Dataset.from_arrays(
            obs=obs, action=np.array(actions), next_obs=obs, discrete_actions=codes
        )

    fitted = FittedColumns.of(coded(["go", "stop", "go", "wait"], None))
    made = fitted.order(coded(["stop", "go", "go", "stop"], ["stop", "go"]))
    assert made.action_codes == ("go", "stop", "wait")
    assert made.action_index.tolist() == [1, 0, 0, 1]
    with pytest.raises(DataError, match="expected codes among go, stop, wait, got"):
        fitted.order(coded(["stop", "run", "go", "stop"], None))
    with pytest.raises(DataError, match="expected codes among go, stop, wait, got continuous"):
        fitted.order(with_names("ab", "uvw"))


def test_columns_come_back_from_json_and_older_models_have_none():
    columns = FittedColumns.of(with_names("abc", "uv"))
    assert FittedColumns.stored(json.loads(json.dumps(columns.to_dict()))) == columns
    assert FittedColumns.stored(None) is None
