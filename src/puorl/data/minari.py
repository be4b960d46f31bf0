"""Minari datasets: a folder, or an id that Minari knows on this machine.

Any dataset of Minari is read, without making its environment. An episode of T steps holds T + 1
observations: a row's next state is the observation after it.

`write` makes an ordinary Minari dataset for other tools that `read` restores exactly. Rows are cut
into runs in which each next state is the following state; a run is one Minari episode. Fields that
Minari does not have are stored in the infos, and the folder's metadata holds a record of them.
"""

import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from puorl.core import hashing
from puorl.core.errors import DataError, require
from puorl.core.files import read_json, reserve
from puorl.core.formatting import code_values
from puorl.data import hdf5
from puorl.data.actions import one_hot
from puorl.data.dataset import Dataset
from puorl.data.episodes import runs_of
from puorl.data.transitions import Provenance, Transitions
from puorl.data.validate import FIELDS, Block, FieldNames, RawRows, listed, reading

_BLOCK = 65_536
"""Rows that are read together at least, where a dataset is read in parts."""
MAX_RUNS = 100_000
"""Largest number of runs written: more would take gigabytes and minutes."""
_EPISODE_BYTES = 30_000
"""Arguments of an episode of Minari other than its values."""
_METADATA = "metadata.json"
_MAIN_FILE = "main_data.hdf5"
_STEP_FIELDS = {"reward": "rewards", "terminal": "terminations", "timeout": "truncations"}
_ACTIONS = "actions"
_PLACES = _STEP_FIELDS | {
    "obs": "observations",
    "next_obs": "next_observations",
    "action": _ACTIONS,
}
"""Fields of a row and their places in `_Table.steps`; the others are infos."""
_NUMBERS = "biuf"
_OWN = "puorl"
"""Key of the metadata under which puorl stores its record."""
_REPAIR = (
    f"take another copy; if it was changed on purpose, remove {_OWN!r} from data/{_METADATA} and "
    f"the attribute {hashing.HASH!r} of data/{_MAIN_FILE} to read it as any other"
)
_VERSION = 1
_SAFE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_INFO_FIELDS = ("episode", "time", "next_action", "timeout", "row")


def read(path: Path, names: FieldNames) -> RawRows:
    """Read a Minari dataset, HDF5 or Arrow.

    Dictionary observations become one row of numbers, their parts sorted by name.
    """
    folder = _data_folder(path)
    metadata = _metadata(folder, str(path))
    own = metadata.get(_OWN) or {}
    # Given names have priority: with them, a folder that puorl wrote is read like any other.
    restoring = bool(own) and all(getattr(names, name) is None for name in FIELDS)
    if own and not restoring:
        read(path, FieldNames())  # as puorl wrote it, to compare the hash
    table = _Table(str(path), keep_all=restoring)
    for index, episode in enumerate(_episodes(folder, metadata, str(path))):
        table.add(index, episode)
    _check_record(folder / _MAIN_FILE, own, str(path))
    if table.num_steps != metadata.get("total_steps"):
        raise DataError(
            f"{path}: its metadata says {metadata.get('total_steps')} steps, found "
            f"{table.num_steps}; the dataset is damaged or incomplete"
        )
    return _restore(table.steps(), own, str(path)) if restoring else _rows(table, names, metadata)


def blocks(path: str, names: FieldNames) -> list[Block]:
    """List groups of episodes that are read together.

    Raises:
        DataError: puorl wrote the folder, with rows in an order of their own, or it does not say
            how long episodes are.
    """
    del names
    folder = _data_folder(Path(path))
    metadata = _metadata(folder, path)
    if metadata.get(_OWN) or "action_space" not in metadata or "observation_space" not in metadata:
        raise DataError(
            f"{path}: expected a Minari dataset that stores its spaces and that another program "
            "wrote; load it as a whole, and save it as Parquet"
        )
    storage = _minari("minari.dataset.minari_storage", "reading").MinariStorage
    with reading(path, "Minari dataset", "check that the folder is whole"):
        total = range(int(metadata["total_episodes"]))
        _check_files(folder, metadata["data_format"], len(total), path)
        _check_record(folder / _MAIN_FILE, {}, path)
        stored = storage.read(folder).get_episode_metadata(total)
        lengths = [int(each.get("total_steps", 0)) for each in stored]
    if sum(lengths) != metadata.get("total_steps"):
        raise DataError(f"{path}: expected episodes that say how long they are; load it as a whole")
    found, first = [], 0
    for last in total:
        size = sum(lengths[first : last + 1])
        if size >= _BLOCK or last == total[-1]:
            found.append(Block(size, first, last + 1 - first))
            first = last + 1
    return found


