"""RLDS, as TensorFlow Datasets stores it: an episode a record of a TFRecord file; no TensorFlow.

A record is a message `Example` of Protocol Buffers: names such as ``steps/observation/state``, each
with the values of all steps in a row. The last step of an episode holds the state in which it
ended; its action and reward mean nothing, so it only gives the next state of the step before.
Images and texts of steps are left out.
"""

import struct
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from puorl.core.errors import DataError
from puorl.data.columns import natural_key
from puorl.data.validate import FieldNames, RawRows, listed, reading

_STEPS = "steps/"
_MATRICES = {"obs": "observation", "action": "action"}
_SINGLE = {"reward": "reward"}
_FLAGS = ("is_first", "is_last", "is_terminal")


def read(path: Path, names: FieldNames) -> RawRows:
    """Read all episodes of a folder, such as ``cartpole/1.0.0``."""
    files = sorted(each for each in path.glob("*.tfrecord*") if each.is_file())
    if not files:
        raise DataError(f"{path}: expected TFRecord files next to features.json, found none")
    with reading(path, "RLDS folder", "take another copy"):
        episodes = [_example(record) for file in files for record in _records(file)]
    if not episodes or not all(_STEPS + "is_last" in episode for episode in episodes):
        raise DataError(f"{path}: expected episodes of steps with is_last, as RLDS has, found none")
    lengths = np.array([len(episode[_STEPS + "is_last"]) for episode in episodes])
    keys = [key for key in episodes[0] if all(key in episode for episode in episodes)]
    steps = {}
    for key in (key for key in keys if key.startswith(_STEPS)):
        values = [episode[key] for episode in episodes]
        widths = {len(each) / n for each, n in zip(values, lengths, strict=True) if n}
        width = widths.pop() if len(widths) == 1 else 0.0
        if width and width % 1 == 0 and values[0].dtype.kind != "S":
            steps[key.removeprefix(_STEPS)] = np.concatenate(values).reshape(-1, int(width))
    return _rows(steps, lengths, _of_episodes(episodes, keys), names, str(path))


def _rows(
    steps: dict[str, np.ndarray],
    lengths: np.ndarray,
    columns: dict[str, np.ndarray],
    names: FieldNames,
    source: str,
) -> RawRows:
    """Make transitions: every step but the last of an episode, and the state after it."""
    episode = np.repeat(np.arange(len(lengths)), lengths)
    row = np.flatnonzero(np.append(episode[1:] == episode[:-1], False))
    ends = np.append(episode[row][1:] != episode[row][:-1], True)[: len(row)]
    is_terminal = steps.get("is_terminal", np.zeros((len(episode), 1)))[row + 1, 0] != 0
    rows = RawRows(format="rlds", arrays={})
    taken: set[str] = set(_FLAGS)
    for field, prefix in _MATRICES.items():
        parts = _chosen(getattr(names, field), field, prefix, list(steps), source)
        joined = np.concatenate([steps[key] for key in parts], axis=1)
        rows.arrays[field] = joined[row]
        if field == "obs":
            rows.arrays["next_obs"] = joined[row + 1]
        if parts != [prefix]:  # a plain vector has no names
            labels = [
                short if steps[key].shape[1] == 1 else f"{short}_{i}"
                for key in parts
                for short in (key.removeprefix(f"{prefix}/"),)
                for i in range(steps[key].shape[1])
            ]
            setattr(rows, f"{field}_names", tuple(labels))
        taken |= set(parts)
    for field in ("reward", "time"):
        key = getattr(names, field) or _SINGLE.get(field, "")
        if getattr(names, field) is not None and key not in steps:
            raise DataError(
                f"{source}: expected {key!r} (named for {field}), found: "
                f"{listed(steps, near=key)}; name one of these with {field}="
            )
        if key in steps and steps[key].shape[1] == 1:
            rows.arrays[field] = steps[key][row, 0]
            rows.keys[field] = key
            taken.add(key)
    rows.arrays["terminal"] = ends & is_terminal
    rows.arrays["timeout"] = ends & ~is_terminal
    rows.arrays["episode"] = episode[row]
    others = {key: steps[key] for key in steps if key not in taken}
    rows.columns |= {key: array[row, 0] for key, array in others.items() if array.shape[1] == 1}
    rows.columns |= {key: values[episode[row]] for key, values in columns.items()}
    rows.note_skipped([key for key, array in others.items() if array.shape[1] != 1])
    return rows


