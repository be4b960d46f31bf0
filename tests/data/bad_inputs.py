"""Good files of every format, and ways to spoil them."""

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np
import plain_reference as plain
import pyarrow as pa
import pyarrow.parquet as pq
from gymnasium import spaces
from hypothesis import strategies as st

import puorl
from puorl.data.dataset import Dataset
from puorl.data.transitions import Provenance

N = 6


@dataclass(frozen=True)
class Template:
    """A good file (or folder), and how its content is read without puorl."""

    path: Path
    plain: Callable[[Path], plain.Found] | None
    """None for a file of puorl, which has its content hash: what loads is what was written."""
    part: str = ""
    """The file inside the folder that is damaged."""


def rows() -> dict[str, np.ndarray]:
    """Two episodes under D4RL's names; the first ends, the second is cut."""
    rng = np.random.default_rng(7)
    obs = rng.normal(size=(N, 3)).astype(np.float32)
    next_obs = np.vstack([obs[1:], obs[:1]])
    next_obs[2] = 9
    return {
        "observations": obs,
        "actions": rng.normal(size=(N, 2)).astype(np.float32),
        "rewards": np.arange(N, dtype=np.float32),
        "next_observations": next_obs,
        "terminals": np.arange(N) == 2,
        "timeouts": np.arange(N) == N - 1,
    }


def templates(folder: Path) -> dict[str, Template]:
    """One good file of every kind."""
    made = {}
    for name, path in {**_array_files(folder), **_table_files(folder)}.items():
        kind = {"csv": plain.plain_csv, "tsv": plain.plain_csv, "parquet": plain.plain_parquet}
        made[name] = Template(path, kind.get(name.rpartition(".")[2], plain.plain_arrays))
    own = puorl.load(made["chunked.hdf5"].path)
    # Files must be the same in every run: no temporary folder may stand in them.
    own = dataclasses.replace(own, provenance=Provenance(source=("rows",), domain="target"))
    for name in ("own.hdf5", "own.npz", "own.parquet"):
        path = puorl.save(own, folder / name)
        made[name] = Template(path, None)
    for name, path in _minari_folders(folder).items():
        files = [p for p in sorted((path / "data").rglob("*")) if p.is_file()]
        for file in files:
            part = str(file.relative_to(path))
            made[f"{name}/{part}"] = Template(path, plain.plain_minari, part)
    path = puorl.save(own, folder / "own-v0", format="minari")
    for part in ("data/main_data.hdf5", "data/metadata.json"):
        made[f"own/{part}"] = Template(path, None, part)
    return made


def _array_files(folder: Path) -> dict[str, Path]:
    arrays = rows()
    text = np.array(["A", "é", "", "b", "A", "B"])
    names = ("plain.hdf5", "chunked.hdf5", "checked.hdf5", "plain.npz", "packed.npz")
    paths = {name: folder / name for name in names}
    with h5py.File(paths["plain.hdf5"], "w") as file:
        for key, array in arrays.items():
            file[key] = array
        file["infos/qpos"] = np.zeros((N, 2))
        file["robot"] = np.array([b"ab"] * N)
    with h5py.File(paths["chunked.hdf5"], "w") as file:
        for key, array in arrays.items():
            chunks = (2, *array.shape[1:])
            file.create_dataset(key, data=array, chunks=chunks, compression="gzip", shuffle=True)
        file["robot"] = text.astype(h5py.string_dtype())
        file["mode"] = np.array([0, 1, 1, 0, 1, 0], h5py.enum_dtype({"manual": 0, "auto": 1}))
    with h5py.File(paths["checked.hdf5"], "w", libver="latest") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array, fletcher32=True)
        file["robot"] = text.astype(h5py.string_dtype())
        file["group/level"] = np.arange(N)
    np.savez(paths["plain.npz"], **arrays, robot=text)  # type: ignore[arg-type]
    np.savez_compressed(paths["packed.npz"], **arrays, robot=text)  # type: ignore[arg-type]
    return paths


def table() -> dict[str, list[Any]]:
    """The same rows, one column a number, with a text and a number more."""
    arrays, columns = rows(), {}
    for base, key in (
        ("obs", "observations"),
        ("act", "actions"),
        ("next_obs", "next_observations"),
    ):
        columns |= {f"{base}_{i}": c.tolist() for i, c in enumerate(arrays[key].T.astype(float))}
    columns["reward"] = arrays["rewards"].tolist()
    columns["terminal"] = arrays["terminals"].tolist()
    columns["timeout"] = arrays["timeouts"].tolist()
    return columns | {"robot": list("abcabc"), "level": list(range(N))}


