"""Risks against hand-worked numbers and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.pu import losses

LOG3 = float(np.log(3.0))
# sigmoid(log 3) = 3/4, sigmoid(0) = 1/2, sigmoid(-log 3) = 1/4.
LOGIT_P = jnp.array([LOG3, 0.0], jnp.float32)
LOGIT_U = jnp.array([-LOG3, 0.0, LOG3, -LOG3], jnp.float32)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def reference(logit_p, logit_u, alpha, loss):
    """The target's part and the bracket, in float64 NumPy and straight from the definition."""
    rate = {"sigmoid": lambda z: sigmoid(-z), "logistic": lambda z: np.log1p(np.exp(-z))}[loss]
    positive = alpha * rate(logit_p).mean()
    return positive, rate(-logit_u).mean() - alpha * rate(-logit_p).mean()


def test_row_losses_by_hand():
    assert losses.row_loss(LOGIT_P, +1) == pytest.approx([0.25, 0.5], abs=1e-6)
    assert losses.row_loss(LOGIT_P, -1) == pytest.approx([0.75, 0.5], abs=1e-6)
    logistic = losses.row_loss(LOGIT_P, +1, "logistic")
    assert logistic == pytest.approx([np.log(4 / 3), np.log(2)], abs=1e-6)


def test_upu_by_hand():
    # E_P[l(+)] = 0.375, E_P[l(-)] = 0.625, E_U[l(-)] = (0.25 + 0.5 + 0.75 + 0.25) / 4 = 0.4375.
    risk = losses.upu_risk(LOGIT_P, LOGIT_U, 0.4)
    assert float(risk) == pytest.approx(0.4 * 0.375 - 0.4 * 0.625 + 0.4375, abs=1e-6)


def test_nnpu_equals_upu_while_the_bracket_is_positive():
    assert float(losses.nnpu_risk(LOGIT_P, LOGIT_U, 0.4)) == pytest.approx(
        float(losses.upu_risk(LOGIT_P, LOGIT_U, 0.4)), abs=1e-6
    )


def test_nnpu_cuts_a_negative_bracket_off():
    # The bracket is 0.4375 - 0.9 * 0.625 = -0.125.
    assert float(losses.nnpu_risk(LOGIT_P, LOGIT_U, 0.9)) == pytest.approx(0.9 * 0.375, abs=1e-6)
    value = losses.nnpu_risk(LOGIT_P, LOGIT_U, 0.9, slack=0.05)
    assert float(value) == pytest.approx(0.9 * 0.375 - 0.05, abs=1e-6)
    value = losses.nnpu_risk(LOGIT_P, LOGIT_U, 0.9, slack=0.2)
    assert float(value) == pytest.approx(0.9 * 0.375 - 0.125, abs=1e-6)


def numeric_gradient(function, point, step=1e-6):
    gradient = np.zeros_like(point)
    for i in range(len(point)):
        offset = np.zeros_like(point)
        offset[i] = step
        gradient[i] = (function(point + offset) - function(point - offset)) / (2 * step)
    return gradient


@pytest.mark.parametrize("loss", ["sigmoid", "logistic"])
@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.9, 0.99])
def test_nnpu_gradient_rule_by_finite_differences(alpha, loss):
    point = np.array(LOGIT_P.tolist() + LOGIT_U.tolist())

    def descended(x):
        positive, negative = reference(x[:2], x[2:], alpha, loss)
        return -0.5 * negative if negative < 0 else positive + negative

    def ours(x):
        return losses.nnpu_risk(x[:2], x[2:], alpha, loss=loss, step=0.5)

    gradient = jax.grad(ours)(jnp.asarray(point, jnp.float32))
    np.testing.assert_allclose(gradient, numeric_gradient(descended, point), atol=2e-6)


