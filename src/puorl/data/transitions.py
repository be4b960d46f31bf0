"""Transitions: what a row is. Arrays side by side, one leading row axis, never changed in place."""

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
