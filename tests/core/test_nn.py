import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.nn import mlp


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
