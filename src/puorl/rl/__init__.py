"""Learn policies from rows: learners, training side by side, runs in folders.

Names are loaded when first used: importing this package does not import JAX.
"""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.rl.learner import DISCRETE_LEARNERS, LEARNERS, Learner, form_of, make, presets
    from puorl.rl.metrics import MLflow, Sink, TensorBoard, WandB
    from puorl.rl.policy import NumpyPolicy, Policy
    from puorl.rl.run import RunSpec, TrainResult, checkpoint_interval
    from puorl.rl.train import train_many

__all__ = [
    "DISCRETE_LEARNERS",
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
    "form_of",
    "make",
    "presets",
    "train_many",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "learner": "DISCRETE_LEARNERS LEARNERS Learner form_of make presets",
        "metrics": "MLflow Sink TensorBoard WandB",
        "policy": "NumpyPolicy Policy",
        "run": "RunSpec TrainResult checkpoint_interval",
        "train": "train_many",
    },
)
