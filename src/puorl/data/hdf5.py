"""HDF5: D4RL and DARA files, other files of named arrays, and files that puorl writes.

The layout written is D4RL's, with plural keys at the top level. Content that it does not have is
under ``puorl/``: episode ids, times, next actions, extra columns and the provenance.

HDF5's library can hang or crash on damaged files, or return zeros for values that were never
written; the checks at the end of this module refuse such files before they are read. They also
refuse arrays and links that would make HDF5 read other files.
"""

import contextlib
import dataclasses
import math
import mmap
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import h5py
import numpy as np

from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.files import reserve
from puorl.core.resources import require_readable
from puorl.data import episodes
from puorl.data.columns import named_arrays, read_arrays, resolve
from puorl.data.dataset import Dataset
from puorl.data.transitions import FLAGS, Provenance
from puorl.data.validate import FIELDS, Block, FieldNames, RawRows, fingerprint, reading

_OVERHEAD = 2**18
"""Bytes of names, shapes, provenance and a hash, at most."""
_OWN = "puorl"
_COLUMNS = f"{_OWN}/columns"
_LAYOUT = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "next_obs": "next_observations",
    "terminal": "terminals",
    "timeout": "timeouts",
    "episode": f"{_OWN}/episode",
    "time": f"{_OWN}/time",
    "next_action": f"{_OWN}/next_action",
}
_OWN_TIMEOUT = f"{_OWN}/timeout"
"""The timeouts, where the layout's own mark more rows: see `puorl.data.episodes.cut`."""
_PROVENANCE = "provenance"
_REPAIR = (
    "take another copy; if it was changed on purpose, delete the attribute "
    f"{hashing.HASH!r} of the group {_OWN!r}"
)
_WIDTH = "characters"
_EMPTY_NAME = "%"  # HDF5 has no empty names, and no quoted name is like this
_SIMULATOR_GROUPS = ("infos/", "metadata/")  # internal data of D4RL, read only if named
_PLAIN_KINDS = "biufSU"
_ADVICE = "check that the file is whole and that it is HDF5"
_BLOCK = 65_536
"""Rows that are read together, where a file is read in parts."""


def read(path: Path, names: FieldNames) -> RawRows:
    """Read an HDF5 file; nested arrays are named by their path."""
    with reading(path, "HDF5 file", _ADVICE), h5py.File(path, "r") as file:
        return _rows(file, names, str(path))


def blocks(path: str, names: FieldNames) -> list[Block]:
    """Divide the rows of a file into blocks that are read together."""
    with reading(path, "HDF5 file", _ADVICE), h5py.File(path, "r") as file:
        keys = list(_array_keys(file))
        find = resolve if _own_text(file, _PROVENANCE, path) is None else named_arrays
        key = find(keys, _stripped(names), path).get("obs", _LAYOUT["obs"])
        if key not in keys:  # HDF5 would follow a link into another file
            raise DataError(f"{path}: expected the array {key!r} in this file, found none")
        total = file[key].shape[0]  # pyright: ignore[reportAttributeAccessIssue]
    return [Block(min(_BLOCK, total - start), start) for start in range(0, total, _BLOCK)]


def read_blocks(
    path: str, names: FieldNames, chosen: Sequence[Block], *, keys_only: bool = False
) -> RawRows:
    """Read some rows of a file: all fields, which costs little here."""
    del keys_only
    rows = slice(chosen[0].place, chosen[-1].place + chosen[-1].num_rows)
    with reading(path, "HDF5 file", _ADVICE), h5py.File(path, "r") as file:
        return _rows(file, names, path, rows)


def verify(path: str) -> str | None:
    """Compare a file that puorl wrote with its hash, some rows at a time.

    Returns:
        The fingerprint of its rows; None for a file of other origin.
    """
    with reading(path, "HDF5 file", _ADVICE), h5py.File(path, "r") as file:
        origin, stored = (_own_text(file, name, path) for name in (_PROVENANCE, hashing.HASH))
        if origin is None:
            return None
        first = _rows(file, FieldNames(), path, slice(0, 1))
        sizes = {key: file[key].shape for key in _array_keys(file)}  # pyright: ignore
        total = sizes[_LAYOUT["obs"]][0]

        def pieces(key: str) -> hashing.Pieces:
            spans = [slice(start, start + _BLOCK) for start in range(0, total, _BLOCK)]
            return hashing.Pieces(
                sizes[key], lambda: (_array(file, key, path, part=span) for span in spans)
            )

        fields = {name: pieces(first.keys.get(name, _LAYOUT[name])) for name in first.arrays}
        # A column may have the name of a field's array: our own columns come last, and win.
        long = [key for key in sizes if sizes[key][:1] == (total,)]
        long.sort(key=lambda key: key.startswith(f"{_COLUMNS}/"))
        named = {_column_name(key): key for key in long}
        columns = {name: pieces(named[name]) for name in first.columns if name in named}
        codes = None if first.provenance is None else first.provenance.action_codes
        found = fingerprint(fields, columns, codes)
        hashing.check(path, stored, _content_hash(found, origin), repair=_REPAIR)
        return found


