import time

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.transitions import Provenance
from puorl.pu.checks.recording import (
    Side,
    check_columns,
    clear_difference,
    find_offset,
    find_rounding,
    find_sample_rate,
    is_measured,
    largest_distance,
    time_steps,
)


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


def side(values, groups=None):
    groups = len(values) if groups is None else groups
    return Side(values, np.arange(len(values)) * groups // len(values), groups)


def normal(seed, n, mean=0.0, spread=1.0):
    return np.random.default_rng(seed).normal(mean, spread, n)


def steps(n, seed=9):
    return normal(seed, n, spread=0.1)


@pytest.mark.parametrize("shift", [3.0, -3.0, 10.0])
def test_shift_of_the_same_shape(shift):
    p, u = normal(0, 500, shift), normal(1, 5000)
    chance, words = find_offset(side(p), side(u), steps(500), steps(5000, 8))
    assert chance > 0.95
    said = float(words.split(" by ")[1].split()[0])
    # The difference of two medians, of 500 and of 5,000 rows, is right to 0.06.
    assert said == pytest.approx(shift, abs=0.2)


def test_bounded_columns_show_small_shifts():
    rng = np.random.default_rng(0)
    p, u = rng.random(5000) + 0.15, rng.random(50_000)
    assert find_offset(side(p), side(u), None, None) is not None


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("distance", [0.3, 1.0, 3.0, 10.0])
def test_another_domain_elsewhere_is_not_a_shift(alpha, distance):
    num_t = round(5000 * alpha)
    u = np.concatenate([normal(1, num_t), normal(2, 5000 - num_t, distance)])
    assert find_offset(side(normal(0, 500)), side(u), steps(500), steps(5000, 8)) is None


def test_another_shape_is_not_a_shift():
    u = normal(1, 5000, spread=0.3)
    assert find_offset(side(normal(0, 500, 5.0)), side(u), None, None) is None


def test_other_steps_speak_of_other_dynamics():
    p, u = normal(0, 500, 5.0), normal(1, 5000)
    assert find_offset(side(p), side(u), 5 * steps(500), steps(5000, 8)) is None


def test_few_episodes_prove_nothing():
    p, u = normal(0, 500, 5.0), normal(1, 5000)
    assert find_offset(side(p, groups=3), side(u), None, None) is None


def test_distance_against_its_definition():
    x, y = normal(0, 50), normal(1, 70, 0.5)
    grid = np.concatenate([x, y])
    expected = max(abs((x <= c).mean() - (y <= c).mean()) for c in grid)
    assert largest_distance(x, y) == pytest.approx(expected)


def values(seed, dtype=np.float64, n=2000):
    return np.random.default_rng(seed).normal(size=n).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decimals", [1, 2, 3, 4])
def test_decimals(dtype, decimals):
    p = np.round(values(0), decimals).astype(dtype)
    chance, words = find_rounding(side(p), side(values(1, dtype)))
    assert chance > 0.99
    assert f"at most {decimals} decimal" in words


def test_unlabelled_may_be_the_rounded_ones():
    chance, words = find_rounding(side(values(0)), side(np.round(values(1), 2)))
    assert chance > 0.99
    assert words.startswith("0% of labelled")


def test_a_part_that_is_rounded_counts_by_its_fraction():
    u = values(1)
    u[:1400] = np.round(u[:1400], 3)
    chance, _ = find_rounding(side(np.round(values(0), 3)), side(u))
    assert chance == pytest.approx(0.5 + 0.3 / 2, abs=0.01)


def test_half_and_single_precision():
    for kind, word in ((np.float16, "half"), (np.float32, "single")):
        p = values(0).astype(kind).astype(np.float64)
        assert word in find_rounding(side(p), side(values(1)))[1]


@pytest.mark.parametrize("step", [2 * np.pi / 512, 0.0123456789])
def test_any_even_grid(step):
    p = np.rint(values(0) / step) * step + 0.1
    chance, words = find_rounding(side(p), side(values(1)))
    # One in five values lies near a grid by chance.
    assert chance == pytest.approx(0.9, abs=0.02)
    assert f"step {step:.3g}" in words


def test_both_rounded_alike_is_no_difference():
    assert find_rounding(side(np.round(values(0), 2)), side(np.round(2 * values(1), 2))) is None


def test_saturation_is_not_rounding():
    p, u = np.clip(3 * values(0), -1, 1), np.clip(values(1), -1, 1)
    assert find_rounding(side(p), side(u)) is None


def test_few_choices_are_not_rounding():
    p = np.random.default_rng(0).choice([-1.0, -0.5, 0.0, 0.5, 1.0], 2000)
    assert find_rounding(side(p), side(np.clip(values(1), -1, 1))) is None


def test_large_float32_values_are_as_coarse_as_they_are():
    p, u = (values(k) + 1e5 for k in (0, 1))
    assert find_rounding(side(p.astype(np.float32)), side(u.astype(np.float32))) is None


SIZE = 50


def clock(n, rate_p, rate_u, num_p, *, jitter=0.0, start=0.0):
    rng = np.random.default_rng(0)
    rate = np.where(np.arange(n) < num_p, rate_p, rate_u)
    step = rate * (1 + jitter * rng.normal(size=n))
    at = step.reshape(-1, SIZE).cumsum(axis=1) + start * (np.arange(n // SIZE) + 1)[:, None]
    return at.ravel()


def found_rate(pool, *args, **settings):
    rng = np.random.default_rng(1)
    time = clock(7500, *args, 500, **settings)
    return find_sample_rate(pool(rng, size=SIZE, time=time), rng=rng)


def test_another_rate_is_found(pool):
    found = found_rate(pool, 0.02, 0.01)
    assert found.kind == "sample rate"
    assert found.auroc == pytest.approx(1)
    assert "2 times" in found.sentence


def test_jitter_does_not_hide_it(pool):
    assert found_rate(pool, 0.02, 0.01, jitter=0.1) is not None


@pytest.mark.parametrize("start", [0.0, 1.7e9])
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_the_same_rate_is_silent(pool, start, jitter):
    assert found_rate(pool, 0.02, 0.02, jitter=jitter, start=start) is None


def test_no_clock_or_no_episodes_is_silent(pool):
    rng = np.random.default_rng(0)
    assert find_sample_rate(pool(rng), rng=rng) is None
    assert find_sample_rate(pool(rng, size=SIZE), rng=rng) is None


def test_steps_stay_inside_episodes_and_ignore_row_order():
    time = np.array([0.0, 1.0, 3.0, 10.0, 12.0])
    episode = np.array([0, 0, 0, 1, 1])
    expected = np.array([1.0, 2.0, np.nan, 2.0, np.nan])
    np.testing.assert_array_equal(time_steps(time, episode), expected)
    order = np.array([3, 0, 4, 2, 1])
    np.testing.assert_array_equal(time_steps(time[order], episode[order]), expected[order])


def empty_side(n, groups):
    return Side(np.zeros(n), np.arange(n) * groups // n, groups)


@pytest.mark.parametrize(
    ("fraction_p", "fraction_u", "is_clear"),
    [(1.0, 0.0, True), (0.5, 0.3, True), (0.5, 0.45, False), (0.0, 0.0, False)],
)
def test_clear_means_large_and_beyond_chance(fraction_p, fraction_u, is_clear):
    p, u = empty_side(1000, 1000), empty_side(1000, 1000)
    holds_p, holds_u = (np.arange(1000) < 1000 * fraction for fraction in (fraction_p, fraction_u))
    found = clear_difference(p, u, holds_p, holds_u)
    assert (found is not None) is is_clear
    assert found is None or found == pytest.approx(fraction_p - fraction_u)


def test_few_groups_that_agree_by_chance_are_not_clear():
    p, u = empty_side(1000, 5), empty_side(1000, 100)
    half = u.number % 2 == 0
    assert clear_difference(p, u, np.ones(1000, bool), half) is None
    assert clear_difference(empty_side(1000, 500), u, np.ones(1000, bool), half) is not None


def test_nothing_to_compare():
    assert (
        clear_difference(empty_side(1, 1), empty_side(1, 1), np.ones(0, bool), np.ones(1, bool))
        is None
    )


def test_choices_are_not_measurements():
    assert not is_measured(np.arange(1000.0) % 16)
    assert is_measured(np.arange(1000.0) % 17)
