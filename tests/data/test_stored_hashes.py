"""Files that puorl wrote: no changed value passes, whatever names it is read under."""

import dataclasses
import json

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

import puorl
from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.data.dataset import Dataset

FORMATS = ("rows.hdf5", "rows.npz", "rows.parquet", "rows-v0")
UNDER_NAMES = {
    "rows.hdf5": {"reward": "rewards"},
    "rows.npz": {"reward": "reward"},
    "rows.parquet": {"reward": "reward"},
    "rows-v0": {"reward": "rewards"},
}


def dataset(n=40):
    rng = np.random.default_rng(3)
    obs = rng.normal(size=(n + 1, 3)).astype(np.float32)
    return Dataset.from_arrays(
        obs=obs[:-1],
        next_obs=obs[1:],
        action=rng.normal(size=(n, 2)).astype(np.float32),
        reward=np.full(n, 1.5),
        episode=np.arange(n) // 10,
        columns={"robot": np.array([f"r{i % 3}" for i in range(n)])},
    )


def change_reward(path):
    """Replace the first reward, with all checksums of the format made right again."""
    if path.suffix == ".hdf5":
        with h5py.File(path, "a") as file:
            file["rewards"][0] = 0.1
    elif path.suffix == ".npz":
        with np.load(path) as held:
            arrays = dict(held)
        arrays["reward"][0] = 0.1
        np.savez(path, **arrays)
    elif path.suffix == ".parquet":
        table = pq.read_table(path)
        place = table.schema.get_field_index("reward")
        values = table.column(place).to_numpy().copy()
        values[0] = 0.1
        field = table.schema.field(place)
        pq.write_table(table.set_column(place, field, [values]), path)
    else:
        with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
            file["episode_0/rewards"][0] = 0.1


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("named", [False, True])
def test_one_changed_value(tmp_path, name, named):
    data = dataset()
    path = puorl.save(data, tmp_path / name)
    names = UNDER_NAMES[name] if named else {}
    np.testing.assert_array_equal(puorl.load(path, **names).reward, data.reward)
    change_reward(path)
    with pytest.raises(DataError, match=r"content hash differs.*take another copy"):
        puorl.load(path, **names)


def test_the_origin_is_part_of_the_hash(tmp_path):
    path = puorl.save(dataset(), tmp_path / "rows.hdf5")
    with h5py.File(path, "a") as file:
        origin = json.loads(file["puorl"].attrs["provenance"])
        file["puorl"].attrs["provenance"] = np.bytes_(json.dumps({**origin, "domain": "other"}))
    with pytest.raises(DataError, match="content hash differs"):
        puorl.load(path)


def test_a_minari_folder_whose_record_was_lost(tmp_path):
    path = puorl.save(dataset(), tmp_path / "rows-v0")
    metadata = path / "data" / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"puorl":', '"puosl":'))
    with pytest.raises(DataError, match="content hash differs"):
        puorl.load(path)


def test_an_added_array(tmp_path):
    path = puorl.save(dataset(), tmp_path / "rows.hdf5")
    with h5py.File(path, "a") as file:
        file["speed"] = np.zeros(40)
    with pytest.raises(DataError, match="delete the attribute 'file_hash' of the group 'puorl'"):
        puorl.load(path)
    with h5py.File(path, "a") as file:
        del file["puorl"].attrs[hashing.HASH]
    assert "speed" in puorl.load(path).columns


@pytest.mark.parametrize("name", ["rows.hdf5", "rows.npz"])
def test_files_of_versions_without_a_hash(tmp_path, name):
    data = dataset()
    path = puorl.save(data, tmp_path / name)
    if name == "rows.hdf5":
        with h5py.File(path, "a") as file:
            del file["puorl"].attrs[hashing.HASH]
    else:
        with np.load(path) as held:
            arrays = {key: held[key] for key in held if hashing.HASH not in key}
        np.savez(path, **arrays)
    assert puorl.load(path).fingerprint == data.fingerprint


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_restored_rows_have_the_hash_of_the_written(tmp_path, kind):
    data = dataset()
    rows = {name: array.astype(kind) if array.dtype.kind == "f" else array
            for name, array in data.rows.arrays().items() if name != "reward"}  # fmt: skip
    data = dataclasses.replace(data, rows=type(data.rows)(**rows))
    for name in FORMATS:
        assert puorl.load(puorl.save(data, tmp_path / name)).fingerprint == data.fingerprint


def in_small_groups(path):
    """Write a file of Parquet again, in several row groups, with all checksums right."""
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path), path, row_group_size=7)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("puorl.data.hdf5._BLOCK", 7)


@pytest.mark.parametrize("name", ["rows.hdf5", "rows.parquet"])
@pytest.mark.parametrize("named", [False, True])
def test_one_changed_value_of_a_file_that_is_read_in_partitions(
    tmp_path, name, named, small_blocks
):
    data = dataset()
    path, names = puorl.save(data, tmp_path / name), UNDER_NAMES[name] if named else {}
    in_small_groups(path)
    lazy = puorl.open(path, partition_rows=10, **names)
    assert lazy.verified == (data.fingerprint,)
    assert len(lazy) == 4
    change_reward(path)
    in_small_groups(path)
    with pytest.raises(DataError, match=r"content hash differs.*take another copy"):
        puorl.open(path, partition_rows=10, **names)


@pytest.mark.parametrize("name", ["rows.hdf5", "rows.parquet"])
def test_the_hash_in_pieces_is_that_of_the_whole(tmp_path, name, small_blocks):
    n = 40
    plain = dataset(n)
    columns = {
        "robot": np.array(["r" * (i % 5) for i in range(n)]),  # some empty, the longest not first
        "ok": np.arange(n) % 2 == 0,
        "count": np.arange(n, dtype=np.int16),
        "": np.linspace(0, 1, n),
    }
    for actions in (plain.action, np.arange(n) % 3):
        data = Dataset.from_arrays(
            obs=plain.obs,
            next_obs=plain.next_obs,
            action=actions,
            time=np.arange(n) / 2,
            terminal=np.arange(n) % 10 == 9,
            episode=np.arange(n) // 10,
            columns=columns if name == "rows.parquet" else {**columns, "a/b": np.arange(n)},
        )
        path = puorl.save(data, tmp_path / name, force=True)
        in_small_groups(path)
        assert puorl.open(path, partition_rows=10).verified == (data.fingerprint,)


def test_a_lost_record_of_a_file_that_is_read_in_partitions(tmp_path):
    path = puorl.save(dataset(), tmp_path / "rows.parquet")
    table = pq.read_table(path).replace_schema_metadata({b"x": b"puorl.crc32"})
    pq.write_table(table, path)
    with pytest.raises(DataError, match="entries in the schema cannot be read"):
        puorl.open(path)


def test_files_of_others_have_no_hash(tmp_path):
    data = dataset()
    pq.write_table(data.to_arrow(), tmp_path / "rows.parquet")
    with h5py.File(tmp_path / "rows.hdf5", "w") as file:
        file["observations"], file["actions"] = data.obs, data.action
    for name in ("rows.parquet", "rows.hdf5"):
        assert puorl.open(tmp_path / name).verified == (None,)
