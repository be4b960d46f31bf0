from dataclasses import replace

import numpy as np
import pytest

from puorl.pu.checks.behaviour import check_shortcut


def pair(draw, full_gap, behaviour_gap, **settings):
    rng = np.random.default_rng([1, round(10 * full_gap), round(10 * behaviour_gap)])
    full = draw(rng, full_gap, **settings).judged
    return check_shortcut(full, draw(rng, behaviour_gap, **settings).judged)


def test_behaviour_that_separates_as_well_is_a_shortcut(draw):
    found = pair(draw, 4, 3.5)
    assert found.is_shortcut
    assert found.is_sure
    assert found.share > 0.9


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.0])
def test_weak_behaviour_is_none(draw, gap):
    found = pair(draw, 4, gap)
    assert not found.is_shortcut
    assert found.is_sure


def test_share_does_not_depend_on_alpha(draw):
    shares = [pair(draw, 4, 1, alpha=alpha).share for alpha in (0.1, 0.6)]
    # Areas of Gaussians: (Phi(1 / sqrt 2) - 1/2) / (Phi(4 / sqrt 2) - 1/2) = 0.260 / 0.498.
    assert shares == pytest.approx([0.522, 0.522], abs=0.06)


def test_nothing_separates_nothing_is_a_shortcut(draw):
    found = pair(draw, 0, 0)
    assert not found.is_shortcut
    assert not found.is_sure
    assert found.hardly_separated


def test_few_rows_are_no_proof(draw):
    """The same scores, from many rows and from three groups."""
    rng = np.random.default_rng(0)
    judged = draw(rng, 1.5, num_p=300, num_u=3000, size=100).judged
    found = check_shortcut(judged, judged)
    assert not found.is_shortcut
    assert not found.is_sure
    assert not found.hardly_separated
    alone = replace(judged, group_p=None, group_u=None)
    assert check_shortcut(alone, alone).is_shortcut


def test_scores_in_the_wrong_order_give_no_share(draw):
    rng = np.random.default_rng(0)
    judged = draw(rng, 2).judged
    reversed_ = replace(judged, score_p=1 - judged.score_p, score_u=1 - judged.score_u)
    assert check_shortcut(reversed_, judged).share == 0
    assert check_shortcut(judged, reversed_).share == 0
