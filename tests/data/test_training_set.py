import numpy as np
import pytest

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.training_set import TrainingSet

POOL = Dataset.from_arrays(
    obs=np.arange(5.0)[:, None], next_obs=np.zeros((5, 1)), action=np.zeros((5, 1))
)


def test_rows_come_in_the_order_of_the_pool():
    chosen = TrainingSet(POOL, np.array([3, 0, 4]), np.ones(3, np.float32))
    assert len(chosen) == 3
    assert chosen.dataset.obs[:, 0].tolist() == [0, 3, 4]


@pytest.mark.parametrize(
    ("rows", "weight", "message"),
    [
        ([], None, "at least one row"),
        ([5], None, "from 0 to 4"),
        ([-1], None, "from 0 to 4"),
        ([0, 1], np.ones(3), "one weight a row"),
    ],
)
def test_what_is_no_training_set(rows, weight, message):
    with pytest.raises(DataError, match=message):
        TrainingSet(POOL, np.array(rows, np.int64), weight)
