import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.nn import mlp

WIDTH = 40


def plain_normalise(y, scale, offset, epsilon):
    """Written out; JAX differentiates it."""
    centred = y - y.mean(axis=-1, keepdims=True)
    units = centred / jnp.sqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + epsilon)
    return units * jnp.broadcast_to(scale, y.shape) + jnp.broadcast_to(offset, y.shape)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(ours, theirs, *args):
    """Values and all gradients of a sum with uneven weights, one by one and under vmap."""
    weight = jnp.asarray(normal(9, *theirs(*args).shape))

    def loss(function):
        return lambda *args: jnp.sum(weight * function(*args))

    np.testing.assert_allclose(ours(*args), theirs(*args), atol=2e-5)
    every = tuple(range(len(args)))
    mine, wanted = (jax.jit(jax.grad(loss(each), every)) for each in (ours, theirs))
    stacked = tuple(jnp.stack([arg, -2.0 * arg]) for arg in args)
    for one in (args, tuple(arg[1] for arg in stacked)):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=5e-5), mine(*one), wanted(*one)
        )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=5e-5),
        jax.jit(jax.vmap(mine))(*stacked),
        jax.vmap(wanted)(*stacked),
    )


# A narrow and a wide output take two ways to the gradient of the weights.
@pytest.mark.parametrize("fan_out", [3, WIDTH])
@pytest.mark.parametrize("lead", [(), (6,), (2, 5)])
def test_product_and_its_gradients_are_the_plain_ones(lead, fan_out):
    agree(mlp.product, lambda x, w: x @ w, normal(0, *lead, 7), normal(1, 7, fan_out))


@pytest.mark.parametrize("lead", [(), (6,), (2, 5)])
def test_norm_and_its_gradients_are_the_plain_ones(lead):
    agree(
        lambda *args: mlp.normalise(*args, 1e-5),
        lambda *args: plain_normalise(*args, 1e-5),
        3.0 + normal(0, *lead, WIDTH),
        normal(1, WIDTH),
        normal(2, WIDTH),
    )


def test_many_rows_are_the_same_function():
    y, scale, offset = 3.0 + normal(0, 5000, 8), normal(1, 8), normal(2, 8)
    ours = mlp.normalise(y, scale, offset, 1e-5)
    np.testing.assert_allclose(ours, plain_normalise(y, scale, offset, 1e-5), atol=2e-5)
    few = mlp.normalise(y[:100], scale, offset, 1e-5)
    np.testing.assert_allclose(ours[:100], few, atol=2e-5)


def test_constant_rows_have_finite_gradients():
    y, scale, offset = jnp.full((4, WIDTH), 2.0), jnp.ones(WIDTH), jnp.zeros(WIDTH)
    grad = jax.grad(lambda y: mlp.normalise(y, scale, offset, 1e-5)[:, 0].sum())(y)
    assert np.isfinite(grad).all()


def test_weights_of_a_wide_layer_get_their_gradient_in_their_own_order():
    """A transposed result is right, too, but the optimiser then reads it across memory."""
    x, w = normal(0, 64, WIDTH), normal(1, WIDTH, WIDTH)

    def step(w):
        return w - 0.1 * jax.grad(lambda w: jnp.square(mlp.product(x, w)).sum())(w)

    jaxpr = jax.make_jaxpr(step)(w)
    names = [eqn.primitive.name for eqn in jaxpr.eqns]
    after = names[len(names) - 1 - names[::-1].index("dot_general") :]
    assert "transpose" not in after
