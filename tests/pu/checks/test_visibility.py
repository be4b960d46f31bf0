import numpy as np
import pytest

from puorl.pu.checks.auroc import certain_lift, second_domain_detectable, separation
from puorl.pu.report import VISIBLE_AREA


def share_visible(draw, gap, num_draws=40, **settings):
    return shares(draw, gap, num_draws, **settings)[0]


def shares(draw, gap, num_draws, **settings):
    """Of draws in which others are visible, and of those in which the rows look alike."""
    seen = alike = 0
    for seed in range(num_draws):
        judged = draw(np.random.default_rng([seed, round(gap * 100)]), gap, **settings).judged
        found = separation(
            judged.score_p, judged.score_u, group_p=judged.group_p, group_u=judged.group_u
        )
        visible = second_domain_detectable(judged, found)
        seen += visible
        alike += not visible and found.value < VISIBLE_AREA
    return seen / num_draws, alike / num_draws


# Gaps of sqrt(2) z give areas Phi(z): 0.358 -> 0.6, 1.81 -> 0.9.
@pytest.mark.parametrize("gap", [0.0, 0.18, 0.358])
@pytest.mark.parametrize("num_p", [300, 2000])
def test_domains_that_overlap_are_not_seen(draw, gap, num_p):
    assert share_visible(draw, gap, num_p=num_p) <= 0.05


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("num_p", [300, 2000])
def test_domains_that_part_are_seen(draw, alpha, num_p):
    assert share_visible(draw, 1.81, num_p=num_p, alpha=alpha) >= 0.95


@pytest.mark.parametrize(("gap", "least", "most"), [(0.25, 0, 0.05), (2.2, 0.95, 1)])
def test_the_same_with_groups(draw, gap, least, most):
    assert least <= share_visible(draw, gap, num_p=2000, size=50, likeness=0.1) <= most


@pytest.mark.parametrize(("gap", "least", "most"), [(0.25, 0.95, 1), (1.81, 0, 0.05)])
def test_rows_look_alike_where_domains_overlap_and_only_there(draw, gap, least, most):
    assert least <= shares(draw, gap, 40, num_p=1000)[1] <= most


def test_two_labelled_episodes_that_part_well_do_not_look_alike(draw):
    visible, alike = shares(draw, 2.2, 40, num_p=1000, size=500, likeness=0.1)
    assert visible < 0.95  # so few leave it open
    assert alike <= 0.05


def test_few_others_that_part_well_are_seen(draw):
    judged = draw(np.random.default_rng(0), 8, alpha=0.9, num_p=3000).judged
    found = separation(judged.score_p, judged.score_u)
    assert found.value < 0.6
    assert second_domain_detectable(judged, found)


def test_lift_bounds_the_share_of_target_rows(draw):
    """One in ``lift`` at most of the lowest-scoring unlabelled rows is the target's."""
    drawn = draw(np.random.default_rng(0), 3, num_p=5000, num_u=50_000)
    below = drawn.judged.score_u <= np.quantile(drawn.judged.score_p, 0.02)
    of_target = np.count_nonzero(below[: drawn.num_target]) / np.count_nonzero(below)
    assert of_target <= 1 / certain_lift(drawn.judged)


def test_constant_scores_show_nothing(draw):
    judged = draw(np.random.default_rng(0), 0).judged
    judged.score_p[:], judged.score_u[:] = 0.9, 0.9
    assert not second_domain_detectable(judged, separation(judged.score_p, judged.score_u))