def read_blocks(
    path: str, names: FieldNames, chosen: Sequence[Block], *, keys_only: bool = False
) -> RawRows:
    """Read some episodes."""
    del keys_only
    folder = _data_folder(Path(path))
    metadata = _metadata(folder, path)
    table = _Table(path, keep_all=False)
    first = chosen[0].place
    wanted = range(first, chosen[-1].place + chosen[-1].extent)
    for index, episode in enumerate(_episodes(folder, metadata, path, wanted)):
        table.add(index, episode)
    rows = _rows(table, names, metadata)
    rows.arrays["episode"] = rows.arrays["episode"] + first
    return rows


def _home() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def _data_folder(path: Path) -> Path:
    for folder in (path / "data", path, _home() / path / "data"):
        if (folder / _METADATA).is_file():
            return folder
    raise DataError(
        f"{path}: expected a Minari dataset folder (with data/{_METADATA}) or an id known here, "
        f"found neither; download public datasets with: minari download {path}"
    )


def _metadata(folder: Path, source: str) -> dict[str, Any]:
    metadata = read_json(folder / _METADATA)
    if not isinstance(metadata, dict):
        raise DataError(
            f"{source}: expected Minari metadata by name, got {type(metadata).__name__}"
        )
    return metadata


def _episodes(
    folder: Path, metadata: Mapping[str, Any], source: str, wanted: range | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the episodes, or those that are wanted, as Minari returns them."""
    storage = _minari("minari.dataset.minari_storage", "reading").MinariStorage
    _minari("PIL.Image", "reading")  # minari imports it without depending on it
    if metadata.get("data_format") in ("arrow", "parquet"):
        _arrow("pyarrow.dataset")
    total = metadata.get("total_episodes")
    if not isinstance(total, int) or total < 1:
        raise DataError(f"{source}: expected at least one episode, its metadata says {total!r}")
    with reading(source, "Minari dataset", "check that the folder is whole"):
        _check_files(folder, metadata["data_format"], total, source)
        if not {"observation_space", "action_space"} <= set(metadata):
            # Minari would make the environment to learn the spaces.
            yield from _plain_episodes(folder / _MAIN_FILE, total)
            return
        with warnings.catch_warnings():
            # Gymnasium warns of the precision of bounds, which are not used here.
            warnings.filterwarnings("ignore", module="gymnasium")
            stored = storage.read(folder)
        yield from stored.get_episodes(range(total) if wanted is None else wanted)


def _plain_episodes(path: Path, num_episodes: int) -> Iterator[dict[str, Any]]:
    """Read the episodes of an old HDF5 dataset that does not store its spaces."""

    def content(item: Any) -> Any:
        return {k: content(v) for k, v in item.items()} if hasattr(item, "items") else item[()]

    with h5py.File(path, "r") as file:
        yield from (content(file[f"episode_{i}"]) for i in range(num_episodes))


def _check_files(folder: Path, data_format: str, num_episodes: int, source: str) -> None:
    """Refuse damage on which Minari's libraries hang or crash instead of raising."""
    if data_format == "hdf5":
        hdf5.check_file(folder / _MAIN_FILE, source)
    elif data_format == "arrow":
        ipc = _arrow("pyarrow.ipc")
        for episode in range(num_episodes):
            paths = sorted((folder / str(episode)).glob("*.arrow"))
            if not paths:
                raise DataError(f"{source}: episode {episode}: expected its Arrow file, found none")
            for path in paths:
                with ipc.open_file(path) as file:
                    for i in range(file.num_record_batches):
                        file.get_batch(i).validate(full=True)


def _check_record(path: Path, own: Any, source: str) -> None:
    """Refuse a folder whose record of puorl was lost or changed; its hash is in the main file."""
    if not path.is_file():
        return
    with (
        reading(source, "Minari dataset", "check that the folder is whole"),
        h5py.File(path) as file,
    ):
        if hashing.HASH not in file.attrs or file.attrs.get_id(hashing.HASH).dtype.kind != "S":
            return
        stored = np.asarray(file.attrs[hashing.HASH]).item().decode("utf-8", "replace")
        hashing.check(source, stored, hashing.of_settings({_OWN: own}), repair=_REPAIR)


def _minari(module: str, doing: str) -> Any:
    return require(module, extra="minari", purpose=f"{doing} Minari datasets")


def _arrow(module: str) -> Any:
    return require(module, extra="parquet", purpose="reading Minari's Arrow files")


@dataclass
class _Table:
    """Episodes one after the other, as one list of arrays for each part."""

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
        """Append an episode."""
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
        for key, values in {**found, **self._plain_infos(infos, length)}.items():
            pieces = self.parts.setdefault(key, [])
            if len(pieces) != index and not key.startswith("infos"):
                raise DataError(f"{self.source}: {key} is not in every episode ({index})")
            pieces.append(values)
        self.lengths.append(length)

    def steps(self) -> dict[str, np.ndarray]:
        """Return the parts of all episodes, a row a step; next states as ``next_observations``."""
        steps = {}
        for key in list(self.parts):
            pieces = self.parts.pop(key)
            if len(pieces) != len(self.lengths):
                self.skipped[key] = None
                continue
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
    """Build the rows of a dataset that puorl did not write, or that is read under given names."""
    steps = table.steps()
    keys = [key for key in steps if not key.startswith("next_observations")]
    rows = RawRows(format="minari", arrays={})
    for name, prefix in (("obs", "observations"), ("action", _ACTIONS)):
        chosen = _chosen(getattr(names, name), name, prefix, keys, table.source)
        chosen = [key for key in chosen if _is_numbers(key, steps[key], rows, table.source)]
        if not chosen:
            raise DataError(f"{table.source}: {prefix}: expected numbers, found none")
        rows.arrays[name] = _side_by_side([steps[key] for key in chosen])
        if name == "obs":
            rows.arrays["next_obs"] = _side_by_side([steps[f"next_{key}"] for key in chosen])
        if chosen != [prefix]:  # a plain vector has no names
            widths = {key.removeprefix(f"{prefix}."): steps[key].shape[1:] for key in chosen}
            labels = [
                part if width in ((), (1,)) else f"{part}_{i}"
                for part, width in widths.items()
                for i in range(*width or (1,))
            ]
            setattr(rows, f"{name}_names", tuple(labels))
        elif name == "action" and (space := _space(metadata)) is not None:
            rows.action_range = _bounds(space, rows.arrays["action"].shape[1])
            rows.action_codes = _codes(space)
    rows.arrays["episode"] = np.repeat(np.arange(len(table.lengths)), table.lengths)
    taken = _single_fields(rows, steps, names, keys, table.source)
    others = [key for key in keys if key.startswith("infos.") and key not in taken]
    rows.columns |= {key.removeprefix("infos."): steps[key] for key in others}
    rows.note_skipped(list(table.skipped))
    if metadata.get("dataset_id"):
        rows.notes.append(f"Minari dataset {metadata['dataset_id']}")
    return rows


def _space(metadata: Mapping[str, Any]) -> Any:
    """Return the action space, or None where it is not stored."""
    if "action_space" not in metadata:
        return None
    spaces = _minari("minari.serialization", "reading")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="gymnasium")
        return spaces.deserialize_space(metadata["action_space"])


