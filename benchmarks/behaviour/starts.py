"""How much two policies disagree at the start of an episode; README.md has the definition.

    python benchmarks/behaviour/starts.py --out benchmarks/results/behaviour-starts.json

measures every pair of shipped policies, in the domain they learnt in.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.files import write_json
from puorl.core.hashing import generator
from puorl.envs import behaviour
from puorl.envs.domains import domain
from puorl.envs.simulator import Simulator
from puorl.nn.numpy_mlp import SquashedGaussianActor

NUM_STEPS = 20
EPISODES = 100


def start_states(
    body: str, name: str, actor: SquashedGaussianActor, *, seed: int = 0, threads: int = 1
) -> np.ndarray:
    """States (episodes, steps, d) of the first steps, played with noise; NaN behind a fall."""
    rng = generator(seed, "starts", body, name)
    states = np.full((EPISODES, NUM_STEPS, actor.obs_dim), np.nan, np.float32)
    running = np.ones(EPISODES, bool)
    with Simulator([domain(body, name)] * EPISODES, seed=seed, threads=threads) as simulator:
        for t in range(NUM_STEPS):
            states[running, t] = simulator.obs[running]
            step = simulator.step(actor.act(simulator.obs, rng=rng))
            running &= ~(step.terminal | step.timeout)
    return states


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
    # On a GPU, trying out kernels for these shapes takes far longer than the products themselves.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
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


def measure_pair(
    body: str, name: str, medium: SquashedGaussianActor, expert: SquashedGaussianActor
) -> dict[str, float]:
    """The numbers of one pair in one domain."""
    states = start_states(body, name, medium), start_states(body, name, expert)
    on_medium, on_expert = disagreement(medium, expert, *states)
    return {
        "on_medium_states": on_medium,
        "on_expert_states": on_expert,
        "larger": max(on_medium, on_expert),
        "first_step": float(disagreement_by_step(medium, expert, states[1])[0]),
    }


def main() -> None:
    """Measure all shipped pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    table: dict[str, Any] = {}
    for expert in behaviour.shipped():
        if expert.level != "expert":
            continue
        place = expert.body, expert.domain
        medium = behaviour.find(*place, "medium", version=expert.version)
        actors = SquashedGaussianActor.load(medium.path), SquashedGaussianActor.load(expert.path)
        key = f"{'/'.join(place)}/v{expert.version}"
        table[key] = measure_pair(*place, *actors) | {
            "medium": medium.mean,
            "expert": expert.mean,
            "episodes": EPISODES,
            "fingerprints": [medium.fingerprint, expert.fingerprint],
        }
        print(key, {name: round(v, 3) for name, v in list(table[key].items())[:6]}, flush=True)
    write_json(given.out, table, force=True)


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


if __name__ == "__main__":
    main()
