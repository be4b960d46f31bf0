"""The contract of a method and the registry of all methods.

A method turns a split into a training set: which rows, with which rewards and weights, drawn how.
Methods and learners do not depend on each other, so every method combines with every learner.
To add a method, write its class in a new module and add an entry to `METHODS`.
"""

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Self

from puorl.core.errors import ConfigError
from puorl.core.formatting import check_choice
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet


@dataclass(frozen=True)
class Method(ABC):
    """Base class of methods; a subclass is a frozen dataclass whose fields are its settings."""

    name: ClassVar[str]

    def __post_init__(self) -> None:  # noqa: B027
        """Check the settings; a class that has some extends it."""

    @abstractmethod
    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """Make the training set; the same split, settings and seed give the same result."""

    def settings(self) -> dict[str, Any]:
        """Return all settings, defaults included, JSON-ready; two equal ones give equal sets."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Self:
        """Make the method with these settings instead of its defaults.

        Raises:
            ConfigError: Unknown setting, or a value out of range.
        """
        fields = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(settings) - set(fields))
        if unknown:
            known = f"settings among {', '.join(fields)}" if fields else "no settings"
            raise ConfigError(f"{cls.name}: expected {known}; got {', '.join(unknown)}")
        return cls(**settings)


@dataclass(frozen=True)
class MethodEntry:
    """A registered method: its class, and facts that are needed without importing it."""

    path: str
    """Module and class."""
    title: str = ""
    """Name in tables."""
    needs_truth: bool = False
    """Whether it reads which rows are the target's: an upper bound, not usable in practice."""
    has_filter: bool = False
    """Whether it selects unlabelled rows, to be graded by benchmarks; its metadata then has
    ``preset``, ``seed``, ``alpha`` and ``alpha_interval``."""
    shares_training_by: Literal["labelled", "target"] | None = None
    """The rows that alone decide its training set (None: all): equal ones share a training."""
    resumable: bool = False
    """Whether `Method.prepare` takes ``checkpoint``, a folder to store its progress in."""
    default_seconds: float = 0.0
    """Typical time of `Method.prepare` at the benchmark's size, until one was measured."""
    is_published: bool = True
    """Whether the PUORL paper has it: these are compared where no methods are named."""

    def load(self) -> type[Method]:
        """Import the class."""
        module, _, kind = self.path.rpartition(".")
        return getattr(import_module(module), kind)


def _by_labels(**known: MethodEntry) -> dict[str, MethodEntry]:
    """Register methods a second and a third time: with labels of a filter and with the truth."""
    made = {}
    for name, entry in known.items():
        module, _, kind = entry.path.rpartition(".")
        for label, title in (("pu", "PU"), ("oracle", "Oracle")):
            made[f"{label}_{name}"] = dataclasses.replace(
                entry,
                path=f"{module}.{title}{kind}",
                title=f"{title} + {entry.title}",
                needs_truth=label == "oracle",
                resumable=label == "pu",
                default_seconds=entry.default_seconds + 60.0 * (label == "pu"),
                is_published=False,
            )
    return made


_DARA = MethodEntry("puorl.methods.dara.DARA", "DARA", default_seconds=20.0)
_IGDF = MethodEntry("puorl.methods.igdf.IGDF", "IGDF", default_seconds=20.0)
_OTDF = MethodEntry("puorl.methods.otdf.OTDF", "OTDF", default_seconds=90.0, is_published=False)
_BOSA = MethodEntry("puorl.methods.bosa.BOSA", "BOSA", default_seconds=60.0, is_published=False)
_SRPO = MethodEntry("puorl.methods.srpo.SRPO", "SRPO", default_seconds=60.0, is_published=False)
METHODS = {
    "olp": MethodEntry("puorl.methods.baselines.OLP", "OLP", shares_training_by="labelled"),
    "sharing_all": MethodEntry("puorl.methods.baselines.SharingAll", "Sharing-All"),
    "dara": _DARA,
    "igdf": _IGDF,
    "pu": MethodEntry(
        "puorl.methods.pu.PU", "PU", has_filter=True, resumable=True, default_seconds=60.0
    ),
    "oracle": MethodEntry(
        "puorl.methods.baselines.Oracle", "Oracle", needs_truth=True, shares_training_by="target"
    ),
    **_by_labels(share=MethodEntry("puorl.methods.share.Share", "sharing", default_seconds=180.0)),
    "otdf": _OTDF,
    "bosa": _BOSA,
    "srpo": _SRPO,
    **_by_labels(dara=_DARA, igdf=_IGDF, otdf=_OTDF, bosa=_BOSA, srpo=_SRPO),
}
"""Methods by name, in the order of tables; classes are imported when first used."""


def find(name: str) -> type[Method]:
    """Return the class of a method.

    Raises:
        ConfigError: No method has that name.
    """
    check_choice("method", name, METHODS)
    return METHODS[name].load()


def make(name: str, **settings: Any) -> Method:
    """Make a method.

    >>> make("dara", eta=0.2).settings()["eta"]
    0.2

    Args:
        name: One of `METHODS`.
        **settings: Fields of its class; for ``pu`` also fields of the filter's config.

    Raises:
        ConfigError: Unknown method or setting, or a value out of range.
    """
    return find(name).configured(settings)
