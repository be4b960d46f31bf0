"""Columns that a model was fitted on: new data is compared with them by name, and put in order."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.transitions import Transitions
from puorl.data.validate import listed


class FittedColumns(NamedTuple):
    """States and actions of the rows of a fit."""

    num_obs: int
    num_actions: int
    obs_names: tuple[str, ...] = ()
    """In the order of the fit; empty where the data had none."""
    action_names: tuple[str, ...] = ()
    """Empty for discrete actions, which have codes."""
    codes: tuple[str, ...] | None = None
    """Of discrete actions."""

    @classmethod
    def of(cls, data: Dataset) -> "FittedColumns":
        """Return the columns of a dataset."""
        origin, codes = data.provenance, data.action_codes
        names = origin.action_names if codes is None else ()
        return cls(data.obs.shape[1], data.action.shape[1], origin.obs_names, names, codes)

    def order(self, data: Dataset) -> Dataset:
        """Return new rows with their columns in the order of the fit.

        Names that the fit or the data lacks are not compared.

        Raises:
            DataError: Other columns, sizes or codes.
        """
        if self.codes is not None and data.action_codes != self.codes:
            data = data.with_action_codes(self.codes)
        origin = data.provenance
        given = origin.action_names if data.action_codes is None else ()
        owner = "the filter was fitted on"
        obs = places("obs", self.obs_names, origin.obs_names, owner)
        action = places("action", self.action_names, given, owner)
        self._check_sizes(data)
        if obs is None and action is None:
            return data
        return _in_order(
            data, *(None if each is None else each.argsort() for each in (obs, action))
        )

    def _check_sizes(self, data: Dataset) -> None:
        got = data.obs.shape[1], data.action.shape[1]
        if got != (self.num_obs, self.num_actions):
            raise DataError(
                f"expected {self.num_obs} state and {self.num_actions} action components, as the "
                f"filter was fitted on, got {got[0]} and {got[1]}; name the same columns with "
                "--obs and --action (obs=, action=)"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready content; `stored` is its inverse."""
        return self._asdict()

    @classmethod
    def stored(cls, content: Mapping[str, Any] | None) -> "FittedColumns | None":
        """Build from the output of `to_dict`; None for models from before columns were stored."""
        if content is None:
            return None
        held: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content.items()
        }
        return cls(**held)


def places(field: str, own: Sequence[str], given: Sequence[str], owner: str) -> np.ndarray | None:
    """(k,) int64. Place among a model's own columns of each given one; None if all are in place.

    Args:
        field: ``obs`` or ``action``.
        own: Columns of the fit; not compared if there are none.
        given: Columns of the data; not compared if there are none.
        owner: What was fitted, with its verb.

    Raises:
        DataError: The columns are not the same.
    """
    if not own or not given or tuple(own) == tuple(given):
        return None
    lacks, more = ([n for n in x if n not in y] for x, y in ((own, given), (given, own)))
    if lacks or more or len(own) != len(given):
        parts = [f"without {listed(lacks)}"] * bool(lacks) + [f"with {listed(more)}"] * bool(more)
        raise DataError(
            f"{field}: expected the columns that {owner} ({listed(own)}), got "
            f"{listed(given)}, {' and '.join(parts)}; name the same columns with --{field} "
            f"({field}=), or rename those of the log"
        )
    return np.array([own.index(name) for name in given])


def _in_order(data: Dataset, obs: np.ndarray | None, action: np.ndarray | None) -> Dataset:
    fields, origin = data.rows.arrays(), data.provenance
    if obs is not None:
        fields |= {name: fields[name][:, obs] for name in ("obs", "next_obs")}
        origin = dataclasses.replace(origin, obs_names=tuple(origin.obs_names[k] for k in obs))
    if action is not None:
        for name in ("action", "next_action"):
            if name in fields:
                fields[name] = fields[name][:, action]
        names, limits = tuple(origin.action_names[k] for k in action), origin.action_range
        if limits is not None:
            limits = tuple(tuple(end[k] for k in action) for end in limits)
        origin = dataclasses.replace(origin, action_names=names, action_range=limits)
    return Dataset(Transitions(**fields), data.columns, origin)
