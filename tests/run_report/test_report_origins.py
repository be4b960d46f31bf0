"""`puorl report`: from where a run has its rows, and a filter that checked or knows nothing."""

import json
import re
import shlex
from pathlib import Path

import pytest
import report_examples
import tyro
from report_folders import Content, change, make_filter_folder

from puorl.cli.evaluate import Evaluate
from puorl.cli.main import main
from puorl.cli.train import Train
from puorl.core.files import write_json
from puorl.run_report.folders import read_paths
from puorl.run_report.page import filter_command, train_command

PARSING = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
PART = {"files": ["logs/a.npz", "logs/b.npz"], "num_rows": 1234, "fingerprint": "f00"}
ASKED = {
    "paths": ["logs/*.npz"],
    "fields": {"reward": "gain", "next_obs": "then_*"},
    "parts": [PART],
    "env": "hopper/nominal",
    "eval_every": None,
    "eval_episodes": 10,
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A filter, and a run that learnt from other rows."""
    monkeypatch.chdir(tmp_path)
    make_filter_folder(Path("kept"), report_examples.clear())
    plan = {"learner": "bc", "config": {}, "steps": 60, "data": "f00", "groups": [["seed-0"]]}
    write_json("run/run.json", plan)
    write_json("run/record.json", {"asked": [ASKED], "versions": {"puorl": "0"}})
    line = {"step": 60, "lane": "seed-0", "return": 3.5, "return_std": 1.0, "score": 2.0}
    Path("run/metrics.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path


def text_of(*words):
    assert main(["report", *words, "--force"]) == 0
    return Content(Path("report.html").read_text(encoding="utf-8")).text


def test_files_and_domain_of_a_run_are_told(here):
    text = text_of("run")
    assert "The run in run/ learnt from 1,234 rows of logs/a.npz, logs/b.npz." in text
    assert "measured while training (--env), in hopper/nominal, over few episodes" in text
    assert "DATA" not in text
    assert "is not recorded everywhere" not in text
    change("run/record.json", asked=[{**ASKED, "parts": [{**PART, "files": list("abcdefg")}]}])
    assert "1,234 rows of a, b, c, d, e and 2 more." in text_of("run")


def test_the_command_names_what_was_read(here):
    material = read_paths(["kept", "run"])
    told = train_command(material.trainings[0], material.filterings)
    assert told == (
        "puorl train 'logs/*.npz' --learner bc --seeds 1 --steps 60 --reward gain --next-obs "
        "'then_*' --env hopper/nominal --eval-episodes 10 --out run"
    )
    parsed = tyro.cli(Train, args=shlex.split(told)[2:], config=PARSING)
    assert (parsed.paths, parsed.data.reward) == (("logs/*.npz",), "gain")


def test_the_last_command_counts(here):
    moved = {**ASKED, "paths": ["moved.npz"], "fields": {}, "env": None, "eval_episodes": None}
    change("run/record.json", asked=[ASKED, moved])
    [training] = read_paths(["run"]).trainings
    assert train_command(training, []).startswith("puorl train moved.npz --learner bc")
    assert "--env" not in train_command(training, [])


def test_rows_that_a_filter_kept_are_known_by_their_fingerprint(here):
    [filtering] = read_paths(["kept"]).filterings
    change("run/run.json", data=filtering.settings.kept.fingerprint)
    material = read_paths(["kept", "run"])
    told = train_command(material.trainings[0], material.filterings)
    assert told.startswith("puorl train kept --learner bc")
    assert "--reward" not in told  # the kept rows have their own names
    assert "learnt from the rows in kept/: fingerprints agree" in text_of("kept", "run")


def test_rows_held_out_of_training_are_named(here):
    held = "run in ['a', 'b']"
    change("run/record.json", asked=[{**ASKED, "hold_out": held}])
    told = f"1,234 rows of logs/a.npz, logs/b.npz without those that were held out ({held}). No"
    assert told in text_of("run")
    kept = read_paths(["kept"]).filterings[0].settings.kept.fingerprint
    asked = {**ASKED, "parts": [{**PART, "fingerprint": kept}], "hold_out": held}
    change("run/record.json", asked=[asked])
    text = text_of("kept", "run")
    assert f"the rows in kept/ without those that were held out ({held}): fingerprints" in text
    assert "No filter named here" not in text
    material = read_paths(["kept", "run"])
    told = train_command(material.trainings[0], material.filterings)
    parsed = tyro.cli(Train, args=shlex.split(told)[2:], config=PARSING)
    assert (parsed.paths, parsed.hold_out) == (("kept",), held)


@pytest.mark.parametrize(
    "asked",
    [[3], [{"paths": "a"}], [{"parts": [{"files": []}]}], {}, [{"hold_out": 3}]],
)
def test_a_damaged_record_is_refused(here, capsys, asked):
    change("run/record.json", asked=asked)
    assert main(["report", "run"]) == 2
    err = capsys.readouterr().err
    assert "run/record.json: expected what puorl wrote" in err
    assert err.count("\n") == 1


def test_a_filter_that_checked_nothing_is_told(here):
    (here / "kept" / "report.json").unlink()
    assert main(["report", "kept"]) == 2  # a report is missing that should be there
    change("kept/settings.json", arguments__no_report=True)
    text = text_of("kept")
    assert "No report was written (--no-report)" in text
    assert "not checked" in text
    assert "How to read this page" not in text
    told = filter_command(read_paths(["kept"]).filterings[0])
    assert " --no-report " in told
    assert "True" not in told


def test_what_evaluate_wrote_is_taken_and_its_command_told(here):
    policy = {"policy": "run/policies/seed-0.safetensors", "group": "run"}
    numbers = {"returns": [1.0, 2.0], "lengths": [3, 4], "scores": None}
    seen = {"env": "hopper/reward", "episodes": 2, "seed": 7, "policies": [policy | numbers]}
    write_json("run/seen.json", seen)
    told = "puorl evaluate run --env hopper/reward --episodes 2 --seed 7 --out run/seen.json"
    assert told in text_of("run")
    parsed = tyro.cli(Evaluate, args=shlex.split(told)[2:], config=PARSING)
    assert parsed.out == Path("run/seen.json")


def test_a_purity_of_which_nothing_is_known_has_no_estimate(here):
    change("kept/report.json", quality__precision_is_upper=True)
    assert re.search(r"Purity\s+at most 98.0", text_of("kept"))
    change("kept/report.json", quality__precision={"value": 0.9, "low": 0.0, "high": 1.0})
    assert re.search(r"Purity\s+not known", text_of("kept"))
