"""Learn policies from rows: learners, training side by side, runs in folders.

Names are loaded when first used: importing this package does not import JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puorl.rl.learner import LEARNERS, Learner, make, presets
    from puorl.rl.metrics import MLflow, Sink, TensorBoard, WandB
    from puorl.rl.policy import NumpyPolicy, Policy
    from puorl.rl.run import RunSpec, TrainResult, checkpoint_interval
    from puorl.rl.train import train_many

__all__ = [
    "LEARNERS",
    "Learner",
    "MLflow",
    "NumpyPolicy",
    "Policy",
    "RunSpec",
    "Sink",
    "TensorBoard",
    "TrainResult",
    "WandB",
    "checkpoint_interval",
    "make",
    "presets",
    "train_many",
]

_HOME = {
    "LEARNERS": "learner",
    "Learner": "learner",
    "MLflow": "metrics",
    "NumpyPolicy": "policy",
    "Policy": "policy",
    "RunSpec": "run",
    "Sink": "metrics",
    "TensorBoard": "metrics",
    "TrainResult": "run",
    "WandB": "metrics",
    "checkpoint_interval": "run",
    "make": "learner",
    "presets": "learner",
    "train_many": "train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'puorl.rl' has no attribute {name!r}")
    return getattr(import_module(f"puorl.rl.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
