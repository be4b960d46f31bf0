"""Give every reader damaged and hostile inputs: a refusal in one line, or the right values.

For each reader, good files (of puorl and of other tools) are spoiled at random: bits flipped, bytes
cut, filled, copied, inserted or removed, cells, arrays and columns replaced, and HDF5 arrays and
links led into another file. The oracle compares values:

- ``told``: puorl refuses it in one line;
- ``right``: a file of puorl gives the values and the origin that were written; another one gives
  what the plain library (h5py, NumPy, csv, pyarrow) reads from the same bytes, made rows by the
  written rules (`tests/data/plain_reference.py`);
- ``wrong``: other values, or values of another file, without a word;
- ``traceback``: any other exception; ``died``: a crash or a hang of the process.

    nice python benchmarks/reliability/readers.py --inputs 1500 --seed 0
"""

import argparse
import contextlib
import csv
import faulthandler
import functools
import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "data"))
import bad_inputs as bad
import plain_reference as plain

import puorl
from puorl.core.errors import PuorlError
from puorl.data.formats import load
from puorl.data.labels import read_keep_list, write_keep_list

RESULTS = Path(__file__).parents[1] / "results" / "reliability-readers.jsonl"
LONGEST_SECONDS = 60.0
SECRET = 424242.0
"""Content of a file to which hostile ones point; it must turn up nowhere."""
Case = tuple[str, Callable[[], str]]
"""Description of an input, and what reads it and returns the outcome."""


