"""Estimators of alpha: each against its definition, and what holds for all of them."""

import math
import time
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.core.stats import Estimate, binomial_upper_bound
from puorl.pu import alpha as module
from puorl.pu.alpha import (
    ESTIMATORS,
    alpha_estimate,
    bbe,
    bootstrap_interval,
    bound_slack,
    check_probabilities,
    check_scores,
    current_estimate,
    dedpul,
    en,
    estimate_from_logits,
    scott,
)
from puorl.pu.config import AlphaEstimator


def by_definition(score_p, score_u, k):
    """Every threshold in turn, as the estimator is described."""
    p, u = np.sort(score_p)[::-1], np.sort(score_u)[::-1]
    slack = bound_slack(len(p), len(u), k=k)
    best_bound, best_ratio = np.inf, 0.0
    for i in range(len(u) - 1):  # the very last row of U is never used
        if u[i] == u[i + 1]:  # only the last of a run of equal scores counts
            continue
        j = np.count_nonzero(p >= u[i])
        if j < 2 or i < 2:
            continue
        fraction_p = j / len(p)
        ratio = i / len(u) / fraction_p
        if ratio + slack / fraction_p < best_bound:
            best_bound, best_ratio = ratio + slack / fraction_p, ratio
    return min(best_ratio, 0.999)


SCORES = st.one_of(
    st.lists(st.integers(0, 8).map(float), min_size=1, max_size=25),
    st.lists(st.floats(-5, 5), min_size=1, max_size=25),
)


@given(SCORES, SCORES, st.sampled_from([1.0, 4.0]))
def test_bbe_equals_the_plain_loop(score_p, score_u, k):
    fast = bbe(np.array(score_p), np.array(score_u), k=k).value
    assert fast == pytest.approx(by_definition(score_p, score_u, k), abs=1e-12)


@pytest.mark.parametrize(
    ("num_p", "num_u", "k", "slack"),
    [
        (1000, 99_000, 1, 0.0377),
        (1000, 99_000, 4, 0.0477),
        (3000, 97_000, 1, 0.0233),
        (3000, 97_000, 4, 0.0294),
    ],
)
def test_bbe_slack_values(num_p, num_u, k, slack):
    assert bound_slack(num_p, num_u, k=k) == pytest.approx(slack, abs=5e-5)


# alpha-hat for k = 1 and k = 4 as measured before, 10 draws each; beside it the standard
# deviation of one draw in our own runs, of which two sets of 10 draws may differ by 4 / sqrt(5).
@pytest.mark.parametrize(
    ("num_p", "num_u", "alpha", "gap", "before", "spread"),
    [
        (1000, 99_000, 29 / 99, 8, (0.291, 0.292), (0.004, 0.002)),
        (1000, 99_000, 29 / 99, 2, (0.313, 0.322), (0.019, 0.017)),
        (1000, 99_000, 29 / 99, 1, (0.429, 0.462), (0.028, 0.026)),
        (3000, 97_000, 27 / 97, 8, (0.276, 0.277), (0.002, 0.002)),
        (3000, 97_000, 27 / 97, 2, (0.301, 0.315), (0.008, 0.0075)),
        (3000, 97_000, 27 / 97, 1, (0.404, 0.429), (0.016, 0.015)),
    ],
)
def test_bbe_on_gaussians(num_p, num_u, alpha, gap, before, spread):
    rng = generator(0, "bbe behaviour", gap, num_p)
    num_target = round(alpha * num_u)
    values = []
    for _ in range(10):
        score_p = rng.normal(gap, 1, num_p)
        score_u = np.r_[rng.normal(gap, 1, num_target), rng.normal(0, 1, num_u - num_target)]
        values.append([bbe(score_p, score_u, k=k).value for k in (1, 4)])
    for mean, expected, sd in zip(np.mean(values, axis=0), before, spread, strict=True):
        assert mean == pytest.approx(expected, abs=4 * sd / 5**0.5)


def test_bbe_with_perfect_separation_returns_alpha():
    score_p = np.full(100, 1.0)
    score_u = np.r_[np.full(300, 1.0), np.zeros(700)]
    assert bbe(score_p, score_u).value == pytest.approx(0.299)  # one less than the 300 rows


