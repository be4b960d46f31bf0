"""Two sets of settings side by side: what differs, said so that a user finds the option."""

import re
from collections.abc import Mapping
from typing import Any

_MOST_SHOWN = 40
_HASH = re.compile(r"[0-9a-f]{32,}")
_ABSENT = object()


def told(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs, in a few words each; empty where nothing does.

    Hashes are only said to differ; of long values the beginning is shown.

    >>> told({"steps": 10, "gamma": 0.9, "data": "0" * 32}, {"steps": 20, "data": "1" * 32})
    'steps was 10, is 20; gamma was 0.9, is absent; data differs'
    """
    names = dict.fromkeys([*earlier, *now])
    pairs = {name: (earlier.get(name, _ABSENT), now.get(name, _ABSENT)) for name in names}
    return "; ".join(_one(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])


def _one(name: str, earlier: Any, now: Any) -> str:
    if any(isinstance(value, str) and _HASH.fullmatch(value) for value in (earlier, now)):
        return f"{name} differ" if name.endswith("s") else f"{name} differs"
    return f"{name} was {_short(earlier)}, is {_short(now)}"


def _short(value: Any) -> str:
    text = "absent" if value is _ABSENT else str(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."
