"""Minari: a folder, or an id that Minari knows on this machine. No environment is ever needed.

An episode of T steps holds T + 1 observations: a row's next state is the observation after it.
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.errors import DataError, require
from puorl.core.files import read_json
from puorl.data import hdf5
from puorl.data.columns import listed
from puorl.data.minari_own import METADATA_KEY, restore, write
from puorl.data.validate import FIELDS, FieldNames, RawRows

__all__ = ["read", "write"]

_METADATA = "metadata.json"
_MAIN_FILE = "main_data.hdf5"
_STEP_FIELDS = {"reward": "rewards", "terminal": "terminations", "timeout": "truncations"}
_ACTIONS = "actions"
_NUMBERS = "biuf"


def read(path: Path, names: FieldNames) -> RawRows:
    """Find the arrays of a Minari dataset, HDF5 or Arrow.

    Dictionary observations become one row of numbers, their parts sorted by name.

    Raises:
        DataError: Not a readable Minari dataset, a named part is not there, or a part is an image.
        MissingExtraError: Minari is not installed.
    """
    folder = _data_folder(path)
    metadata = read_json(folder / _METADATA)
    if not isinstance(metadata, dict):
        raise DataError(f"{path}: expected Minari metadata by name, got {type(metadata).__name__}")
    own: Mapping[str, Any] = metadata.get(METADATA_KEY, {})
    # Names that the user gives win: then even our own folder is read as anybody's.
    restoring = bool(own) and all(getattr(names, name) is None for name in FIELDS)
    table = _Table(str(path), keep_all=restoring)
    for index, episode in enumerate(_episodes(folder, metadata, str(path))):
        table.add(index, episode)
    if table.num_steps != metadata.get("total_steps"):
        raise DataError(
            f"{path}: its metadata says {metadata.get('total_steps')} steps, found "
            f"{table.num_steps}; the dataset is damaged or incomplete"
        )
    return restore(table.steps(), own, str(path)) if restoring else _rows(table, names, metadata)


def _data_folder(path: Path) -> Path:
    home = Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")
    for folder in (path / "data", path, home / path / "data"):
        if (folder / _METADATA).is_file():
            return folder
    raise DataError(
        f"{path}: expected a Minari dataset folder (with data/{_METADATA}) or an id known here, "
        f"found neither; fetch public datasets with: minari download {path}"
    )


def _episodes(folder: Path, metadata: Mapping[str, Any], source: str) -> Iterator[dict[str, Any]]:
    """Episodes as Minari gives them; whatever it raises becomes a DataError."""
    storages = require("minari.dataset._storages", extra="minari", purpose="reading Minari data")
    spaces = require("minari.serialization", extra="minari", purpose="reading Minari datasets")
    require("PIL.Image", extra="minari", purpose="reading Minari datasets")  # Minari wants it too
    if metadata.get("data_format") in ("arrow", "parquet"):
        require("pyarrow.dataset", extra="parquet", purpose="reading Minari's Arrow files")
    total = metadata.get("total_episodes")
    if not isinstance(total, int) or total < 1:
        raise DataError(f"{source}: expected at least one episode, its metadata says {total!r}")
    try:
        with warnings.catch_warnings():
            # Gymnasium remarks on the precision of bounds, which are not used here.
            warnings.filterwarnings("ignore", module="gymnasium")
            # Without a stored space the arrays are read as they are; no environment is made.
            observation, action = (
                spaces.deserialize_space(metadata[key]) if key in metadata else None
                for key in ("observation_space", "action_space")
            )
        _check_files(folder, metadata["data_format"], total, source)
        storage = storages.get_minari_storage(metadata["data_format"])(folder, observation, action)
        yield from storage.get_episodes(range(total))
    except DataError:
        raise
    except Exception as error:  # a damaged folder makes Minari, h5py and Arrow raise anything
        reason = (str(error).splitlines() or [""])[0][:200]
        raise DataError(
            f"{source}: expected a readable Minari dataset, got {type(error).__name__}: {reason}; "
            "check that the folder is whole"
        ) from error


def _check_files(folder: Path, data_format: str, num_episodes: int, source: str) -> None:
    """Refuse damage on which Minari's libraries hang or crash instead of raising."""
    if data_format == "hdf5":
        hdf5.check_file(folder / _MAIN_FILE, source)
    elif data_format == "arrow":
        ipc = require("pyarrow.ipc", extra="parquet", purpose="reading Minari's Arrow files")
        for episode in range(num_episodes):
            paths = sorted((folder / str(episode)).glob("*.arrow"))
            if not paths:
                raise DataError(f"{source}: episode {episode}: expected its Arrow file, found none")
            for path in paths:
                with ipc.open_file(path) as file:
                    for i in range(file.num_record_batches):
                        file.get_batch(i).validate(full=True)


