import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.data import draw, parts


@given(
    st.integers(0, 10**7),
    st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
)
def test_shares_add_up_and_miss_by_less_than_one(total, proportions):
    counts = draw.apportion(total, proportions)
    exact = np.array(proportions) / sum(proportions) * total
    assert sum(counts) == total
    assert np.all(np.abs(np.array(counts) - exact) < 1 + 1e-6)


def test_mixture_of_equal_parts_is_exact():
    assert draw.apportion(700_000, [1, 1]) == [350_000, 350_000]


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (10_000, (8_000, 1_000, 1_000)),
        (30_000, (24_000, 3_000, 3_000)),
        (290_000, (232_000, 29_000, 29_000)),
        (270_000, (216_000, 27_000, 27_000)),
        (700_000, (560_000, 70_000, 70_000)),
    ],
)
def test_hold_out_sizes_are_the_papers(n, sizes):
    part = parts.hold_out(n)
    assert tuple((part == k).sum() for k in range(3)) == sizes


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40))
def test_rows_by_episode_covers_each_row_once_in_order(ids):
    groups = parts.rows_by_episode(np.array(ids))
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(ids)))
    for rows in groups:
        assert len({ids[i] for i in rows}) == 1
        assert np.all(np.diff(rows) > 0)
    assert len(groups) == len(set(ids))
