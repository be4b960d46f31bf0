"""The GPU's way through a network against the plain one, its kernels interpreted."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.nn import gpu, mlp


@pytest.fixture(params=[((5, 32, 32, 1), True), ((5, 32, 32, 3), True), ((5, 32, 16, 3), False)])
def network(request):
    sizes, layer_norm = request.param
    key = jax.random.key(0, impl="threefry2x32")
    params = mlp.init_ensemble(key, 2, sizes, layer_norm=layer_norm)
    return params, jax.random.normal(jax.random.key(1, impl="threefry2x32"), (2, 32, 5))


def everything(apply, params, x):
    """Values and gradients of both networks."""

    def loss(params, x):
        return jnp.square(jax.vmap(apply)(params, x)).mean()

    return jax.vmap(apply)(params, x), jax.jit(jax.grad(loss, argnums=(0, 1)))(params, x)


def test_it_is_the_same_function(network):
    ours = everything(lambda *a: gpu.apply_mlp(*a, interpret=True), *network)
    wanted = everything(mlp.apply_mlp, *network)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)


def test_units_of_half_the_bytes_are_near(network):
    half = functools.partial(gpu.apply_mlp, units=jnp.bfloat16, interpret=True)
    ours = everything(half, *network)
    wanted = everything(mlp.apply_mlp, *network)
    errors = []
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == jnp.float32
        errors.append(np.linalg.norm(one - other) / np.linalg.norm(other))
    # Some units near zero change sides, which shows in the gradients of so small a network.
    assert 0.0 < errors[0] < 0.02
    assert max(errors[1:]) < 0.2


def test_odd_shapes_are_left_to_the_plain_way(network):
    params, x = network
    one = jax.tree.map(lambda leaf: leaf[0], params)
    assert gpu.fits_mlp(one, x[0])
    assert not gpu.fits_mlp(one, x)
    has_norm = one[0].norm is not None
    assert gpu.fits_mlp(one, x[0, :31]) is not has_norm