def run(reader: str, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Try ``count`` inputs on one reader; return outcomes, and descriptions of the bad ones."""
    outcomes: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["MINARI_DATASETS_PATH"] = f"{name}/minari"
        cases = READERS[reader](Path(name), np.random.default_rng([seed, len(reader)]))
        for number, (text, read) in zip(range(count), cases, strict=False):
            faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
            try:
                outcome = read()
            except PuorlError as error:
                is_line = str(error).isprintable() and len(str(error)) > 10
                outcome = "told" if is_line else "traceback"
            except Exception as error:  # the point of the exercise
                outcome, text = "traceback", f"{text}: {type(error).__name__}: {error}"
            finally:
                faulthandler.cancel_dump_traceback_later()
            outcomes[outcome] += 1
            if outcome not in ("told", "right"):
                failures.append(f"{reader} seed {seed} input {number}: {outcome}: {text}")
    return outcomes, failures


def _damage(rng: np.random.Generator) -> tuple[Any, ...]:
    """One way to spoil bytes, as `bad_inputs.damaged` takes it."""

    def place() -> tuple[bool, int]:
        return bool(rng.random() < 0.5), int(rng.integers(2**31))

    length = int(rng.choice([1, 2, 4, 8, 64]))
    kind = rng.choice(["flip", "flip", "flip", "cut", "fill", "copy", "insert", "remove"])
    if kind == "flip":
        bits = range(1 if rng.random() < 0.7 else int(rng.integers(2, 5)))
        return "flip", [(place(), int(rng.integers(8))) for _ in bits]
    if kind == "fill":
        return "fill", place(), length, int(rng.choice([0, 0x7F, 0x80, 0xFF]))
    if kind == "insert":
        return "insert", place(), rng.bytes(int(rng.integers(1, 10)))
    more = {"cut": (), "copy": (place(), length), "remove": (length,)}[str(kind)]
    return str(kind), place(), *more


def _spoiled(folder: Path, rng: np.random.Generator, names: tuple[str, ...]) -> Iterator[Case]:
    """Damaged copies of good files."""
    templates = {k: t for k, t in bad.templates(folder).items() if k.startswith(names)}
    whole = {k: puorl.load(t.path) for k, t in templates.items() if t.plain is None}
    while True:
        name = str(rng.choice(list(templates)))
        template, damage = templates[name], _damage(rng)
        path = folder / "damaged" / template.path.name
        content = (template.path / template.part).read_bytes()
        changed = bad.damaged(content, damage)
        if changed == content:
            continue
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        if template.part:
            shutil.copytree(template.path, path)
        (path / template.part).write_bytes(changed)

        def read(template: bad.Template = template, path: Path = path, name: str = name) -> str:
            data = puorl.load(path)
            if name in whole:
                same = data.fingerprint == whole[name].fingerprint
                return "right" if same and data.provenance == whole[name].provenance else "wrong"
            return _agrees(data, template.plain, path, same_dtype=not template.part)

        yield f"{name} {damage}", read


def _agrees(data: puorl.Dataset, find: Any, path: Path, *, same_dtype: bool = True) -> str:
    try:
        bad.agrees(data, find(path), same_dtype=same_dtype)
    except (AssertionError, plain.Refused):
        return "wrong"
    return "right"


def _cells(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """CSV tables with wrong cells, some of them interleaved episodes with odd ids."""
    table, marks = bad.table(), {"cells.csv": ",", "quoted.csv": ";", "stamped.tsv": "\t"}
    ids = ["1", "1.0", "10", "1e1", "true", "True", "007", "7", "a", " a", "+1", "=1", "é"]
    while True:
        cells = {name: [str(value) for value in column] for name, column in table.items()}
        if rng.random() < 0.5:
            del cells["terminal"], cells["timeout"]
            cells = {k: v for k, v in cells.items() if not k.startswith("next_")}
            cells["episode"] = [str(each) for each in rng.choice(ids, 2)] * (bad.N // 2)
        for _ in range(int(rng.integers(0, 3))):
            column = cells[str(rng.choice(list(cells)))]
            column[int(rng.integers(bad.N))] = str(rng.choice(bad.WRONG_CELLS))
        path = folder / str(rng.choice(list(marks)))
        mark = marks[path.name]
        lines = [list(cells), *zip(*cells.values(), strict=True)]
        text = "".join(mark.join(line) + "\n" for line in lines)
        path.write_text(text, encoding="utf-8", newline="")

        def read(path: Path = path) -> str:
            return _agrees(puorl.load(path), plain.plain_csv, path)

        yield text, read


def _json_lines(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Damaged JSON lines, half of them compressed; the oracle makes a CSV file of them."""
    table = {name: np.array(cells).tolist() for name, cells in bad.table().items()}
    lines = [dict(zip(table, line, strict=True)) for line in zip(*table.values(), strict=True)]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    cells: dict[Any, str] = {None: "", True: "true", False: "false"}
    while True:
        is_packed, damage = bool(rng.random() < 0.5), _damage(rng)
        good = gzip.compress(content, mtime=0) if is_packed else content
        path = folder / ("rows.jsonl.gz" if is_packed else "rows.jsonl")
        path.write_bytes(bad.damaged(good, damage))
        if path.read_bytes() == good:
            continue

        def read(path: Path = path, is_packed: bool = is_packed) -> str:
            data = puorl.load(path)
            text = (gzip.decompress if is_packed else bytes)(path.read_bytes()).decode("utf-8-sig")
            found = [json.loads(line) for line in re.split("\r\n|\r|\n", text) if line.strip()]
            names = list(dict.fromkeys(name for line in found for name in line))
            with open(folder / "plain.csv", "w", newline="") as file:
                writer = csv.writer(file, quoting=csv.QUOTE_ALL)
                writer.writerow(names)
                for line in found:
                    row = [line.get(name) for name in names]
                    writer.writerow(
                        cells[v] if v is None or isinstance(v, bool) else v if isinstance(v, str)
                        else repr(v) for v in row
                    )  # fmt: skip
            return _agrees(data, plain.plain_csv, folder / "plain.csv")

        yield f"{path.name} {damage}", read


def _hostile_hdf5(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Files, Minari folders among them, that point into another file."""
    good = bad.templates(folder)
    names = ["plain.hdf5", "own.hdf5", "hdf5/data/main_data.hdf5", "own/data/main_data.hdf5"]
    secret, other = folder / "secret", folder / "other.hdf5"
    np.full(1_000, SECRET).tofile(secret)
    with h5py.File(other, "w") as file:
        for key, array in bad.rows().items():
            file[key] = np.full(array.shape, SECRET)
            file[f"deep/{key}"] = np.full(array.shape, SECRET)
    while True:
        template = good[str(rng.choice(names))]
        path = folder / "hostile" / template.path.name
        shutil.rmtree(path.parent, ignore_errors=True)
        (shutil.copytree if template.part else shutil.copy)(
            template.path, _made(path.parent) / path.name
        )
        way = str(rng.choice(["external", "virtual", "link", "soft", "deep soft", "attribute"]))
        with h5py.File(path / template.part, "a") as file:
            names_inside: list[str] = []
            file.visit(names_inside.append)
            key = str(rng.choice([k for k in names_inside if isinstance(file[k], h5py.Dataset)]))
            _point_elsewhere(file, key, way, secret, other)

        def read(path: Path = path) -> str:
            data = puorl.load(path)
            arrays = [*data.rows.arrays().values(), *data.columns.values()]
            seen = any((a == SECRET).any() for a in arrays if a.dtype.kind == "f")
            return "wrong" if seen else "right"

        yield f"{template.path.name}: {key} by {way}", read


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _point_elsewhere(file: h5py.File, key: str, way: str, secret: Path, other: Path) -> None:
    shape = file[key].shape
    if way == "attribute":  # as long as all other values: nothing that a reader may follow
        file[key].attrs["DIMENSION_LIST"] = h5py.SoftLink(str(other)).path
        return
    del file[key]
    if way == "external":
        file.create_dataset(key, shape, "f8", external=[(str(secret), 0, 8_000)])
    elif way == "virtual":
        layout = h5py.VirtualLayout(shape, "f8")
        layout[...] = h5py.VirtualSource(str(other), "observations", shape)
        file.create_virtual_dataset(key, layout)
    elif way == "link":
        file[key] = h5py.ExternalLink(str(other), "/observations")
    else:
        file["away"] = h5py.ExternalLink(str(other), "/deep" if way == "deep soft" else "/")
        file[key] = h5py.SoftLink("/away/observations")


def _splits(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Damaged split folders."""
    obs = np.random.default_rng(0).normal(size=(60, 2))
    sources = [
        puorl.Dataset.from_arrays(obs=obs + k, action=obs[:, :1], next_obs=obs, reward=obs[:, 0])
        for k in (0, 1)
    ]
    drawn = puorl.make_split(*sources, rows=40, target_fraction=0.5, labelled_fraction=0.25, seed=0)
    own = puorl.PUSplit.from_mask(sources[0], np.arange(60) < 20)
    made = [(drawn, sources), (own, sources[:1])]
    for number, (split, _) in enumerate(made):
        split.save(folder / str(number))
    words = ["NaN", "null", "[]", '"x"', "-1", "1e999", "[" * 3_000]
    while True:
        number = int(rng.integers(2))
        split, data = made[number]
        path = folder / "split"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder / str(number), path)
        file = path / str(rng.choice([each.name for each in sorted(path.iterdir())]))
        content, damage = file.read_bytes(), _damage(rng)
        if file.suffix == ".json" and rng.random() < 0.4:
            settings = json.loads(content)
            key = str(rng.choice(list(settings)))
            mark = json.dumps(settings[key])
            damage = (key, str(rng.choice(words)))
            settings[key] = "MARK"
            file.write_text(json.dumps(settings).replace('"MARK"', damage[1]))
            if damage[1] == mark:
                continue
        else:
            file.write_bytes(bad.damaged(content, damage))

        def read(split: Any = split, data: Any = data, path: Path = path) -> str:
            found = puorl.PUSplit.load(path, data[0], data[1:])
            same = found.fingerprint == split.fingerprint and found.config == split.config
            return "right" if same and found.returns == split.returns else "wrong"

        yield f"{file.name} {str(damage)[:80]}", read


def _keep_lists(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Keep-lists of hostile ids, read back as they are, and damaged ones, which must not raise."""
    pieces = ["=1+1", "'", "+", "@x", "-", "\t", '"', ",", ";", "é", "\n", "a", "1", "1e1", " "]
    path = folder / "keep.csv"
    while True:
        texts = {"".join(rng.choice(pieces, int(rng.integers(1, 5)))) for _ in range(6)}
        ids = np.array(sorted(texts))
        data = puorl.Dataset.from_arrays(
            obs=np.zeros((len(ids), 1)),
            action=np.zeros((len(ids), 1)),
            next_obs=np.ones((len(ids), 1)),
            episode=np.arange(len(ids)),
            columns={"trip": ids},
        )
        keep = rng.random(len(ids)) < 0.5
        write_keep_list(path, data, keep, unit="episode", force=True)
        is_damaged = bool(rng.random() < 0.3)
        if is_damaged:
            path.write_bytes(bad.damaged(path.read_bytes(), _damage(rng)))

        def read(data: Any = data, keep: Any = keep, is_damaged: bool = is_damaged) -> str:
            found = read_keep_list(path, data)
            # A text file without checksum: damage may name other episodes, that are in the data.
            same = is_damaged or found.tolist() == np.flatnonzero(keep).tolist()
            return "right" if same else "wrong"

        yield f"{ids.tolist()} {is_damaged}", read


def _files(*names: str) -> Callable[[Path, np.random.Generator], Iterator[Case]]:
    return lambda folder, rng: _spoiled(folder, rng, names)


def _streamed(
    cases: Callable[[Path, np.random.Generator], Iterator[Case]],
) -> Callable[[Path, np.random.Generator], Iterator[Case]]:
    """Read the same inputs in partitions; what passes must be what is read as a whole."""

    def read_in_parts(read: Callable[[], str]) -> str:
        with contextlib.ExitStack() as stack:
            for name in ("data.hdf5._BLOCK", "data.csv._BLOCK_LINES", "data.minari._BLOCK"):
                stack.enter_context(mock.patch(f"puorl.{name}", 16))
            stack.enter_context(mock.patch("puorl.load", _load_in_parts, create=True))
            return read()

    def made(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
        for text, read in cases(folder, rng):
            yield text, functools.partial(read_in_parts, read)

    return made


def _load_in_parts(path: Path) -> puorl.Dataset:
    """Read a file in partitions, and as a whole; return the whole if rows are the same."""
    found = puorl.open(path, partition_rows=20).to_dataset().rows.arrays()
    whole = load(path)
    for name, array in whole.rows.arrays().items():
        if name == "episode":  # the numbers may differ
            array, found[name] = (np.diff(each) != 0 for each in (array, found[name]))
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    return whole


READERS: dict[str, Callable[[Path, np.random.Generator], Iterator[Case]]] = {
    "hdf5": _files("plain.hdf5", "chunked.hdf5", "checked.hdf5"),
    "hdf5 of puorl": _files("own.hdf5"),
    "npz": _files("plain.npz", "packed.npz"),
    "npz of puorl": _files("own.npz"),
    "csv": _files("plain.csv", "quoted.csv", "stamped.tsv"),
    "csv cells": _cells,
    "json lines": _json_lines,
    "parquet": _files("plain.parquet", "lists.parquet"),
    "parquet of puorl": _files("own.parquet"),
    "minari": _files("hdf5/", "arrow/", "parquet/"),
    "minari of puorl": _files("own/"),
    "hostile hdf5": _hostile_hdf5,
    "split": _splits,
    "keep-list": _keep_lists,
}
READERS |= {
    f"{name}, streamed": _streamed(READERS[name])
    for name in ("hdf5", "hdf5 of puorl", "csv", "csv cells", "parquet", "parquet of puorl",
                 "minari", "hostile hdf5")
}  # fmt: skip


def main() -> None:
    """Try every reader in a process of its own, and append the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", nargs="*", default=list(READERS), choices=list(READERS))
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_process:
        outcomes, failures = run(args.readers[0], args.seed, args.inputs)
        print(json.dumps([outcomes, failures]))
        return
    for reader in args.readers:
        begin = time.monotonic()
        words = ["--readers", reader, "--seed", str(args.seed), "--inputs", str(args.inputs)]
        command = [sys.executable, __file__, "--in-process", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        outcomes, failures = {"died": 1}, [done.stderr[-2_000:]]
        with contextlib.suppress(ValueError):
            outcomes, failures = json.loads(done.stdout)
        packages = ("puorl", "numpy", "h5py", "pyarrow", "minari")
        row = {
            "config": {"reader": reader, "inputs": args.inputs, "seed": args.seed},
            "measured": {"outcomes": outcomes, "failures": failures[:20]},
            "seconds": round(time.monotonic() - begin, 1),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "versions": {name: version(name) for name in packages}
            | {"python": platform.python_version()},
        }
        print(reader, outcomes, *failures[:5], sep="\n    ")
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
