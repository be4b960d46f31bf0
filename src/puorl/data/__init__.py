"""Data: formats, datasets, labels, splits and training sets. Names are loaded when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puorl.data.dataset import Dataset
    from puorl.data.formats import FORMATS, Format, load, save
    from puorl.data.labels import LabelledRows, read_keep_list, read_labels, write_keep_list
    from puorl.data.split import PUSplit, make_split
    from puorl.data.training_set import TrainingSet
    from puorl.data.transitions import Provenance, Transitions

_NAMES = {
    "dataset": ("Dataset",),
    "formats": ("FORMATS", "Format", "load", "save"),
    "labels": ("LabelledRows", "read_keep_list", "read_labels", "write_keep_list"),
    "split": ("PUSplit", "make_split"),
    "training_set": ("TrainingSet",),
    "transitions": ("Provenance", "Transitions"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [
    "FORMATS",
    "Dataset",
    "Format",
    "LabelledRows",
    "PUSplit",
    "Provenance",
    "TrainingSet",
    "Transitions",
    "load",
    "make_split",
    "read_keep_list",
    "read_labels",
    "save",
    "write_keep_list",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'puorl.data' has no attribute {name!r}")
    return getattr(import_module(f"puorl.data.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
