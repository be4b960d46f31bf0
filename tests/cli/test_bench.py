"""`puorl bench`: what the commands say and refuse; the runs themselves are in tests/bench."""

import json
import re
import sys
from pathlib import Path

import pytest
from messages import message

from puorl.bench import suites
from puorl.bench.store import Store
from puorl.cli.main import main

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))


@pytest.fixture
def small(monkeypatch):
    """A suite of seconds, under the name of smoke."""
    from small_suite import small

    monkeypatch.setitem(suites._MAKERS, "smoke", lambda: small("olp"))


def test_list_names_every_suite(capsys):
    assert main(["bench", "list"]) == 0
    out = capsys.readouterr().out
    assert all(f" {name} " in out for name in suites.suite_names())
    assert max(map(len, out.splitlines())) <= 80
    assert main(["bench", "list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["paper"]["parts"]) == 78
    assert content["core"]["parts"][0] == {
        "setting": "hopper/body_mass/ME-ME/0.01",
        "learner": "td3_bc",
        "methods": ["olp", "sharing_all", "dara", "igdf", "pu", "oracle"],
    }


def test_dry_run_says_what_is_to_do_and_does_nothing(capsys, tmp_path):
    words = ["bench", "run", "core", "--seeds", "5", "--out", str(tmp_path / "r"), "--dry-run"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("core: 240 runs, 0 done; 190 trainings to do, 190,000,000 lane-steps,")
    assert re.search(r"about (\d+ days? \d+ h|\d+:\d\d(:\d\d)?) \(a guess", out)
    assert "halfcheetah/entire_body/ME-R/0.01" in out
    assert not (tmp_path / "r").exists()
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["suite"], content["num_trainings"]) == ("core", 190)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(86_399.6, "1 day 0 h"), (312_943, "3 days 15 h"), (7_200, "2:00:00"), (59.6, "1:00")],
)
def test_long_times_are_told_in_days(capsys, tmp_path, monkeypatch, seconds, told):
    from puorl.bench import plan

    monkeypatch.setattr(plan, "_usual_pace", lambda *_: 190e6 / seconds)
    monkeypatch.setattr(plan, "_prepare_seconds", lambda *_: 0.0)
    assert main(["bench", "run", "core", "--seeds", "5", "--out", str(tmp_path), "--dry-run"]) == 0
    assert f"about {told} (a guess" in capsys.readouterr().out


@pytest.mark.slow  # as tests/bench/test_runner.py, through the command
def test_run_then_run_again(small, capsys, tmp_path):
    words = ["bench", "run", "smoke", "--seeds", "1", "--workers", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("small: 2 runs, 0 done; 1 trainings to do, 12 lane-steps, about 0:0")
    assert f"{tmp_path}: 1 trained, 1 the same as another, in 0:0" in out
    assert len(Store(tmp_path).rows()) == 2
    assert main([*words, "--json"]) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert (content["num_trained"], content["num_copied"], content["num_failed"]) == (0, 0, 0)
    assert "small: 2 runs, 2 done; nothing to do" in captured.err
    assert main(["bench", "report", str(tmp_path)]) == 0
    assert "OLP" in capsys.readouterr().out


def test_an_interruption_says_how_to_go_on(small, capsys, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("puorl.bench.runner.run", interrupted)
    assert main(["bench", "run", "smoke", "--out", str(tmp_path)]) == 130
    assert "interrupted; the same command goes on from there" in capsys.readouterr().err


def test_a_full_disk_says_how_to_go_on(small, capsys, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("puorl.bench.runner.run", full)
    assert main(["bench", "run", "smoke", "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "left on device; what was done is kept: once repaired, the same command goes on" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Expected one of {run, report, list}"),
        (["run", "core"], "Missing from puorl bench run: --out PATH"),
        (["run", "cor", "--out", "r"], "suite: expected one of smoke, core, more, paper,"),
        (["run", "core", "--out", "r", "--seeds", "0"], "seeds: expected 1 or more, got 0"),
        (["run", "core", "--out", "r", "--workers", "0"], "--workers: expected 1 or more, got 0"),
        (["run", "core", "--out", "r", "--steps", "3"], "steps: expected a multiple of 2"),
        (["run", "core", "--out", "r", "--only", "cow"], "only: expected words of a setting"),
    ],
)
def test_wrong_usage_is_one_message(capsys, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *words]) == 2
    assert says in message(capsys.readouterr().err)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("command", ["run", "report", "list"])
def test_help_keeps_its_examples(capsys, command):
    assert main(["bench", command, "--help"]) == 0
    assert f"\n  puorl bench {command}" in capsys.readouterr().out
