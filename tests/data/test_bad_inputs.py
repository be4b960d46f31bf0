"""Whatever is put in: a clear refusal in one line, or a load that is right. Never anything else.

Over 2,000 spoiled inputs for every reader, for arrays, for saved splits and for the command line.
"""

import contextlib
import faulthandler
import io
import os
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import puorl
from puorl.cli.main import main
from puorl.core.errors import PuorlError
from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.data.split import PUSplit

sys.path.insert(0, str(Path(__file__).parent))
import bad_inputs as bad
import plain_reference as plain

FEWEST = 2_000
LONGEST_SECONDS = 20  # an example takes milliseconds, on a busy machine a second
MOST_MEMORY = 2**29
SUFFIXES = (".hdf5", ".npz", ".csv", ".tsv", ".parquet")
tried: Counter[str] = Counter()
"""Spoiled inputs so far, by what read them."""
HDF5 = ("plain.hdf5", "chunked.hdf5", "checked.hdf5", "own.hdf5")
NPZ = ("plain.npz", "packed.npz", "own.npz")
CSV = ("plain.csv", "quoted.csv", "stamped.tsv")
PARQUET = ("plain.parquet", "lists.parquet", "own.parquet")
MINARI = (
    "hdf5/data/main_data.hdf5",
    "hdf5/data/metadata.json",
    "arrow/data/1/part-0.arrow",
    "arrow/data/metadata.json",
    "parquet/data/0/part-0.parquet",
    "own/data/main_data.hdf5",
    "own/data/metadata.json",
)


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("templates")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        return bad.templates(folder)


@pytest.fixture(autouse=True)
def memory_stays_small():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < MOST_MEMORY


def refusal(call: Callable[[], Any], reader: str, source: str) -> str | None:
    """The refusal in one line, None if the call went through; the last value is in `results`."""
    tried[reader] += 1
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)  # ends even an endless loop in C
    start = time.monotonic()
    try:
        results[:] = [call()]
        return None
    except PuorlError as error:
        text = str(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
        assert time.monotonic() - start < LONGEST_SECONDS
    assert source in text
    assert len(text) > len(source) + 10
    assert text.isprintable()
    return text


results: list[Any] = []


def spoil(template: bad.Template, damage: tuple[Any, ...], folder: Path) -> Path:
    """A damaged copy; damage that changes nothing does not count as an example."""
    path = folder / template.path.name
    if template.part:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template.path, path)
    content = (template.path / template.part).read_bytes()
    changed = bad.damaged(content, damage)
    assume(changed != content)
    (path / template.part).write_bytes(changed)
    return path


def check_damage(template: bad.Template, damage: tuple[Any, ...], folder: Path, reader: str):
    path = spoil(template, damage, folder)
    if refusal(lambda: puorl.load(path), reader, str(path)) is not None:
        return
    if template.plain is None:
        original = puorl.load(template.path)
        assert results[0].fingerprint == original.fingerprint
        assert results[0].provenance == original.provenance
    else:
        # Without its space, Minari gives Arrow's float32 as Python's floats: the same numbers.
        bad.agrees(results[0], template.plain(path), same_dtype=not template.part)


@given(name=st.sampled_from(HDF5), damage=bad.damages)
@settings(max_examples=500)
def test_damaged_hdf5(templates, tmp_path, name, damage):
    check_damage(templates[name], damage, tmp_path, "hdf5")


@given(name=st.sampled_from(NPZ), damage=bad.damages)
@settings(max_examples=300)
def test_damaged_npz(templates, tmp_path, name, damage):
    check_damage(templates[name], damage, tmp_path, "npz")


@given(name=st.sampled_from(PARQUET), damage=bad.damages)
@settings(max_examples=400)
def test_damaged_parquet(templates, tmp_path, name, damage):
    check_damage(templates[name], damage, tmp_path, "parquet")


@given(name=st.sampled_from(CSV), damage=bad.damages)
@settings(max_examples=400)
def test_damaged_csv(templates, tmp_path, name, damage):
    check_damage(templates[name], damage, tmp_path, "csv")


@given(name=st.sampled_from(MINARI), damage=bad.damages)
@settings(max_examples=300)
def test_damaged_minari(templates, tmp_path, name, damage):
    check_damage(templates[name], damage, tmp_path, "minari")


def check_arrays(call: Callable[[], Dataset], arrays: dict[str, np.ndarray], reader: str, source):
    """Two-sided: rows that the rules allow must load, all others must be refused."""
    try:
        plain.expected(plain.Found(arrays))
        is_good = True
    except plain.Refused:
        is_good = False
    assert (refusal(call, reader, source) is None) == is_good
    if is_good:
        bad.agrees(results[0], plain.Found(arrays))


@given(arrays=bad.spoiled_arrays())
@settings(max_examples=400)
def test_wrong_arrays(arrays):
    call = partial(Dataset.from_arrays, **{"obs": None, "action": None, **arrays})
    check_arrays(call, arrays, "from_arrays", "arrays: ")


