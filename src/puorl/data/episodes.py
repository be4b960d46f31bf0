"""The order of rows in episodes: next states, episode ids, next actions and returns.

A row is followed by the next row of its episode unless the task ended, the record was cut or the
clock jumped between them. No transition is built across such a break: a row without a recorded
next state is dropped, unless it is terminal and needs none. A note counts the dropped rows.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.data.transitions import MAX_STEP, Note, Transitions


@dataclass(frozen=True)
class Completed:
    """Transitions, and how they were obtained."""

    rows: Transitions
    kept: np.ndarray | None
    """Indices of the source rows that became transitions; None if all did."""
    notes: tuple[str, ...]
    missing: tuple[str, ...]
    """Fields that the source did not have."""


@dataclass(frozen=True)
class Succession:
    """Rows in order, and whether each is the next step of the row before."""

    order: np.ndarray | None
    """Row indices grouped by episode; None if the rows already have this order."""
    follows: np.ndarray
    """(n - 1,) bool over ``order``: there is no break after the row."""
    num_gaps: int
    num_resets: int
    num_repeats: int
    """Time steps of zero within an episode."""


def complete(
    fields: dict[str, np.ndarray],
    *,
    source: str,
    number_episodes: bool = True,
    gap: float = MAX_STEP,
    step: float | None = None,
    valid: np.ndarray | None = None,
    lost: np.ndarray | None = None,
    is_part: bool = False,
) -> Completed:
    """Make transitions of canonical fields, by the rule of the module's docstring.

    Args:
        fields: As `canonical` returns them.
        source: Origin of the rows; messages start with it.
        number_episodes: Number episodes by the breaks where ids are absent.
        gap: A time step longer than this many median steps is a gap.
        step: The median step, where these rows are a part of more; else it is computed.
        valid: (n,) bool. Rows that can be used; no transition is built across the others.
        lost: (n,) bool. Rows of unknown episode, which are not valid.
        is_part: These rows are a part of more, so that none of them need be left.

    Raises:
        DataError: No row has a next state.
    """
    n = len(fields["obs"])
    missing = tuple(k for k in ("reward", "next_obs", "terminal", "timeout") if k not in fields)
    fields = dict(fields)
    for flag in ("terminal", "timeout"):
        fields.setdefault(flag, np.zeros(n, bool))
    order = succession(fields, gap=gap, step=step, valid=valid, lost=lost)
    # A coarse clock repeats stamps all the time, so that is no break; so does a row logged twice.
    counts = {
        "time_gaps": order.num_gaps,
        "clock_resets": order.num_resets,
        "repeated_times": order.num_repeats,
    }
    notes: list[str] = [Note(kind, count) for kind, count in counts.items() if count]
    if "episode" not in fields and number_episodes:
        _number_episodes(fields, order.follows, missing, notes)
    kept = None
    if "next_obs" not in fields:
        kept = _build_next_obs(fields, order, notes, valid)
        if kept is not None and not len(kept) and not is_part:
            raise DataError(
                f"{source}: no row has a next state: next_obs is absent and no two rows follow "
                "each other; check the episode and time keys"
            )
    elif valid is not None:
        kept = np.flatnonzero(valid)
        fields = {name: array[kept] for name, array in fields.items()}
    return Completed(Transitions(**fields), kept, tuple(notes), missing)


def succession(
    fields: dict[str, np.ndarray],
    *,
    gap: float = MAX_STEP,
    step: float | None = None,
    valid: np.ndarray | None = None,
    lost: np.ndarray | None = None,
) -> Succession:
    """Find the breaks: change of episode, terminal, timeout, gap or reset of the clock."""
    episode, time = fields.get("episode"), fields.get("time")
    order = None
    if episode is not None and _returns_to_an_id(episode):
        order = np.argsort(episode, kind="stable")  # interleaved logs of several episodes
    ended = fields["terminal"] | fields["timeout"]
    follows = ~_in_order(ended, order)[:-1]
    if episode is not None:
        ids = _in_order(episode, order)
        follows &= ids[1:] == ids[:-1]
    if valid is not None:
        usable = _in_order(valid, order)
        follows &= usable[1:] & usable[:-1]
    if lost is not None:
        before = _in_order(np.cumsum(lost), order)
        follows &= before[1:] == before[:-1]
    num_gaps = num_resets = num_repeats = 0
    if time is not None:
        with np.errstate(over="ignore"):  # an infinite step is a gap or a reset
            dt = np.diff(_in_order(time, order))
            forward = dt[follows & (dt > 0)]
            if step is None:
                step = float(np.median(forward)) if len(forward) else np.inf
            limit = gap * step
        is_gap, reset = follows & (dt > limit), follows & (dt < 0)
        num_gaps, num_resets = int(is_gap.sum()), int(reset.sum())
        num_repeats = int((follows & (dt == 0)).sum())
        follows &= ~(is_gap | reset)
    return Succession(order, follows, num_gaps, num_resets, num_repeats)


def next_actions(rows: Transitions) -> np.ndarray:
    """(n, m) float. Return the action of the next step, NaN where there is none."""
    if len(rows) == 0:
        return rows.action.copy()
    after = _following(succession(rows.arrays()), len(rows))
    now = np.flatnonzero(after >= 0)
    then = after[now]
    same = (rows.next_obs[now] == rows.obs[then]).all(axis=1)
    result = np.full_like(rows.action, np.nan)
    result[now[same]] = rows.action[then[same]]
    return result


def _returns_to_an_id(episode: np.ndarray) -> bool:
    starts = np.flatnonzero(np.diff(episode)) + 1
    runs = episode[np.concatenate([[0], starts])]
    return len(np.unique(runs)) < len(runs)


def _in_order(array: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    return array if order is None else array[order]


def _number_episodes(
    fields: dict[str, np.ndarray], follows: np.ndarray, missing: Collection[str], notes: list[str]
) -> None:
    """Number the episodes of rows in recording order from 0, if the rows follow one another."""
    if "next_obs" not in fields:
        if {"terminal", "timeout"} <= set(missing) and "time" not in fields:
            notes.append(Note("no_breaks"))
        elif "timeout" in missing:
            notes.append(Note("no_timeouts"))
    elif "timeout" not in missing:
        notes.append("episode: numbered by terminal and timeout flags")
    else:
        # Without timeout flags only the states show where a record was cut.
        follows = follows & (fields["next_obs"][:-1] == fields["obs"][1:]).all(axis=1)
        if len(follows) and follows.mean() < 0.5:
            notes.append("episode: rows do not follow one another; episodes are unknown")
            return
        notes.append("episode: numbered where next_obs is not the following row's obs")
    ends = np.append(np.flatnonzero(~follows) + 1, len(follows) + 1)
    fields["episode"] = np.repeat(np.arange(len(ends), dtype=np.int64), np.diff(ends, prepend=0))


def _build_next_obs(
    fields: dict[str, np.ndarray],
    step: Succession,
    notes: list[str],
    valid: np.ndarray | None,
) -> np.ndarray | None:
    """Take next states from the following rows, drop rows without one; changes ``fields``."""
    n = len(fields["obs"])
    after = _following(step, n)
    has_next = after >= 0
    keep = has_next | fields["terminal"]
    if valid is not None:
        keep &= valid
    if unknown := int((~has_next & keep).sum()):
        notes.append(Note("unknown_next_obs", unknown))
    kept = np.flatnonzero(keep)
    next_obs = fields["obs"][after[kept]]
    next_obs[~has_next[kept]] = np.nan
    if len(kept) < n:
        # The row before a dropped one is now the last of its record: a timeout, not an end.
        fields["timeout"] = fields["timeout"] | (has_next & ~keep[after])
        num_invalid = 0 if valid is None else int((~valid).sum())
        if n - len(kept) > num_invalid:
            notes.append(Note("dropped_rows", n - len(kept) - num_invalid))
        fields |= {name: array[kept] for name, array in fields.items()}
    fields["next_obs"] = next_obs
    return kept if len(kept) < n else None


def _following(step: Succession, n: int) -> np.ndarray:
    """(n,) int64. Return the row that follows each row, -1 where there is none."""
    after = np.full(n, -1)
    order = np.arange(n) if step.order is None else step.order
    after[order[:-1][step.follows]] = order[1:][step.follows]
    return after


def episode_returns(rows: Transitions) -> np.ndarray:
    """(e,) float64. Return the undiscounted return of every complete episode, by episode id.

    An episode is complete if its task ended (terminal) or it reached a time limit: a timeout in an
    episode as long as the longest. Shorter ones were cut for other reasons, such as the end of the
    file. Empty without rewards or episodes.
    """
    found = returns_by_end(rows)
    return np.empty(0) if found is None else found.total[found.ended | found.cut]


class Returns(NamedTuple):
    """Sums of rewards of all episodes, by episode id, and how these ended."""

    total: np.ndarray
    ended: np.ndarray
    """(e,) bool. The task ended."""
    cut: np.ndarray
    """(e,) bool. A timeout in an episode as long as the longest, whose task did not end."""
    longest: int


def returns_by_end(rows: Transitions) -> Returns | None:
    """Add up the rewards of every episode; None without rewards, episodes or rows."""
    if rows.reward is None or rows.episode is None or len(rows) == 0:
        return None
    ids, codes = np.unique(rows.episode, return_inverse=True)
    last = np.zeros(len(ids), np.int64)
    last[codes] = np.arange(len(rows))  # later rows overwrite earlier ones
    total, length = np.bincount(codes, rows.reward), np.bincount(codes)
    ended, longest = rows.terminal[last], int(length.max())
    return Returns(total, ended, rows.timeout[last] & ~ended & (length == longest), longest)


def return_range(parts: Iterable[Transitions]) -> tuple[float, float] | None:
    """Return the smallest and largest return of complete episodes; None for fewer than two.

    IQL divides rewards by (largest - smallest) / 1000. Compute it before rows are drawn, because
    drawn rows have no episodes.
    """
    returns = np.concatenate([np.empty(0), *(episode_returns(rows) for rows in parts)])
    if len(returns) < 2:
        return None
    return float(returns.min()), float(returns.max())


def joined(
    obs: np.ndarray, next_obs: np.ndarray, ended: np.ndarray, episode: np.ndarray | None
) -> np.ndarray:
    """(n - 1,) bool. A row's next state is, bit for bit, the following row's state."""
    # Bits, not values: -0.0 must not come back as 0.0.
    follows = (_bits(next_obs[:-1]) == _bits(obs[1:])).all(axis=1) & ~ended[:-1]
    return follows if episode is None else follows & (episode[1:] == episode[:-1])


def runs_of(rows: Transitions) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the rows in order, and as runs in which each next state is the following state."""
    found = succession(rows.arrays()).order
    order = np.arange(len(rows)) if found is None else found
    episode = None if rows.episode is None else rows.episode[order]
    ended = (rows.terminal | rows.timeout)[order]
    follows = joined(rows.obs[order], rows.next_obs[order], ended, episode)
    return order, np.split(order, np.flatnonzero(~follows) + 1)


