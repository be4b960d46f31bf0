"""What is saved comes back as it was, in every array format, whatever the content."""

import dataclasses
import json
import time
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.formats import FORMATS, expand, format_of, readable, suffixes, writable
from puorl.data.transitions import Provenance


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
    with pytest.raises(DataError, match="need at least one path, have none"):
        puorl.load([])
    with pytest.raises(DataError, match="found a folder with none of these"):
        puorl.load(tmp_path)


def test_unknown_formats_list_the_known(tmp_path):
    path = tmp_path / "rows.xyz"
    path.write_bytes(b"x")
    with pytest.raises(
        ConfigError, match=r"suffix '\.xyz'.*hdf5, npz, csv, jsonl, parquet, minari"
    ):
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


def write_csv(path, episodes):
    lines = [f"{e},{t},{e + t / 8},0.5" for e in episodes for t in range(3)]
    path.write_text("\n".join(["ep,t,obs_0,act_0", *lines]) + "\n")


@pytest.mark.parametrize("label", ["ep == 5", "episode == 5"])
def test_a_label_speaks_of_each_file_in_its_own_words(tmp_path, label):
    # Joined files get new episode numbers; the label must mean those of the file.
    write_csv(tmp_path / "a.csv", [3, 5])
    write_csv(tmp_path / "b.csv", [5, 6, 7])
    data = puorl.load(tmp_path / "*.csv", episode="ep", label=label)
    assert data.obs[data.columns["labelled"], 0].tolist() == [5.0, 5.125] * 2
    assert data.num_episodes == 5
    assert any("renumbered" in note for note in data.provenance.notes)


def test_a_label_may_use_the_names_of_array_files(tmp_path):
    path = write_npz(tmp_path / "rows.npz", trip=np.array([4, 4, 9]), r=np.arange(3.0))
    data = puorl.load(path, episode="trip", reward="r", label="trip == 9 and r > 1")
    assert data.columns["labelled"].tolist() == [False, False, True]


def test_a_wrong_label_names_the_file(tmp_path):
    write_csv(tmp_path / "a.csv", [3])
    with pytest.raises(ConfigError, match=r"a\.csv: label: .*'epp'; known columns: ep"):
        puorl.load(tmp_path / "a.csv", episode="ep", label="epp == 3")


def test_columns_that_give_way_are_named(tmp_path):
    path = write_npz(tmp_path / "rows.npz", labelled=np.array([1, 1, 1]))
    data = puorl.load(path, label="labelled == 0")
    assert not data.columns["labelled"].any()
    assert any("gave way to label=" in note for note in data.provenance.notes)
    obs = np.arange(6.0).reshape(3, 2)
    np.savez(path, obs=obs, action=obs, source_row=np.array([7, 8, 9]))
    data = puorl.load(path)
    assert data.columns["source_row"].tolist() == [0, 1]
    assert any("source_row: the file's own" in note for note in data.provenance.notes)


def test_no_file_is_read_twice(tmp_path):
    path = write_npz(tmp_path / "rows.npz")
    with pytest.raises(DataError, match="named twice"):
        puorl.load([tmp_path / "*.npz", path])
    (tmp_path / "link.npz").symlink_to(path)
    with pytest.raises(DataError, match="named twice"):
        puorl.load(tmp_path / "*.npz")


