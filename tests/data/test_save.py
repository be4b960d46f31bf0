"""What is saved comes back as it was, in every array format, whatever the content."""

import dataclasses
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.transitions import Provenance

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


def test_unknown_formats_list_the_known(tmp_path):
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