@given(arrays=bad.spoiled_arrays())
@settings(max_examples=250)
def test_wrong_arrays_in_npz(tmp_path, arrays):
    np.savez(tmp_path / "wrong.npz", **arrays)
    call = partial(puorl.load, tmp_path / "wrong.npz")
    check_arrays(call, arrays, "npz", str(tmp_path / "wrong.npz"))


@given(arrays=bad.spoiled_arrays())
@settings(max_examples=250)
def test_wrong_arrays_in_hdf5(tmp_path, arrays):
    with h5py.File(tmp_path / "wrong.hdf5", "w") as file:
        for name, array in arrays.items():
            if array.dtype.kind == "U":
                array = arrays[name] = np.char.encode(array)
            elif array.dtype.kind == "M":
                array = array.astype(h5py.opaque_dtype(array.dtype))
            elif array.dtype.kind == "O":
                array = np.array([], h5py.vlen_dtype(float)).reshape(0)
            file[name] = array
    call = partial(puorl.load, tmp_path / "wrong.hdf5")
    check_arrays(call, arrays, "hdf5", str(tmp_path / "wrong.hdf5"))


TABLE = bad.table()
cell = st.tuples(
    st.sampled_from(list(TABLE)), st.integers(0, bad.N - 1), st.sampled_from(bad.WRONG_CELLS)
)


@given(
    wrong=st.lists(cell, min_size=1, max_size=2),
    header=st.sampled_from(["kept", "kept", "kept", "twice", "unnamed", "lost", "huge", "numbers"]),
    ends=st.sampled_from(
        ["kept", "kept", "kept", "short", "long", "latin-1", "no rows", "one row"]
    ),
)
@settings(max_examples=400)
def test_wrong_cells_in_csv(tmp_path, wrong, header, ends):
    table = {name: [str(v) for v in cells] for name, cells in TABLE.items()}
    for name, row, text in wrong:
        table[name][row] = text
    lines = [list(table), *map(list, zip(*table.values(), strict=True))]
    if header == "lost":
        lines = lines[1:]
    elif header != "kept":
        new = {"twice": lines[0][0], "unnamed": "", "huge": "x" * 200_000, "numbers": "7"}[header]
        lines[0] = [new] * len(lines[0]) if header == "numbers" else [*lines[0][:-1], new]
    lines = {"no rows": lines[:1], "one row": lines[:2]}.get(ends, lines)
    lines[-1] = {"short": lines[-1][:-1], "long": [*lines[-1], "1"]}.get(ends, lines[-1])
    text = "".join(",".join(line) + "\n" for line in lines)
    path = tmp_path / "plain.csv"
    path.write_bytes(text.encode("utf-8") + ("é\n".encode("latin-1") if ends == "latin-1" else b""))
    refused = refusal(lambda: puorl.load(path), "csv", str(path))
    hopeless = header in ("twice", "lost", "numbers") or ends in ("short", "long")
    assert refused is not None or not (hopeless or ends in ("latin-1", "no rows"))
    if refused is None:
        bad.agrees(results[0], plain.plain_csv(path))


change = st.tuples(st.sampled_from(list(TABLE)), st.sampled_from(["type", "null", "drop", "list"]))


@given(
    changes=st.lists(change, min_size=1, max_size=2),
    kind=st.sampled_from(bad.WRONG_TYPES),
    row=st.integers(0, bad.N - 1),
    num_rows=st.sampled_from([bad.N, bad.N, 1, 0]),
    twice=st.integers(0, 9),
)
@settings(max_examples=300)
def test_wrong_columns_in_parquet(tmp_path, changes, kind, row, num_rows, twice):
    table = {name: pa.array(cells) for name, cells in TABLE.items()}
    for name, way in changes:
        if way == "drop":
            table.pop(name, None)
        elif name in table and way == "type":
            with contextlib.suppress(pa.ArrowException):
                table[name] = table[name].cast(kind, safe=False)
        elif name in table:
            values = table[name].to_pylist()
            values = [[v] * (i % 3) for i, v in enumerate(values)] if way == "list" else values
            values[row] = None
            with contextlib.suppress(OverflowError):  # numbers that only the old type could hold
                table[name] = pa.array(values)
    names = [*table, *([next(iter(table))] if twice == 0 else [])]
    columns = [table[name][:num_rows] for name in names]
    path = tmp_path / "wrong.parquet"
    pq.write_table(pa.Table.from_arrays(columns, names), path)
    refused = refusal(lambda: puorl.load(path), "parquet", str(path))
    assert refused is not None or (twice != 0 and num_rows > 0)
    if refused is None:
        bad.agrees(results[0], plain.plain_parquet(path))


def magic(path: Path, templates) -> bytes:
    """How a good file of this suffix starts."""
    return templates[f"plain{path.suffix}"].path.read_bytes()[:64] if path.suffix != ".tsv" else b""


