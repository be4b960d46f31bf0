import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.nn import mlp


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_agree_with_the_paper_in_float64(decay):
    rng = np.random.default_rng(0)
    theta = {"a": rng.normal(size=(3, 2)), "b": (rng.normal(size=4),)}
    flat, shape = jax.tree.flatten(theta)
    params = jax.tree.map(lambda p: jnp.asarray(p, jnp.float32), theta)
    moments = mlp.init_adam(params)
    mean, square = [0.0 * p for p in flat], [0.0 * p for p in flat]
    for t in range(1, 6):
        grad = [rng.normal(size=p.shape) for p in flat]
        params, moments = mlp.apply_adam(
            params,
            jax.tree.unflatten(shape, [jnp.asarray(g, jnp.float32) for g in grad]),
            moments,
            learning_rate=0.01,
            weight_decay=decay,
        )
        for i, g in enumerate(grad):
            g = g + decay * flat[i]
            mean[i] = 0.9 * mean[i] + 0.1 * g
            square[i] = 0.999 * square[i] + 0.001 * g**2
            step = mean[i] / (1 - 0.9**t) / (np.sqrt(square[i] / (1 - 0.999**t)) + 1e-8)
            flat[i] = flat[i] - 0.01 * step
    for ours, reference in zip(jax.tree.leaves(params), flat, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=2e-5, atol=2e-6)
    assert int(moments.num_updates) == 5
