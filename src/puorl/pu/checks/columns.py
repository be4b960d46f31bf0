"""Columns that tell labelled from unlabelled rows by how they were recorded, not by what happened.

A learner takes the easiest way. If labelled rows went through another export, a rounded digit is
easier than any dynamics, and the filter finds the export again instead of the domain. Looked for:
rounding, constant shifts, the sample rate, columns that vary in one set only, and missing ends.
States that differ because the other domain behaves differently must not count, so means and spreads
are never compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from puorl.data.split import PUSplit
from puorl.pu.checks.clusters import group_numbers
from puorl.pu.checks.offset import find_offset
from puorl.pu.checks.rounding import find_rounding
from puorl.pu.checks.sample_rate import find_sample_rate
from puorl.pu.checks.two_sets import Side, clear_difference, is_measured
from puorl.pu.report import ColumnShortcut

_MAX_ROWS = 50_000
"""Rows of each set that are looked at."""
_LEAST_ROWS = 20


@dataclass(frozen=True, eq=False)
class _Column:
    name: str
    p: Side
    u: Side
    step_p: np.ndarray | None = None
    step_u: np.ndarray | None = None
    repeats: str | None = None
    """The column of which this one is the next value: what is found there is not said twice."""


def check_columns(split: PUSplit, *, rng: np.random.Generator) -> tuple[ColumnShortcut, ...]:
    """All columns of obs, action, reward, next_obs and time that give the labels away.

    Args:
        split: Labelled and unlabelled rows.
        rng: Draws the rows that are looked at.

    Returns:
        The clearest first; empty where nothing is found or fewer than 20 rows are labelled.
    """
    p, u = _sampled(split, split.labelled, rng), _sampled(split, split.unlabelled, rng)
    if min(len(p.value), len(u.value)) < _LEAST_ROWS:
        return ()
    found: list[ColumnShortcut] = []
    for column in _columns(split, p, u):
        known = {(f.column, f.kind) for f in found}
        found += [f for f in _find(column) if (column.repeats, f.kind) not in known]
    whole = (find_sample_rate(split, rng=rng), _find_missing(split, p, u))
    found += [f for f in whole if f is not None]
    return tuple(sorted(found, key=lambda f: -f.separation))


def _sampled(split: PUSplit, position: np.ndarray, rng: np.random.Generator) -> Side:
    """Positions of rows to look at, with their episodes as groups."""
    if len(position) > _MAX_ROWS:
        position = np.sort(rng.choice(position, _MAX_ROWS, replace=False))
    episode = split.pool.episode
    number, num_groups = group_numbers(
        None if episode is None else episode[position], len(position)
    )
    return Side(position, number, num_groups)


def _columns(split: PUSplit, p: Side, u: Side) -> Iterator[_Column]:
    rows, origin = split.pool.rows, split.pool.provenance
    obs_name = _names("obs", origin.obs_names, rows.obs.shape[1])
    action_name = _names("action", origin.action_names, rows.action.shape[1])
    for k, name in enumerate(obs_name):
        step_p, step_u = (rows.next_obs[at.value, k] - rows.obs[at.value, k] for at in (p, u))
        sides = _side(rows.obs[:, k], p), _side(rows.obs[:, k], u)
        yield _Column(name, *sides, _finite(step_p), _finite(step_u))
    for k, name in enumerate(obs_name):
        sides = _side(rows.next_obs[:, k], p), _side(rows.next_obs[:, k], u)
        yield _Column(f"next {name}", *sides, repeats=name)
    for k, name in enumerate(action_name):
        yield _Column(name, _side(rows.action[:, k], p), _side(rows.action[:, k], u))
    if rows.reward is not None:
        yield _Column("reward", _side(rows.reward, p), _side(rows.reward, u))


def _names(field: str, names: tuple[str, ...], count: int) -> list[str]:
    return list(names) if len(names) == count else [f"{field}[{k}]" for k in range(count)]


def _side(column: np.ndarray, at: Side) -> Side:
    values = column[at.value]
    return Side(values, at.number, at.num_groups).where(np.isfinite(values))


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _find(column: _Column) -> Iterator[ColumnShortcut]:
    p, u = column.p, column.u
    if min(len(p.value), len(u.value)) < _LEAST_ROWS:
        return
    constant = _find_constant(p, u)
    if constant is not None:
        yield _shortcut(column, "constant", constant)
        return
    rounding = find_rounding(p, u)
    if rounding is not None:
        yield _shortcut(column, "rounding", rounding)
    # The next value moves with its column; without steps of its own it could only repeat it.
    if column.repeats is None:
        offset = find_offset(p, u, column.step_p, column.step_u)
        if offset is not None:
            yield _shortcut(column, "offset", offset)


def _shortcut(column: _Column, kind: str, found: tuple[float, str]) -> ColumnShortcut:
    return ColumnShortcut(column.name, kind, found[0], f"{column.name}: {found[1]}.")


def _find_constant(p: Side, u: Side) -> tuple[float, str] | None:
    for this, other, words in (
        (p, u, "labelled values are all {:.6g}, unlabelled ones vary"),
        (u, p, "unlabelled values are all {:.6g}, labelled ones vary"),
    ):
        value = float(this.value[0])
        if np.any(this.value != value) or not is_measured(other.value):
            continue
        difference = clear_difference(p, u, p.value == value, u.value == value)
        if difference is not None:
            return 0.5 + abs(difference) / 2, words.format(value)
    return None


def _find_missing(split: PUSplit, p: Side, u: Side) -> ColumnShortcut | None:
    """Next states that one set lacks where the task ended; only ended rows may lack them."""
    rows = split.pool.rows
    ended_p, ended_u = p.where(rows.terminal[p.value]), u.where(rows.terminal[u.value])
    if min(len(ended_p.value), len(ended_u.value)) < _LEAST_ROWS:
        return None
    known = rows.next_known
    missing_p, missing_u = ~known[ended_p.value], ~known[ended_u.value]
    difference = clear_difference(ended_p, ended_u, missing_p, missing_u)
    if difference is None:
        return None
    share_p = float(np.count_nonzero(missing_p)) / len(p.value)
    share_u = float(np.count_nonzero(missing_u)) / len(u.value)
    return ColumnShortcut(
        "next_obs",
        "missing",
        0.5 + abs(share_p - share_u) / 2,
        f"next_obs: missing in {missing_p.mean():.0%} of the labelled rows at which the task ended "
        f"and in {missing_u.mean():.0%} of the unlabelled.",
    )
