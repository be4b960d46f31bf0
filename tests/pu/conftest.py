"""Two small worlds with the same behaviour and other dynamics, and splits of them."""

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.split import make_split


def make_world(n, shift, *, seed, noise=0.02, length=100):
    """s' = s + 0.1 (drift(s) + a) + noise; the other domain drifts by ``shift`` more."""
    rng = np.random.default_rng([seed, int(shift * 1000)])
    obs = rng.normal(size=(n, 3))
    action = rng.uniform(-1, 1, (n, 2))
    drift = np.tanh(obs) + np.pad(action, ((0, 0), (0, 1)))
    step = 0.1 * (drift + shift * np.array([1.0, -1.0, 0.5]))
    next_obs = obs + step + noise * rng.normal(size=obs.shape)
    return Dataset.from_arrays(
        obs=obs,
        action=action,
        next_obs=next_obs,
        reward=obs[:, 0] + shift,
        terminal=np.zeros(n, bool),
        timeout=(np.arange(n) + 1) % length == 0,
    )


def hidden(shift, **settings):
    target, other = make_world(8_000, 0.0, seed=1), make_world(14_000, shift, seed=2)
    return make_split(target, other, rows=20_000, seed=0, **settings)


@pytest.fixture(scope="session")
def world():
    """The function that makes a domain."""
    return make_world


@pytest.fixture(scope="session")
def clear_split():
    """Domains that a row tells apart: the shift is ten times the noise."""
    return hidden(2.0, labelled_fraction=0.03)


@pytest.fixture(scope="session")
def same_split():
    """Two domains that are the same."""
    return make_split(
        make_world(8_000, 0.0, seed=1),
        make_world(14_000, 0.0, seed=3),
        rows=20_000,
        seed=0,
        labelled_fraction=0.03,
    )


@pytest.fixture(scope="session")
def episode_split():
    return hidden(2.0, labelled_fraction=0.05, unit="episode")
