"""Settings as text, ``name=value``, parsed to the types of a dataclass's fields."""

import difflib
import math
from collections.abc import Sequence
from typing import Any, get_type_hints

from puorl.core.errors import ConfigError
from puorl.core.formatting import parse_count
from puorl.rl.learner import presets

_LARGEST = 3.4e38
"""Learners compute with float32."""
_MAY_BE_NEGATIVE = ("log_std_offset",)
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_settings(learner: str, words: Sequence[str]) -> dict[str, Any]:
    """Parse settings of a learner, each to the type of its field.

    Args:
        learner: Name of the learner.
        words: Each ``name=value``: ``gamma=0.98``, ``layer_norm=false``, ``hidden=64,64``.

    Raises:
        ConfigError: No such learner or setting, or a value of another type.
    """
    return parse_fields(learner, type(presets(learner)["default"]), words)


def parse_fields(subject: str, kind: type, words: Sequence[str]) -> dict[str, Any]:
    """Parse words ``name=value``, each to the type of the field of a dataclass.

    Args:
        subject: What has these settings, for messages.
        kind: The dataclass.
        words: E.g. ``gamma=0.98``, ``layer_norm=false``, ``hidden=64,64``.

    Raises:
        ConfigError: No such field, or a value of another type.
    """
    types = get_type_hints(kind)
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        name = name.replace("-", "_")
        if not equals:
            raise ConfigError(f"--set: expected name=value, got {word!r}")
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(
                f"--set: expected a setting of {subject} among {', '.join(sorted(types))}, "
                f"got {name!r}{hint}"
            )
        if name in settings:
            raise ConfigError(f"--set: expected {name} once, got it twice")
        settings[name] = _typed(name, types[name], text)
    return settings


def _typed(name: str, kind: Any, text: str) -> Any:
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise ConfigError(f"--set {name}: expected true or false, got {text!r}")
        return _FLAGS[text.lower()]
    if kind is int:
        return _count(name, text)
    if kind is float:
        return _number(name, text)
    if kind == tuple[int, ...]:
        return tuple(_count(name, part) for part in text.split(","))
    return text


def _count(name: str, text: str) -> int:
    count = parse_count(text, name=f"--set {name}")
    if count < 1:
        raise ConfigError(f"--set {name}: expected 1 or more, got {text!r}")
    return count


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    limits = (
        (abs(number) <= _LARGEST, "a number such as 0.5 or 3e-4"),  # NaN fails, too
        (number > 0.0 or not name.endswith("learning_rate"), "more than 0"),
        (number >= 0.0 or name in _MAY_BE_NEGATIVE, "0 or more"),
        (number <= 1.0 or name != "tau", "a fraction from 0 to 1"),
        # Values of an endless task are bounded only where later rewards count for less.
        (number < 1.0 or name != "gamma", "0 or more and less than 1"),
    )
    for holds, expected in limits:
        if not holds:
            raise ConfigError(f"--set {name}: expected {expected}, got {text!r}")
    return number
