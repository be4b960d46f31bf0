"""Our own Minari datasets: ordinary ones for other people's tools, exact ones for ours.

Rows are cut into runs in which each next state is the following state; a run is one Minari
episode. What Minari has no place for stands in the infos, and the folder's metadata says how to put
it together again.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core import hashing
from puorl.core.errors import DataError, require
from puorl.data.dataset import Dataset
from puorl.data.episodes import joined, succession
from puorl.data.transitions import Provenance, Transitions
from puorl.data.validate import RawRows

METADATA_KEY = "puorl"
"""Where the folder's metadata holds what only we need."""
MAX_RUNS = 100_000
"""More runs than this would take gigabytes and minutes for no reader's good."""
_VERSION = 1
_SAFE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_INFO_FIELDS = ("episode", "time", "next_action", "timeout", "row")


@dataclass(frozen=True)
class _Runs:
    order: np.ndarray | None
    """Rows in writing order; None when it is their own."""
    start: np.ndarray
    stop: np.ndarray


def write(dataset: Dataset, path: Path) -> None:
    """Write a Minari dataset folder; the data itself goes to its ``data`` folder, as Minari's do.

    Raises:
        DataError: There are no rows, far too many runs, or a text cannot be stored.
        MissingExtraError: Minari is not installed.
    """
    names = ("minari", "minari.dataset.minari_storage", "minari.data_collector", "gymnasium.spaces")
    minari, storages, buffers, spaces, _ = (
        require(name, extra="minari", purpose="writing Minari datasets")
        for name in (*names, "PIL.Image")  # Minari's HDF5 files need the last, too
    )
    if len(dataset) == 0:
        raise DataError("expected at least one row to write, got none")
    rows = dataset.rows
    runs = _cut(rows)
    if len(runs.start) > MAX_RUNS:
        raise DataError(
            f"{len(rows):,} rows fall into {len(runs.start):,} runs of following rows, and Minari "
            f"stores each as an episode of about 30 kB (limit {MAX_RUNS:,}); save rows that were "
            "drawn at random as .npz, .hdf5 or .parquet"
        )
    truncation = _truncation(rows, runs)
    infos, keys = _infos(dataset, runs, truncation)
    record = {
        "version": _VERSION,
        "fingerprint": dataset.fingerprint,
        "provenance": json.loads(dataset.provenance.to_json()),
        "fields": list(rows.arrays()),
        "columns": keys,
    }
    data = path.absolute() / "data"  # Minari's storage doubles a relative path
    data.mkdir(parents=True)
    storage = storages.MinariStorage.new(
        data,
        observation_space=_box(spaces, rows.obs),
        action_space=_box(spaces, rows.action, dataset.provenance.action_range),
        data_format="hdf5",
    )
    storage.update_metadata(
        {
            "dataset_id": _dataset_id(path),
            "minari_version": minari.__version__,
            "algorithm_name": dataset.provenance.behaviour or "unknown",
            "description": "Transitions saved by puorl; each episode is a run of following rows.",
            METADATA_KEY: {**record, "checksum": _checksum(record)},
        }
    )
    storage.update_episodes(
        buffers.EpisodeBuffer(**one) for one in _buffers(rows, runs, truncation, infos)
    )


def restore(steps: Mapping[str, np.ndarray], metadata: Mapping[str, Any], source: str) -> RawRows:
    """Put rows that `write` wrote together again, in their old order.

    Args:
        steps: Arrays by their Minari names; infos as ``infos.NAME``.
        metadata: What stands under `METADATA_KEY`.
        source: The folder; messages start with it.

    Raises:
        DataError: Something is missing or not as it was written.
    """
    try:
        if metadata["version"] != _VERSION:
            raise DataError(
                f"{source}: written by another version of puorl (layout {metadata['version']}, "
                f"expected {_VERSION}); read it with that version"
            )
        record = {key: value for key, value in metadata.items() if key != "checksum"}
        if _checksum(record) != metadata["checksum"]:
            raise DataError(
                f"{source}: puorl's record in data/metadata.json does not fit its checksum; the "
                f"folder is damaged (to read it as any other, remove {METADATA_KEY!r} from there)"
            )
        arrays = _own_fields(steps, metadata["fields"])
        columns = {
            name: _own_column(steps[f"infos.{key}"], np.dtype(kind))
            for name, (key, kind) in metadata["columns"].items()
        }
        if "infos.row" in steps:
            back = np.argsort(steps["infos.row"], kind="stable")
            arrays = {name: array[back] for name, array in arrays.items()}
            columns = {name: array[back] for name, array in columns.items()}
        provenance = Provenance.from_json(json.dumps(metadata["provenance"]), source=source)
        held = arrays | {f"column/{name}": array for name, array in columns.items()}
        whole = hashing.of_arrays(held) == metadata["fingerprint"]
    except DataError:
        raise
    except Exception as error:  # a damaged record makes NumPy raise almost anything
        raise DataError(
            f"{source}: expected what puorl wrote, got {type(error).__name__}: {error}; the folder "
            "is damaged"
        ) from error
    if not whole:
        raise DataError(
            f"{source}: the values are not those that puorl wrote; the folder is damaged or was "
            f"changed (to read it as it is, remove {METADATA_KEY!r} from data/metadata.json)"
        )
    return RawRows(format="minari", arrays=arrays, columns=columns, provenance=provenance)


