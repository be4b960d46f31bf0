"""Networks in JAX: against NumPy in float64, against plain formulas, and as distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.nn import gpu, mlp
from puorl.nn.mlp import orthonormal


def forward64(params, x, norm_after):
    """The same network, written out in float64."""
    x = np.asarray(x, np.float64)
    for i, layer in enumerate(params):
        x = x @ np.asarray(layer.w, np.float64) + np.asarray(layer.b, np.float64)
        if i == len(params) - 1:
            return x
        if norm_after:
            x = np.maximum(x, 0)
        if layer.norm is not None:
            centred = x - x.mean(axis=-1, keepdims=True)
            x = centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
            x = x * np.asarray(layer.norm.scale) + np.asarray(layer.norm.offset)
        if not norm_after:
            x = np.maximum(x, 0)
    raise AssertionError("no layers")


@pytest.mark.parametrize(
    ("layer_norm", "norm_after"), [(False, False), (True, False), (True, True)]
)
def test_apply_agrees_with_float64(layer_norm, norm_after):
    params = mlp.init_mlp(jax.random.key(1), (5, 16, 8, 3), layer_norm=layer_norm)
    if layer_norm:
        keys = iter(jax.random.split(jax.random.key(2), 4))
        params = tuple(
            layer
            if layer.norm is None
            else layer._replace(
                norm=mlp.LayerNorm(
                    jax.random.normal(next(keys), layer.b.shape),
                    jax.random.normal(next(keys), layer.b.shape),
                )
            )
            for layer in params
        )
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    out = mlp.apply_mlp(params, x, norm_after=norm_after)
    np.testing.assert_allclose(out, forward64(params, x, norm_after), atol=1e-5)
    alone = jax.tree.map(lambda leaf: leaf[None], params)
    members = mlp.apply_ensemble(alone, x, norm_after=norm_after)
    np.testing.assert_allclose(members[0], out, atol=1e-5)


def test_layer_norm_is_in_hidden_layers_only():
    params = mlp.init_mlp(jax.random.key(0), (4, 8, 8, 2), layer_norm=True)
    assert [layer.norm is None for layer in params] == [False, False, True]


def test_ensemble_members_are_the_single_networks():
    key = jax.random.key(3)
    stacked = mlp.init_ensemble(key, 2, (4, 8, 1))
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    out = mlp.apply_ensemble(stacked, x)
    assert out.shape == (2, 6, 1)
    for i, one in enumerate(jax.random.split(key, 2)):
        np.testing.assert_allclose(
            out[i], mlp.apply_mlp(mlp.init_mlp(one, (4, 8, 1)), x), atol=1e-6
        )
    assert not np.allclose(out[0], out[1])


def test_orthogonal_weights_have_the_gain_as_singular_values():
    w, b = mlp.Orthogonal(0.5)(jax.random.key(0), 32, 16)
    np.testing.assert_allclose(np.linalg.svd(np.asarray(w), compute_uv=False), 0.5, rtol=1e-5)
    assert not b.any()


@pytest.mark.parametrize(("init", "bound"), [("torch", 1 / 20), ("lecun", np.sqrt(3) / 20)])
def test_uniform_weights_fill_their_range(init, bound):
    (layer,) = mlp.init_mlp(jax.random.key(0), (400, 300), init=init)
    w = np.asarray(layer.w)
    assert np.abs(w).max() <= bound
    # Of a uniform variable in +-bound the standard deviation is bound / sqrt(3).
    np.testing.assert_allclose(w.std(), bound / np.sqrt(3), rtol=0.01)
    assert bool(layer.b.any()) == (init == "torch")


def test_last_layer_may_be_drawn_otherwise():
    params = mlp.init_mlp(
        jax.random.key(0), (4, 8, 2), init="lecun", last_init=mlp.Orthogonal(1e-2)
    )
    assert np.abs(params[1].w).max() <= 1e-2 < np.abs(params[0].w).max()


def test_unknown_initialiser_lists_the_known():
    with pytest.raises(ConfigError, match="torch, lecun, orthogonal, got 'xavier'"):
        mlp.init_mlp(jax.random.key(0), (2, 2), init="xavier")


def test_float32_throughout():
    params = mlp.init_mlp(jax.random.key(0), (3, 4, 2), layer_norm=True)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


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
    agree(mlp.cpu_product, lambda x, w: x @ w, normal(0, *lead, 7), normal(1, 7, fan_out))


@pytest.mark.parametrize("lead", [(), (6,), (2, 5)])
def test_norm_and_its_gradients_are_the_plain_ones(lead):
    agree(
        lambda *args: mlp.cpu_normalise(*args, 1e-5),
        lambda *args: plain_normalise(*args, 1e-5),
        3.0 + normal(0, *lead, WIDTH),
        normal(1, WIDTH),
        normal(2, WIDTH),
    )


def test_many_rows_are_the_same_function():
    y, scale, offset = 3.0 + normal(0, 5000, 8), normal(1, 8), normal(2, 8)
    ours = mlp.cpu_normalise(y, scale, offset, 1e-5)
    np.testing.assert_allclose(ours, plain_normalise(y, scale, offset, 1e-5), atol=2e-5)
    few = mlp.cpu_normalise(y[:100], scale, offset, 1e-5)
    np.testing.assert_allclose(ours[:100], few, atol=2e-5)


def test_constant_rows_have_finite_gradients():
    y, scale, offset = jnp.full((4, WIDTH), 2.0), jnp.ones(WIDTH), jnp.zeros(WIDTH)
    grad = jax.grad(lambda y: mlp.cpu_normalise(y, scale, offset, 1e-5)[:, 0].sum())(y)
    assert np.isfinite(grad).all()


def test_weights_of_a_wide_layer_get_their_gradient_in_their_own_order():
    """A transposed result is right, too, but the optimiser then reads it across memory."""
    x, w = normal(0, 64, WIDTH), normal(1, WIDTH, WIDTH)

    def step(w):
        return w - 0.1 * jax.grad(lambda w: jnp.square(mlp.cpu_product(x, w)).sum())(w)

    jaxpr = jax.make_jaxpr(step)(w)
    names = [eqn.primitive.name for eqn in jaxpr.eqns]
    after = names[len(names) - 1 - names[::-1].index("dot_general") :]
    assert "transpose" not in after


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


def test_half_units_are_for_what_is_traced_inside_alone(monkeypatch):
    """The filter and all that judges a policy must see float32 on a GPU."""
    seen = []
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(gpu, "fits_mlp", lambda params, x: True)
    monkeypatch.setattr(gpu, "apply_mlp", lambda params, x, units: seen.append(units))
    mlp.apply_mlp((), jnp.zeros((1, 1)))
    with mlp.half_units():
        mlp.apply_mlp((), jnp.zeros((1, 1)))
    with pytest.raises(ZeroDivisionError), mlp.half_units():
        raise ZeroDivisionError
    mlp.apply_mlp((), jnp.zeros((1, 1)))
    assert seen == [jnp.float32, jnp.bfloat16, jnp.float32]