def _codes(space: Any) -> tuple[str, ...] | None:
    """Return the codes of a Discrete space, those that no row has included."""
    if type(space).__name__ != "Discrete":
        return None
    return tuple(str(code) for code in range(int(space.start), int(space.start) + int(space.n)))


def _first_code(codes: Sequence[str]) -> int:
    """Return the start of the Discrete space of codes: 0 unless they are numbers in a row."""
    values = np.array(code_values(codes))
    in_a_row = values.dtype.kind == "i" and (np.diff(values) == 1).all()
    return int(values[0]) if in_a_row else 0


def _bounds(space: Any, act_dim: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the range of a space, if it is finite and has ``act_dim`` components."""
    low, high = (np.asarray(getattr(space, end, np.nan)) for end in ("low", "high"))
    if low.shape != (act_dim,) or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    return tuple(map(float, low)), tuple(map(float, high))


def _single_fields(
    rows: RawRows, steps: dict[str, np.ndarray], names: FieldNames, keys: list[str], source: str
) -> set[str]:
    """Fill the fields with one value a row; return the keys that the user named for them."""
    if names.next_obs is not None:
        raise DataError(
            f"{source}: Minari keeps next states in its observations; leave next_obs out"
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
    """List parts of the observation or the action: all, or those that match the user's patterns."""
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
            "flatten images before, or choose other parts for obs or action"
        )
    return True


