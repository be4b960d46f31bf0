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

import h5py
import numpy as np

from puorl.core.errors import DataError

_MOST_INFLATION = 1100  # deflate never gains more than 1032 times
_SUSPICIOUS_BYTES = 2**30
_MOST_MISSING_CHUNKS = 100_000  # filling in more takes seconds
_CHECKSUM_BYTES = 4
_HEAP_MARK = b"GCOL\1\0\0\0"  # signature, version, and three bytes that are always zero
_SMALLEST_HEAP = 4096


def check_array(dataset: h5py.Dataset, source: str, *, whole: bool) -> None:
    """Refuse an array whose description and storage do not fit together.

    Args:
        dataset: The array, not read yet.
        source: The file; messages start with it.
        whole: Whether all of it must have been written. HDF5 hands out zeros for the rest, which
            are good flags, but no good states.

    Raises:
        DataError: Reading it could hang or crash, or would invent values.
    """
    if dataset.shape is None or dataset.size == 0:
        return
    stored = dataset.id.get_storage_size()
    refusal = DataError(
        f"{source}: {_key(dataset)}: claims {dataset.nbytes:,} bytes (shape {dataset.shape}) where "
        f"the file holds {stored:,}; it is damaged or was never filled"
    )
    if dataset.nbytes > max(_SUSPICIOUS_BYTES, _MOST_INFLATION * stored):
        raise refusal
    if dataset.chunks is None:
        is_short = 0 < stored < dataset.nbytes and not dataset.dtype.hasobject
        if is_short or (whole and stored == 0):
            raise refusal
        return
    missing = _num_missing_chunks(dataset)
    if missing > (0 if whole else _MOST_MISSING_CHUNKS):
        raise refusal
    _check_checksums(dataset, source)


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


def check_lengths(dataset: h5py.Dataset, source: str) -> None:
    """Refuse values of varying length of which one claims to be longer than the file.

    Raises:
        DataError: There is such a value.
    """
    address_bytes, _ = dataset.file.id.get_create_plist().get_sizes()
    offset = dataset.id.get_offset()
    if address_bytes != 8 or offset is None or dataset.file.userblock_size:
        return  # in chunks, or in a rare layout: at worst a length of 4 GiB is asked for
    with _content(dataset.file) as content:
        stored = content[offset : offset + dataset.id.get_storage_size()]
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
        for dataset in _arrays(file, ()):
            check_array(dataset, source, whole=True)
            if dataset.dtype.kind == "O":
                check_lengths(dataset, source)


def _key(dataset: h5py.Dataset) -> str:
    return str(dataset.name).removeprefix("/")


def _num_missing_chunks(dataset: h5py.Dataset) -> int:
    assert dataset.chunks is not None
    sizes = zip(dataset.shape, dataset.chunks, strict=True)
    return math.prod(-(-n // size) for n, size in sizes) - dataset.id.get_num_chunks()


def _check_checksums(dataset: h5py.Dataset, source: str) -> None:
    filters = dataset.id.get_create_plist()
    codes = [filters.get_filter(i)[0] for i in range(filters.get_nfilters())]
    if h5py.h5z.FILTER_FLETCHER32 in codes and _has_tiny_chunk(dataset):
        raise DataError(
            f"{source}: {_key(dataset)}: expected chunks that hold a checksum, got one of fewer "
            f"than {_CHECKSUM_BYTES} bytes; the file is damaged"
        )


def _has_tiny_chunk(dataset: h5py.Dataset) -> bool:
    assert dataset.chunks is not None
    if math.prod(dataset.chunks) * dataset.dtype.itemsize < _CHECKSUM_BYTES:
        return True
    smallest = _CHECKSUM_BYTES

    def see(chunk: h5py.h5d.StoreInfo) -> None:
        nonlocal smallest
        smallest = min(smallest, chunk.size)

    dataset.id.chunk_iter(see)
    return smallest < _CHECKSUM_BYTES


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


def _arrays(group: h5py.Group, above: tuple[h5py.Group, ...]) -> Iterator[h5py.Dataset]:
    for name in group:
        item = group.get(name)
        if isinstance(item, h5py.Dataset):
            yield item
        elif isinstance(item, h5py.Group) and item not in (group, *above):  # a link may form a ring
            yield from _arrays(item, (group, *above))