def _table_files(folder: Path) -> dict[str, Path]:
    columns, arrays = table(), rows()
    names = ("plain.csv", "quoted.csv", "stamped.tsv", "plain.parquet", "lists.parquet")
    paths = {name: folder / name for name in names}
    lines = list(zip(*columns.values(), strict=True))
    for name, mark, quote in (("plain.csv", ",", ""), ("quoted.csv", ";", '"')):
        cells = [list(columns), *([repr(v) if v != str(v) else v for v in line] for line in lines)]
        text = "".join(mark.join(f"{quote}{c}{quote}" for c in line) + "\r\n" for line in cells)
        paths[name].write_text(text, encoding="utf-8", newline="")
    stamps = [f"{i}.5\t{i}\t{i // 3}\t{0.1 * (i % 3):.1f}\tü{i}\n" for i in range(N)]
    paths["stamped.tsv"].write_text("obs\tact\tep\tt\tnote\n" + "".join(stamps), "utf-8-sig")
    pq.write_table(pa.table(columns), paths["plain.parquet"], row_group_size=4)
    lists = {
        "observation.state": pa.array(arrays["observations"].tolist(), pa.list_(pa.float32())),
        "action": pa.array(arrays["actions"].tolist(), pa.list_(pa.float32(), 2)),
        "timestamp": [0.0, 0.1, 0.2] * 2,
        "episode_index": [0] * 3 + [1] * 3,
        "note": [None, "a", "b"] * 2,
        "level": [None, 1.5, 2.0] * 2,
    }
    pq.write_table(pa.table(lists), paths["lists.parquet"], compression="none")
    return paths


