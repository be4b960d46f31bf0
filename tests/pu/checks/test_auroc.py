import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import DataError
from puorl.core.stats import clustered_error, group_numbers
from puorl.pu.checks.auroc import (
    DETECTABLE_AUROC,
    auroc,
    certain_lift,
    second_domain_detectable,
)

few = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(few, few)
def test_auroc_is_the_fraction_of_pairs(p, u):
    p, u = np.array(p, float), np.array(u, float)
    pairs = np.sign(p[:, None] - u[None, :]) / 2 + 0.5
    found = auroc(p, u)
    assert found.value == pytest.approx(pairs.mean())
    assert 0 <= found.low <= found.value <= found.high <= 1


@given(few, few)
def test_sets_exchanged_mirror_the_auroc(p, u):
    p, u = np.array(p, float), np.array(u, float)
    one, other = auroc(p, u), auroc(u, p)
    assert (one.value, one.low, one.high) == pytest.approx(
        (1 - other.value, 1 - other.high, 1 - other.low)
    )


def test_delong_against_its_definition():
    rng = np.random.default_rng(0)
    p, u = rng.normal(1, 1, 60), rng.normal(0, 1, 80)
    pairs = (p[:, None] > u[None, :]).astype(float)
    spread = np.sqrt(pairs.mean(1).var(ddof=1) / 60 + pairs.mean(0).var(ddof=1) / 80)
    found = auroc(p, u)
    # On the logit scale the interval is d(logit) = spread / (auroc (1 - auroc)) to each side.
    logit = np.log([found.low / (1 - found.low), found.high / (1 - found.high)])
    expected = 2 * 2.0 * spread / (found.value * (1 - found.value))
    assert logit[1] - logit[0] == pytest.approx(expected, rel=0.01)


def test_copies_of_rows_in_groups_do_not_narrow_the_interval():
    rng = np.random.default_rng(1)
    p, u = rng.normal(1, 1, 40), rng.normal(0, 1, 90)
    once = auroc(p, u)
    many = auroc(
        np.repeat(p, 10),
        np.repeat(u, 10),
        group_p=np.repeat(np.arange(40), 10),
        group_u=np.repeat(np.arange(40, 130), 10),
    )
    assert (many.low, many.high) == pytest.approx((once.low, once.high))


def test_groups_in_both_sets_cancel():
    """A group's level moves its labelled and its unlabelled rows alike."""
    rng = np.random.default_rng(2)
    level = 3 * rng.normal(size=50)
    group = np.repeat(np.arange(50), 20)
    p, u = (level[group] + 0.5 * k + rng.normal(size=1000) for k in (1, 0))
    shared = auroc(p, u, group_p=group, group_u=group)
    apart = auroc(p, u, group_p=group, group_u=group + 50)
    assert shared.high - shared.low < 0.6 * (apart.high - apart.low)


@pytest.mark.parametrize("size", [None, 20])
def test_interval_covers(draw, size):
    covered = 0
    for seed in range(100):
        drawn = draw(np.random.default_rng(seed), 1.5, num_p=400, num_u=2000, size=size)
        j = drawn.scores
        found = auroc(j.score_p, j.score_u, group_p=j.group_p, group_u=j.group_u)
        covered += found.low <= 0.5 + 0.7 * (drawn.auroc - 0.5) <= found.high
    # 95 of 100; below 89 by chance in one of 200 runs, were it exact.
    assert covered >= 89


def test_perfect_order_is_not_certainty():
    found = auroc(np.arange(10, 20.0), np.arange(10.0))
    assert found.value == found.high == 1
    # Wilson: n / (n + t^2) with ten rows and t = 2.262.
    assert found.low == pytest.approx(10 / (10 + 2.262**2), abs=0.001)


def test_one_group_gives_no_interval():
    found = auroc(np.arange(3.0), np.arange(3.0), group_p=np.zeros(3), group_u=np.ones(3))
    assert (found.low, found.high) == (0, 1)


def test_empty_set_is_an_error():
    with pytest.raises(DataError, match="rows in both sets"):
        auroc(np.array([]), np.arange(3.0))


def test_a_million_rows_take_less_than_a_second():
    rng = np.random.default_rng(0)
    p, u = rng.random(10_000, np.float32), rng.random(1_000_000, np.float32)
    start = time.process_time()
    auroc(p, u)
    assert time.process_time() - start < 1


