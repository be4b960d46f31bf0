"""Folders in the layout of LeRobot v3: Parquet files of frames, and their description in JSON.

A frame is a state with the action that followed. Reading takes versions 2 and 3; images and videos
are left out. Writing makes an episode of every run of rows in which each next state is the
following state, so that no tool joins rows that do not belong together. The next state of each
frame, its episode, time and ends, and all columns are stored as features of their own: other tools
may ignore them, and `load` gives the same transitions back, run by run.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.errors import DataError, require
from puorl.core.files import read_json
from puorl.core.formatting import code_values
from puorl.data.actions import base_name
from puorl.data.dataset import Dataset
from puorl.data.episodes import runs_of
from puorl.data.parquet import read_frame
from puorl.data.validate import FieldNames, RawRows, reading

INFO = "meta/info.json"
"""File by which such a folder is recognised."""
_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_FEATURES = {
    "obs": "observation.state",
    "action": "action",
    "reward": "next.reward",
    "next_obs": "next.observation.state",
    "terminal": "next.terminated",
}
_TASK = "unknown"
_MOST_FRAMES_PER_SECOND = 100_000


def read(path: Path, names: FieldNames) -> RawRows:
    """Read all frames of a folder."""
    pa = require("pyarrow", extra="lerobot", purpose="reading LeRobot folders")
    parquet = require("pyarrow.parquet", extra="lerobot", purpose="reading LeRobot folders")
    info = read_json(path / INFO, repair="take another copy of the folder")
    version = str(info.get("codebase_version")) if isinstance(info, dict) else ""
    if not version.startswith(("v2", "v3")):
        raise DataError(f"{path}: expected a LeRobot folder of version 2 or 3, got {version!r}")
    files = sorted((path / "data").rglob("*.parquet"))
    with reading(path, "LeRobot folder", "take another copy"):
        tables = [parquet.read_table(file) for file in files]
        table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    if table.num_rows != info.get("total_frames"):
        raise DataError(
            f"{path}: expected {info.get('total_frames')} frames as in {INFO}, found "
            f"{table.num_rows}; take another copy of the folder"
        )
    rows = read_frame(table.replace_schema_metadata(None), names)
    rows.format = "lerobot"
    for field in ("obs", "action"):
        listed = info.get("features", {}).get(_FEATURES[field], {}).get("names")
        listed = next(iter(listed.values()), None) if isinstance(listed, dict) else listed
        width = rows.arrays[field].shape[1:] or (1,)
        if isinstance(listed, list) and (len(set(listed)),) == width:
            setattr(rows, f"{field}_names", tuple(map(str, listed)))
    return rows


def write(dataset: Dataset, path: Path) -> None:
    """Write a folder; see the module's docstring for what becomes an episode."""
    pa = require("pyarrow", extra="lerobot", purpose="writing LeRobot folders")
    parquet = require("pyarrow.parquet", extra="lerobot", purpose="writing LeRobot folders")
    order, runs = runs_of(dataset.rows)
    length = np.array([len(run) for run in runs])
    start = np.cumsum(length) - length
    frame = np.arange(len(order)) - np.repeat(start, length)
    rate = _frames_per_second(dataset, order)
    last = frame == np.repeat(length, length) - 1
    rows = dataset.rows.arrays()
    held: dict[str, np.ndarray] = {
        name: rows[field][order] for field, name in _FEATURES.items() if field in rows
    }
    if dataset.action_codes is not None:
        codes = np.array(code_values(dataset.action_codes))
        held["action"] = codes[held["action"].argmax(axis=1)]
    held |= {
        "next.truncated": last & ~held["next.terminated"],
        "next.done": last,
        "timestamp": (frame / rate).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.repeat(np.arange(len(runs)), length),
        "index": np.arange(len(order)),
        "task_index": np.zeros(len(order), np.int64),
    }
    extra = {k: rows[k] for k in ("episode", "time", "timeout") if k in rows}
    for name, array in (extra | dict(dataset.columns)).items():
        name = name.replace("/", "_")  # no feature may have one
        held[f"column.{name}" if name in held else name] = array[order]
    table = pa.table({name: _arrow(pa, name, array) for name, array in held.items()})
    given = dataset.provenance
    columns = {_FEATURES["obs"]: given.obs_names, _FEATURES["action"]: given.action_names}
    if dataset.action_codes is not None:
        columns[_FEATURES["action"]] = (base_name(given.action_names, dataset.action_codes),)
    features = {name: _feature(array, columns.get(name)) for name, array in held.items()}
    info = {
        "codebase_version": "v3.0",
        "robot_type": None,
        "total_episodes": len(runs),
        "total_frames": len(order),
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": rate,
        "splits": {"train": f"0:{len(runs)}"},
        "data_path": _DATA,
        "video_path": None,
        "features": features,
    }
    kinds = ("data", "meta/episodes")
    parts = [f"{kind}/{part}_index" for kind in kinds for part in ("chunk", "file")]
    episodes = pa.table(
        {
            "episode_index": np.arange(len(runs)),
            "tasks": pa.array([[_TASK]] * len(runs), pa.list_(pa.string())),
            "length": length,
            "dataset_from_index": start,
            "dataset_to_index": start + length,
            **{part: np.zeros(len(runs), np.int64) for part in parts},
        }
    )
    for name, content in (
        (_DATA.format(chunk_index=0, file_index=0), table),
        ("meta/episodes/chunk-000/file-000.parquet", episodes),
        ("meta/tasks.parquet", _tasks(pa)),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(content, path / name)
    # Without a hash: other tools take every entry of the statistics for a feature.
    (path / INFO).write_text(json.dumps(info, indent=4), encoding="utf-8")
    statistics = {k: _statistics(v) for k, v in held.items() if v.dtype.kind != "U"}
    (path / "meta/stats.json").write_text(json.dumps(statistics, indent=4), encoding="utf-8")


def _frames_per_second(dataset: Dataset, order: np.ndarray) -> int:
    """Return the rate of a clock in seconds; 1 without one."""
    if dataset.time is None or dataset.episode is None:
        return 1
    step = np.diff(dataset.time[order])[np.diff(dataset.episode[order]) == 0]
    step = step[step > 0]
    rate = round(1.0 / float(np.median(step))) if len(step) else 1
    return min(max(rate, 1), _MOST_FRAMES_PER_SECOND)


def _arrow(pa: Any, name: str, array: np.ndarray) -> Any:
    if array.dtype.kind not in "biufU":
        raise DataError(f"column {name}: dtype {array.dtype} cannot be held in Parquet; convert it")
    if array.dtype.kind == "U":
        return pa.array(array.tolist(), pa.string())
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(array).ravel(), array.shape[1])


