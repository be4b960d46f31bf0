"""Judged rows with known truth: Gaussian scores, alone or in groups, and splits to go with them."""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.alpha import bbe
from puorl.pu.cross_fit import HeldOutScores
from puorl.pu.intervals import bootstrap_interval


@dataclass(frozen=True, eq=False)
class Drawn:
    judged: HeldOutScores
    num_target: int
    """The first so many unlabelled rows are the target's."""
    area: float
    """Chance that a target row scores above another, in the population."""


def sigmoid(x):
    return (1 / (1 + np.exp(-x))).astype(np.float32)


def scores(rng, n, mean, size, likeness):
    """n scores of unit variance in groups of ``size``; ``likeness`` of the variance is shared."""
    if size is None:
        return rng.normal(mean, 1, n), None
    group = np.arange(n) // size
    shared = rng.normal(size=int(group.max()) + 1)[group]
    return mean + np.sqrt(likeness) * shared + np.sqrt(1 - likeness) * rng.normal(size=n), group


def draw_judged(rng, gap, *, num_p=1000, num_u=10_000, alpha=0.3, size=None, likeness=0.3):
    """Target rows score ``gap`` standard deviations above the others."""
    num_target = round(alpha * num_u)
    p, group_p = scores(rng, num_p, gap / 2, size, likeness)
    t, group_t = scores(rng, num_target, gap / 2, size, likeness)
    o, group_o = scores(rng, num_u - num_target, -gap / 2, size, likeness)
    group_u = None
    if size is not None:
        group_t = group_t + group_p.max() + 1
        group_u = np.concatenate([group_t, group_o + group_t.max() + 1])
    score_p, score_u = sigmoid(2 * p), sigmoid(2 * np.concatenate([t, o]))
    interval = bootstrap_interval(bbe, score_p, score_u, rng=rng, reps=100, groups_p=group_p)
    judged = HeldOutScores(
        position_p=np.arange(num_p),
        position_u=np.arange(num_p, num_p + num_u),
        score_p=score_p,
        score_u=score_u,
        kept_p=score_p >= 0.5,
        kept_u=score_u >= 0.5,
        group_p=group_p,
        group_u=group_u,
        alpha=replace(bbe(score_p, score_u), interval=interval),
    )
    return Drawn(judged, num_target, NormalDist().cdf(gap / np.sqrt(2)))


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
    return draw_judged


@pytest.fixture(scope="session")
def pool():
    return make_pool