def padded_runs(rows: Transitions) -> dict[str, np.ndarray]:
    """Return arrays for libraries that take the following row's state as the next state.

    A run that was cut gets one row more, with the last next state, the last action again and no
    reward; it is marked as a timeout. Such libraries make no transition of it, but with it one of
    the row before: none of the ``rows`` is lost.
    """
    if rows.reward is None:
        raise DataError(
            "expected rows with a reward, got none; make one with Dataset.with_reward(formula)"
        )
    runs = runs_of(rows)[1]
    is_cut = np.array([not rows.terminal[run[-1]] for run in runs])
    order = np.concatenate(
        [np.append(run, run[-1:]) if more else run for run, more in zip(runs, is_cut, strict=True)]
    )
    length = np.array([len(run) for run in runs]) + is_cut
    end = np.cumsum(length) - 1
    added = end[is_cut]
    obs, reward = rows.obs[order], rows.reward[order].copy()
    obs[added], reward[added] = rows.next_obs[order[added]], 0.0
    terminal, timeout = rows.terminal[order].copy(), np.zeros(len(order), bool)
    terminal[added], timeout[added] = False, True
    return {
        "observations": obs,
        "actions": rows.action[order],
        "rewards": reward,
        "terminals": terminal,
        "timeouts": timeout,
    }


def cut(rows: Transitions) -> np.ndarray:
    """(n,) bool. Return the timeouts, and all rows whose run ends although the task does not.

    Without these marks, tools that ignore next states would join rows that do not belong together.
    """
    ended = rows.terminal | rows.timeout
    breaks = np.ones(len(rows), bool)
    breaks[:-1] = ~joined(rows.obs, rows.next_obs, ended, rows.episode)
    return rows.timeout | (breaks & ~rows.terminal)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
