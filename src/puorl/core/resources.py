"""Memory, disk, cache and threads of this machine, and checks before memory or disk runs out."""

import contextlib
import gc
import hashlib
import math
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from puorl.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_ROOT = Path("/")
_GROUP_FILES = {
    "v1": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    "v2": ("memory.max", "memory.current", "inactive_file"),
}
"""Names of the files with limit and use, and of the cache in memory.stat that is given back."""
_MOST_MAPPINGS = 0.5
"""Fraction of the memory mappings that Linux allows a process, from which programs are dropped."""
_computing: dict[str, int] = {}
"""Id of the process that has computed; a forked process inherits it."""
_ALIGNMENT = 64
"""Bytes; `jax.device_put` copies arrays that are aligned to less."""


def cache_folder() -> Path:
    """Return ``$PUORL_CACHE``, or ``puorl`` in the user's cache folder."""
    if chosen := os.environ.get("PUORL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "puorl"


def keep_programs() -> None:
    """Let jax, which must not be imported yet, keep what it compiles for the next process.

    Where the user has chosen a place, or no place can be written to, nothing is changed.
    """
    try:
        folder = cache_folder() / "compiled" / hashlib.sha256(_processor()).hexdigest()[:12]
        there = next(place for place in (folder, *folder.parents) if place.exists())
    except (OSError, RuntimeError):  # the latter where there is no home folder
        return
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder.absolute()))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def drop_programs_if_full() -> bool:
    """Drop what jax has compiled in this process if too many memory mappings are in use.

    Every program takes about ten, and Linux allows a process some 65,000: without this, a process
    that fits thirty filters of different sizes ends in a crash of the compiler. What is needed
    again is compiled again.

    Returns:
        Whether programs were dropped.
    """
    if "jax" not in sys.modules:
        return False
    try:
        most = int((_ROOT / "proc/sys/vm/max_map_count").read_bytes())
        with open(_ROOT / "proc/self/maps", "rb") as file:
            number = sum(1 for _ in file)
    except (OSError, ValueError):  # not Linux
        return False
    if number < _MOST_MAPPINGS * most:
        return False
    import jax

    jax.clear_caches()
    gc.collect()
    return True


def _processor() -> bytes:
    """Describe what programs are compiled for: machines of several kinds may share a home."""
    told = [platform.machine().encode()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:
        lines = file.read(2**14).splitlines()
        told += [line for line in lines if line.startswith((b"flags", b"Features", b"model name"))]
    return b" ".join(dict.fromkeys(told))


def free_memory() -> int | None:
    """Return the bytes of memory that are free; None where the system does not report it."""
    found = [room for folder, names in _groups() if (room := _room(folder, *names)) is not None]
    with contextlib.suppress(OSError, ValueError):  # not Linux
        lines = (_ROOT / "proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return min(found, default=None)


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yield the control groups of this process, each inside the next, with their files' names."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_ROOT / "proc/self/cgroup").read_text().splitlines():
            _, kinds, place = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top = _ROOT / "sys/fs/cgroup" / ("memory" if kinds else "")
            folder = top / place.strip("/")
            # In a container the outer part of the path is not visible, but its top is.
            for each in (folder, *folder.parents):
                yield each, _GROUP_FILES["v1" if kinds else "v2"]
                if each == top:
                    break


def _room(group: Path, limit: str, used: str, cached: str) -> int | None:
    """Return the bytes that a group may still take; None without a limit."""
    freed = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = (group / "memory.stat").read_text().split()
        freed = int(stat[stat.index(cached) + 1])
    try:
        room = int((group / limit).read_text()) - int((group / used).read_text())
    except (OSError, ValueError):  # no group, or "max"
        return None
    return max(0, room + freed)


def check_fork() -> None:
    """Refuse to compute in a process forked from one that has computed: JAX would never return."""
    if _computing.setdefault("process", os.getpid()) != os.getpid():
        raise ConfigError(
            "this process was forked from one that has computed with JAX, which cannot go on here; "
            "use multiprocessing.get_context('spawn'), or fork before the first computation"
        )


def free_disk(path: str | os.PathLike[str]) -> int | None:
    """Return the bytes free at ``path``, which need not exist; None where unknown."""
    place = Path(path).absolute()
    for folder in (place, *place.parents):
        try:
            found = shutil.disk_usage(folder)
            return found.free if found.total else None  # not a disk, as /proc
        except FileNotFoundError:
            continue
        except OSError:
            break
    return None


def require_memory(
    need: int,
    subject: str,
    *,
    repair: str,
    free: int | None = None,
    error: type[ConfigError] | type[DataError] = ConfigError,
) -> None:
    """Raise an error if more memory is needed than is free."""
    have = free_memory() if free is None else free
    if have is not None and need > have:
        raise error(
            f"{subject}: need {describe_size(need)} of free memory, have {describe_size(have)}; "
            f"{repair}"
        )


def require_readable(need: int, subject: str) -> None:
    """Check that an array or table of a file fits into memory."""
    repair = "read a part of it, or on a machine with more memory"
    require_memory(need, subject, repair=repair, error=DataError)


def require_disk(need: int, path: str | os.PathLike[str], subject: str, *, repair: str) -> None:
    """Raise an error if more disk is needed than is free."""
    have = free_disk(path)
    if have is not None and need > have:
        raise ConfigError(
            f"{subject}: need {describe_size(need)} of free disk at {path}, have "
            f"{describe_size(have)}; {repair}"
        )


def describe_size(num_bytes: int) -> str:
    """Return a number of bytes as text.

    >>> [describe_size(n) for n in (96, 40_000, 2_500_000, 23_000_000_000, 4 * 10**15)]
    ['96 bytes', '40.0 kB', '2.5 MB', '23.0 GB', '4.0 PB']
    """
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    size, unit = num_bytes / 1e3, _UNITS[0]
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:,.1f} {unit}"


def num_threads(threads: int | None) -> int:
    """Return ``threads``, or the number of cores that this process may use if None."""
    if threads is not None and threads < 1:
        raise ConfigError(f"threads: expected 1 or more (or none for all cores), got {threads}")
    if threads is not None:
        return threads
    if hasattr(os, "sched_getaffinity"):  # a container may have fewer than the machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def aligned_empty(shape: tuple[int, ...]) -> "np.ndarray":
    """Return an uninitialised float32 array for `jax.device_put`; do not write to it after that.

    >>> aligned_empty((3, 5)).shape
    (3, 5)
    """
    import numpy as np  # not at the top: puorl doctor must start where numpy is broken

    num_bytes = 4 * math.prod(shape)
    raw = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + num_bytes].view(np.float32).reshape(shape)
