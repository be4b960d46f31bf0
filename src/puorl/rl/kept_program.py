"""Compiled programs kept in a folder: compiled anew, one may round otherwise."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax


@contextlib.contextmanager
def kept_program(folder: Path) -> Iterator[None]:
    """On a GPU, compile into a folder and take from it what was compiled before."""
    if jax.default_backend() != "gpu":
        yield
        return
    from jax.experimental.compilation_cache import compilation_cache

    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    earlier = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        for name, value in earlier.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
