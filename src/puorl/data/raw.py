"""What a reader finds in a file, before any judgement: arrays under our names, nothing repaired."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from puorl.data.provenance import Provenance

FIELDS = (
    "obs",
    "action",
    "reward",
    "next_obs",
    "terminal",
    "timeout",
    "episode",
    "time",
    "next_action",
)
"""Names that a row may carry, in the order in which we list them."""
MATRICES = ("obs", "action", "next_obs", "next_action")
"""Fields with several values a row; the others have one."""


SOURCE_ROW = "source_row"
"""Column that holds each row's number in its file, where rows of the file were dropped."""


@dataclass(frozen=True, kw_only=True)
class FieldNames:
    """Where to find each field: a key in an array file, or column names and patterns in a table.

    A field left at None is looked for under its usual names.
    """

    obs: str | Sequence[str] | None = None
    """State columns, e.g. ``"obs_*"`` or ``["angle", "speed"]``."""
    action: str | Sequence[str] | None = None
    """Action columns, e.g. ``"act_*"``."""
    reward: str | None = None
    """Reward column."""
    next_obs: str | Sequence[str] | None = None
    """Next-state columns; without them the next row of the same episode is used."""
    terminal: str | None = None
    """Flag: the task ended after this row."""
    timeout: str | None = None
    """Flag: the record was cut after this row although the task went on."""
    episode: str | None = None
    """Episode id: numbers or text."""
    time: str | None = None
    """Time stamp: seconds, any other number, or an ISO date."""
    next_action: str | Sequence[str] | None = None
    """Next-action columns."""
    label: str | None = None
    """Which rows are known to be the target's: an expression such as ``"checked == 1"``."""


@dataclass(kw_only=True)
class RawRows:
    """Arrays as they stand in one file, under our field names."""

    format: str
    """Short name of the format, e.g. ``"csv"``."""
    arrays: dict[str, np.ndarray]
    """Field name to array; shapes and dtypes still as in the file."""
    keys: dict[str, str] = field(default_factory=dict)
    """Field with one value a row to its name in the file: label conditions may use either."""
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """Every other column of the file that has one value a row: ids, labels, text."""
    obs_names: tuple[str, ...] = ()
    """Names of the state columns, where the file has them."""
    action_names: tuple[str, ...] = ()
    """Names of the action columns, where the file has them."""
    action_range: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Least and largest value of each action component, where the file says so."""
    notes: list[str] = field(default_factory=list)
    """What a person should know about how the file was read."""
    provenance: Provenance | None = None
    """The origin stored inside a file that puorl wrote; such a file is restored as it was."""
