"""Commands on data that is read in partitions: the same rows as in memory, for any worker."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from filter_runs import fleet_rows, words
from messages import message

import puorl
from puorl.cli import score
from puorl.cli.main import main
from puorl.core.files import read_json, write_json
from puorl.data.training_files import read_training_set

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def parts(rows, here, monkeypatch):
    """The rows of the other tests in three files, whose borders are inside of episodes."""
    monkeypatch.setattr("puorl.data.lazy.PARTITION_ROWS", 700)
    table, folder = rows.to_arrow(), here / "log"
    folder.mkdir()
    for i, (start, stop) in enumerate(((0, 820), (820, 1930), (1930, len(rows)))):
        pq.write_table(table.slice(start, stop - start), folder / f"{i}.parquet")
    return "log"


def content(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_all_rows_as_sample_keep_the_rows_of_the_command_in_memory(parts, whole, rows, capsys):
    command = [*words(parts, "--stream", "--workers", "2")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    kept, plain = puorl.load("run"), puorl.load(whole / "kept.npz")
    order, other = (np.lexsort(data.obs.T) for data in (kept, plain))
    assert np.array_equal(kept.obs[order], plain.obs[other])
    assert kept.columns["labelled"].sum() == (rows.columns["checked"] == 1).sum()
    assert "as asked: LazyDataset(3,000 rows of 3 files in 5 partitions)" in printed
    assert "fitted on 2,500 of 2,500 unlabelled rows and 500 of 500 labelled ones" in printed
    settings = read_json("run/settings.json")
    assert settings["kept"]["num_rows"] == len(kept)
    assert settings["sample"]["sampling"] == 0.0
    assert settings["returns"] == pytest.approx(read_json(whole / "settings.json")["returns"])
    chosen = read_training_set(["run"])
    assert len(chosen.rows) == len(kept)


@pytest.mark.parametrize("mode", ["hard", "soft", "top_alpha"])
def test_the_same_bytes_for_any_number_of_workers(parts, here, mode):
    options = ("--stream", "--sample", "800", "--no-report", "--mode", mode, "--force")
    assert main([*words(parts, *options, "--workers", "1")]) == 0
    one = content(here / "run" / "kept")
    shutil.move("run", "one")
    assert main([*words(parts, *options, "--workers", "3")]) == 0
    assert len(one) == 5
    assert content(here / "run" / "kept") == one
    kept = puorl.load("run")
    if mode == "soft":
        assert len(kept) == 3000
        assert kept.columns["weight"].max() == 1.0
    else:
        ours = kept.columns["ours"]
        assert ours.mean() > 0.9
        assert 900 < len(kept) < 1700
    sample = read_json("run/settings.json")["sample"]
    assert sample["num_taken"] == 800
    assert sample["num_labelled"] == 500
    assert 0 < sample["sampling"] < sample["half_width"]


def test_a_list_of_rows_counts_over_all_files(parts, rows):
    assert main([*words(parts, "--stream", "--no-report", "--out-format", "list")]) == 0
    header, *lines = Path("run/keep.csv").read_text().splitlines()
    number = np.array([int(line.split(",")[0]) for line in lines])
    assert header == "source_row,score"
    assert (np.diff(number) > 0).all()
    assert rows.columns["ours"][number].mean() > 0.9
    assert set(np.flatnonzero(rows.columns["checked"])) <= set(number.tolist())


@pytest.mark.parametrize("evidence", ["rows", "dynamics"])
def test_whole_episodes(parts, evidence):
    options = ("--unit", "episode", "--evidence", evidence, "--stream", "--sample", "1000")
    assert main([*words(parts, *options, "--no-report")]) == 0
    kept = puorl.load("run")
    assert (np.unique(kept.episode, return_counts=True)[1] == 50).all()
    assert kept.columns["ours"].mean() > 0.9


def test_machines(here, monkeypatch, fleet):
    monkeypatch.setattr("puorl.data.lazy.PARTITION_ROWS", 300)
    monkeypatch.setattr("puorl.scale.sample._LEAST_ROWS", 80)
    pq.write_table(fleet_rows().to_arrow(), "fleet.parquet", row_group_size=100)
    options = ("--unit", "column:machine", "--stream")
    command = words("fleet.parquet", *options, "--sample", "1200", labelled="machine == 'M-01'")
    assert main(command) == 0
    units = (here / "run" / "units.csv").read_text().splitlines()
    assert len(units) == len((fleet[0] / "run" / "units.csv").read_text().splitlines())
    kept, plain = puorl.load("run"), puorl.load(fleet[0] / "run" / "kept.npz")
    assert set(kept.columns["machine"]) == set(plain.columns["machine"])
    assert len(kept) == len(plain)


def test_a_file_of_target_rows(parts, rows):
    puorl.save(rows[rows.columns["checked"] == 1], "known.npz")
    assert main([*words(parts, "--stream", "--no-report", labelled="known.npz")]) == 0
    kept = puorl.load("run")
    assert kept.columns["ours"].mean() > 0.9
    assert len(read_training_set(["run"]).rows) == len(kept)


def test_refusals(parts, capsys):
    Path("list.txt").write_text("row\n1\n")
    assert main([*words(parts, "--stream", labelled="list.txt")]) == 2
    assert "got a list" in message(capsys.readouterr().err)
    assert main([*words(parts, "--stream", "--out-format", "npz")]) == 2
    assert "expected parquet or list" in message(capsys.readouterr().err)
    assert main([*words(parts, "--out-format", "list")]) == 2
    assert "--stream" in message(capsys.readouterr().err)


@pytest.mark.parametrize(
    "labelled", ["", "checked == 9", "robot == 'C'", "checked >= 0", "none.csv", "log/1.parquet"]
)
def test_labels_that_do_not_fit_are_refused_as_in_memory(parts, capsys, labelled):
    told = []
    for more in ([], ["--stream", "--workers", "1"]):
        command = words(parts, *more, labelled=labelled)
        assert main([word for word in command if labelled or word not in ("--labelled", "")]) == 2
        told.append(message(capsys.readouterr().err))
    assert told[0] == told[1]


def test_damage_in_one_partition_is_named_and_the_rest_is_done(parts, here, capsys):
    table = pq.read_table("log/1.parquet")
    name = next(n for n in table.column_names if n.startswith("act"))
    values = table[name].to_numpy().copy()
    values[1000] = np.nan
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, [values]), "log/1.parquet")
    assert main([*words(parts, "--stream", "--no-report")]) == 2
    told = message(capsys.readouterr().err)
    assert "1 of 5 partitions failed" in told
    assert "--missing drop" in told
    left = json.loads(next((here / ".run.part").rglob("part-000000.json")).read_text())
    assert left["num_rows"] > 0


def test_scores_of_new_rows(parts, whole, capsys):
    assert main(["score", str(whole), parts, "--stream", "--out", "s.csv", "--workers", "2"]) == 0
    assert "of 3,000 rows are likely the target's" in capsys.readouterr().out
    assert main(["score", str(whole), parts, "--out", "plain.csv"]) == 0
    made, plain = (np.loadtxt(n, delimiter=",", skiprows=1) for n in ("s.csv", "plain.csv"))
    assert np.array_equal(made[:, [0, 2]], plain[:, [0, 2]])
    np.testing.assert_allclose(made[:, 1], plain[:, 1], atol=1e-6)
    assert sorted(p.name for p in Path().iterdir()) == ["log", "plain.csv", "s.csv"]


def test_parts_that_another_filter_left_are_not_taken(parts, whole, monkeypatch):
    """A killed command may meet a filter that was fitted anew under the same name."""
    seen, make = [], score.partition_folder
    monkeypatch.setattr(score, "partition_folder", lambda *a: seen.append(a[1]) or make(*a))
    shutil.copytree(whole, "run")
    command = ["score", "run", parts, "--stream", "--out", "s.csv", "--workers", "1", "--force"]
    assert main(command) == main(command) == 0
    content = read_json("run/model/filter.json")
    write_json("run/model/filter.json", content | {"seed": content["seed"] + 1}, force=True)
    assert main(command) == main([*command, "--sample", "700"]) == 0
    assert seen[0] == seen[1]
    assert [seen[0] == each for each in seen[2:]] == [False, False]
    assert seen[2] != seen[3]


def test_scores_of_new_machines(fleet, here, monkeypatch, capsys):
    monkeypatch.setattr("puorl.data.lazy.PARTITION_ROWS", 300)
    pq.write_table(fleet_rows().to_arrow(), "fleet.parquet", row_group_size=100)
    model = str(fleet[0] / "run")
    assert main(["score", model, "fleet.parquet", "--stream", "--out", "units.csv"]) == 0
    assert main(["score", model, "fleet.parquet", "--out", "plain.csv"]) == 0
    made, plain = (Path(n).read_text().splitlines() for n in ("units.csv", "plain.csv"))
    assert [line.split(",")[0] for line in made] == [line.split(",")[0] for line in plain]


def test_rows_left_out_are_counted_as_in_memory(parts, whole, rows, capsys):
    table = rows.to_arrow()
    table = table.drop_columns([n for n in table.column_names if n.startswith("next_")])
    values = table["act_0"].to_numpy().copy()
    values[[3, 2500, *range(650, 1450)]] = np.nan  # no row of the second partition is usable
    table = table.set_column(table.column_names.index("act_0"), "act_0", [values])
    pq.write_table(table, "gaps.parquet", row_group_size=50)
    told, content = [], []
    for more in ([], ["--stream", "--workers", "1"]):
        command = ["score", str(whole), "gaps.parquet", "--missing", "drop", *more]
        assert main(command) == 0
        printed = capsys.readouterr().out
        told.append([line for line in printed.splitlines() if "LazyDataset" not in line])
        assert main([*command, "--json"]) == 0
        content.append(json.loads(capsys.readouterr().out))
        assert main(["inspect", "gaps.parquet", *more, "--json"]) == 0
        content[-1]["inspected"] = json.loads(capsys.readouterr().out)["num_rows"]
    assert told[0] == told[1]
    assert "note: missing: 802 rows with cells that are missing or no numbers" in told[0][0]
    assert content[0].pop("mean_score") == pytest.approx(content[1].pop("mean_score"))
    assert content[0] == content[1]
    assert content[0]["left_out"] == {"missing_rows": 802, "dropped_rows": 45}


def test_rows_without_a_machine_are_left_out_as_in_memory(fleet, here, monkeypatch, capsys):
    monkeypatch.setattr("puorl.data.lazy.PARTITION_ROWS", 300)
    rows, model = fleet_rows(), str(fleet[0] / "run")
    names = rows.columns["machine"].copy()
    names[[3, *range(310, 650)]] = ""  # all of the second partition
    for file, column in (("some", names), ("none", np.full_like(names, ""))):
        changed = dataclasses.replace(rows, columns={"machine": column})
        pq.write_table(changed.to_arrow(), f"{file}.parquet", row_group_size=40)
    found = []
    for more in ([], ["--stream", "--workers", "1"]):
        command = ["score", model, "some.parquet", "--missing", "drop", "--json", *more]
        assert main(command) == 0
        content = json.loads(capsys.readouterr().out)
        units = sorted(unit["name"] for unit in content["units"])
        found.append((units, content["not_decided"], content["left_out"]))
        assert main([word.replace("some", "none") for word in command]) == 2
        told = message(capsys.readouterr().err)
        assert "machine" in told
        assert "partition" not in told
    assert found[0] == found[1]
    assert found[0][2] == {"missing_rows": 341, "dropped_rows": 0}


def test_rows_are_copied_in_partitions(parts, rows):
    assert main(["export", parts, "--stream", "--out", "copy", "--workers", "2"]) == 0
    copy = puorl.load("copy")
    assert np.array_equal(copy.obs, rows.obs)
    assert np.array_equal(copy.next_obs, rows.next_obs)
    assert len(list(Path("copy").iterdir())) == 5


def test_inspect(parts, capsys):
    assert main(["inspect", parts, "--labelled", "checked == 1", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    command = ["inspect", parts, "--labelled", "checked == 1", "--json", "--stream"]
    assert main([*command, "--workers", "2"]) == 0
    made = json.loads(capsys.readouterr().out)
    # In memory an episode ends with its file.
    for name in ("fingerprint", "notes", "episodes", "ends", "continuity", "findings", "labels"):
        del made[name], plain[name]
    columns, plain_columns = made.pop("columns"), plain.pop("columns")
    assert made == plain
    for one, other in zip(columns, plain_columns, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            if name not in ("longest_run", "stuck_fraction", "bound_fraction"):
                expected = pytest.approx(other[name]) if isinstance(value, float) else other[name]
                assert value == expected, (one["name"], name)


def test_inspect_as_one_file(parts, rows, capsys):
    pq.write_table(rows.to_arrow(), "whole.parquet")
    assert main(["inspect", "whole.parquet", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main(["inspect", parts, "--json", "--stream"]) == 0
    made = json.loads(capsys.readouterr().out)
    for name in ("episodes", "ends", "continuity", "clock", "num_rows", "num_duplicated_rows"):
        assert made[name] == plain[name], name


def test_train_on_chunks(parts, here, capsys):
    assert main([*words(parts, "--stream", "--no-report")]) == 0
    command = "train run --learner td3_bc --steps 40 --chunk-rows 300 --out policy"
    command += " --set hidden=8 batch_size=16"
    assert main(command.split()) == 0
    printed = capsys.readouterr().out
    assert "random chunks of" in printed
    assert "from uniform ones by" in printed
    assert (here / "policy" / "policies" / "seed-0.safetensors").exists()
    assert sorted(p.name for p in here.iterdir()) == ["log", "policy", "run"]
    part = sorted(Path("run/kept").iterdir())[0]
    puorl.save(puorl.load(part)[1:], part, force=True)  # whole, but not what the filter kept
    assert main(command.replace("--out policy", "--out other").split()) == 2
    assert "run/kept: content hash differs" in capsys.readouterr().err


def test_large_files_are_read_in_partitions_without_asking(parts, here, monkeypatch, capsys):
    monkeypatch.setattr("puorl.cli.options.free_memory", lambda: 100_000)
    assert main(["inspect", parts, "--json"]) == 0
    assert "more than an eighth of the free memory (100.0 kB)" in capsys.readouterr().err
    monkeypatch.setattr("puorl.cli.options.free_memory", lambda: 10**9)
    assert main(["inspect", parts, "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_an_interrupted_inspection_goes_on(parts, monkeypatch, tmp_path, capsys):
    from puorl.core import tasks

    monkeypatch.setenv("PUORL_CACHE", str(tmp_path / "cache"))
    left, every = [], tasks.try_all

    def counted(function, items, *rest, **options):
        left.append(len(items))
        return every(function, items, *rest, **options)

    monkeypatch.setattr(tasks, "try_all", counted)
    with monkeypatch.context() as patch:
        patch.setattr("puorl.scale.inspection._lengths", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(["inspect", parts, "--stream", "--workers", "1"])
    assert main(["inspect", parts, "--stream", "--workers", "1"]) == 0
    assert left == [5, 0]
    assert list((tmp_path / "cache").iterdir()) == []
