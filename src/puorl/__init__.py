"""Offline reinforcement learning with domain-unlabelled data.

Names are loaded when first used: importing puorl costs nothing and does nothing.
"""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "DataError",
    "Dataset",
    "DomainFilter",
    "PUSplit",
    "Policy",
    "PuorlError",
    "TrainingSet",
    "__version__",
    "collect",
    "compare",
    "evaluate",
    "load",
    "make_env",
    "make_split",
    "open",
    "save",
    "train",
    "train_many",
]

if TYPE_CHECKING:
    from puorl.comparison.run import compare
    from puorl.core.errors import ConfigError, DataError, PuorlError
    from puorl.data.dataset import Dataset
    from puorl.data.draw import make_split
    from puorl.data.formats import load, save
    from puorl.data.lazy import open
    from puorl.data.split import PUSplit
    from puorl.data.training_set import TrainingSet
    from puorl.envs.collect import collect
    from puorl.envs.evaluate import evaluate
    from puorl.envs.gymnasium_envs import make_env
    from puorl.pu.filter import DomainFilter
    from puorl.rl.policy import Policy
    from puorl.rl.train import train, train_many

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "comparison.run": "compare",
        "core.errors": "ConfigError DataError PuorlError",
        "data.dataset": "Dataset",
        "data.draw": "make_split",
        "data.formats": "load save",
        "data.lazy": "open",
        "data.split": "PUSplit",
        "data.training_set": "TrainingSet",
        "envs.collect": "collect",
        "envs.evaluate": "evaluate",
        "envs.gymnasium_envs": "make_env",
        "pu.filter": "DomainFilter",
        "rl.policy": "Policy",
        "rl.train": "train train_many",
    },
)
