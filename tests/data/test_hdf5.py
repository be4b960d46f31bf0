"""Damage on which the HDF5 library would hang, crash or fill the memory, in its smallest forms."""

import os
import zlib

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import puorl
from puorl.core.errors import DataError
from puorl.data import hdf5
from puorl.data.dataset import Dataset
from puorl.data.hdf5 import read
from puorl.data.validate import FieldNames


def store(path, arrays):
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array
    return path


def d4rl(n=6, **changes):
    """Two episodes: one that ends in row 2, one that is cut in row 5; end states only in next."""
    obs = np.arange(n, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    next_obs = obs + 1
    next_obs[2] = 90
    next_obs[5] = 91
    arrays = {
        "observations": obs,
        "actions": np.zeros((n, 2), np.float32),
        "rewards": np.arange(n, dtype=np.float32),
        "next_observations": next_obs,
        "terminals": np.arange(n) == 2,
        "timeouts": np.arange(n) == 5,
        "infos/qpos": np.zeros((n, 4)),
        "infos/action_log_probs": np.zeros(n),
        "metadata/algorithm": np.bytes_(b"SAC"),
        **changes,
    }
    return {k: v for k, v in arrays.items() if v is not None}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "rows.hdf5"


def test_a_d4rl_file(file):
    data = puorl.load(store(file, d4rl()))
    assert len(data) == 6
    assert data.next_obs[:, 0].tolist() == [1, 2, 90, 4, 5, 91]
    assert data.terminal.tolist() == [False, False, True, False, False, False]
    assert data.timeout.tolist() == [False] * 5 + [True]
    assert data.episode.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.obs.dtype == np.float32
    assert dict(data.columns) == {}
    assert data.provenance.format == "hdf5"
    assert data.provenance.source == (str(file),)


def test_without_stored_next_states_no_episode_is_crossed(file):
    data = puorl.load(store(file, d4rl(next_observations=None)))
    assert data.obs[:, 0].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(data.next_obs[:, 0], [1, 2, np.nan, 4, 5])
    assert data.terminal.tolist() == [False, False, True, False, False]
    assert data.timeout.tolist() == [False] * 4 + [True]


def test_a_dara_file(file):
    arrays = d4rl(timeouts=None)
    for key in ("rewards", "terminals"):
        arrays[key] = arrays[key].reshape(-1, 1).astype(np.float32)
    data = puorl.load(store(file, arrays))
    assert data.reward.shape == data.terminal.shape == (6,)
    assert data.terminal.tolist() == [False, False, True, False, False, False]
    assert not data.timeout.any()
    assert data.provenance.missing == ("timeout",)
    assert data.episode.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "options", [{"compression": "gzip"}, {"chunks": (2, 3)}, {"shuffle": True}]
)
def test_storage_does_not_matter(file, options):
    arrays = d4rl()
    with h5py.File(file, "w") as handle:
        for key, array in arrays.items():
            if np.ndim(array) == 2 and array.shape[1] == 3:
                handle.create_dataset(key, data=array, **options)
            else:
                handle[key] = array
    np.testing.assert_array_equal(puorl.load(file).obs, arrays["observations"])


def test_nested_keys_are_named_by_path(file):
    n = 4
    store(
        file,
        {
            "robot/states": np.zeros((n, 2)),
            "robot/battery": np.arange(n),
            "log/command": np.ones((n, 1)),
            "log/next": np.ones((n, 2)),
            "infos/qpos": np.zeros((n, 3)),
        },
    )
    data = puorl.load(file, obs="robot/states", action="/log/command", next_obs="log/next")
    assert data.obs.shape == (n, 2)
    assert data.columns["robot/battery"].tolist() == [0, 1, 2, 3]
    assert puorl.load(file, obs="infos/qpos", action="log/command").obs.shape == (n - 1, 3)
    with pytest.raises(DataError, match="found: .*robot/states.*name the one that is obs"):
        puorl.load(file)
    with pytest.raises(DataError, match="'robot/state'.*found: robot/states, "):
        puorl.load(file, obs="robot/state", action="log/command")


