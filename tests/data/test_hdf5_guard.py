"""Damage on which the HDF5 library would hang, crash or fill the memory, in its smallest forms."""

import h5py
import numpy as np
import pytest

import puorl
from puorl.core.errors import DataError
from puorl.data import hdf5

N = 6


@pytest.fixture
def file(tmp_path):
    """Chunked arrays with filters, and text of varying length."""
    path = tmp_path / "rows.hdf5"
    arrays = {
        "observations": np.arange(3.0 * N).reshape(N, 3),
        "actions": np.ones((N, 1)),
        "next_observations": np.ones((N, 3)),
        "terminals": np.zeros(N, bool),
    }
    with h5py.File(path, "w") as handle:
        for key, array in arrays.items():
            chunks = (2, *array.shape[1:])
            handle.create_dataset(key, data=array, chunks=chunks, compression="gzip", shuffle=True)
        handle["robot"] = np.array(["A", "é", "", "b", "A", "B"], h5py.string_dtype())
    return path


def change(path, place, content):
    whole = bytearray(path.read_bytes())
    whole[place : place + len(content)] = content
    path.write_bytes(whole)


def test_a_good_file_passes(file):
    hdf5.check_file(file, "x")
    assert puorl.load(file).columns["robot"].tolist() == ["A", "é", "", "b", "A", "B"]


@pytest.mark.parametrize(
    ("place", "content"),
    [
        (8, (2**40).to_bytes(8, "little")),  # a heap larger than the file
        (8, (16).to_bytes(8, "little")),
        (24, (0x4000).to_bytes(8, "little")),  # an object larger than the heap
        (24, (64).to_bytes(8, "little")),  # the walk lands on an object of no size: an endless loop
    ],
)
def test_a_heap_that_does_not_add_up(file, place, content):
    change(file, file.read_bytes().index(b"GCOL") + place, content)
    with pytest.raises(DataError, match=r"a heap at byte [\d,]+ that does not add up"):
        puorl.load(file)


def test_a_text_longer_than_the_file(file):
    with h5py.File(file) as handle:
        place = handle["robot"].id.get_offset()
    change(file, place, (2**31).to_bytes(4, "little"))
    with pytest.raises(DataError, match="robot: claims a text of 2,147,483,648 bytes"):
        puorl.load(file)


def test_a_chunk_shorter_than_its_checksum(file):
    whole = file.read_bytes()
    with h5py.File(file) as handle:
        assert handle["terminals"].chunks == (2,)
    for place in [i for i in range(len(whole)) if whole.startswith(b"shuffle", i)]:
        change(file, place - 8, (3).to_bytes(2, "little"))  # the filter's number: a checksum now
    with h5py.File(file) as handle:
        with pytest.raises(DataError, match="terminals: expected chunks that hold a checksum"):
            hdf5.check_array(handle["terminals"].id, "x", whole=True)


def test_a_shape_far_beyond_what_is_stored(file):
    with h5py.File(file, "a") as handle:
        handle.create_dataset("many", (2**24,), "?", chunks=(2,))  # eight million absent chunks
    with h5py.File(file) as handle:
        with pytest.raises(DataError, match="many: claims 16,777,216 bytes .* the file holds 0"):
            hdf5.check_array(handle["many"].id, "x", whole=False)


@pytest.mark.parametrize("options", [{}, {"chunks": (2,)}])
def test_what_was_never_written_may_be_a_flag_but_no_reward(file, options):
    with h5py.File(file, "a") as handle:
        handle.create_dataset("timeouts", (N,), "?", **options)
    assert not puorl.load(file).timeout.any()
    with h5py.File(file, "a") as handle:
        handle.create_dataset("rewards", (N,), "f4", **options)
    with pytest.raises(DataError, match="rewards: claims 24 bytes .* was never filled"):
        puorl.load(file)
