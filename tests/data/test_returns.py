import numpy as np

from puorl.data.dataset import Dataset
from puorl.data.episodes import episode_returns, return_range


def recorded(lengths, ends, rewards):
    n = sum(lengths)
    last = np.cumsum(lengths) - 1
    flags = {name: np.zeros(n, bool) for name in ("terminal", "timeout")}
    for row, end in zip(last, ends, strict=True):
        if end:
            flags[end][row] = True
    return Dataset.from_arrays(
        obs=np.zeros((n, 1)),
        next_obs=np.zeros((n, 1)),
        action=np.zeros((n, 1)),
        reward=np.repeat(np.asarray(rewards, float), lengths),
        episode=np.repeat(np.arange(len(lengths)), lengths),
        **flags,
    ).rows


def test_only_whole_episodes_count():
    rows = recorded(
        [3, 5, 5, 2, 4], ["terminal", "timeout", None, "timeout", None], [1, 2, 9, 7, 5]
    )
    # 3 x 1 ended, 5 x 2 reached the limit; the others were cut or never finished.
    assert episode_returns(rows).tolist() == [3.0, 10.0]
    assert return_range([rows]) == (3.0, 10.0)


def test_range_is_over_all_parts_and_absent_without_episodes():
    one, two = recorded([2], ["terminal"], [1]), recorded([2], ["terminal"], [-4])
    assert return_range([one, two]) == (-8.0, 2.0)
    assert return_range([one]) is None
    bare = Dataset.from_arrays(obs=np.arange(4.0)[:, None], action=np.zeros((4, 1)))
    assert len(episode_returns(bare.rows)) == 0
