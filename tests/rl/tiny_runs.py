"""Small pools, learners and runs, and the program that test_run_kills kills."""

import sys
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.data.dataset import Dataset
from puorl.data.training_set import Groups, TrainingSet
from puorl.nn import mlp
from puorl.rl import learner
from puorl.rl.learner import critic_mean, policy_mean
from puorl.rl.run import RunSpec, run

SETTINGS = {
    "td3_bc": {"hidden": (5,), "batch_size": 8},
    "iql": {"hidden": (5,), "batch_size": 8},
    "bc": {"hidden": (5,), "batch_size": 8},
    "cql": {"hidden": (5,), "batch_size": 8, "num_sampled": 2},
    "rebrac": {"hidden": (5,), "batch_size": 8},
    "td7": {"hidden": (5,), "batch_size": 8, "embedding_dim": 4, "copy_every": 4},
    **{name: {"hidden": (5,), "batch_size": 8} for name in learner.DISCRETE_LEARNERS},
}


@dataclass(frozen=True)
class SumConfig:
    """Settings."""

    batch_size: int = 8
    growth: float = 0.9
    """By which what is learnt is multiplied at every update."""
    breaks_at: int = -1
    """The update at which the policy alone, which nothing measures, is no number any more."""
    gamma: float = 0.99


class SumState(NamedTuple):
    """What is added up, of one lane."""

    total: jax.Array
    policy: mlp.Params
    num_updates: jax.Array
    position: jax.Array


TRACES = []
"""One entry each time an update is traced."""


def sums(**settings):
    """A learner that adds up rows, rewards and noise, with a cycle of 2."""
    config = SumConfig(**settings)

    def init(key, sizes):
        w = jax.random.normal(key, (sizes.obs_dim, sizes.act_dim), jnp.float32)
        policy = (mlp.Layer(w, jnp.zeros(sizes.act_dim, jnp.float32)),)
        none = jnp.zeros(config.batch_size, jnp.int32)
        return SumState(jnp.ones((), jnp.float32), policy, jnp.zeros((), jnp.int32), none)

    def noise(key, batch_size, act_dim):
        return jax.random.normal(key, (batch_size, act_dim), jnp.float32)

    def update(state, batch, noise, phase):
        TRACES.append(phase)
        seen = policy_mean(batch.obs.sum(axis=1) + noise.sum(axis=1) + batch.reward, batch)
        total = config.growth * state.total + 0.01 * seen
        number = state.num_updates + 1
        broken = jnp.where(number == config.breaks_at, jnp.nan, 0.0)
        (layer,) = state.policy
        policy = (layer._replace(w=layer.w + 0.01 * seen + broken),)
        metrics = {"q": total, f"loss_{phase}": critic_mean(batch.reward, batch)}
        return SumState(total, policy, number, batch.position), metrics

    return learner.Learner(
        name="sums",
        config=config,
        init=init,
        noise=noise,
        update=update,
        actor=lambda state: state.policy,
        actor_kind="clip",
        cycle=2,
        normalise_states=True,
    )


def small(name, num_steps=100, **settings):
    """A learner of few weights; "sums" is the one above."""
    if name == "sums":
        return sums(**settings)
    return learner.make(name, num_steps=num_steps, **(SETTINGS[name] | settings))


def pool(num_rows=120, *, seed=0, length=10):
    """Rows of whole episodes, some of which end in a terminal row without a next state."""
    rng = np.random.default_rng(seed)
    last = np.arange(num_rows) % length == length - 1
    terminal = last & (np.arange(num_rows) // length % 2 == 0)
    obs = rng.normal(size=(num_rows, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -1.0]
    next_obs = np.roll(obs, -1, axis=0)
    next_obs[last] = rng.normal(size=(last.sum(), 3))
    next_obs[terminal] = np.nan
    made = Dataset.from_arrays(
        obs=obs,
        action=rng.uniform(-1, 1, (num_rows, 2)),
        reward=rng.normal(size=num_rows),
        next_obs=next_obs,
        terminal=terminal,
        timeout=last & ~terminal,
        episode=np.arange(num_rows) // length,
    )
    return made.with_next_action()


def grouped(data, num_first, rows=None, *, seed=0, **settings):
    """A set with groups, scores, weights of both kinds and rewards of its own."""
    rows = np.arange(len(data)) if rows is None else rows
    rng = np.random.default_rng(seed)
    return TrainingSet(
        data,
        rows,
        weight=rng.uniform(0.5, 1, len(rows)).astype(np.float32),
        reward=rng.normal(size=len(rows)),
        critic_weight=rng.uniform(0.5, 1, len(rows)).astype(np.float32),
        score=rng.normal(size=len(rows)).astype(np.float32),
        groups=Groups(num_first, **settings),
    )


def spec_of(made, *, steps=12, interval=4, most_lanes=2, seeds=(0, 1), data=None):
    """Two sets, one of them shorter, in groups of lanes."""
    data = pool() if data is None else data
    sets = {"all": TrainingSet.whole(data), "some": TrainingSet(data, np.arange(0, 90, 2))}
    chosen = dict.fromkeys(sets, seeds)
    return RunSpec(made, sets, chosen, steps, interval, most_lanes)


def results(folder):
    """Bytes of all that must be equal, by name."""
    files = [*(folder / "policies").rglob("*"), folder / "metrics.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.is_file()}


if __name__ == "__main__":
    folder, name, steps, how = sys.argv[1:]
    made = spec_of(small(name, int(steps)), steps=int(steps))
    run(folder, made, in_background=how == "background")
