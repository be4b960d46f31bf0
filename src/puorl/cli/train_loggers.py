"""Where `puorl train` sends its metrics besides the run's folder."""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from puorl.core.errors import require
from puorl.core.files import read_json, write_json
from puorl.rl.metrics import MLflow, Sink, TensorBoard, WandB

Logger = Literal["none", "tensorboard", "wandb", "mlflow"]
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}
TRACKED = "logger.json"
"""In the run's folder: the tracker's id of the run, so that a resumed one goes on there."""


class LateSink:
    """A sink that is opened by its first write: until then the run's folder must stay empty."""

    def __init__(self, name: str, folder: Path, *, from_step: int | None) -> None:
        """Say where to log to.

        Args:
            name: Which tracker: a `Logger`, but not ``none``.
            folder: The run's; its name is the run's name there.
            from_step: Updates behind a restored state: what was logged later is logged again.

        Raises:
            MissingExtraError: The tracker's package is not installed.
        """
        require(_PACKAGES[name], extra=name, purpose=f"--logger {name}")
        openers: dict[str, Callable[[], Sink]] = {
            "tensorboard": lambda: TensorBoard(folder / "tensorboard", from_step=from_step),
            "wandb": lambda: _open_wandb(folder),
            "mlflow": lambda: _open_mlflow(folder),
        }
        self._open = openers[name]
        self._sink: Sink | None = None

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Take the values of ``lane`` after ``step`` updates."""
        if self._sink is None:
            self._sink = self._open()
        self._sink.write(step, lane, values)

    def close(self) -> None:
        """Finish; nothing is written afterwards."""
        if self._sink is not None:
            self._sink.close()


def _open_wandb(folder: Path) -> Sink:
    number = _tracked(folder, "wandb") or secrets.token_hex(4)
    _track(folder, "wandb", number)
    name = folder.resolve().name
    return WandB(project="puorl", name=name, dir=str(folder), id=number, resume="allow")


def _open_mlflow(folder: Path) -> Sink:
    sink = MLflow(name=folder.resolve().name, run_id=_tracked(folder, "mlflow"))
    _track(folder, "mlflow", sink.run_id)
    return sink


def _tracked(folder: Path, name: str) -> str | None:
    path = folder / TRACKED
    return read_json(path).get(name) if path.exists() else None


def _track(folder: Path, name: str, number: str) -> None:
    path = folder / TRACKED
    known = read_json(path) if path.exists() else {}
    write_json(path, {**known, name: number}, force=True)
