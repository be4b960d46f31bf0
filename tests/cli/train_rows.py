"""What tests of `puorl train` share: rows to learn from, a command, and how to look at a folder."""

import numpy as np

import puorl

STEPS, SEEDS = 60, 2


def train_rows(seed=0, obs_dim=11, act_dim=3, **more):
    rng = np.random.default_rng(seed)
    n = 300
    obs, action = rng.normal(size=(n, obs_dim)), rng.uniform(-1, 1, (n, act_dim))
    given = {
        "obs": obs,
        "action": action,
        "reward": action[:, 0] + 0.1 * obs[:, 0],
        "next_obs": np.roll(obs, -1, axis=0),
        "terminal": np.zeros(n, bool),
        "timeout": (np.arange(n) + 1) % 50 == 0,
        "episode": np.arange(n) // 50,
    }
    return puorl.Dataset.from_arrays(**{k: v for k, v in (given | more).items() if v is not None})


def words(*more, data="rows.npz", out="run"):
    """The learner with the smallest program: the command is tested here, not the learners."""
    start = ["train", data, "--learner", "bc", "--steps", str(STEPS), "--seeds", str(SEEDS)]
    return [*start, "--set", "hidden=16,16", "batch_size=16", "--out", out, *more]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())
