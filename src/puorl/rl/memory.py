"""What training takes on the device at the very least: asked before anything is compiled.

A compiler that is given sizes beyond all reason ends the whole process, and an operating system
that hands out more memory than it has ends it later. Only what is certain is counted, so nothing
that would have run is refused.
"""

import dataclasses
from typing import Any

import jax

from puorl.core.errors import ConfigError
from puorl.core.room import require_memory
from puorl.rl.learner import Learner, Sizes

_LARGEST = 2**31 - 1
"""Rows, columns and updates are counted in 32 bits on the device."""
_LONGEST_CYCLE = 100
"""Updates of a cycle are compiled one by one."""
_NUMBER = 4
"""Bytes of a float32 or int32."""
_BESIDE_A_ROW = 5
"""Numbers of a drawn row beside the packed ones: reward, three weights, position."""


def check_counts(learner: Learner, **numbers: int) -> None:
    """Refuse whole numbers that no device can count to.

    Args:
        learner: Its settings are looked at.
        **numbers: Others, by name.

    Raises:
        ConfigError: One is 2**31 or more, or a cycle is too long to be compiled.
    """
    if learner.cycle > _LONGEST_CYCLE:
        raise ConfigError(
            f"{learner.name}: expected at most {_LONGEST_CYCLE} updates until it repeats itself, "
            f"got {learner.cycle:,}; lower policy_every"
        )
    settings = dataclasses.asdict(learner.config)
    for name, value in {**settings, **numbers}.items():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, int) and each > _LARGEST:
                raise ConfigError(f"{name}: expected {_LARGEST:,} or less, got {each:,}")


def check_memory(learner: Learner, sizes: Sizes, *, lanes: int, num_rows: int, sets: int) -> None:
    """Refuse lanes that cannot fit on the device together.

    Args:
        learner: What is to be trained.
        sizes: Of its states.
        lanes: Agents that train side by side.
        num_rows: Rows of the pool.
        sets: Training sets in the tables.

    Raises:
        ConfigError: They need more memory than the device has left.
    """
    check_counts(learner)
    parts = _parts(learner, sizes, lanes=lanes, num_rows=num_rows, sets=sets)
    repairs = {
        "a batch": "lower batch_size or hidden, or train fewer seeds at once",
        "networks": "lower hidden, or train fewer seeds at once",
        "rows": "train on fewer rows",
    }
    most = max(parts, key=lambda name: parts[name])
    require_memory(
        sum(parts.values()),
        f"training {lanes} of {learner.name} side by side, most of it for {most}",
        repair=repairs[most],
        free=_free_on_device(),
    )


def _parts(
    learner: Learner, sizes: Sizes, *, lanes: int, num_rows: int, sets: int
) -> dict[str, int]:
    """Bytes by what they are for."""
    size = learner.config.batch_size
    width = 2 * (sizes.obs_dim + sizes.act_dim) + 1
    key = jax.random.key(0, impl="threefry2x32")
    state = jax.tree.leaves(jax.eval_shape(lambda k: learner.init(k, sizes), key))
    noise = jax.eval_shape(lambda k: learner.noise(k, size, sizes.act_dim), key)
    layers = [leaf.shape[-1] for leaf in state if leaf.ndim >= 2]
    drawn = size * (width + _BESIDE_A_ROW) + sum(leaf.size for leaf in jax.tree.leaves(noise))
    made = size * max(layers, default=0)  # what the widest layer makes of a batch
    return {
        "a batch": _NUMBER * lanes * (learner.cycle * drawn + made),
        "networks": _NUMBER * lanes * sum(leaf.size for leaf in state),
        "rows": _NUMBER * (num_rows * width + sets * sizes.num_rows * _BESIDE_A_ROW),
    }


def _free_on_device() -> int | None:
    """Bytes left on the device; None on a CPU, which has the machine's memory."""
    about: dict[str, Any] = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" not in about:
        return None
    return about["bytes_limit"] - about.get("bytes_in_use", 0)
