"""AlphaEstimate, conversions, and what the two kinds of sampling change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from puorl.pu.mpe import estimator, names

from puorl.core.errors import ConfigError, DataError
from puorl.pu import alpha


def test_values_and_intervals_are_clipped():
    result = alpha.AlphaEstimate(1.7, (-0.2, 1.2), "bbe")
    assert result == alpha.AlphaEstimate(0.999, (0.0, 0.999), "bbe")
    assert result.to_dict() == {"value": 0.999, "interval": [0.0, 0.999], "method": "bbe"}


def test_an_estimate_that_is_no_number_is_an_error():
    with pytest.raises(DataError, match="finite estimate"):
        alpha.AlphaEstimate(float("nan"), None, "bbe")


@given(st.floats(0.001, 0.999), st.integers(1, 10**6), st.integers(1, 10**6))
def test_label_frequency_and_alpha_are_inverse(alpha, num_p, num_u):
    frequency = alpha.label_frequency(alpha, num_p, num_u)
    back = alpha.alpha_from_label_frequency(frequency, num_p, num_u)
    assert back == pytest.approx(alpha, rel=1e-6)


def test_conversion_by_hand():
    # 10 labelled and 40 unlabelled target rows: c = 0.2, and 40 of 100 unlabelled rows.
    assert alpha.alpha_from_label_frequency(0.2, 10, 100) == pytest.approx(0.4)
    for bad in (0.0, 1.1, float("nan")):
        with pytest.raises(DataError, match="label frequency"):
            alpha.alpha_from_label_frequency(bad, 10, 100)


def test_one_sample_and_two_samples_have_different_pools():
    """Label 1 % of a pool with share 0.3, or take as many rows from elsewhere."""
    assert alpha.pool_fraction(29 / 99, 10_000, 990_000, "one") == pytest.approx(0.3)
    assert alpha.pool_fraction(0.3, 10_000, 1_000_000, "two") == 0.3
    with pytest.raises(ConfigError, match="expected one or two"):
        alpha.pool_fraction(0.3, 1, 1, "three")  # pyright: ignore[reportArgumentType]


def test_registry_lists_what_it_has():
    assert names() == ("bbe", "en", "scott", "dedpul", "km2", "tice", "pen_l1")
    with pytest.raises(ConfigError, match="expected one of bbe, en, scott"):
        estimator("bba")
    assert [estimator(name).__name__ for name in names()] == list(names())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(0), "non-empty array with 1 axes"),
        (np.zeros((3, 1)), "non-empty array with 1 axes"),
        (np.array([0.5, np.inf]), "1 of 2 that are not"),
    ],
)
def test_bad_scores_are_named(bad, message):
    with pytest.raises(DataError, match=f"score_u: expected .*{message}"):
        alpha.check_scores(np.ones(3), bad)
    with pytest.raises(DataError, match="score_p"):
        alpha.check_scores(bad, np.ones(3))


def test_probabilities_and_features_are_checked():
    with pytest.raises(DataError, match="apply a sigmoid"):
        alpha.check_probabilities(np.array([0.5]), np.array([0.5, 3.0]))
    with pytest.raises(DataError, match="the 2 columns of x_p, got 3"):
        alpha.check_features(np.zeros((4, 2)), np.zeros((4, 3)))
