"""Offline reinforcement learning with domain-unlabelled data.

Names are loaded when first used: importing puorl costs nothing and does nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "evaluate",
    "load",
    "make_env",
    "make_split",
    "save",
    "train",
    "train_many",
]

if TYPE_CHECKING:
    from puorl.core.errors import ConfigError, DataError, PuorlError
    from puorl.data.dataset import Dataset
    from puorl.data.formats import load, save
    from puorl.data.split import PUSplit, make_split
    from puorl.data.training_set import TrainingSet
    from puorl.envs.collect import collect
    from puorl.envs.evaluate import evaluate
    from puorl.envs.gymnasium_envs import make_env
    from puorl.pu.filter import DomainFilter
    from puorl.rl.policy import Policy
    from puorl.rl.train import train, train_many

_HOME = {
    "ConfigError": "puorl.core.errors",
    "DataError": "puorl.core.errors",
    "Dataset": "puorl.data.dataset",
    "DomainFilter": "puorl.pu.filter",
    "PUSplit": "puorl.data.split",
    "Policy": "puorl.rl.policy",
    "PuorlError": "puorl.core.errors",
    "TrainingSet": "puorl.data.training_set",
    "collect": "puorl.envs.collect",
    "evaluate": "puorl.envs.evaluate",
    "load": "puorl.data.formats",
    "make_env": "puorl.envs.gymnasium_envs",
    "make_split": "puorl.data.split",
    "save": "puorl.data.formats",
    "train": "puorl.rl.train",
    "train_many": "puorl.rl.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'puorl' has no attribute {name!r}; it has {', '.join(_HOME)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
