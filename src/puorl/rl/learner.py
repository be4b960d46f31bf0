"""The contract of learners, their registry, and the means that losses are made of; no JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from puorl.core.errors import ConfigError
from puorl.nn.numpy_mlp import Kind

if TYPE_CHECKING:
    import jax

LEARNERS = {
    "td3_bc": "TD3+BC", "iql": "IQL", "bc": "BC", "cql": "CQL", "rebrac": "ReBRAC", "td7": "TD7"
}  # fmt: skip
"""Title of every learner by its name; the module ``puorl.rl.NAME`` holds it."""
DISCRETE_LEARNERS = {
    "discrete_bc": "BC", "discrete_iql": "IQL", "discrete_cql": "CQL", "discrete_bcq": "BCQ"
}  # fmt: skip
"""The same for discrete actions; `form_of` finds them by the names without ``discrete_``."""
NAMES = tuple(dict.fromkeys([*LEARNERS, *(n.removeprefix("discrete_") for n in DISCRETE_LEARNERS)]))
"""Names of learners in commands and `puorl.train`, for actions of either kind."""

Metrics = dict[str, "jax.Array"]
"""Scalars by name; ``q`` is among them for a learner that has a critic."""


class Batch(NamedTuple):
    """Rows of one lane, float32."""

    obs: jax.Array  # (b, d), normalised if the learner says so
    action: jax.Array  # (b, m) in [-1, 1]
    reward: jax.Array  # (b,), scaled if the learner says so
    next_obs: jax.Array  # (b, d)
    terminal: jax.Array  # (b,) 0 or 1; a time limit is no terminal
    next_action: jax.Array  # (b, m), zeros for a learner that does not need it
    keep: jax.Array  # (b,) 0 or 1: rows that are 0 are as if they had not been drawn
    weight: jax.Array  # (b,) weight in every loss (soft filtering)
    critic_weight: jax.Array  # (b,) weight in the critic's loss, on top of ``weight``
    position: jax.Array  # (b,) int32: index in the training set, for learners with priorities


class Sizes(NamedTuple):
    """Sizes on which the shapes of a state depend."""

    obs_dim: int
    act_dim: int
    num_rows: int  # of the largest training set among the lanes


class Learner(NamedTuple):
    """All that an algorithm's module exports, made by its ``make(config, num_steps=...)``."""

    name: str
    config: Any
    """Frozen settings; ``batch_size`` is one of them."""
    init: Callable[[jax.Array, Sizes], Any]
    """(key, sizes) -> the state of a fresh lane."""
    noise: Callable[[jax.Array, int, int], Any]
    """(key, batch_size, act_dim) -> all randomness of one update, a tree of arrays."""
    update: Callable[..., tuple[Any, Metrics]]
    """(state, batch, noise, phase) -> (state, metrics): one update. ``phase`` is a Python number
    that runs from 0 to cycle - 1 and over again."""
    actor: Callable[[Any], Any]
    """(state) -> the parameters of the learnt policy."""
    actor_kind: Kind
    cycle: int = 1
    """Updates after which the algorithm repeats itself, e.g. the policy delay of TD3."""
    precompute_targets: Callable[[Any, Batch, Any], Any] | None = None
    """(state, rows, noise) -> row-wise arrays that do not change within a cycle, for all its rows.
    An update gets its part as a fifth argument, and computes it without that argument."""
    normalise_states: bool = False
    scale_rewards: bool = False
    """Scale rewards by the returns of complete episodes."""
    reward_factor: float = 1.0
    """Factor of the rewards where returns do not scale them."""
    needs_reward: bool = True
    needs_next_action: bool = False
    discrete: bool = False
    """Whether actions are one-hot codes; they are amounts in [-1, 1] otherwise."""
    positions: Callable[[Any, jax.Array, jax.Array, int], jax.Array] | None = None
    """(state, key, number of rows, batch_size) -> (b,) int32: the learner's own sampler; without
    it rows are drawn uniformly, for many updates at once."""


def policy_mean(x: jax.Array, batch: Batch) -> jax.Array:
    """Return the weighted mean of x (b,) over the kept rows, for losses of policy and values."""
    if x.shape != batch.keep.shape:
        raise ValueError(f"expected shape {batch.keep.shape}, got {x.shape}")
    return (batch.keep * batch.weight * x).sum() / batch.keep.sum()


def critic_mean(x: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean of x (b,) for the critic's loss, with the critic's own weights too."""
    return policy_mean(x, batch._replace(weight=batch.weight * batch.critic_weight))


def form_of(name: str, codes: Sequence[str] | None) -> str:
    """Return the learner of a name for actions with these codes, or for continuous ones.

    >>> form_of("iql", ("0", "1")), form_of("iql", None)
    ('discrete_iql', 'iql')

    Raises:
        ConfigError: Unknown, or it has no form for such actions.
    """
    base = name.removeprefix("discrete_")
    if base not in NAMES:
        raise ConfigError(f"learner: expected one of {', '.join(NAMES)}, got {name!r}")
    if codes is None:
        if name in LEARNERS:
            return name
        raise ConfigError(
            f"{name}: expected discrete actions, got continuous ones; use td3_bc or iql, or say "
            "that actions are codes with --action-kind discrete (discrete_actions=True)"
        )
    if f"discrete_{base}" in DISCRETE_LEARNERS:
        return f"discrete_{base}"
    amounts = (
        ", or say that actions are amounts with --action-kind continuous (discrete_actions=False)"
        if all(code.isdecimal() for code in codes)
        else ""
    )
    raise ConfigError(
        f"{name}: expected continuous actions, got {len(codes)} codes; use bcq (in the place of "
        f"td3_bc), iql, cql or bc{amounts}"
    )


def presets(name: str) -> Mapping[str, Any]:
    """Return the named configs of a learner; ``default`` is always among them."""
    if name not in LEARNERS and name not in DISCRETE_LEARNERS:
        raise ConfigError(f"learner: expected one of {', '.join(LEARNERS)}, got {name!r}")
    return import_module(f"puorl.rl.{name}").PRESETS


def make(name: str, *, num_steps: int, preset: str = "default", **settings: Any) -> Learner:
    """Make the learner of that name.

    Args:
        name: One of `LEARNERS` or `DISCRETE_LEARNERS`.
        num_steps: Updates in all: some schedules end there.
        preset: Name of the config to start from.
        **settings: Fields of the config to change.

    Raises:
        ConfigError: Unknown learner, preset or setting.
    """
    known = presets(name)
    if preset not in known:
        raise ConfigError(f"{name}: expected a preset among {', '.join(known)}, got {preset!r}")
    fields = sorted(field.name for field in dataclasses.fields(known[preset]))
    if unknown := sorted(set(settings) - set(fields)):
        raise ConfigError(
            f"{name}: expected settings among {', '.join(fields)}; got {', '.join(unknown)}"
        )
    # Only a tuple can be part of a compiled program's key.
    fixed = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    return _made(name, dataclasses.replace(known[preset], **fixed), num_steps)


@cache
def _made(name: str, config: Any, num_steps: int) -> Learner:
    # The same learner twice is one object, so that its compiled program is found again.
    return import_module(f"puorl.rl.{name}").make(config, num_steps=num_steps)