def test_extra_arrays_become_columns_or_a_note(file):
    arrays = d4rl(
        battery=np.arange(6, dtype=np.int16),
        ready=np.array([[True]] * 6),
        image=np.zeros((6, 8, 8)),
        ends=np.array([3, 6]),
        version=np.float64(2),
        pairs=np.zeros(6, [("a", "f4")]),
    )
    arrays["robot"] = np.array(["A", "B", "é", "", "A", "B"], dtype=h5py.string_dtype())
    data = puorl.load(store(file, arrays))
    assert set(data.columns) == {"battery", "ready", "robot"}
    assert data.columns["battery"].dtype == np.int16
    assert data.columns["ready"].dtype == bool
    assert data.columns["robot"].tolist() == ["A", "B", "é", "", "A", "B"]
    [note] = [note for note in data.provenance.notes if note.startswith("not read")]
    assert all(key in note for key in ("image", "ends", "version", "pairs"))


def test_done_is_kept_as_a_column_with_a_note(file):
    done = np.arange(6) == 2
    data = puorl.load(store(file, d4rl(terminals=None, timeouts=None, dones=done)))
    assert not data.terminal.any()
    np.testing.assert_array_equal(data.columns["dones"], done)
    assert any("terminal='dones'" in note for note in data.provenance.notes)
    assert puorl.load(file, terminal="dones").terminal.tolist() == done.tolist()


def test_text_episodes_are_numbered_and_kept(file):
    ids = np.array([b"run7"] * 3 + [b"run3"] * 3)
    data = puorl.load(store(file, d4rl(traj=ids)))
    assert data.episode.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.columns["traj"].tolist() == ["run7"] * 3 + ["run3"] * 3


def test_enumerations_are_plain_numbers(file):
    mode = np.array([0, 1, 1, 0, 1, 0], dtype=h5py.enum_dtype({"manual": 0, "auto": 1}))
    data = puorl.load(store(file, d4rl(mode=mode)))
    assert data.columns["mode"].dtype.metadata is None
    puorl.save(data, file.with_suffix(".npz"))  # NumPy warns about a dtype that carries metadata


