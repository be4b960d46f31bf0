import numpy as np
import pytest

from puorl.pu.checks.recording import Side, find_rounding


def side(values):
    return Side(values, np.arange(len(values)), len(values))


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


def test_a_part_that_is_rounded_counts_by_its_share():
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