def test_bbe_without_a_threshold_gives_zero():
    assert bbe(np.array([1.0]), np.array([0.1, 0.2, 0.3, 0.4])).value == 0.0
    assert bbe(np.ones(5), np.ones(5)).value == 0.0
    assert bbe(np.ones(5), np.array([1.0])).value == 0.0


@given(st.integers(0, 10**6))
def test_bbe_depends_on_the_order_of_scores_only(seed):
    rng = np.random.default_rng(seed)
    score_p, score_u = rng.normal(1, 1, 50), rng.normal(0, 1, 200)
    assert bbe(score_p, score_u).value == bbe(np.arctan(score_p), np.arctan(score_u)).value
    assert bbe(rng.permutation(score_p), rng.permutation(score_u)) == bbe(score_p, score_u)


def test_bbe_is_fast_at_the_papers_size():
    rng = generator(0, "bbe speed")
    score_p, score_u = rng.random(1_000, np.float32), rng.random(99_000, np.float32)
    times = []
    for _ in range(7):
        begin = time.process_time()
        bbe(score_p, score_u)
        times.append(time.process_time() - begin)
    assert min(times) < 0.015


def test_bbe_constants_without_a_bound_are_refused():
    with pytest.raises(ConfigError, match="0 < delta < k"):
        bbe(np.arange(9.0), np.arange(9.0), k=0.05)


def test_grid_density_equals_the_sum_of_kernels():
    rng = generator(0, "density")
    sample, at = rng.normal(size=300), np.linspace(-2, 2, 41)
    width = 0.3
    direct = np.exp(-0.5 * ((at[:, None] - sample[None]) / width) ** 2).mean(axis=1)
    direct /= width * (2 * np.pi) ** 0.5
    np.testing.assert_allclose(module._grid_density(sample, at, width), direct, atol=2e-4)


def test_dedpul_fixed_point_of_an_exact_ratio():
    # 30 % of U are target rows, where f_p / f_u = 1 / 0.3, and 0 elsewhere.
    ratio = np.r_[np.zeros(700), np.full(300, 1 / 0.3)]
    assert module._fixed_point(ratio) == pytest.approx(0.7, abs=1e-6)
    assert module._bend(ratio) == pytest.approx(0.7, abs=0.002)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.7])
def test_dedpul_with_scores_at_exactly_0_and_1(alpha):
    num_target = round(alpha * 2_000)
    score_u = np.r_[np.ones(num_target), np.zeros(2_000 - num_target)]
    assert dedpul(np.ones(500), score_u).value == pytest.approx(alpha, abs=0.005)


def test_dedpul_without_target_rows():
    rng = generator(0, "none")
    score_p, score_u = (1 / (1 + np.exp(-rng.normal(mean, 1, 2_000))) for mean in (8, -8))
    assert dedpul(score_p, score_u).value < 0.01
    assert dedpul(np.ones(3), np.zeros(5)).value == 0.0


def test_dedpul_with_many_rows():
    rng = generator(0, "many")
    score_u = np.r_[rng.beta(9, 1, 30_000), rng.beta(1, 9, 70_000)]
    assert dedpul(rng.beta(9, 1, 2_000), score_u).value == pytest.approx(0.3, abs=0.04)


def test_en_by_hand():
    assert en(np.array([0.8, 0.4]), np.array([0.6, 0.0, 0.3])).value == pytest.approx(0.5)


def test_en_needs_probabilities_that_are_not_all_zero():
    with pytest.raises(DataError, match="sigmoid"):
        en(np.array([2.0]), np.array([0.1]))
    with pytest.raises(DataError, match="only zeros"):
        en(np.zeros(3), np.array([0.1]))


def direct_cdf(count, num_rows, prob):
    return math.fsum(
        math.comb(num_rows, i) * prob**i * (1 - prob) ** (num_rows - i) for i in range(count + 1)
    )


@given(st.integers(1, 60), st.integers(0, 59), st.sampled_from([0.01, 0.1, 0.5]))
def test_bound_solves_its_equation(num_rows, count, delta):
    count = min(count, num_rows - 1)
    bound = float(binomial_upper_bound(np.array([count]), num_rows, delta)[0])
    assert direct_cdf(count, num_rows, bound) == pytest.approx(delta, abs=1e-9)


