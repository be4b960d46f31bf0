"""The contract of a method, where each one is, and a split seen as target and source.

A method turns a split into what a learner trains on: which rows, with which rewards and weights,
drawn how. It knows nothing of learners, and they know nothing of it, so every method goes with
every learner. A method is a frozen dataclass whose fields are its settings.
"""

import dataclasses
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet


class Method(Protocol):
    """What every method has; no base class is needed to be one."""

    name: ClassVar[str]
    needs_truth: ClassVar[bool]
    """Whether it asks which rows are the target's: such a method is a yardstick, not a choice."""

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """What a learner is to train on; same split, settings and seed, same result."""
        ...


METHODS = {
    "olp": "puorl.methods.olp.OLP",
    "sharing_all": "puorl.methods.sharing_all.SharingAll",
    "dara": "puorl.methods.dara.DARA",
    "igdf": "puorl.methods.igdf.IGDF",
    "pu": "puorl.methods.pu.PU",
    "oracle": "puorl.methods.oracle.Oracle",
}
"""Method to its class, which is imported when first asked for."""


def find(name: str) -> type[Any]:
    """The class of that name: called with settings, it gives a `Method`.

    Raises:
        ConfigError: No method has that name.
    """
    if name not in METHODS:
        raise ConfigError(f"method: expected one of {', '.join(METHODS)}, got {name!r}")
    module, _, kind = METHODS[name].rpartition(".")
    return getattr(import_module(module), kind)


def make(name: str, **settings: Any) -> Method:
    """The method of that name.

    >>> make("dara", eta=0.2).name
    'dara'

    Args:
        name: One of `METHODS`.
        **settings: Fields of its class that are to differ from the defaults.

    Raises:
        ConfigError: Unknown method or setting, or a value that makes no sense.
    """
    kind = find(name)
    fields = [field.name for field in dataclasses.fields(kind)]
    unknown = sorted(set(settings) - set(fields))
    if unknown:
        known = f"settings among {', '.join(fields)}" if fields else "no settings"
        raise ConfigError(f"{name}: expected {known}; got {', '.join(unknown)}")
    return kind(**settings)


class Domains(NamedTuple):
    """Labelled rows as the target's and unlabelled ones as the source's, which is half a lie."""

    rows: np.ndarray
    """(k,) int64. Pool positions: the labelled rows, then the unlabelled ones."""
    x: np.ndarray
    """(k, d + m + d) float32. State, action, next state (the state again where it is unknown)."""
    known: np.ndarray
    """(k,) bool. Whether the next state is known: others can neither teach nor be judged."""
    target: np.ndarray
    """(p,) int32. Positions in ``rows`` of the labelled rows that are known."""
    source: np.ndarray
    """(u,) int32. Positions in ``rows`` of the unlabelled rows that are known."""


def as_domains(split: PUSplit, *, epsilon: float | None) -> Domains:
    """The split as methods for two labelled domains see it.

    Args:
        split: Labelled and unlabelled rows.
        epsilon: Subtract the states' mean over all rows, and divide by their deviation and this;
            None leaves states as they are. Actions stay as they are.

    Raises:
        DataError: One of the two has no row with a known next state.
    """
    rows = np.concatenate([split.labelled, split.unlabelled])
    shown = split.pool.rows[rows]
    known = shown.next_known
    before, after = shown.obs, np.where(known[:, None], shown.next_obs, shown.obs)
    if epsilon is not None:
        mean = before.mean(axis=0, dtype=np.float64)
        scale = before.std(axis=0, dtype=np.float64) + epsilon
        before, after = (before - mean) / scale, (after - mean) / scale
    x = np.concatenate([part.astype(np.float32) for part in (before, shown.action, after)], axis=1)
    places, num_labelled = np.flatnonzero(known).astype(np.int32), len(split.labelled)
    target, source = places[places < num_labelled], places[places >= num_labelled]
    for name, found in (("labelled", target), ("unlabelled", source)):
        if len(found) == 0:
            raise DataError(f"{name}: expected rows with a known next state, got none")
    return Domains(rows, x, known, target, source)


def check_counts(**counts: int) -> None:
    """Refuse settings that must be 1 or more and are not.

    Raises:
        ConfigError: The first such setting.
    """
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{name}: expected 1 or more, got {count}")
