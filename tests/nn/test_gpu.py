"""GPU kernels, interpreted, against the same formulas in plain JAX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.nn import gpu, mlp
from puorl.nn.gpu import Offsets, activate, activate_dot, fits, product, product_activate


def plain(z, offsets):
    layer = mlp.Layer(jnp.eye(z.shape[1]), offsets.bias, mlp.LayerNorm(*offsets[1:]))
    last = mlp.Layer(jnp.eye(z.shape[1]), jnp.zeros(z.shape[1]))
    return mlp.apply_mlp((layer, last), z)


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    z = rng.normal(0.3, 2.0, (3, 32, 64))
    offsets = [rng.normal(mean, 0.5, (3, 64)) for mean in (0.1, 1.0, 0.0)]
    w, dh = rng.normal(size=(3, 64)), rng.normal(size=(3, 32, 64))
    as_jax = [jnp.asarray(a, jnp.float32) for a in (z, *offsets, w, dh)]
    return as_jax[0], Offsets(*as_jax[1:4]), as_jax[4], as_jax[5]


def close(found, wanted):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_units_and_their_gradients(drawn):
    z, offsets, _, dh = drawn

    def fused(z, offsets, dh):
        value, back = jax.vjp(lambda *a: activate(*a, True), z, offsets)
        return value, back(dh)

    def wanted(z, offsets, dh):
        value, back = jax.vjp(plain, z, offsets)
        return value, back(dh)

    close(jax.jit(jax.vmap(fused))(z, offsets, dh), jax.jit(jax.vmap(wanted))(z, offsets, dh))


def test_products_and_their_gradients(drawn):
    z, offsets, w, dh = drawn

    def fused(z, offsets, w, dy):
        value, back = jax.vjp(lambda *a: activate_dot(*a, True), z, offsets, w)
        return value, back(dy)

    def wanted(z, offsets, w, dy):
        value, back = jax.vjp(lambda z, o, w: plain(z, o) @ w, z, offsets, w)
        return value, back(dy)

    dy = dh[:, :, 0]
    close(jax.jit(jax.vmap(fused))(z, offsets, w, dy), jax.jit(jax.vmap(wanted))(z, offsets, w, dy))


@pytest.mark.parametrize("fan_in", [5, 23])
def test_a_narrow_product_is_part_of_the_kernel(drawn, fan_in):
    _, offsets, _, dh = drawn
    rng = np.random.default_rng(1)
    x, w = (
        jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((3, 32, fan_in), (3, fan_in, 64))
    )

    def fused(x, w, offsets, dh):
        value, back = jax.vjp(lambda *a: product_activate(*a, jnp.float32, True), x, w, offsets)
        return value, back(dh)

    def wanted(x, w, offsets, dh):
        value, back = jax.vjp(lambda x, w, o: plain(x @ w, o), x, w, offsets)
        return value, back(dh)

    found = jax.jit(jax.vmap(fused))(x, w, offsets, dh)
    close(found, jax.jit(jax.vmap(wanted))(x, w, offsets, dh))


@pytest.mark.parametrize(
    ("rows", "width", "yes"), [(256, 256, True), (250, 256, False), (256, 200, False)]
)
def test_shapes_that_fit(rows, width, yes):
    assert fits(rows, width) is yes


def test_units_may_be_kept_in_half_the_bytes(drawn):
    z, offsets, w, dh = drawn
    rng = np.random.default_rng(2)
    x, w1 = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((32, 23), (23, 64)))
    w2 = jnp.asarray(rng.normal(size=(64, 64)), jnp.float32) / 8
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], offsets) for i in (0, 1))

    def network(dtype, x, w1, w2, first, second, w3):
        h = product_activate(x, w1, first, dtype, True)
        return activate_dot(product(h, w2, dtype), second, w3, True)

    def both(dtype, *inputs):
        value, back = jax.vjp(functools.partial(network, dtype), *inputs)
        return value, back(dh[0, :, 0])

    inputs = (x, w1, w2, first, second, w[0])
    exact, rough = both(jnp.float32, *inputs), both(jnp.bfloat16, *inputs)
    errors = []
    for one, other in zip(jax.tree.leaves(rough), jax.tree.leaves(exact), strict=True):
        assert one.dtype == other.dtype == jnp.float32
        errors.append(np.linalg.norm(one - other) / np.linalg.norm(other))
    # Some units near zero change sides, which shows in the gradients of so small a network.
    assert 0.0 < errors[0] < 0.02
    assert max(errors[1:]) < 0.2


NETWORKS = [
    ((5, 32, 32, 1), True),
    ((5, 32, 32, 3), True),
    ((5, 32, 32, 1), False),
    ((5, 32, 16, 3), False),
    ((5, 20, 32, 1), False),  # a width that the kernels do not have
]


@pytest.fixture(params=NETWORKS)
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
