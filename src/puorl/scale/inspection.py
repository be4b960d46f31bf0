"""Inspect a lazy dataset: every partition by itself, and then joined into one inspection.

Runs of equal values, values at the bounds, gaps of the clock and continuity are judged in each
partition, by its own bounds and median step, and added up. All other numbers are those of all rows
together; only where these are many, copies of rows are counted in a part of them.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.files import atomic_path
from puorl.core.run_folder import decode
from puorl.core.tasks import Workers, part_path
from puorl.data.dataset import Dataset
from puorl.data.inspect import (
    Clock,
    ColumnProfile,
    Continuity,
    Ends,
    EpisodeLengths,
    Inspection,
    Labels,
)
from puorl.data.inspect import find as find_in
from puorl.data.inspect import inspect as inspect_rows
from puorl.data.lazy import LazyDataset
from puorl.data.transitions import Provenance, join_notes, row_hashes
from puorl.data.validate import SOURCE_ROW
from puorl.scale.filtering import run_partitions

_MOST_HASHES = 2**24
"""Rows whose hashes are compared; of more rows, those with every k-th hash are."""
_MOST_TEXTS = 10_000
"""Different values of a text column that are listed for each partition."""


@dataclass(frozen=True, eq=False)
class _Look:
    """Inspect a partition, and write the hashes of its rows."""

    lazy: LazyDataset
    every: int
    """Rows whose hash is a multiple of this are compared."""

    def __call__(self, number: int, folder: Path) -> dict[str, Any]:
        data = self.lazy.read(number)
        row = data.columns[SOURCE_ROW]
        columns = {k: v for k, v in data.columns.items() if k != SOURCE_ROW}
        data = Dataset(data.rows, columns, data.provenance)
        seen = inspect_rows(data) if len(data) else None
        joint = None if seen is None else seen.continuity
        if seen is not None and joint is not None:  # rows are counted over all files
            first = tuple(int(row[i]) for i in joint.first_far)
            seen = dataclasses.replace(seen, continuity=dataclasses.replace(joint, first_far=first))
        hashes = row_hashes(data.rows)
        with atomic_path(part_path(folder, number, ".npy"), force=True) as part:
            np.save(part, hashes[hashes % np.uint64(self.every) == 0])
        lengths = np.unique(data.episode, return_counts=True)[1] if data.episode is not None else []
        texts = {
            name: Counter(column.tolist()).most_common(_MOST_TEXTS)
            for name, column in columns.items()
            if column.dtype.kind == "U"
        }
        return {
            "num_rows": len(data),
            "seen": None if seen is None else seen.to_dict(),
            "lengths": sorted(Counter(np.asarray(lengths).tolist()).items()),
            "texts": texts,
            "provenance": data.provenance.to_json(),
        }


def inspect(
    lazy: LazyDataset, folder: Path, workers: Workers, *, progress: bool = False
) -> Inspection:
    """Inspect all rows of a lazy dataset."""
    every = max(1, math.ceil(lazy.num_rows / _MOST_HASHES))
    task = _Look(lazy, every)
    records = run_partitions(task, lazy, folder, workers, "inspecting", progress=progress)
    parts = [decode(Inspection, r["seen"], folder) for r in records if r["num_rows"]]
    origins = [Provenance.from_json(r["provenance"], source=str(folder)) for r in records]
    hashes = np.concatenate([np.load(part_path(folder, i, ".npy")) for i in range(len(records))])
    hashes.sort()
    texts: dict[str, Counter[str]] = {}
    for record in records:
        for name, found in record["texts"].items():
            texts.setdefault(name, Counter()).update(dict(found))
    first = parts[0]
    notes = [*lazy.notes, *(note for origin in origins for note in origin.notes)]
    if every > 1:
        notes.append(f"copies of rows are estimated from every {every}th of all hashes")
    seen = dataclasses.replace(
        first,
        source=tuple(source.path for source in lazy.sources),
        fingerprint=lazy.fingerprint,
        num_rows=sum(part.num_rows for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        episodes=_lengths([record["lengths"] for record in records]),
        columns=tuple(_column(k, parts, texts) for k in range(len(first.columns))),
        clock=_clock([part.clock for part in parts], lazy.step),
        ends=_ends([part.ends for part in parts]),
        continuity=_continuity([part.continuity for part in parts]),
        num_duplicated_rows=every * int(np.count_nonzero(hashes[1:] == hashes[:-1])),
        labels=_labels(parts),
        notes=join_notes(notes),
    )
    return dataclasses.replace(seen, findings=tuple(find_in(seen)))


def _lengths(counted: Sequence[Sequence[Sequence[int]]]) -> EpisodeLengths | None:
    total: Counter[int] = Counter()
    for part in counted:
        for length, number in part:
            total[length] += number
    if not total:
        return None
    length = np.array(sorted(total))
    ends = np.cumsum([total[each] for each in length.tolist()])
    middle = np.searchsorted(ends, [(ends[-1] - 1) // 2, ends[-1] // 2], side="right")
    median = float(length[middle].mean())
    return EpisodeLengths(int(ends[-1]), int(length[0]), median, int(length[-1]))


def _column(
    place: int, parts: Sequence[Inspection], texts: dict[str, Counter[str]]
) -> ColumnProfile:
    """Join the statistics of one column."""
    mine = [part.columns[place] for part in parts]
    first, num_rows = mine[0], np.array([part.num_rows for part in parts], float)
    if first.name in texts:
        found = texts[first.name]
        common = tuple(text for text, _ in found.most_common(len(first.common) or 3))
        return dataclasses.replace(
            first, constant=len(found) == 1, num_distinct=len(found), common=common
        )
    known = [c for c in mine if c.mean is not None]
    weight = np.array(
        [n - c.num_unknown - c.num_infinite for c, n in zip(mine, num_rows, strict=True)]
    )
    weight = weight[[c.mean is not None for c in mine]]
    if not known:
        return first
    mean, std = (np.array([getattr(c, name) for c in known]) for name in ("mean", "std"))
    centre = float(np.average(mean, weights=weight))
    spread = math.sqrt(float(np.average(std**2 + (mean - centre) ** 2, weights=weight)))
    low, high = min(c.min or 0.0 for c in known), max(c.max or 0.0 for c in known)
    at_bound = sum(
        n * (1.0 if c.constant else c.bound_fraction or 0.0)
        for c, n in zip(mine, num_rows, strict=True)
        if low in (c.min, c.max) or high in (c.min, c.max)
    )
    runs = [
        (c.longest_run, (c.stuck_fraction or 0.0) * n) for c, n in zip(mine, num_rows, strict=True)
    ]
    is_number = first.kind == "number"
    decimals, step = _rounding(known) if is_number and low != high else (None, None)
    longest = [run for run, _ in runs if run is not None]
    return dataclasses.replace(
        first,
        num_unknown=sum(c.num_unknown for c in mine),
        num_infinite=sum(c.num_infinite for c in mine),
        min=low,
        max=high,
        mean=centre,
        std=spread,
        constant=all(c.constant for c in mine) and low == high,
        longest_run=max(longest) if longest else None,
        stuck=any(c.stuck for c in mine),
        stuck_fraction=sum(rows for _, rows in runs) / num_rows.sum() if longest else None,
        bound_fraction=at_bound / num_rows.sum() if is_number and low != high else None,
        decimals=decimals,
        step=step,
    )


def _rounding(parts: Sequence[ColumnProfile]) -> tuple[int | None, float | None]:
    """Join decimals and steps: the step divides those of all parts, and their differences."""
    varying = [c for c in parts if c.min != c.max]
    if any(c.decimals is None for c in varying) or not varying:
        return None, None
    decimals = max(c.decimals or 0 for c in varying)
    scale, base = 10.0**decimals, parts[0].min or 0.0
    offsets = [((c.min or 0.0) - base) * scale for c in parts]
    if any(abs(offset - round(offset)) > 1e-3 for offset in offsets):
        return None, None
    steps = [round((c.step or 0.0) * scale) for c in varying]
    return decimals, math.gcd(*steps, *map(round, offsets)) / scale


def _sums(parts: Sequence[Any]) -> dict[str, int | None]:
    """Add up all counts of several dataclasses of one kind; None where one is unknown."""
    names = [each.name for each in dataclasses.fields(parts[0]) if each.name.startswith("num_")]
    found = {name: [getattr(part, name) for part in parts] for name in names}
    return {name: None if None in each else sum(each) for name, each in found.items()}


def _clock(parts: Sequence[Clock | None], step: float | None) -> Clock | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    least = [part.step_min for part in known if part.step_min is not None]
    most = [part.step_max for part in known if part.step_max is not None]
    median = step if step is not None and math.isfinite(step) else None
    ends = {"step_min": min(least, default=None), "step_max": max(most, default=None)}
    return dataclasses.replace(known[0], step_median=median, **ends, **_sums(known))


def _ends(parts: Sequence[Ends]) -> Ends:
    lengths = [part.terminal_lengths for part in parts if part.terminal_lengths is not None]
    both = (min(a for a, _ in lengths), max(b for _, b in lengths)) if lengths else None
    return dataclasses.replace(parts[0], terminal_lengths=both, **_sums(parts))


def _continuity(parts: Sequence[Continuity | None]) -> Continuity | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    first = tuple(row for part in known for row in part.first_far)
    joint = dataclasses.replace(
        known[0],
        first_far=first[: max(len(part.first_far) for part in known)],
        largest=max(part.largest for part in known),
        **_sums(known),
    )
    return dataclasses.replace(joint, in_order=joint.num_far <= 0.5 * joint.num_pairs)


def _labels(parts: Sequence[Inspection]) -> Labels | None:
    known = [part.labels for part in parts if part.labels is not None]
    if not known:
        return None
    joint = dataclasses.replace(known[0], **_sums(known))
    return dataclasses.replace(
        joint, fraction=joint.num_rows / sum(part.num_rows for part in parts)
    )
