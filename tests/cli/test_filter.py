import html
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import tyro
from filter_runs import LENGTH, NUM_CHECKED, NUM_OTHER, NUM_TARGET, hashes, words
from messages import message

import puorl
from puorl.cli.filter import Filter
from puorl.cli.main import main
from puorl.core.errors import DataError
from puorl.core.files import read_json
from puorl.data.episodes import return_range
from puorl.data.formats import writable
from puorl.data.labels import read_keep_list
from puorl.data.training_files import read_training_set
from puorl.pu.alpha import ESTIMATORS
from puorl.pu.config import PRESETS, Inputs
from puorl.pu.cross_fit import Mode

pytestmark = pytest.mark.usefixtures("small")
PARSING = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)


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
    quality = report["quality"]
    assert quality["num_labelled"] == known.sum()
    assert quality["num_unlabelled"] == (~known).sum()
    assert quality["num_kept"] == len(keep) - known.sum()
    assert report["advice"] in html.unescape((whole / "report.html").read_text())


def test_settings_say_how_to_do_it_again(whole, file, rows):
    settings = json.loads((whole / "settings.json").read_text())
    assert settings["arguments"]["paths"] == [file]
    assert settings["arguments"]["labelled"] == "checked == 1"
    assert settings["arguments"]["seed"] == 0
    assert settings["versions"]["puorl"] == puorl.__version__
    model = json.loads((whole / "model" / "filter.json").read_text())
    assert settings["fingerprints"]["split"] == model["split"]
    assert settings["returns"] == list(return_range([rows.rows]))  # of whole episodes, not of kept
    kept = puorl.load(whole / "kept.npz")
    assert settings["kept"]["fingerprint"] == kept.fingerprint
    assert settings["kept"]["num_rows"] == len(kept)


def test_training_takes_what_was_kept_and_the_returns_of_all(whole, rows):
    for path in (whole, whole / "kept.npz"):
        chosen = read_training_set([str(path)])
        assert chosen.pool.fingerprint == puorl.load(whole / "kept.npz").fingerprint
        assert chosen.weight is None
        assert chosen.returns == return_range([rows.rows])


def test_the_list_has_scores_and_known_rows_are_sure(whole, rows):
    lines = (whole / "keep.csv").read_text().splitlines()
    assert lines[0] == "row,score"
    row, score = np.array([line.split(",") for line in lines[1:]], float).T
    known = rows.columns["checked"][row.astype(int)] == 1
    assert (score[known] == 1).all()
    assert ((score[~known] >= 0.5) & (score[~known] <= 1)).all()


def test_the_list_is_compared_with_its_hash_where_it_lies(here, whole, rows):
    shutil.copytree(whole, "run")
    kept = read_keep_list("run/keep.csv", rows)
    lines = (here / "run" / "keep.csv").read_text().splitlines(keepends=True)
    for place in ("run/keep.csv", "mine.csv", "run/mine.csv"):
        (here / place).write_text("".join(lines[:-1]))
    with pytest.raises(DataError, match="run/keep.csv: content hash differs .* another name"):
        read_keep_list("run/keep.csv", rows)
    for place in ("mine.csv", "run/mine.csv"):  # a person's own list
        assert len(read_keep_list(place, rows)) == len(kept) - 1
    settings = read_json(here / "run" / "settings.json")
    del settings["keep_list"]
    (here / "run" / "settings.json").write_text(json.dumps(settings))  # as version 0.1 wrote it
    assert len(read_keep_list("run/keep.csv", rows)) == len(kept) - 1


def test_same_command_same_bytes(here, file, whole):
    assert main(words(file)) == 0
    assert hashes(here / "run") == hashes(whole)


def test_a_list_of_rows_does_the_same_as_a_condition(here, file, rows, whole):
    known = np.flatnonzero(rows.columns["checked"] == 1)
    (here / "known.txt").write_text("row\n" + "".join(f"{i}\n" for i in known))
    assert main(words(file, labelled="known.txt")) == 0
    same = ("keep.csv", "kept.npz", "model/filter.safetensors")
    got, expected = hashes(here / "run"), hashes(whole)
    assert [name for name in same if got[name] != expected[name]] == []
    reports = [read_json(run / "report.json") for run in (here / "run", whole)]
    names = [report["settings"].pop("labelled") for report in reports]
    assert names == ["known.txt", "checked == 1"]
    assert reports[0] == reports[1]


