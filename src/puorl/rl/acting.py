"""A learnt policy that acts, in NumPy: acting needs no JAX."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puorl.core.errors import DataError
from puorl.rl.forward import BLOCK, dimensions, forward
from puorl.rl.policy_stack import PolicyStack, checked_rows, within


@dataclass(frozen=True, eq=False, repr=False)
class NumpyPolicy:
    """A policy that acts and does nothing else: the network, and what is before and behind it.

    >>> layer = {"0.w": np.eye(2, dtype=np.float32), "0.b": np.zeros(2, np.float32)}
    >>> act = NumpyPolicy("clip", layer, mean=[1, 1], scale=[2, 2], low=[0, 0], high=[10, 10])
    >>> act([1.0, 2.0]).tolist()
    [5.0, 7.5]
    """

    kind: str
    """One of `puorl.rl.forward.KINDS`."""
    arrays: dict[str, np.ndarray]
    """Name to float32 array."""
    mean: np.ndarray
    """(d,) float32. Subtracted from an observation."""
    scale: np.ndarray
    """(d,) float32. What the difference is divided by; its epsilon is in it already."""
    low: np.ndarray
    """(m,) float32. The action where the network says -1."""
    high: np.ndarray
    """(m,) float32. The action where the network says 1."""

    def __post_init__(self) -> None:
        """Keep copies that nobody can change, and refuse what does not fit together."""
        arrays = {name: _own(name, array) for name, array in self.arrays.items()}
        object.__setattr__(self, "arrays", arrays)
        obs_dim, act_dim = dimensions(self.kind, arrays)
        lengths = {"mean": obs_dim, "scale": obs_dim, "low": act_dim, "high": act_dim}
        for name, length in lengths.items():
            array = _own(name, getattr(self, name))
            if array.shape != (length,):
                raise DataError(f"{name}: expected shape ({length},), got {array.shape}")
            object.__setattr__(self, name, array)
        if not (self.scale > 0).all():
            raise DataError(
                f"scale: expected positive numbers, got {self.scale.min()}; add an epsilon to it"
            )
        if not (self.low <= self.high).all():
            raise DataError("low, high: expected low <= high for every action, got a low above")

    @property
    def obs_dim(self) -> int:
        """Length of an observation."""
        return len(self.mean)

    @property
    def act_dim(self) -> int:
        """Length of an action."""
        return len(self.low)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Choose actions; a row's action has the same bytes whatever batch the row is in.

        Args:
            obs: (d,) or (n, d), float32 or float64.

        Returns:
            (m,) or (n, m) float32 within [low, high].

        Raises:
            DataError: Another shape, or a number that is not finite (or too large for float32).
        """
        given = np.asarray(obs)
        rows = checked_rows(given, self.obs_dim)
        with np.errstate(over="ignore", invalid="ignore"):
            unit = forward(self.kind, self.arrays, (rows - self.mean) / self.scale)
        action = within(self.low, self.high, unit)
        return action[0] if given.ndim == 1 else action

    def __puorl_together__(
        self, policies: Sequence[Any], *, rows: int, threads: int | None = None
    ) -> PolicyStack | None:
        """Policies, this one among them, as one that acts for all; None where that is no gain.

        Args:
            policies: All must have networks of this one's kind and shape.
            rows: Most observations at a time of one policy.
            threads: All cores if None.
        """
        # A subclass may act otherwise; and many rows keep a network busy alone.
        like = all(isinstance(p, NumpyPolicy) and p._shape == self._shape for p in policies)
        plain = like and all(type(p).act is NumpyPolicy.act for p in policies)
        return PolicyStack(policies, threads=threads) if plain and rows <= 2 * BLOCK else None

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The same as `act`."""
        return self.act(obs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind}, obs {self.obs_dim} -> action {self.act_dim})"

    @property
    def _shape(self) -> tuple:
        return self.kind, {name: array.shape for name, array in self.arrays.items()}


def _own(name: str, values: Any) -> np.ndarray:
    # Always a copy: what NumPy shows of a JAX array is its memory, which training uses again.
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, np.float32, order="C")
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: expected numbers, got: {error}") from error
    if not np.isfinite(array).all():
        raise DataError(f"{name}: expected finite numbers, got NaN or infinity; did it diverge?")
    array.flags.writeable = False
    return array
