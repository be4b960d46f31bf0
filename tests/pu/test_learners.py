"""Risks against hand-worked numbers and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.pu import learners
from puorl.pu.learners import Batch, nnpu_risk, p_versus_u, sigmoid_loss, upu_risk

LOG3 = float(np.log(3.0))
# sigmoid(log 3) = 3/4, sigmoid(0) = 1/2, sigmoid(-log 3) = 1/4.
LOGIT_P = jnp.array([LOG3, 0.0], jnp.float32)
LOGIT_U = jnp.array([-LOG3, 0.0, LOG3, -LOG3], jnp.float32)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def risk(function, logit_p, logit_u, alpha, **settings):
    """A risk of rows of weight 1."""
    weights = (
        settings.pop("weight_p", jnp.ones(len(logit_p))),
        settings.pop("weight_u", jnp.ones(len(logit_u))),
    )
    return function(Batch(logit_p, logit_u, *weights, jnp.float32(alpha)), **settings)


def reference(logit_p, logit_u, alpha):
    """The target's part and the bracket, in float64 NumPy and straight from the definition."""
    positive = alpha * sigmoid(-logit_p).mean()
    return positive, sigmoid(logit_u).mean() - alpha * sigmoid(logit_p).mean()


def test_row_losses_by_hand():
    assert sigmoid_loss(LOGIT_P, +1) == pytest.approx([0.25, 0.5], abs=1e-6)
    assert sigmoid_loss(LOGIT_P, -1) == pytest.approx([0.75, 0.5], abs=1e-6)


def test_upu_by_hand():
    # E_P[l(+)] = 0.375, E_P[l(-)] = 0.625, E_U[l(-)] = (0.25 + 0.5 + 0.75 + 0.25) / 4 = 0.4375.
    found = risk(upu_risk, LOGIT_P, LOGIT_U, 0.4)
    assert float(found) == pytest.approx(0.4 * 0.375 - 0.4 * 0.625 + 0.4375, abs=1e-6)


def test_nnpu_equals_upu_while_the_bracket_is_positive():
    assert float(risk(nnpu_risk, LOGIT_P, LOGIT_U, 0.4)) == pytest.approx(
        float(risk(upu_risk, LOGIT_P, LOGIT_U, 0.4)), abs=1e-6
    )


def test_nnpu_cuts_a_negative_bracket_off():
    # The bracket is 0.4375 - 0.9 * 0.625 = -0.125.
    for slack, bracket in ((0.0, 0.0), (0.05, -0.05), (0.2, -0.125)):
        value = risk(nnpu_risk, LOGIT_P, LOGIT_U, 0.9, slack=slack)
        assert float(value) == pytest.approx(0.9 * 0.375 + bracket, abs=1e-6)


def numeric_gradient(function, point, step=1e-6):
    gradient = np.zeros_like(point)
    for i in range(len(point)):
        offset = np.zeros_like(point)
        offset[i] = step
        gradient[i] = (function(point + offset) - function(point - offset)) / (2 * step)
    return gradient


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.9, 0.99])
def test_nnpu_gradient_rule_by_finite_differences(alpha):
    point = np.array(LOGIT_P.tolist() + LOGIT_U.tolist())

    def descended(x):
        positive, negative = reference(x[:2], x[2:], alpha)
        return -0.5 * negative if negative < 0 else positive + negative

    def ours(x):
        return risk(nnpu_risk, x[:2], x[2:], alpha, step=0.5)

    gradient = jax.grad(ours)(jnp.asarray(point, jnp.float32))
    np.testing.assert_allclose(gradient, numeric_gradient(descended, point), atol=2e-6)


def test_the_sign_flips_when_the_bracket_is_negative():
    def gradient_u(alpha):
        return jax.grad(lambda u: risk(nnpu_risk, LOGIT_P, u, alpha))(LOGIT_U)

    # Raising an unlabelled logit raises the bracket: usually a cost, below 0 what is wanted.
    assert np.all(gradient_u(0.4) > 0)
    np.testing.assert_allclose(gradient_u(0.9), -gradient_u(0.4), rtol=1e-6)


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=6),
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=6),
    st.floats(0, 0.999),
)
def test_values_match_the_definition(logit_p, logit_u, alpha):
    positive, negative = reference(np.array(logit_p), np.array(logit_u), alpha)
    pair = jnp.array(logit_p, jnp.float32), jnp.array(logit_u, jnp.float32)
    upu, nnpu = (float(risk(function, *pair, alpha)) for function in (upu_risk, nnpu_risk))
    assert upu == pytest.approx(positive + negative, abs=2e-5)
    assert nnpu == pytest.approx(positive + max(0.0, negative), abs=2e-5)


@pytest.mark.parametrize("function", [upu_risk, p_versus_u])
def test_weights_leave_rows_out(function):
    weight = jnp.array([1.0, 1.0, 0.0, 0.0], jnp.float32)
    cut = risk(function, LOGIT_P, LOGIT_U[:2], 0.4)
    found = risk(function, LOGIT_P, LOGIT_U, 0.4, weight_u=weight)
    assert float(found) == pytest.approx(float(cut), abs=1e-6)


def test_a_batch_without_kept_rows_has_no_gradient():
    nothing = jnp.zeros(4, jnp.float32)
    gradient = jax.grad(lambda u: risk(p_versus_u, LOGIT_P, u, 0.4, weight_u=nothing))(LOGIT_U)
    np.testing.assert_array_equal(gradient, np.zeros(4))


def test_weights_of_another_shape_are_an_error():
    with pytest.raises(ValueError, match="same shape"):
        risk(p_versus_u, LOGIT_P, LOGIT_U, 0.4, weight_u=jnp.ones((4, 1), jnp.float32))


def test_p_versus_u_by_hand():
    loss_p = (np.log(4 / 3) + np.log(2)) / 2
    loss_u = (2 * np.log(4 / 3) + np.log(2) + np.log(4)) / 4
    found = risk(p_versus_u, LOGIT_P, LOGIT_U, 0.4)
    assert float(found) == pytest.approx(0.5 * (loss_p + loss_u))


def test_p_versus_u_passes_one_half_at_odds_of_one_over_two_alpha():
    assert learners.row_threshold("pvu", 0.1) == pytest.approx(np.log(5))
    assert learners.row_threshold("nnpu", 0.1) == 0.0
