"""Runs of `puorl filter` that are killed, interrupted or meet a full disk: nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filter_runs import hashes, words

from puorl.cli.main import main

pytestmark = pytest.mark.usefixtures("small")
SLOW_CODE = """
import sys, time
from puorl.cli.main import main
from puorl.pu import fitting as fit
from puorl.core.run_folder import Checkpoint
from puorl.pu.config import PRESETS

sys.path.insert(0, sys.argv[1])
from filter_runs import SMALL

PRESETS["default"] = SMALL
Checkpoint.__init__.__kwdefaults__["seconds"] = 0.0
epochs = fit.epochs

def slowly(*args, stage="classifier", **kwargs):
    for point in epochs(*args, stage=stage, **kwargs):
        yield point
        time.sleep(60 if (stage, point.epoch) == (sys.argv[2], 5) else 0)

fit.epochs = slowly
sys.exit(main(sys.argv[3:]))
"""
"""The same settings in a process of its own, which stops for long in the middle of a stage."""


def test_a_full_disk_loses_nothing(here, file, whole, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("puorl.pu.result_folder.save", full)
        assert main(words(file)) == 2
    err = capsys.readouterr().err
    assert "No space left on device" in err
    assert "once repaired, the same command goes on" in err
    assert [p.name for p in here.iterdir()] == [".run.part"]
    assert main(words(file)) == 0
    assert "resuming an unfinished run" in capsys.readouterr().out
    assert hashes(here / "run") == hashes(whole)


def test_other_settings_do_not_go_on_from_an_unfinished_run(here, file, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("puorl.pu.result_folder.save", None)
        with pytest.raises(TypeError):
            main(words(file))
    for more, said in (
        (["--seed", "1"], "seed was 0, is 1"),
        (["--mode", "soft"], "mode was hard, is soft"),
        (["--inputs", "sars"], "(inputs was sas, is sars)"),
        (["--labelled", "checked == 1 and episode != 0"], "(labels differ)"),
    ):
        assert main(words(file, *more)) == 2
        err = capsys.readouterr().err
        assert said in err
        assert "--force" in err
    # Where the kept rows go to is no matter of the fit.
    assert main(words(file, "--out-format", "hdf5")) == 0
    assert "resuming an unfinished run" in capsys.readouterr().out


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Processes share what they compile, as that is most of their time."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture
def start(compiled):
    """Start the program in a process of its own, which is gone when the test is."""
    processes = []

    def begin(code, arguments):
        pipe = subprocess.PIPE
        call = [sys.executable, "-c", code, *arguments]
        processes.append(
            subprocess.Popen(
                call, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **compiled}
            )
        )
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def start_and_wait(start, here, file, stage):
    """A run that has kept some epochs of the stage, and takes its time over the next."""
    process = start(SLOW_CODE, [str(Path(__file__).parent), stage, *words(file)])
    kept = here / ".run.part" / "checkpoint"
    wait_until(lambda: any(kept.glob(f"*/{stage}.*")) or process.poll() is not None)
    time.sleep(0.2)
    assert process.poll() is None, process.communicate()
    return process


@pytest.mark.parametrize(
    "stage",
    ["classifier", *(pytest.param(s, marks=pytest.mark.slow) for s in ("cross-fit", "behaviour"))],
)
def test_a_killed_run_goes_on_and_gives_the_same_bytes(here, file, whole, start, capsys, stage):
    process = start_and_wait(start, here, file, stage)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [p.name for p in here.iterdir()] == [".run.part"]
    assert main(words(file)) == 0
    assert "resuming an unfinished run" in capsys.readouterr().out
    assert [p.name for p in here.iterdir()] == ["run"]
    assert hashes(here / "run") == hashes(whole)


def test_an_interrupted_run_says_that_it_goes_on_and_refuses_company(here, file, start, capsys):
    process = start_and_wait(start, here, file, "classifier")
    assert main(words(file)) == 2
    assert "another run is filling this folder" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    # A slow machine has written lines of progress before it.
    assert said.endswith("puorl: interrupted; the same command goes on from there\n")
    assert main(words(file)) == 0
    assert "resuming an unfinished run" in capsys.readouterr().out
