"""`puorl compare` and `puorl evaluate --offline`, killed while they judge: nothing half is left."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from test_evaluate_offline import FIELDS, QUICK, make_run, write_log

from puorl.cli.main import main
from puorl.core.files import read_json
from puorl.rl import run

SLOW_CODE = """
import pathlib, sys, time
from puorl.cli.main import main
from puorl.ope import offline

judge = offline._Run.policy

def slowly(*args, **options):
    if pathlib.Path("judging").exists():  # the first policy has been judged
        pathlib.Path("second").touch()
        time.sleep(120)
    found = judge(*args, **options)
    pathlib.Path("judging").touch()
    return found

offline._Run.policy = slowly
sys.exit(main(sys.argv[1:]))
"""
"""The program in a process of its own, which stops for long before the second policy."""
COMPARED = (
    "compare", "log.csv", "--labelled", "machine == 'A'", *FIELDS, "--methods", "olp,sharing_all",
    "--learner", "bc", "--seeds", "1", "--steps", "20", "--set", "hidden=8", "batch_size=8",
    "--gamma", "0.8", "--judge", "updates=100", "critics=2", "hidden=8", "batch_size=8",
    "model_updates=20",
)  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kill_while_it_judges(here, words):
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_CODE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        deadline = time.monotonic() + 120
        while not (here / "second").exists():
            assert process.poll() is None, process.communicate()[0].decode()
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    for name in ("judging", "second"):
        os.remove(here / name)


def test_a_killed_evaluation_leaves_no_file_and_is_made_again(here, capsys):
    write_log(here / "judge.csv", 12, seed=1)
    make_run(here / "run", [0.4, -0.4])
    words = ["evaluate", "run", "--offline", "--data", "judge.csv", *FIELDS, *QUICK, "--out"]
    kill_while_it_judges(here, [*words, "killed.json"])
    assert sorted(p.name for p in here.iterdir()) == ["judge.csv", "run"]
    assert main([*words, "killed.json"]) == 0
    assert main([*words, "whole.json"]) == 0
    assert read_json(here / "killed.json") == read_json(here / "whole.json")


def test_a_killed_comparison_goes_on_to_the_same_result(here, capsys, monkeypatch):
    write_log(here / "ours.csv", 8, seed=1)
    write_log(here / "theirs.csv", 8, seed=2, machine="B")
    lines = (here / "theirs.csv").read_text().splitlines()[1:]
    (here / "log.csv").write_text((here / "ours.csv").read_text() + "\n".join(lines) + "\n")
    kill_while_it_judges(here, [*COMPARED, "--out", "killed"])
    work = here / ".killed.part"
    policies = sorted((work / "checkpoint/compare/run/policies").iterdir())
    assert [path.stem for path in policies] == ["olp-seed-0", "sharing_all-seed-0"]
    assert not (here / "killed").exists()
    assert main([*COMPARED, "--seed", "1", "--out", "killed"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "an unfinished run with other settings is kept next to it (seed was 0, is 1)" in said
    assert "start afresh with --force" in said
    trained = []
    monkeypatch.setattr(run._Group, "train", lambda *_: trained.append(1))
    assert main([*COMPARED, "--out", "killed"]) == 0
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert not trained
    assert not work.exists()
    policies = sorted((here / "killed/run/policies").iterdir())
    assert [path.stem for path in policies] == ["olp-seed-0", "sharing_all-seed-0"]
    assert main([*COMPARED, "--out", "whole"]) == 0
    killed, whole = (read_json(here / name / "compare.json") for name in ("killed", "whole"))
    assert killed == whole
    assert np.isfinite([each["estimate"]["value"] for each in killed["outcomes"]]).all()
