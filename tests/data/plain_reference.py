"""What a correct load of any file would be, found without puorl's readers.

Values are what the plain library (h5py, NumPy, csv, pyarrow) reads from the same file. What rows
they make is restated in `expected`, row by row and slowly, from the written rules. Only which key
is which field is asked of puorl itself.
"""

import contextlib
import csv
import io
import json
import math
import re
import statistics
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from puorl.data import columns
from puorl.data.validate import FieldNames

Choice = Callable[[Mapping[str, tuple[int, ...]]], list[str]]
"""From the shapes of all arrays to the keys of those to read."""
MATRICES = ("obs", "action", "next_obs", "next_action")


class Refused(Exception):
    """These arrays are no rows: a reader must say so."""


@dataclass
class Found:
    """What a plain library reads: fields by our names, and all other arrays."""

    fields: dict[str, np.ndarray]
    others: dict[str, np.ndarray] = field(default_factory=dict)


# --- the rules, restated -------------------------------------------------------------------------


def expected(found: Found) -> tuple[dict[str, np.ndarray], list[int]]:
    """The rows that the fields mean, and which source rows they are.

    Raises:
        Refused: They mean none.
    """
    if not {"obs", "action"} <= set(found.fields):
        raise Refused
    fields = {name: _canonical(name, array) for name, array in found.fields.items()}
    n = len(fields["obs"])
    if n == 0 or any(len(array) != n for array in fields.values()):
        raise Refused
    terminal = fields.setdefault("terminal", np.zeros(n, bool))
    for name, twin in (("next_obs", "obs"), ("next_action", "action")):
        if name in fields:
            if fields[name].shape != fields[twin].shape or np.isinf(fields[name]).any():
                raise Refused
            unknown = np.isnan(fields[name]).any(axis=1)
            if name == "next_obs" and (unknown & ~terminal).any():
                raise Refused
            wide = np.result_type(fields[name], fields[twin])
            fields[name], fields[twin] = fields[name].astype(wide), fields[twin].astype(wide)
    has_timeouts = "timeout" in fields
    fields.setdefault("timeout", np.zeros(n, bool))
    after = _successors(fields, n)
    if "next_obs" in fields:
        if "episode" not in fields:
            _number(fields, after, check_states=not has_timeouts)
        return fields, list(range(n))
    if "episode" not in fields:
        _number(fields, after, check_states=False)
    kept = [i for i in range(n) if after[i] is not None or terminal[i]]
    if not kept:
        raise Refused
    fields["next_obs"] = np.array(
        [np.full(fields["obs"].shape[1], np.nan) if after[i] is None else fields["obs"][after[i]]
         for i in kept], fields["obs"].dtype
    )  # fmt: skip
    cut = [after[i] is not None and after[i] not in kept for i in range(n)]
    fields["timeout"] = fields["timeout"] | np.array(cut)
    return {k: v if k == "next_obs" else v[kept] for k, v in fields.items()}, kept


def _canonical(name: str, array: np.ndarray) -> np.ndarray:
    kind = array.dtype.kind
    if kind == "b" and (np.ascontiguousarray(array).view(np.uint8) > 1).any():
        raise Refused
    if name in MATRICES:
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] == 0:
            raise Refused
        array = _floats(array)
        if name in ("obs", "action") and not np.isfinite(array).all():
            raise Refused
        return array
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise Refused
    if name in ("terminal", "timeout"):
        if kind not in "biuf" or not all(v in (0, 1) for v in array.tolist()):
            raise Refused
        return array.astype(bool)
    if name == "episode" and kind in "SU":
        try:
            texts = [v.decode() if kind == "S" else v for v in array.tolist()]
        except UnicodeDecodeError:
            raise Refused from None
        return np.array([list(dict.fromkeys(texts)).index(t) for t in texts], np.int64)
    if name == "episode":
        if kind not in "biuf" or not all(math.isfinite(v) and v == int(v) for v in array.tolist()):
            raise Refused
        ids = [int(v) for v in array.tolist()]
        if any(abs(i) > (2**53 if kind == "f" else 2**63 - 1) and i != -(2**63) for i in ids):
            raise Refused
        return np.array(ids, np.int64)
    if name == "time" and kind == "M":
        if np.isnat(array).any():
            raise Refused
        return array.astype("datetime64[ns]").astype(np.int64) / 1e9
    if name == "time" and kind in "iu":
        return array.astype(np.float64)
    array = _floats(array)
    if not np.isfinite(array).all():
        raise Refused
    return array.astype(np.float64) if name == "time" else array


