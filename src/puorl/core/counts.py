"""Counts as people write them: 1000000, 1_000_000, 1e6, 1M, 250k."""

import re
from decimal import Decimal

from puorl.core.errors import ConfigError

_PATTERN = re.compile(r"(\d+(?:_\d+)*(?:\.\d+)?(?:[eE]\+?\d{1,2})?)\s*([kKmMbB]?)")
_LARGEST = 2**53  # shares of a count are computed in float64
_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def parse_count(text: str | int | float, *, name: str = "count") -> int:
    """Turn a written count into an integer, or say why it is none.

    >>> [parse_count(t) for t in ("1e6", "1_000_000", "1M", "2.5k", 7)]
    [1000000, 1000000, 1000000, 2500, 7]

    Raises:
        ConfigError: Not a whole, non-negative number.
    """
    match = _PATTERN.fullmatch(str(text).strip())
    value = Decimal(match[1].replace("_", "")) * _SUFFIX[match[2].lower()] if match else None
    if value is None or value != int(value) or value > _LARGEST:
        raise ConfigError(
            f"{name}: expected a whole number such as 1000000, 1_000_000, 1e6, 1M or 250k, "
            f"got {text!r}"
        )
    return int(value)
