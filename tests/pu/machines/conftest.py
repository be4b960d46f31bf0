"""A small fleet: two types of one linear system with other gains, each unit recorded in runs."""

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.config import FilterConfig, MachineConfig
from puorl.pu.filter import DomainFilter

MACHINES = MachineConfig(
    hidden=(32,), latent_sizes=(1, 2), num_seeds=1, num_steps=400, batch_size=256, horizons=(1, 4)
)


def make_fleet(
    *, num_units=12, num_runs=4, length=40, seed=0, first=0, gains=(0.5, 0.25), reach=(1.0,)
):
    """s' = 0.9 s + gain a + noise; units of a type differ by 3 % in gain, every other is ours.

    Each driver, of two units in turn, acts so many times as far.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for unit in range(num_units):
        gain = gains[unit % 2] * (1 + 0.03 * rng.normal())
        for run in range(num_runs):
            action = reach[unit // 2 % len(reach)] * rng.uniform(-1, 1, (length, 1))
            obs = np.zeros((length, 2))
            obs[0] = rng.normal(size=2)
            for t in range(length - 1):
                drift = 0.9 * obs[t] + 0.1 * obs[t][::-1] * [1, -1] + gain * action[t] * [1, 0.5]
                obs[t + 1] = drift + 0.03 * rng.normal(size=2)
            parts.append((obs, action, unit, unit * num_runs + run))
    name = np.array([f"m{first + unit:02d}" for *_, unit, _ in parts])
    return Dataset.from_arrays(
        obs=np.concatenate([part[0] for part in parts]),
        action=np.concatenate([part[1] for part in parts]),
        episode=np.repeat([part[3] for part in parts], length),
        columns={"robot": np.repeat(name, length)},
    )


@pytest.fixture(scope="session")
def fleet():
    """The function that makes a fleet."""
    return make_fleet


@pytest.fixture(scope="session")
def split():
    """Twelve units, of which one is known."""
    data = make_fleet()
    return PUSplit.from_mask(data, data.columns["robot"] == "m00", unit="episode")


@pytest.fixture(scope="session")
def fitted(split):
    config = FilterConfig(machines=MACHINES)
    return DomainFilter(unit="column:robot", config=config).fit(split, seed=0)
