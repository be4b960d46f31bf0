"""Two small worlds with the same behaviour and other dynamics, and splits of them."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.data.split import PUSplit
from puorl.pu.alpha import alpha_estimate, bbe, bootstrap_interval
from puorl.pu.checks.auroc import HeldOutScores


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


@dataclass(frozen=True, eq=False)
class Drawn:
    scores: HeldOutScores
    num_target: int
    """The first so many unlabelled rows are the target's."""
    auroc: float
    """Probability that a target row scores above another, in the population."""


def sigmoid(x):
    return (1 / (1 + np.exp(-x))).astype(np.float32)


def normal_scores(rng, n, mean, size, likeness):
    """n scores of unit variance in groups of ``size``; ``likeness`` of the variance is shared."""
    if size is None:
        return rng.normal(mean, 1, n), None
    group = np.arange(n) // size
    shared = rng.normal(size=int(group.max()) + 1)[group]
    return mean + np.sqrt(likeness) * shared + np.sqrt(1 - likeness) * rng.normal(size=n), group


def draw_scores(rng, gap, *, num_p=1000, num_u=10_000, alpha=0.3, size=None, likeness=0.3):
    """Target rows score ``gap`` standard deviations above the others."""
    num_target = round(alpha * num_u)
    p, group_p = normal_scores(rng, num_p, gap / 2, size, likeness)
    t, group_t = normal_scores(rng, num_target, gap / 2, size, likeness)
    o, group_o = normal_scores(rng, num_u - num_target, -gap / 2, size, likeness)
    group_u = None
    if size is not None:
        group_t = group_t + group_p.max() + 1
        group_u = np.concatenate([group_t, group_o + group_t.max() + 1])
    score_p, score_u = sigmoid(2 * p), sigmoid(2 * np.concatenate([t, o]))
    alpha_value = bbe(score_p, score_u).value
    interval = bootstrap_interval(
        score_p, score_u, value=alpha_value, rng=rng, reps=100, groups_p=group_p
    )
    drawn = HeldOutScores(
        position_p=np.arange(num_p),
        position_u=np.arange(num_p, num_p + num_u),
        score_p=score_p,
        score_u=score_u,
        kept_p=score_p >= 0.5,
        kept_u=score_u >= 0.5,
        group_p=group_p,
        group_u=group_u,
        alpha=alpha_estimate(alpha_value, interval, method="bbe"),
    )
    return Drawn(drawn, num_target, NormalDist().cdf(gap / np.sqrt(2)))


def make_pool(
    rng, *, num_p=500, num_t=3000, num_o=4000, shift=0.5, spread=1.0, size=None, change=None, **more
):
    """Labelled target rows first, then target rows, then rows of another domain.

    The other domain's states lie elsewhere and spread otherwise, as another behaviour's do.
    ``change`` may spoil the arrays of a dictionary, given the mask of the labelled rows.
    """
    n = num_p + num_t + num_o
    other = np.arange(n) >= num_p + num_t
    width = np.where(other, spread, 1.0)[:, None]
    obs = width * rng.normal(size=(n, 3)) + shift * other[:, None]
    action = np.clip(width * rng.normal(size=(n, 2)), -1, 1)
    arrays = {
        "obs": obs,
        "action": action,
        "next_obs": obs + 0.1 * width * rng.normal(size=obs.shape),
        "reward": obs @ [1.0, -1.0, 0.5],
        "terminal": np.zeros(n, bool),
        **more,
    }
    if size is not None:
        arrays["episode"] = np.arange(n) // size
        arrays["timeout"] = (np.arange(n) + 1) % size == 0
    mask = np.arange(n) < num_p
    if change is not None:
        change(arrays, mask)
    return PUSplit.from_mask(Dataset.from_arrays(**arrays), mask)


@pytest.fixture(scope="session")
def draw():
    return draw_scores


@pytest.fixture(scope="session")
def pool():
    return make_pool
