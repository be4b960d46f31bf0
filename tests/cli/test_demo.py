import os
import signal
import subprocess
import sys
import time

import numpy as np

import puorl
from puorl.cli.main import main


def test_demo_writes_a_whole_folder_and_keeps_the_old_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["demo", "--rows", "300"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert "demo/target.hdf5: 300 rows of Hopper-v4, gravity -9.81" in out
    target, other = puorl.load("demo/target.hdf5"), puorl.load("demo/other.hdf5")
    assert len(target) == len(other) == 300
    assert target.obs.shape[1] == 11
    assert target.provenance.domain == "target"
    split = puorl.PUSplit.load("demo/split", target, other)
    assert (len(split.labelled), len(split.unlabelled)) == (15, 285)
    assert puorl.load("demo/pool.npz").fingerprint == split.pool.fingerprint

    kept = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "demo").iterdir()}
    assert main(["demo", "--rows", "300"]) == 0
    assert "renamed to demo.1" in capsys.readouterr().out
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "demo.1").iterdir()} == kept
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo", "demo.1"]
    # The same seed gives the same rows.
    assert puorl.load("demo/target.hdf5").fingerprint == target.fingerprint


def test_recorded_rows_are_steps_of_the_simulator():
    from puorl.cli.demo import EARTH, record

    rows = record(EARTH, rows=250, seed=3, name="target")
    inside = ~(rows.terminal | rows.timeout)[:-1]
    assert np.array_equal(rows.next_obs[:-1][inside], rows.obs[1:][inside])
    assert rows.terminal.sum() >= 2
    assert rows.timeout[-1] or rows.terminal[-1]
    assert np.abs(rows.action).max() <= 1
    # From the same start and with the same action, another gravity leads elsewhere.
    light = record(EARTH / 2, rows=250, seed=3, name="target")
    assert np.array_equal(light.obs[0], rows.obs[0])
    assert np.array_equal(light.action[0], rows.action[0])
    assert not np.array_equal(light.next_obs[0], rows.next_obs[0])


def test_too_few_rows_are_refused(tmp_path, capsys):
    assert main(["demo", "--rows", "10", "--out", str(tmp_path / "d")]) == 2
    assert "rows: expected at least" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demo_leaves_nothing(tmp_path):
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    words = ["demo", "--rows", "1M", "--out", str(tmp_path / "demo")]
    run = subprocess.Popen(
        [sys.executable, "-c", code, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    os.kill(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out, err) == (130, b"", b"puorl: interrupted\n")
    assert list(tmp_path.iterdir()) == []
