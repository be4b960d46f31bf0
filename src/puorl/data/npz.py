"""NPZ: named NumPy arrays in one file, of any origin. Nothing is ever unpickled.

Files that puorl writes hold fields under their names, extra columns as ``column/NAME`` and the
provenance as JSON text under ``puorl``, with the hash of all these.
"""

import math
import warnings
import zipfile
from pathlib import Path

import numpy as np

from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.resources import require_readable
from puorl.data.columns import read_arrays
from puorl.data.dataset import Dataset
from puorl.data.transitions import Provenance
from puorl.data.validate import FIELDS, FieldNames, RawRows, reading

_COLUMN = "column/"
_PROVENANCE = "puorl"
_HASH = f"puorl/{hashing.HASH}"
_REPAIR = f"take another copy; if it was changed on purpose, save it without the array {_HASH!r}"
_ARRAY = ".npy"
_MOST_INFLATION = 100  # recorded numbers do not compress a hundredfold
_SUSPICIOUS_BYTES = 2**30
_END_MARK = b"PK\5\6"  # last record of a zip file
_END_COUNT = 10  # place of its member count
_LONGEST_END = 22 + 2**16
_COUNT_ELSEWHERE = 2**16 - 1  # more members than two bytes can count
_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}


def read(path: Path, names: FieldNames) -> RawRows:
    """Read an NPZ file."""
    advice = "check that the file is whole and that numpy.savez wrote it"
    with (
        reading(path, "NPZ file", advice),
        zipfile.ZipFile(path) as archive,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # damaged headers make NumPy and Python warn, then fail
        _check_directory(archive, path)
        return _rows(archive, names, str(path))


def write(dataset: Dataset, path: Path) -> None:
    """Write an uncompressed NPZ file that `read` restores exactly."""
    arrays: dict[str, np.ndarray] = dict(dataset.rows.arrays())
    for name, array in dataset.columns.items():
        if "\0" in name:
            raise DataError(f"column {name!r}: expected a name without a NUL character; rename it")
        arrays[_COLUMN + name] = array
    arrays[_PROVENANCE] = np.array(dataset.provenance.to_json())
    arrays[_HASH] = np.array(hashing.of_arrays(arrays))
    with open(path, "wb") as file:  # given a name, savez would append .npz
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _check_directory(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse an archive with an inconsistent list of members: fields could be lost."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST_END))
        end = file.read()
    at = end.rfind(_END_MARK) + _END_COUNT
    declared = int.from_bytes(end[at : at + 2], "little")
    listed = len(archive.infolist())
    if declared not in (listed, _COUNT_ELSEWHERE):
        raise DataError(
            f"{path}: declares {declared} arrays but lists {listed}; the file is damaged"
        )
    for info in archive.infolist():
        archive.open(info).close()  # compares the name with the one before the data


def _rows(archive: zipfile.ZipFile, names: FieldNames, source: str) -> RawRows:
    members = archive.namelist()
    keys = [name.removesuffix(_ARRAY) for name in members if name.endswith(_ARRAY)]
    skipped = [name for name in members if not name.endswith(_ARRAY)]
    rows = RawRows(format="npz", arrays={})
    held: dict[str, np.ndarray] = {}
    if _PROVENANCE in keys and _HASH in keys:
        keys.remove(_HASH)
        held = {key: _array(archive, key, source) for key in keys}
        stored = str(_array(archive, _HASH, source))
        hashing.check(source, stored, hashing.of_arrays(held), repair=_REPAIR)
    if _PROVENANCE in keys:
        text = _array(archive, _PROVENANCE, source)
        text = text.item() if text.size == 1 else text
        rows.provenance = Provenance.from_json(text, source=source)
        keys.remove(_PROVENANCE)
        if skipped:
            raise DataError(
                f"{source}: {skipped[0]} is not of puorl; the file is damaged or was changed"
            )

    def describe(key: str) -> tuple[tuple[int, ...], str]:
        shape, dtype = _declared(archive, key, source)
        return shape, dtype.kind

    skipped += read_arrays(
        rows,
        keys,
        names,
        source,
        own={field: field for field in FIELDS if field in keys},
        read=lambda key, _: held[key] if key in held else _array(archive, key, source),
        describe=describe,
    )
    if rows.provenance is not None:
        rows.columns = {k.removeprefix(_COLUMN): array for k, array in rows.columns.items()}
    rows.note_skipped(skipped)
    return rows


def _array(archive: zipfile.ZipFile, key: str, source: str) -> np.ndarray:
    shape, dtype = _declared(archive, key, source)
    if dtype.hasobject:
        raise DataError(
            f"{source}: {key}: expected numbers or text, got Python objects (shape {shape}), which "
            "are never loaded; save it as a plain array"
        )
    require_readable(math.prod(shape) * dtype.itemsize, f"{source}: {key}")
    with archive.open(key + _ARRAY) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
        file.read(1)  # zipfile compares the checksum at the end
    return array


def _declared(archive: zipfile.ZipFile, key: str, source: str) -> tuple[tuple[int, ...], np.dtype]:
    """Read shape and dtype from the header; refuse those that do not fit the stored bytes."""
    info = archive.getinfo(key + _ARRAY)
    if info.file_size > max(_SUSPICIOUS_BYTES, _MOST_INFLATION * info.compress_size):
        raise DataError(
            f"{source}: {key}: {info.compress_size:,} stored bytes would unfold to "
            f"{info.file_size:,}; the file is damaged or not recorded data"
        )
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        if version not in _READ_HEADER:
            raise DataError(
                f"{source}: {key}: expected array format 1, 2 or 3, got {version}; save it again"
            )
        shape, _, dtype = _READ_HEADER[version](file)
        size = file.tell() + math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and size != info.file_size:
        raise DataError(
            f"{source}: {key}: declares shape {shape} of {dtype}, {size:,} bytes, where "
            f"{info.file_size:,} are stored; the file is damaged"
        )
    return shape, dtype
