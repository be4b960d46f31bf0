"""A store of rows to train on that need not fit into memory: dealt at random into chunks.

Every partition deals its rows, in random order and in turn, to all chunks; each chunk is a uniform
random part of all rows. Training holds one chunk at a time, draws uniformly from it, and takes the
next chunk at every interval. So each draw is uniform over all rows, as it is in memory, but draws
of one interval come from the same chunk: two of them are the same row with chance 1 / chunk rows.
Rows are stored as float32, as learners see them, and memory-mapped.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.errors import DataError
from puorl.core.files import atomic_path
from puorl.core.hashing import generator
from puorl.core.run_folder import WEIGHT
from puorl.core.tasks import Workers, part_path
from puorl.data.dataset import Dataset
from puorl.data.lazy import LazyDataset
from puorl.data.training_set import TrainingSet
from puorl.data.transitions import Provenance, Transitions
from puorl.scale.filtering import run_partitions

CHUNK_ROWS = 2_000_000
"""Rows in memory at a time."""
_FIELDS = ("obs", "action", "next_obs", "next_action", "reward", "terminal", WEIGHT)


@dataclass(frozen=True, eq=False)
class Store:
    """Chunks of rows, each a training set of the same size."""

    folder: Path
    sizes: tuple[int, ...]
    """Rows of each partition."""
    starts: tuple[int, ...]
    """Chunk to which each partition deals its first row."""
    widths: dict[str, int]
    """Columns of each field."""
    num_chunks: int
    provenance: Provenance
    returns: tuple[float, float] | None

    @property
    def num_rows(self) -> int:
        """All rows, in all chunks."""
        return sum(self.sizes)

    @property
    def chunk_rows(self) -> int:
        """Rows of each chunk; fewer than ``num_chunks`` rows are in none."""
        return self.num_rows // self.num_chunks

    def chunk(self, number: int) -> TrainingSet:
        """Read a chunk; numbers above the last start again from the first."""
        number %= self.num_chunks
        pieces = []
        for i, (size, start) in enumerate(zip(self.sizes, self.starts, strict=True)):
            if size:
                bounds = _bounds(size, start, self.num_chunks)
                rows = np.load(part_path(self.folder, i, ".npy"), mmap_mode="r")
                pieces.append(rows[bounds[number] : bounds[number + 1]])
        made = np.concatenate(pieces)[: self.chunk_rows]
        ends = np.cumsum([0, *self.widths.values()])
        parts = {
            name: made[:, ends[i] : ends[i + 1]] if name in _FIELDS[:4] else made[:, ends[i]]
            for i, name in enumerate(self.widths)
        }
        weight = parts.pop(WEIGHT, None)
        parts["terminal"] = parts["terminal"] == 1
        rows = Transitions(timeout=np.zeros(len(made), bool), **parts)
        data = Dataset(rows, {}, self.provenance)
        return TrainingSet(data, np.arange(len(data)), weight, self.returns, chunks=self)

    def deviation(self, steps: int, interval: int) -> float:
        """Return the distance of the draws of a training from uniform ones: total variation.

        It is 0 where all chunks are used for the same number of updates.
        """
        used = np.zeros(self.num_chunks)
        for number, begun in enumerate(range(0, steps, interval)):
            used[number % self.num_chunks] += min(interval, steps - begun)
        share = self.chunk_rows / self.num_rows
        left = 1.0 - self.num_chunks * share
        return float(0.5 * (np.abs(used / steps - share).sum() + left))

    def describe(self, steps: int, interval: int) -> str:
        """Return the sentence about the chunks and what they cost."""
        return (
            f"{self.num_rows:,} rows in {self.num_chunks} random chunks of {self.chunk_rows:,}, "
            f"the next one every {interval:,} steps; draws differ from uniform ones by "
            f"{self.deviation(steps, interval):.2%} (total variation over rows)"
        )


def make_store(
    lazy: LazyDataset,
    folder: Path,
    workers: Workers,
    *,
    chunk_rows: int = CHUNK_ROWS,
    seed: int = 0,
    next_action: bool = False,
    returns: tuple[float, float] | None = None,
    progress: bool = False,
) -> Store:
    """Deal all rows into chunks.

    Args:
        lazy: The rows.
        folder: For the chunks; a killed job goes on there.
        workers: Where partitions are dealt.
        chunk_rows: Rows of a chunk, at most.
        seed: Seed of the deal.
        next_action: Whether to add the action that followed each row.
        returns: Smallest and largest return of complete episodes.
        progress: Show a bar.
    """
    num_chunks = max(1, -(-lazy.num_rows // chunk_rows))
    task = _Deal(lazy, num_chunks, seed, next_action)
    records = run_partitions(task, lazy, folder, workers, "dealing rows", progress=progress)
    widths = records[0]["widths"]
    if any(record["widths"] != widths for record in records):
        raise DataError("expected the same fields in all partitions; filter again")
    provenance = Provenance.from_json(records[0]["provenance"], source=str(folder))
    low, high = (
        end([record[name] for record in records if record["num_rows"]], axis=0).tolist()
        for name, end in (("low", np.min), ("high", np.max))
    )
    if provenance.action_range is None and max(-min(low), max(high)) > 1.0 + 1e-6:
        provenance = dataclasses.replace(provenance, action_range=(tuple(low), tuple(high)))
    sizes = [record["num_rows"] for record in records]
    return Store(
        folder, tuple(sizes), _starts(sizes, num_chunks), widths, num_chunks, provenance, returns
    )


def _starts(sizes: Sequence[int], num_chunks: int) -> tuple[int, ...]:
    """Return the chunk with which each partition begins, so that chunks are equal up to a row."""
    before = np.cumsum([0, *sizes[:-1]])
    return tuple((before % num_chunks).tolist())


def _bounds(size: int, start: int, num_chunks: int) -> np.ndarray:
    """(num_chunks + 1,) int64. Places at which each chunk's rows begin in a partition's file."""
    turn = (np.arange(num_chunks) - start) % num_chunks
    dealt = np.maximum(0, -(-(size - turn) // num_chunks))
    return np.concatenate([[0], np.cumsum(dealt)])


@dataclass(frozen=True, eq=False)
class _Deal:
    """Write the rows of a partition in random order, those of each chunk together."""

    lazy: LazyDataset
    num_chunks: int
    seed: int
    next_action: bool

    def __call__(self, number: int, folder: Path) -> dict[str, Any]:
        data = self.lazy.read(number)
        if self.next_action and data.next_action is None:
            data = data.with_next_action()
        order = generator(self.seed, "scale", "deal", number).permutation(len(data))
        # A random order cut into pieces: the sizes of the pieces are those of dealing in turn.
        held = data.rows.arrays() | {k: v for k, v in data.columns.items() if k == WEIGHT}
        parts = {name: held[name] for name in _FIELDS if name in held}
        columns = [(p if p.ndim == 2 else p[:, None]).astype(np.float32) for p in parts.values()]
        with atomic_path(part_path(folder, number, ".npy"), force=True) as part:
            np.save(part, np.concatenate(columns, axis=1)[order])
        return {
            "num_rows": len(data),
            "widths": {name: c.shape[1] for name, c in zip(parts, columns, strict=True)},
            "low": data.action.min(axis=0).tolist() if len(data) else None,
            "high": data.action.max(axis=0).tolist() if len(data) else None,
            "provenance": data.provenance.to_json(),
        }
