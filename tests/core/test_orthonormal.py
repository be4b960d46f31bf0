"""Random orthonormal columns: against NumPy's QR, and as a distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.nn.mlp import orthonormal


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (7, 7), (64, 17), (256, 256)])
def test_columns_are_orthonormal(shape):
    q = np.asarray(orthonormal(jax.random.normal(jax.random.key(1), shape)), np.float64)
    assert q.shape == shape
    assert np.abs(q.T @ q - np.eye(shape[1])).max() < 5e-6


def test_the_first_column_is_the_noise_made_one_long():
    noise = np.asarray(jax.random.normal(jax.random.key(2), (6, 4)))
    q = np.asarray(orthonormal(jnp.asarray(noise)))
    np.testing.assert_allclose(q[:, 0], noise[:, 0] / np.linalg.norm(noise[:, 0]), atol=1e-6)


def test_signs_and_sizes_are_those_of_a_uniform_draw():
    """Moments of Haar's distribution, and NumPy's QR with signs set right as a second opinion."""
    noise = jax.random.normal(jax.random.key(3), (20_000, 4, 3))
    ours = np.asarray(jax.vmap(orthonormal)(noise), np.float64)
    q, r = np.linalg.qr(np.asarray(noise, np.float64))
    theirs = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
    for drawn in (ours, theirs):
        # Entries have mean 0 and variance 1/4; of (q11 q22 - q12 q21) the variance is 1/6.
        assert np.abs(drawn.mean(axis=0)).max() < 4 * 0.5 / np.sqrt(20_000)
        assert np.abs((drawn**2).mean(axis=0) - 0.25).max() < 0.01
        minor = drawn[:, 0, 0] * drawn[:, 1, 1] - drawn[:, 0, 1] * drawn[:, 1, 0]
        assert abs((minor**2).mean() - 1 / 6) < 0.01


def test_no_library_call_is_compiled_in():
    compiled = jax.jit(jax.vmap(orthonormal)).lower(jnp.ones((2, 8, 8))).compile()
    assert "lapack" not in compiled.as_text()