def _minari_folders(folder: Path) -> dict[str, Path]:
    arrays = rows()
    box = {k: spaces.Box(-np.inf, np.inf, shape=(k,), dtype=np.float32) for k in (2, 3)}
    found = {}
    for name in ("hdf5", "arrow", "parquet"):
        episodes = []
        for first, stop in ((0, 3), (3, N)):
            part = {k: v[first:stop] for k, v in arrays.items()}
            # Minari cannot read one-dimensional infos back from Arrow.
            infos = {"q": np.arange(stop - first + 1.0)} if name == "hdf5" else None
            episodes.append(
                minari.data_collector.EpisodeBuffer(
                    observations=np.vstack([part["observations"], part["next_observations"][-1:]]),
                    actions=part["actions"],
                    rewards=part["rewards"].astype(float),
                    terminations=part["terminals"],
                    truncations=part["timeouts"],
                    infos=infos,
                )
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari asks for author, code and so on
            minari.create_dataset_from_buffers(
                f"{name}-v0",
                episodes,
                observation_space=box[3],
                action_space=box[2],
                data_format=name,
            )
        found[name] = folder / "minari" / f"{name}-v0"
    return found


# --- ways to spoil bytes -------------------------------------------------------------------------

_places = st.tuples(st.booleans(), st.integers(0, 2**31))
_flips = st.lists(st.tuples(_places, st.integers(0, 7)), min_size=1, max_size=4)
_lengths = st.sampled_from([1, 2, 4, 8, 64])

damages = st.one_of(
    st.tuples(st.just("flip"), _flips),
    st.tuples(st.just("flip"), _flips),
    st.tuples(st.just("cut"), _places),
    st.tuples(st.just("fill"), _places, _lengths, st.sampled_from([0, 0x7F, 0x80, 0xFF])),
    st.tuples(st.just("copy"), _places, _places, _lengths),
    st.tuples(st.just("insert"), _places, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("remove"), _places, _lengths),
)
"""Ways to damage a file, for `damaged`."""


def damaged(content: bytes, damage: tuple[Any, ...]) -> bytes:
    """The content after one damage; most places are chosen among bytes that are not zero."""
    filled = np.flatnonzero(np.frombuffer(content, np.uint8))

    def at(place: tuple[bool, int]) -> int:
        anywhere, number = place
        return number % len(content) if anywhere else int(filled[number % len(filled)])

    kind, *values = damage
    result = bytearray(content)
    if kind == "flip":
        for place, bit in values[0]:
            result[at(place)] ^= 1 << bit
        return bytes(result)
    start = at(values[0])
    if kind == "cut":
        del result[start:]
    elif kind == "fill":
        length = min(values[1], len(content) - start)
        result[start : start + length] = bytes([values[2]]) * length
    elif kind == "copy":
        source, length = at(values[1]), values[2]
        result[start : start + length] = content[source : source + length]
    elif kind == "insert":
        result[start:start] = values[1]
    else:
        del result[start : start + values[1]]
    return bytes(result)


# --- ways to spoil arrays and cells ---------------------------------------------------------------

_DTYPES = ["f2", "f4", "f8", "g", ">f4", ">i2", "i1", "i8", "u1", "u8", "?", "c8", "S4", "U4", "O"]
_NO_CAST = (ValueError, OverflowError, RuntimeError)
_VALUES = [np.nan, np.inf, -np.inf, 1e300, 2, -1, 0.5, 2.0**60, -0.0, 5e-324]
_SHAPES = ["column", "deep", "scalar", "empty rows", "longer", "shorter", "no rows", "turned"]


@st.composite
def spoiled_arrays(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Fields of a few rows, of which some were given a wrong type, value, shape, or were lost."""
    n = draw(st.integers(1, N))
    names = {"observations": "obs", "actions": "action", "next_observations": "next_obs"}
    arrays = {names.get(k, k.removesuffix("s")): v[:n] for k, v in rows().items()}
    arrays |= {"episode": np.arange(n) // 2, "time": np.arange(n) / 10}
    arrays["next_action"] = -arrays["action"]
    optional = sorted(set(arrays) - {"obs", "action"})
    for name in draw(st.lists(st.sampled_from(optional), unique=True)):
        del arrays[name]
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(arrays)))
        way = draw(st.sampled_from(["dtype", "dtype", "value", "value", "shape", "lost"]))
        if way == "lost":
            del arrays[name]
        elif way == "dtype":
            with warnings.catch_warnings(), contextlib.suppress(*_NO_CAST):
                warnings.simplefilter("ignore")
                arrays[name] = arrays[name].astype(draw(st.sampled_from([*_DTYPES, "M8[s]"])))
        elif way == "shape":
            arrays[name] = _reshaped(arrays[name], draw(st.sampled_from(_SHAPES)))
        elif arrays[name].size and arrays[name].dtype.kind == "f":
            array, value = arrays[name].copy(), draw(st.sampled_from(_VALUES))
            with np.errstate(over="ignore"):
                array.flat[draw(st.integers(0, array.size - 1))] = value
            arrays[name] = array
    return arrays


def _reshaped(array: np.ndarray, how: str) -> np.ndarray:
    if array.ndim == 0:
        return array
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    return {
        "column": flat[:, :1],
        "deep": flat[:, :, None],
        "scalar": np.asarray(flat[0, 0] if flat.size else 0.0),
        "empty rows": flat[:, :0],
        "longer": np.concatenate([array, array[-1:]]),
        "shorter": array[:-1],
        "no rows": array[:0],
        "turned": flat.T,
    }[how]


WRONG_CELLS = ["", " ", "nan", "inf", "x", "1,5", "0x10", "1_000", "１２", "1e999", "2", "-1"]
WRONG_CELLS += ["007", "true", '"', "1 2", "9" * 30, "2024-01-01", "é", "\x00", "--", "+1.", "0b1"]
"""Cells that are no plain number, or no number that a field can hold, or just odd."""
WRONG_TYPES = [pa.string(), pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.bool_()]
WRONG_TYPES += [pa.binary(), pa.decimal128(20, 3), pa.timestamp("ms"), pa.large_string()]
"""Arrow types that a column may come as."""


def agrees(loaded: Dataset, found: plain.Found, *, same_dtype: bool = True) -> None:
    """Assert that a load is what the plain library read, made rows by the rules."""
    fields, kept = plain.expected(found)
    held = loaded.rows.arrays()
    assert set(held) == set(fields)
    for name, array in fields.items():
        assert held[name].dtype == array.dtype or not same_dtype, name
        np.testing.assert_array_equal(held[name], array, name)
    named = [name for name in loaded.columns if name.startswith("unnamed_")]
    others = {name or named[0]: array for name, array in found.others.items()}
    assert set(loaded.columns) >= set(others)
    for name, array in others.items():
        if array.dtype.kind == "S":
            array = np.char.decode(array)
        np.testing.assert_array_equal(loaded.columns[name], array.reshape(len(array))[kept], name)
