"""Options that are on or off."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from puorl.core.errors import ConfigError
from puorl.core.formatting import parse_count
from puorl.data.dataset import Dataset
from puorl.data.formats import load
from puorl.data.validate import MATRICES

Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
"""Off unless it is given; the help need not say that of each."""


def _count(words: list[str]) -> int:
    try:
        return parse_count(words[0])
    except ConfigError as error:
        raise ValueError(str(error)) from error  # the parser adds the option's name


Count = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="COUNT",
        instance_from_str=_count,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [f"{value:_}"],
    ),
]
"""A whole number that may be written 1000000, 1_000_000, 1e6 or 1M."""

Paths = tyro.conf.Positional[
    Annotated[tuple[str, ...], tyro.conf.arg(metavar="PATH...", help_behavior_hint="")]
]
"""Files, globs and folders."""

_Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
_Names = Annotated[str | None, tyro.conf.arg(metavar="NAMES", help_behavior_hint="")]
_Format = Annotated[str | None, tyro.conf.arg(metavar="FORMAT", help_behavior_hint="")]


@dataclass(frozen=True)
class DataOptions:
    """Where to find each field, when it is not under a usual name (NAMES: parted by commas)."""

    obs: _Names = None
    """State: a key, or columns and patterns, e.g. 'obs_*' or angle,speed."""
    action: _Names = None
    """Action, e.g. 'act_*'."""
    reward: _Name = None
    """Reward; may be absent."""
    next_obs: _Names = None
    """Next state; without it the next row of the episode is used."""
    terminal: _Name = None
    """Flag: the task ended after this row."""
    timeout: _Name = None
    """Flag: the record was cut after this row although the task went on."""
    episode: _Name = None
    """Episode id: numbers or text."""
    time: _Name = None
    """Time stamp."""
    format: _Format = None
    """hdf5, npz, csv, parquet or minari, when the file's name does not tell."""

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for `puorl.data.formats.load` and `read_labels`."""
        return {
            name: _listed(value) if name in MATRICES else value
            for name, value in vars(self).items()
        }

    def load(self, paths: Sequence[str]) -> Dataset:
        """Read all paths as one dataset."""
        return load(list(paths), **self.arguments())


def _listed(names: str | None) -> str | list[str] | None:
    """Several names come as a list, one as it is: a key of an array file or one pattern."""
    if names is None or "," not in names:
        return names
    return [name.strip() for name in names.split(",") if name.strip()]