def _checksum(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _own_fields(steps: Mapping[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    places = {
        "obs": "observations",
        "next_obs": "next_observations",
        "action": "actions",
        "reward": "rewards",
        "terminal": "terminations",
        "timeout": "infos.timeout" if "infos.timeout" in steps else "truncations",
    }
    return {name: steps[places.get(name, f"infos.{name}")] for name in names}


def _own_column(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "U":
        values = np.char.decode(values, "utf-8")
    return values.astype(dtype, copy=False)


def _cut(rows: Transitions) -> _Runs:
    """Runs of rows in which every next state is bit for bit the following state."""
    order = succession(rows.arrays()).order
    obs, next_obs, ended = rows.obs, rows.next_obs, rows.terminal | rows.timeout
    episode = rows.episode
    if order is not None:
        obs, next_obs, ended = obs[order], next_obs[order], ended[order]
        episode = None if episode is None else episode[order]
    edges = np.flatnonzero(~joined(obs, next_obs, ended, episode)) + 1
    return _Runs(
        order,
        start=np.concatenate([[0], edges]),
        stop=np.concatenate([edges, [len(rows)]]),
    )


def _truncation(rows: Transitions, runs: _Runs) -> np.ndarray:
    """For other tools a run that does not end the task is cut, whether or not a flag said so."""
    truncation = rows.timeout.copy()
    last = runs.stop - 1 if runs.order is None else runs.order[runs.stop - 1]
    truncation[last] |= ~rows.terminal[last]
    return truncation


def _infos(
    dataset: Dataset, runs: _Runs, truncation: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, str]]]:
    """What goes to the infos, and for each column its key there and its dtype."""
    rows = dataset.rows
    infos: dict[str, np.ndarray] = {
        name: getattr(rows, name)
        for name in ("episode", "time", "next_action")
        if getattr(rows, name) is not None
    }
    if not np.array_equal(truncation, rows.timeout):
        infos["timeout"] = rows.timeout
    if runs.order is not None:
        infos["row"] = np.arange(len(rows))
    keys = {}
    for i, (name, array) in enumerate(dataset.columns.items()):
        plain = _SAFE_KEY.fullmatch(name) is not None and name not in _INFO_FIELDS
        key = name if plain and not name.startswith("column_") else f"column_{i}"
        infos[key] = _encoded(name, array) if array.dtype.kind == "U" else array
        keys[name] = (key, array.dtype.str)
    return infos, keys


def _encoded(name: str, texts: np.ndarray) -> np.ndarray:
    try:
        encoded = np.char.encode(texts, "utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"column {name}: expected text that UTF-8 can hold: {error}") from error
    return encoded.astype(f"S{max(1, encoded.dtype.itemsize)}")  # HDF5 has no empty strings


def _buffers(
    rows: Transitions, runs: _Runs, truncation: np.ndarray, infos: Mapping[str, np.ndarray]
) -> Iterator[dict[str, Any]]:
    reward = rows.reward
    for i, (start, stop) in enumerate(zip(runs.start, runs.stop, strict=True)):
        of_run = slice(start, stop) if runs.order is None else runs.order[start:stop]
        length = int(stop - start)
        yield {
            "id": i,
            "observations": np.concatenate([rows.obs[of_run], rows.next_obs[of_run][-1:]]),
            "actions": rows.action[of_run],
            # No reward is not a reward of zero.
            "rewards": np.full(length, np.nan) if reward is None else reward[of_run],
            "terminations": rows.terminal[of_run],
            "truncations": truncation[of_run],
            # The first info belongs to the reset, which we did not see.
            "infos": {k: _with_reset(array[of_run]) for k, array in infos.items()} or None,
        }


def _with_reset(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values[:1], values])


def _box(
    spaces: Any,
    matrix: np.ndarray,
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> Any:
    """A space of such rows; without bounds where none are known, or rows lie beyond them."""
    kind = matrix.dtype.type
    if bounds is not None and len(bounds[0]) == matrix.shape[1]:
        low, high = (np.array(end, kind) for end in bounds)
        if ((low <= matrix) & (matrix <= high)).all():
            return spaces.Box(low, high, dtype=kind)
    return spaces.Box(-np.inf, np.inf, shape=(matrix.shape[1],), dtype=kind)


def _dataset_id(path: Path) -> str:
    """The id under which Minari finds the folder, or would if it were moved to Minari's own."""
    home = Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")
    name = re.sub(r"[^-\w]+", "-", path.name).strip("-") or "rows"
    if not re.search(r"-v\d+$", name):
        name += "-v0"
    try:
        space = path.absolute().parent.relative_to(home.absolute()).parts
        space = tuple(part for part in space if not part.startswith("."))  # a file being written
    except ValueError:
        space = ("puorl",)
    return "/".join((*space, name))
