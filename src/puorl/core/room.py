"""How much memory and disk there is, and a clear word before either runs out."""

import os
import shutil
from pathlib import Path

from puorl.core.errors import ConfigError, DataError

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def free_memory() -> int | None:
    """Bytes that may still be used; None where the system does not tell."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            found.append(max(0, int(limit) - int((group / "memory.current").read_text())))
    except (OSError, ValueError):
        pass  # not Linux, or no such container
    return min(found, default=None)


def free_disk(path: str | os.PathLike[str]) -> int | None:
    """Bytes that may still be written at ``path``, which need not exist; None where unknown."""
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
    """Refuse what cannot fit into memory, with both numbers.

    Args:
        need: Bytes that are needed at the very least.
        subject: What needs them.
        repair: What to do instead.
        free: Bytes that there are; those of this machine if None.
        error: What to raise.

    Raises:
        ConfigError: More is needed than is free (or ``error``).
    """
    there = free_memory() if free is None else free
    if there is not None and need > there:
        raise error(
            f"{subject}: expected what fits into {size_told(there)} of free memory, got what "
            f"needs {size_told(need)} or more; {repair}"
        )


def require_readable(need: int, subject: str) -> None:
    """Refuse an array or table of a file that cannot be held.

    Raises:
        DataError: More is needed than is free.
    """
    repair = "read a part of it, or on a machine with more memory"
    require_memory(need, subject, repair=repair, error=DataError)


def require_disk(need: int, path: str | os.PathLike[str], subject: str, *, repair: str) -> None:
    """Refuse to begin what cannot be written in the end, with both numbers.

    Args:
        need: Bytes that will be written at the very least.
        path: Where to.
        subject: What needs them.
        repair: What to do instead.

    Raises:
        ConfigError: More is needed than is free there.
    """
    there = free_disk(path)
    if there is not None and need > there:
        raise ConfigError(
            f"{subject}: expected what fits into {size_told(there)} of free disk at {path}, got "
            f"what needs {size_told(need)} or more; {repair}"
        )


def size_told(num_bytes: int) -> str:
    """Bytes as people say them.

    >>> [size_told(n) for n in (96, 40_000, 2_500_000, 23_000_000_000, 4 * 10**15)]
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
