"""Inspect a dataset: statistics of columns, ends, time steps, duplicates, and findings in words.

Nothing is changed or repaired. Every check is one pass over a column or a chunk of rows.
"""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from puorl.core.errors import DataError, require
from puorl.core.formatting import fields_as_json
from puorl.data import csv
from puorl.data.actions import base_name
from puorl.data.columns import typed
from puorl.data.dataset import Dataset
from puorl.data.episodes import succession
from puorl.data.transitions import MAX_STEP, Note, Transitions, count_copies
from puorl.data.validate import LABELLED

_CHUNK = 65_536
_CLOSE = 1e-5
"""Two states that differ by less than this fraction of a column's size differ by rounding only."""
_FIRST = 5
_MANY_DUPLICATES = 0.001
_OFTEN_AT_BOUND = 0.01
_ENOUGH_TERMINALS = 5
_MOST_NAMED = 8
STUCK_RUN = 10
"""A run of this many equal values is suspicious in a column that otherwise changes every row."""
MAX_DECIMALS = 6
"""Largest number of decimals for which rounding is detected."""
_SAMPLE = 4096
MOST_RAW_ROWS = 100_000
"""Rows of a table that `raw_columns` looks at."""
_MANY_VALUES = 16
"""A column with at most this many different values is a choice, not a measurement."""
_ENOUGH_TO_JUDGE = 8
_COMMON_TEXTS = 3
_LONGEST_EXAMPLE = 40
_DRAWN = "the rows were drawn at random: checks that need their order were skipped"

Level = Literal["info", "warning", "problem"]
"""``problem``: results will be wrong; ``warning``: needs a look; ``info``: good to know."""


@dataclass(frozen=True)
class Finding:
    """One sentence about the data."""

    level: Level
    text: str


@dataclass(frozen=True)
class ColumnProfile:
    """Statistics of one column; None where they are not defined."""

    name: str
    kind: str
    """``number``, ``flag`` or ``text``."""
    num_unknown: int = 0
    """Values that are NaN."""
    num_infinite: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    constant: bool = False
    longest_run: int | None = None
    """Longest run of equal values inside an episode, values at the column's bounds excluded."""
    stuck: bool = False
    """The column usually changes from row to row, but has a run of at least `STUCK_RUN`."""
    stuck_fraction: float | None = None
    """Fraction of rows inside such runs."""
    bound_fraction: float | None = None
    """Fraction of rows exactly at the column's minimum or maximum."""
    decimals: int | None = None
    """All values have at most this many decimals."""
    step: float | None = None
    """All values of a rounded column differ by whole multiples of this."""
    num_distinct: int | None = None
    """Number of different values of a text column."""
    common: tuple[str, ...] = ()
    """Most frequent values of a text column."""

    def remarks(self) -> Iterator[str]:
        """Yield what stands out in the column, a few words each."""
        if self.kind == "text":
            common = ", ".join(text or "''" for text in self.common)
            yield f"{self.num_distinct:,} texts, e.g. {common}"
        if self.constant:
            yield "constant"
        if self.num_unknown:
            yield f"{self.num_unknown:,} NaN"
        if self.num_infinite:
            yield f"{self.num_infinite:,} infinite"
        if self.stuck:
            yield f"stuck up to {self.longest_run:,} rows"
        if self.step is not None:
            is_whole = self.step == 1 and self.decimals == 0
            yield "whole numbers" if is_whole else f"rounded to {self.step:g}"


@dataclass(frozen=True)
class EpisodeLengths:
    """Number of episodes and of their rows."""

    count: int
    shortest: int
    median: float
    longest: int


@dataclass(frozen=True)
class Clock:
    """Time steps between rows of one episode."""

    step_median: float | None
    step_min: float | None
    step_max: float | None
    num_gaps: int
    """Steps longer than 1.5 median steps."""
    num_resets: int
    """Steps backwards."""
    num_duplicated: int
    """Steps of zero: two rows with the same time."""