def _feature(array: np.ndarray, names: tuple[str, ...] | None) -> dict[str, Any]:
    kind = "string" if array.dtype.kind == "U" else str(array.dtype)
    shape = list(array.shape[1:]) or [1]
    return {"dtype": kind, "shape": shape, "names": list(names) if names else None}


def _statistics(array: np.ndarray) -> dict[str, Any]:
    values = array.reshape(len(array), -1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        found = {"min": values.min(axis=0), "max": values.max(axis=0), "mean": values.mean(axis=0)}
        found["std"] = values.std(axis=0)
    made = {name: np.nan_to_num(each).tolist() for name, each in found.items()}
    return made | {"count": [len(array)]}


def _tasks(pa: Any) -> Any:
    """Return the table of tasks as pandas stores one whose index is the task's text."""
    index = "__index_level_0__"
    columns = [
        dict(name=name, field_name=field, pandas_type=kind, numpy_type=numpy, metadata=None)
        for name, field, kind, numpy in (
            ("task_index", "task_index", "int64", "int64"),
            (None, index, "unicode", "object"),
        )
    ]
    level = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
    content = {
        "index_columns": [index],
        "column_indexes": [level | {"metadata": {"encoding": "UTF-8"}}],
        "columns": columns,
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    table = pa.table({"task_index": np.zeros(1, np.int64), index: [_TASK]})
    return table.replace_schema_metadata({b"pandas": json.dumps(content).encode()})
