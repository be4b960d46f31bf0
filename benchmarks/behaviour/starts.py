"""How much two policies disagree at the start of an episode; README.md has the definition."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.actor import SquashedGaussianActor

NUM_STEPS = 20


def disagreement_by_step(
    one: SquashedGaussianActor, other: SquashedGaussianActor, states: np.ndarray
) -> np.ndarray:
    """Root mean squared difference of deterministic actions at each step, (steps,).

    ``states`` is (episodes, steps, d), NaN behind the end of an episode.
    """
    lost = np.isnan(states[..., 0])
    rows = np.nan_to_num(states).reshape(-1, states.shape[2])
    squared = np.square(one.act(rows) - other.act(rows)).mean(axis=1).reshape(lost.shape)
    return np.sqrt(np.where(lost, 0.0, squared).sum(axis=0) / np.maximum((~lost).sum(axis=0), 1))


def disagreement(
    medium: SquashedGaussianActor,
    expert: SquashedGaussianActor,
    medium_states: np.ndarray,
    expert_states: np.ndarray,
) -> tuple[float, float]:
    """Means over the steps, on the medium's states and on the expert's."""
    return (
        float(disagreement_by_step(medium, expert, medium_states).mean()),
        float(disagreement_by_step(medium, expert, expert_states).mean()),
    )


def all_pairs(
    mediums: Sequence[SquashedGaussianActor],
    experts: Sequence[SquashedGaussianActor],
    medium_states: np.ndarray,
    expert_states: np.ndarray,
) -> np.ndarray:
    """The larger of both numbers for every pair, (mediums, experts) float32.

    ``medium_states`` is (mediums, episodes, steps, d), likewise ``expert_states``.
    """
    on_experts = _one_way(mediums, experts, expert_states)
    on_mediums = _one_way(experts, mediums, medium_states)
    return np.maximum(on_experts, on_mediums.T)


def _one_way(
    visitors: Sequence[SquashedGaussianActor],
    hosts: Sequence[SquashedGaussianActor],
    states: np.ndarray,
) -> np.ndarray:
    """(visitors, hosts): how far a visitor's actions are from the host's in the host's states."""
    lost = np.isnan(states[..., 0])
    rows = jnp.asarray(np.nan_to_num(states).reshape(len(hosts), -1, states.shape[3]))
    own = _act_each(_stacked(hosts), rows)
    keep = jnp.asarray(~lost, jnp.float32)
    found = [_distance(_one(visitor), rows, own, keep) for visitor in visitors]
    return np.stack([np.asarray(each) for each in found])


@jax.jit
def _act_each(layers: tuple, rows: jax.Array) -> jax.Array:
    return jax.vmap(_act)(layers, rows)


@jax.jit
def _distance(layers: tuple, rows: jax.Array, own: jax.Array, keep: jax.Array) -> jax.Array:
    squared = jnp.square(_act(layers, rows) - own).mean(axis=-1).reshape(keep.shape)
    by_step = (squared * keep).sum(axis=1) / jnp.maximum(keep.sum(axis=1), 1.0)
    return jnp.sqrt(by_step).mean(axis=1)


def _act(layers: tuple, x: jax.Array) -> jax.Array:
    for i, (w, b) in enumerate(layers):
        x = jnp.matmul(x, w, precision="highest") + b
        if i < len(layers) - 1:
            x = jax.nn.relu(x)
    return jnp.tanh(x[..., : x.shape[-1] // 2])


def _one(actor: SquashedGaussianActor) -> tuple:
    return tuple((jnp.asarray(w), jnp.asarray(b)) for w, b in actor.layers)


def _stacked(actors: Sequence[SquashedGaussianActor]) -> tuple:
    each = [actor.layers for actor in actors]
    return tuple(
        (jnp.stack([a[i][0] for a in each]), jnp.stack([a[i][1] for a in each]))
        for i in range(len(each[0]))
    )