def test_the_report_names_its_data_and_version(whole, file):
    settings = json.loads((whole / "report.json").read_text())["settings"]
    assert settings["fields"] == {
        "obs": [],
        "action": [],
        **{name: name for name in ("reward", "terminal", "timeout", "episode")},
    }
    assert settings["data"] == [file]
    assert settings["labelled"] == "checked == 1"
    assert settings["version"] == puorl.__version__
    page = html.unescape((whole / "report.html").read_text())
    assert file in page
    assert "checked == 1" in page


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
    chosen = read_training_set(["run"])
    np.testing.assert_array_equal(chosen.weight, weight)
    quality = json.loads((here / "run" / "report.json").read_text())["quality"]
    assert quality["mean_weight"] == pytest.approx(weight[~known].mean(), rel=1e-5)
    assert quality["num_kept"] == (weight[~known] >= 0.5).sum()


def test_without_a_report_the_choice_is_the_same(here, file, whole, capsys):
    assert main(words(file, "--no-report")) == 0
    out = capsys.readouterr().out
    alpha = puorl.DomainFilter.load("run/model").alpha_.value
    assert f"alpha (target rows among the unlabelled): {alpha:.1%}; this and the choice" in out
    assert "report" not in out.replace("--no-report", "")
    got, expected = hashes(here / "run"), hashes(whole)
    assert expected.keys() - got.keys() == {"report.html", "report.json"}
    assert [name for name in got if got[name] != expected[name]] == ["settings.json"]
    chosen = read_training_set(["run"])
    assert chosen.pool.fingerprint == puorl.load(whole / "kept.npz").fingerprint


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
    by_rows = ("--unit", "episode", "--evidence", "rows")
    assert main(words(file, *by_rows, labelled="some.txt")) == 0
    said = f"{len(some):,} unlabelled rows share their episode with labelled ones"
    assert f"warning: {said}" in capsys.readouterr().out
    [warning] = [
        text
        for text in json.loads((here / "run" / "report.json").read_text())["warnings"]
        if "scattered" in text
    ]
    assert said in warning
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
        patch.setattr("puorl.cli.filter.read_labels", None)
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
        (["--labelled", "checked == 9"], "condition checked == 9 holds for none of 3,000 rows"),
        (["--labelled", "robot == 'C'"], "robot == 'C' holds for none of 3,000 rows; "),
        (["--labelled", "robot == 'C'"], "robot holds 'A7', 'B1'"),
        (["--labelled", "checked >= 0"], "condition checked >= 0 holds for all 3,000 rows"),
        (["--label", "checked == 1"], "Perhaps you meant: --labelled EXPR"),
        (["--labelled", "episode == 1 and time < 1"], "unknown name 'time'"),
        (["--labelled", "none.csv"], "none.csv: no such file"),
        (["--unit", "hour"], "transition"),
        (["--unit", "window:0"], "window"),
        (["--unit", "window:many"], "window"),
        (["--unit", "column:robbot"], "a column 'robbot' (--unit column:NAME, or"),
        (["--format", "xml"], "invalid choice 'xml'"),
        (["--preset", "best"], "'default', 'thorough', 'robots', 'paper'"),
        (["--alpha-estimator", "best"], "'bbe', 'en', 'scott', 'dedpul'"),
        (["--seed", "-1"], "seed: expected a whole number, 0 or above"),
        (["--out-format", "csv"], "parquet"),
        (["--obs", "nothing"], "nothing"),
    ],
)
def test_wrong_settings_end_with_one_clear_message(here, file, capsys, more, said):
    assert main(words(file, *more)) == 2
    assert said in message(capsys.readouterr().err)
    assert list(here.iterdir()) == []


