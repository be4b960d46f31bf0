import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import puorl
from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.npz import read
from puorl.data.validate import FieldNames


def arrays(n=4, **changes):
    obs = np.arange(2.0 * n).reshape(n, 2)
    made = {
        "observations": obs,
        "actions": np.zeros((n, 1), np.float32),
        "rewards": np.ones(n, np.float32),
        "next_observations": obs + 2,
        "terminals": np.zeros(n, bool),
        "timeouts": np.arange(n) == n - 1,
        **changes,
    }
    return {k: v for k, v in made.items() if v is not None}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "rows.npz"


def store(path, made):
    np.savez(path, **made)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_usual_names_are_found(file, save):
    save(file, **arrays(battery=np.arange(4, dtype=np.int8), robot=np.array(list("abca"))))
    data = puorl.load(file)
    assert data.obs.dtype == np.float64
    assert data.action.dtype == np.float32
    assert data.timeout.tolist() == [False, False, False, True]
    assert data.columns["battery"].dtype == np.int8
    assert data.columns["robot"].tolist() == list("abca")
    assert data.provenance.format == "npz"


def test_named_keys(file):
    store(file, arrays(observations=None, sensors=np.ones((4, 2))))
    assert puorl.load(file, obs="sensors").obs.tolist() == np.ones((4, 2)).tolist()
    with pytest.raises(DataError, match=r"'sensor' \(named for obs\), found: sensors"):
        puorl.load(file, obs="sensor")
    with pytest.raises(DataError, match="expected obs under one of its usual names.*sensors"):
        puorl.load(file)


def test_other_arrays_are_noted(file):
    extra = {"image": np.zeros((4, 2, 2)), "rate": np.float64(3), "when": np.zeros(4, "M8[s]")}
    data = puorl.load(store(file, arrays(**extra)))
    assert dict(data.columns) == {}
    [note] = [note for note in data.provenance.notes if note.startswith("not read")]
    assert all(key in note for key in extra)


def test_text_episodes_are_numbered_and_kept(file):
    data = puorl.load(store(file, arrays(episode_id=np.array(["x", "x", "b", "b"]))))
    assert data.episode.tolist() == [0, 0, 1, 1]
    assert data.columns["episode_id"].tolist() == ["x", "x", "b", "b"]


def test_done_is_not_guessed(file):
    data = puorl.load(store(file, arrays(terminals=None, done=np.ones(4, bool))))
    assert not data.terminal.any()
    assert data.columns["done"].all()
    assert any("terminal='done'" in note for note in data.provenance.notes)


def test_what_numpy_finds_in_our_file(file):
    data = Dataset.from_arrays(
        obs=np.zeros((3, 2)),
        action=np.zeros((3, 1)),
        next_obs=np.ones((3, 2)),
        columns={"a/b": np.arange(3)},
    )
    puorl.save(data, file)
    with np.load(file, allow_pickle=False) as content:
        fields = {"obs", "action", "next_obs", "terminal", "timeout"}  # nothing else is known
        assert set(content) == {*fields, "column/a/b", "puorl", "puorl/file_hash"}
        np.testing.assert_array_equal(content["next_obs"], data.next_obs)
    assert puorl.load(file).columns["a/b"].tolist() == [0, 1, 2]


def test_names_given_for_our_own_file_win(file):
    data = puorl.load(store(file, arrays(bonus=np.full(4, 7.0))))
    ours = puorl.save(data, file.with_name("ours.npz"))
    assert set(puorl.load(ours, reward="column/bonus").reward) == {7}


def test_python_objects_are_never_loaded(file):
    hostile = np.empty(4, object)
    hostile[:] = [Hostile()] * 4
    store(file, arrays(rewards=hostile))
    with pytest.raises(DataError, match="rewards: expected numbers or text, got Python objects"):
        puorl.load(file)
    store(file, arrays(note=hostile))
    assert any("note" in note for note in puorl.load(file).provenance.notes)


class Hostile:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_column_names_that_zip_cannot_hold(file, name):
    data = Dataset.from_arrays(
        obs=np.zeros((3, 1)), action=np.zeros((3, 1)), columns={name: np.arange(3)}
    )
    with pytest.raises(DataError, match="column .* expected"):
        puorl.save(data, file)


def test_unreadable_files(file, tmp_path):
    with pytest.raises(DataError, match="got FileNotFoundError"):
        read(file, FieldNames())
    with pytest.raises(DataError, match="got a folder"):
        read(tmp_path, FieldNames())
    for content in (b"", b"PK\x03\x04", b"\x93NUMPY" + bytes(100), b"a,b\n1,2\n"):
        file.write_bytes(content)
        with pytest.raises(DataError, match="got BadZipFile.*check that the file is whole"):
            read(file, FieldNames())


def member(shape, dtype="<f8", body=b""):
    """The bytes of an .npy that claims a shape."""
    head = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, header)
    return head.getvalue() + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (member((10**12, 17)), r"declares shape \(1000000000000, 17\)"),
        (member((-1, 2)), "declares shape"),
        (member((4, 2), body=bytes(63)), "declares shape"),
        (member((4, 2), body=bytes(65)), "declares shape"),
        (b"\x93NUMPY\x09\x00" + bytes(50), "expected array format 1, 2 or 3"),
        (b"", "expected a readable NPZ file"),
        (b"not an array", "expected a readable NPZ file"),
    ],
)
def test_a_member_that_is_no_array(file, content, message):
    store(file, arrays(observations=None))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("observations.npy", content)
    with pytest.raises(DataError, match=message):
        puorl.load(file)


def test_an_archive_that_unfolds_far_too_far(file, monkeypatch):
    monkeypatch.setattr("puorl.data.npz._SUSPICIOUS_BYTES", 2**20)
    np.savez_compressed(file, **arrays(observations=np.zeros((2**17, 2))))
    with pytest.raises(DataError, match="observations: .* stored bytes would unfold to 2,097,"):
        puorl.load(file)


def test_other_members(file):
    store(file, arrays())
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("readme.txt", "hello")
    assert any("readme.txt" in note for note in puorl.load(file).provenance.notes)
    ours = puorl.save(puorl.load(file), file.with_name("ours.npz"))
    with zipfile.ZipFile(ours, "a") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match=r"readme\.txt is not of puorl"):
        puorl.load(ours)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A compressed foreign file and our own."""
    folder = tmp_path_factory.mktemp("whole")
    np.savez_compressed(folder / "foreign.npz", **arrays(robot=np.array(list("abca"))))
    own = puorl.save(puorl.load(folder / "foreign.npz"), folder / "own.npz")
    return folder / "foreign.npz", own


@given(own=st.booleans(), place=st.integers(0, 2**20))
@settings(max_examples=60)
def test_a_cut_file_is_refused(tmp_path, whole, own, place):
    content = whole[own].read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(content[: place % len(content)])
    with pytest.raises(DataError, match=str(path)):
        puorl.load(path)


@given(own=st.booleans(), place=st.integers(0, 2**20), bit=st.integers(0, 7))
@settings(max_examples=300)
def test_a_flipped_bit_is_refused_or_harmless(tmp_path, whole, own, place, bit):
    content = bytearray(whole[own].read_bytes())
    content[place % len(content)] ^= 1 << bit
    path = tmp_path / "flipped.npz"
    path.write_bytes(content)
    refusal, loaded = "", None
    try:
        loaded = puorl.load(path)
    except DataError as error:
        refusal = str(error)
    if loaded is None:
        assert str(path) in refusal
    else:
        assert loaded.fingerprint == puorl.load(whole[own]).fingerprint
