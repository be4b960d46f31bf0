"""Randomness by name: one seed, and a stream for every purpose."""

import zlib

import numpy as np

from puorl.core.errors import ConfigError


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """The NumPy stream of ``seed`` that belongs to ``path``; other paths share nothing with it.

    >>> bool(generator(3, "split").integers(100) == generator(3, "split").integers(100))
    True

    Raises:
        ConfigError: The seed is negative or not a whole number.
    """
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed: expected a whole number, 0 or above, got {seed!r}")
    words = [p if isinstance(p, int) else zlib.crc32(p.encode()) for p in path]
    # The length is part of the entropy: NumPy reads [s, a] and [s, a, 0] as the same.
    return np.random.default_rng([int(seed), len(words), *words])


def checked_seed(seed: int) -> int:
    """A seed that every stream takes, JAX's too.

    Raises:
        ConfigError: Not a whole number from 0 to 2**31 - 1.
    """
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise ConfigError(f"seed: expected a whole number from 0 to {2**31 - 1}, got {seed!r}")
    return int(seed)
