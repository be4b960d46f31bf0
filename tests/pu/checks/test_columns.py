import time

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.transitions import Provenance
from puorl.pu.checks.recording import check_columns


def find(split, seed=0):
    return {(f.column, f.kind) for f in check_columns(split, rng=np.random.default_rng(seed))}


@pytest.mark.parametrize(
    ("shift", "spread", "num_p", "alpha"),
    [(0.0, 1.0, 500, 0.3), (1.0, 1.0, 300, 0.3), (3.0, 1.0, 500, 0.3), (0.0, 2.0, 60, 0.1)],
)
@pytest.mark.parametrize("size", [None, 50])
def test_honest_draws_are_silent(pool, shift, spread, num_p, alpha, size):
    """No alarm in 8 settings x 15 draws: the rate is below 2.5 % with 95 % confidence."""
    num_t = round(alpha * 4000)
    for seed in range(15):
        rng = np.random.default_rng([seed, num_p])
        split = pool(
            rng,
            num_p=num_p,
            num_t=num_t,
            num_o=4000 - num_t,
            shift=shift,
            spread=spread,
            size=size,
        )
        assert find(split, seed) == set()


def rounded(arrays, mask):
    for name in ("obs", "next_obs"):
        arrays[name][mask, 1] = np.round(arrays[name][mask, 1], 2)


def moved(arrays, mask):
    for name in ("obs", "next_obs"):
        arrays[name][mask, 2] += 4.0


def frozen(arrays, mask):
    arrays["action"][mask, 0] = 0.25


def frozen_others(arrays, mask):
    arrays["reward"][~mask] = 1.0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (rounded, {("obs[1]", "rounding")}),
        (moved, {("obs[2]", "offset")}),
        (frozen, {("action[0]", "constant")}),
        (frozen_others, {("reward", "constant")}),
    ],
)
@pytest.mark.parametrize("size", [None, 50])
def test_artefacts_are_named(pool, change, expected, size):
    assert find(pool(np.random.default_rng(0), change=change, size=size)) == expected


def test_rounding_of_next_obs_alone_is_named_so(pool):
    def change(arrays, mask):
        arrays["next_obs"][mask, 0] = np.round(arrays["next_obs"][mask, 0], 2)

    assert find(pool(np.random.default_rng(0), change=change)) == {("next obs[0]", "rounding")}


def test_missing_ends(pool):
    def change(arrays, mask):
        arrays["terminal"][::5] = True
        arrays["next_obs"][mask & arrays["terminal"]] = np.nan

    assert find(pool(np.random.default_rng(0), change=change)) == {("next_obs", "missing")}


def test_more_ends_alone_are_behaviour(pool):
    def change(arrays, mask):
        arrays["terminal"][mask] = np.arange(mask.sum()) % 2 == 0
        arrays["terminal"][~mask] = np.arange((~mask).sum()) % 10 == 0
        arrays["next_obs"][arrays["terminal"]] = np.nan

    assert find(pool(np.random.default_rng(0), change=change)) == set()


def test_names_of_the_source_are_used():
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(2000, 2))
    obs[:300, 1] = np.round(obs[:300, 1], 2)
    names = Provenance(obs_names=("angle", "speed"), action_names=("torque",))
    data = Dataset.from_arrays(
        obs=obs, action=rng.normal(size=(2000, 1)), next_obs=obs, provenance=names
    )
    split = PUSplit.from_mask(data, np.arange(2000) < 300)
    found = check_columns(split, rng=rng)
    assert [f.column for f in found] == ["speed"]
    assert found[0].sentence.startswith("speed: 100% of labelled")


def test_few_labelled_rows_are_silent(pool):
    assert find(pool(np.random.default_rng(0), num_p=15, change=rounded)) == set()


def test_the_clearest_stands_first(pool):
    def change(arrays, mask):
        rounded(arrays, mask)
        half = mask & (np.arange(len(mask)) % 2 == 0)
        arrays["action"][half, 1] = np.round(arrays["action"][half, 1], 3)

    split = pool(np.random.default_rng(0), change=change)
    found = check_columns(split, rng=np.random.default_rng(1))
    assert [f.column for f in found] == ["obs[1]", "action[1]"]


def test_many_rows_are_sampled(pool):
    split = pool(np.random.default_rng(0), num_p=60_000, num_t=100_000, num_o=140_000)
    start = time.process_time()
    assert find(split) == set()
    assert time.process_time() - start < 5