def _floats(array: np.ndarray) -> np.ndarray:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "biuf" or size > 8:
        raise Refused
    if kind in "iu" and any(abs(v) > 2**53 for v in array.ravel().tolist()):
        raise Refused
    narrow = size <= 4 if kind == "f" else size <= 2
    return array.astype(np.float32 if narrow else np.float64)


def _successors(fields: Mapping[str, np.ndarray], n: int) -> list[int | None]:
    """The next row of the episode, unless the task ended, the record was cut or time jumped."""
    episode = fields.get("episode", np.zeros(n, np.int64)).tolist()
    after: list[int | None] = [
        None
        if fields["terminal"][i] or fields["timeout"][i]
        else next((j for j in range(i + 1, n) if episode[j] == episode[i]), None)
        for i in range(n)
    ]
    if "time" in fields:
        time = fields["time"].tolist()
        steps = {i: time[j] - time[i] for i, j in enumerate(after) if j is not None}
        forward = [dt for dt in steps.values() if dt > 0]
        middle = statistics.median(forward) if forward else math.inf
        for i, dt in steps.items():
            if dt < 0 or dt > 1.5 * middle:
                after[i] = None
    return after


def _number(fields: dict[str, np.ndarray], after: list[int | None], *, check_states: bool) -> None:
    n = len(after)
    joined = [after[i] == i + 1 for i in range(n - 1)]
    if check_states:
        for i in range(n - 1):
            joined[i] &= bool((fields["next_obs"][i] == fields["obs"][i + 1]).all())
        if joined and sum(joined) / len(joined) < 0.5:
            return
    fields["episode"] = np.cumsum([0, *(not j for j in joined)]).astype(np.int64)


# --- plain readers -------------------------------------------------------------------------------


def plain_arrays(path: Path) -> Found:
    """Fields and arrays of an HDF5 or NPZ file of other origin."""
    keys: dict[str, str] = {}

    def needed(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
        keys.update(columns.resolve(list(shapes), FieldNames(), "x"))
        n = shapes[keys["obs"]][0]
        rest = [k for k, shape in shapes.items() if shape in ((n,), (n, 1)) and "infos/" not in k]
        return [*keys.values(), *rest]

    arrays = (_hdf5_arrays if path.suffix == ".hdf5" else _npz_arrays)(path, needed)
    fields = {name: arrays[key] for name, key in keys.items()}
    return Found(fields, {k: v for k, v in arrays.items() if k not in keys.values()})


def _hdf5_arrays(path: Path, needed: Choice = list) -> dict[str, np.ndarray]:
    """The chosen arrays; h5py itself may crash on others that are damaged."""
    found: dict[str, h5py.Dataset] = {}

    def walk(group: h5py.Group, prefix: str) -> None:
        for name in group:
            item = group[name]
            if isinstance(item, h5py.Group):
                walk(item, f"{prefix}{name}/")
            elif isinstance(item, h5py.Dataset):
                with contextlib.suppress(ValueError, TypeError):  # a type that NumPy has not
                    if item.dtype.kind in "biufSU" or h5py.check_string_dtype(item.dtype):
                        found[f"{prefix}{name}"] = item

    with h5py.File(path) as file:
        walk(file, "")
        arrays = {}
        for key in needed({key: item.shape for key, item in found.items()}):
            varies = found[key].dtype.kind == "O"
            arrays[key] = np.asarray(found[key].asstr()[()] if varies else found[key][()])
    return {k: v.astype(str) if v.dtype.kind == "O" else v for k, v in arrays.items()}


def _npz_arrays(path: Path, needed: Choice) -> dict[str, np.ndarray]:
    # Not numpy.load: it refuses a zip file with something before it, which zip allows.
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    arrays = {
        name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(content))
        for name, content in contents.items()
        if name.endswith(".npy")
    }
    return {key: arrays[key] for key in needed({k: v.shape for k, v in arrays.items()})}


def plain_csv(path: Path) -> Found:
    """Fields and columns of a CSV file, its delimiter told by its name."""
    delimiter = {"quoted.csv": ";", "stamped.tsv": "\t"}.get(path.name, ",")
    text = path.read_bytes().decode("utf-8-sig")
    header, *lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = [name.strip() for name in header]
    table = dict(zip(header, zip(*(line for line in lines if line), strict=True), strict=True))
    claims = columns.claim(header, FieldNames(), "x").fields
    fields = {}
    for name, own in claims.items():
        if name in (*MATRICES, "reward"):
            gaps = name in ("next_obs", "next_action")
            numbers = [[_number_in(cell, gaps=gaps) for cell in table[c]] for c in own]
            fields[name] = np.array(numbers).T if name in MATRICES else np.array(numbers[0])
        else:
            fields[name] = _typed(table[own[0]])
            texts = [cell.strip() for cell in table[own[0]]]
            if name == "time" and all(_NUMBER.fullmatch(text) for text in texts):
                fields[name] = np.array([float(text) for text in texts])  # 02 is no id here
            if name == "episode" and len(set(texts)) > len(set(fields[name].tolist())):
                fields[name] = np.array(texts)  # equal as numbers only
    taken = [c for own in claims.values() for c in own]
    return Found(fields, {c: _typed(cells) for c, cells in table.items() if c not in taken})


