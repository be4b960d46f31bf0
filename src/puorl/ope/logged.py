"""Logged episodes in the units of networks, policies as functions on their states, and lanes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.data.episodes import succession
from puorl.rl.pool import action_range

_EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class LoggedEpisodes:
    """The episodes that judge policies: n rows of e episodes, all of the target.

    No policy may have been trained on them, and no method may have chosen them.
    """

    state: np.ndarray
    """(n, d) float64, as logged."""
    next_state: np.ndarray
    """(n, d) float64; the state again where it is unknown (terminal rows)."""
    obs: np.ndarray
    """(n, d) float32, standardised."""
    next_obs: np.ndarray
    """(n, d) float32, standardised alike."""
    action: np.ndarray
    """(n, m) float32. The range of each action is -1 to 1; codes are one-hot."""
    reward: np.ndarray
    """(n,) float64."""
    terminal: np.ndarray
    """(n,) bool."""
    episode: np.ndarray
    """(n,) int64 from 0 to e - 1."""
    place: np.ndarray
    """(e, t) int64. Row of each step of an episode until its end or its first gap, then -1."""
    centre: np.ndarray
    scale: np.ndarray
    """(d,) float64. Centre and scale of the states."""
    low: np.ndarray
    high: np.ndarray
    """(m,) float64. Range of the actions."""
    discrete: bool
    """Whether actions are codes."""

    @classmethod
    def of(cls, dataset: Dataset, *, discrete: bool | None = None) -> "LoggedEpisodes":
        """Read the episodes of a dataset.

        Args:
            dataset: Held-out labelled rows, whole episodes in order.
            discrete: Whether actions are codes; by default what the dataset says.

        Raises:
            DataError: No rewards, no episodes, or fewer than two of them.
        """
        if dataset.reward is None:
            raise DataError(
                "ope: expected rows with a reward, got none; name its column or give a formula "
                "with --reward (reward= in Python)"
            )
        if dataset.episode is None or (dataset.num_episodes or 0) < 2:
            raise DataError(
                f"ope: expected two or more labelled episodes to judge from, got "
                f"{dataset.num_episodes or 0}; name the column of episodes, and hold more out"
            )
        if discrete is None:
            discrete = getattr(dataset, "action_codes", None) is not None
        rows = dataset.rows
        state = rows.obs.astype(np.float64)
        next_state = np.where(np.isnan(rows.next_obs), state, rows.next_obs.astype(np.float64))
        centre, scale = state.mean(axis=0), state.std(axis=0)
        scale = np.where(scale > _EPSILON * (1.0 + np.abs(centre)), scale, 1.0)
        low, high = action_range(rows.action)
        if discrete:
            low, high = -np.ones_like(low), np.ones_like(high)  # one-hot columns stay as they are
        _, episode = np.unique(dataset.episode, return_inverse=True)
        made = cls(
            state=state,
            next_state=next_state,
            obs=((state - centre) / scale).astype(np.float32),
            next_obs=((next_state - centre) / scale).astype(np.float32),
            action=_unit(rows.action, low, high),
            reward=dataset.reward.astype(np.float64),
            terminal=rows.terminal,
            episode=episode,
            place=_places(dataset, episode),
            centre=centre,
            scale=scale,
            low=low,
            high=high,
            discrete=discrete,
        )
        if discrete and not np.array_equal(made.action, made.action.astype(bool)):
            raise DataError(
                "ope: expected a log of action codes, as the policies act in codes, got amounts; "
                "name the column of codes with --action (action= in Python), or say with "
                "--action-kind discrete (discrete_actions=True) that its numbers are codes"
            )
        return made

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return len(self.place)

    @property
    def starts(self) -> np.ndarray:
        """(e,) int64. First row of each episode."""
        return self.place[:, 0]

    def in_steps(self, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """Arrange values of rows (n,) by episode and step, (e, t); ``fill`` after the end."""
        return np.where(self.place >= 0, values[self.place], fill)

    @property
    def is_cut(self) -> np.ndarray:
        """(e,) bool. Episodes whose record stops before the task has ended."""
        length = (self.place >= 0).sum(axis=1)
        return ~self.terminal[self.place[np.arange(len(length)), length - 1]]

    def returns(self, gamma: float) -> np.ndarray:
        """(e,) float64. Discounted returns; a record that was cut counts as if repeated for ever.

        What policies are worth goes on behind the cut, too.
        """
        length = (self.place >= 0).sum(axis=1)
        logged = self.in_steps(self.reward) @ gamma ** np.arange(self.place.shape[1])
        return logged / np.where(self.is_cut, 1.0 - gamma**length, 1.0)

    def standardise(self, state: np.ndarray) -> np.ndarray:
        """Return states (k, d) in the units of ``obs``."""
        return ((state - self.centre) / self.scale).astype(np.float32)

    def choices(self, policy: Any, state: np.ndarray, name: str = "policy") -> np.ndarray:
        """Return what a policy does in states (k, d), as logged: (k, m) float32.

        That is an action in the units of ``action``, or the probability of every code.

        Raises:
            DataError: The policy gives another shape, or numbers that are not finite.
        """
        if self.discrete:
            chosen = np.asarray(policy.probabilities(state), np.float32)
        else:
            chosen = _unit(np.asarray(_function(policy)(state)), self.low, self.high)
        shape = len(state), self.action.shape[1]
        if chosen.shape != shape or not np.isfinite(chosen).all():
            raise DataError(
                f"{name}: expected finite actions of shape {shape} for the judged states, got "
                f"shape {chosen.shape}"
            )
        return chosen


class Lanes(NamedTuple):
    """Which episodes each lane is fitted on, and which it never sees."""

    weight: np.ndarray
    """(c, e) float64. How often a lane has an episode."""
    fold: np.ndarray
    """(e,) int64. The lane that does not see the episode; -1 where all lanes do."""

    def tables(self, episode: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of each lane (c, k) int32, padded with zeros, and their number (c,)."""
        counts = self.weight[:, episode].astype(np.int64)
        each = [np.repeat(np.arange(len(episode)), count) for count in counts]
        table = np.zeros((len(each), max(map(len, each))), np.int32)
        for line, rows in zip(table, each, strict=True):
            line[: len(rows)] = rows
        return table, np.array([len(rows) for rows in each], np.int32)


