import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from messages import message

import puorl
from puorl.cli.main import main


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    path = rng.normal(size=(61, 3))
    path[:, 1] = 2.0
    dataset = puorl.Dataset.from_arrays(
        obs=path[:-1],
        action=np.round(rng.normal(size=(60, 2)), 2),
        next_obs=path[1:],
        terminal=np.zeros(60, bool),
        timeout=np.arange(60) % 20 == 19,
        time=np.arange(60) * 0.5,
        columns={"checked": np.arange(60) % 6, "robot": np.array(["A7", "[b]"])[np.arange(60) % 2]},
    )
    return str(puorl.save(dataset, tmp_path / "rows.npz"))


def test_tables_fit_eighty_columns_without_colour(file, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["inspect", file]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"rows +60", out)
    assert re.search(r"episodes +3 \(rows each: min 20, median 20, max 20\)", out)
    assert re.search(r"obs\[1\] .* constant", out)
    assert re.search(r"action\[0\] .* rounded to 0.01", out)
    assert "[b]" in out  # text of the user is not taken for markup
    assert "warning  constant, so without information: obs[1]" in out
    assert "warning  no reward" in out


def test_a_long_path_is_not_broken(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / ("a-folder-of-many-words/" * 4) / "rows.csv"
    file.parent.mkdir(parents=True)
    file.write_text("obs_x,act_x\n1,2\n3,4\n5,6\n")
    assert main(["inspect", str(file)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"source       {file} (csv, 68 bytes in memory)"
    assert second.startswith("fingerprint  ")


def test_an_empty_text_is_shown_as_one(tmp_path, capsys):
    file = tmp_path / "rows.csv"
    file.write_text("obs_x,act_x,note\n1,2,\n3,4,\n5,6,late\n7,8,\n")
    assert main(["inspect", str(file)]) == 0
    assert "2 texts, e.g. '', late" in capsys.readouterr().out


def test_json_is_one_object_and_nothing_else(file, capsys):
    assert main(["inspect", file, "--json", "--labelled", "checked == 1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    seen = json.loads(out)
    assert seen["num_rows"] == 60
    assert seen["labels"] == {"num_rows": 10, "fraction": pytest.approx(1 / 6), "num_episodes": 3}
    assert {f["level"] for f in seen["findings"]} <= {"info", "warning", "problem"}


def test_labelled_is_what_the_filter_takes(file, tmp_path, capsys):
    (tmp_path / "known.txt").write_text("row\n3\n5\n")
    shutil.copy(file, tmp_path / "ours.npz")
    for labelled, num_rows, num_labelled in (
        (str(tmp_path / "known.txt"), 60, 2),
        (str(tmp_path / "ours.npz"), 120, 60),
        ("robot == 'nobody'", 60, 0),
        ("checked >= 0", 60, 60),
    ):
        assert main(["inspect", file, "--labelled", labelled, "--json"]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert (seen["num_rows"], seen["labels"]["num_rows"]) == (num_rows, num_labelled)
        problems = [f["text"] for f in seen["findings"] if f["level"] == "problem"]
        assert bool([p for p in problems if "labelled" in p]) == (num_labelled in (0, num_rows))


def test_several_paths_are_one_dataset(file, tmp_path, capsys):
    other = shutil.copy(file, tmp_path / "more.npz")
    assert main(["inspect", file, str(other), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["num_rows"], seen["episodes"]["count"]) == (120, 6)
    assert seen["num_duplicated_rows"] == 60


def test_notes_and_findings_of_several_files_count_all_of_them(tmp_path, capsys):
    lines = [f"{t / 8},{t % 3},{e},{int(t == 4)}" for e in (0, 1) for t in range(5 - e)]
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("\n".join(["obs_x,act_x,episode,terminal", *lines]))
    assert main(["inspect", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["ends"]["num_terminal"], seen["ends"]["num_timeout"]) == (2, 2)
    assert (
        "next_obs: unknown (NaN) in 2 terminal rows: the end state was not logged" in seen["notes"]
    )
    said = [f["text"] for f in seen["findings"]]
    assert "the next state is unknown in 2 terminal rows" in said
    # Timeouts that are counted, and no flags of the file, are no contradiction.
    assert "no timeout flags: a cut is marked only where the record breaks off (2 rows)" in said


def test_fields_can_be_named(tmp_path, capsys):
    path = tmp_path / "named.npz"
    rng = np.random.default_rng(0)
    np.savez(path, where=rng.normal(size=(9, 2)), push=rng.normal(size=9), trip=[0] * 4 + [1] * 5)
    words = ["--obs", "where", "--action", "push", "--episode", "trip", "--format", "npz"]
    assert main(["inspect", str(path), "--json", *words]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["obs_dim"], seen["action_dim"], seen["episodes"]["count"]) == (2, 1, 2)
    assert main(["inspect", str(path), "--obs", "wher", "--action", "push"]) == 2
    assert "where" in capsys.readouterr().err


def test_lists_of_columns_are_parted_by_commas():
    from puorl.cli.options import _listed

    assert _listed("obs_*") == "obs_*"
    assert _listed("angle, speed") == ["angle", "speed"]
    assert _listed(None) is None


@pytest.mark.parametrize(
    ("text", "count"), [("1e6", 10**6), ("1_000", 1_000), ("2M", 2 * 10**6), ("7", 7)]
)
def test_counts_are_read_as_people_write_them(text, count):
    import tyro

    from puorl.cli.options import Count

    assert tyro.cli(Count, args=[text]) == count


def test_a_wrong_count_names_its_option(capsys):
    assert (
        main(["collect", "--env", "hopper", "--seed", "0", "--out", "x.npz", "--rows", "many"]) == 2
    )
    err = capsys.readouterr().err
    assert "--rows" in err
    assert "'many'" in err


def test_no_path_is_an_error(capsys):
    assert main(["inspect"]) == 2
    assert capsys.readouterr().err.startswith("puorl: error: need at least one path")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_without_usual_names_are_listed_to_choose_from(tmp_path, capsys, suffix):
    path = tmp_path / f"log{suffix}"
    if suffix == ".csv":
        path.write_text("pump,clock,flow\nP-1,2026-03-01T06:00:00Z,1.5\nP-2,,\n")
    else:
        columns = {"pump": ["P-1", "P-2"], "clock": ["2026-03-01T06:00:00Z", None]}
        pq.write_table(pa.table({**columns, "flow": [1.5, None]}), path)
    assert main(["inspect", str(path)]) == 2
    shown, said = capsys.readouterr()
    rows = [line.split() for line in shown.splitlines()]
    assert ["pump", "text", "0", "P-1,", "P-2"] in rows
    assert ["clock", "time", "1", "2026-03-01T06:00:00Z"] in rows
    assert ["flow", "number", "1", "1.5"] in rows
    assert "say which is which: --obs A,B --action C,D" in shown
    assert "expected obs under one of its usual names" in message(said)
    assert main(["inspect", str(path), "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_columns_of_ragged_rows_are_listed_all_the_same(tmp_path, capsys):
    path = tmp_path / "log.csv"
    path.write_text("pump;flow;note\nP-1;nan;" + 100 * "x" + "\nP-2\n\nP-3;NaN;;7\n")
    assert main(["inspect", str(path)]) == 2
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["pump", "text", "0", "P-1,", "P-2,", "P-3"] in rows
    assert [row[2] for row in rows if row[:1] in (["flow"], ["note"])] == ["2", "1"]
    assert ["note", "text", "1", 40 * "x"] in rows