def test_leftovers_in_a_parquet_folder_are_not_read(tmp_path):
    folder = tmp_path / "rows"
    kept = [folder / "a.parquet", folder / "robot=A7" / "b.parquet"]
    left = [folder / ".a.parquet.12.part" / "a.parquet", folder / "_temporary" / "b.parquet"]
    for path in (*kept, *left, folder / ".c.parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert expand(folder) == kept


def test_messages_start_with_the_file(tmp_path):
    path = write_npz(tmp_path / "rows.npz", reward=np.full(3, np.nan))
    with pytest.raises(DataError, match=f"^{path}: reward: 3 of 3 rows"):
        puorl.load(path)


def test_a_field_can_be_declared_absent(tmp_path):
    visits = tmp_path / "visits.csv"
    visits.write_text("stay,t,obs_a,act_a\n" + "".join(f"1,{t},{t},0\n" for t in (0, 1, 2, 9, 30)))
    assert len(puorl.load(visits, episode="stay")) == 2  # 9 and 30 stand behind gaps
    whole = puorl.load(visits, episode="stay", time="")
    assert len(whole) == 4
    assert whole.time is None
    assert whole.columns["t"].tolist() == [0, 1, 2, 9]
    assert any("t: not used as time" in note for note in whole.provenance.notes)


def test_every_line_of_the_table_has_what_load_and_save_need():
    for name, each in FORMATS.items():
        module = import_module(each.module)
        assert each.name == name
        assert callable(module.read)
        assert each.writable == hasattr(module, "write")
        assert (each.package is None) == (each.extra is None)
        for suffix in each.suffixes:
            assert format_of(f"rows{suffix}") is each
    assert set(writable()) < set(readable())
    assert ".tsv" in suffixes()
    assert "" not in suffixes()


ARRAY_FORMATS = (".npz", ".hdf5")
FLOATS = st.sampled_from([np.float32, np.float64])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8) | st.sampled_from(
    ["a", "a/b", ".", "", "..", "%2F", "/", "obs", "reward", "é", "column/x"]
)


def matrices(n, width, dtype):
    finite = st.floats(allow_nan=False, allow_infinity=False, width=np.dtype(dtype).itemsize * 8)
    return npst.arrays(dtype, (n, width), elements=finite)


@st.composite
def columns(draw, n):
    dtype = draw(st.sampled_from(["bool", "i1", "i8", "u2", "u8", "f4", "f8", "text", "wide"]))
    if dtype in ("text", "wide"):
        array = np.array(draw(st.lists(TEXT, min_size=n, max_size=n)))
        return array.astype("U9") if dtype == "wide" else array
    return draw(npst.arrays(np.dtype(dtype), (n,)))


@st.composite
def datasets(draw):
    n, d, m = (draw(st.integers(1, 5)) for _ in range(3))
    dtype = draw(FLOATS)
    terminal = draw(npst.arrays(bool, (n,)))
    next_obs = draw(matrices(n, d, dtype))
    next_obs[terminal & draw(npst.arrays(bool, (n,)))] = np.nan
    action_dtype = draw(FLOATS)
    optional = {
        "reward": draw(st.none() | matrices(n, 1, draw(FLOATS))),
        "episode": draw(st.none() | npst.arrays(np.int64, (n,))),
        "time": draw(st.none() | matrices(n, 1, np.float64)),
        "next_action": draw(
            st.none() | npst.arrays(action_dtype, (n, m), elements=st.just(np.nan))
        ),
    }
    origin = Provenance(
        source=tuple(draw(st.lists(st.text(max_size=5), max_size=2))),
        domain=draw(st.none() | st.text(max_size=5)),
        recipe=draw(st.none() | st.just({"seed": 3, "spec": {"mass": [0.5, 1.0]}})),
        obs_names=tuple(draw(st.lists(TEXT, min_size=d, max_size=d, unique=True))),
        notes=tuple(draw(st.lists(st.text(max_size=5), max_size=2))),
    )
    made = Dataset.from_arrays(
        obs=draw(matrices(n, d, dtype)),
        action=draw(matrices(n, m, action_dtype)),
        next_obs=next_obs,
        terminal=terminal,
        timeout=draw(npst.arrays(bool, (n,))),
        columns=draw(st.dictionaries(NAMES, columns(n), max_size=3)),
        provenance=origin,
        **optional,
    )
    if optional["episode"] is None and draw(st.booleans()):
        made = dataclasses.replace(made, rows=dataclasses.replace(made.rows, episode=None))
    return made


def assert_same(one, other):
    assert one.fingerprint == other.fingerprint
    assert one.provenance == other.provenance
    assert list(one.rows.arrays()) == list(other.rows.arrays())
    assert list(one.columns) == list(other.columns)
    for name, array in one.columns.items():
        assert other.columns[name].dtype == array.dtype
    for name, array in one.rows.arrays().items():
        assert other.rows.arrays()[name].dtype == array.dtype


@pytest.mark.parametrize("suffix", ARRAY_FORMATS)
@given(dataset=datasets())
@settings(max_examples=100)
def test_a_round_trip_loses_nothing(tmp_path, suffix, dataset):
    path = puorl.save(dataset, tmp_path / f"rows{suffix}", force=True)
    assert_same(dataset, puorl.load(path))


