"""From rows to what the models of `puorl.pu.machines.dynamics` read and predict.

Sensors are noisy and some states are not logged, so one step says little about a machine: what it
does over several steps says more. Rows are therefore linked to the rows before and after them. Two
rows are linked when they are neighbours in one episode and the second begins where the first ended.
"""

from typing import NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.data.transitions import Transitions
from puorl.pu.config import MachineConfig

_MIN_ROWS = 200
_LIMIT = 20.0
"""Standardised values are clipped here: sensors fail."""


class Scaling(NamedTuple):
    """Offset and divisor of each column, float32."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, value: np.ndarray) -> "Scaling":
        """Return mean and deviation of each column without NaN; constant columns get scale 1."""
        value = np.where(np.isnan(value).all(axis=0), 0.0, value)  # episodes may be too short
        mean, scale = np.nanmean(value, axis=0), np.nanstd(value, axis=0)
        varies = scale > 1e-6 * np.maximum(np.abs(mean), 1e-30)
        return cls(mean.astype(np.float32), np.where(varies, scale, 1.0).astype(np.float32))

    def __call__(self, value: np.ndarray) -> np.ndarray:
        """(n, f) float32. Standardise and clip."""
        return np.clip((value - self.mean) / self.scale, -_LIMIT, _LIMIT).astype(np.float32)


class Scalings(NamedTuple):
    """Scalings of inputs, later actions, outcomes, states and actions."""

    given: Scaling
    ahead: Scaling
    outcome: Scaling
    state: Scaling
    action: Scaling


class Sequences(NamedTuple):
    """Rows as models see them; those without a known next state are left out."""

    position: np.ndarray
    """(n,) int64. Row of the pool that each stands for, in the order of time in each unit."""
    given: np.ndarray
    """(n, f) float32. State, action, differences to earlier ones."""
    ahead: np.ndarray
    """(n, horizons - 1, m) float32. Mean actions between one horizon and the next, less the present
    one; 0 where unknown."""
    outcome: np.ndarray
    """(n, horizons x d) float32. Change of the state over each horizon; 0 where unknown."""
    weight: np.ndarray
    """(n, horizons x d) float32. 1 where the outcome is known, else 0."""
    state: np.ndarray
    """(n, d) float32. The state reached, for relations between sensors."""
    action: np.ndarray
    """(n, m) float32. The action that led there."""
    before: np.ndarray
    """(n, m) float32. The action before that; the same at a beginning."""


def link(rows: Transitions, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row that follows each row, -1 where none does, and rows in their order in time.

    Both (n,) int64; the order goes unit by unit, episode by episode.
    """
    number = np.arange(len(rows))
    within = unit if rows.episode is None else rows.episode
    order = np.lexsort((number if rows.time is None else rows.time, within, unit))
    first, second = order[:-1], order[1:]
    same = (unit[first] == unit[second]) & (within[first] == within[second])
    joins = (rows.next_obs[first] == rows.obs[second]).all(axis=1)
    following = np.full(len(rows), -1)
    following[first] = np.where(same & joins, second, -1)
    return following, order


def build(
    rows: Transitions,
    unit: np.ndarray,
    config: MachineConfig,
    scalings: Scalings | None = None,
) -> tuple[Sequences, Scalings]:
    """Make sequences of all rows with a known next state.

    Args:
        rows: The pool.
        unit: (n,) int. Unit of each row.
        config: Lags and horizons.
        scalings: Of an earlier call; by default those of these rows.

    Raises:
        DataError: Too few rows.
    """
    following, order = link(rows, unit)
    position = order[_is_known(rows.next_obs)[order]]
    if len(position) < _MIN_ROWS and scalings is None:
        raise DataError(
            f"expected at least {_MIN_ROWS} rows with a next state, to learn how machines move, "
            f"got {len(position)}; add rows"
        )
    obs, action = np.asarray(rows.obs, np.float64), np.asarray(rows.action, np.float64)
    next_obs = np.asarray(rows.next_obs, np.float64)
    given = [
        obs[position],
        action[position],
        *_earlier(obs, action, following, position, config.num_lags),
    ]
    outcome, known, ahead = [], [], []
    # Walk ahead step by step: `at` is the row reached, or -1 where the episode ended before.
    at, step, total, count = (
        position.copy(),
        1,
        np.zeros((len(position), action.shape[1])),
        np.zeros(len(position)),
    )
    for number, horizon in enumerate(config.horizons):
        while step < horizon:
            at = np.where(at >= 0, following[at], -1)
            alive = at >= 0
            total[alive] += action[at[alive]]
            count += alive
            step += 1
        if number > 0:
            mean = total / np.maximum(count, 1)[:, None]
            ahead.append(np.where(count[:, None] > 0, mean - action[position], 0.0))
            total[:], count[:] = 0.0, 0.0
        reached = np.where((at >= 0)[:, None], next_obs[at] - obs[position], np.nan)
        outcome.append(reached)
        known.append(np.repeat(_is_known(reached)[:, None], obs.shape[1], axis=1))
    later = np.hstack([np.zeros((len(position), 0)), *ahead])
    parts = np.hstack(given), later, np.hstack(outcome), next_obs[position], action[position]
    scalings = scalings or Scalings(*(Scaling.of(part) for part in parts))
    seen, later, reached, state, acted = (
        scaling(part) for scaling, part in zip(scalings, parts, strict=True)
    )
    return Sequences(
        position=position,
        given=seen,
        ahead=later.reshape(len(position), len(ahead), action.shape[1]),
        outcome=np.nan_to_num(reached),
        weight=np.hstack(known).astype(np.float32),
        state=state,
        action=acted,
        before=scalings.action(action[_previous(following, position)]),
    ), scalings


def _earlier(
    obs: np.ndarray, action: np.ndarray, following: np.ndarray, position: np.ndarray, num_lags: int
) -> list[np.ndarray]:
    """Differences to earlier states and actions; to the earliest there is near a beginning."""
    made, at = [], position
    for _ in range(num_lags):
        at = _previous(following, at)
        made += [obs[at] - obs[position], action[at] - action[position]]
    return made


def _previous(following: np.ndarray, position: np.ndarray) -> np.ndarray:
    """(n,) int64. The row before each; the same row at a beginning."""
    previous = np.arange(len(following))
    linked = np.flatnonzero(following >= 0)
    previous[following[linked]] = linked
    return previous[position]


def _is_known(value: np.ndarray) -> np.ndarray:
    """(n,) bool. Rows without NaN."""
    return np.asarray(np.isfinite(value).all(axis=1))
