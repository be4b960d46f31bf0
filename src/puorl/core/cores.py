"""How many threads to use."""

import os

from puorl.core.errors import ConfigError


def num_threads(threads: int | None) -> int:
    """The number asked for, or as many as this process may use if None.

    Raises:
        ConfigError: Fewer than one.
    """
    if threads is not None and threads < 1:
        raise ConfigError(f"threads: expected 1 or more (or none for all cores), got {threads}")
    if threads is not None:
        return threads
    if hasattr(os, "sched_getaffinity"):  # a container may have fewer than the machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
