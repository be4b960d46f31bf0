"""What `--set name=value` means: values typed by the fields of a learner's config."""

import difflib
import math
from collections.abc import Sequence
from typing import Any, get_type_hints

from puorl.core.errors import ConfigError
from puorl.core.formatting import parse_count

_LARGEST = 3.4e38
"""Learners compute with float32."""
_MAY_BE_NEGATIVE = ("log_std_offset",)
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_settings(learner: str, words: Sequence[str]) -> dict[str, Any]:
    """Settings by name, each of the type that its field has.

    Args:
        learner: Whose settings they are.
        words: Each ``name=value``: ``gamma=0.98``, ``layer_norm=false``, ``hidden=64,64``.

    Raises:
        ConfigError: No such learner or setting, or a value of another type.
    """
    from puorl.rl.learner import presets

    types = get_type_hints(type(presets(learner)["default"]))
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
                f"--set: expected a setting of {learner} among {', '.join(sorted(types))}, "
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
    if not abs(number) <= _LARGEST:  # nor is NaN
        raise ConfigError(f"--set {name}: expected a number such as 0.5 or 3e-4, got {text!r}")
    if number <= 0.0 and name.endswith("learning_rate"):
        raise ConfigError(f"--set {name}: expected more than 0, got {text!r}")
    if number < 0.0 and name not in _MAY_BE_NEGATIVE:
        raise ConfigError(f"--set {name}: expected 0 or more, got {text!r}")
    if number > 1.0 and name == "tau":
        raise ConfigError(f"--set tau: expected a share from 0 to 1, got {text!r}")
    # Values of an endless task have a limit only where later rewards count for less.
    if name == "gamma" and not 0.0 <= number < 1.0:
        raise ConfigError(f"--set gamma: expected 0 or more and less than 1, got {text!r}")
    return number
