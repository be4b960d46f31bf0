"""The audit of a dataset: what is in it, and what a careful person would ask about it.

Nothing is changed or repaired. Every check is one pass over a column or a chunk of rows.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from puorl.core.errors import DataError
from puorl.data.column_profile import ColumnProfile, profile_column
from puorl.data.dataset import Dataset
from puorl.data.episodes import MAX_STEP, succession
from puorl.data.findings import Finding, find
from puorl.data.transitions import Transitions
from puorl.data.validate import LABELLED

_CHUNK = 65_536
_CLOSE = 1e-5
"""Two states that differ by less than this share of a column's size differ by rounding only."""
_FIRST = 5


@dataclass(frozen=True)
class EpisodeLengths:
    """How many episodes there are and how many rows they have."""

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
    """Where the task ended and where the record was cut."""

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
    """Whether ``next_obs`` is the following row's ``obs`` inside an episode."""

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
    """Rows known to be the target's."""

    num_rows: int
    share: float
    num_episodes: int | None


@dataclass(frozen=True)
class Inspection:
    """Everything that `inspect` saw; `to_dict` is JSON-ready."""

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
        """Plain dicts, lists, numbers and text; NaN and infinity become None."""
        return _plain(dataclasses.asdict(self))


@np.errstate(over="ignore", invalid="ignore")  # absurd values are shown as they are, not warned of
def inspect(dataset: Dataset) -> Inspection:
    """Look at every column, every end and every step of ``dataset``.

    >>> import numpy as np
    >>> ds = Dataset.from_arrays(obs=np.arange(9.0).reshape(9, 1), action=np.ones((9, 1)))
    >>> seen = inspect(ds)
    >>> seen.num_rows, seen.continuity.num_different, [c.name for c in seen.columns if c.constant]
    (8, 0, ['action[0]'])

    Raises:
        DataError: The dataset has no rows.
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
        num_duplicated_rows=_num_duplicated(rows),
        labels=_labels(dataset),
        missing=dataset.provenance.missing,
        notes=dataset.provenance.notes,
    )
    return dataclasses.replace(seen, findings=tuple(find(seen)))


@dataclass(frozen=True)
class _Path:
    """Rows one after the other, episode by episode."""

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
        inside_terminal = int(np.count_nonzero(terminal_on[:-1] & path.same))
        inside_timeout = int(np.count_nonzero(timeout_on[:-1] & path.same))
        last = np.concatenate([np.flatnonzero(~path.same), [len(rows) - 1]])
        num_open = int(np.count_nonzero(~(terminal_on | timeout_on)[last]))
        ended = np.diff(np.concatenate([[-1], last]))[terminal_on[last]]
        lengths = (int(ended.min()), int(ended.max())) if len(ended) else None
    return Ends(
        num_terminal=int(terminal.sum()),
        num_timeout=int(timeout.sum()),
        num_both=int(np.count_nonzero(terminal & timeout)),
        num_next_unknown=_num_unknown(rows.next_obs),
        num_terminal_inside=inside_terminal,
        num_timeout_inside=inside_timeout,
        num_open=num_open,
        terminal_lengths=lengths,
    )


def _num_unknown(next_obs: np.ndarray) -> int:
    return sum(int(np.isnan(chunk).any(axis=1).sum()) for chunk in _chunks(next_obs))


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


def _num_duplicated(rows: Transitions) -> int:
    """Rows that repeat an earlier one, told by a 64-bit hash of their values.

    Any two different rows among a million share a hash with a chance of about 3 in 10^8.
    """
    parts = [rows.obs, rows.action, rows.next_obs]
    parts += [a[:, None] for a in (rows.reward, rows.terminal) if a is not None]
    hashes = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        mixed = np.full(len(hashes[chunk]), 0x9E3779B97F4A7C15, np.uint64)
        for part in parts:
            # Adding zero makes -0.0 and 0.0 the same value, as they are.
            bits = (np.ascontiguousarray(part[chunk].T, dtype=np.float64) + 0.0).view(np.uint64)
            for column in bits:
                mixed ^= column
                mixed *= np.uint64(0xBF58476D1CE4E5B9)
                mixed ^= mixed >> np.uint64(31)
        hashes[chunk] = mixed
    hashes.sort()
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))


def _labels(dataset: Dataset) -> Labels | None:
    labelled = dataset.columns.get(LABELLED)
    if labelled is None or labelled.dtype != bool:
        return None
    num_episodes = None
    if dataset.episode is not None:
        num_episodes = len(np.unique(dataset.episode[labelled]))
    return Labels(int(labelled.sum()), float(labelled.mean()), num_episodes)


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + _CHUNK] for start in range(0, len(array), _CHUNK))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