def write(dataset: Dataset, path: Path) -> None:
    """Write a file in D4RL's layout that `read` restores exactly."""
    # Plain contiguous arrays: on a random walk of 1M x 17 float32, gzip 1 with shuffle saved a
    # quarter of the bytes (68 to 49 MB) but read 20 times and wrote 60 times slower.
    # The 1.10 format is the oldest that has checksums on names, shapes and places.
    stored = (*dataset.rows.arrays().values(), *dataset.columns.values())
    reserve(path, sum(array.nbytes for array in stored) + _OVERHEAD)
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        # Created by name: a group that is created by a path stores the time, and equal rows would
        # not give equal bytes.
        own = file.create_group(_OWN)
        arrays = dataset.rows.arrays()
        arrays["timeout"] = episodes.cut(dataset.rows)
        for field, array in arrays.items():
            file[_LAYOUT[field]] = array
        if not np.array_equal(arrays["timeout"], dataset.timeout):
            file[_OWN_TIMEOUT] = dataset.timeout
        # Of fixed size, because such attributes have a checksum and text of varying length has not.
        origin = dataset.provenance.to_json()
        own.attrs[_PROVENANCE] = np.bytes_(origin)
        own.attrs[hashing.HASH] = np.bytes_(_content_hash(dataset.fingerprint, origin))
        columns = file.create_group(_COLUMNS, track_order=True)
        for name, array in dataset.columns.items():
            _write_column(columns, name, array)


def _rows(file: h5py.File, names: FieldNames, source: str, part: slice | None = None) -> RawRows:
    keys = list(_array_keys(file))
    names = _stripped(names)
    origin, stored_hash = (_own_text(file, name, source) for name in (_PROVENANCE, hashing.HASH))
    if part is not None:
        stored_hash = None
    if stored_hash is not None and any(getattr(names, field) is not None for field in FIELDS):
        _rows(file, FieldNames(), source)  # under their own names, to compare the hash
        stored_hash = None
    rows = RawRows(format="hdf5", arrays={})
    if origin is not None:
        rows.provenance = Provenance.from_json(origin, source=source)
    own = {field: key for field, key in _LAYOUT.items() if key in keys}
    if rows.provenance is not None and _OWN_TIMEOUT in keys and names.timeout is None:
        keys.remove(own["timeout"])
        own["timeout"] = _OWN_TIMEOUT
    skipped = read_arrays(
        rows,
        keys,
        names,
        source,
        own=own,
        read=lambda key, field: _array(
            file, key, source, whole=field not in ("", *FLAGS), part=part
        ),
        describe=lambda key: _described(key, file[key], part),
    )
    rows.columns = {_column_name(key): array for key, array in rows.columns.items()}
    if stored_hash is not None:
        found = _content_hash(rows.fingerprint, origin or "")
        hashing.check(source, stored_hash, found, repair=_REPAIR)
    rows.note_skipped([key for key in skipped if not key.startswith(_SIMULATOR_GROUPS)])
    return rows


def _stripped(names: FieldNames) -> FieldNames:
    given = {f: k.lstrip("/") for f in FIELDS if isinstance(k := getattr(names, f), str)}
    return dataclasses.replace(names, **given)


