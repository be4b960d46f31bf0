import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.formats import save
from puorl.data.training_files import read_training_set
from puorl.data.training_set import Groups, TrainingSet

POOL = Dataset.from_arrays(
    obs=np.arange(5.0)[:, None], next_obs=np.zeros((5, 1)), action=np.zeros((5, 1))
)


def test_rows_come_in_the_order_of_the_pool():
    chosen = TrainingSet(POOL, np.array([3, 0, 4]), np.ones(3, np.float32))
    assert len(chosen) == 3
    assert chosen.dataset.obs[:, 0].tolist() == [0, 3, 4]


def test_tables_have_the_weights_as_a_column():
    weight = np.array([0.3, 0.1, 0.4], np.float32)
    table = TrainingSet(POOL, np.array([3, 0, 4]), weight).to_arrow()
    assert table["obs_0"].to_pylist() == [0, 3, 4]
    np.testing.assert_array_equal(table["weight"], np.array([0.1, 0.3, 0.4], np.float32))
    assert "weight" not in TrainingSet(POOL, np.array([3, 0, 4])).to_arrow().column_names


def test_kept_rows_become_a_pandas_frame():
    pytest.importorskip("pandas")
    frame = TrainingSet(POOL, np.array([3, 0])).to_pandas()
    assert frame["obs_0"].tolist() == [0, 3]


@pytest.mark.parametrize(
    ("rows", "weight", "message"),
    [
        ([], None, "at least one row"),
        ([5], None, "from 0 to 4"),
        ([-1], None, "from 0 to 4"),
        ([0, 1], np.ones(3), "one weight a row"),
        ([0, 1], np.array([1.0, -0.5]), "weights from 0 on"),
        ([0, 1], np.zeros(2), "some above it"),
    ],
)
def test_what_is_no_training_set(rows, weight, message):
    with pytest.raises(DataError, match=message):
        TrainingSet(POOL, np.array(rows, np.int64), weight)


COLUMNS = ("weight", "reward", "critic_weight", "score")


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_a_finite_value_for_each_row(name):
    rows = np.array([4, 1])
    assert getattr(TrainingSet(POOL, rows, **{name: np.ones(2)}), name).tolist() == [1, 1]
    with pytest.raises(DataError, match=f"one {name} a row"):
        TrainingSet(POOL, rows, **{name: np.ones((2, 1))})
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match=f"every {name} finite"):
            TrainingSet(POOL, rows, **{name: np.array([1.0, bad])})


def test_the_whole_of_a_dataset_keeps_its_order_and_its_returns():
    chosen = TrainingSet.whole(POOL, (1.0, 3.0))
    assert chosen.rows.tolist() == [0, 1, 2, 3, 4]
    assert chosen.returns == (1.0, 3.0)
    assert all(getattr(chosen, name) is None for name in (*COLUMNS, "groups"))


def test_statistics_are_those_of_the_sets_own_states_in_float64():
    obs = np.array([[1e4, 2.0], [1e4 + 1, 2.0], [5.0, 9.0]], np.float32)
    pool = Dataset.from_arrays(obs=obs, next_obs=obs, action=np.zeros((3, 1)))
    mean, std = TrainingSet(pool, np.array([1, 0])).obs_statistics
    assert (mean.dtype, std.dtype) == (np.float64, np.float64)
    assert mean.tolist() == [1e4 + 0.5, 2.0]
    assert std.tolist() == [0.5, 0.0]


def test_weights_count_in_the_statistics():
    obs = np.array([[1.0, 2.0], [4.0, 2.0], [7.0, 9.0]], np.float32)
    pool = Dataset.from_arrays(obs=obs, next_obs=obs, action=np.zeros((3, 1)))
    rows, weight = np.array([0, 1, 2]), np.array([2.0, 1.0, 0.0], np.float32)
    mean, std = TrainingSet(pool, rows, weight).obs_statistics
    twice = TrainingSet(pool, np.array([0, 0, 1])).obs_statistics
    np.testing.assert_allclose(mean, twice[0], rtol=1e-12)
    np.testing.assert_allclose(std, twice[1], rtol=1e-12)


def test_groups_part_the_rows_in_two():
    chosen = TrainingSet(POOL, np.arange(5), score=np.arange(5.0), groups=Groups(2, top=0.75))
    assert chosen.groups == Groups(num_first=2, first_share=0.5, top=0.75)
    # Where all of the second group is kept, no score is needed.
    assert TrainingSet(POOL, np.arange(5), groups=Groups(4)).score is None
    for num_first in (0, 5, -1):
        with pytest.raises(DataError, match="expected two groups in 5 rows"):
            TrainingSet(POOL, np.arange(5), groups=Groups(num_first))
    with pytest.raises(DataError, match="expected a score"):
        TrainingSet(POOL, np.arange(5), groups=Groups(2, top=0.75))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"first_share": 0.0}, "first_share"),
        ({"first_share": 1.0}, "first_share"),
        ({"top": 0.0}, "top"),
        ({"top": 1.01}, "top"),
        ({"top": float("nan")}, "top"),
    ],
)
def test_shares_that_are_none(settings, name):
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        Groups(2, **settings)


def test_replaced_values_need_a_row_each():
    with pytest.raises(DataError, match=r"one next_obs a row, \(2, 1\), got \(3, 1\)"):
        TrainingSet(POOL, np.array([0, 1]), next_obs=np.zeros((3, 1)))


def test_a_value_to_hold_out_may_be_absent_but_is_noted(tmp_path):
    data = Dataset.from_arrays(
        obs=np.arange(6.0)[:, None],
        next_obs=np.zeros((6, 1)),
        action=np.zeros((6, 1)),
        columns={"machine": np.array(["A1", "A2"] * 3)},
    )
    save(data, tmp_path / "rows.npz")
    chosen = read_training_set([str(tmp_path / "rows.npz")], hold_out="machine in ['A1', 'A3']")
    assert chosen.dataset.obs.ravel().tolist() == [1, 3, 5]
    (note,) = [n for n in chosen.pool.provenance.notes if n.startswith("--hold-out")]
    assert note.startswith("--hold-out: no row has machine == 'A3' (did you mean 'A")
