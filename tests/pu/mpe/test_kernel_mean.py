"""The projection onto the hull is what it says, checked by its optimality condition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.core.prng import generator
from puorl.pu.mpe import kernel_mean


@given(st.integers(0, 10**6))
def test_projection_is_optimal(seed):
    rng = np.random.default_rng(seed)
    row, target = rng.normal(size=(12, 3)), rng.normal(size=3) * 2
    weight = kernel_mean.project_onto_hull(row, target)
    assert weight.min() >= 0
    assert weight.sum() == pytest.approx(1)
    # No corner lies further in the direction of the residual than the projection itself.
    residual = target - row.T @ weight
    gap = (row @ residual).max() - (row.T @ weight) @ residual
    assert gap < 1e-3 * (1 + residual @ residual)


def test_points_inside_are_reached_and_a_square_is_met_at_its_edge():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    inside = square.T @ kernel_mean.project_onto_hull(square, np.array([0.3, 0.6]))
    np.testing.assert_allclose(inside, [0.3, 0.6], atol=1e-3)
    outside = square.T @ kernel_mean.project_onto_hull(square, np.array([2.0, 0.25]))
    np.testing.assert_allclose(outside, [1.0, 0.25], atol=1e-2)


def test_factor_reproduces_the_kernel():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    kernel = np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=2))
    factor = kernel_mean._pivoted_cholesky(kernel)
    assert factor.shape[1] < 60
    np.testing.assert_allclose(factor @ factor.T, kernel, atol=2e-3)


def test_unknown_slope_lists_the_known_ones():
    with pytest.raises(ConfigError, match="published, half"):
        kernel_mean.km2(np.zeros((3, 1)), np.zeros((3, 1)), rng=generator(0), slope="x")  # pyright: ignore[reportArgumentType]