def _chosen(
    given: str | Sequence[str] | None, field: str, prefix: str, keys: Sequence[str], source: str
) -> list[str]:
    """List parts of the observation or the action: all, or those that match the user's patterns."""
    parts = [key for key in keys if key == prefix or key.startswith(f"{prefix}/")]
    patterns = ["*"] if given is None else [given] if isinstance(given, str) else given
    found: dict[str, None] = {}
    for pattern in patterns:
        own = [
            key
            for key in parts
            if fnmatchcase(key, pattern) or fnmatchcase(key.removeprefix(f"{prefix}/"), pattern)
        ]
        if not own:
            raise DataError(
                f"{source}: expected numbers at {prefix}/{pattern} for {field}, found: "
                f"{listed(keys, near=pattern)}; name some of these with {field}="
            )
        found |= dict.fromkeys(sorted(own, key=natural_key))
    return list(found)


def _of_episodes(
    episodes: Sequence[dict[str, np.ndarray]], keys: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return what is said of whole episodes, one value each."""
    single = [k for k in keys if not k.startswith(_STEPS) and all(len(e[k]) == 1 for e in episodes)]
    found = {key: np.concatenate([episode[key] for episode in episodes]) for key in single}
    return {
        key: np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values
        for key, values in found.items()
    }


# ------------------------------------------------------------------------------- records


def _records(file: Path) -> Iterator[memoryview]:
    """Cut a TFRecord file: length (8 bytes), its checksum (4), content, its checksum (4)."""
    content, place = memoryview(file.read_bytes()), 0
    while place < len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        start = place + 12
        if start + size + 4 > len(content):
            raise ValueError(f"{file.name} ends within a record")
        yield content[start : start + size]
        place = start + size + 4


def _example(record: memoryview) -> dict[str, np.ndarray]:
    """Read an `Example`: field 1 holds the features, whose field 1 holds pairs of name and list."""
    found = {}
    for _, features in _fields(record):
        for _, pair in _fields(features):
            entry = dict(_fields(pair))
            for kind, values in _fields(entry.get(2, memoryview(b""))):
                found[bytes(entry[1]).decode()] = _values(kind, values)
    return found


def _values(kind: int, values: memoryview) -> np.ndarray:
    """Read a list of bytes (1), of floats (2) or of whole numbers (3)."""
    if kind == 1:
        return np.array([bytes(each) for _, each in _fields(values)], dtype=bytes)
    parts = [each for _, each in _fields(values)]
    if kind == 2:
        return np.frombuffer(b"".join(parts), "<f4")
    numbers, place = [], 0
    packed = memoryview(b"".join(parts))
    while place < len(packed):
        number, place = _varint(packed, place)
        numbers.append(number - (1 << 64) if number >= 1 << 63 else number)
    return np.array(numbers, np.int64)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and bytes of each field of a message."""
    place = 0
    while place < len(message):
        key, start = _varint(message, place)
        kind, size = key & 7, 0
        if kind == 2:
            size, start = _varint(message, start)
        elif kind == 0:
            size = _varint(message, start)[1] - start
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind} is not known")
        place = start + size
        if place > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[start:place]


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return a number in groups of seven bits, the lowest first, and the place after it."""
    number = shift = 0
    while shift < 64:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
    raise ValueError("a number is longer than 64 bits")
