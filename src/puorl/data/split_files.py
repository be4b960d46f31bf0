"""Split folders: index files, hashes of the data, and settings."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.files import atomic_path, read_json, write_json
from puorl.data.dataset import Dataset
from puorl.data.parts import Draw

if TYPE_CHECKING:
    from puorl.data.split import PUSplit

SETTINGS_FILE = "split.json"
"""File by which a folder is recognised as a split."""
INDEX_FIELDS = ("labelled", "unlabelled", "labelled_part", "unlabelled_part")
_ORIGIN_FIELDS = ("source", "row", "part")
_SETTINGS = ("unit", "sampling", "returns", "config")
_CHOICES = {"unit": ("transition", "episode"), "sampling": ("one", "two")}
_VERSION = 1


@dataclass(frozen=True)
class SavedSplit:
    """Content of a split folder."""

    index: dict[str, np.ndarray]
    settings: dict[str, Any]
    origin: Draw | None
    fingerprint: str


def write(split: "PUSplit", folder: str | os.PathLike[str], *, force: bool) -> Path:
    """Write the folder atomically."""
    index = {name: getattr(split, name) for name in INDEX_FIELDS}
    origin = None
    if split.truth is not None:
        origin = {name: getattr(split.truth._origin, name) for name in _ORIGIN_FIELDS}
    content = {
        "puorl_split": _VERSION,
        "fingerprint": split.fingerprint,
        "pool": split.pool.fingerprint,
        "sources": list(split.pool.provenance.source),
        **{name: getattr(split, name) for name in _SETTINGS},
        "config": dict(split.config),
        "num_labelled": len(split.labelled),
        "num_unlabelled": len(split.unlabelled),
        "index": hashing.of_arrays(index),
        "origin": None if origin is None else hashing.of_arrays(origin),
    }
    content["hash"] = hashing.of_settings(content)
    with atomic_path(folder, force=force, marker=SETTINGS_FILE) as part:
        part.mkdir()
        write_json(part / SETTINGS_FILE, content)
        np.savez(part / "index.npz", **index)
        if origin is not None:
            np.savez(part / "origin.npz", **origin)
    return Path(folder)


def read(folder: str | os.PathLike[str], sources: Sequence[Dataset]) -> SavedSplit:
    """Read the folder; the caller compares the fingerprint."""
    folder = Path(folder)
    path = folder / SETTINGS_FILE
    content = read_json(path, repair="split again")
    if not isinstance(content, dict) or content.get("puorl_split") != _VERSION:
        raise DataError(
            f"{folder}: expected a split folder of version {_VERSION}, got another file"
        )
    try:
        stored = content.pop("hash", "")
        hashing.check(path, stored, hashing.of_settings(content), repair="split again")
        return _checked(folder, content, sources)
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: expected what puorl wrote, got {type(error).__name__}: {error}; the file is "
            "damaged, so split again"
        ) from error


def _checked(folder: Path, content: Mapping[str, Any], sources: Sequence[Dataset]) -> SavedSplit:
    """Read the index files that the settings name, and compare everything."""
    index = _arrays(folder / "index.npz", INDEX_FIELDS, content["index"])
    origin = None
    if content["origin"] is not None:
        held = _arrays(folder / "origin.npz", _ORIGIN_FIELDS, content["origin"])
        origin = Draw(**held, num_labelled=len(index["labelled"]))
        _check_fits(folder, origin, sources)
    elif sources[0].fingerprint != content["pool"]:
        raise DataError(
            f"{folder}: made from data with fingerprint {str(content['pool'])[:12]}, got "
            f"{sources[0].fingerprint[:12]}; pass the dataset that was split"
        )
    settings = {name: content[name] for name in _SETTINGS}
    for name, known in _CHOICES.items():
        if settings[name] not in known:
            raise ValueError(f"{name} {settings[name]!r}")
    if not isinstance(settings["config"], dict):
        raise TypeError(f"config {settings['config']!r}")
    returns = settings["returns"]
    settings["returns"] = None if returns is None else (float(returns[0]), float(returns[1]))
    _check_index(folder, index, len(sources[0]) if origin is None else len(origin.row))
    return SavedSplit(index, settings, origin, content["fingerprint"])


def _check_index(folder: Path, index: Mapping[str, np.ndarray], num_rows: int) -> None:
    """Refuse an index that does not name every row once, with its part."""
    labelled, unlabelled = index["labelled"], index["unlabelled"]
    every = np.sort(np.concatenate([labelled, unlabelled]))
    sizes = [(len(index[f"{name}_part"]), len(index[name])) for name in ("labelled", "unlabelled")]
    if any(a != b for a, b in sizes) or not np.array_equal(every, np.arange(num_rows)):
        raise DataError(
            f"{folder}: expected the index to name each of {num_rows:,} rows once, got another "
            "one; split again"
        )


def _check_fits(folder: Path, origin: Draw, sources: Sequence[Dataset]) -> None:
    shapes = {(s.obs.shape[1], s.action.shape[1]) for s in sources}
    if len(shapes) > 1:
        raise DataError(
            f"{folder}: the split was drawn from other data than given (sizes of obs and action "
            f"differ: {sorted(shapes)}); pass the same target and others, in the same order"
        )
    for k in range(max(int(origin.source.max()) + 1, len(sources))):
        rows = origin.row[origin.source == k]
        have = len(sources[k]) if k < len(sources) else 0
        if len(rows) == 0 or rows.max() >= have:
            raise DataError(
                f"{folder}: the split was drawn from other data than given (source {k} has {have} "
                "rows); pass the same target and others, in the same order"
            )


def _arrays(path: Path, names: Sequence[str], expected: str) -> dict[str, np.ndarray]:
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged headers make NumPy warn before it fails
            with np.load(file, allow_pickle=False) as held:  # given a path, NumPy may leave it open
                arrays = {name: held[name] for name in names}
        whole = hashing.of_arrays(arrays) == expected
    except Exception as error:  # zipfile and NumPy raise almost any exception on damaged files
        raise DataError(
            f"{path}: expected the index arrays {', '.join(names)}, got: {error}; split again"
        ) from error
    if not whole:
        raise DataError(f"{path}: the index arrays do not match their hash; split again")
    return arrays
