import numpy as np
import pytest

from puorl.pu.alpha import AlphaEstimate
from puorl.pu.checks.quality import estimates_agree, second_alpha


@pytest.mark.parametrize("size", [None, 20])
def test_near_the_truth_where_domains_part(draw, size):
    rng = np.random.default_rng(0)
    found = second_alpha(draw(rng, 5, size=size).judged, rng=rng)
    low, high = found.interval
    assert found.method == "dedpul"
    assert found.value == pytest.approx(0.3, abs=0.04)
    assert 0 < low < found.value < high < 0.6


def test_groups_widen_the_interval(draw):
    rng = np.random.default_rng(0)
    alone = second_alpha(draw(rng, 4).judged, rng=rng).interval
    grouped = second_alpha(draw(rng, 4, size=100).judged, rng=rng).interval
    assert grouped[1] - grouped[0] > 1.5 * (alone[1] - alone[0])


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ((0.30, (0.28, 0.32)), (0.31, (0.305, 0.315)), True),
        ((0.30, (0.29, 0.31)), (0.325, (0.32, 0.33)), True),
        ((0.30, (0.29, 0.31)), (0.40, (0.38, 0.42)), False),
        ((0.30, None), (0.40, None), False),
        ((0.30, None), (0.40, (0.25, 0.55)), True),
    ],
)
def test_agreement(one, other, agree):
    one, other = AlphaEstimate(*one, "bbe"), AlphaEstimate(*other, "dedpul")
    assert estimates_agree(one, other) is agree
    assert estimates_agree(other, one) is agree
