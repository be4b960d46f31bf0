"""On Ray as here: benchmark rows, refits, machines, judged policies; failures and Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import filter_runs
from small_suite import small

import puorl
from puorl import ope
from puorl.bench.plan import make_plan
from puorl.bench.runner import run
from puorl.bench.store import Store
from puorl.bench.suites import find_suite
from puorl.core.errors import DataError
from puorl.core.tasks import Workers, call_all, started
from puorl.data import lazy
from puorl.pu.filter import DomainFilter

ray = pytest.importorskip("ray")
ON_RAY = Workers("ray", 2)


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    """Ray is started once for all of these tests, and its workers share their cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUORL_CACHE", str(tmp_path_factory.getbasetemp() / "puorl-cache"))
        with started(ON_RAY) as found:
            yield found
    assert not ray.is_initialized()


def rows(out):
    """Rows by run, without times."""
    found = {row["run"]: row for row in Store(out).rows()}
    assert len(found) == len(Store(out).rows())
    for row in found.values():
        del row["time"], row["seconds"]
    return found


def test_benchmark_rows_are_the_same(tmp_path):
    plan = make_plan(find_suite("smoke"), seeds=1, split_seeds=2)
    here = run(plan, tmp_path / "here")
    there = run(plan, tmp_path / "there", engine=ON_RAY)
    assert rows(tmp_path / "there") == rows(tmp_path / "here")
    counted = [(d.num_trained, d.num_copied, d.num_failed) for d in (here, there)]
    assert counted[0] == counted[1]
    assert counted[0][1] > 0  # batches share trainings, and none is trained twice
    again = run(plan, tmp_path / "there", engine=ON_RAY)
    assert (again.num_trained, again.num_copied, again.num_failed) == (0, 0, 0)


def test_a_batch_that_fails_is_named_and_the_rest_goes_on(tmp_path):
    plan = make_plan(small("olp", "sharing_all"), seeds=1)
    first, second = plan.cells
    blocked = tmp_path / "locks" / f"cell-{first.id}.lock"
    blocked.mkdir(parents=True)  # its worker cannot lock the cell
    with pytest.raises(DataError, match="batches failed, the first is hopper/body_mass/ME-ME"):
        run(plan, tmp_path, engine=ON_RAY)
    left = {r.id for r in plan.runs_of(second)}
    assert set(rows(tmp_path)) == left
    blocked.rmdir()
    done = run(plan, tmp_path, engine=ON_RAY)
    assert done.num_failed == 0
    assert set(rows(tmp_path)) == {r.id for r in plan.runs}


def test_refits_of_a_filter_are_the_same():
    data = filter_runs.mixed_rows()
    split = puorl.PUSplit.from_mask(data, data.columns["checked"] == 1)
    flt = DomainFilter(config=filter_runs.SMALL).fit(split)
    assert flt.report(engine=ON_RAY).to_dict() == flt.report().to_dict()


def test_views_of_machines_are_the_same(tmp_path):
    data = filter_runs.fleet_rows()
    split = puorl.PUSplit.from_mask(data, data.columns["machine"] == "M-01", unit="episode")
    made = [
        DomainFilter(unit="column:machine", config=filter_runs.SMALL).fit(
            split, engine=engine, checkpoint=tmp_path / name
        )
        for name, engine in (("here", None), ("there", ON_RAY))
    ]
    here, there = (flt.save(tmp_path / f"model-{i}") for i, flt in enumerate(made))
    files = sorted(path.name for path in here.iterdir())
    assert files
    for name in files:
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
    assert made[0].report().to_dict() == made[1].report().to_dict()
    assert {p.name for p in (tmp_path / "here").iterdir()} == {
        p.name for p in (tmp_path / "there").iterdir()
    }


class Push:
    """Answer to a state with a fraction of it."""

    def __init__(self, gain):
        self.gain = gain

    def __call__(self, obs):
        return np.clip(self.gain * np.asarray(obs)[:, :2], -1, 1)


def test_judged_policies_are_the_same():
    data = filter_runs.mixed_rows()
    policies = {"one": Push(-0.3), "two": Push(0.4)}
    settings = {"critics": 2, "hidden": (8,), "updates": 200, "model_updates": 100}
    here, there = (
        ope.evaluate(policies, data, gamma=0.9, engine=engine, **settings)
        for engine in (None, ON_RAY)
    )
    assert there.to_dict() == here.to_dict()
    assert here.values["one"].keys() >= {"fqe", "model", "blend"}


@pytest.mark.parametrize("engine", [Workers(number=2), ON_RAY], ids=lambda w: w.engine)
def test_keys_that_are_read_in_tasks_make_the_same_partitions(tmp_path, monkeypatch, engine):
    data = filter_runs.mixed_rows()
    for i, part in enumerate((data[:820], data[820:1930], data[1930:])):
        puorl.save(part, tmp_path / f"{i}.parquet")
    plain = puorl.open(tmp_path, partition_rows=300)
    monkeypatch.setattr(lazy, "_MANY_ROWS", 0)
    made = puorl.open(tmp_path, partition_rows=300, workers=engine)
    assert made.partitions == plain.partitions
    assert made.fingerprint == plain.fingerprint
    assert len(made) > 5


def visible(_):
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_task_gets_its_gpus():
    """Ray counts GPUs; which one a task has, it says by a variable that jax obeys."""
    ray.shutdown()
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, logging_level="error")
    try:
        assert set(call_all(visible, [0, 1, 2], Workers("ray", num_gpus=1))) <= {"0", "1"}
        assert call_all(visible, [0], Workers("ray", num_gpus=2)) == ["0,1"]
    finally:
        ray.shutdown()


def below(pid):
    """All processes that a process started, and those that they started."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    own = [int(each) for each in found.read_text().split()] if found.exists() else []
    return [*own, *(each for child in own for each in below(child))]


def alive(pids):
    states = [Path(f"/proc/{pid}/stat") for pid in pids]
    return [s for s in states if s.exists() and s.read_text().rsplit(")", 1)[1].split()[0] != "Z"]


def test_ctrl_c_leaves_nothing_running_and_the_same_command_goes_on(tmp_path):
    words = ["bench", "run", "smoke", "--engine", "ray", "--out", str(tmp_path / "out"), "--json"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "puorl", *words, "--steps", "200000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob("out/groups/*/lanes.json")):
        assert driver.poll() is None
        time.sleep(0.05)
    started_by_it = below(driver.pid)
    assert len(started_by_it) > 2
    driver.send_signal(signal.SIGINT)
    said = driver.communicate(timeout=60)[1]
    assert driver.returncode == 130
    assert "the same command" in said
    deadline = time.monotonic() + 20
    while alive(started_by_it) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(started_by_it) == []
