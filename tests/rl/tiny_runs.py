"""Small pools, learners and jobs, and the program that test_run kills."""

import sys
import time

import numpy as np

from puorl.data.dataset import Dataset
from puorl.data.training_set import Groups, TrainingSet
from puorl.rl import learner
from puorl.rl.run import Job, run

SETTINGS = {
    "td3_bc": {"hidden": (6, 5), "batch_size": 8},
    "iql": {"hidden": (6, 5), "batch_size": 8},
    "bc": {"hidden": (6, 5), "batch_size": 8},
    "cql": {"hidden": (6, 5), "batch_size": 8, "num_sampled": 2},
    "rebrac": {"hidden": (6, 5), "batch_size": 8},
    "td7": {"hidden": (6, 5), "batch_size": 8, "embedding_dim": 4, "copy_every": 4},
}


def small(name, num_steps=100, **settings):
    """A learner of few weights."""
    return learner.make(name, num_steps=num_steps, **(SETTINGS[name] | settings))


def pool(num_rows=120, *, seed=0, length=10):
    """Rows of whole episodes, some of which end in a terminal row without a next state."""
    rng = np.random.default_rng(seed)
    last = np.arange(num_rows) % length == length - 1
    terminal = last & (np.arange(num_rows) // length % 2 == 0)
    obs = rng.normal(size=(num_rows, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -1.0]
    next_obs = np.roll(obs, -1, axis=0)
    next_obs[last] = rng.normal(size=(last.sum(), 3))
    next_obs[terminal] = np.nan
    made = Dataset.from_arrays(
        obs=obs,
        action=rng.uniform(-1, 1, (num_rows, 2)),
        reward=rng.normal(size=num_rows),
        next_obs=next_obs,
        terminal=terminal,
        timeout=last & ~terminal,
        episode=np.arange(num_rows) // length,
    )
    return made.with_next_action()


def grouped(data, num_first, rows=None, *, seed=0, **settings):
    """A set with groups, scores, weights of both kinds and rewards of its own."""
    rows = np.arange(len(data)) if rows is None else rows
    rng = np.random.default_rng(seed)
    return TrainingSet(
        data,
        rows,
        weight=rng.uniform(0.5, 1, len(rows)).astype(np.float32),
        reward=rng.normal(size=len(rows)),
        critic_weight=rng.uniform(0.5, 1, len(rows)).astype(np.float32),
        score=rng.normal(size=len(rows)).astype(np.float32),
        groups=Groups(num_first, **settings),
    )


def job(name, *, steps=12, point_every=4, most_lanes=2, seeds=(0, 1)):
    """Two sets, one of them shorter, in groups of lanes."""
    data = pool()
    sets = {"all": TrainingSet.whole(data), "some": TrainingSet(data, np.arange(0, 90, 2))}
    chosen = {"all": seeds, "some": seeds[:1]}
    return Job(small(name, steps), sets, chosen, steps, point_every, most_lanes)


if __name__ == "__main__":
    folder, name, steps, every, pause = sys.argv[1:]
    run(
        folder,
        job(name, steps=int(steps), point_every=int(every)),
        resume=True,
        on_point=lambda *_: time.sleep(float(pause)),
    )
