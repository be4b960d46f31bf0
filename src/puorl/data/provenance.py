"""Where rows came from."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from puorl.core.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where rows came from and what was done to them; never part of the fingerprint."""

    source: tuple[str, ...] = ()
    """Files or generators, in order."""
    format: str = "arrays"
    domain: str | None = None
    """Name of the domain, where one is known."""
    behaviour: str | None = None
    """Name of the policy that acted, where one is known."""
    recipe: Mapping[str, Any] | None = None
    """All that is needed to make the rows again, for data we generate."""
    obs_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Fields that the source did not have."""
    notes: tuple[str, ...] = ()
    """What a person should know about how the rows were read."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Provenance":
        """Build from `to_dict`'s output; unknown keys and wrong values are an error.

        Raises:
            DataError: This is not what `to_dict` gives.
        """
        if not isinstance(content, Mapping):
            raise DataError(f"provenance: expected named values, got {type(content).__name__}")
        lists: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content.items()
        }
        try:
            made = cls(**lists)
        except TypeError as error:
            raise DataError(
                f"provenance: expected the fields of this version, got: {error}"
            ) from error
        for name, value in vars(made).items():
            if not _fits(name, value):
                raise DataError(f"provenance: {name} cannot be {value!r}; the record is damaged")
        return made

    def to_json(self) -> str:
        """One line of JSON, as stored inside the files we write.

        Raises:
            DataError: The recipe holds what JSON cannot.
        """
        try:
            return json.dumps(self.to_dict())
        except (TypeError, ValueError) as error:
            raise DataError(
                f"provenance: expected plain values in the recipe, got: {error}"
            ) from error

    @classmethod
    def from_json(cls, text: Any, *, source: str) -> "Provenance":
        """Build from `to_json`'s output as found in a file.

        Args:
            text: What stands where the JSON should.
            source: The file; messages start with it.

        Raises:
            DataError: It is not what `to_json` writes.
        """
        if not isinstance(text, str):
            raise DataError(f"{source}: provenance: expected JSON text, got {type(text).__name__}")
        try:
            return cls.from_dict(json.loads(text))
        except (DataError, ValueError, RecursionError) as error:
            raise DataError(
                f"{source}: expected the origin that puorl wrote, got: {error}"
            ) from error


def _fits(name: str, value: Any) -> bool:
    if name in ("source", "obs_names", "action_names", "missing", "notes"):
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    if name == "recipe":
        return value is None or isinstance(value, Mapping)
    return isinstance(value, str) or (value is None and name != "format")
