"""Short, stable names for content: arrays and settings."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_DIGITS = 32


def of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Hash named arrays by name, dtype, shape and bytes; the order of names does not matter."""
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        if array.dtype.kind == "U":
            # Text is padded to a common width, which is no part of its content.
            array = array.astype(f"U{max(1, int(np.strings.str_len(array).max(initial=0)))}")
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def of_settings(settings: Mapping[str, Any]) -> str:
    """Hash a JSON-like mapping; the order of keys does not matter.

    >>> of_settings({"a": 1, "b": [2]}) == of_settings({"b": [2], "a": 1})
    True
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()
