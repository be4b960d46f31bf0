"""Content hashes of arrays, settings and files, and NumPy random streams of a seed."""

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import ConfigError, DataError

_DIGITS = 32
HASH = "file_hash"
"""Key of the content hash in the JSON or the metadata of a file that puorl wrote."""


class Pieces(NamedTuple):
    """An array that is read in pieces, which together have its rows."""

    shape: tuple[int, ...]
    read: Callable[[], Iterable[np.ndarray]]


Arrays = Mapping[str, np.ndarray | Pieces]


def of_arrays(arrays: Arrays) -> str:
    """Hash named arrays by name, dtype, shape and bytes; the order of names does not matter."""
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    for name in sorted(arrays):
        array = arrays[name]
        if not isinstance(array, Pieces):
            array = Pieces(np.shape(array) or (1,), lambda array=array: [array])
        dtype = np.asarray(next(iter(array.read()))).dtype
        if dtype.kind == "U":
            # NumPy pads text to a common width, which is not part of the content.
            widths = (int(np.strings.str_len(each).max(initial=1)) for each in array.read())
            dtype = np.dtype(f"U{max(widths)}")
        digest.update(f"{name}|{dtype.str}|{array.shape}|".encode())
        for piece in array.read():
            piece = np.ascontiguousarray(piece, dtype)
            digest.update(piece.reshape(-1).view(np.uint8).data if piece.size else b"")
    return digest.hexdigest()


def of_settings(settings: Mapping[str, Any]) -> str:
    """Hash a JSON-like mapping; the order of keys does not matter.

    >>> of_settings({"a": 1, "b": [2]}) == of_settings({"b": [2], "a": 1})
    True
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()


def of_bytes(path: str | os.PathLike[str], length: int = sys.maxsize) -> str:
    """Hash the first ``length`` bytes of a file; all of them if it is shorter."""
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    with open(path, "rb") as file:
        while length > 0 and (block := file.read(min(length, 2**20))):
            digest.update(block)
            length -= len(block)
    return digest.hexdigest()


def check(
    path: str | os.PathLike[str], stored: object, found: str, *, repair: str = "make it again"
) -> None:
    """Compare the hash that was written with a file to that of what was read.

    Args:
        path: The file, for the message.
        stored: From the file, or from the one that names it; None in files of version 0.1, which
            have none, passes.
        found: Of the content that was read.
        repair: End of the message: what to do.
    """
    if stored is not None and stored != found:
        raise DataError(
            f"{path}: content hash differs from the one that was written with it; the file is "
            f"damaged; {repair}"
        )


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """Return the random stream of ``seed`` for ``path``; other paths are independent of it.

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
    """Return the seed as int if all streams, JAX's too, accept it."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise ConfigError(f"seed: expected a whole number from 0 to {2**31 - 1}, got {seed!r}")
    return int(seed)