@dataclass(frozen=True)
class Ends:
    """Numbers of rows where the task ended and where the record was cut."""

    num_terminal: int
    num_timeout: int
    num_both: int
    num_next_unknown: int
    """Terminal rows whose next state was not recorded."""
    num_terminal_inside: int | None
    """Terminal rows that are not the last of their episode."""
    num_timeout_inside: int | None
    num_open: int | None
    """Episodes that end with neither flag."""
    terminal_lengths: tuple[int, int] | None
    """Shortest and longest episode that ends in a terminal row."""


@dataclass(frozen=True)
class Continuity:
    """Comparison of ``next_obs`` with the following row's ``obs`` inside episodes."""

    num_pairs: int
    num_different: int
    """Pairs in which any value differs at all."""
    num_far: int
    """Pairs in which a value differs by more than rounding."""
    first_far: tuple[int, ...]
    """First rows whose next state is far from the following row's state."""
    largest: float
    """Largest difference of any value."""
    in_order: bool
    """False when most pairs do not fit: the rows were drawn at random, or next_obs is wrong."""


@dataclass(frozen=True)
class Labels:
    """Labelled rows: known to be of the target domain."""

    num_rows: int
    fraction: float
    num_episodes: int | None


@dataclass(frozen=True)
class Inspection:
    """All results of `inspect`."""

    source: tuple[str, ...]
    format: str
    fingerprint: str
    num_rows: int
    obs_dim: int
    action_dim: int
    dtype: str
    num_bytes: int
    episodes: EpisodeLengths | None
    columns: tuple[ColumnProfile, ...]
    clock: Clock | None
    ends: Ends
    continuity: Continuity | None
    """None where episodes are unknown."""
    num_duplicated_rows: int
    """Rows equal to an earlier one in state, action, reward, next state and terminal flag."""
    labels: Labels | None
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready content; NaN and infinity become None."""
        return fields_as_json(self)


@np.errstate(over="ignore", invalid="ignore")  # absurd values are shown, not warned of
def inspect(dataset: Dataset) -> Inspection:
    """Compute statistics of every column, end and time step of ``dataset``.

    >>> import numpy as np
    >>> ds = Dataset.from_arrays(obs=np.arange(9.0).reshape(9, 1), action=np.ones((9, 1)))
    >>> found = inspect(ds)
    >>> found.num_rows, [column.name for column in found.columns if column.constant]
    (8, ['action[0]'])
    """
    rows = dataset.rows
    if len(rows) == 0:
        raise DataError("expected at least one row to inspect, got none")
    path = _Path.of(rows)
    continuity = None if path is None else _continuity(rows, path)
    ordered = path if continuity is not None and continuity.in_order else None
    follows = None if ordered is None else ordered.follows
    columns = tuple(
        profile_column(name, ordered.sorted(values) if ordered else values, follows)
        for name, values in _columns(dataset)
    )
    seen = Inspection(
        source=dataset.provenance.source,
        format=dataset.provenance.format,
        fingerprint=dataset.fingerprint,
        num_rows=len(rows),
        obs_dim=rows.obs.shape[1],
        action_dim=rows.action.shape[1],
        dtype=str(rows.obs.dtype),
        num_bytes=rows.nbytes,
        episodes=_episode_lengths(rows),
        columns=columns,
        clock=_clock(rows, ordered),
        ends=_ends(rows, ordered),
        continuity=continuity,
        num_duplicated_rows=count_copies(rows),
        labels=_labels(dataset),
        missing=dataset.provenance.missing,
        notes=dataset.provenance.notes,
    )
    return dataclasses.replace(seen, findings=tuple(find(seen)))


@dataclass(frozen=True)
class _Path:
    """Order of rows, episode by episode."""

    order: np.ndarray | None
    same: np.ndarray
    """(n - 1,) bool over ``order``: the next row belongs to the same episode."""
    follows: np.ndarray
    """``same``, and neither the task nor the record ended between the two."""

    @classmethod
    def of(cls, rows: Transitions) -> "_Path | None":
        if rows.episode is None:
            return None
        order = succession({k: v for k, v in rows.arrays().items() if k != "time"}).order
        episode, ended = rows.episode, rows.terminal | rows.timeout
        if order is not None:
            episode, ended = episode[order], ended[order]
        same = episode[1:] == episode[:-1]
        return cls(order, same, same & ~ended[:-1])

    def sorted(self, values: np.ndarray) -> np.ndarray:
        return values if self.order is None else values[self.order]


def _columns(dataset: Dataset) -> Iterator[tuple[str, np.ndarray]]:
    names = dataset.provenance
    for field, labels in (("obs", names.obs_names), ("action", names.action_names)):
        if field == "action" and dataset.action_codes is not None:
            codes = np.array(dataset.action_codes)
            yield base_name(labels, dataset.action_codes), codes[dataset.action_index]
            continue
        matrix = getattr(dataset, field)
        for i in range(matrix.shape[1]):
            yield (labels[i] if i < len(labels) else f"{field}[{i}]"), matrix[:, i]
    if dataset.reward is not None:
        yield "reward", dataset.reward
    yield from dataset.columns.items()


def _episode_lengths(rows: Transitions) -> EpisodeLengths | None:
    if rows.episode is None:
        return None
    _, counts = np.unique(rows.episode, return_counts=True)
    return EpisodeLengths(
        len(counts), int(counts.min()), float(np.median(counts)), int(counts.max())
    )


def _clock(rows: Transitions, path: _Path | None) -> Clock | None:
    if rows.time is None or path is None:
        return None
    dt = np.diff(path.sorted(rows.time))[path.same]
    forward = dt[dt > 0]
    median = float(np.median(forward)) if len(forward) else None
    return Clock(
        step_median=median,
        step_min=float(dt.min()) if len(dt) else None,
        step_max=float(dt.max()) if len(dt) else None,
        num_gaps=0 if median is None else int(np.count_nonzero(dt > MAX_STEP * median)),
        num_resets=int(np.count_nonzero(dt < 0)),
        num_duplicated=int(np.count_nonzero(dt == 0)),
    )


def _ends(rows: Transitions, path: _Path | None) -> Ends:
    terminal, timeout = rows.terminal, rows.timeout
    inside_terminal = inside_timeout = num_open = lengths = None
    if path is not None:
        terminal_on, timeout_on = path.sorted(terminal), path.sorted(timeout)
        inside_terminal = int((terminal_on[:-1] & path.same).sum())
        inside_timeout = int((timeout_on[:-1] & path.same).sum())
        last = np.append(np.flatnonzero(~path.same), len(rows) - 1)
        num_open = int((~(terminal_on | timeout_on)[last]).sum())
        ended = np.diff(last, prepend=-1)[terminal_on[last]]
        lengths = (int(ended.min()), int(ended.max())) if len(ended) else None
    return Ends(
        num_terminal=int(terminal.sum()),
        num_timeout=int(timeout.sum()),
        num_both=int((terminal & timeout).sum()),
        num_next_unknown=int((~rows.next_known).sum()),
        num_terminal_inside=inside_terminal,
        num_timeout_inside=inside_timeout,
        num_open=num_open,
        terminal_lengths=lengths,
    )


def _continuity(rows: Transitions, path: _Path) -> Continuity:
    size = np.maximum(np.abs(rows.obs.max(axis=0)), np.abs(rows.obs.min(axis=0)))
    allowed = _CLOSE * np.maximum(size.astype(np.float64), np.finfo(np.float32).tiny)
    num_different, first_far, num_far, largest = 0, [], 0, 0.0
    for start in range(0, len(rows) - 1, _CHUNK):
        stop = min(start + _CHUNK, len(rows) - 1)
        kept = path.follows[start:stop]
        if path.order is None:
            now, then = slice(start, stop), slice(start + 1, stop + 1)
        else:
            now, then = path.order[start:stop], path.order[start + 1 : stop + 1]
        gap = np.abs(rows.next_obs[now].astype(np.float64) - rows.obs[then])[kept]
        if not gap.size:
            continue
        largest = max(largest, float(gap.max()))
        num_different += int(np.count_nonzero((gap > 0).any(axis=1)))
        far = np.flatnonzero(kept)[(gap > allowed).any(axis=1)] + start
        num_far += len(far)
        first = far[: _FIRST - len(first_far)]
        first_far += (first if path.order is None else path.order[first]).tolist()
    num_pairs = int(path.follows.sum())
    return Continuity(
        num_pairs=num_pairs,
        num_different=num_different,
        num_far=num_far,
        first_far=tuple(first_far),
        largest=largest,
        in_order=num_far <= 0.5 * num_pairs,
    )


def _labels(dataset: Dataset) -> Labels | None:
    labelled = dataset.columns.get(LABELLED)
    if labelled is None or labelled.dtype != bool:
        return None
    episode = dataset.episode
    num_episodes = None if episode is None else len(np.unique(episode[labelled]))
    return Labels(int(labelled.sum()), float(labelled.mean()), num_episodes)


# ------------------------------------------------------------------------ one column


def profile_column(name: str, values: np.ndarray, follows: np.ndarray | None) -> ColumnProfile:
    """Compute the statistics of one column.

    Args:
        name: Name of the column.
        values: (n,) numbers, flags or text, in the order of `follows`.
        follows: (n - 1,) bool. The next value is the next step of the same episode; None where
            the order has no meaning.
    """
    if values.dtype.kind == "U":
        counts = Counter(values.tolist())
        common = tuple(str(text) for text, _ in counts.most_common(_COMMON_TEXTS))
        num = len(counts)
        return ColumnProfile(name, "text", constant=num == 1, num_distinct=num, common=common)
    if values.dtype.kind == "b":
        fraction = float(values.mean())
        return ColumnProfile(
            name,
            "flag",
            min=float(values.min()),
            max=float(values.max()),
            mean=fraction,
            std=float(np.sqrt(fraction * (1 - fraction))),
            constant=fraction in (0.0, 1.0),
        )
    return _profile_numbers(name, values, follows)


def _profile_numbers(name: str, values: np.ndarray, follows: np.ndarray | None) -> ColumnProfile:
    eps = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
    x = np.ascontiguousarray(values, dtype=np.float64)
    finite = x if np.isfinite(x.sum()) else x[np.isfinite(x)]
    num_unknown = int(np.isnan(x).sum()) if finite is not x else 0
    num_infinite = len(x) - len(finite) - num_unknown
    if len(finite) == 0:
        return ColumnProfile(name, "number", num_unknown=num_unknown, num_infinite=num_infinite)
    low, high = float(finite.min()), float(finite.max())
    constant = low == high and len(finite) == len(x)
    longest = stuck_fraction = decimals = step = None
    stuck = False
    if follows is not None and not constant:
        longest, stuck_fraction, stuck = _runs(x, follows, low, high)
    if low != high:
        decimals, step = _rounding(finite, eps, max(abs(low), abs(high)))
    at_bound = np.count_nonzero(finite == low) + np.count_nonzero(finite == high)
    return ColumnProfile(
        name,
        "number",
        num_unknown=num_unknown,
        num_infinite=num_infinite,
        min=low,
        max=high,
        mean=float(finite.mean()),
        std=float(finite.std()),
        constant=constant,
        longest_run=longest,
        stuck=stuck,
        stuck_fraction=stuck_fraction,
        bound_fraction=None if low == high else at_bound / len(x),
        decimals=decimals,
        step=step,
    )


def _runs(x: np.ndarray, follows: np.ndarray, low: float, high: float) -> tuple[int, float, bool]:
    """Return the longest run, the fraction of rows in long runs, and if these look stuck."""
    # Runs at the column's bounds are saturation (a clipped action), not a dead sensor.
    starts = np.append(0, np.flatnonzero(~((x[1:] == x[:-1]) & follows)) + 1)
    lengths = np.diff(starts, append=len(x))
    inner = (x[starts] != low) & (x[starts] != high)
    if not inner.any():
        return 1, 0.0, False
    longest = int(lengths[inner].max())
    long_rows = int(lengths[inner & (lengths >= STUCK_RUN)].sum())
    usually_changes = np.count_nonzero(lengths == 1) >= 0.5 * len(lengths)
    is_measured = len(np.unique(_sample(x))) > _MANY_VALUES
    stuck = bool(longest >= STUCK_RUN and usually_changes and is_measured)
    return longest, long_rows / len(x), stuck


def _sample(x: np.ndarray) -> np.ndarray:
    return x[:: max(1, len(x) // _SAMPLE)]


def _rounding(x: np.ndarray, eps: float, largest: float) -> tuple[int | None, float | None]:
    """Return the fewest decimals that hold every value and their step; None if not rounded."""
    for decimals in range(MAX_DECIMALS + 1 if len(x) >= _ENOUGH_TO_JUDGE else 0):
        scale = 10.0**decimals
        # Beyond this the spacing of floats would count as rounding.
        if max(eps, np.finfo(np.float64).eps) * largest * scale > 0.01:
            break
        if _are_multiples(_sample(x), scale, eps) and _are_multiples(x, scale, eps):
            whole = np.rint(x * scale).astype(np.int64)
            return decimals, float(np.gcd.reduce(whole - whole[0]) / scale)
    return None, None


def _are_multiples(x: np.ndarray, scale: float, eps: float) -> bool:
    scaled = x * scale
    allowed = 2 * max(eps, np.finfo(np.float64).eps) * np.abs(scaled)
    return bool((np.abs(scaled - np.rint(scaled)) <= allowed).all())


# ------------------------------------------------------------------------- raw columns


class RawColumn(NamedTuple):
    """A column of a table, before anything is known of its meaning."""

    name: str
    kind: str
    """``number``, ``flag``, ``time`` or ``text``."""
    examples: tuple[str, ...]
    num_empty: int


def raw_columns(path: Path, *, is_parquet: bool, encoding: str | None = None) -> list[RawColumn]:
    """Describe the columns of a text table or a Parquet file by its first rows.

    Raises:
        DataError: The file cannot be read.
    """
    if is_parquet:
        parquet = require("pyarrow.parquet", extra="parquet", purpose="reading Parquet files")
        with parquet.ParquetFile(path) as file:
            table, header = next(file.iter_batches(MOST_RAW_ROWS), None), file.schema_arrow.names
            cells = [_as_cells(column) for column in (() if table is None else table.columns)]
        cells = cells or [[]] * len(header)
    else:
        with csv.reading_text(path, "CSV file"), csv.open_text(path, encoding) as text:
            delimiter, header, _ = csv.read_header(text.lines, str(path))
            try:
                rows = list(islice(reader(text.lines, delimiter=delimiter), MOST_RAW_ROWS))
            except CsvError as error:
                raise DataError(f"{path}: expected a text table, got: {error}") from error
        cells = [[row[k] for row in rows if k < len(row)] for k in range(len(header))]
    return [_raw_column(*pair) for pair in zip(header, cells, strict=True)]


def _as_cells(column: Any) -> list[str]:
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _raw_column(name: str, cells: Sequence[str]) -> RawColumn:
    filled = [cell for cell in cells if cell.strip().lower() not in ("", "nan")]
    kind = {"b": "flag", "U": "text"}.get(typed(cells).dtype.kind, "number")
    if kind == "text" and filled:
        with contextlib.suppress(ValueError):
            kind = "time" if datetime.fromisoformat(filled[0].strip()) else kind
    examples = tuple(each[:_LONGEST_EXAMPLE] for each in dict.fromkeys(filled))[:_COMMON_TEXTS]
    return RawColumn(name, kind, examples, len(cells) - len(filled))


# --------------------------------------------------------------------------- findings

_Sentences = Iterator[tuple[Level, str]]


def find(seen: Inspection, *, leaves_out: bool = False) -> list[Finding]:
    """List all findings, the most serious first.

    Args:
        seen: The statistics.
        leaves_out: The user has said what to do about missing cells.
    """
    on_missing = partial(_on_missing, leaves_out=leaves_out)
    checks = (on_missing, _on_ends, _on_continuity, _on_columns, _on_clock, _on_rows)
    found = [Finding(*sentence) for check in checks for sentence in check(seen)]
    rank = {"problem": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: rank[finding.level])


def _on_missing(seen: Inspection, *, leaves_out: bool) -> _Sentences:
    missing, kinds = set(seen.missing), _counted(seen)
    if num_bad := kinds.get("missing_rows"):
        text = f"{num_bad:,} row{'s have' if num_bad > 1 else ' has'} cells that are missing or no "
        advice = (
            "left out here; filter and train leave them out with --missing drop, or fill what "
            "they can with --missing hold"
        )
        if leaves_out:
            yield "info", f"{text}numbers: left out, as --missing says"
        else:
            yield "problem", f"{text}numbers: {advice}"
    if "reward" in missing:
        text = "no reward: the filter and bc work without it, other learners need --reward"
        yield "warning", text
    if "terminal" in missing:
        yield "warning", "no terminal flags: every row is taken as if the task went on"
    if "timeout" in missing and seen.ends.num_timeout:
        cuts = f"{seen.ends.num_timeout:,} rows"
        yield "info", f"no timeout flags: a cut is marked only where the record breaks off ({cuts})"
    elif "timeout" in missing:
        yield "info", "no timeout flags: where the record was cut is not marked"
    if "next_obs" in missing and kinds.keys() & {"no_breaks", "no_timeouts"}:
        # Rows of different episodes may have been joined into transitions that never happened.
        cause = "no next states, episode key or cuts"
        yield "warning", f"{cause}: every row is taken to follow the row before it"
    elif "next_obs" in missing:
        yield "info", "no next states: taken from the following row of the episode"
    if seen.episodes is None and seen.format == "split":
        yield "info", _DRAWN
    elif seen.episodes is None:
        yield "warning", "episodes are unknown: nothing that needs their order was checked"


def _on_ends(seen: Inspection) -> _Sentences:
    ends, episodes = seen.ends, seen.episodes
    if ends.num_both:
        yield "warning", f"{_rows(ends.num_both)} both terminal and timeout; terminal counts"
    if ends.num_terminal_inside:
        place = f"{_rows(ends.num_terminal_inside)} terminal but not the last of their episode"
        yield "problem", f"{place}: check the terminal flag and the episode key"
    if ends.num_timeout_inside:
        yield "info", f"{_rows(ends.num_timeout_inside)} cut (timeout) inside an episode"
    if ends.num_next_unknown:
        yield "info", f"the next state is unknown in {ends.num_next_unknown:,} terminal rows"
    if episodes is None:
        return
    if ends.num_open and not {"terminal", "timeout"} <= set(seen.missing):
        # The last episode of a file is often cut off; more than one is unusual.
        which = f"{ends.num_open:,} of {episodes.count:,} episodes"
        level: Level = "info" if ends.num_open == 1 else "warning"
        yield level, f"{which} end with neither terminal nor timeout"
    only = ends.terminal_lengths == (episodes.longest, episodes.longest)
    enough = ends.num_terminal >= _ENOUGH_TERMINALS and episodes.longest > 1
    if only and enough and ends.num_terminal_inside == 0:
        yield (
            "warning",
            f"all {ends.num_terminal:,} terminal rows come after exactly {episodes.longest:,} "
            "rows: these look like time limits, which belong in timeout",
        )


def _on_continuity(seen: Inspection) -> _Sentences:
    joint = seen.continuity
    if joint is None or joint.num_different == 0:
        return
    steps = f"{joint.num_far:,} of {joint.num_pairs:,} steps inside episodes"
    if not joint.in_order and seen.format == "split":
        yield "info", _DRAWN
    elif not joint.in_order:
        yield (
            "warning",
            f"next_obs is not the following row's obs in {steps}: the rows stand in random order, "
            "or next_obs is wrong; checks that need the order were skipped",
        )
    elif joint.num_far:
        first = ", ".join(map(str, joint.first_far))
        yield (
            "problem",
            f"next_obs is not the following row's obs in {steps} (first rows: {first}; largest "
            f"difference {joint.largest:.3g}): breaks that no flag marks, or a wrong next_obs",
        )
    else:
        yield (
            "info",
            "next_obs and the following row's obs differ by rounding in "
            f"{joint.num_different:,} of {joint.num_pairs:,} steps (largest difference "
            f"{joint.largest:.3g})",
        )


def _on_columns(seen: Inspection) -> _Sentences:
    columns = seen.columns
    if unknown := [c.name for c in columns if c.num_unknown or c.num_infinite]:
        yield "warning", f"NaN or infinite values in {_listed(unknown)}"
    if constant := [c.name for c in columns if c.constant]:
        yield "warning", f"constant, so without information: {_listed(constant)}"
    for c in columns:
        if c.stuck:
            run = f"the same value up to {c.longest_run or 0:,} rows in a row"
            often = f"{c.stuck_fraction or 0:.2%} of rows in runs of {STUCK_RUN} or more"
            yield "warning", f"{c.name} seems stuck: {run}, and {often}"
    if rounded := [f"{c.name} ({c.step:g})" for c in columns if c.step not in (None, 1)]:
        yield "info", f"rounded, with their steps: {_listed(rounded)}"
    often_at_bound = [
        f"{c.name} ({c.bound_fraction:.1%} of rows)"
        for c in columns
        if c.decimals is None and (c.bound_fraction or 0) >= _OFTEN_AT_BOUND
    ]
    if often_at_bound:
        yield "info", f"often exactly at their minimum or maximum: {_listed(often_at_bound)}"


def _on_clock(seen: Inspection) -> _Sentences:
    clock = seen.clock
    if clock is None:
        return
    if clock.num_gaps:
        steps = f"median step {clock.step_median:g}, longest {clock.step_max:g}"
        counted, plural = _counted(seen), "s" * (clock.num_gaps != 1)
        text = f"{clock.num_gaps:,} gap{plural} in time inside episodes"
        logged = counted.get("time_gaps", 0)
        if not logged and counted.get("missing_rows"):
            left = "between the rows that are left: the whole log has none wider than --gap"
            yield "info", f"{text} {left} ({steps})"
        else:
            left = " between the rows that are left" if logged not in (0, clock.num_gaps) else ""
            yield "warning", f"{text}{left} ({steps})"
    if clock.num_resets:
        yield "warning", f"the clock runs backwards {clock.num_resets:,} times"
    if clock.num_duplicated:
        yield "warning", f"{_rows(clock.num_duplicated)} at the same time as the row before"


def _on_rows(seen: Inspection) -> _Sentences:
    if seen.num_duplicated_rows:
        fraction = seen.num_duplicated_rows / seen.num_rows
        level: Level = "warning" if fraction > _MANY_DUPLICATES else "info"
        yield level, f"{_rows(seen.num_duplicated_rows)} exact copies of others ({fraction:.2%})"
    if seen.labels is not None and seen.labels.num_rows in (0, seen.num_rows):
        which = "no row is" if seen.labels.num_rows == 0 else "all rows are"
        yield "problem", f"{which} labelled: a filter needs labelled and unlabelled rows"


def _counted(seen: Inspection) -> Counter[str]:
    """Numbers of the notes, by kind."""
    found: Counter[str] = Counter()
    for note in seen.notes:
        if isinstance(note, Note):
            found[note.kind] += note.number
    return found


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


def _rows(number: int) -> str:
    return f"{number:,} row is" if number == 1 else f"{number:,} rows are"
