"""Further sinks for the metrics of a training run: TensorBoard, W&B and MLflow."""

import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from puorl.core.errors import ConfigError, require
from puorl.core.files import read_json, write_json

LOGGER_IDS = "logger.json"
"""In the run's folder: the tracker's id of the run, so that a resumed run goes on there."""
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


@runtime_checkable
class Sink(Protocol):
    """Receives the metrics of one lane at one step, again and again, until it is closed."""

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Write the values of ``lane`` after ``step`` updates."""
        ...

    def close(self) -> None:
        """Finish; nothing is written afterwards."""
        ...


class TensorBoard:
    """Event files for TensorBoard: a scalar ``name/lane`` for every value."""

    def __init__(self, folder: str | os.PathLike[str], *, from_step: int | None = None) -> None:
        """Open a folder.

        Args:
            folder: Where the event files go.
            from_step: Updates made by a restored state: TensorBoard hides later points of earlier
                event files.

        Raises:
            MissingExtraError: tensorboardX is not installed.
        """
        module = require("tensorboardX", extra="tensorboard", purpose="writing for TensorBoard")
        purge_step = None if from_step is None else from_step + 1
        self._writer: Any = module.SummaryWriter(os.fspath(folder), purge_step=purge_step)

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Add a scalar for every value."""
        for name, value in values.items():
            self._writer.add_scalar(f"{name}/{lane}", float(value), int(step))
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases: a series ``name/lane`` for every value, over ``step``."""

    def __init__(self, **settings: Any) -> None:
        """Start a run.

        Args:
            **settings: For ``wandb.init``: project, name, config, mode="offline", ...; to continue
                a run, its id and resume="must".

        Raises:
            MissingExtraError: wandb is not installed.
        """
        module = require("wandb", extra="wandb", purpose="logging to Weights & Biases")
        self._run: Any = module.init(**settings)
        # With a step of our own: wandb drops points whose built-in step is not above the last one.
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Log all values at once."""
        series = {f"{name}/{lane}": float(value) for name, value in values.items()}
        self._run.log({"step": int(step), **series})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class MLflow:
    """A run of MLflow: a metric ``name/lane`` for every value."""

    def __init__(
        self,
        experiment: str = "puorl",
        *,
        name: str | None = None,
        tracking_uri: str | None = None,
        run_id: str | None = None,
    ) -> None:
        """Start a run, or continue one.

        Args:
            experiment: Its name; the experiment is made if missing.
            name: Name of the run.
            tracking_uri: Address of an MLflow server; None is MLflow's own default, a local
                database, for which the full package mlflow must be installed.
            run_id: A run to continue, in place of a new one.

        Raises:
            ConfigError: MLflow has no place for its runs.
            MissingExtraError: mlflow is not installed.
        """
        module = require("mlflow", extra="mlflow", purpose="logging to MLflow")
        self._metric: Any = require("mlflow.entities", extra="mlflow", purpose="MLflow").Metric
        try:
            self._client: Any = module.MlflowClient(tracking_uri=tracking_uri)
            self.run_id = run_id or self._new_run(experiment, name)
        except module.MlflowException as error:
            raise ConfigError(
                f"MLflow: expected a place for its runs, got: {error}; give the tracking_uri of a "
                "server, or install mlflow to have a local one"
            ) from error

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Log all values at once."""
        # MLflow takes few characters in a name, and a lane's may hold others.
        plain = re.sub(r"[^\w. -]", "_", lane, flags=re.ASCII)
        now = int(1000 * time.time())
        metrics = [
            self._metric(f"{name}/{plain}", float(value), now, int(step))
            for name, value in values.items()
        ]
        self._client.log_batch(self.run_id, metrics=metrics)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self.run_id)

    def _new_run(self, experiment: str, name: str | None) -> str:
        known = self._client.get_experiment_by_name(experiment)
        number = (
            self._client.create_experiment(experiment) if known is None else known.experiment_id
        )
        return self._client.create_run(number, run_name=name).info.run_id


class Tracker:
    """A sink that opens its tracker at the first write: until then the folder must stay empty."""

    def __init__(self, name: str, folder: Path, *, from_step: int | None) -> None:
        """Choose where to log to.

        Args:
            name: tensorboard, wandb or mlflow.
            folder: The run's folder; its name is the run's name there.
            from_step: Updates of a restored state: points logged later are logged again.

        Raises:
            MissingExtraError: The tracker's package is not installed.
        """
        require(_PACKAGES[name], extra=name, purpose=f"--logger {name}")
        self._name, self._folder, self._from_step = name, folder, from_step
        self._sink: Sink | None = None

    def write(self, step: int, lane: str, values: Mapping[str, float]) -> None:
        """Log the values of ``lane`` after ``step`` updates."""
        if self._sink is None:
            self._sink = self._open()
        self._sink.write(step, lane, values)

    def close(self) -> None:
        """Close the tracker, if it was opened."""
        if self._sink is not None:
            self._sink.close()

    def _open(self) -> Sink:
        if self._name == "tensorboard":
            return TensorBoard(self._folder / "tensorboard", from_step=self._from_step)
        path, name = self._folder / LOGGER_IDS, self._folder.resolve().name
        ids = read_json(path) if path.exists() else {}
        known = ids.get(self._name)
        if self._name == "wandb":
            known = known or secrets.token_hex(4)
            sink = WandB(project="puorl", name=name, dir=str(path.parent), id=known, resume="allow")
        else:
            sink = MLflow(name=name, run_id=known)
            known = sink.run_id
        write_json(path, {**ids, self._name: known}, force=True)
        return sink
