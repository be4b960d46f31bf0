import contextlib
import hashlib
import html
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import tyro

import puorl
from puorl.cli.filter import Filter
from puorl.cli.main import main
from puorl.data.keep_list import read_keep_list
from puorl.data.save import _WRITERS
from puorl.pu.classifier import NetworkConfig
from puorl.pu.config import PRESETS, FilterConfig
from puorl.pu.features import Inputs
from puorl.pu.judging import Mode

PARSING = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
LENGTH, NUM_TARGET, NUM_OTHER, NUM_CHECKED = 50, 25, 35, 10
# The learner with the fewest programs to compile: the command is tested here, not the learners.
SMALL = FilterConfig(
    learner="pvu",
    network=NetworkConfig(hidden=(16, 16), batch_size=64),
    residuals=None,
    num_warm_up=12,
    num_main=0,
)
SLOW_CODE = """
import sys, time
from puorl.cli.main import main
from puorl.pu import fit
from puorl.pu.checkpoint import Checkpoint
from puorl.pu.classifier import NetworkConfig
from puorl.pu.config import PRESETS, FilterConfig

network = NetworkConfig(hidden=(16, 16), batch_size=64)
PRESETS["default"] = FilterConfig(
    learner="pvu", network=network, residuals=None, num_warm_up=12, num_main=0
)
Checkpoint.__init__.__kwdefaults__["seconds"] = 0.0
epochs = fit.epochs

def slowly(*args, stage="classifier", **kwargs):
    for point in epochs(*args, stage=stage, **kwargs):
        yield point
        time.sleep(60 if (stage, point.epoch) == (sys.argv[1], 5) else 0)

fit.epochs = slowly
sys.exit(main(sys.argv[2:]))
"""
"""The same settings in a process of its own, which stops for long in the middle of a stage."""


def mixed_rows():
    """Episodes of two domains in turn, one of which drifts; some of the target's are checked."""
    rng = np.random.default_rng(0)
    num_episodes = NUM_TARGET + NUM_OTHER
    is_target = rng.permutation(np.arange(num_episodes) < NUM_TARGET)
    checked = is_target & (np.cumsum(is_target) <= NUM_CHECKED)
    drift = np.where(is_target, 0.0, 0.3)[:, None]
    state = [rng.normal(size=(num_episodes, 3))]
    action = rng.uniform(-1, 1, (num_episodes, LENGTH, 2))
    for push in np.swapaxes(action, 0, 1):
        noise = 0.02 * rng.normal(size=state[0].shape)
        state.append(0.9 * state[-1] + 0.5 * np.pad(push, ((0, 0), (0, 1))) + drift + noise)
    path = np.stack(state, axis=1)
    obs, next_obs = (part.reshape(-1, 3) for part in (path[:, :-1], path[:, 1:]))
    domain, check = (np.repeat(flags, LENGTH) for flags in (is_target, checked))
    n = len(obs)
    return puorl.Dataset.from_arrays(
        obs=obs,
        action=action.reshape(n, 2),
        reward=obs[:, 0],
        next_obs=next_obs,
        terminal=np.zeros(n, bool),
        timeout=(np.arange(n) + 1) % LENGTH == 0,
        episode=np.arange(n) // LENGTH,
        columns={
            "checked": check.astype(np.int64),
            "ours": domain,
            "robot": np.where(domain, "A7", "B1"),
        },
    )


@pytest.fixture(scope="module")
def rows():
    return mixed_rows()


