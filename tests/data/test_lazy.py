"""Lazy datasets: the same rows as `puorl.load` on one file with the content of all."""

import csv
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import puorl
from puorl.core.errors import DataError
from puorl.data.validate import SOURCE_ROW


def table(kind="numbers", episodes=9, seed=0, **extra):
    """Make a log: episodes of 3 to 12 rows, states of two columns, a clock with gaps."""
    rng = np.random.default_rng(seed)
    length = rng.integers(3, 13, episodes)
    number = np.repeat(np.arange(episodes), length)
    n = len(number)
    step = np.concatenate([np.arange(k) for k in length])
    time = step * 0.5
    late = np.concatenate([np.arange(k) >= 7 for k in length])
    made = {
        "obs_0": rng.normal(size=n),
        "obs_1": rng.normal(size=n).astype(np.float32),
        "act_0": rng.normal(size=n),
        "reward": rng.normal(size=n),
        "robot": np.array([f"R{i % 3}" for i in number]),
        "terminal": step == np.repeat(length, length) - 1,
    }
    made["terminal"] &= number % 2 == 0
    if kind == "numbers":
        made["episode"] = number * 7 + 3
    if kind == "texts":
        made["episode"] = np.array([f"trip {i * 31 % 17}" for i in number])
    if kind in ("numbers", "texts", "clock"):
        made["time"] = time + late * 100.0 + (0 if kind != "clock" else number * 1e4)
    if kind in ("flags", "next"):
        made["timeout"] = (step == np.repeat(length, length) - 1) & ~made["terminal"]
    if kind == "next":
        made["next_obs_0"], made["next_obs_1"] = rng.normal(size=(2, n))
    if kind == "interleaved":
        made["episode"] = np.array([f"trip {i}" for i in number])
        order = np.lexsort((step, number // 3))
        made = {name: column[order] for name, column in made.items()}
    return pa.table(made | extra)


def cut(whole, places):
    ends = [0, *places, whole.num_rows]
    return [whole.slice(a, b - a) for a, b in zip(ends[:-1], ends[1:], strict=True)]


def write_csv(made, path, end="\n", encoding="utf-8"):
    with open(path, "w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator=end)
        writer.writerow(made.column_names)
        writer.writerows(zip(*(made[name].to_pylist() for name in made.column_names), strict=True))


def write(folder, pieces, suffix=".parquet", group=5):
    folder.mkdir()
    for i, piece in enumerate(pieces):
        path = folder / f"part-{i:02d}{suffix}"
        if suffix == ".parquet":
            pq.write_table(piece, path, row_group_size=group)
        else:
            write_csv(piece, path)
    return folder


def same(lazy, loaded):
    made = lazy.to_dataset()
    assert dict(made.columns).keys() == dict(loaded.columns).keys()
    for name, array in loaded.rows.arrays().items():
        np.testing.assert_array_equal(made.rows.arrays()[name], array, err_msg=name)
        assert made.rows.arrays()[name].dtype == array.dtype, name
    for name, array in loaded.columns.items():
        np.testing.assert_array_equal(made.columns[name], array, err_msg=name)
    assert made.fingerprint == loaded.fingerprint


KINDS = ("numbers", "texts", "flags", "clock", "next", "interleaved")


@pytest.mark.parametrize("size", [2, 7, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_files_cut_anywhere_give_the_rows_of_the_whole(tmp_path, kind, size):
    whole = table(kind)
    if kind in ("flags", "next"):  # without ids and clock only a flag allows a border
        flag = (whole["terminal"].to_numpy() | whole["timeout"].to_numpy()).nonzero()[0]
        places = (flag[[1, 4]] + 1).tolist()
    else:
        places = [4, 5, 31, 40]
    pq.write_table(whole, tmp_path / "whole.parquet")
    folder = write(tmp_path / "parts", cut(whole, places))
    loaded = puorl.load(tmp_path / "whole.parquet", label="robot == 'R1'")
    lazy = puorl.open(folder, partition_rows=size, label="robot == 'R1'")
    same(lazy, loaded)
    if size == 7:
        assert len(lazy) >= 3
    assert sum(each.num_rows for each in lazy.partitions) == whole.num_rows


def test_no_episode_crosses_a_partition(tmp_path):
    folder = write(tmp_path / "parts", cut(table("numbers", 40), [50, 51, 120]))
    seen = [set(part.episode.tolist()) for part in puorl.open(folder, partition_rows=20)]
    assert len(seen) > 5
    assert sum(map(len, seen)) == len(set().union(*seen)) == 40


@pytest.mark.parametrize("kind", ["numbers", "texts", "flags"])
def test_csv(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("puorl.data.csv._BLOCK_LINES", 6)
    whole = table(kind)
    kept = {name: whole[name] for name in whole.column_names}
    # Text, an empty cell, and a number elsewhere: what a column is shows only in all of it.
    odd = ["7"] * whole.num_rows
    odd[30], odd[33] = 'x,"y"\nz', ""
    whole = pa.table(kept | {"odd": odd, "whole": [*range(whole.num_rows - 1), 0.5]})
    write_csv(whole, tmp_path / "whole.csv")
    loaded = puorl.load(tmp_path / "whole.csv")
    same(puorl.open(tmp_path / "whole.csv", partition_rows=9), loaded)
    if kind != "flags":
        folder = write(tmp_path / "parts", cut(whole, [13, 40]), ".csv")
        same(puorl.open(str(folder / "*.csv"), partition_rows=9), loaded)


def test_csv_with_a_mark_and_letters_of_several_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("puorl.data.csv._BLOCK_LINES", 3)
    whole = table("numbers")
    texts = [f"Prüfling {i % 4} №" for i in range(whole.num_rows)]
    path = tmp_path / "log.csv"
    write_csv(whole.append_column("name", [texts]), path, "\r\n", "utf-8-sig")
    same(puorl.open(path, partition_rows=4), puorl.load(path))


def test_compressed_text_is_refused(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.touch()
    with pytest.raises(DataError, match="unpack it"):
        puorl.open(path)


@pytest.mark.parametrize("own", [False, True])
def test_hdf5(tmp_path, own, monkeypatch):
    import h5py

    monkeypatch.setattr("puorl.data.hdf5._BLOCK", 11)
    path = tmp_path / "rows.hdf5"
    if own:
        pq.write_table(table("texts"), tmp_path / "whole.parquet")
        puorl.save(puorl.load(tmp_path / "whole.parquet"), path)
    else:
        whole = table("flags")
        held = {name: whole[name].to_numpy() for name in whole.column_names}
        with h5py.File(path, "w") as file:
            file["observations"] = np.stack([held["obs_0"], held["obs_1"]], axis=1)
            file["actions"], file["rewards"] = held["act_0"], held["reward"]
            file["terminals"], file["timeouts"] = held["terminal"], held["timeout"]
            file["name"] = held["robot"].astype("S")
    loaded, lazy = puorl.load(path), puorl.open(path, partition_rows=10)
    assert len(lazy) > 3
    made = lazy.to_dataset()
    np.testing.assert_array_equal(made.next_obs, loaded.next_obs)
    np.testing.assert_array_equal(made.episode, loaded.episode)
    for name in {*loaded.columns} - ({SOURCE_ROW} if own else set()):  # counted anew
        np.testing.assert_array_equal(made.columns[name], loaded.columns[name])


@pytest.mark.parametrize("missing", ["drop", "hold:2"])
def test_missing_cells(tmp_path, missing):
    whole = table("numbers", 20)
    state = whole["obs_0"].to_pylist()
    for place in (3, 4, 17, 60, 61, 62):
        state[place] = None
    whole = whole.set_column(0, "obs_0", pa.array(state))
    pq.write_table(whole, tmp_path / "whole.parquet")
    folder = write(tmp_path / "parts", cut(whole, [18, 61]))
    loaded = puorl.load(tmp_path / "whole.parquet", missing=missing)
    same(puorl.open(folder, partition_rows=12, missing=missing), loaded)
    with pytest.raises(DataError, match="--missing drop"):
        puorl.open(folder, partition_rows=12).to_dataset()


def test_options_that_need_all_rows(tmp_path):
    whole = table("numbers", 20)
    code = np.arange(whole.num_rows) % 3
    code[0], code[-1] = 5, 7  # codes that only one partition has
    names = ["act_0", *[n for n in whole.column_names if n != "act_0"]]
    whole = pa.table({"act_0": code} | {n: whole[n] for n in names[1:]})
    ids = pa.array([None if i == 90 else i for i in range(whole.num_rows)])
    whole = whole.append_column("serial", ids)
    pq.write_table(whole, tmp_path / "whole.parquet")
    folder = write(tmp_path / "parts", cut(whole, [33]))
    formula = "-abs(obs_0) + 0.5 * act_0"
    options = {"reward": formula, "gap": 300.0}
    loaded = puorl.load(tmp_path / "whole.parquet", **options)
    lazy = puorl.open(folder, partition_rows=12, **options)
    assert loaded.action_codes == lazy.read(0).action_codes == ("0", "1", "2", "5", "7")
    same(lazy, loaded)


def test_numbers_that_files_use_again_are_other_episodes(tmp_path):
    one, two = table("numbers", 5, seed=1), table("numbers", 5, seed=2)
    folder = write(tmp_path / "parts", [one, two])
    lazy = puorl.open(folder, partition_rows=1000)
    made = lazy.to_dataset()
    loaded = puorl.load(folder)
    assert made.num_episodes == loaded.num_episodes == 10
    np.testing.assert_array_equal(made.next_obs, loaded.next_obs)
    np.testing.assert_array_equal(made.episode, loaded.episode)


def test_without_ids_and_clock_a_border_is_a_break(tmp_path):
    whole = table("flags").drop_columns(["terminal", "timeout"])
    folder = write(tmp_path / "parts", cut(whole, [13, 30]))
    lazy, loaded = puorl.open(folder), puorl.load(folder)
    assert [each.num_rows for each in lazy.partitions] == [13, 17, whole.num_rows - 30]
    made = lazy.to_dataset()
    np.testing.assert_array_equal(made.next_obs, loaded.next_obs)
    np.testing.assert_array_equal(made.episode, loaded.episode)


def test_ids_in_some_files_only_are_refused(tmp_path):
    whole = table("numbers")
    folder = write(tmp_path / "parts", [whole, whole.drop_columns(["episode"])])
    with pytest.raises(DataError, match="ids in all files or in none"):
        puorl.open(folder)


def test_folders_name_columns(tmp_path):
    whole = table("numbers", 12)
    robots = whole["robot"].to_pylist()
    folder = tmp_path / "hive"
    for name in ("R0", "R1", "R2"):
        part = whole.filter(pa.array([robot == name for robot in robots]))
        place = folder / f"robot={name}" / "day=3"
        place.mkdir(parents=True)
        pq.write_table(part.drop_columns(["robot"]), place / "a.parquet")
    lazy = puorl.open(folder, partition_rows=10, label="robot == 'R1' and day == 3")
    made = lazy.to_dataset()
    assert set(made.columns["robot"].tolist()) == {"R0", "R1", "R2"}
    np.testing.assert_array_equal(made.columns["labelled"], made.columns["robot"] == "R1")
    assert made.columns["day"].dtype == np.int64


def test_rows_are_counted_over_all_files(tmp_path):
    whole = table("numbers")
    folder = write(tmp_path / "parts", cut(whole, [20, 40]))
    reward = whole["reward"].to_numpy()
    for part in puorl.open(folder, partition_rows=15):
        np.testing.assert_array_equal(part.reward, reward[part.columns[SOURCE_ROW]])


def test_saving_writes_a_file_for_each_partition(tmp_path):
    folder = write(tmp_path / "parts", cut(table("numbers", 30), [50]))
    lazy = puorl.open(folder, partition_rows=40)
    puorl.save(lazy, tmp_path / "copy")
    assert len(list((tmp_path / "copy").iterdir())) == len(lazy) > 2
    copy, plain = puorl.load(tmp_path / "copy"), lazy.to_dataset()
    np.testing.assert_array_equal(copy.next_obs, plain.next_obs)
    with pytest.raises(DataError, match="already exists"):
        puorl.save(lazy, tmp_path / "copy")
    with pytest.raises(puorl.ConfigError, match="without a suffix"):
        puorl.save(lazy, tmp_path / "copy.hdf5")


def test_errors(tmp_path):
    whole = pa.table({"obs_0": np.arange(400.0), "act_0": np.zeros(400)})
    pq.write_table(whole, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="sort the rows by episode"):
        puorl.open(tmp_path / "a.parquet", partition_rows=10)
    (tmp_path / "a.npz").touch()
    with pytest.raises(DataError, match="read in parts"):
        puorl.open(tmp_path / "a.npz")
    with pytest.raises(DataError, match="named twice"):
        puorl.open([tmp_path / "a.parquet", tmp_path / "a.parquet"])


def test_a_link_into_another_file_is_not_followed(tmp_path):
    import h5py

    pq.write_table(table("texts"), tmp_path / "whole.parquet")
    path = puorl.save(puorl.load(tmp_path / "whole.parquet"), tmp_path / "rows.hdf5")
    os.mkfifo(tmp_path / "other")  # opening it would wait for ever
    with h5py.File(path, "a") as file:
        del file["observations"]
        file["observations"] = h5py.ExternalLink("other", "/observations")
    with pytest.raises(DataError, match="expected the array 'observations' in this file"):
        puorl.open(path)


@pytest.mark.parametrize(
    "ids",
    [
        "1 2 3 4 a b c d",
        "a b 3 4 5 6",
        "1 2 1.0 2.0 5 6",
        "1 2 3 1e0 5 6",
        "1 2 +1 +2 5 6",
        "true false True False",
        "a _a b _b",
    ],
)
def test_ids_that_look_otherwise_in_another_part_of_a_table(tmp_path, monkeypatch, ids):
    monkeypatch.setattr("puorl.data.csv._BLOCK_LINES", 40)
    rows = [(name, i + j / 20) for i, name in enumerate(ids.split()) for j in range(20)]
    lines = [f"{name.replace('_', ' ')},{x},{np.sin(x)}\n" for name, x in rows]
    (tmp_path / "log.csv").write_text("episode,obs_0,act_0\n" + "".join(lines))
    loaded, lazy = (
        puorl.load(tmp_path / "log.csv"),
        puorl.open(tmp_path / "log.csv", partition_rows=40),
    )
    made = lazy.to_dataset()
    np.testing.assert_array_equal(made.next_obs, loaded.next_obs)
    for data in (made, loaded):
        assert data.num_episodes == len(ids.split())
    assert sum(len(np.unique(part.episode)) for part in lazy) == len(ids.split())
    assert len(lazy) == len(ids.split()) // 2


@pytest.mark.parametrize("times", [1, 2])
def test_few_whole_numbers_are_codes_if_they_are_repeated(tmp_path, times):
    path = tmp_path / "log.csv"
    rows = [f"{i / 7},{i % 6}\n" for i in range(6 * times)]
    path.write_text("obs_0,act_0\n" + "".join(rows))
    loaded, lazy = puorl.load(path), puorl.open(path)
    assert lazy.to_dataset().action_codes == loaded.action_codes
    assert (loaded.action_codes is None) == (times == 1)


def machine_parts(folder, names):
    """A file for each name, of rows of that machine."""
    folder.mkdir()
    for i, name in enumerate(names):
        made = table("clock", episodes=2, seed=i)
        place, robot = made.column_names.index("robot"), pa.array([name] * len(made))
        pq.write_table(made.set_column(place, "robot", robot), folder / f"{i}.parquet")
    return folder


def test_a_label_may_name_what_another_partition_holds(tmp_path):
    folder = machine_parts(tmp_path / "log", ["R1", "R2", "R3"])
    lazy = puorl.open(folder, label="robot in ['R1', 'R3']", partition_rows=5)
    assert {n for d in lazy for n in d.columns["robot"][d.columns["labelled"]]} == {"R1", "R3"}
    says = r"no row has robot == 'R9' \(did you mean 'R\d'\?\); robot has 3 values: 'R1', 'R2'"
    with pytest.raises(DataError, match=says):
        puorl.open(folder, label="robot in ['R1', 'R9']", partition_rows=5)


def test_empty_cells_of_a_needed_column_are_found_before_anything_is_read(tmp_path):
    folder = machine_parts(tmp_path / "log", ["R1", "", "R3"])
    whole = puorl.open(machine_parts(tmp_path / "whole", ["R1", "R2"]), needed="robot")
    assert whole.fingerprint == puorl.open(tmp_path / "whole").fingerprint
    with pytest.raises(DataError, match=r"got empty cells: robot \d+; repair them"):
        puorl.open(folder, needed="robot", partition_rows=5)
    lazy = puorl.open(folder, needed="robot", missing="drop")
    assert set(lazy.to_dataset().columns["robot"]) == {"R1", "R3"}


def test_a_needed_column_that_one_file_lacks_is_dropped_as_any_other(tmp_path):
    folder = machine_parts(tmp_path / "log", ["R1", ""])
    lacks = table("clock", episodes=2, seed=2)
    pq.write_table(lacks.drop_columns(["robot"]), folder / "2.parquet")
    lazy = puorl.open(folder, needed="robot", missing="drop")
    assert "robot" not in lazy.to_dataset().columns


def test_a_label_that_holds_for_no_row_is_noted_as_in_memory(tmp_path):
    folder = machine_parts(tmp_path / "log", ["R1", "R2"])
    for read in (puorl.open, puorl.load):
        found = read(folder, label="robot == 'R9'")
        notes = found.notes if read is puorl.open else found.provenance.notes
        assert "label: no row has robot == 'R9' (did you mean 'R1'?)" in [
            note.replace("'R2'?", "'R1'?") for note in notes
        ]
