"""JSON of our own files as the dataclasses it was made of; what does not fit is named."""

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from puorl.core.errors import DataError, PuorlError

T = TypeVar("T")
_PLAIN = {int: "a whole number", str: "text", bool: "true or false"}


class _Misfit(Exception):
    """A value is not what its place is for."""


def read_object(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object.

    Raises:
        DataError: Missing, unreadable, no JSON, or something else than an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected a JSON file, got: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def decoded(kind: type[T], content: Any, path: Path) -> T:
    """A dataclass made of JSON; null is NaN where a number is due, unknown names are passed over.

    Args:
        kind: The dataclass.
        content: What was read.
        path: From where; messages start with it.

    Raises:
        DataError: Something is missing or of another type.
    """
    try:
        return _decoded(kind, content, "")
    except (_Misfit, PuorlError, RecursionError) as error:
        raise DataError(
            f"{path}: expected what puorl wrote, got: {error}; the file is damaged or of another "
            "version, so make it again"
        ) from error


def _decoded(kind: Any, value: Any, place: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _made(kind, value, place)
    if origin in (Union, types.UnionType):
        return None if value is None else _decoded(inner[0], value, place)
    if origin is tuple:
        return _listed(inner, value, place)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _misfit(place, "named values", value)
        return {name: _decoded(inner[1], each, f"{place}.{name}") for name, each in value.items()}
    if origin is Literal:
        if value not in inner:
            raise _misfit(place, f"one of {', '.join(inner)}", value)
        return value
    if kind is float:
        return _number(value, place)
    if type(value) is not kind:  # a flag is no number here
        raise _misfit(place, _PLAIN[kind], value)
    return value


def _made(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise _misfit(place, "named values", value)
    hints, given = get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        inside = f"{place}.{field.name}" if place else field.name
        if field.name in value:
            given[field.name] = _decoded(hints[field.name], value[field.name], inside)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Misfit(f"no {inside}")
    return kind(**given)


def _listed(inner: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _misfit(place, "a list", value)
    kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
    if len(kinds) != len(value):
        raise _misfit(place, f"{len(kinds)} values", value)
    pairs = enumerate(zip(kinds, value, strict=True))
    return tuple(_decoded(kind, each, f"{place}[{number}]") for number, (kind, each) in pairs)


def _number(value: Any, place: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _misfit(place, "a number", value)
    try:
        return float(value)
    except OverflowError as error:
        raise _misfit(place, "a number", value) from error


def _misfit(place: str, expected: str, value: Any) -> _Misfit:
    return _Misfit(f"{place or 'the file'} is not {expected} but {str(value)[:60]!r}")
