"""Values of logged actions and states; their difference says how good an action is in its state.

Values are those of IQL (Kostrikov et al. 2022): the expectile of Q over the actions that the rows
have, and Q of the reward and the next state's value. No action outside the rows is asked for. They
are fitted quickly, for the sign of Q - V, and train no policy.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.hashing import generator
from puorl.data.transitions import Transitions
from puorl.nn import mlp

_GAMMA = 0.99
_EXPECTILE = 0.7
_TAU = 0.005
_LEARNING_RATE = 1e-3
_CHUNK = 500  # updates of one compiled call
_BLOCK = 16_384


class Values(NamedTuple):
    """Two critics, their targets and a value."""

    q: mlp.Params
    target: mlp.Params
    v: mlp.Params


class _Rows(NamedTuple):
    x: jax.Array  # (n, d + m): state, action
    after: jax.Array  # (n, d)
    reward: jax.Array  # (n,)
    goes_on: jax.Array  # (n,) 0 or 1


def values_of_rows(
    rows: Transitions,
    reward: np.ndarray,
    next_obs: np.ndarray,
    *,
    num_first: int,
    seed: int,
    hidden: Sequence[int],
    num_steps: int,
    batch_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Q and V of every row, (n,) float32 each.

    Their unit is the mean size of a discounted sum of rewards.

    Args:
        rows: States, actions and ends.
        reward: (n,) float. Instead of the rows' own.
        next_obs: (n, d) float. Instead of the rows' own.
        num_first: Rows of the first group; half of a batch comes from each.
        seed: Seed of weights and batches.
        hidden: Widths of hidden layers.
        num_steps: Updates.
        batch_size: Rows of an update.
    """
    mean, scale = rows.obs.mean(axis=0), rows.obs.std(axis=0) + 1e-3
    obs = (rows.obs - mean) / scale
    after = np.where(np.isnan(next_obs), obs, (next_obs - mean) / scale)
    size = max(float(np.abs(reward).mean()), 1e-12) / (1.0 - _GAMMA)
    columns = (
        np.concatenate([obs, rows.action], axis=1),
        after,
        reward / size,
        ~rows.terminal,
    )
    data = _Rows(*(jnp.asarray(column, jnp.float32) for column in columns))
    word = int(generator(seed, "methods", "advantage").integers(2**31))
    q_key, v_key, batch_key = jax.random.split(jax.random.key(word), 3)
    q = mlp.init_ensemble(q_key, 2, (data.x.shape[1], *hidden, 1), layer_norm=True)
    v = mlp.init_mlp(v_key, (obs.shape[1], *hidden, 1))
    state = Values(q, q, v), mlp.init_adam(q), mlp.init_adam(v)
    for start in range(0, num_steps, _CHUNK):
        key = jax.random.fold_in(batch_key, start)
        shape = (min(_CHUNK, num_steps - start), max(1, batch_size // 2))
        state = _run(state, key, data, num_first, shape)
    q, v = _values(state[0], data.x)
    return np.asarray(q), np.asarray(v)


def expectile_loss(error: jax.Array, expectile: float = _EXPECTILE) -> jax.Array:
    """Squared errors (b,), with the weight ``expectile`` above 0 and the rest of 1 below."""
    return jnp.where(error > 0, expectile, 1.0 - expectile) * jnp.square(error)


@partial(jax.jit, static_argnames="shape")
def _run(state: Any, key: jax.Array, data: _Rows, num_first: int, shape: Any) -> Any:
    keys = jax.random.split(key)
    first = jax.random.randint(keys[0], shape, 0, num_first)
    second = jax.random.randint(keys[1], shape, num_first, len(data.reward))

    def step(state: Any, drawn: jax.Array) -> tuple[Any, None]:
        (q, target, v), q_moments, v_moments = state
        batch = _Rows(*(column[drawn] for column in data))
        obs = batch.x[:, : batch.after.shape[1]]
        best = mlp.apply_ensemble(target, batch.x)[..., 0].min(axis=0)

        def v_loss(v: mlp.Params) -> jax.Array:
            return expectile_loss(best - mlp.apply_mlp(v, obs)[:, 0]).mean()

        v, v_moments = mlp.apply_adam(
            v, jax.grad(v_loss)(v), v_moments, learning_rate=_LEARNING_RATE
        )
        following = batch.goes_on * mlp.apply_mlp(v, batch.after)[:, 0]
        goal = batch.reward + _GAMMA * following

        def q_loss(q: mlp.Params) -> jax.Array:
            found = mlp.apply_ensemble(q, batch.x)[..., 0]
            return jnp.square(found - jnp.broadcast_to(goal, found.shape)).sum(axis=0).mean()

        q, q_moments = mlp.apply_adam(
            q, jax.grad(q_loss)(q), q_moments, learning_rate=_LEARNING_RATE
        )
        return (Values(q, mlp.soft_update(target, q, _TAU), v), q_moments, v_moments), None

    return jax.lax.scan(step, state, jnp.concatenate([first, second], axis=1))[0]


@jax.jit
def _values(values: Values, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    num_obs = values.v[0].w.shape[0]

    def one(row: jax.Array) -> tuple[jax.Array, jax.Array]:
        q = mlp.apply_ensemble(values.target, row[None])[:, 0, 0].min()
        return q, mlp.apply_mlp(values.v, row[None, :num_obs])[0, 0]

    return jax.lax.map(one, x, batch_size=_BLOCK)
