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


MACHINES = ["A1", "A2", "B1", "it's"]


@pytest.fixture
def fleet(tmp_path):
    """A row for each machine twice; ``code`` is 0 to 3."""
    columns = {"machine": np.tile(MACHINES, 10), "code": np.tile(np.arange(4), 10)}
    return str(puorl.save(rows(columns=columns), tmp_path / "fleet.npz"))


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("machine in ['A1', 'B2']", r"no row has machine == 'B2' \(did you mean 'B1'\?\)"),
        ("machine == 'A1' or machine == 'B2'", r"machine has 4 values: 'A1', 'A2', 'B1', \"it's\""),
        ("machine in ['A1', 'X', 'Y', 'Z']", r"== 'X' \(2 more such values\); machine has"),
        ("code > 1 and not machine not in ['A1', 'B2', 'B1']", "machine == 'B2'"),
    ],
)
def test_a_label_that_names_a_text_that_no_row_has_is_refused(fleet, condition, says):
    with pytest.raises(DataError, match=says):
        known(fleet, condition)
    with pytest.raises(DataError, match="^label: .*" + says):
        puorl.load(fleet, label=condition)
    with pytest.raises(DataError, match="^labelled: .*" + says):
        puorl.PUSplit.from_mask(puorl.load(fleet), condition)


@pytest.mark.parametrize(
    ("condition", "number", "noted"),
    [
        ("machine != 'X' and code == 1", 10, "label: no row has machine == 'X'"),
        ("not machine == 'X' and code == 1", 10, "label: no row has machine == 'X'"),
        ("code in [1, 9]", 10, "label: no row has code == 9"),
        ("machine == '' or code == 1", 10, ""),
        ("code == 0.5 or code == 1", 10, "label: no row has code == 0.5"),
        ("terminal == 1 or code == 1", 10, ""),
    ],
)
def test_values_that_may_well_be_absent_are_noted(fleet, condition, number, noted):
    data = puorl.load(fleet, label=condition)
    assert data.columns["labelled"].sum() == number
    assert [n for n in data.provenance.notes if n.startswith("label")] == ([noted] if noted else [])


def test_a_value_may_be_in_another_file(tmp_path):
    files = []
    for name in ("A1", "A2", "B1"):
        data = rows(columns={"machine": np.full(40, name)})
        files.append(str(puorl.save(data, tmp_path / f"{name}.npz")))
    assert puorl.load(files, label="machine in ['A1', 'B1']").columns["labelled"].sum() == 80
    # One file of several may have no labelled rows: that is noted, and refused by who needs some.
    alone = puorl.load(files[0], label="machine == 'B1'")
    assert not alone.columns["labelled"].any()
    assert "label: no row has machine == 'B1' (did you mean 'A1'?)" in alone.provenance.notes
    with pytest.raises(DataError, match=r"no row has machine == 'B2' \(did you mean 'B1'\?\)"):
        puorl.load(files, label="machine in ['A1', 'B2']")


def test_a_value_without_usable_rows_is_no_slip(tmp_path):
    lines = [f"{i},{i % 3},{name}\n" for name in ("A1", "A2") for i in range(9)]
    path = tmp_path / "log.csv"
    path.write_text("obs,act,machine\n" + "".join(lines) + "5,1,C1\n")  # its next state is unknown
    data = puorl.load(path, episode="machine", label="machine in ['A1', 'C1']")
    assert data.columns["labelled"].sum() == 8


def test_a_condition_that_holds_for_no_row_lists_the_values(fleet):
    data = puorl.load(fleet)
    says = r"no row has machine == 'B2' \(did you mean 'B1'\?\); machine holds 'A1', 'A2', "
    with pytest.raises(DataError, match=says):
        known(fleet, "machine == 'B2'")
    with pytest.raises(DataError, match=r"^labelled: .* 0 of 40 for machine == 'B2'; " + says):
        puorl.PUSplit.from_mask(data, "machine == 'B2'")
    with pytest.raises(DataError, match=r"0 of 40 for .*; machine holds 'A1'"):
        puorl.PUSplit.from_mask(data, "machine == 'A1' and code == 1")


def test_a_machine_whose_rows_were_all_left_out_is_named_and_no_other_proposed(tmp_path):
    cells = [(i if name == "A1" else "", name) for name in ("A1", "A2") for i in range(9)]
    lines = [f"{obs},{k % 3},{name}\n" for k, (obs, name) in enumerate(cells)]
    path = tmp_path / "log.csv"
    path.write_text("obs,act,machine\n" + "".join(lines))
    data = puorl.load(path, missing="drop")
    with pytest.raises(DataError) as refused:
        puorl.PUSplit.from_mask(data, "machine == 'A2'")
    assert "all rows with machine == 'A2' were left out in loading" in str(refused.value)
    assert "did you mean" not in str(refused.value)