_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.I | re.ASCII)


def _number_in(cell: str, *, gaps: bool) -> float:
    if gaps and not cell.strip():
        return math.nan
    assert _NUMBER.fullmatch(cell.strip()), cell
    return float(cell.strip())


def _typed(cells: tuple[str, ...]) -> np.ndarray:
    stripped = [cell.strip() for cell in cells]
    filled = [cell for cell in stripped if cell]
    gaps = len(filled) < len(cells)
    if filled and all(cell.lower() in ("true", "false") for cell in filled):
        flags = [cell.lower() == "true" if cell else np.nan for cell in stripped]
        return np.array(flags, float if gaps else bool)
    padded = any(re.match(r"[+-]?0\d", cell) for cell in filled)
    if padded or not all(_NUMBER.fullmatch(cell) for cell in filled):
        return np.array(cells)
    if filled and all(re.fullmatch(r"[+-]?\d+", cell) for cell in filled):
        largest = max(abs(int(cell)) for cell in filled)
        if largest > (2**53 if gaps else 2**63 - 1):
            return np.array(cells)
        if not gaps:
            return np.array([int(cell) for cell in stripped], np.int64)
    return np.array([float(cell or "nan") for cell in stripped])


def plain_parquet(path: Path) -> Found:
    """Fields and columns of a Parquet file of other origin."""
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        claims = columns.claim(schema.names, FieldNames(), "x").fields
        taken = [c for own in claims.values() for c in own]
        # One by one: columns of other types may be damaged, and are not read.
        needed = [c for c in schema.names if c in taken or _is_plain(schema.field(c).type)]
        arrays = {c: _arrow_values(file.read(columns=[c]).column(c)) for c in needed}
    fields = {}
    for name, own in claims.items():
        parts = [arrays[c] for c in own]
        single = name not in MATRICES or parts[0].ndim == 2
        fields[name] = parts[0] if single else np.stack(parts, axis=1)
    return Found(fields, {c: v for c, v in arrays.items() if c not in taken})


def _is_plain(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_text or pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)


def _arrow_values(column: pa.ChunkedArray) -> np.ndarray:
    values = column.to_pylist()
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return np.array(values, column.type.value_type.to_pandas_dtype())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array([v or "" for v in values])
    if column.null_count or pa.types.is_decimal(column.type):
        return np.array([np.nan if v is None else float(v) for v in values])
    return np.array(values, column.type.to_pandas_dtype())


def plain_minari(path: Path) -> Found:
    """Fields of a Minari folder, HDF5 or Arrow."""
    total = json.loads((path / "data" / "metadata.json").read_text())["total_episodes"]
    main = path / "data" / "main_data.hdf5"
    episodes = []
    if main.exists():
        arrays = _hdf5_arrays(main)
        for k in range(total):
            prefix = f"episode_{k}/"
            own = {key.removeprefix(prefix): v for key, v in arrays.items() if prefix in key}
            episodes.append(own)
    else:
        for k in range(total):
            [file] = (path / "data" / str(k)).glob("part-*")
            read = pq.read_table if file.suffix == ".parquet" else _arrow_table
            table = read(file)
            own = {name: _arrow_values(table.column(name)) for name in table.column_names}
            episodes.append({k: v if k == "observations" else v[:-1] for k, v in own.items()})
    places = {"action": "actions", "reward": "rewards"}
    places |= {"terminal": "terminations", "timeout": "truncations"}
    fields = {f: np.concatenate([e[key] for e in episodes]) for f, key in places.items()}
    fields["obs"] = np.concatenate([e["observations"][:-1] for e in episodes])
    fields["next_obs"] = np.concatenate([e["observations"][1:] for e in episodes])
    lengths = [len(e["rewards"]) for e in episodes]
    fields["episode"] = np.repeat(np.arange(total), lengths)
    infos = [e["infos/q"][1:] for e in episodes if "infos/q" in e]
    return Found(fields, {"q": np.concatenate(infos)} if len(infos) == total else {})


def _arrow_table(path: Path) -> pa.Table:
    with pa.ipc.open_file(path) as file:
        return file.read_all()
