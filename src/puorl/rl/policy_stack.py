"""Policies of one shape that act together: as each alone, in a fraction of the time."""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from puorl.core.cores import num_threads
from puorl.core.errors import DataError
from puorl.rl.forward import BLOCK, forward_blocks

if TYPE_CHECKING:  # it imports this file
    from puorl.rl.acting import NumpyPolicy

_FEWEST = 8
"""Policies for which a thread of their own is worth its handing over."""


class PolicyStack:
    """Policies of one kind and shape.

    Rows travel in the blocks in which each policy would have taken them alone, so that every
    action has the bytes it would have had.
    """

    def __init__(self, policies: Sequence["NumpyPolicy"], *, threads: int | None = None) -> None:
        self._num_threads = num_threads(threads)
        self._threads = ThreadPoolExecutor(self._num_threads)
        self._kind = policies[0].kind
        self._around = {
            name: np.stack([getattr(policy, name) for policy in policies])
            for name in ("mean", "scale", "low", "high")
        }
        arrays = [policy.arrays for policy in policies]
        self._arrays = {name: np.stack([own[name] for own in arrays]) for name in arrays[0]}
        self._keep(np.arange(len(policies)))

    def act(self, obs: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The action of a policy for every row.

        Args:
            obs: (n, d) float32.
            number: (n,) int. Whose action is asked for, in ascending order.

        Returns:
            (n, m) float32.

        Raises:
            DataError: Another shape, or a number that is not finite.
        """
        mean = self._around["mean"]
        rows = checked_rows(np.asarray(obs), mean.shape[1])
        present, policy, count = np.unique(number, return_inverse=True, return_counts=True)
        if not np.array_equal(present, self._present):
            self._keep(present)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        num_blocks = -(-int(count.max()) // BLOCK)
        x = np.zeros((len(present), num_blocks * BLOCK, mean.shape[1]), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            x[policy, place] = (rows - mean[number]) / self._around["scale"][number]
        said = self._forward(x.reshape(len(present), num_blocks, BLOCK, mean.shape[1]))
        unit = said.reshape(len(present), num_blocks * BLOCK, said.shape[-1])[policy, place]
        return within(self._around["low"][number], self._around["high"][number], unit)

    def _keep(self, present: np.ndarray) -> None:
        """Have the arrays of these policies at hand, with axes for blocks and rows."""
        self._present = present
        num_parts = min(self._num_threads, max(1, len(present) // _FEWEST))
        bounds = np.linspace(0, len(present), num_parts + 1).astype(int)
        self._parts = [slice(*pair) for pair in itertools.pairwise(bounds.tolist())]
        self._chosen = [
            {
                name: own[:, None]
                if (own := array[present[part]]).ndim == 3
                else own[:, None, None]
                for name, array in self._arrays.items()
            }
            for part in self._parts
        ]

    def _forward(self, blocks: np.ndarray) -> np.ndarray:
        """What the networks say; each thread has some of them, and its caches their weights."""

        def one(number: int) -> np.ndarray:
            with np.errstate(over="ignore", invalid="ignore"):
                own = blocks[self._parts[number]]
                return forward_blocks(self._kind, self._chosen[number], own)

        if len(self._parts) == 1:
            return one(0)
        return np.concatenate(list(self._threads.map(one, range(len(self._parts)))))


def checked_rows(obs: np.ndarray, obs_dim: int) -> np.ndarray:
    """Observations as rows (n, d) float32.

    Raises:
        DataError: Another shape, or a number that is not finite (or too large for float32).
    """
    if obs.ndim not in (1, 2) or obs.shape[-1] != obs_dim:
        raise DataError(f"obs: expected shape ({obs_dim},) or (n, {obs_dim}), got {obs.shape}")
    if obs.dtype.kind not in "fiub":
        raise DataError(f"obs: expected numbers, got dtype {obs.dtype}")
    with np.errstate(over="ignore"):
        rows = np.atleast_2d(obs).astype(np.float32, copy=False)
    if not np.isfinite(rows).all():
        row = np.flatnonzero(~np.isfinite(rows).all(axis=1))[0]
        raise DataError(f"obs: expected finite numbers within float32, got others in row {row}")
    return rows


def within(low: np.ndarray, high: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """What a network says in [-1, 1], in the range of the actions.

    Raises:
        DataError: It is not a number.
    """
    # Halves first: the whole range may be too large for float32. -1 and 1 change nothing.
    middle, reach = high / 2 + low / 2, high / 2 - low / 2
    action = np.clip(middle + reach * unit, low, high)
    if not np.isfinite(action).all():
        raise DataError("obs: expected values of a usual size, got some that overflow inside")
    return action
