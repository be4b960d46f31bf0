import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError, MissingExtraError
from puorl.rl.metrics import MLflow, Sink, TensorBoard, WandB
from puorl.rl.run import JsonLines

LANES = ("pu/hopper seed=0", "oracle")


def fill(sink, steps):
    for step in steps:
        for number, lane in enumerate(LANES):
            sink.write(step, lane, {"q": step / 3 + number, "loss": np.float32(0.1)})
    sink.close()


@pytest.fixture
def unbroken(tmp_path):
    path = tmp_path / "unbroken.jsonl"
    fill(JsonLines(path), (100, 200, 300))
    return path.read_bytes()


def test_lines_are_json(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    sink = JsonLines(path)
    assert isinstance(sink, Sink)
    sink.write(np.int64(5), "a", {"q": 1.5, "bad": float("nan"), "worse": np.float32(-np.inf)})
    # On disk before the sink is closed.
    assert path.read_text() == '{"step": 5, "lane": "a", "q": 1.5, "bad": null, "worse": null}\n'
    sink.write(6, "\n\u00e9", {"q": np.float32(0.1)})
    sink.close()
    line = json.loads(path.read_text().splitlines()[1])
    assert line == {"step": 6, "lane": "\n\u00e9", "q": float(np.float32(0.1))}


def test_without_a_length_all_lines_stay(tmp_path, unbroken):
    path = tmp_path / "metrics.jsonl"
    fill(JsonLines(path), (100, 200))
    fill(JsonLines(path), (300,))
    assert path.read_bytes() == unbroken


@settings(max_examples=40)
@given(end=st.integers(0, 10_000), step=st.sampled_from([0, 100, 200, 300]))
def test_a_resumed_file_is_that_of_an_unbroken_run(end, step, tmp_path, unbroken):
    path = tmp_path / "metrics.jsonl"
    # A kill may come at any byte after the checkpoint that is resumed.
    lines = unbroken.splitlines(keepends=True)
    length = sum(len(line) for line in lines[: 2 * step // 100])
    path.write_bytes(unbroken[: length + end % (len(unbroken) - length + 1)])
    fill(JsonLines(path, length=length), range(step + 100, 400, 100))
    assert path.read_bytes() == unbroken


def test_unwritable_places_are_named(tmp_path):
    with pytest.raises(DataError, match="expected a file that can be written"):
        JsonLines(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="expected a file that can be written"):
        JsonLines(tmp_path / "file" / "metrics.jsonl")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full is Linux's")
def test_a_full_disk_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    sink = JsonLines(tmp_path / "metrics.jsonl")
    with open("/dev/full", "wb", buffering=0) as full:
        sink.close()
        sink._file = full
        with pytest.raises(DataError, match="No space left"):
            sink.write(1, "a", {"q": 1.0})


@pytest.mark.parametrize("name", ["step", "lane"])
def test_names_of_the_line_itself_are_taken(name, tmp_path):
    sink = JsonLines(tmp_path / "metrics.jsonl")
    with pytest.raises(ConfigError, match=f"got {name}"):
        sink.write(1, "a", {name: 1.0})
    sink.close()


class Recorder:
    """Keeps every call made on it, as (name, args, kwargs)."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))

        return call


def test_tensorboard_gets_scalars(monkeypatch):
    writer, made = Recorder(), []

    def make(*args, **kwargs):
        made.append((args, kwargs))
        return writer

    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=make))
    sink = TensorBoard("folder", from_step=100)
    assert made == [(("folder",), {"purge_step": 101})]
    sink.write(200, "a", {"q": np.float32(1.5), "loss": 2})
    sink.close()
    assert writer.calls == [
        ("add_scalar", ("q/a", 1.5, 200), {}),
        ("add_scalar", ("loss/a", 2.0, 200), {}),
        ("flush", (), {}),
        ("close", (), {}),
    ]
    assert isinstance(sink, Sink)
    TensorBoard("folder")
    assert made[1][1] == {"purge_step": None}


def test_wandb_gets_series_over_our_own_step(monkeypatch):
    run, made = Recorder(), []

    def init(**settings):
        made.append(settings)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    sink = WandB(project="p", mode="offline")
    assert made == [{"project": "p", "mode": "offline"}]
    sink.write(200, "a", {"q": np.float32(1.5), "step": 3})
    sink.close()
    assert run.calls == [
        ("define_metric", ("*",), {"step_metric": "step"}),
        ("log", ({"step": 200, "q/a": 1.5, "step/a": 3.0},), {}),
        ("finish", (), {}),
    ]
    assert isinstance(sink, Sink)


class FakeMlflow(SimpleNamespace):
    """What of MLflow is used: experiments by name, runs, batches of metrics."""

    MlflowException = RuntimeError

    def __init__(self, known=None):
        super().__init__(calls=[], known=known or {}, uri=None)
        self.entities = SimpleNamespace(Metric=lambda *parts: parts)

    def MlflowClient(self, tracking_uri):
        if tracking_uri == "nowhere":
            raise RuntimeError("no such store")
        self.uri = tracking_uri
        return self

    def get_experiment_by_name(self, name):
        return self.known.get(name)

    def create_experiment(self, name):
        self.calls.append(("experiment", name))
        return "new"

    def create_run(self, experiment_id, run_name):
        self.calls.append(("run", experiment_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def log_batch(self, run_id, metrics):
        self.calls.append(("batch", run_id, metrics))

    def set_terminated(self, run_id):
        self.calls.append(("end", run_id))


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow({"old": SimpleNamespace(experiment_id="7")})
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", fake.entities)
    return fake


def test_mlflow_gets_batches(mlflow):
    sink = MLflow("fresh", name="night", tracking_uri="http://host")
    sink.write(200, "pu/hopper seed=0", {"q": np.float32(1.5), "loss": 2})
    sink.close()
    assert isinstance(sink, Sink)
    assert mlflow.uri == "http://host"
    made, begun, (kind, run, metrics), ended = mlflow.calls
    assert (made, begun, ended) == (("experiment", "fresh"), ("run", "new", "night"), ("end", "r1"))
    assert (kind, run) == ("batch", "r1")
    # MLflow takes no "=", and a "/" would nest.
    assert [m[:2] for m in metrics] == [("q/pu_hopper seed_0", 1.5), ("loss/pu_hopper seed_0", 2.0)]
    assert {m[3] for m in metrics} == {200}
    assert metrics[0][2] == metrics[1][2] > 1_600_000_000_000  # milliseconds


def test_mlflow_finds_experiments_and_goes_on_with_runs(mlflow):
    assert MLflow("old").run_id == "r1"
    assert mlflow.calls == [("run", "7", None)]
    assert MLflow("old", run_id="r9").run_id == "r9"
    assert len(mlflow.calls) == 1


def test_mlflow_without_a_place_says_what_to_do(mlflow):
    with pytest.raises(ConfigError, match="no such store; give the tracking_uri"):
        MLflow(tracking_uri="nowhere")


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        (lambda: TensorBoard("folder"), "tensorboardX", "tensorboard"),
        (WandB, "wandb", "wandb"),
        (MLflow, "mlflow", "mlflow"),
    ],
)
def test_missing_packages_are_named(make, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*pip install 'puorl\[{extra}\]'"):
        make()
