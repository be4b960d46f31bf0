"""Arrays that jax takes over without a copy, where the device is the CPU."""

import math

import numpy as np

_ALIGNMENT = 64  # bytes; other arrays are copied


def aligned_empty(shape: tuple[int, ...]) -> np.ndarray:
    """An uninitialised float32 array for `jax.device_put`; not to be written to after that.

    >>> aligned_empty((3, 5)).shape
    (3, 5)
    """
    num_bytes = 4 * math.prod(shape)
    raw = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + num_bytes].view(np.float32).reshape(shape)