def _array_keys(group: h5py.Group, prefix: str = "", above: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield the paths of all arrays below a group, without links into other files."""
    for name in group:
        item = _item(group, name)
        if isinstance(item, h5py.Dataset):
            yield f"{prefix}{name}"
        elif isinstance(item, h5py.Group) and item not in (group, *above):  # links may form a ring
            yield from _array_keys(item, f"{prefix}{name}/", (group, *above))


def _item(group: h5py.Group, name: Any, depth: int = 0) -> Any:
    """Return a member of a group; None if its link is broken or leads into another file.

    Every link on the way is looked at before HDF5 follows it.
    """
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.ExternalLink) or depth > _MOST_SOFT_LINKS:
        return None
    if not isinstance(link, h5py.SoftLink):
        return group[name]  # a hard link that cannot be opened is damage, and raises
    path = str(link.path)
    item: Any = group.file if path.startswith("/") else group
    for part in path.split("/"):
        if part not in ("", "."):
            is_there = isinstance(item, h5py.Group) and part in item
            item = _item(item, part, depth + 1) if is_there else None
    return item


def _own_text(file: h5py.File, name: str, source: str) -> str | None:
    """Return a text that `write` stored with the rows, or None for a file of other origin."""
    own = _item(file, _OWN) if _OWN in file else None
    if not isinstance(own, h5py.Group) or name not in own.attrs:
        return None
    kind = own.attrs.get_id(name).dtype
    if kind.kind != "S":
        raise DataError(f"{source}: {name}: expected text, got dtype {kind}")
    return np.asarray(own.attrs[name]).item().decode()


def _content_hash(fingerprint: str, origin: str) -> str:
    return hashing.of_settings({"rows": fingerprint, "provenance": origin})


def _array(
    file: h5py.File, key: str, source: str, *, whole: bool = False, part: slice | None = None
) -> np.ndarray:
    dataset = file[key]
    assert isinstance(dataset, h5py.Dataset)
    if dataset.shape is None:
        raise DataError(f"{source}: {key}: expected an array, got an empty dataset; write its rows")
    # Other kinds are refused later with a better message.
    whole = whole and dataset.dtype.kind in _PLAIN_KINDS
    rows = part or slice(None)
    deflated = bool(dataset.chunks and dataset.size) and _is_deflated_only(dataset.id)
    check_array(dataset.id, source, whole=whole, part=rows, unfold=not deflated)
    text = h5py.check_string_dtype(dataset.dtype)
    if text is not None and text.length is None:
        check_heaps(file, source)
        check_lengths(dataset.id, file, source)
        return np.asarray(dataset.asstr()[() if part is None else part], dtype=np.str_)
    if dataset.dtype.hasobject:
        raise DataError(
            f"{source}: {key}: expected numbers or text, got rows of varying length or references; "
            "store one fixed-size array"
        )
    if part is None:
        require_readable(dataset.size * dataset.dtype.itemsize, f"{source}: {key}")
    if deflated:
        array = _unfold(dataset.id, source, rows)
    else:
        array = np.asarray(dataset[() if part is None or not dataset.shape else part])
    if _WIDTH in dataset.attrs and dataset.attrs.get_id(_WIDTH).dtype.kind in "iu":
        texts, width = np.char.decode(array, "utf-8"), int(np.asarray(dataset.attrs[_WIDTH]))
        if texts.dtype.itemsize > 4 * max(width, 1):
            raise DataError(
                f"{source}: {key}: expected texts of at most {width} characters, got longer ones; "
                "the file is damaged"
            )
        return texts.astype(f"<U{width}")
    # h5py marks enumerations and text in the dtype, which has no meaning outside HDF5.
    return array.view(array.dtype.str) if array.dtype.metadata else array


def _described(key: str, item: Any, part: slice | None) -> tuple[tuple[int, ...], str]:
    if key.startswith(_SIMULATOR_GROUPS):
        return (), ""
    is_text = h5py.check_string_dtype(item.dtype) is not None
    shape = item.shape or ()
    if part is not None and shape:
        shape = (len(range(shape[0])[part]), *shape[1:])
    return shape, "S" if is_text else item.dtype.kind


def _column_name(key: str) -> str:
    if not key.startswith(f"{_COLUMNS}/"):
        return key
    quoted = key.removeprefix(f"{_COLUMNS}/")
    return "" if quoted == _EMPTY_NAME else unquote(quoted, errors="strict")


def _write_column(group: h5py.Group, name: str, array: np.ndarray) -> None:
    # "/" would create a group and "." is the group itself.
    key = {"": _EMPTY_NAME, ".": "%2E"}.get(name) or quote(name, safe=" ()[]<>#:,;=+*!?@$&'")
    if array.dtype.kind != "U":
        group[key] = array
        return
    encoded = np.char.encode(array, "utf-8")
    fixed = h5py.string_dtype("utf-8", max(encoded.dtype.itemsize, 1))
    stored = group.create_dataset(key, data=encoded.astype(fixed), dtype=fixed)
    stored.attrs[_WIDTH] = array.dtype.itemsize // 4


_LOW: Any = h5py  # low-level modules, not all of which type checkers know
_MOST_SOFT_LINKS = 16  # one after the other, as HDF5 itself has it
_MOST_INFLATION = 1100  # deflate compresses at most 1032 times
_SUSPICIOUS_BYTES = 2**30
_MOST_MISSING_CHUNKS = 100_000  # filling in more takes seconds
_CHECKSUM_BYTES = 4
_HEAP_MARK = b"GCOL\1\0\0\0"  # signature, version, and three bytes that are always zero
_SMALLEST_HEAP = 4096


def check_array(
    dataset: h5py.h5d.DatasetID,
    source: str,
    *,
    whole: bool,
    part: slice = slice(None),
    unfold: bool = True,
) -> None:
    """Refuse an array that is stored elsewhere, or whose description does not fit its storage.

    Args:
        dataset: The array, not read yet.
        source: The file; messages start with it.
        whole: Refuse an array that was not written completely. HDF5 returns zeros for the rest,
            which are valid flags, but not valid states.
        part: Rows that are to be read.
        unfold: Look into compressed chunks; whoever unfolds them itself need not do it twice.
    """
    shape, kind, filters = dataset.shape, dataset.dtype, dataset.get_create_plist()
    if filters.get_layout() == h5py.h5d.VIRTUAL or filters.get_external_count():
        # Any file could be named there; where one is missing, HDF5 would silently return zeros.
        raise DataError(
            f"{source}: {_key(dataset)}: expected values stored in this file, got an array that "
            "points into other files; copy it into an ordinary dataset first"
        )
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
    if chunks is None or not {*codes} & {h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_DEFLATE}:
        return
    held: list[Any] = []
    dataset.chunk_iter(held.append)
    full, summed = (
        math.prod(chunks) * dataset.get_type().get_size(),
        h5py.h5z.FILTER_FLETCHER32 in codes,
    )
    if summed and min([full, *(chunk.size for chunk in held)]) < _CHECKSUM_BYTES:
        raise DataError(
            f"{source}: {_key(dataset)}: expected chunks that hold a checksum, got one of fewer "
            f"than {_CHECKSUM_BYTES} bytes; the file is damaged"
        )
    if unfold:
        for _ in _unfolded_chunks(dataset, source, part):
            pass


def _is_deflated_only(dataset: h5py.h5d.DatasetID) -> bool:
    """Tell whether chunks are plain numbers behind deflate alone: `_unfold` reads and checks it."""
    filters, kind = dataset.get_create_plist(), dataset.dtype
    return (
        kind.kind in "biuf"
        and filters.get_nfilters() == 1
        and filters.get_filter(0)[0] == h5py.h5z.FILTER_DEFLATE
        and filters.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED
        and dataset.get_type() == h5py.h5t.py_create(kind)
    )


def _unfold(dataset: h5py.h5d.DatasetID, source: str, part: slice) -> np.ndarray:
    """Read an array that is deflated and nothing else; chunks that were never written are 0."""
    shape, chunks = dataset.shape, dataset.get_create_plist().get_chunk()
    rows = range(shape[0])[part]
    found = np.zeros((len(rows), *shape[1:]), dataset.dtype)
    for offset, content in _unfolded_chunks(dataset, source, part):
        block = np.frombuffer(content, dataset.dtype).reshape(chunks)
        first = max(offset[0], rows.start)
        last = min(offset[0] + chunks[0], rows.stop)
        inner = tuple(
            slice(min(length, n - start))
            for start, length, n in zip(offset[1:], chunks[1:], shape[1:], strict=True)
        )
        place = tuple(
            slice(start, start + length)
            for start, length in zip(offset[1:], chunks[1:], strict=True)
        )
        found[(slice(first - rows.start, last - rows.start), *place)] = block[
            (slice(first - offset[0], last - offset[0]), *inner)
        ]
    return found


def _unfolded_chunks(
    dataset: h5py.h5d.DatasetID, source: str, part: slice
) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yield places and contents of the deflated chunks of some rows, before any filter but deflate.

    Of a chunk that unfolds to less, as that of another array does, HDF5 itself returns what was in
    memory before.
    """
    shape, filters = dataset.shape, dataset.get_create_plist()
    chunks, deflate = filters.get_chunk(), h5py.h5z.FILTER_DEFLATE
    codes = [filters.get_filter(i)[0] for i in range(filters.get_nfilters())]
    if deflate not in codes or dataset.dtype.hasobject:
        return
    before = codes[: codes.index(deflate)]
    if {*codes[len(before) + 1 :]} - {h5py.h5z.FILTER_FLETCHER32}:
        return
    if {*before} - {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}:
        return  # such filters change the size
    full = math.prod(chunks) * dataset.get_type().get_size()
    full += _CHECKSUM_BYTES * (h5py.h5z.FILTER_FLETCHER32 in before)
    held: list[Any] = []
    dataset.chunk_iter(held.append)
    for chunk in held:
        if not _overlaps(chunk.chunk_offset[0], chunks[0], shape, part):
            continue
        mask, packed = dataset.read_direct_chunk(chunk.chunk_offset)
        content = packed[:full] if mask else _unfolded(packed, full)
        if len(content) != full:
            raise DataError(
                f"{source}: {_key(dataset)}: expected {full:,} bytes in the chunk at "
                f"{chunk.chunk_offset}, got another size; the file is damaged"
            )
        yield chunk.chunk_offset, content


def _overlaps(start: int, length: int, shape: tuple[int, ...], part: slice) -> bool:
    rows = range(shape[0])[part]
    return start < rows.stop and start + length > rows.start


def _unfolded(packed: bytes, most: int) -> bytes:
    """Return what a chunk unfolds to, at most a byte more than ``most``; nothing of a bad one."""
    try:
        return zlib.decompressobj().decompress(packed, most + 1)
    except zlib.error:
        return b""


def check_heaps(file: h5py.File, source: str) -> None:
    """Refuse a file with an inconsistent heap of values of varying length.

    Call it before such values (mostly text) are read: the library does not check these heaps.
    """
    _, length_bytes = file.id.get_create_plist().get_sizes()
    with _content(file) as content:
        start = content.find(_HEAP_MARK)
        while start >= 0:
            if not _adds_up(content, start, length_bytes):
                raise DataError(
                    f"{source}: expected text of varying length, got a heap at byte {start:,} that "
                    "does not add up; the file is damaged"
                )
            start = content.find(_HEAP_MARK, start + len(_HEAP_MARK))


def check_lengths(dataset: h5py.h5d.DatasetID, file: h5py.File, source: str) -> None:
    """Refuse values of varying length that claim to be longer than the file."""
    address_bytes, _ = file.id.get_create_plist().get_sizes()
    offset = dataset.get_offset()
    if address_bytes != 8 or offset is None or file.userblock_size:
        return  # in chunks, or in a rare layout: at worst 4 GiB are requested
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
    """Refuse a file with any array that cannot be read safely, before another library reads it."""
    with h5py.File(path, "r") as file:
        check_heaps(file, source)
        for dataset in _arrays(file.id, (), source):
            check_array(dataset, source, whole=True)
            if dataset.dtype.kind == "O":
                check_lengths(dataset, file, source)


def _key(dataset: h5py.h5d.DatasetID) -> str:
    return _LOW.h5i.get_name(dataset).decode("utf-8", "replace").removeprefix("/")


@contextlib.contextmanager
def _content(file: h5py.File) -> Iterator[mmap.mmap]:
    with (
        open(file.filename, "rb") as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        yield content


def _adds_up(content: mmap.mmap, start: int, length_bytes: int) -> bool:
    """Return whether the objects of a heap follow one another up to its end."""

    def number(place: int, size: int) -> int:
        return int.from_bytes(content[place : place + size], "little")

    def padded(size: int) -> int:
        return -(-size // 8) * 8

    head = 8 + length_bytes
    size = number(start + 8, length_bytes)
    if size < _SMALLEST_HEAP or start + size > len(content):
        return False
    place, end = start + padded(head), start + size
    while place + head <= end:
        index, length = number(place, 2), number(place + 8, length_bytes)
        step = length if index == 0 else padded(head) + padded(length)  # 0: the unused rest
        if step < head or place + step > end:
            return False
        place += step
    return True


def _arrays(
    group: h5py.h5g.GroupID, above: tuple[int, ...], source: str
) -> Iterator[h5py.h5d.DatasetID]:
    """Yield all arrays of a file; low-level, because Minari files have several for each episode.

    Raises:
        DataError: There is a link that may lead into another file: Minari writes none, and reads
            whatever it names.
    """
    for name in group:
        if group.links.get_info(name).type != _LOW.h5l.TYPE_HARD:
            shown = name.decode("utf-8", "replace")
            raise DataError(
                f"{source}: {shown}: expected values stored in this file, got a link; copy what it "
                "names"
            )
        item = _LOW.h5o.open(group, name)
        if isinstance(item, h5py.h5d.DatasetID):
            yield item
        elif isinstance(item, h5py.h5g.GroupID):
            place = _LOW.h5o.get_info(item).addr
            if place not in above:  # links may form a ring
                yield from _arrays(item, (place, *above), source)