@given(
    suffix=st.sampled_from(SUFFIXES),
    way=st.sampled_from(["folder", "empty", "random", "magic", "other", "absent", "suffix"]),
    noise=st.binary(min_size=1, max_size=300),
    other=st.sampled_from([*HDF5, *NPZ, *CSV, *PARQUET]),
    stem=st.sampled_from(["rows", "a b", "a\nb", "ü", "\udcff", "[x]", "-", "a" * 200, "\x1b[31m"]),
)
@settings(max_examples=400)
def test_what_is_no_such_file(templates, tmp_path, suffix, way, noise, other, stem):
    path = tmp_path / f"{stem}{suffix if way != 'suffix' else '.dat'}"
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    content = {"empty": b"", "random": noise, "other": templates[other].path.read_bytes()}
    if way == "folder":
        path.mkdir()
    elif way != "absent":
        content["magic"] = magic(path, templates) + noise if way == "magic" else b""
        path.write_bytes(content.get(way, noise))
    refused = refusal(lambda: puorl.load(path), f"any {suffix}", suffix if way != "suffix" else ".")
    kin = {".tsv": ".csv"}
    same_kind = kin.get(suffix, suffix) == kin.get(Path(other).suffix, Path(other).suffix)
    is_good = way == "other" and same_kind
    is_good &= stem != "\udcff" or suffix != ".parquet"  # pyarrow opens only names that are UTF-8
    assert (refused is None) == is_good


@given(name=st.sampled_from([*HDF5, *NPZ, *CSV, *PARQUET, *MINARI]), damage=bad.damages)
@settings(max_examples=300)
def test_inspect_ends_in_one_line_or_a_table(templates, tmp_path, name, damage):
    path = spoil(templates[name], damage, tmp_path)
    refused = refusal(lambda: puorl.load(path, missing="drop"), "inspect", str(path))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["inspect", os.fspath(path)])
    if refused is None:
        assert (code, err.getvalue()) == (0, "")
        assert "fingerprint" in out.getvalue()
    else:
        shown = out.getvalue()
        # Where names alone are missing, it lists the columns to choose from.
        lists = "usual names" in refused and "say which is which: --obs" in shown
        assert (code, lists or shown) == (2, lists or "")
        assert err.getvalue() == f"puorl: error: {' '.join(refused.split())}\n"


@pytest.fixture(scope="module")
def saved_splits(tmp_path_factory):
    """Folder, split and the data it was made from: one drawn, one of a user's own rows."""
    folder = tmp_path_factory.mktemp("splits")
    obs = np.random.default_rng(0).normal(size=(60, 2))
    target, other = (
        Dataset.from_arrays(obs=obs + k, action=obs[:, :1], next_obs=obs, reward=obs[:, 0])
        for k in (0, 1)
    )
    drawn = make_split(target, other, rows=40, target_fraction=0.5, labelled_fraction=0.25, seed=0)
    own = PUSplit.from_mask(target, np.arange(60) < 20)
    made = [(drawn, (target, other)), (own, (target,))]
    return [(s.save(folder / str(i)), s, data) for i, (s, data) in enumerate(made)]


@given(
    which=st.integers(0, 1),
    file=st.sampled_from(["split.json", "index.npz", "origin.npz"]),
    damage=st.one_of(bad.damages, st.just(("lost",)), st.just(("folder",))),
)
@settings(max_examples=300)
def test_damaged_splits(saved_splits, tmp_path, which, file, damage):
    good, split, data = saved_splits[which]
    file = file if (good / file).exists() else "index.npz"
    path = tmp_path / "split"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(good, path)
    if damage[0] in ("lost", "folder"):
        (path / file).unlink()
        if damage[0] == "folder":
            (path / file).mkdir()
    else:
        (path / file).write_bytes(bad.damaged((good / file).read_bytes(), damage))
    if refusal(lambda: PUSplit.load(path, *data), "split", str(path)) is None:
        loaded = results[0]
        assert loaded.fingerprint == split.fingerprint
        assert (loaded.config, loaded.returns) == (split.config, split.returns)
        assert (loaded.unit, loaded.sampling) == (split.unit, split.sampling)


@given(
    mask=st.one_of(
        st.lists(st.booleans(), max_size=8),
        st.lists(st.sampled_from([0, 1, 2, np.nan]), max_size=8),
        st.lists(st.text(max_size=2), max_size=8),
        st.text(max_size=6),
        st.just(None),
    )
)
@settings(max_examples=100)
def test_wrong_masks(mask):
    rows = np.arange(12.0).reshape(6, 2)
    dataset = Dataset.from_arrays(obs=rows, action=rows, next_obs=rows)
    given_mask = mask if isinstance(mask, str) or mask is None else np.array(mask)
    is_good = isinstance(mask, list) and len(mask) == 6 and set(mask) == {True, False}
    is_good = is_good and given_mask.dtype == bool
    refused = refusal(lambda: PUSplit.from_mask(dataset, given_mask), "mask", "")
    assert (refused is None) == is_good


def test_enough_was_tried():
    readers = {"hdf5", "npz", "csv", "parquet", "minari", "from_arrays", "inspect", "split", "mask"}
    if not readers <= set(tried):
        pytest.skip("counts only when the whole file runs")
    assert sum(tried.values()) >= FEWEST
    assert min(tried[reader] for reader in ("hdf5", "npz", "csv", "parquet", "minari")) >= 200
