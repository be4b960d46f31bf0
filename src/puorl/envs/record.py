"""Record one policy in one domain: whole episodes, in order, whatever the number of threads.

A fixed number of slots play episodes one after the other, each with random streams of its own, so
what a slot plays depends on nothing but its number. Episodes are taken in order of (first step,
slot) until there are enough rows, and those taken are played to their end. Stopping all slots at
once instead would favour short episodes, since long ones would still be running.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.core.resources import num_threads
from puorl.envs.domains import DomainSpec
from puorl.envs.simulator import Simulator

# Both are part of what a seed means: other numbers give other data.
NUM_SLOTS = 128
_NOISE_STEPS = 100
"""Steps for which a slot's noise is drawn at once."""

_CHUNK_STEPS = (10, 100)
"""Fewest and most steps between two counts of the rows."""
_MOST_GROUPS = 4
"""Threads that run Python at once; more would mostly wait for each other."""


class Recorded(NamedTuple):
    """Rows as they are stored: float32, episodes one after the other."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminal: np.ndarray
    timeout: np.ndarray
    episode: np.ndarray
    """(n,) int64 from 0."""
    cut: int | None
    """Length of the last episode if it was cut to make the number of rows exact; else None."""


class _Chunk(NamedTuple):
    """Rows of some slots in a few steps; every array has the axes (step, slot)."""

    key: np.ndarray
    """Orders episodes by first step, then slot."""
    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminal: np.ndarray
    timeout: np.ndarray


def record(
    domain: DomainSpec,
    policy: Any,
    rows: int,
    *,
    seed: int,
    horizon: int | None = None,
    threads: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Recorded:
    """Play ``policy`` in ``domain`` until there are ``rows`` rows.

    Args:
        domain: Domain to act in.
        policy: Anything with ``act(obs) -> action``; one that also has ``draw_noise`` and
            ``act_with_noise`` acts with noise.
        rows: Number of rows to return, at least 1.
        seed: Seed of all random streams.
        horizon: Steps after which an episode is cut as a timeout; the task's own limit if None.
        threads: Cores to use; all if None. The rows do not depend on it.
        advance: Called with the number of rows that were added, whenever some were.
    """
    count = num_threads(threads)
    # Slots are independent, so each group of slots plays in a thread, policy included. A user's own
    # policy may not be safe to call from several threads.
    most = _MOST_GROUPS if hasattr(policy, "act_with_noise") else 1
    num_groups = max(n for n in range(1, most + 1) if count % n == 0)
    with ExitStack() as stack:
        groups = [
            _Slots(domain, policy, slots, seed=seed, horizon=horizon, threads=count // num_groups)
            for slots in np.array_split(np.arange(NUM_SLOTS), num_groups)
        ]
        for group in groups:
            stack.callback(group.simulator.close)
        pool = stack.enter_context(ThreadPoolExecutor(num_groups))
        longest = groups[0].simulator.max_steps
        shortest = 0 if groups[0].simulator.body.can_end else longest
        steps = int(np.clip(rows // NUM_SLOTS, *_CHUNK_STEPS))
        chunks: list[_Chunk] = []
        tallies: list[tuple[np.ndarray, np.ndarray]] = []
        num_rows = num_shown = 0
        while groups:
            if num_rows + NUM_SLOTS * longest >= rows:
                last = _last_needed(tallies, groups, rows, shortest)
                groups = [group for group in groups if group.keep(last)]
            made = list(pool.map(lambda group: group.play(steps), groups))
            chunks += made
            tallies += [np.unique(chunk.key, return_counts=True) for chunk in made]
            num_rows += sum(chunk.key.size for chunk in made)
            advance(min(num_rows, rows) - num_shown)
            num_shown = min(num_rows, rows)
    return _assemble(chunks, rows)


class _Slots:
    """Some of the slots, stepped together."""

    def __init__(
        self,
        domain: DomainSpec,
        policy: Any,
        slots: np.ndarray,
        *,
        seed: int,
        horizon: int | None,
        threads: int,
    ) -> None:
        self.simulator = Simulator(
            [domain] * len(slots),
            seed=seed,
            threads=threads,
            streams=slots.tolist(),
            max_steps=horizon,
        )
        self._policy = policy
        self._slots = slots
        self._seed = seed
        self._started = np.zeros(len(slots), np.int64)
        self._noise: np.ndarray | None = None
        self._step = 0

    @property
    def key(self) -> np.ndarray:
        """(n,) int64. Episode of each slot."""
        return self._started * NUM_SLOTS + self._slots

    def play(self, steps: int) -> _Chunk:
        """Play a few steps of every slot."""
        sim, num = self.simulator, len(self._slots)
        widths = {"obs": (sim.obs_dim,), "next_obs": (sim.obs_dim,), "action": (sim.act_dim,)}
        kinds = {"key": np.int64, "terminal": bool, "timeout": bool}
        chunk = _Chunk(
            *(
                np.empty((steps, num, *widths.get(name, ())), kinds.get(name, np.float32))
                for name in _Chunk._fields
            )
        )
        for t in range(steps):
            chunk.key[t] = self.key
            chunk.obs[t] = sim.obs
            chunk.action[t] = np.clip(self._act(chunk.obs[t]), -1, 1)
            # The stored action, rounding included, is the one that is executed.
            step = sim.step(chunk.action[t])
            for name, values in step._asdict().items():
                getattr(chunk, name)[t] = values
            self._step += 1
            self._started[step.terminal | step.timeout] = self._step
        return chunk

    def keep(self, last: int) -> bool:
        """Drop slots whose episode comes after ``last``; return whether any is left."""
        mask = self.key <= last
        if mask.any() and not mask.all():
            self.simulator.keep(mask)
            self._slots, self._started = self._slots[mask], self._started[mask]
            self._noise = None if self._noise is None else self._noise[:, mask]
        return bool(mask.any())

    def _act(self, obs: np.ndarray) -> np.ndarray:
        if hasattr(self._policy, "act_with_noise"):
            block, now = divmod(self._step, _NOISE_STEPS)
            if now == 0:
                self._noise = self._draw_noise(block)
            assert self._noise is not None, "the first step is the first of a block"
            action = self._policy.act_with_noise(obs, self._noise[now])
        else:
            action = np.asarray(self._policy.act(obs))
        expected = (len(self._slots), self.simulator.act_dim)
        if action.shape != expected:
            raise DataError(
                f"policy: expected actions of shape {expected} for {len(obs)} states, "
                f"got {action.shape}; was it made for another body?"
            )
        return action

    def _draw_noise(self, block: int) -> np.ndarray:
        """Draw noise (step, slot, ...), each slot from a stream of its own."""
        streams = [generator(self._seed, "policy", int(slot), block) for slot in self._slots]
        return np.stack([self._policy.draw_noise(rng, _NOISE_STEPS) for rng in streams], axis=1)


def _last_needed(
    tallies: list[tuple[np.ndarray, np.ndarray]], groups: list[_Slots], rows: int, shortest: int
) -> int:
    """Return the key of the last episode that can still be needed, as episodes only get longer.

    Args:
        tallies: Keys and numbers of rows, chunk by chunk.
        groups: Groups that still play.
        rows: Number of rows to return.
        shortest: Least length of an episode.
    """
    begun = [(group.key, np.zeros_like(group.key)) for group in groups]
    every, counts = (np.concatenate(each) for each in zip(*tallies, *begun, strict=True))
    keys, places = np.unique(every, return_inverse=True)
    lengths = np.bincount(places, weights=counts)
    total = np.cumsum(np.maximum(lengths, shortest))
    return int(keys[min(np.searchsorted(total, rows), len(keys) - 1)])


def _assemble(chunks: list[_Chunk], rows: int) -> Recorded:
    key = np.concatenate([chunk.key.ravel() for chunk in chunks])
    # Stable: the rows of an episode stay in order of time.
    order = np.argsort(key, kind="stable")[:rows]
    key = key[order]
    fields = {}
    for name in _Chunk._fields[1:]:
        arrays = [getattr(chunk, name) for chunk in chunks]
        fields[name] = np.concatenate([a.reshape(-1, *a.shape[2:]) for a in arrays])[order]
    episode = np.cumsum(np.diff(key, prepend=key[0]) != 0, dtype=np.int64)
    cut = None
    if not (fields["terminal"][-1] or fields["timeout"][-1]):
        fields["timeout"][-1] = True
        cut = int((key == key[-1]).sum())
    return Recorded(**fields, episode=episode, cut=cut)