@pytest.mark.parametrize("suffix", ARRAY_FORMATS)
def test_saving_twice_gives_the_same_bytes(tmp_path, suffix):
    dataset = small(columns={"robot": np.array(["a", "b", "c"])})
    one = puorl.save(dataset, tmp_path / f"one{suffix}")
    two = puorl.save(puorl.load(one), tmp_path / f"two{suffix}")
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("suffix", ARRAY_FORMATS)
def test_from_one_format_to_the_other(tmp_path, suffix):
    dataset = small(
        columns={"robot": np.array(["a", "é", ""]), "ok": np.array([True, False, True])}
    )
    first = puorl.load(puorl.save(dataset, tmp_path / f"rows{suffix}"))
    for other in ARRAY_FORMATS:
        assert_same(dataset, puorl.load(puorl.save(first, tmp_path / f"again{other}")))


@pytest.mark.parametrize("suffix", ARRAY_FORMATS)
def test_a_slice_can_be_saved(tmp_path, suffix):
    dataset = small(n=9, columns={"row": np.arange(9)})[::-2]
    assert_same(dataset, puorl.load(puorl.save(dataset, tmp_path / f"rows{suffix}")))


def test_nothing_is_overwritten_without_force(tmp_path):
    path = puorl.save(small(3), tmp_path / "rows.npz")
    before = path.read_bytes()
    with pytest.raises(DataError, match="already exists"):
        puorl.save(small(4), path)
    assert path.read_bytes() == before
    puorl.save(small(4), path, force=True)
    assert len(puorl.load(path)) == 4


@pytest.mark.parametrize("suffix", ARRAY_FORMATS)
def test_a_failed_save_leaves_nothing(tmp_path, suffix):
    bad = small(
        columns={"text": np.array(["a", "b", "c"])}, provenance=Provenance(recipe={"x": {1j}})
    )
    with pytest.raises(DataError, match="expected plain values in the recipe"):
        puorl.save(bad, tmp_path / f"rows{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="expected a place that can be written"):
        puorl.save(small(), tmp_path / "file" / "rows.npz")


def test_unknown_formats_to_write_list_the_known(tmp_path):
    with pytest.raises(ConfigError, match="one of: hdf5, npz, parquet, minari"):
        puorl.save(small(), tmp_path / "rows.pkl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("format", "name"), [("npz", "rows.bin"), ("hdf5", "rows.d4rl")])
def test_a_named_format_writes_exactly_that_file(tmp_path, format, name):
    puorl.save(small(), tmp_path / name, format=format)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert_same(small(), puorl.load(tmp_path / name, format=format))


def test_provenance_json_is_checked():
    good = Provenance(source=("a",), recipe={"seed": 1}).to_json()
    assert Provenance.from_json(good, source="f") == Provenance(source=("a",), recipe={"seed": 1})
    damaged = [
        b"{}",
        "[]",
        "3",
        "{",
        "[" * 100_000,
        json.dumps({"color": "red"}),
        json.dumps({"source": "a"}),
        json.dumps({"source": [1]}),
        json.dumps({"format": None}),
        json.dumps({"domain": 3}),
        json.dumps({"recipe": [1]}),
    ]
    for text in damaged:
        with pytest.raises(DataError, match="^f: "):
            Provenance.from_json(text, source="f")


def small(n=3, *, columns=None, provenance=None):
    obs = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
    return Dataset.from_arrays(
        obs=obs,
        action=np.ones((n, 1), np.float32),
        reward=np.zeros(n, np.float32),
        next_obs=obs + 2,
        terminal=np.zeros(n, bool),
        timeout=np.arange(n) == n - 1,
        episode=np.zeros(n, int),
        columns=columns,
        provenance=provenance,
    )


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".parquet"])
def test_same_rows_same_bytes_whenever_they_are_written(tmp_path, suffix):
    dataset = Dataset.from_arrays(
        obs=np.arange(8.0).reshape(4, 2), action=np.zeros((4, 1)), columns={"c": np.arange(4)}
    )
    puorl.save(dataset, tmp_path / f"a{suffix}")
    time.sleep(1.1 if suffix == ".hdf5" else 0)  # HDF5 counts time in seconds
    puorl.save(dataset, tmp_path / f"b{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