def fraction_detectable(draw, gap, num_draws=40, **settings):
    return fractions(draw, gap, num_draws, **settings)[0]


def fractions(draw, gap, num_draws, **settings):
    """Of draws in which others are visible, and of those in which the rows look alike."""
    seen = alike = 0
    for seed in range(num_draws):
        scores = draw(np.random.default_rng([seed, round(gap * 100)]), gap, **settings).scores
        found = scores.auroc
        visible = second_domain_detectable(scores, found)
        seen += visible
        alike += not visible and found.value < DETECTABLE_AUROC
    return seen / num_draws, alike / num_draws


# Gaps of sqrt(2) z give areas Phi(z): 0.358 -> 0.6, 1.81 -> 0.9.
@pytest.mark.parametrize("gap", [0.0, 0.18, 0.358])
@pytest.mark.parametrize("num_p", [300, 2000])
def test_domains_that_overlap_are_not_seen(draw, gap, num_p):
    assert fraction_detectable(draw, gap, num_p=num_p) <= 0.05


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("num_p", [300, 2000])
def test_domains_that_part_are_seen(draw, alpha, num_p):
    assert fraction_detectable(draw, 1.81, num_p=num_p, alpha=alpha) >= 0.95


@pytest.mark.parametrize(("gap", "least", "most"), [(0.25, 0, 0.05), (2.2, 0.95, 1)])
def test_the_same_with_groups(draw, gap, least, most):
    assert least <= fraction_detectable(draw, gap, num_p=2000, size=50, likeness=0.1) <= most


@pytest.mark.parametrize(("gap", "least", "most"), [(0.25, 0.95, 1), (1.81, 0, 0.05)])
def test_rows_look_alike_where_domains_overlap_and_only_there(draw, gap, least, most):
    assert least <= fractions(draw, gap, 40, num_p=1000)[1] <= most


def test_two_labelled_episodes_that_part_well_do_not_look_alike(draw):
    visible, alike = fractions(draw, 2.2, 40, num_p=1000, size=500, likeness=0.1)
    assert visible < 0.95  # so few leave it open
    assert alike <= 0.05


def test_few_others_that_part_well_are_seen(draw):
    scores = draw(np.random.default_rng(0), 8, alpha=0.9, num_p=3000).scores
    found = auroc(scores.score_p, scores.score_u)
    assert found.value < 0.6
    assert second_domain_detectable(scores, found)


def test_lift_bounds_the_share_of_target_rows(draw):
    """One in ``lift`` at most of the lowest-scoring unlabelled rows is the target's."""
    drawn = draw(np.random.default_rng(0), 3, num_p=5000, num_u=50_000)
    below = drawn.scores.score_u <= np.quantile(drawn.scores.score_p, 0.02)
    of_target = np.count_nonzero(below[: drawn.num_target]) / np.count_nonzero(below)
    assert of_target <= 1 / certain_lift(drawn.scores)


def test_constant_scores_show_nothing(draw):
    scores = draw(np.random.default_rng(0), 0).scores
    scores.score_p[:], scores.score_u[:] = 0.9, 0.9
    assert not second_domain_detectable(scores, auroc(scores.score_p, scores.score_u))


def test_one_group_has_no_standard_error():
    assert clustered_error(np.arange(5.0), np.zeros(5, int)) == float("inf")


def test_group_numbers_start_at_zero():
    number, count = group_numbers(np.array([7, 3, 7]), 3)
    assert (number.tolist(), count) == ([1, 0, 1], 2)


def test_two_groups_have_students_quantile():
    """With one degree of freedom it is 12.71."""
    p, u = np.array([1.0, 2.0]), np.array([0.0, 1.5])
    found = auroc(p, u)
    logit = np.log([found.low / (1 - found.low), found.high / (1 - found.high)])
    pairs = (p[:, None] > u[None, :]).astype(float)
    spread = np.sqrt(pairs.mean(1).var(ddof=1) / 2 + pairs.mean(0).var(ddof=1) / 2)
    expected = 2 * 12.706 * spread / (found.value * (1 - found.value))
    assert logit[1] - logit[0] == pytest.approx(expected, rel=1e-3)