def test_bounds_of_large_counts_approach_the_normal_ones():
    count = np.array([9_900, 49_500, 89_100])
    fraction = count / 99_000
    bound = binomial_upper_bound(count, 99_000, 0.1)
    normal = fraction + 1.2815516 * np.sqrt(fraction * (1 - fraction) / 99_000)
    np.testing.assert_allclose(bound, normal, atol=2e-5)
    assert binomial_upper_bound(np.array([5]), 5, 0.1)[0] == 1.0


def test_scott_is_less_biased_than_the_ratio_where_domains_overlap():
    rng = generator(0, "scott")
    score_p = rng.normal(1, 1, 1_000)
    score_u = np.r_[rng.normal(1, 1, 3_000), rng.normal(0, 1, 7_000)]
    # Looking at the best threshold of many, it stays between alpha and the whole-sample ratio 1.
    assert 0.28 < scott(score_p, score_u).value < 0.6


def test_scott_with_a_smaller_chance_of_failure_gives_a_higher_bound():
    rng = generator(0, "scott delta")
    score_p, score_u = rng.normal(3, 1, 300), np.r_[rng.normal(3, 1, 300), rng.normal(0, 1, 700)]
    assert scott(score_p, score_u, delta=0.01).value > scott(score_p, score_u, delta=0.2).value
    with pytest.raises(ConfigError, match="0 < delta < 1"):
        scott(score_p, score_u, delta=0.0)


def test_values_and_intervals_are_clipped():
    result = alpha_estimate(1.7, (-0.2, 1.2), method="bbe")
    assert result == Estimate(0.999, 0.0, 0.999, method="bbe")
    assert alpha_estimate(0.3, method="en").interval is None


def test_an_estimate_that_is_no_number_is_an_error():
    with pytest.raises(DataError, match="finite estimate"):
        alpha_estimate(float("nan"), method="bbe")


@pytest.mark.parametrize("interval", [[0.2, 0.4], None])
def test_stored_estimates_of_both_forms_are_read(interval):
    stored = {"value": 0.3, "interval": interval, "method": "bbe"}
    now = alpha_estimate(0.3, interval, method="bbe")
    for content in (stored, now.to_dict()):
        read = Estimate(**current_estimate(content))
        assert (read.value, read.interval, read.method) == (0.3, now.interval, "bbe")


def test_the_config_names_every_estimator():
    assert tuple(ESTIMATORS) == get_args(AlphaEstimator)
    assert [estimator.__name__ for estimator in ESTIMATORS.values()] == list(ESTIMATORS)
    with pytest.raises(ConfigError, match="expected one of bbe, en, scott, dedpul, got 'bba'"):
        estimate_from_logits("bba", np.zeros(3), np.zeros(3))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(0), "non-empty array with one axis"),
        (np.zeros((3, 1)), "non-empty array with one axis"),
        (np.array([0.5, np.inf]), "1 of 2 that are not"),
    ],
)
def test_bad_scores_are_named(bad, message):
    with pytest.raises(DataError, match=f"score_u: expected .*{message}"):
        check_scores(np.ones(3), bad)
    with pytest.raises(DataError, match="score_p"):
        check_scores(bad, np.ones(3))


def test_probabilities_are_checked():
    with pytest.raises(DataError, match="apply a sigmoid"):
        check_probabilities(np.array([0.5]), np.array([0.5, 3.0]))


# How far from alpha on separated data: Scott returns the least of many bounds, each of which fails
# in a tenth of the cases.
TOLERANCE = dict.fromkeys(ESTIMATORS, 0.02) | {"scott": 0.05}


def answer(name, x_p, x_u):
    """The estimate from logits of a good classifier: the posterior of two Gaussians with gap 8."""
    return estimate_from_logits(name, 2 * (x_p - 4), 2 * (x_u - 4))


def sample(rng, num_rows, gap):
    """The first of three columns, which separates the domains."""
    return rng.normal(size=(num_rows, 3))[:, 0] + gap


def mixture(rng, num_rows, alpha):
    num_target = round(alpha * num_rows)
    return np.concatenate([sample(rng, num_target, 8.0), sample(rng, num_rows - num_target, 0.0)])


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_close_to_alpha_on_separated_domains(name, alpha):
    rng = generator(0, "separated", name)
    found = answer(name, sample(rng, 4_000, 8.0), mixture(rng, 4_000, alpha))
    assert found.method == name
    assert found.interval is None
    assert found.value == pytest.approx(alpha, abs=TOLERANCE[name])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_close_to_one_where_unlabelled_rows_look_like_labelled_ones(name):
    rng = generator(0, "identical", name)
    found = answer(name, sample(rng, 2_000, 4.0), sample(rng, 2_000, 4.0))
    assert 0.9 < found.value <= 0.999


