"""Data: formats, datasets, labels, splits and training sets. Names are loaded when first used."""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.data.dataset import Dataset
    from puorl.data.draw import make_split
    from puorl.data.formats import FORMATS, Format, load, save
    from puorl.data.labels import LabelledRows, read_keep_list, read_labels, write_keep_list
    from puorl.data.lazy import LazyDataset
    from puorl.data.split import PUSplit
    from puorl.data.training_files import read_training_set
    from puorl.data.training_set import TrainingSet
    from puorl.data.transitions import Provenance, Transitions

__all__ = [
    "FORMATS",
    "Dataset",
    "Format",
    "LabelledRows",
    "LazyDataset",
    "PUSplit",
    "Provenance",
    "TrainingSet",
    "Transitions",
    "load",
    "make_split",
    "read_keep_list",
    "read_labels",
    "read_training_set",
    "save",
    "write_keep_list",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "dataset": "Dataset",
        "draw": "make_split",
        "formats": "FORMATS Format load save",
        "lazy": "LazyDataset",
        "labels": "LabelledRows read_keep_list read_labels write_keep_list",
        "split": "PUSplit",
        "training_files": "read_training_set",
        "training_set": "TrainingSet",
        "transitions": "Provenance Transitions",
    },
)