@dataclass
class _Table:
    """Episodes laid one after the other, part by part."""

    source: str
    keep_all: bool
    """Keep every info, not only those with one value a step."""
    lengths: list[int] = field(default_factory=list)
    parts: dict[str, list[np.ndarray]] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)
    """Infos that are not one plain value a step, in order of appearance."""

    @property
    def num_steps(self) -> int:
        return sum(self.lengths)

    def add(self, index: int, episode: Mapping[str, Any]) -> None:
        """Append one episode.

        Raises:
            DataError: Its arrays do not fit together.
        """
        try:
            length = len(episode["rewards"])
            found = {
                key: _array(value)
                for name in ("observations", "actions", *_STEP_FIELDS.values())
                for key, value in _leaves(episode[name], name)
            }
            infos = {key: _array(v) for key, v in _leaves(episode.get("infos") or {}, "infos")}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.source}: episode {index}: expected observations, actions, rewards, "
                f"terminations and truncations, got {type(error).__name__}: {error}"
            ) from error
        for key, values in found.items():
            expected = length + key.startswith("observations")
            if values.shape[:1] != (expected,):
                raise DataError(
                    f"{self.source}: episode {index}: expected {expected} {key} for {length} "
                    f"rewards, got shape {values.shape}; the dataset is damaged"
                )
        self._keep(index, found)
        self._keep(index, self._plain_infos(infos, length))
        self.lengths.append(length)

    def steps(self) -> dict[str, np.ndarray]:
        """Every part as one array with a row a step; next states as ``next_observations``."""
        steps = {}
        for key in list(self.parts):
            pieces = self.parts.pop(key)
            try:
                if key.startswith("observations"):
                    steps[f"next_{key}"] = np.concatenate([piece[1:] for piece in pieces])
                    pieces = [piece[:-1] for piece in pieces]
                steps[key] = np.concatenate(pieces)
            except ValueError as error:
                raise DataError(
                    f"{self.source}: {key} changes between episodes: {error}"
                ) from error
        return steps

    def _keep(self, index: int, found: Mapping[str, np.ndarray]) -> None:
        for key, values in found.items():
            pieces = self.parts.setdefault(key, [])
            if len(pieces) != index:
                # Not in every episode: no column. Data itself must be.
                if not key.startswith("infos"):
                    raise DataError(f"{self.source}: {key} is not in every episode ({index})")
                self.skipped[key] = None
            pieces.append(values)

    def _plain_infos(self, infos: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        plain = {}
        for key, values in infos.items():
            if values.ndim and len(values) == length + 1:
                values = values[1:]  # the first belongs to the reset
            fits = values.shape[:1] == (length,) and values.dtype.kind in _NUMBERS + "SU"
            if fits and (self.keep_all or values.ndim == 1 or values.shape[1:] == (1,)):
                plain[key] = values
            else:
                self.skipped[key] = None
        return plain


def _rows(table: _Table, names: FieldNames, metadata: Mapping[str, Any]) -> RawRows:
    """Rows of anybody's dataset."""
    for key in [k for k, pieces in table.parts.items() if len(pieces) != len(table.lengths)]:
        table.skipped[key] = None
        del table.parts[key]
    for key in [k for k in table.skipped if k in table.parts]:
        del table.parts[key]
    lengths = np.array(table.lengths)
    steps = table.steps()
    keys = [key for key in steps if not key.startswith("next_observations")]
    rows = RawRows(format="minari", arrays={})
    for name, prefix in (("obs", "observations"), ("action", _ACTIONS)):
        chosen = _chosen(getattr(names, name), name, prefix, keys, table.source)
        chosen = [key for key in chosen if _is_numbers(key, steps[key], rows, table.source)]
        if not chosen:
            raise DataError(f"{table.source}: {prefix}: expected numbers, found none")
        rows.arrays[name] = _joined([steps[key] for key in chosen])
        if name == "obs":
            rows.arrays["next_obs"] = _joined([steps[f"next_{key}"] for key in chosen])
        labels = _labels(chosen, prefix, steps)
        rows.obs_names, rows.action_names = (
            (labels, rows.action_names) if name == "obs" else (rows.obs_names, labels)
        )
        if chosen == [_ACTIONS]:
            rows.action_range = _bounds(metadata, rows.arrays["action"].shape[1])
    rows.arrays["episode"] = np.repeat(np.arange(len(lengths)), lengths)
    taken = _single_fields(rows, steps, names, keys, table.source)
    for key in keys:
        if key.startswith("infos.") and key not in taken:
            rows.columns[key.removeprefix("infos.")] = steps[key]
    if table.skipped:
        skipped = listed(list(table.skipped), near="")
        rows.notes.append(f"not read (not one plain value a step): {skipped}")
    if metadata.get("dataset_id"):
        rows.notes.append(f"Minari dataset {metadata['dataset_id']}")
    return rows


def _bounds(
    metadata: Mapping[str, Any], act_dim: int
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The range that the action space gives, if it is finite and of as many components."""
    if "action_space" not in metadata:
        return None
    spaces = require("minari.serialization", extra="minari", purpose="reading Minari datasets")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="gymnasium")
        space = spaces.deserialize_space(metadata["action_space"])
    low, high = (np.asarray(getattr(space, end, np.nan)) for end in ("low", "high"))
    if low.shape != (act_dim,) or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    return tuple(map(float, low)), tuple(map(float, high))


def _single_fields(
    rows: RawRows, steps: dict[str, np.ndarray], names: FieldNames, keys: list[str], source: str
) -> set[str]:
    """Fill the fields with one value a row; returns the keys that were named for them."""
    if names.next_obs is not None:
        raise DataError(
            f"{source}: Minari keeps next states in its observations; leave next_obs= out"
        )
    rows.arrays |= {name: steps[key] for name, key in _STEP_FIELDS.items()}
    taken = set()
    for name in ("reward", "terminal", "timeout", "episode", "time", "next_action"):
        given = getattr(names, name)
        if given is None:
            continue
        wanted = given if isinstance(given, str) else ",".join(given)
        key = next((k for k in (wanted, f"infos.{wanted}") if k in keys), None)
        if key is None:
            raise _not_there(wanted, name, keys, source)
        rows.arrays[name] = steps[key]
        rows.keys[name] = wanted
        taken.add(key)
        if name == "episode" and steps[key].dtype.kind in "SU":
            rows.columns[key.removeprefix("infos.")] = steps[key]
    return taken


def _chosen(
    given: str | Sequence[str] | None, name: str, prefix: str, keys: list[str], source: str
) -> list[str]:
    """Parts of the observation or the action: all, or those that the user's patterns match."""
    parts = [key for key in keys if key == prefix or key.startswith(f"{prefix}.")]
    if given is None or given == prefix:
        return parts
    chosen: dict[str, None] = {}
    for pattern in [given] if isinstance(given, str) else given:
        short = {key: key.removeprefix(f"{prefix}.") for key in parts}
        found = [k for k in parts if fnmatchcase(k, pattern) or fnmatchcase(short[k], pattern)]
        if not found:
            raise _not_there(pattern, name, parts, source)
        chosen |= dict.fromkeys(found)
    return list(chosen)


def _not_there(wanted: str, name: str, keys: list[str], source: str) -> DataError:
    return DataError(
        f"{source}: expected {wanted!r} (named for {name}), found: "
        f"{listed(keys, near=wanted)}; name one of these with {name}="
    )


def _is_numbers(key: str, values: np.ndarray, rows: RawRows, source: str) -> bool:
    if values.dtype.kind not in _NUMBERS:
        rows.notes.append(f"{key}: not numbers ({values.dtype}), so left out")
        return False
    if values.ndim > 2:
        raise DataError(
            f"{source}: {key}: expected one row of numbers a step, got shape {values.shape[1:]}; "
            "flatten images before, or choose other parts with obs= or action="
        )
    return True


def _labels(chosen: Sequence[str], prefix: str, steps: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Names for the numbers of a dictionary's parts; none for a plain vector."""
    if list(chosen) == [prefix]:
        return ()
    labels = []
    for key in chosen:
        short, width = key.removeprefix(f"{prefix}."), _column_block(steps[key]).shape[1]
        labels += [short] if width == 1 else [f"{short}_{i}" for i in range(width)]
    return tuple(labels)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    blocks = [_column_block(part) for part in parts]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def _column_block(values: np.ndarray) -> np.ndarray:
    return values[:, None] if values.ndim == 1 else values


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Arrays inside nested dictionaries and tuples, under dotted names."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{name}.{key}")
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _leaves(part, f"{name}.{i}")
    else:
        yield name, value


def _array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "O" and all(isinstance(item, bytes | str) for item in array.flat):
        texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.flat]
        return np.array(texts).reshape(array.shape)
    return array