def _side_by_side(parts: Sequence[np.ndarray]) -> np.ndarray:
    blocks = [part[:, None] if part.ndim == 1 else part for part in parts]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the arrays inside nested dictionaries and tuples, under dotted names."""
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


def write(dataset: Dataset, path: Path) -> None:
    """Write a Minari dataset folder, with the data in its folder ``data`` as Minari has it."""
    minari, spaces = _minari("minari", "writing"), _minari("gymnasium.spaces", "writing")
    storages = _minari("minari.dataset.minari_storage", "writing")
    _minari("PIL.Image", "writing")  # minari imports it without depending on it
    rows = dataset.rows
    order, runs = runs_of(rows)
    if len(runs) > MAX_RUNS:
        raise DataError(
            f"{len(rows):,} rows fall into {len(runs):,} runs of following rows, and Minari "
            f"stores each as an episode of about {_EPISODE_BYTES // 1000} kB (limit {MAX_RUNS:,}); "
            "save rows that were drawn at random as .npz, .hdf5 or .parquet"
        )
    stored = (*rows.arrays().values(), *dataset.columns.values())
    reserve(path, sum(array.nbytes for array in stored) + _EPISODE_BYTES * len(runs))
    # For other tools, a run that does not end the task ends as truncated.
    last = np.array([run[-1] for run in runs])
    truncation = rows.timeout.copy()
    truncation[last] |= ~rows.terminal[last]
    infos, keys = _infos(dataset, order, truncation)
    record = {
        "version": _VERSION,
        "fingerprint": dataset.fingerprint,
        "provenance": json.loads(dataset.provenance.to_json()),
        "fields": list(rows.arrays()),
        "columns": keys,
    }
    codes, action = dataset.action_codes, rows.action
    action_space = _box(spaces, action, dataset.provenance.action_range)
    if codes is not None:
        action = dataset.action_index + _first_code(codes)
        action_space = spaces.Discrete(len(codes), start=_first_code(codes))
    data = path.absolute() / "data"  # Minari's storage repeats a relative path
    data.mkdir(parents=True)
    storage = storages.MinariStorage.new(
        data,
        observation_space=_box(spaces, rows.obs),
        action_space=action_space,
        data_format="hdf5",
    )
    storage.update_metadata(
        {
            "dataset_id": _dataset_id(path),
            "minari_version": minari.__version__,
            "algorithm_name": dataset.provenance.behaviour or "unknown",
            "description": "Transitions saved by puorl; each episode is a run of following rows.",
            _OWN: {**record, "checksum": _checksum(record)},
        }
    )
    storage.update_episodes(
        minari.data_collector.EpisodeBuffer(**one)
        for one in _buffers(rows, action, runs, truncation, infos)
    )
    own = read_json(data / _METADATA)[_OWN]
    with h5py.File(data / _MAIN_FILE, "a") as file:
        file.attrs[hashing.HASH] = np.bytes_(hashing.of_settings({_OWN: own}))


def _restore(steps: Mapping[str, np.ndarray], metadata: Mapping[str, Any], source: str) -> RawRows:
    """Restore rows that `write` wrote, in their old order."""
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
                f"folder is damaged; {_REPAIR}"
            )
        places = _PLACES | ({"timeout": "infos.timeout"} if "infos.timeout" in steps else {})
        arrays = {f: steps[places.get(f, f"infos.{f}")] for f in metadata["fields"]}
        columns = {}
        for name, (key, kind) in metadata["columns"].items():
            values = steps[f"infos.{key}"]
            values = np.char.decode(values, "utf-8") if np.dtype(kind).kind == "U" else values
            columns[name] = values.astype(kind, copy=False)
        if "infos.row" in steps:
            back = np.argsort(steps["infos.row"], kind="stable")
            arrays = {name: array[back] for name, array in arrays.items()}
            columns = {name: array[back] for name, array in columns.items()}
        provenance = Provenance.from_json(json.dumps(metadata["provenance"]), source=source)
        if (codes := provenance.action_codes) is not None:
            arrays["action"] = one_hot(arrays["action"] - _first_code(codes), len(codes))
        rows = RawRows(format="minari", arrays=arrays, columns=columns, provenance=provenance)
        hashing.check(source, metadata["fingerprint"], rows.fingerprint, repair=_REPAIR)
    except DataError:
        raise
    except Exception as error:  # a damaged record makes NumPy raise almost anything
        raise DataError(
            f"{source}: expected what puorl wrote, got {type(error).__name__}: {error}; the folder "
            "is damaged"
        ) from error
    return rows


def _checksum(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _infos(
    dataset: Dataset, order: np.ndarray, truncation: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, str]]]:
    """Return the infos, and for each column its key there and its dtype."""
    rows = dataset.rows
    infos: dict[str, np.ndarray] = {
        name: getattr(rows, name)
        for name in ("episode", "time", "next_action")
        if getattr(rows, name) is not None
    }
    if not np.array_equal(truncation, rows.timeout):
        infos["timeout"] = rows.timeout
    if (np.diff(order) != 1).any():
        infos["row"] = np.arange(len(rows))
    keys = {}
    for i, (name, array) in enumerate(dataset.columns.items()):
        plain = _SAFE_KEY.fullmatch(name) is not None and name not in _INFO_FIELDS
        key = name if plain and not name.startswith("column_") else f"column_{i}"
        keys[name] = (key, array.dtype.str)
        if array.dtype.kind == "U":
            array = np.char.encode(array, "utf-8")
            array = array.astype(f"S{max(1, array.dtype.itemsize)}")  # HDF5 has no empty strings
        infos[key] = array
    return infos, keys


def _buffers(
    rows: Transitions,
    action: np.ndarray,
    runs: Sequence[np.ndarray],
    truncation: np.ndarray,
    infos: Mapping[str, np.ndarray],
) -> Iterator[dict[str, Any]]:
    for i, run in enumerate(runs):
        with_reset = np.append(run[0], run)  # Minari's first info is the reset's, unknown here
        yield {
            "id": i,
            "observations": np.concatenate([rows.obs[run], rows.next_obs[run[-1:]]]),
            "actions": action[run],
            # No reward is not a reward of zero.
            "rewards": np.full(len(run), np.nan) if rows.reward is None else rows.reward[run],
            "terminations": rows.terminal[run],
            "truncations": truncation[run],
            "infos": {key: array[with_reset] for key, array in infos.items()} or None,
        }


def _box(
    spaces: Any,
    matrix: np.ndarray,
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> Any:
    """Return a space of such rows; unbounded if no bounds are known or rows exceed them."""
    kind = matrix.dtype.type
    if bounds is not None and len(bounds[0]) == matrix.shape[1]:
        low, high = (np.array(end, kind) for end in bounds)
        if ((low <= matrix) & (matrix <= high)).all():
            return spaces.Box(low, high, dtype=kind)
    return spaces.Box(-np.inf, np.inf, shape=(matrix.shape[1],), dtype=kind)


def _dataset_id(path: Path) -> str:
    """Return the id under which Minari finds the folder, or would after a move to its home."""
    name = re.sub(r"[^-\w]+", "-", path.name).strip("-") or "rows"
    if not re.search(r"-v\d+$", name):
        name += "-v0"
    try:
        space = path.absolute().parent.relative_to(_home().absolute()).parts
        space = tuple(part for part in space if not part.startswith("."))  # a file being written
    except ValueError:
        space = ("puorl",)
    return "/".join((*space, name))