@pytest.fixture(scope="module")
def file(rows, tmp_path_factory):
    return str(puorl.save(rows, tmp_path_factory.mktemp("data") / "mixed.npz"))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(PRESETS, "default", SMALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, so that arguments are the same in every test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def words(file, *more, labelled="checked == 1", out="run"):
    return ["filter", file, "--labelled", labelled, "--out", out, *more]


def hashes(folder):
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def undisturbed(file, tmp_path_factory):
    """The folder of a run that nobody disturbed, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("whole"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setitem(PRESETS, "default", SMALL)
        patch.setenv("COLUMNS", "80")
        patch.chdir(folder)
        assert main(words(file)) == 0
    return folder / "run", printed.getvalue()


@pytest.fixture(scope="module")
def whole(undisturbed):
    return undisturbed[0]


def test_everything_is_written_and_named(undisturbed):
    folder, printed = undisturbed
    made = sorted(p.name for p in folder.iterdir())
    expected = ["keep.csv", "kept.npz", "model", "report.html", "report.json", "settings.json"]
    assert made == expected
    assert [name for name in made if f"\nrun/{name}: " not in printed] == []
    assert [p.name for p in folder.parent.iterdir()] == ["run"]
    assert printed.startswith(
        "500 labelled and 2,500 unlabelled rows (one-sample), unit transition"
    )
    assert "\x1b" not in printed


def test_kept_rows_list_model_and_report_agree(whole, rows):
    kept = puorl.load(whole / "kept.npz")
    keep = read_keep_list(whole / "keep.csv", rows)
    assert np.array_equal(kept.obs, rows.obs[keep])
    known, ours = rows.columns["checked"] == 1, rows.columns["ours"]
    assert known[keep].sum() == known.sum() == kept.columns["labelled"].sum()
    assert ours[keep].mean() > 0.9
    assert ours[keep].sum() > 0.85 * ours.sum()
    split = puorl.PUSplit.from_mask(rows, known, seed=0)
    flt = puorl.DomainFilter.load(whole / "model")
    assert np.array_equal(np.flatnonzero(~known)[flt.predict(split)], keep[~known[keep]])
    report = json.loads((whole / "report.json").read_text())
    assert report["quality"]["num_labelled"] == known.sum()
    assert report["advice"] in html.unescape((whole / "report.html").read_text())


def test_settings_say_how_to_do_it_again(whole, file):
    settings = json.loads((whole / "settings.json").read_text())
    assert settings["arguments"]["paths"] == [file]
    assert settings["arguments"]["labelled"] == "checked == 1"
    assert settings["arguments"]["seed"] == 0
    assert settings["versions"]["puorl"] == puorl.__version__
    model = json.loads((whole / "model" / "filter.json").read_text())
    assert settings["fingerprints"]["split"] == model["split"]
    kept = puorl.load(whole / "kept.npz")
    assert settings["kept"]["fingerprint"] == kept.fingerprint
    assert settings["kept"]["num_rows"] == len(kept)


def test_the_list_has_scores_and_known_rows_are_sure(whole, rows):
    lines = (whole / "keep.csv").read_text().splitlines()
    assert lines[0] == "row,score"
    row, score = np.array([line.split(",") for line in lines[1:]], float).T
    known = rows.columns["checked"][row.astype(int)] == 1
    assert (score[known] == 1).all()
    assert ((score[~known] >= 0.5) & (score[~known] <= 1)).all()


def test_same_command_same_bytes(here, file, whole):
    assert main(words(file)) == 0
    assert hashes(here / "run") == hashes(whole)


def test_a_list_of_rows_does_the_same_as_a_condition(here, file, rows, whole):
    known = np.flatnonzero(rows.columns["checked"] == 1)
    (here / "known.txt").write_text("row\n" + "".join(f"{i}\n" for i in known))
    assert main(words(file, labelled="known.txt")) == 0
    same = ("keep.csv", "report.json", "model/filter.safetensors")
    got, expected = hashes(here / "run"), hashes(whole)
    assert [name for name in same if got[name] != expected[name]] == []


def test_soft_mode_keeps_all_rows_with_weights(here, file, rows):
    assert main(words(file, "--mode", "soft", "--out-format", "hdf5")) == 0
    kept = puorl.load("run/kept.hdf5")
    weight = kept.columns["weight"]
    assert len(kept) == len(rows)
    known, ours = rows.columns["checked"] == 1, rows.columns["ours"]
    assert (weight[known] == 1).all()
    assert weight[~known & ours].mean() > weight[~ours].mean() + 0.3
    listed = np.loadtxt("run/keep.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(listed[:, 1].astype(np.float32), weight)


def test_by_episode_whole_episodes_are_listed(here, file, rows, capsys):
    assert main(words(file, "--unit", "episode")) == 0
    assert "share their episode" not in capsys.readouterr().out
    assert (here / "run" / "keep.csv").read_text().startswith("episode,score\n")
    keep = read_keep_list("run/keep.csv", rows)
    counts = np.bincount(rows.episode[keep], minlength=NUM_TARGET + NUM_OTHER)
    assert set(counts.tolist()) == {0, LENGTH}
    assert rows.columns["ours"][keep].mean() > 0.9


def test_scattered_labels_make_their_whole_episodes_known(here, file, rows, capsys):
    """Every second row of the checked episodes is labelled; the others are known all the same."""
    some = np.flatnonzero(rows.columns["checked"] == 1)[::2]
    (here / "some.txt").write_text("row\n" + "".join(f"{i}\n" for i in some))
    assert main(words(file, "--unit", "episode", labelled="some.txt")) == 0
    said = f"warning: {len(some):,} unlabelled rows share their episode with labelled ones"
    assert said in capsys.readouterr().out
    keep = read_keep_list("run/keep.csv", rows)
    assert (rows.columns["checked"][keep] == 1).sum() == NUM_CHECKED * LENGTH


def test_a_file_of_target_rows(here, file, rows):
    known = rows.columns["checked"] == 1
    puorl.save(rows[known], "ours.hdf5")
    puorl.save(rows[~known], "rest.hdf5")
    assert main(words("rest.hdf5", labelled="ours.hdf5")) == 0
    kept = puorl.load("run/kept.hdf5")
    assert kept.columns["labelled"].sum() == known.sum()
    listed = read_keep_list("run/keep.csv", rows[~known])  # only the rows that were in question
    assert len(listed) == len(kept) - known.sum()


@pytest.mark.parametrize(
    ("suffix", "more", "kept"),
    [
        ("", [], "kept"),
        (".hdf5", ["--out-format", "parquet"], "kept.parquet"),
        (".bin", ["--format", "npz"], "kept.npz"),
    ],
)
def test_the_kept_rows_have_the_format_of_the_data(here, rows, whole, suffix, more, kept):
    format = "npz" if suffix == ".bin" else None
    puorl.save(rows, f"mixed{suffix}", format=format)
    assert main(words(f"./mixed{suffix}", *more)) == 0
    assert puorl.load(f"run/{kept}").fingerprint == puorl.load(whole / "kept.npz").fingerprint


def test_a_table_gives_hdf5_and_a_list_of_its_rows(here, rows):
    checked = rows.columns["checked"]
    table = np.column_stack([rows.obs, rows.action, rows.next_obs, rows.episode, checked])
    names = [
        f"{field}_{i}" for field, n in (("obs", 3), ("act", 2), ("next_obs", 3)) for i in range(n)
    ]
    header = ",".join([*names, "episode", "checked"])
    np.savetxt("log.csv", table, delimiter=",", header=header, comments="", fmt="%.17g")
    assert main(words("log.csv")) == 0
    picked = np.loadtxt("run/keep.csv", delimiter=",", skiprows=1)[:, 0].astype(int)
    np.testing.assert_array_equal(table[picked, :3], puorl.load("run/kept.hdf5").obs)


def test_nothing_is_overwritten_or_even_read_without_force(here, file, whole, capsys, monkeypatch):
    (here / "run").mkdir()
    (here / "run" / "letter").write_text("precious")
    with monkeypatch.context() as patch:
        patch.setattr("puorl.cli.filter.read_known_rows", None)
        assert main(words(file)) == 2
        assert "already exists" in capsys.readouterr().err
        assert main(words(file, "--force")) == 2
        assert "a folder of other files" in capsys.readouterr().err
    assert (here / "run" / "letter").read_text() == "precious"
    assert main(words(file, out="twice")) == 0
    assert main(words(file, "--force", out="twice")) == 0
    assert hashes(here / "twice")["keep.csv"] == hashes(whole)["keep.csv"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--labelled", "chekked == 1"], "unknown name 'chekked'"),
        (["--labelled", "checked == 9"], "no row is labelled"),
        (["--labelled", "checked >= 0"], "every row is labelled"),
        (["--labelled", "episode == 1 and time < 1"], "unknown name 'time'"),
        (["--labelled", "none.csv"], "none.csv: no such file"),
        (["--unit", "hour"], "transition"),
        (["--unit", "window:0"], "window"),
        (["--unit", "window:many"], "window"),
        (["--unit", "column:robbot"], "robot"),
        (["--preset", "best"], "'default', 'thorough', 'paper'"),
        (["--seed", "-1"], "seed: expected a whole number, 0 or above"),
        (["--out-format", "csv"], "parquet"),
        (["--obs", "nothing"], "nothing"),
    ],
)
def test_wrong_settings_end_with_one_clear_message(here, file, capsys, more, said):
    assert main(words(file, *more)) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert list(here.iterdir()) == []


def arrays(n, **more):
    rng = np.random.default_rng(0)
    held = {"obs": rng.normal(size=(n, 2)), "action": rng.normal(size=(n, 1))}
    held |= {"next_obs": rng.normal(size=(n, 2)), "timeout": np.zeros(n, bool)}
    return held | {"terminal": np.zeros(n, bool), "known": np.arange(n) < max(1, n // 4), **more}


@pytest.mark.parametrize(
    ("held", "more", "said"),
    [
        (arrays(1), [], "every row is labelled"),
        (arrays(30), [], "at least 10 labelled rows"),
        (
            arrays(90, obs=np.ones((90, 2)), next_obs=np.ones((90, 2)), action=np.ones((90, 1))),
            [],
            "every column is constant",
        ),
        (arrays(90, obs=np.full((90, 2), np.nan)), [], "NaN or infinite"),
        (arrays(90), ["--inputs", "sar"], "need rewards"),
    ],
)
def test_data_that_cannot_be_filtered_ends_with_one_clear_message(here, capsys, held, more, said):
    np.savez("rows.npz", **held)
    assert main(words("rows.npz", *more, labelled="known")) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert [p.name for p in here.iterdir()] == ["rows.npz"]


def test_rows_without_episodes_cannot_be_decided_by_episode(here, rows, capsys):
    loose = puorl.make_split(rows, rows, rows=200, labelled_share=0.1, seed=0).pool
    marked = puorl.Dataset(loose.rows, {"known": np.arange(200) < 20}, loose.provenance)
    puorl.save(marked, "loose.npz")
    assert main(words("loose.npz", "--unit", "episode", labelled="known")) == 2
    assert "episode ids" in capsys.readouterr().err
    assert [p.name for p in here.iterdir()] == ["loose.npz"]


def test_a_full_disk_loses_nothing(here, file, whole, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("puorl.cli.filter_files.save", full)
        assert main(words(file)) == 2
    err = capsys.readouterr().err
    assert "No space left on device" in err
    assert "once repaired, the same command goes on" in err
    assert [p.name for p in here.iterdir()] == [".run.part"]
    assert main(words(file)) == 0
    assert "going on from an unfinished run" in capsys.readouterr().out
    assert hashes(here / "run") == hashes(whole)


def test_other_settings_do_not_go_on_from_an_unfinished_run(here, file, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("puorl.cli.filter_files.save", None)
        with pytest.raises(TypeError):
            main(words(file))
    for more, said in (
        (["--seed", "1"], "seed was 0, is 1"),
        (["--mode", "soft"], "mode was hard, is soft"),
        (["--labelled", "checked == 1 and episode != 0"], "(labels was "),
    ):
        assert main(words(file, *more)) == 2
        err = capsys.readouterr().err
        assert said in err
        assert "--force" in err
    # Where the kept rows go to is no matter of the fit.
    assert main(words(file, "--out-format", "hdf5")) == 0
    assert "going on from an unfinished run" in capsys.readouterr().out


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
    process = start(SLOW_CODE, [stage, *words(file)])
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
    assert "going on from an unfinished run" in capsys.readouterr().out
    assert [p.name for p in here.iterdir()] == ["run"]
    assert hashes(here / "run") == hashes(whole)


def test_an_interrupted_run_says_that_it_goes_on_and_refuses_company(here, file, start, capsys):
    process = start_and_wait(start, here, file, "classifier")
    assert main(words(file)) == 2
    assert "another run is filling this folder" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "puorl: interrupted; the same command goes on from there\n"
    assert main(words(file)) == 0
    assert "going on from an unfinished run" in capsys.readouterr().out


def test_help_says_what_labelled_takes(capsys):
    assert main(["filter", "--help"]) == 0
    text = capsys.readouterr().out
    for word in ("puorl filter logs.csv", "source_row", "keep.csv", "--out-format", "--next-obs"):
        assert word in text
    assert "--label " not in text


def test_choices_are_those_of_the_parts_behind():
    hints = get_type_hints(Filter)
    assert set(get_args(hints["mode"])) == set(get_args(Mode))
    assert set(get_args(hints["preset"])) == set(PRESETS)
    assert set(get_args(hints["inputs"])) == set(get_args(Inputs)) - {"sa"}  # a check, no filter
    assert set(get_args(hints["out_format"])) == {*_WRITERS, "auto"}


def test_the_commands_on_the_page_are_understood():
    page = Path(__file__).parents[2] / "docs" / "filter-command.md"
    commands = re.findall(r"^puorl filter (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        assert tyro.cli(Filter, args=shlex.split(command), config=PARSING).paths
