"""`puorl report`: one page from the folders that other commands left."""

import contextlib
import dataclasses
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import report_examples
import synthetic_store
import tyro
from report_folders import (
    EVALUATION_FIGURE,
    FILTER_FIGURES,
    RUN_FIGURES,
    SPOILT,
    WRONG_VALUES,
    Content,
    change,
    figures,
    make_filter_folder,
)
from train_rows import train_rows

import puorl
from puorl.cli.filter import Filter
from puorl.cli.main import main
from puorl.cli.report import Report
from puorl.cli.train import Train
from puorl.core.errors import DataError
from puorl.core.files import read_json
from puorl.envs.domains import parse_domain
from puorl.rl import run
from puorl.run_report import filmstrip
from puorl.run_report.folders import read_paths
from puorl.run_report.page import filter_command, train_command
from real_browser import WIDTHS, fits, needs_browser

ROOT = Path(__file__).parents[2]
PARSING = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
HOPPER = parse_domain("hopper")
STEPS = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders of all kinds: those of train, and what evaluate printed, are the real thing."""
    pytest.importorskip("mujoco")
    folder = tmp_path_factory.mktemp("made")
    make_filter_folder(folder / "kept", report_examples.clear())
    words = f"train kept --learner bc --steps {STEPS} --seeds 2 --set hidden=16,16 batch_size=16"
    words += " --env hopper --eval-every 20 --eval-episodes 1 --out run"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.chdir(folder)
        patch.setattr(run, "CHECKPOINT_INTERVAL", 20)
        assert main(words.split()) == 0
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert main("evaluate run --env hopper --episodes 3 --json".split()) == 0
    (folder / "scores.json").write_text(said.getvalue())
    (folder / "results").mkdir()
    lines = [json.dumps(row) for row in synthetic_store.rows()]
    (folder / "results" / "runs.jsonl").write_text("\n".join(lines) + '\n{"run": "torn')
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of all folders to work in, and to spoil."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page_of(*words, code=0):
    assert main(["report", *words, "--force"]) == code
    return Path("report.html").read_text(encoding="utf-8")


# ------------------------------------------------------------------------------ the page


def test_page_tells_the_whole_story_and_stands_alone(here):
    html = page_of("kept", "run", "scores.json")
    content = Content(html)
    assert figures(html) == [*FILTER_FIGURES, *RUN_FIGURES, EVALUATION_FIGURE]
    assert not set(content.tags) & {"script", "iframe", "img", "object", "embed", "form", "base"}
    assert {address for address in content.addresses if not address.startswith("#")} == {"data:,"}
    assert not re.search(r"https?:|url\(", html)
    assert not re.search(r"\bnan\b|\binf\b", content.text.lower())
    assert len(content.ids) == len(set(content.ids))
    settings = json.loads(Path("kept/settings.json").read_text())
    for text in (*settings["fingerprints"].values(), settings["kept"]["fingerprint"]):
        assert text in content.text
    assert report_examples.clear().advice in content.text
    assert "The run in run/ learnt from the rows in kept/: fingerprints agree." in content.text
    seen = read_json("scores.json")
    for scored in seen["policies"]:
        assert f"{np.mean(scored['returns']):,.1f}" in content.text
    mean = seen["means"][0]["score"]
    assert f"score {mean['value']:,.1f} ({mean['low']:,.1f} to {mean['high']:,.1f})" in content.text
    assert "No filmstrip: it needs --env" in content.text
    assert page_of("kept", "run", "scores.json") == html


def test_what_is_missing_is_said(here):
    text = Content(page_of("kept")).text
    assert "No folder of puorl train was named" in text
    assert "The best policy" not in text
    change("run/record.json", invocations=[], finished=[])
    text = Content(page_of("run")).text
    assert "No folder of puorl filter was named" in text
    assert "does not record how many rows it learnt from" in text
    assert "DATA stands for rows" in text
    assert "in a domain that the folder does not name" in text  # the returns that train measured
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    bare = [{"step": 60, "lane": json.loads(line)["lane"], "actor_loss": None} for line in lines]
    Path("run/metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in bare[-2:]))
    html = page_of("run")
    assert figures(html) == []
    assert "The policies have not been run anywhere" in html
    assert "No evaluation during training is recorded" in html
    Path("run/metrics.jsonl").unlink()
    assert "No losses are recorded" in page_of("run")
    text = Content(page_of("scores.json")).text
    assert "Neither a folder of puorl filter nor one of puorl train was named" in text


def test_runs_that_did_not_end_well_are_told(here):
    stop = {"step": 20, "reason": "a loss or a value is not finite"}
    change("run/record.json", stopped={"seed-1": stop})
    Path("run/policies/seed-1.safetensors").unlink()
    text = Content(page_of("run")).text
    assert "seed-1 was given up at step 20: a loss or a value is not finite" in text
    assert "has not ended" not in text
    Path("run/policies/seed-0.safetensors").unlink()
    Path("run/record.json").unlink()
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"step": 80, "lane": "se')  # is being written
    text = Content(page_of("run")).text
    assert "2 policies of 2 not finished: the run has not ended" in text


def test_kept_rows_that_changed_or_went_are_told(here, capsys):
    puorl.save(train_rows(seed=1), "kept/kept.npz", force=True)
    assert "kept.npz: expected the 300 rows that the filter kept" in page_of("kept")
    assert "note: the kept rows are not shown: kept/kept.npz" in capsys.readouterr().out
    Path("kept/kept.npz").unlink()
    assert "the kept rows cannot be read here" in page_of("kept")


def test_evaluations_in_a_folder_are_found_and_shown_once(here):
    shutil.copy("scores.json", "run/hopper.json")
    assert figures(page_of("run")).count(EVALUATION_FIGURE) == 1
    assert figures(page_of("run", "run/hopper.json")).count(EVALUATION_FIGURE) == 1
    Path("tests").mkdir()
    shutil.copy("scores.json", "tests/a.json")
    content = {"folder": "run", "evaluation": read_json("scores.json")}
    Path("tests/b.json").write_text(json.dumps(content))  # as train --json prints it
    html = page_of("tests")
    assert figures(html) == [EVALUATION_FIGURE] * 2
    assert html.count("puorl evaluate run --env hopper/nominal --episodes 3") == 1
    seen = read_json("tests/a.json")
    seen["policies"] = [{**each, "scores": None} for each in seen["policies"]]
    Path("tests/a.json").write_text(json.dumps(seen))
    assert figures(page_of("tests/a.json")) == ["Mean return in hopper/nominal"]


def test_a_benchmark_brings_its_tables(here):
    shutil.copytree("results", "again")
    html = page_of("results", "again", "kept")
    content = Content(html)
    assert len(content.ids) == len(set(content.ids))
    report = read_paths(["results", "again"]).benchmarks["results"]
    for entry in (e for table in report.tables for row in table.rows for e in row):
        assert entry.text in content.text
    assert "puorl bench report results --format html" in content.text
    assert "the last line is not whole" in content.text
    assert "jax 0.11.2" in content.text


@pytest.mark.parametrize("report", report_examples.REPORTS, ids=lambda make: make.__name__)
def test_every_kind_of_report_comes_back_as_it_was(report, here):
    shutil.rmtree("kept")
    make_filter_folder(Path("kept"), report())
    [filtering] = read_paths(["kept"]).filterings
    assert filtering.report.to_dict() == report().to_dict()
    assert not re.search(r"<script|<img", page_of("kept"))


def test_hostile_and_endless_values_do_no_harm(here):
    change("kept/settings.json", arguments__labelled=report_examples.HOSTILE)
    line = {"step": 80, "lane": "seed-0", report_examples.HOSTILE: 1e308, "actor_loss": -1e308}
    with open("run/metrics.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    content = Content(page_of("kept", "run"))
    assert not set(content.tags) & {"script", "img"}
    assert not re.search(r"\bnan\b|\binf\b", content.text.lower())


def test_commands_are_those_that_made_the_folders(here):
    material = read_paths(["kept", "run"])
    words = shlex.split(filter_command(material.filterings[0]))
    assert words[:2] == ["puorl", "filter"]
    assert tyro.cli(Filter, args=words[2:], config=PARSING) == Filter(
        ("logs/*.npz",), Path("kept"), "checked == 1", unit="window:5", seed=3
    )
    told = train_command(material.trainings[0], material.filterings)
    assert told == (
        f"puorl train kept --learner bc --seeds 2 --steps {STEPS} --set 'hidden=16,16' "
        "batch_size=16 --env hopper/nominal --eval-every 20 --eval-episodes 1 --out run"
    ).replace("'", "")
    parsed = tyro.cli(Train, args=shlex.split(told)[2:], config=PARSING)
    config = dataclasses.asdict(parsed._learner("bc").config)
    assert json.loads(json.dumps(config)) == material.trainings[0].settings.config
    assert told in page_of("kept", "run")


def test_programs_are_told_what_was_made(here, capsys):
    assert main(["report", "kept", "run", "scores.json", "--out", "a/b.html", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == "a/b.html"
    assert told["paths"] == {"kept": "filter", "run": "train", "scores.json": "evaluate"}
    assert told["filmstrip"] is None
    assert "--env" in told["no_filmstrip"]
    assert Path("a/b.html").is_file()


# -------------------------------------------------------------------------- what is refused


def refused(words, capsys):
    assert main(["report", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("puorl: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_page_that_is_there_is_kept(here, capsys):
    Path("report.html").write_text("mine")
    assert "already exists" in refused(["kept"], capsys)
    Path("kept/report.json").write_text("{")
    refused(["kept", "--force"], capsys)  # nothing is replaced by nothing
    assert Path("report.html").read_text() == "mine"
    assert page_of("run") != "mine"
    capsys.readouterr()
    Path("folder").mkdir()
    assert "folder" in refused(["run", "--out", "folder", "--force"], capsys)


@pytest.mark.parametrize("name", SPOILT)
def test_damaged_files_are_refused(name, here, capsys):
    for text in SPOILT[name]:
        Path(name).write_text(text)
        named = name if name.endswith("s.json") and "/" not in name else Path(name).parts[0]
        assert named in refused([named], capsys)
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("place", "value"),
    WRONG_VALUES,
)
def test_a_report_with_wrong_values_is_refused(place, value, here, capsys):
    change("kept/report.json", **{place: value})
    assert "kept/report.json: expected" in refused(["kept"], capsys)


def test_wrong_paths_and_domains_are_refused(here, capsys):
    Path("empty").mkdir()
    Path("demo").mkdir()
    for name in ("results.json", "report.html"):
        Path("demo", name).write_text("{}")
    assert "got no path" in refused([], capsys)
    Path("report.html").write_text("mine")  # what is read is refused before what is written
    assert "found nothing there" in refused(["nothing"], capsys)
    Path("report.html").unlink()
    assert "an empty folder" in refused(["empty"], capsys)
    assert "a folder of other files" in refused(["kept/model"], capsys)
    assert "whose own report.html is such a page" in refused(["demo"], capsys)
    assert "named twice" in refused(["run", "./run/"], capsys)
    assert "another kind" in refused(["kept/kept.npz"], capsys)
    assert "expected one of halfcheetah" in refused(["run", "--env", "nothing"], capsys)
    assert "choose another domain" in refused(["run", "--env", "walker2d"], capsys)
    assert not Path("report.html").exists()


# -------------------------------------------------------------------------------- the film


def test_the_best_policy_is_chosen_by_what_is_known(here):
    seen = read_json("scores.json")
    for number, value in enumerate((10.0, 20.0)):
        seen["policies"][number]["returns"] = [value] * 3
    Path("scores.json").write_text(json.dumps(seen))
    chosen = filmstrip.choose(read_paths(["run", "scores.json"]), HOPPER)
    assert (chosen.name, chosen.why) == ("run/seed-1", "the best of 2 by mean return, 20.0")
    chosen = filmstrip.choose(read_paths(["run"]), HOPPER)
    last = read_paths(["run"]).trainings[0].metrics["return"]
    best = max(last, key=lambda lane: last[lane][-1][1])
    assert chosen.name == f"run/{best}"
    assert "at the end of training" in chosen.why
    # Returns in another domain say nothing about this one.
    seen["env"] = "hopper/body_mass"
    Path("scores.json").write_text(json.dumps(seen))
    assert "end of training" in filmstrip.choose(read_paths(["run", "scores.json"]), HOPPER).why
    Path("run/metrics.jsonl").unlink()
    chosen = filmstrip.choose(read_paths(["run"]), HOPPER)
    assert (chosen.name, chosen.why) == ("run/seed-0", "the first one: nothing says which is best")
    assert filmstrip.choose(read_paths(["kept"]), HOPPER) is None
    with pytest.raises(DataError, match="walker2d/nominal has 17 and 6"):
        filmstrip.choose(read_paths(["run"]), parse_domain("walker2d"))


def test_graphics_that_crash_cost_a_sentence(here, monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    assert "No filmstrip: MuJoCo draws no pictures here: MUJOCO_GL=nonsense" in page_of(
        "run", "--env", "hopper"
    )
    assert "no filmstrip: MuJoCo draws no pictures" in capsys.readouterr().out
    monkeypatch.setattr(filmstrip, "find_renderer", lambda: ("egl", None))
    monkeypatch.setattr(filmstrip, "_PROGRAM", "import os; os.abort()")
    html = page_of("run", "--env", "hopper")
    assert "No filmstrip: drawing the episode is ended by signal 6." in html
    monkeypatch.setattr(filmstrip, "_PROGRAM", "pass")
    assert "ends without pictures" in page_of("run", "--env", "hopper")


def test_pictures_are_kept_to_the_last_bit():
    imread = pytest.importorskip("imageio.v3").imread
    picture = np.random.default_rng(0).integers(256, size=(5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(imread(filmstrip.png(picture)), picture)
    flat = np.full((5, 7, 3), 9, np.uint8)
    np.testing.assert_array_equal(filmstrip.shrink(flat), np.full((2, 3, 3), 9, np.uint8))


@pytest.fixture(scope="module")
def filmed(made):
    """The page with a film, what was said, and why there is no film where none can be drawn."""
    way, problem = filmstrip.find_renderer()
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.chdir(made)
        patch.setattr(filmstrip, "find_renderer", lambda: (way, problem))  # once is enough
        words = "report kept run scores.json --env hopper --json --out filmed.html".split()
        assert main(words) == 0
    html = (made / "filmed.html").read_text(encoding="utf-8")
    return html, json.loads(said.getvalue()), problem


def test_film_shows_an_episode_from_start_to_end(filmed):
    html, told, problem = filmed
    if problem is not None:
        pytest.skip(f"MuJoCo draws no pictures here: {problem}")
    addresses = [a for a in Content(html).addresses if a.startswith("data:image/png;base64,")]
    assert 2 <= len(addresses) == len(told["filmstrip"]["steps"]) <= filmstrip.NUM_FRAMES
    assert told["filmstrip"]["steps"][0] == 0
    assert f"return {told['filmstrip']['return']:,.1f}." in html
    assert told["no_filmstrip"] is None
    assert len(set(addresses)) == len(addresses)  # it moves


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out_in_a_real_browser(filmed, width, tmp_path):
    html, told, problem = filmed
    seen = fits(html, width, tmp_path)
    assert seen.num_figures == len(FILTER_FIGURES) + len(RUN_FIGURES) + 1
    assert seen.num_images == (0 if problem else len(told["filmstrip"]["steps"]))


def test_commands_of_the_page_and_the_help_can_be_given():
    text = (ROOT / "docs" / "report-command.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(puorl report .*)$", text, re.MULTILINE)
    assert len(commands) >= 4
    examples = re.findall(r"^ +(puorl report .*)$", Report.__doc__, re.MULTILINE)
    for command in [*commands, *examples]:
        parsed = tyro.cli(Report, args=shlex.split(command)[2:], config=PARSING)
        assert parsed.paths


@pytest.mark.slow
def test_a_folder_that_the_filter_wrote_is_read(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    html = page_of(str(whole))
    assert set(figures(html)) <= set(FILTER_FIGURES)
    assert "Scores of labelled and unlabelled rows" in figures(html)
    report = read_json(whole / "report.json")
    assert read_paths([str(whole)]).filterings[0].report.to_dict() == report
