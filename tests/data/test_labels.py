import numpy as np
import pytest

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.data.labels import read_labels, write_keep_list


def rows(n=40, seed=0, **more):
    rng = np.random.default_rng(seed)
    return puorl.Dataset.from_arrays(
        obs=rng.normal(size=(n, 2)),
        action=rng.normal(size=(n, 1)),
        next_obs=rng.normal(size=(n, 2)),
        terminal=np.zeros(n, bool),
        timeout=np.arange(n) % 10 == 9,
        episode=np.arange(n) // 10 + 100,
        **more,
    )


@pytest.fixture
def file(tmp_path):
    run = np.array(["r0", "r1", "r2", "r3"])[np.arange(40) // 10]
    return str(
        puorl.save(rows(columns={"run": run, "checked": np.arange(40) % 4}), tmp_path / "a.npz")
    )


def known(file, labelled, **names):
    return read_labels([file], str(labelled), **names)


def test_a_condition(file):
    got = known(file, "checked == 1 and run == 'r2'")
    assert got.sampling == "one"
    assert np.flatnonzero(got.mask).tolist() == [21, 25, 29]
    with pytest.raises(ConfigError, match="unknown name 'chekked'; known columns: checked"):
        known(file, "chekked == 1")


def test_a_condition_is_not_taken_for_a_file_that_lies_about(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checked > 2.5").touch()
    (tmp_path / "timeout").mkdir()
    assert known(file, "checked > 2.5").mask.sum() == 10
    assert known(file, "timeout").mask.sum() == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("row\n3\n1\n3\n", [1, 3]),
        ("episode\n102\n", range(20, 30)),
        ("run,score\nr1,0.5\nr0,0.9\n", range(20)),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".txt", ".CSV"])
def test_a_list(file, tmp_path, text, expected, suffix):
    (tmp_path / f"list{suffix}").write_text(text)
    got = known(file, tmp_path / f"list{suffix}")
    assert np.flatnonzero(got.mask).tolist() == list(expected)
    assert got.sampling == "one"
    assert got.data is not got.pool
    assert "labelled" not in got.data.columns


def test_a_list_that_we_wrote(file, tmp_path):
    data = puorl.load(file)
    write_keep_list(tmp_path / "k.csv", data, np.arange(40) < 20, unit="episode", score=np.ones(40))
    assert known(file, tmp_path / "k.csv").mask.tolist() == [True] * 20 + [False] * 20


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3\n1\n", "first line must say what is listed, expected row or episode or run, got '3'"),
        ("row\n40\n", "is it the list of another dataset"),
        ("episode\n7\n", "1 of 1 episodes are not in the dataset"),
        ("", "got an empty file"),
        ("robot\nA7\n", "got 'robot'"),
    ],
)
def test_a_list_that_does_not_fit(file, tmp_path, text, says):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(DataError, match=says):
        known(file, tmp_path / "list.txt")


@pytest.mark.parametrize("name", ["ours.hdf5", "ours.npz", "ours.parquet"])
def test_a_file_of_target_rows(file, tmp_path, name):
    ours = puorl.save(rows(15, seed=1), tmp_path / name)
    got = known(file, ours)
    assert got.sampling == "two"
    assert got.mask.tolist() == [False] * 40 + [True] * 15
    assert len(got.data) == 40
    assert np.array_equal(got.pool.obs[40:], puorl.load(ours).obs)


def test_a_table_of_target_rows_is_no_list(tmp_path):
    header = "obs_x,act_x,ep\n"
    for name, start in (("all.csv", 0), ("ours.csv", 50)):
        lines = [f"{start + i},{i / 7},{i // 10}\n" for i in range(30)]
        (tmp_path / name).write_text(header + "".join(lines))
    got = known(str(tmp_path / "all.csv"), tmp_path / "ours.csv", episode="ep")
    assert (got.sampling, got.mask.sum()) == ("two", 27)  # three rows have no next one
    (tmp_path / "semi.csv").write_text((tmp_path / "ours.csv").read_text().replace(",", ";"))
    assert known(str(tmp_path / "all.csv"), tmp_path / "semi.csv", episode="ep").mask.sum() == 27


def test_a_folder_needs_a_slash(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ours").mkdir()
    puorl.save(rows(15, seed=1), tmp_path / "ours" / "part.parquet")
    assert known(file, "./ours").mask.sum() == 15
    with pytest.raises(ConfigError, match="'ours'"):
        known(file, "ours")


def test_a_file_that_is_data_too_is_refused(file):
    with pytest.raises(DataError, match="would count twice"):
        known(file, file)


@pytest.mark.parametrize("name", ["none.csv", "none.txt", "none.hdf5"])
def test_a_file_that_is_not_there(file, name):
    with pytest.raises(DataError, match="no such file; labels are a condition or a file"):
        known(file, name)


def test_the_files_own_column_gives_way_and_a_note_says_so(tmp_path):
    path = puorl.save(rows(columns={"labelled": np.full(40, 7)}), tmp_path / "a.npz")
    (tmp_path / "list.txt").write_text("row\n5\n")
    got = known(str(path), tmp_path / "list.txt")
    assert np.flatnonzero(got.mask).tolist() == [5]
    assert any("gave way to the labels" in note for note in got.pool.provenance.notes)