def arrays(n, **more):
    rng = np.random.default_rng(0)
    held = {"obs": rng.normal(size=(n, 2)), "action": rng.normal(size=(n, 1))}
    held |= {"next_obs": rng.normal(size=(n, 2)), "timeout": np.zeros(n, bool)}
    return held | {"terminal": np.zeros(n, bool), "known": np.arange(n) < max(1, n // 4), **more}


@pytest.mark.parametrize(
    ("held", "more", "said"),
    [
        (arrays(1), [], "holds for all 1 rows"),
        (arrays(30), [], "labelled rows, so that some can be held out"),
        (
            arrays(90, obs=np.ones((90, 2)), next_obs=np.ones((90, 2)), action=np.ones((90, 1))),
            [],
            "expected columns that vary, got only constant ones",
        ),
        (arrays(90, obs=np.full((90, 2), np.nan)), [], "NaN or infinite"),
        (arrays(90), ["--inputs", "sar"], "--inputs sar: expected rewards"),
        (arrays(90), ["--inputs", "sars"], "judge by --inputs sas"),
    ],
)
def test_data_that_cannot_be_filtered_ends_with_one_clear_message(here, capsys, held, more, said):
    np.savez("rows.npz", **held)
    assert main(words("rows.npz", *more, labelled="known")) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.count("\n") == 1
    assert "learning" not in out or not more
    assert [p.name for p in here.iterdir()] == ["rows.npz"]


def test_rows_without_episodes_cannot_be_decided_by_episode(here, rows, capsys):
    loose = puorl.make_split(rows, rows, rows=200, labelled_fraction=0.1, seed=0).pool
    marked = puorl.Dataset(loose.rows, {"known": np.arange(200) < 20}, loose.provenance)
    puorl.save(marked, "loose.npz")
    for unit in ("episode", "window:5"):
        assert main(words("loose.npz", "--unit", unit, labelled="known")) == 2
        out, err = capsys.readouterr()
        assert "expected rows with episode ids, and this data has none" in err
        assert "learning" not in out
    assert [p.name for p in here.iterdir()] == ["loose.npz"]


def test_help_says_what_labelled_takes(capsys):
    assert main(["filter", "--help"]) == 0
    text = capsys.readouterr().out
    for word in (
        "puorl filter logs.csv",
        "source_row",
        "--no-report",
        "keep.csv",
        "--out-format",
        "--next-obs",
    ):
        assert word in text
    assert "--label " not in text


@pytest.mark.parametrize("slip", ["--labeled", "--label"])
def test_a_slip_in_the_name_of_a_needed_option_is_pointed_out(here, file, capsys, slip):
    assert main(["filter", file, slip, "checked == 1", "--out", "run"]) == 2
    text = message(capsys.readouterr().err)
    assert f"Unrecognized options: {slip}" in text
    assert "--labelled EXPR|FILE" in text


def test_listed_rows_that_loading_dropped_are_left_out_and_a_note_says_so(here, rows, capsys):
    checked = rows.columns["checked"]
    table = np.column_stack([rows.obs, rows.action, rows.episode])
    names = [f"{field}_{i}" for field, n in (("obs", 3), ("act", 2)) for i in range(n)]
    header = ",".join([*names, "episode"])
    np.savetxt("log.csv", table, delimiter=",", header=header, comments="", fmt="%.17g")
    known = np.flatnonzero(checked == 1)  # whole episodes, of which the last rows have no next
    (here / "known.txt").write_text("source_row\n" + "".join(f"{i}\n" for i in known))
    assert main(words("log.csv", labelled="known.txt")) == 0
    assert f"{NUM_CHECKED} of 500 listed rows were dropped in loading" in capsys.readouterr().out
    kept = puorl.load("run/kept.hdf5").columns
    has_next = known % LENGTH != LENGTH - 1
    assert kept["source_row"][kept["labelled"]].tolist() == known[has_next].tolist()


def test_choices_are_those_of_the_parts_behind():
    hints = get_type_hints(Filter)
    assert set(get_args(hints["mode"])) == set(get_args(Mode))
    assert set(get_args(hints["preset"])) == set(PRESETS)
    assert get_args(hints["alpha_estimator"]) == tuple(ESTIMATORS)
    assert set(get_args(hints["inputs"])) == set(get_args(Inputs)) - {"sa"}  # a check, no filter
    [spec] = get_type_hints(Filter, include_extras=True)["out_format"].__metadata__
    assert spec.choices == ("auto", *writable(), "list")


def test_the_commands_on_the_page_are_understood():
    page = Path(__file__).parents[2] / "docs" / "filter-command.md"
    commands = re.findall(r"^puorl filter (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        assert tyro.cli(Filter, args=shlex.split(command), config=PARSING).paths
