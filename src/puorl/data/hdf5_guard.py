"""What a damaged HDF5 file can do to the HDF5 library itself, refused before the library reads it.

Most damage ends in an ordinary error. Four kinds do not: a shape far larger than what is stored
(hours of filling in zeros), a heap of text that leads in a circle (an endless loop), a chunk that
is shorter than its own checksum (a crash), and a size that no memory holds.
"""

import contextlib
import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from puorl.core.errors import DataError

_LOW: Any = h5py  # its low-level modules, of which type checkers do not know all
_MOST_INFLATION = 1100  # deflate never gains more than 1032 times
_SUSPICIOUS_BYTES = 2**30
_MOST_MISSING_CHUNKS = 100_000  # filling in more takes seconds
_CHECKSUM_BYTES = 4
_HEAP_MARK = b"GCOL\1\0\0\0"  # signature, version, and three bytes that are always zero
_SMALLEST_HEAP = 4096


def check_array(dataset: h5py.h5d.DatasetID, source: str, *, whole: bool) -> None:
    """Refuse an array whose description and storage do not fit together.

    Args:
        dataset: The array, not read yet.
        source: The file; messages start with it.
        whole: Whether all of it must have been written. HDF5 hands out zeros for the rest, which
            are good flags, but no good states.

    Raises:
        DataError: Reading it could hang or crash, or would invent values.
    """
    shape, kind, filters = dataset.shape, dataset.dtype, dataset.get_create_plist()
    if shape is None or 0 in shape:
        return
    chunks = filters.get_chunk() if filters.get_layout() == h5py.h5d.CHUNKED else None
    size, stored = math.prod(shape) * kind.itemsize, dataset.get_storage_size()
    is_short = size > max(_SUSPICIOUS_BYTES, _MOST_INFLATION * stored)
    if chunks is None:
        is_short |= (whole and stored == 0) or (0 < stored < size and not kind.hasobject)
    elif not is_short:
        needed = math.prod(-(-n // length) for n, length in zip(shape, chunks, strict=True))
        missing = needed - dataset.get_num_chunks()
        is_short = missing > (0 if whole else _MOST_MISSING_CHUNKS)
    if is_short:
        raise DataError(
            f"{source}: {_key(dataset)}: claims {size:,} bytes (shape {shape}) where the file "
            f"holds {stored:,}; it is damaged or was never filled"
        )
    codes = [filters.get_filter(i)[0] for i in range(filters.get_nfilters())]
    if h5py.h5z.FILTER_FLETCHER32 in codes and _smallest_chunk(dataset) < _CHECKSUM_BYTES:
        raise DataError(
            f"{source}: {_key(dataset)}: expected chunks that hold a checksum, got one of fewer "
            f"than {_CHECKSUM_BYTES} bytes; the file is damaged"
        )


def check_heaps(file: h5py.File, source: str) -> None:
    """Refuse a file in which a heap for values of varying length does not add up.

    Call it before such values (text, mostly) are read: the library walks these heaps unguarded.

    Raises:
        DataError: A heap leads beyond its end, or nowhere.
    """
    _, length_bytes = file.id.get_create_plist().get_sizes()
    with _content(file) as content:
        for start in _places(content, _HEAP_MARK):
            if not _adds_up(content, start, length_bytes):
                raise DataError(
                    f"{source}: expected text of varying length, got a heap at byte {start:,} that "
                    "does not add up; the file is damaged"
                )


def check_lengths(dataset: h5py.h5d.DatasetID, file: h5py.File, source: str) -> None:
    """Refuse values of varying length of which one claims to be longer than the file.

    Raises:
        DataError: There is such a value.
    """
    address_bytes, _ = file.id.get_create_plist().get_sizes()
    offset = dataset.get_offset()
    if address_bytes != 8 or offset is None or file.userblock_size:
        return  # in chunks, or in a rare layout: at worst a length of 4 GiB is asked for
    with _content(file) as content:
        stored = content[offset : offset + dataset.get_storage_size()]
        # Each value is a length, the heap's address (8 bytes) and a place in the heap.
        words = np.frombuffer(stored, "<u4", count=len(stored) // 16 * 4).reshape(-1, 4)
        longest, most = int(words[:, 0].max(initial=0)), len(content)
    if longest > most:
        raise DataError(
            f"{source}: {_key(dataset)}: claims a text of {longest:,} bytes in a file of {most:,}; "
            "the file is damaged"
        )


def check_file(path: Path, source: str) -> None:
    """Refuse a file of which any array could not be read safely; for readers that are not ours.

    Raises:
        DataError: As `check_array` and `check_heaps`.
    """
    with h5py.File(path, "r") as file:
        check_heaps(file, source)
        for dataset in _arrays(file.id, ()):
            check_array(dataset, source, whole=True)
            if dataset.dtype.kind == "O":
                check_lengths(dataset, file, source)


def _key(dataset: h5py.h5d.DatasetID) -> str:
    return _LOW.h5i.get_name(dataset).decode("utf-8", "replace").removeprefix("/")


def _smallest_chunk(dataset: h5py.h5d.DatasetID) -> int:
    """Bytes of the smallest chunk, as stored or as unpacked."""
    chunk = dataset.get_create_plist().get_chunk()
    sizes = [math.prod(chunk) * dataset.dtype.itemsize]
    dataset.chunk_iter(lambda stored: sizes.append(stored.size))
    return min(sizes)


@contextlib.contextmanager
def _content(file: h5py.File) -> Iterator[mmap.mmap]:
    with open(file.filename, "rb") as handle:
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


def _places(content: mmap.mmap, mark: bytes) -> Iterator[int]:
    place = content.find(mark)
    while place >= 0:
        yield place
        place = content.find(mark, place + len(mark))


def _adds_up(content: mmap.mmap, start: int, length_bytes: int) -> bool:
    """Whether the objects of a heap follow one another up to its end."""

    def number(place: int, size: int) -> int:
        return int.from_bytes(content[place : place + size], "little")

    head = 8 + length_bytes
    size = number(start + 8, length_bytes)
    if size < _SMALLEST_HEAP or start + size > len(content):
        return False
    place, end = start + _padded(head), start + size
    while place + head <= end:
        index, length = number(place, 2), number(place + 8, length_bytes)
        step = length if index == 0 else _padded(head) + _padded(length)  # 0: the unused rest
        if step < head or place + step > end:
            return False
        place += step
    return True


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _arrays(group: h5py.h5g.GroupID, above: tuple[int, ...]) -> Iterator[h5py.h5d.DatasetID]:
    """All arrays of a file; low-level, because a Minari file has several for every episode."""
    for name in group:
        if group.links.get_info(name).type != _LOW.h5l.TYPE_HARD:
            continue
        item = _LOW.h5o.open(group, name)
        if isinstance(item, h5py.h5d.DatasetID):
            yield item
        elif isinstance(item, h5py.h5g.GroupID):
            place = _LOW.h5o.get_info(item).addr
            if place not in above:  # a link may form a ring
                yield from _arrays(item, (place, *above))
