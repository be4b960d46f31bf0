"""Training sets of several pools, as sets of one: lanes of one program draw from one table."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from puorl.core.errors import ConfigError
from puorl.data.dataset import Dataset
from puorl.data.training_set import TrainingSet
from puorl.rl.pool import action_range


def on_one_pool(sets: Mapping[str, TrainingSet]) -> dict[str, TrainingSet]:
    """The same sets with positions in a pool that holds the rows of all their pools.

    Raises:
        ConfigError: Pools whose actions have different ranges: together they would be scaled
            otherwise than alone.
    """
    pools = list({id(chosen.pool): chosen.pool for chosen in sets.values()}.values())
    if len(pools) == 1:
        return dict(sets)
    ranges = [np.stack(action_range(pool.action)) for pool in pools]
    if any(not np.array_equal(each, ranges[0]) for each in ranges):
        raise ConfigError("train: expected pools with actions of one range, to train them together")
    joined = Dataset.concatenate(pools)
    starts = np.cumsum([0, *(len(pool) for pool in pools)])
    first = {id(pool): int(start) for pool, start in zip(pools, starts, strict=False)}
    return {
        name: dataclasses.replace(chosen, pool=joined, rows=chosen.rows + first[id(chosen.pool)])
        for name, chosen in sets.items()
    }