def test_the_sign_flips_when_the_bracket_is_negative():
    def gradient_u(alpha):
        return jax.grad(lambda u: losses.nnpu_risk(LOGIT_P, u, alpha))(LOGIT_U)

    # Raising an unlabelled logit raises the bracket: usually a cost, below 0 what is wanted.
    assert np.all(gradient_u(0.4) > 0)
    np.testing.assert_allclose(gradient_u(0.9), -gradient_u(0.4), rtol=1e-6)


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=6),
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=6),
    st.floats(0, 0.999),
    st.sampled_from(["sigmoid", "logistic"]),
)
def test_values_match_the_definition(logit_p, logit_u, alpha, loss):
    positive, negative = reference(np.array(logit_p), np.array(logit_u), alpha, loss)
    pair = jnp.array(logit_p, jnp.float32), jnp.array(logit_u, jnp.float32)
    upu = float(losses.upu_risk(*pair, alpha, loss=loss))
    nnpu = float(losses.nnpu_risk(*pair, alpha, loss=loss))
    assert upu == pytest.approx(positive + negative, abs=2e-5)
    assert nnpu == pytest.approx(positive + max(0.0, negative), abs=2e-5)


def test_weights_leave_rows_out():
    weight = jnp.array([1.0, 1.0, 0.0, 0.0], jnp.float32)
    cut = losses.upu_risk(LOGIT_P, LOGIT_U[:2], 0.4)
    assert float(losses.upu_risk(LOGIT_P, LOGIT_U, 0.4, weight_u=weight)) == pytest.approx(
        float(cut), abs=1e-6
    )
    pvu = losses.pvu_loss(LOGIT_P, LOGIT_U, weight_u=weight)
    assert float(pvu) == pytest.approx(float(losses.pvu_loss(LOGIT_P, LOGIT_U[:2])), abs=1e-6)


def test_a_batch_without_kept_rows_has_no_gradient():
    nothing = jnp.zeros(4, jnp.float32)
    gradient = jax.grad(lambda u: losses.pvu_loss(LOGIT_P, u, weight_u=nothing))(LOGIT_U)
    np.testing.assert_array_equal(gradient, np.zeros(4))


def test_weights_of_another_shape_are_an_error():
    with pytest.raises(ValueError, match="same shape"):
        losses.pvu_loss(LOGIT_P, LOGIT_U, weight_u=jnp.ones((4, 1), jnp.float32))


def test_pvu_by_hand():
    loss_p = (np.log(4 / 3) + np.log(2)) / 2
    loss_u = (2 * np.log(4 / 3) + np.log(2) + np.log(4)) / 4
    assert float(losses.pvu_loss(LOGIT_P, LOGIT_U)) == pytest.approx(0.5 * (loss_p + loss_u))


def test_unknown_loss_lists_the_known_ones():
    with pytest.raises(ConfigError, match="sigmoid, logistic"):
        losses.row_loss(LOGIT_P, 1, "hinge")  # pyright: ignore[reportArgumentType]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9]), min_size=1, max_size=30), st.floats(0, 1))
def test_cvir_rejects_exactly_the_highest_scores(score, alpha):
    num_out = losses.cvir_count(alpha, len(score))
    assert num_out == min(int(alpha * len(score)), len(score) - 1)
    kept = np.asarray(losses.cvir_mask(jnp.array(score, jnp.float32), num_out))
    assert np.count_nonzero(~kept) == num_out
    values = np.array(score, np.float32)
    if num_out:
        assert values[~kept].min() >= values[kept].max()


def test_cvir_counts_of_the_papers_split():
    assert losses.cvir_count(0.2929, 792_000) == 231_976
    assert losses.cvir_count(1.0, 10) == 9
    assert losses.cvir_count(0.0, 10) == 0


def test_zero_one_risk_is_the_error_rate_when_alpha_is_right():
    rng = np.random.default_rng(0)
    target, other = rng.normal(1, 1, 40_000), rng.normal(-1, 1, 60_000)
    logit_p = jnp.asarray(rng.normal(1, 1, 100_000), jnp.float32)
    logit_u = jnp.asarray(np.concatenate([target, other]), jnp.float32)
    truth = (np.count_nonzero(target <= 0) + np.count_nonzero(other > 0)) / 100_000
    assert float(losses.zero_one_risk(logit_p, logit_u, 0.4)) == pytest.approx(truth, abs=0.005)
