"""Batch: the rows of one update, and the one mean that every loss is made of."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError
from puorl.nn.numpy_mlp import Kind


class Batch(NamedTuple):
    """Rows of one lane, all float32 but ``position``; states are normalised where wanted."""

    obs: jax.Array
    """(b, d)."""
    action: jax.Array
    """(b, m) in [-1, 1]."""
    reward: jax.Array
    """(b,) scaled where the learner wants it."""
    next_obs: jax.Array
    """(b, d)."""
    terminal: jax.Array
    """(b,) 0 or 1; a time limit is no terminal."""
    next_action: jax.Array
    """(b, m) the action that followed; zeros for a learner that does not ask for it."""
    keep: jax.Array
    """(b,) 0 or 1: rows that are 0 are as if they had not been drawn."""
    weight: jax.Array
    """(b,) how much a row counts in every loss (soft filtering)."""
    critic_weight: jax.Array
    """(b,) how much it counts in the critic's loss, on top of ``weight``."""
    position: jax.Array
    """(b,) int32. Where the row stands in its training set, for a learner that keeps priorities."""


def kept_mean(x: jax.Array, weight: jax.Array, keep: jax.Array) -> jax.Array:
    """Sum of keep * weight * x over the sum of keep; all (b,) of one shape.

    >>> float(kept_mean(jnp.array([1.0, 5.0]), jnp.array([0.5, 1.0]), jnp.array([1.0, 0.0])))
    0.5
    """
    if not x.shape == weight.shape == keep.shape:
        raise ValueError(f"expected one shape, got {x.shape}, {weight.shape} and {keep.shape}")
    return jnp.sum(keep * weight * x) / jnp.sum(keep)


def policy_mean(x: jax.Array, batch: Batch) -> jax.Array:
    """Mean of x (b,) for losses of the policy and of values: soft weights count."""
    return kept_mean(x, batch.weight, batch.keep)


def critic_mean(x: jax.Array, batch: Batch) -> jax.Array:
    """Mean of x (b,) for the critic's loss: the critic's own weights count, too."""
    return kept_mean(x, batch.weight * batch.critic_weight, batch.keep)


Metrics = dict[str, jax.Array]
"""Scalars by name; ``q`` is among them for a learner that has a critic."""


class Sizes(NamedTuple):
    """What a state's shapes follow from."""

    obs_dim: int
    act_dim: int
    num_rows: int
    """Rows of the largest training set among the lanes."""


class Learner(NamedTuple):
    """All that an algorithm's file exports, made by its ``make(config, num_steps=...)``."""

    name: str
    config: Any
    """Its frozen settings; ``batch_size`` is one of them."""
    init: Callable[[jax.Array, Sizes], Any]
    """(key, sizes) -> the state of a fresh lane."""
    noise: Callable[[jax.Array, int, int], Any]
    """(key, batch_size, act_dim) -> all randomness of one update, a tree of arrays."""
    update: Callable[..., tuple[Any, Metrics]]
    """(state, batch, noise, phase) -> (state, metrics): one update. ``phase`` is a Python number
    that runs from 0 to cycle - 1 and over again."""
    actor: Callable[[Any], Any]
    """(state) -> the parameters of the policy that is learnt."""
    actor_kind: Kind
    cycle: int = 1
    """Updates after which the algorithm repeats itself, e.g. 2 where the actor waits a turn."""
    precompute_targets: Callable[[Any, Batch, Any], Any] | None = None
    """(state, rows, noise) -> row-wise arrays: what does not change within a cycle, for the rows of
    all its batches at once. An update then gets its own share as a fifth argument, which it would
    compute itself without."""
    normalise_states: bool = False
    scale_rewards: bool = False
    needs_next_action: bool = False
    positions: Callable[[Any, jax.Array, jax.Array, int], jax.Array] | None = None
    """(state, key, number of rows, batch_size) -> (b,) int32: the learner's own sampler, for one
    that needs it; without it rows are drawn for many updates in one go."""


MODULES = {
    "td3_bc": "puorl.rl.td3_bc",
    "iql": "puorl.rl.iql",
    "bc": "puorl.rl.bc",
    "cql": "puorl.rl.cql",
    "rebrac": "puorl.rl.rebrac",
    "td7": "puorl.rl.td7",
}
"""Learner to its file."""


def presets(name: str) -> Mapping[str, Any]:
    """Named settings of a learner; ``default`` is always among them.

    Raises:
        ConfigError: No learner has that name.
    """
    return _module(name).PRESETS


def make(name: str, *, num_steps: int, preset: str = "default", **settings: Any) -> Learner:
    """The learner of that name.

    Args:
        name: One of `MODULES`.
        num_steps: Updates it will make in all: some schedules end there.
        preset: Named settings to start from.
        **settings: Fields of its config that are to differ.

    Raises:
        ConfigError: Unknown learner, preset or setting.
    """
    known = presets(name)
    if preset not in known:
        raise ConfigError(f"{name}: expected a preset among {', '.join(known)}, got {preset!r}")
    config = known[preset]
    fields = {field.name for field in dataclasses.fields(config)}
    unknown = sorted(set(settings) - fields)
    if unknown:
        raise ConfigError(
            f"{name}: expected settings among {', '.join(sorted(fields))}; got {', '.join(unknown)}"
        )
    # A list would do as well as a tuple, but only a tuple can be part of a compiled program's name.
    fixed = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    return _made(name, dataclasses.replace(config, **fixed), num_steps)


@cache
def _made(name: str, config: Any, num_steps: int) -> Learner:
    # The same learner twice is one object: what was compiled for it is found again.
    return _module(name).make(config, num_steps=num_steps)


def _module(name: str) -> Any:
    if name not in MODULES:
        raise ConfigError(f"learner: expected one of {', '.join(MODULES)}, got {name!r}")
    return import_module(MODULES[name])