@pytest.mark.parametrize("sampling", ["one", "two"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_alpha_is_about_the_unlabelled_rows_for_both_kinds_of_sampling(name, sampling):
    """One sample: a third of a pool's target rows is labelled and taken out; two: none is."""
    rng = generator(0, "sampling", name)
    target, other = sample(rng, 6_000, 8.0), sample(rng, 6_000, 0.0)
    if sampling == "one":
        x_p, x_u, alpha = target[:2_000], np.concatenate([target[2_000:], other]), 0.4
    else:
        x_p, x_u, alpha = sample(rng, 2_000, 8.0), np.concatenate([target, other]), 0.5
    assert answer(name, x_p, x_u).value == pytest.approx(alpha, abs=0.03)


@settings(max_examples=25)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.sampled_from(sorted(ESTIMATORS)),
)
def test_any_scores_give_a_usable_fraction(score_p, score_u, name):
    if name == "en" and max(score_p) < 1e-6:
        score_p = [*score_p, 0.5]
    value = ESTIMATORS[name](np.array(score_p), np.array(score_u)).value
    assert 0 <= value <= 0.999


@pytest.mark.parametrize("name", ESTIMATORS)
def test_empty_and_missing_values_are_errors(name):
    good = np.full(5, 0.5)
    for bad in (np.full(5, np.nan), good[:0]):
        with pytest.raises(DataError):
            ESTIMATORS[name](bad, good)
        with pytest.raises(DataError):
            ESTIMATORS[name](good, bad)


def draw(rng, gap, num_p, num_u, alpha):
    num_target = round(alpha * num_u)
    score_u = np.r_[rng.normal(gap, 1, num_target), rng.normal(0, 1, num_u - num_target)]
    return rng.normal(gap, 1, num_p), score_u, num_target / num_u


def coverage(gap, *, draws, num_p=500, num_u=5_000, alpha=0.3):
    rng = generator(0, "test coverage", round(10 * gap), num_p)
    ends = []
    for _ in range(draws):
        score_p, score_u, truth = draw(rng, gap, num_p, num_u, alpha)
        value = bbe(score_p, score_u).value
        ends.append(bootstrap_interval(score_p, score_u, value=value, rng=rng, reps=300))
    low, high = np.array(ends).T
    return np.mean((low <= truth) & (truth <= high)), np.mean(truth <= high), high - low


@pytest.mark.parametrize(("gap", "width"), [(8.0, 0.05), (4.0, 0.08), (3.0, 0.14)])
def test_separated_domains_are_covered_on_both_sides(gap, width):
    # 60 draws at a true coverage of 95 % fall below 87 % about once in a hundred times.
    both, _, found = coverage(gap, draws=60)
    assert both >= 0.87
    assert np.median(found) < width


@pytest.mark.parametrize("num_p", [20, 50, 200, 1_000])
@pytest.mark.parametrize("gap", [1.5, 2.5])
def test_overlapping_domains_are_covered_however_few_the_labels(gap, num_p):
    both, upper, width = coverage(gap, draws=60, num_p=num_p)
    assert both >= 0.9
    assert upper >= 0.95
    assert np.median(width) < (0.75 if num_p < 100 else 0.55)


@pytest.mark.parametrize("num_p", [20, 100])
def test_the_upper_end_holds_though_the_least_of_many_bounds_is_chosen(num_p):
    # Where domains separate, r is alpha at all thresholds, and the least bound is the one that
    # errs most. 200 draws at 97.5 % fall below 93.5 % once in a thousand times.
    _, upper, _ = coverage(8.0, draws=200, num_p=num_p, num_u=2_000)
    assert upper >= 0.935


@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=25)
def test_bounds_hold_for_all_columns_together(seed, num_columns, tail):
    rng = np.random.default_rng(seed)
    drawn = rng.standard_gamma(2.0, (1_000, num_columns)) * rng.uniform(0.1, 9, num_columns)
    bound = module._lower_bounds(drawn, tail)
    assert np.mean((drawn >= bound).all(axis=1)) == pytest.approx(1 - tail, abs=0.002)


