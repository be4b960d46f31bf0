import numpy as np
import pytest

from puorl.core.errors import DataError
from puorl.data.transitions import Transitions


def rows(n=4, **changes):
    made = {
        "obs": np.arange(2.0 * n).reshape(n, 2),
        "action": np.zeros((n, 1), np.float32),
        "next_obs": np.ones((n, 2)),
        "terminal": np.zeros(n, bool),
        "timeout": np.zeros(n, bool),
        **changes,
    }
    return Transitions(**made)


def test_only_present_fields_are_listed_in_their_order():
    assert list(rows(reward=np.zeros(4)).arrays()) == [
        "obs",
        "action",
        "next_obs",
        "reward",
        "terminal",
        "timeout",
    ]


def test_arrays_are_read_only_but_the_givers_are_not():
    mine = np.zeros((4, 2))
    made = rows(obs=mine)
    with pytest.raises(ValueError, match="read-only"):
        made.obs[0] = 1
    mine[0] = 1
    assert mine.flags.writeable


def test_slices_are_views_and_index_arrays_are_copies():
    made = rows()
    assert np.shares_memory(made[1:3].obs, made.obs)
    assert made[::-1].obs.tolist() == made.obs[::-1].tolist()
    picked = made[np.array([2, 0])]
    assert not np.shares_memory(picked.obs, made.obs)
    assert picked.obs.tolist() == made.obs[[2, 0]].tolist()
    assert len(made[np.array([True, False, False, True])]) == 2
    with pytest.raises(ValueError, match="read-only"):
        picked.obs[0] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.zeros(3)}, "reward: expected 1-dimensional with 4 rows"),
        ({"reward": np.zeros((4, 1))}, "reward: expected 1-dimensional"),
        ({"action": np.zeros(4)}, "action: expected 2-dimensional"),
        ({"terminal": np.zeros(4)}, "terminal: expected bool"),
        ({"episode": np.zeros(4)}, "episode: expected int"),
        ({"obs": np.zeros((4, 2), int)}, "obs: expected float"),
        ({"next_obs": np.zeros((4, 3))}, r"next_obs: expected shape \(4, 2\)"),
        ({"next_action": np.zeros((4, 2))}, r"next_action: expected shape \(4, 1\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        rows(**changes)


def test_next_known_and_size():
    next_obs = np.ones((4, 2))
    next_obs[2, 1] = np.nan
    made = rows(next_obs=next_obs)
    assert made.next_known.tolist() == [True, True, False, True]
    assert made.nbytes == 4 * (16 + 4 + 16 + 1 + 1)
    assert "obs: (4, 2) float64" in repr(made)
