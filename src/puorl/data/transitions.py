"""Transitions: what a row is, and its provenance: where it came from and what was done to it."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from puorl.core.errors import DataError

_MATRICES = ("obs", "action", "next_obs", "next_action")


_FLAGS = ("terminal", "timeout")


@dataclass(frozen=True, eq=False, kw_only=True)
class Transitions:
    """Rows (s, a, r, s') with what is known about their ends.

    All arrays are read-only. Floating point stays as wide as it came: float32 or float64.
    """

    obs: np.ndarray
    """(n, d) float. State before the action."""
    action: np.ndarray
    """(n, m) float. Action as intended by the controller."""
    next_obs: np.ndarray
    """(n, d) float. State after the action; NaN in a terminal row whose end was not recorded."""
    reward: np.ndarray | None = None
    """(n,) float, or None where none was logged: the filter works without, training does not."""
    terminal: np.ndarray
    """(n,) bool. The task ended here; the only flag that stops bootstrapping."""
    timeout: np.ndarray
    """(n,) bool. The record was cut after this row although the task went on."""
    episode: np.ndarray | None = None
    """(n,) int64. Which episode a row belongs to."""
    time: np.ndarray | None = None
    """(n,) float64. Time stamp, in the log's own unit."""
    next_action: np.ndarray | None = None
    """(n, m) float. Action that followed; NaN where there was none."""

    def __post_init__(self) -> None:
        """Freeze every array; refuse shapes that do not fit together."""
        for name, array in self.arrays().items():
            ndim = 2 if name in _MATRICES else 1
            if array.ndim != ndim or len(array) != len(self.obs):
                raise DataError(
                    f"{name}: expected {ndim}-dimensional with {len(self.obs)} rows (as obs), "
                    f"got shape {array.shape}"
                )
            kind = "bool" if name in _FLAGS else "int" if name == "episode" else "float"
            if array.dtype.kind != kind[0]:
                raise DataError(f"{name}: expected {kind}, got dtype {array.dtype}")
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        for name, twin in (("next_obs", self.obs), ("next_action", self.action)):
            array = getattr(self, name)
            if array is not None and array.shape != twin.shape:
                raise DataError(f"{name}: expected shape {twin.shape}, got {array.shape}")

    def __len__(self) -> int:
        return len(self.obs)

    def __getitem__(self, rows: slice | np.ndarray) -> "Transitions":
        """Rows by slice (a view), by mask or by index array (a copy)."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
        return Transitions(**{name: array[rows] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields that are present, by name, in their declared order."""
        every = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: array for name, array in every.items() if array is not None}

    @property
    def next_known(self) -> np.ndarray:
        """(n,) bool. Whether the row's next state was recorded."""
        return np.logical_not(np.isnan(self.next_obs).any(axis=1))

    @property
    def nbytes(self) -> int:
        """Bytes held by all arrays."""
        return sum(array.nbytes for array in self.arrays().values())

    def __reduce__(self) -> tuple[Any, ...]:
        """Through the constructor: what another process receives is frozen as well."""
        return _rebuilt, (self.arrays(),)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k}: {v.shape} {v.dtype}" for k, v in self.arrays().items())
        return f"Transitions({shapes})"


def _rebuilt(arrays: dict[str, np.ndarray]) -> Transitions:
    return Transitions(**arrays)


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
    action_range: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Least and largest value of each action component, where the source says so."""
    missing: tuple[str, ...] = ()
    """Fields that the source did not have."""
    notes: tuple[str, ...] = ()
    """What a person should know about how the rows were read."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` is its inverse."""
        content = dataclasses.asdict(self)
        if self.action_range is None:
            del content["action_range"]  # as in files from before there was one
        return content

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
        if isinstance(lists.get("action_range"), tuple):
            ends = lists["action_range"]
            lists["action_range"] = tuple(tuple(e) if isinstance(e, list) else e for e in ends)
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
    if name == "action_range":
        return value is None or _is_range(value)
    if name == "recipe":
        return value is None or isinstance(value, Mapping)
    return isinstance(value, str) or (value is None and name != "format")


def _is_range(value: Any) -> bool:
    if not (isinstance(value, tuple) and len(value) == 2):
        return False
    if not all(isinstance(end, tuple) for end in value) or len(value[0]) != len(value[1]):
        return False
    return all(isinstance(x, float) and math.isfinite(x) for end in value for x in end)