def test_thresholds_where_others_surely_remain_do_not_count_for_the_upper_end():
    missed = generator(0, "chosen").beta(30, 970, (1_000, 12))
    above = np.r_[np.full(9, 0.9), np.full(3, 0.3)]

    def upper_end(above, columns):
        profile = module._Profile(np.arange(len(columns)), missed[:, columns], above[columns])
        return module._upper_end(profile, 1_000, 10_000, 0.025)

    every, least = np.arange(12), np.arange(9, 12)
    assert upper_end(above, every) == upper_end(above, least)
    # Where r is about the same at all thresholds, all of them count, and the bound is higher.
    alone = min(upper_end(np.full(12, 0.3), np.array([column])) for column in every)
    assert upper_end(np.full(12, 0.3), every) > alone + 1e-3


def test_true_fractions_below_labelled_scores_are_drawn_from_their_exact_distribution():
    score_p = np.random.default_rng(0).normal(size=20)
    # Enough unlabelled rows that the target's part of them is no sample worth mentioning.
    score_u = np.tile(score_p, 50_000)
    profile = module._draw_profile(score_p, score_u, None, None, 20_000, generator(0, "exact"))
    assert 0 in profile.num_missed
    for num_missed, missed in zip(profile.num_missed, profile.missed.T, strict=True):
        for level in (0.025, 0.5, 0.975):
            exact = stats.beta.ppf(level, num_missed + 1, 20 - num_missed)
            assert np.quantile(missed, level) == pytest.approx(exact, abs=0.01)


