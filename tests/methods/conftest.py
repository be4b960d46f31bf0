"""Two domains of one number each, whose densities are known, hidden in each other."""

from types import SimpleNamespace

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.pu.config import FilterConfig, NetworkConfig
from puorl.pu.filter import DomainFilter

QUICK = FilterConfig(
    residuals=None,
    network=NetworkConfig(hidden=(16,), learning_rate=1e-2),
    num_warm_up=10,
    num_main=60,
)


def make_world(n, *, seed, shift=0.0, where=0.0, noise=0.3, dtype=np.float64):
    """s ~ N(where, 1), a ~ U(-1, 1), s' ~ N(s + 0.3 a + shift, noise)."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(where, 1.0, (n, 1)).astype(dtype)
    action = rng.uniform(-1, 1, (n, 1)).astype(dtype)
    next_obs = (obs + 0.3 * action + shift + noise * rng.normal(size=(n, 1))).astype(dtype)
    return Dataset.from_arrays(
        obs=obs,
        action=action,
        next_obs=next_obs,
        reward=obs[:, 0] - 1.0,
        terminal=np.zeros(n, bool),
        timeout=(np.arange(n) + 1) % 100 == 0,
    )


def make_hidden(rows=20_000, **other):
    """A tenth of the rows labelled, a quarter of the others the target's."""
    noise = other.get("noise", 0.3)
    target = make_world(rows // 2, seed=1, noise=noise)
    return make_split(
        target, make_world(rows, seed=2, **other), rows=rows, labelled_fraction=0.1, seed=0
    )


@pytest.fixture(scope="session")
def worlds():
    """The functions that make a domain and a split."""
    return SimpleNamespace(domain=make_world, split=make_hidden)


@pytest.fixture(scope="session")
def small_split():
    """A few rows, for what does not depend on learning well."""
    return make_hidden(1_000, shift=2.0)


@pytest.fixture(scope="session")
def open_split():
    """The same rows, in which nobody knows how some unlabelled and labelled tasks ended."""
    target, other = make_world(400, seed=1), make_world(600, seed=2, shift=2.0)
    whole = Dataset.concatenate([target, other])
    next_obs, terminal = whole.next_obs.copy(), np.zeros(1_000, bool)
    terminal[::50], next_obs[::50] = True, np.nan
    return Dataset.from_arrays(
        obs=whole.obs,
        action=whole.action,
        reward=whole.reward,
        next_obs=next_obs,
        terminal=terminal,
    )


@pytest.fixture(scope="session")
def quick_config():
    """A filter's settings that learn the small split in no time."""
    return QUICK


@pytest.fixture(scope="module")
def fitted(small_split):
    """A filter that has learnt the small split with seed 5."""
    return DomainFilter(config=QUICK).fit(small_split, seed=5)