def draw_lanes(num_episodes: int, num_lanes: int, seed: int) -> Lanes:
    """Choose the episodes of every lane; a single lane sees each episode once.

    Episodes are cut into as many folds as there are lanes, and a lane has all but its own fold:
    what it says about that is not fitted to it. Where episodes are too few for folds, each lane
    draws as many as there are with replacement.
    """
    rng = generator(seed, "ope", "lanes")
    fold = np.full(num_episodes, -1)
    if num_lanes == 1:
        return Lanes(np.ones((1, num_episodes)), fold)
    if num_episodes >= 2 * num_lanes:
        fold = rng.permutation(num_episodes) % num_lanes
        return Lanes((fold != np.arange(num_lanes)[:, None]).astype(np.float64), fold)
    even = np.full(num_episodes, 1.0 / num_episodes)
    return Lanes(rng.multinomial(num_episodes, even, num_lanes).astype(np.float64), fold)


def has_probabilities(policy: Any) -> bool:
    """Return whether a policy has ``probabilities(obs) -> (n, A)``, so that it acts in codes.

    One whose ``codes`` are None acts in amounts.
    """
    acts_in_codes = getattr(policy, "codes", ()) is not None
    return acts_in_codes and callable(getattr(policy, "probabilities", None))


def _function(policy: Any) -> Callable[[np.ndarray], Any]:
    act = getattr(policy, "act", policy)
    if not callable(act):
        raise ConfigError(
            f"ope: expected a policy with act(obs), or a function, got {type(policy).__name__}"
        )
    return act


def _unit(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    if action.ndim != 2 or action.shape[1] != len(low):
        return np.asarray(action, np.float32)  # refused by its shape
    return ((action - (high + low) / 2) / ((high - low) / 2)).astype(np.float32)


def _places(dataset: Dataset, episode: np.ndarray) -> np.ndarray:
    step = succession(dataset.rows.arrays())
    order = np.arange(len(episode)) if step.order is None else step.order
    sequences: dict[int, list[int]] = {}
    open_ends: dict[int, bool] = {}
    follows = np.concatenate([[False], step.follows])
    for row, goes_on in zip(order.tolist(), follows.tolist(), strict=True):
        own = int(episode[row])
        if own not in sequences:
            sequences[own], open_ends[own] = [row], True
        elif open_ends[own] and goes_on:
            sequences[own].append(row)
        else:
            open_ends[own] = False  # after a gap nothing is known to follow from the start
    place = np.full((len(sequences), max(map(len, sequences.values()))), -1)
    for own, rows in sequences.items():
        place[own, : len(rows)] = rows
    return place