def test_the_targets_unlabelled_rows_are_a_sample_too():
    """As many target rows in U as labelled ones: twice the variance."""
    score_p = np.random.default_rng(0).normal(size=400)
    spread = []
    for num_others in (0, 10**6):
        score_u = np.r_[
            np.tile(score_p, 1 if num_others == 0 else 10**3), np.full(num_others, -9.0)
        ]
        profile = module._draw_profile(score_p, score_u, None, None, 4_000, generator(0, "both"))
        spread.append(profile.missed[:, len(profile.num_missed) // 2].std())
    assert spread[0] / spread[1] == pytest.approx(2**0.5, abs=0.1)


def test_no_lower_end_until_labels_show_that_the_ratio_stops_falling():
    low = {}
    for gap, num_p in ((1.5, 100), (4.0, 20), (4.0, 100), (4.0, 1_000)):
        rng = generator(0, "lower end", round(10 * gap), num_p)
        ends = []
        for _ in range(15):
            score_p, score_u, _ = draw(rng, gap, num_p, 10_000, 0.3)
            ends.append(bootstrap_interval(score_p, score_u, rng=rng)[0])
        low[gap, num_p] = np.median(ends)
    assert low[1.5, 100] == 0.0
    assert low[4.0, 20] < low[4.0, 100] < low[4.0, 1_000] < 0.3
    assert low[4.0, 1_000] > 0.26


def test_ten_labels_show_nothing_about_the_lower_end():
    """However clearly the domains separate, so few rows below a threshold say little."""
    for seed in range(5):
        rng = generator(seed, "ten labels")
        score_p, score_u, _ = draw(rng, 8.0, 10, 5_000, 0.6)
        assert bootstrap_interval(score_p, score_u, rng=rng)[0] == 0.0


def test_width_and_time_at_the_papers_size():
    rng = generator(0, "paper size")
    score_p, score_u, truth = draw(rng, 4.0, 1_000, 99_000, 29 / 99)
    begin = time.process_time()
    low, high = bootstrap_interval(score_p, score_u, rng=rng)
    assert time.process_time() - begin < 1.0
    assert low < truth < high
    assert high - low < 0.05


def test_where_others_reach_the_highest_scores_only_the_upper_end_is_known():
    rng = generator(0, "hopeless")
    score_p, score_u, _ = draw(rng, 0.5, 2_000, 20_000, 0.3)
    low, high = bootstrap_interval(score_p, score_u, rng=rng)
    assert low == 0.0
    assert high > 0.3


def test_no_target_rows_at_all():
    rng = generator(0, "none of ours")
    low, high = bootstrap_interval(rng.normal(8, 1, 500), rng.normal(0, 1, 5_000), rng=rng)
    assert low < 0.001
    assert 0 < high < 0.01


def test_identical_scores_leave_no_room_for_others():
    rng = generator(0, "same")
    low, high = bootstrap_interval(rng.normal(size=1_000), rng.normal(size=5_000), rng=rng)
    assert low < 0.97 < high
    assert high == 0.999
    assert bootstrap_interval(np.ones(50), np.ones(80), rng=rng)[1] == 0.999


def test_a_given_value_is_never_outside():
    rng = generator(0, "hull")
    score_p, score_u, _ = draw(rng, 8.0, 200, 1_000, 0.3)
    for value in (0.05, 0.9):
        low, high = bootstrap_interval(score_p, score_u, value=value, rng=rng)
        assert low <= value <= high


def test_any_monotone_scale_gives_the_same_interval():
    score_p, score_u, _ = draw(generator(0, "scale"), 4.0, 300, 2_000, 0.3)
    plain = bootstrap_interval(score_p, score_u, rng=generator(0, "b"))
    # Odd counts put every quantile edge between rows differently on a curved scale: near, not same.
    curved = bootstrap_interval(np.exp(score_p), np.exp(score_u), rng=generator(0, "b"))
    assert curved == pytest.approx(plain, abs=0.01)


def test_same_generator_same_interval():
    score_p, score_u, _ = draw(generator(0, "repeat"), 4.0, 300, 2_000, 0.3)
    first = bootstrap_interval(score_p, score_u, rng=generator(7, "b"))
    assert first == bootstrap_interval(score_p, score_u, rng=generator(7, "b"))


def test_higher_level_is_wider():
    score_p, score_u, _ = draw(generator(0, "level"), 4.0, 300, 2_000, 0.3)
    low, high = bootstrap_interval(score_p, score_u, rng=generator(0, "b"), level=0.5)
    wide = bootstrap_interval(score_p, score_u, rng=generator(0, "b"), level=0.99)
    assert wide[0] < low
    assert wide[1] > high


def test_episodes_count_as_one_observation_each():
    """Rows copied within episodes carry no news; only the grouped interval knows."""
    rng = generator(0, "groups")
    score_p, score_u, _ = draw(rng, 4.0, 60, 40_000, 0.3)
    copied, episode = np.repeat(score_p, 20), np.repeat(np.arange(60), 20)
    rows = bootstrap_interval(copied, score_u, rng=generator(0, "b"))
    grouped = bootstrap_interval(copied, score_u, rng=generator(0, "b"), groups_p=episode)
    once = bootstrap_interval(score_p, score_u, rng=generator(0, "b"))
    assert grouped == pytest.approx(once, abs=0.015)  # thresholds are a few rows apart
    assert rows[1] < grouped[1] - 0.01


def test_groups_of_single_rows_change_little():
    score_p, score_u, _ = draw(generator(0, "single"), 4.0, 300, 2_000, 0.3)
    rows = bootstrap_interval(score_p, score_u, rng=generator(0, "b"), reps=800)
    single = bootstrap_interval(
        score_p, score_u, rng=generator(0, "c"), reps=800, groups_p=np.arange(300)
    )
    assert single == pytest.approx(rows, abs=0.01)
    # With groups of U the interval is about their source, of which U is a sample.
    source = bootstrap_interval(
        score_p, score_u, rng=generator(0, "c"), reps=800,
        groups_p=np.arange(300), groups_u=np.arange(2_000),
    )  # fmt: skip
    assert source[0] < rows[0]
    assert source[1] > rows[1] + 0.005


def test_bad_input_is_named():
    rng, good = generator(0, "bad"), np.linspace(0, 1, 30)
    with pytest.raises(DataError, match=r"groups_p: expected shape \(30,\), got \(3,\)"):
        bootstrap_interval(good, good, rng=rng, groups_p=np.arange(3))
    with pytest.raises(DataError, match="groups_u: expected at least two groups"):
        bootstrap_interval(good, good, rng=rng, groups_u=np.zeros(30))
    with pytest.raises(DataError, match="score_u: expected finite"):
        bootstrap_interval(good, np.full(3, np.nan), rng=rng)
    with pytest.raises(ConfigError, match="reps >= 20"):
        bootstrap_interval(good, good, rng=rng, reps=1)
    with pytest.raises(ConfigError, match="level"):
        bootstrap_interval(good, good, rng=rng, level=1.5)
