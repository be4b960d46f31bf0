"""Numbers and settings: their checks, as text (counts such as 1M, durations), and as JSON."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from puorl.core.errors import ConfigError

_PATTERN = re.compile(r"(\d+(?:_\d+)*(?:\.\d+)?(?:[eE]\+?\d{1,2})?)\s*([kKmMbB]?)")
_LARGEST = 2**53  # fractions of a count are computed in float64
_LONGEST_VALUE = 40
_HASH = re.compile(r"[0-9a-f]{32,}")
_ABSENT = object()
_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def parse_count(text: str | int | float, *, name: str = "count") -> int:
    """Parse a count.

    >>> [parse_count(t) for t in ("1e6", "1_000_000", "1M", "2.5k", 7)]
    [1000000, 1000000, 1000000, 2500, 7]
    """
    match = _PATTERN.fullmatch(str(text).strip())
    value = Decimal(match[1].replace("_", "")) * _SUFFIX[match[2].lower()] if match else None
    if value is None or value != int(value) or value > _LARGEST:
        raise ConfigError(
            f"{name}: expected a whole number such as 1000000, 1_000_000, 1e6, 1M or 250k, "
            f"got {text!r}"
        )
    return int(value)


def check_choice(name: str, value: str, known: Iterable[str]) -> None:
    """Check a setting that must be one of some words."""
    if value not in known:
        raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {value!r}")


def check_positive(name: str, number: int | None) -> None:
    """Refuse less than 1; None, a number that was not given, passes."""
    if number is not None and number < 1:
        raise ConfigError(f"{name}: expected 1 or more, got {number}")


_DAY = 86_400


def as_dates(times: Sequence[float], *, marked: bool = True) -> list[str]:
    """Write moments, in seconds since 1970, as ISO 8601 in UTC, with the digits they need.

    Hours apart, they need no seconds; seconds apart, no fractions of them. ``marked`` adds the Z
    that says UTC.

    >>> as_dates([0.0, 86_400.0]), as_dates([3600.0, 7261.5]), as_dates([1.0, 3.25])
    (['1970-01-01', '1970-01-02'], ['1970-01-01T01:00Z', '1970-01-01T02:01Z'], \
['1970-01-01T00:00:01Z', '1970-01-01T00:00:03Z'])
    """
    gaps = [abs(b - a) for a, b in zip(times, times[1:], strict=False) if a != b]
    least = min(gaps, default=0.0)
    finest = 60_000 if least >= 3600 else 1000 if least >= 1 else 1
    ticks = [math.floor(time * 1000 + 1e-3) // finest * finest for time in times]
    if all(tick % (1000 * _DAY) == 0 for tick in ticks):
        return [_moment(tick).date().isoformat() for tick in ticks]
    units = (("minutes", 60_000), ("seconds", 1000), ("milliseconds", 1))
    unit = next(name for name, size in units if all(tick % size == 0 for tick in ticks))
    mark = "Z" * marked
    return [
        f"{_moment(tick).replace(tzinfo=None).isoformat(timespec=unit)}{mark}" for tick in ticks
    ]


def _moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def describe_time(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours from an hour on, or as days and hours.

    >>> [describe_time(s) for s in (7.4, 187.4, 3599.6, 86_399, 86_400, 312_943)]
    ['0:07', '3:07', '1:00:00', '23:59:59', '1 day 0 h', '3 days 15 h']
    """
    if round(seconds) >= _DAY:
        days, hours = divmod(round(seconds / 3600), 24)
        return f"{days:,} day{'s' * (days > 1)} {hours} h"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def describe_changes(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the differences between two settings; return an empty text where there are none.

    Of long values the beginning is shown, of hashes nothing.

    >>> describe_changes({"steps": 10, "gamma": 0.9, "data": "0" * 32}, {"steps": 20})
    'steps was 10, is 20; gamma was 0.9, is absent; data differs'
    """
    names = dict.fromkeys([*earlier, *now])
    pairs = {name: (earlier.get(name, _ABSENT), now.get(name, _ABSENT)) for name in names}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return "; ".join(_describe_change(name, *pair) for name, pair in changed.items())


def _describe_change(name: str, earlier: Any, now: Any) -> str:
    if any(isinstance(value, str) and _HASH.fullmatch(value) for value in (earlier, now)):
        return f"{name} differ" if name.endswith("s") else f"{name} differs"
    return f"{name} was {_short(earlier)}, is {_short(now)}"


def _short(value: Any) -> str:
    text = "absent" if value is _ABSENT else str(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."


def as_json(value: Any) -> Any:
    """Return dataclasses, arrays' numbers and containers as JSON holds them; NaN becomes None.

    >>> as_json({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    plain: Any = value
    if dataclasses.is_dataclass(value):
        return plain.to_dict() if hasattr(plain, "to_dict") else fields_as_json(plain)
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    plain = plain.item() if hasattr(plain, "item") else plain  # of NumPy
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def fields_as_json(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as `as_json` does."""
    return {each.name: as_json(getattr(value, each.name)) for each in dataclasses.fields(value)}


def code_values(codes: Sequence[str]) -> list[int] | list[str]:
    """Return codes of discrete actions as policies give them: numbers if all are whole, else text.

    >>> code_values(("0", "2")), code_values(("left", "2"))
    ([0, 2], ['left', '2'])
    """
    if all(re.fullmatch("-?[0-9]{1,15}", code) for code in codes):
        return [int(code) for code in codes]
    return list(codes)
