import numpy as np
import pytest

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.data.load import expand


def write_npz(path, n=3, **more):
    obs = np.arange(2.0 * n).reshape(n, 2)
    arrays = {"obs": obs, "action": np.zeros((n, 1)), "next_obs": obs + 2, **more}
    np.savez(path, **arrays)
    return path


def test_a_list_and_a_glob_become_one_dataset_in_order(tmp_path):
    paths = [
        write_npz(tmp_path / f"run{k}.npz", n=k + 2, episode=np.zeros(k + 2, int)) for k in range(3)
    ]
    by_glob = puorl.load(tmp_path / "run*.npz")
    by_list = puorl.load([paths[0], str(paths[1]), tmp_path / "run2.npz"])
    assert by_glob.fingerprint == by_list.fingerprint
    assert by_glob.provenance.source == tuple(map(str, paths))
    assert by_glob.episode.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]


def test_a_name_with_brackets_is_a_name_first(tmp_path):
    path = write_npz(tmp_path / "run[1].npz")
    assert expand(path) == [path]


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        puorl.load(tmp_path / "absent.npz")
    with pytest.raises(DataError, match="expected a pattern that matches files, found none"):
        puorl.load(tmp_path / "*.npz")
    with pytest.raises(DataError, match="at least one path, got an empty list"):
        puorl.load([])
    with pytest.raises(DataError, match="found a folder with none of these"):
        puorl.load(tmp_path)


def test_unknown_formats_list_the_known(tmp_path):
    path = tmp_path / "rows.xyz"
    path.write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"suffix '\.xyz'.*hdf5, npz, csv, parquet, minari"):
        puorl.load(path)
    with pytest.raises(ConfigError, match="format 'pickle'"):
        puorl.load(path, format="pickle")


def test_the_format_can_be_named_and_capitals_do_not_matter(tmp_path):
    write_npz(tmp_path / "rows.npz").rename(tmp_path / "rows.bin")
    assert len(puorl.load(tmp_path / "rows.bin", format="npz")) == 3
    (tmp_path / "rows.bin").rename(tmp_path / "rows.NPZ")
    assert len(puorl.load(tmp_path / "rows.NPZ")) == 3


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".h5"])
def test_a_wrong_extension_is_a_clear_error(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="expected a readable (NPZ|HDF5) file"):
        puorl.load(path)


@pytest.mark.parametrize("format", ["npz", "hdf5"])
def test_a_folder_is_not_a_file(tmp_path, format):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "metadata.json").write_text("{}")  # looks like Minari, so load hands it on whole
    with pytest.raises(DataError, match="got a folder"):
        puorl.load(folder, format=format)


def test_names_label_and_domain(tmp_path):
    path = write_npz(tmp_path / "rows.npz", checked=np.array([1, 0, 1]), r=np.arange(3.0))
    data = puorl.load(path, reward="r", label="checked == 1", domain="moon")
    assert data.reward.tolist() == [0, 1, 2]
    assert data.columns["labelled"].tolist() == [True, False, True]
    assert data.columns["checked"].tolist() == [1, 0, 1]
    assert data.provenance.domain == "moon"
    assert data.provenance.format == "npz"


def test_messages_start_with_the_file(tmp_path):
    path = write_npz(tmp_path / "rows.npz", reward=np.full(3, np.nan))
    with pytest.raises(DataError, match=f"^{path}: reward: 3 of 3 rows"):
        puorl.load(path)
