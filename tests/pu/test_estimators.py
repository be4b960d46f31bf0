"""What holds for every estimator, written once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puorl.pu.mpe import FEATURE_BASED, SCORE_BASED, estimator, names

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.pu.alpha import label_frequency, pool_fraction

# How far from alpha on separated data. By construction KM2's published threshold stops early, TIcE
# returns a bound, and Scott the least of many bounds, each of which fails in a tenth of the cases.
TOLERANCE = dict.fromkeys(names(), 0.02) | {"km2": 0.09, "tice": 0.04, "scott": 0.05}
CLOSE_TO_ONE = dict.fromkeys(names(), 0.9)


def sample(rng, num_rows, gap):
    """Rows of three columns; the first tells the domains apart."""
    x = rng.normal(size=(num_rows, 3))
    x[:, 0] += gap
    return x


def answer(name, x_p, x_u, rng, **settings):
    if name in FEATURE_BASED:
        return estimator(name)(x_p, x_u, rng=rng, **settings)
    # The score of a good classifier: the posterior of two Gaussians with gap 8.
    score_p, score_u = (1 / (1 + np.exp(-2 * (x[:, 0] - 4))) for x in (x_p, x_u))
    return estimator(name)(score_p, score_u, **settings)


def mixture(rng, num_rows, alpha, gap=8.0):
    num_target = round(alpha * num_rows)
    return np.concatenate([sample(rng, num_target, gap), sample(rng, num_rows - num_target, 0.0)])


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("name", names())
def test_close_to_alpha_on_separated_domains(name, alpha):
    rng = generator(0, "separated", name)
    num_rows = {"tice": 8_000, "km2": 1_000}.get(name, 4_000)
    found = answer(name, sample(rng, num_rows, 8.0), mixture(rng, num_rows, alpha), rng)
    assert found.method == name
    assert found.interval is None
    assert found.value == pytest.approx(alpha, abs=TOLERANCE[name])


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.7])
def test_km2_read_off_in_the_middle_of_the_bend(alpha):
    rng = generator(0, "half slope")
    found = answer("km2", sample(rng, 1_000, 8.0), mixture(rng, 1_000, alpha), rng, slope="half")
    assert found.value == pytest.approx(alpha, abs=0.03)


@pytest.mark.parametrize("name", names())
def test_close_to_one_where_unlabelled_rows_look_like_labelled_ones(name):
    rng = generator(0, "identical", name)
    found = answer(name, sample(rng, 2_000, 4.0), sample(rng, 2_000, 4.0), rng)
    assert CLOSE_TO_ONE[name] < found.value <= 0.999


@pytest.mark.parametrize("sampling", ["one", "two"])
@pytest.mark.parametrize("name", [n for n in names() if n != "km2"])
def test_alpha_is_about_the_unlabelled_rows_for_both_kinds_of_sampling(name, sampling):
    """One sample: a third of a pool's target rows is labelled and taken out; two: none is."""
    rng = generator(0, "sampling", name)
    target, other = sample(rng, 6_000, 8.0), sample(rng, 6_000, 0.0)
    if sampling == "one":
        x_p, x_u, alpha = target[:2_000], np.concatenate([target[2_000:], other]), 0.4
    else:
        x_p, x_u, alpha = sample(rng, 2_000, 8.0), np.concatenate([target, other]), 0.5
    found = answer(name, x_p, x_u, rng).value
    # TIcE balances the two sets, so it uses 2,000 rows of each.
    assert found == pytest.approx(alpha, abs=0.1 if name == "tice" else 0.03)
    # Both say the same of the pool, half of which is the target's; c differs.
    share = pool_fraction(alpha, len(x_p), len(x_u), sampling)
    assert share == pytest.approx(0.5)
    frequency = label_frequency(alpha, len(x_p), len(x_u))
    assert frequency == pytest.approx(1 / 3 if sampling == "one" else 1 / 4)


@settings(max_examples=25)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.sampled_from(sorted(SCORE_BASED)),
)
def test_any_scores_give_a_usable_share(score_p, score_u, name):
    if name == "en" and max(score_p) < 1e-6:
        score_p = [*score_p, 0.5]
    value = estimator(name)(np.array(score_p), np.array(score_u)).value
    assert 0 <= value <= 0.999


@settings(max_examples=15)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from([0, 1, 1e6]),
    st.sampled_from(sorted(FEATURE_BASED)),
)
def test_any_features_give_a_usable_share(num_p, num_u, num_columns, scale, name):
    rng = np.random.default_rng(num_p * 100 + num_u)
    x_p, x_u = (scale * rng.normal(size=(n, num_columns)) for n in (num_p, num_u))
    assert 0 <= estimator(name)(x_p, x_u, rng=rng).value <= 0.999


@pytest.mark.parametrize("name", names())
def test_empty_and_missing_values_are_errors(name):
    rng = generator(0, "bad")
    good = np.full((5, 2), 0.5) if name in FEATURE_BASED else np.full(5, 0.5)
    missing, empty = np.full_like(good, np.nan), good[:0]
    extra = {"rng": rng} if name in FEATURE_BASED else {}
    for bad in (missing, empty):
        with pytest.raises(DataError):
            estimator(name)(bad, good, **extra)
        with pytest.raises(DataError):
            estimator(name)(good, bad, **extra)


@pytest.mark.parametrize("name", sorted(FEATURE_BASED))
def test_same_generator_same_answer(name):
    rng = generator(0, "same")
    x_p, x_u = sample(rng, 300, 3.0), mixture(rng, 300, 0.4, gap=3.0)
    first, second = (
        estimator(name)(x_p, x_u, rng=generator(5, "draw"), num_rows=200) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("name", sorted(FEATURE_BASED))
def test_more_columns_than_needed_are_reduced(name):
    rng = generator(0, "columns")
    x_p, x_u = sample(rng, 600, 8.0), mixture(rng, 600, 0.3)
    wide = rng.normal(size=(3, 120))
    found = estimator(name)(x_p @ wide, x_u @ wide, rng=rng).value
    assert found == pytest.approx(0.3, abs=0.15)