def test_links_inside_the_file_are_followed_and_rings_end(file, tmp_path):
    store(file, d4rl(observations=None, real=np.ones((6, 3), np.float32)))
    with h5py.File(file, "a") as handle:
        handle["obs"] = h5py.SoftLink("/real")
        handle["nowhere"] = h5py.SoftLink("/absent")
        handle["other"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
        handle["infos/up"] = handle["/"]
    assert puorl.load(file).obs.tolist() == np.ones((6, 3)).tolist()


def test_what_a_d4rl_user_finds_in_our_file(file):
    data = puorl.load(store(file, d4rl()))
    ours = puorl.save(data, file.with_name("ours.hdf5"))
    with h5py.File(ours, "r") as handle:
        assert set(handle) == {
            "observations",
            "actions",
            "rewards",
            "next_observations",
            "terminals",
            "timeouts",
            "puorl",
        }
        np.testing.assert_array_equal(handle["observations"][()], data.obs)
        assert handle["terminals"].dtype == bool
        assert handle["rewards"].dtype == np.float32
        assert handle["puorl/episode"][()].tolist() == data.episode.tolist()


def test_rows_whose_follower_was_left_out_are_marked_for_other_tools(file):
    obs = np.arange(7, dtype=np.float32)[:, None]
    data = Dataset.from_arrays(
        obs=obs, next_obs=obs + 1, action=obs, terminal=np.arange(7) == 6, episode=np.zeros(7, int)
    )
    kept = data[np.array([0, 1, 3, 4, 6])]
    assert not kept.timeout.any()
    puorl.save(kept, file)
    with h5py.File(file, "r") as handle:
        assert handle["timeouts"][()].tolist() == [False, True, False, True, False]
        assert handle["terminals"][()].tolist() == [False] * 4 + [True]
    again = puorl.load(file)
    assert not again.timeout.any()
    assert again.columns == {}
    assert again.fingerprint == kept.fingerprint
    assert puorl.load(file, timeout="timeouts").timeout.sum() == 2


def test_no_reward_no_key(file):
    data = Dataset.from_arrays(obs=np.zeros((3, 1)), action=np.zeros((3, 1)))
    puorl.save(data, file)
    with h5py.File(file, "r") as handle:
        assert "rewards" not in handle
    assert puorl.load(file).reward is None


def test_names_given_for_our_own_file_win(file):
    data = puorl.load(store(file, d4rl(bonus=np.full(6, 7.0))))
    ours = puorl.save(data, file.with_name("ours.hdf5"))
    assert set(puorl.load(ours, reward="puorl/columns/bonus").reward) == {7}
    with pytest.raises(DataError, match="expected the key 'bonus'"):
        puorl.load(ours, reward="bonus")


def test_a_large_origin_fits(file):
    many = puorl.Dataset.from_arrays(obs=np.zeros((3, 1)), action=np.zeros((3, 1)))
    for _ in range(15):
        many = puorl.Dataset.concatenate([many, many])
    puorl.save(many, file)
    assert len(puorl.load(file).provenance.source) == 2**15


def test_text_that_utf8_cannot_hold(file):
    data = Dataset.from_arrays(
        obs=np.zeros((2, 1)),
        action=np.zeros((2, 1)),
        next_obs=np.zeros((2, 1)),
        columns={"name": np.array(["a", "\ud800"])},
    )
    with pytest.raises(DataError, match="column 'name': expected text that UTF-8 can hold"):
        puorl.save(data, file)


BAD_ARRAYS = {
    "object": (h5py.special_dtype(vlen=np.dtype("f4")), "rows of varying length"),
    "reference": (h5py.ref_dtype, "rows of varying length or references"),
    "text": (h5py.string_dtype(), "expected numbers, got dtype"),
    "compound": (np.dtype([("x", "f4")]), "expected numbers, got dtype"),
    "complex": (np.dtype("c8"), "expected numbers, got dtype"),
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_states_that_are_no_numbers(file, kind):
    dtype, message = BAD_ARRAYS[kind]
    store(file, d4rl(observations=None))
    with h5py.File(file, "a") as handle:
        handle.create_dataset("observations", (6, 3), dtype=dtype)
    with pytest.raises(DataError, match=message):
        puorl.load(file)


def test_an_array_without_a_shape(file):
    store(file, d4rl(observations=None))
    with h5py.File(file, "a") as handle:
        handle["observations"] = h5py.Empty("f4")
    with pytest.raises(DataError, match="observations: expected an array, got an empty dataset"):
        puorl.load(file)


def test_an_array_that_is_stored_in_another_file(file):
    secret = file.with_name("secret")
    secret.write_bytes(np.full((6, 3), 42, "f4").tobytes())
    store(file, d4rl(observations=None))
    with h5py.File(file, "a") as handle:
        handle.create_dataset("observations", (6, 3), "f4", external=[(str(secret), 0, 72)])
    with pytest.raises(DataError, match="observations: .*points into other files; copy it"):
        puorl.load(file)
    with pytest.raises(DataError, match="observations: .*points into other files"):
        hdf5.check_file(file, str(file))


@pytest.mark.parametrize("key", ["observations", "puorl", "inner/deeper"])
def test_links_lead_into_no_other_file(file, key):
    other = puorl.save(puorl.load(store(file, d4rl())), file.with_name("other.hdf5"))
    with h5py.File(file, "a") as handle:
        if key == "observations":
            del handle[key]
        handle["away"] = h5py.ExternalLink(str(other), "/")
        place = "observations" if key == "inner/deeper" else key
        handle[key] = h5py.SoftLink(f"/away/{place}")
    if key == "observations":
        with pytest.raises(DataError, match="expected obs under one of its usual names"):
            puorl.load(file)
    else:
        data = puorl.load(file)
        assert dict(data.columns) == {}
        assert data.provenance.source == (str(file),)
    with pytest.raises(DataError, match="expected values stored in this file, got a link"):
        hdf5.check_file(file, str(file))


def test_soft_links_inside_the_file_are_followed(file):
    store(file, d4rl(observations=None, **{"robot/state": d4rl()["observations"]}))
    with h5py.File(file, "a") as handle:
        handle["robot/again"] = h5py.SoftLink("./state")
        handle["observations"] = h5py.SoftLink("/robot/again")
        handle["ring"] = h5py.SoftLink("/ring")
    np.testing.assert_array_equal(puorl.load(file).obs, d4rl()["observations"])


def test_a_virtual_array(file):
    store(file, d4rl(observations=None))
    layout = h5py.VirtualLayout((6, 3), "f4")
    layout[:] = h5py.VirtualSource(str(file) + ".gone", "x", (6, 3))
    with h5py.File(file, "a") as handle:
        handle.create_virtual_dataset("observations", layout)
    with pytest.raises(DataError, match="observations: .*points into other files"):
        puorl.load(file)


def test_a_file_that_claims_more_than_it_holds(file):
    store(file, d4rl(observations=None))
    with h5py.File(file, "a") as handle:
        handle.create_dataset("observations", (10**12, 17), dtype="f4", chunks=(1024, 17))
    with pytest.raises(DataError, match="claims .* bytes .* where the file holds 0"):
        puorl.load(file)


def test_bad_text(file):
    store(file, d4rl())
    with h5py.File(file, "a") as handle:
        name = handle.create_dataset("name", (6,), dtype=h5py.string_dtype())
        name[:] = [b"\xff\xfe"] * 6
    with pytest.raises(
        DataError, match=f"{file}: expected a readable HDF5 file, got UnicodeDecode"
    ):
        puorl.load(file)


def test_unreadable_files(file, tmp_path):
    with pytest.raises(DataError, match="got FileNotFoundError"):
        read(file, FieldNames())
    with pytest.raises(DataError, match="got a folder"):
        read(tmp_path, FieldNames())
    for content in (b"", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04" + bytes(100)):
        file.write_bytes(content)
        with pytest.raises(DataError, match="check that the file is whole and that it is HDF5"):
            read(file, FieldNames())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(file):
    store(file, d4rl())
    file.chmod(0)
    with pytest.raises(DataError, match="got PermissionError"):
        puorl.load(file)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A foreign file and our own."""
    folder = tmp_path_factory.mktemp("whole")
    foreign = store(folder / "foreign.hdf5", d4rl(robot=np.array([b"ab"] * 6)))
    return foreign, puorl.save(puorl.load(foreign), folder / "own.hdf5")


@given(own=st.booleans(), place=st.integers(0, 2**20))
@settings(max_examples=60)
def test_a_cut_file_is_refused(tmp_path, whole, own, place):
    content = whole[own].read_bytes()
    path = tmp_path / "cut.hdf5"
    path.write_bytes(content[: place % len(content)])
    with pytest.raises(DataError, match=str(path)):
        puorl.load(path)


@given(own=st.booleans(), place=st.integers(0, 2**20), bit=st.integers(0, 7))
@settings(max_examples=300)
def test_a_flipped_bit_is_refused_or_a_value(tmp_path, whole, own, place, bit):
    """Values carry no checksum; names, shapes and places do in the files that we write."""
    content = bytearray(whole[own].read_bytes())
    content[place % len(content)] ^= 1 << bit
    path = tmp_path / "flipped.hdf5"
    path.write_bytes(content)
    refusal, loaded = "", None
    try:
        loaded = puorl.load(path)
    except DataError as error:
        refusal = str(error)
    if loaded is None:
        assert str(path) in refusal
    elif own:
        data = puorl.load(whole[own])
        assert list(loaded.rows.arrays()) == list(data.rows.arrays())
        assert list(loaded.columns) == list(data.columns)
        assert loaded.rows.nbytes == data.rows.nbytes


N = 6


@pytest.fixture
def filtered(tmp_path):
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


def test_a_good_file_passes(filtered):
    hdf5.check_file(filtered, "x")
    assert puorl.load(filtered).columns["robot"].tolist() == ["A", "é", "", "b", "A", "B"]


@pytest.mark.parametrize(
    ("place", "content"),
    [
        (8, (2**40).to_bytes(8, "little")),  # a heap larger than the file
        (8, (16).to_bytes(8, "little")),
        (24, (0x4000).to_bytes(8, "little")),  # an object larger than the heap
        (24, (64).to_bytes(8, "little")),  # the walk lands on an object of no size: an endless loop
    ],
)
def test_a_heap_that_does_not_add_up(filtered, place, content):
    change(filtered, filtered.read_bytes().index(b"GCOL") + place, content)
    with pytest.raises(DataError, match=r"a heap at byte [\d,]+ that does not add up"):
        puorl.load(filtered)


def test_a_text_longer_than_the_file(filtered):
    with h5py.File(filtered) as handle:
        place = handle["robot"].id.get_offset()
    change(filtered, place, (2**31).to_bytes(4, "little"))
    with pytest.raises(DataError, match="robot: claims a text of 2,147,483,648 bytes"):
        puorl.load(filtered)


def test_a_chunk_shorter_than_its_checksum(filtered):
    whole = filtered.read_bytes()
    with h5py.File(filtered) as handle:
        assert handle["terminals"].chunks == (2,)
    for place in [i for i in range(len(whole)) if whole.startswith(b"shuffle", i)]:
        change(filtered, place - 8, (3).to_bytes(2, "little"))  # make it a checksum
    with h5py.File(filtered) as handle:
        with pytest.raises(DataError, match="terminals: expected chunks that hold a checksum"):
            hdf5.check_array(handle["terminals"].id, "x", whole=True)


def test_a_shape_far_beyond_what_is_stored(filtered):
    with h5py.File(filtered, "a") as handle:
        handle.create_dataset("many", (2**24,), "?", chunks=(2,))  # eight million absent chunks
    with h5py.File(filtered) as handle:
        with pytest.raises(DataError, match="many: claims 16,777,216 bytes .* the file holds 0"):
            hdf5.check_array(handle["many"].id, "x", whole=False)


@pytest.mark.parametrize("options", [{}, {"chunks": (2,)}])
def test_what_was_never_written_may_be_a_flag_but_no_reward(filtered, options):
    with h5py.File(filtered, "a") as handle:
        handle.create_dataset("timeouts", (N,), "?", **options)
    assert not puorl.load(filtered).timeout.any()
    with h5py.File(filtered, "a") as handle:
        handle.create_dataset("rewards", (N,), "f4", **options)
    with pytest.raises(DataError, match="rewards: claims 24 bytes .* was never filled"):
        puorl.load(filtered)


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=3, max_side=7),
    dtype=st.sampled_from(["f4", "f8", ">f4", "i8", "u1", "?"]),
    data=st.data(),
)
def test_deflated_arrays_are_read_as_by_h5py(shape, dtype, data):
    chunks = tuple(data.draw(st.integers(1, n), label="chunk") for n in shape)
    begin = data.draw(st.integers(0, shape[0] - 1), label="begin")
    part = data.draw(st.sampled_from([None, slice(begin, shape[0]), slice(0, begin + 1)]))
    values = data.draw(hnp.arrays(dtype, shape), label="values")
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        stored = file.create_dataset("x", data=values, chunks=chunks, compression="gzip")
        never = file.create_dataset("never", shape, dtype, chunks=chunks, compression="gzip")
        if data.draw(st.booleans(), label="written in part"):
            never[:1] = values[:1]
        for each in (stored, never):
            found = hdf5._array(file, each.name, "memory", part=part)
            expected = each[() if part is None else part]
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("way", ["short", "unfiltered", "garbage"])
@pytest.mark.parametrize(
    "filters", [{}, {"shuffle": True}, {"shuffle": True, "fletcher32": True}], ids=len
)
def test_a_chunk_that_unfolds_to_another_size(tmp_path, in_parts, way, filters):
    path = tmp_path / "rows.hdf5"
    read = (lambda p: puorl.open(p).read(0)) if in_parts else puorl.load
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"] = np.ones((6, 2)), np.ones((6, 1))
        values = np.linspace(0, 1, 6)
        options = {"compression": "gzip", "chunks": (2,), **filters}
        file.create_dataset("rewards", data=values, **options)
    np.testing.assert_array_equal(read(path).reward, values[:5])
    packed = {"short": zlib.compress(bytes(3)), "unfiltered": bytes(9), "garbage": bytes(9)}[way]
    with h5py.File(path, "a") as file:  # as after a damaged address or mask of the chunk
        mask = 0b111 if way == "unfiltered" else 0
        file["rewards"].id.write_direct_chunk((2,), packed, mask)
    with pytest.raises(DataError, match="rewards"):
        read(path)


@pytest.mark.parametrize("name", ["rewards", "terminals", "timeouts"])
def test_a_column_named_as_the_array_of_a_field_is_verified_as_itself(tmp_path, name):
    rows = np.ones((6, 2), np.float32)
    made = Dataset.from_arrays(
        obs=rows,
        action=rows,
        reward=np.arange(6.0),
        next_obs=rows,
        columns={name: np.arange(6) + 7.5},
    )
    puorl.save(made, tmp_path / "rows.hdf5")
    np.testing.assert_array_equal(
        puorl.open(tmp_path / "rows.hdf5").read(0).columns[name], np.arange(6) + 7.5
    )


def test_filters_that_change_sizes_and_arrays_without_chunks_are_read(tmp_path):
    with h5py.File(tmp_path / "rows.hdf5", "w") as file:
        file["observations"], file["actions"] = np.ones((100, 2)), np.ones((100, 1))
        scaled = {"chunks": (50,), "scaleoffset": 0, "compression": "gzip"}
        file.create_dataset("rewards", data=np.arange(100, dtype="i4"), **scaled)
        file.create_dataset("terminals", (100,), "u1", chunks=(50,), fletcher32=True)
    found = puorl.load(tmp_path / "rows.hdf5")
    np.testing.assert_array_equal(found.reward, np.arange(99))
    assert not found.terminal.any()
