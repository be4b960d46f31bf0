"""A sample of a lazy dataset to fit on: seeded, spread evenly, with all labelled rows.

Single rows are drawn where rows are decided about, whole episodes where units are; where all rows
of a column's value are a unit, every unit gets the same number of rows, so that none is left out.
Numbers of rows are spread systematically: every stretch of the log has its share, up to one row,
or up to one episode.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.core.stats import Z95, Estimate
from puorl.core.tasks import Workers, part_path, run_tasks
from puorl.data.dataset import Dataset
from puorl.data.episodes import returns_by_end
from puorl.data.formats import load, save
from puorl.data.lazy import LazyDataset
from puorl.data.transitions import Provenance, Transitions
from puorl.data.validate import LABELLED, is_empty
from puorl.pu.units import Unit

SAMPLE_ROWS = 1_000_000
"""Unlabelled rows to fit on."""
_LEAST_ROWS = 2_000
"""Rows of a unit, where units are values of a column, even if the sample becomes larger."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to fit on, and where they stand in all rows."""

    data: Dataset
    num_rows: int
    """Transitions of all files."""
    num_labelled: int
    num_taken: int
    """Unlabelled rows of the sample."""
    returns: tuple[float, float] | None
    """Smallest and largest return of complete episodes of all rows."""

    @property
    def num_unlabelled(self) -> int:
        """Unlabelled transitions of all files."""
        return self.num_rows - self.num_labelled

    def cost(self, alpha: Estimate) -> dict[str, float]:
        """Return what the sample costs: half widths of alpha's interval, with it and without it.

        The fraction of kept rows in the sample differs from that of all rows by chance, as in any
        draw without replacement; the rest of the interval comes from the labelled rows, all of
        which are used. Where whole episodes were drawn, the cost is larger than this.
        """
        left = 1.0 - self.num_taken / max(1, self.num_unlabelled)
        variance = alpha.value * (1.0 - alpha.value) / max(1, self.num_taken)
        own, half = Z95 * math.sqrt(variance * left), alpha.half_width
        rest = math.sqrt(max(0.0, half**2 - own**2)) if math.isfinite(half) else math.nan
        return {"half_width": half, "sampling": own, "without": rest}

    def describe(self, alpha: Estimate) -> str:
        """Return the sentence about the sample and what it costs."""
        cost = self.cost(alpha)
        return (
            f"fitted on {self.num_taken:,} of {self.num_unlabelled:,} unlabelled rows and "
            f"{len(self.data) - self.num_taken:,} of {self.num_labelled:,} labelled ones; drawing "
            f"them adds {cost['sampling']:.2%} to alpha's interval (± {cost['half_width']:.2%} "
            f"with it, about ± {cost['without']:.2%} from all rows)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        names = ("num_rows", "num_labelled", "num_taken")
        return {name: getattr(self, name) for name in names}


def draw_sample(
    lazy: LazyDataset,
    unit: Unit,
    folder: Path,
    workers: Workers,
    *,
    rows: int = SAMPLE_ROWS,
    seed: int = 0,
    progress: bool = False,
) -> Sample:
    """Draw about ``rows`` unlabelled rows, and all labelled ones.

    Args:
        lazy: All rows; opened with ``label=``, unless all are unlabelled.
        unit: What is decided about.
        folder: For the parts of the sample, from which a killed draw goes on.
        workers: Where partitions are read.
        rows: Unlabelled rows to draw.
        seed: Seed of the draw.
        progress: Show bars.
    """
    quotas = _quotas(lazy, unit, folder / "count", workers, rows, seed, progress)
    task = _Draw(lazy, unit, tuple(quotas), seed)
    records = run_tasks(
        task, len(lazy), folder / "rows", workers, title="sampling", progress=progress
    )
    lazy.require_rows(sum(r["rows"] for r in records))
    taken = [i for i, r in enumerate(records) if r["rows"]]
    some = [load(part_path(folder / "rows", i, ".parquet")) for i in taken]
    # Partitions that gave no row may have left some out, and have units without usable rows.
    for record in (r for r in records if not r["rows"]):
        origin = Provenance.from_json(record["provenance"], source=str(folder))
        some.append(dataclasses.replace(some[0][:0], provenance=origin))
    data = Dataset.concatenate(some)
    shared = [record["keys"] for record in records]
    keys = tuple((f, name) for f, name in shared[0] if all([f, name] in each for each in shared))
    return Sample(
        dataclasses.replace(data, provenance=dataclasses.replace(data.provenance, keys=keys)),
        num_rows=sum(r["num_rows"] for r in records),
        num_labelled=sum(r["num_labelled"] for r in records),
        num_taken=sum(r["num_taken"] for r in records),
        returns=_joined_returns([r["returns"] for r in records]),
    )


def _quotas(
    lazy: LazyDataset,
    unit: Unit,
    folder: Path,
    workers: Workers,
    rows: int,
    seed: int,
    progress: bool,
) -> list[dict[str, int]]:
    """Return how many rows every partition gives, by the value of the unit's column."""
    if unit.kind != "column":
        counts = [{"": span.num_rows} for span in lazy.partitions]
    else:
        task = _Count(lazy, unit.column)
        counts = run_tasks(
            task, len(lazy), folder, workers, title="counting units", progress=progress
        )
    total: dict[str, int] = {}
    for each in counts:
        for value, number in each.items():
            total[value] = total.get(value, 0) + number
    least = _LEAST_ROWS if unit.kind == "column" else 0
    share = max(least, rows / max(1, len(total)))
    rate = {value: min(1.0, share / number) for value, number in total.items()}
    shift = generator(seed, "scale", "sample").random(len(total))
    place = dict(zip(sorted(total), shift, strict=True))
    before, quotas = dict.fromkeys(total, 0), []
    for each in counts:
        quota = {}
        for value, number in each.items():
            # Systematic: what all partitions up to here give is right up to one row.
            ends = (before[value], before[value] + number)
            first, last = (math.floor(end * rate[value] + place[value]) for end in ends)
            quota[value] = number if rate[value] == 1.0 else last - first
            before[value] += number
        quotas.append(quota)
    return quotas


@dataclass(frozen=True, eq=False)
class _Count:
    """Count the rows of every unit in a partition."""

    lazy: LazyDataset
    column: str

    def __call__(self, number: int, folder: Path) -> dict[str, int]:
        columns = self.lazy.keys(number).columns
        if self.column not in columns:
            raise DataError(
                f"unit column:{self.column}: expected one of {', '.join(columns) or 'none'}"
            )
        column = columns[self.column]
        values, counts = np.unique(column[~is_empty(column)], return_counts=True)
        return dict(zip(values.astype(str).tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class _Draw:
    """Draw the quota of a partition, and write its rows."""

    lazy: LazyDataset
    unit: Unit
    quotas: tuple[Mapping[str, int], ...]
    seed: int

    def __call__(self, number: int, folder: Path) -> dict[str, Any]:
        data = self.lazy.read(number)
        rng = generator(self.seed, "scale", "sample", number)
        labelled = data.columns.get(LABELLED, np.zeros(len(data), bool))
        chosen = labelled.copy()
        if self.unit.is_row:
            free = np.flatnonzero(~labelled)
            quota = min(len(free), self.quotas[number][""])
            chosen[rng.permutation(free)[:quota]] = True
        elif self.unit.kind == "column":
            values = data.columns[self.unit.column].astype(str)
            chosen[:] = False
            for value, quota in self.quotas[number].items():
                mine = np.flatnonzero(values == value)
                chosen[_episodes_of(data, mine, labelled, quota, rng)] = True
        else:
            # All rows of an episode with a labelled row count as labelled.
            mine = np.arange(len(data))
            chosen[_episodes_of(data, mine, labelled, 0, rng, first=True)] = True
            rest = np.flatnonzero(~chosen)
            chosen[_episodes_of(data, rest, labelled, self.quotas[number][""], rng)] = True
        taken = np.flatnonzero(chosen)
        if len(taken):
            save(data[taken], part_path(folder, number, ".parquet"), force=True)
        return {
            "rows": len(taken),
            "num_rows": len(data),
            "num_labelled": int(labelled.sum()),
            "num_taken": int((chosen & ~labelled).sum()),
            "returns": _returns(data.rows),
            "provenance": None if len(taken) else data.provenance.to_json(),
            "keys": data.provenance.keys,
        }


def _episodes_of(
    data: Dataset,
    mine: np.ndarray,
    labelled: np.ndarray,
    quota: int,
    rng: np.random.Generator,
    *,
    first: bool = False,
) -> np.ndarray:
    """Return rows among ``mine``: whole episodes until the quota is reached, labelled ones first.

    With ``first`` all episodes with a labelled row, whatever the quota is.
    """
    if not len(mine):
        return mine
    ids = np.zeros(len(data), np.int64) if data.episode is None else data.episode
    _, code = np.unique(ids[mine], return_inverse=True)
    size = np.bincount(code)
    is_known = np.bincount(code, labelled[mine]) > 0
    order = rng.permutation(len(size))
    order = order[np.argsort(~is_known[order], kind="stable")]
    before = np.cumsum(size[order]) - size[order]
    wanted = order[is_known[order] if first else before < quota]
    return mine[np.isin(code, wanted)]


def _returns(rows: Transitions) -> dict[str, Any] | None:
    """Return the range of returns of a partition, of episodes that ended and of the longest cut."""
    found = returns_by_end(rows)
    if found is None:
        return None
    ended, cut = found.total[found.ended], found.total[found.cut]
    ends = [[float(a.min()), float(a.max())] if len(a) else None for a in (ended, cut)]
    number = [len(ended), len(cut)]
    return {"longest": found.longest, "number": number, "ended": ends[0], "cut": ends[1]}


def _joined_returns(found: Sequence[dict[str, Any] | None]) -> tuple[float, float] | None:
    """Join the ranges, as `puorl.data.episodes.return_range` finds it for all rows together."""
    known = [each for each in found if each is not None]
    longest = max((each["longest"] for each in known), default=0)
    ends, number = [], 0
    for each in known:
        parts = ["ended", *(["cut"] if each["longest"] == longest else [])]
        for part, count in zip(parts, each["number"], strict=False):
            ends += each[part] or []
            number += count
    return (min(ends), max(ends)) if number > 1 else None
