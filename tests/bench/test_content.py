import dataclasses

import numpy as np
import pytest

from puorl.bench.prepare import content
from puorl.data.dataset import Dataset
from puorl.data.training_set import Groups, TrainingSet


def pool(seed=0, n=40, shift=0.0):
    rng = np.random.default_rng(seed)
    return Dataset.from_arrays(
        obs=rng.normal(size=(n, 3)) + shift,
        action=rng.uniform(-1, 1, (n, 2)),
        next_obs=rng.normal(size=(n, 3)),
        reward=rng.normal(size=n),
        terminal=np.arange(n) % 10 == 9,
    )


def test_order_and_pool_do_not_matter():
    mine, order = pool(), np.random.default_rng(1).permutation(40)
    whole = TrainingSet.whole(mine)
    assert content(whole) == content(TrainingSet(mine, order))
    larger = Dataset.concatenate([pool(7), mine])
    assert content(whole) == content(TrainingSet(larger, 40 + order))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.arange(39)},
        {"rows": np.append(np.arange(39), 38)},
        {"reward": np.arange(40.0)},
        {"weight": np.full(40, 0.5, np.float32)},
        {"critic_weight": np.full(40, 0.5, np.float32)},
        {"score": np.arange(40, dtype=np.float32)},
        {"groups": Groups(10)},
        {"pool": pool(shift=1e-3)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_value_matters(change):
    whole = TrainingSet.whole(pool())
    assert content(dataclasses.replace(whole, **change)) != content(whole)


def test_who_is_in_which_group_matters_and_their_order_does_not():
    mine = pool()
    rows, groups = np.arange(40), Groups(10)
    within = np.concatenate([rows[:10][::-1], rows[10:][::-1]])
    across = np.concatenate([rows[20:], rows[:20]])
    one, same, other = (
        content(TrainingSet(mine, r, groups=groups)) for r in (rows, within, across)
    )
    assert one == same
    assert one != other


def test_values_that_change_places_are_noticed():
    rng = np.random.default_rng(3)
    obs, action = rng.normal(size=(20, 2)), rng.uniform(-1, 1, (20, 1))
    sets = [
        TrainingSet.whole(Dataset.from_arrays(obs=o, action=action, next_obs=o, reward=o[:, 0]))
        for o in (obs, obs[:, ::-1].copy())
    ]
    assert content(sets[0]) != content(sets[1])


def test_returns_are_left_to_learners_that_use_them():
    mine = pool()
    assert content(TrainingSet.whole(mine, (0.0, 1.0))) == content(TrainingSet.whole(mine))


def test_a_range_of_actions_beyond_one_matters():
    mine, rows = pool(), np.arange(40)
    wide = pool(9)
    wide = dataclasses.replace(wide, rows=dataclasses.replace(wide.rows, action=wide.action * 3))
    beside = Dataset.concatenate([mine, wide])
    assert content(TrainingSet(beside, rows)) != content(TrainingSet(mine, rows))
