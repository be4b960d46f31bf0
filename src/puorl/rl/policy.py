"""A learnt policy that acts, in NumPy: acting needs no JAX."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
from safetensors.numpy import save as to_bytes

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path
from puorl.core.resources import num_threads
from puorl.nn.numpy_mlp import BLOCK, dimensions, forward, forward_blocks


@dataclass(frozen=True, eq=False, repr=False)
class NumpyPolicy:
    """A policy that acts and does nothing else: the network, and what is before and behind it.

    >>> layer = {"0.w": np.eye(2, dtype=np.float32), "0.b": np.zeros(2, np.float32)}
    >>> act = NumpyPolicy("clip", layer, mean=[1, 1], scale=[2, 2], low=[0, 0], high=[10, 10])
    >>> act([1.0, 2.0]).tolist()
    [5.0, 7.5]
    """

    kind: str
    """One of `puorl.nn.numpy_mlp.KINDS`."""
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
    ) -> "PolicyStack | None":
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


if TYPE_CHECKING:  # it imports this file
    from puorl.rl.policy import NumpyPolicy

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


_VERSION = 1
_HEADER = "puorl_policy"
_NETWORK = "network."
_AROUND = ("mean", "scale", "low", "high")
_AGAIN = "the file is damaged, take another copy"


@dataclass(frozen=True, eq=False, repr=False)
class Policy(NumpyPolicy):
    """A learnt policy with its normaliser, its action range, and where it comes from.

    >>> policy = Policy.of("tanh", [{"w": np.zeros((3, 2)), "b": np.ones(2)}], low=[0, 0])
    >>> policy.act(np.zeros(3))
    array([0.8807971, 0.8807971], dtype=float32)
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    """JSON values: learner, config, steps, seed, fingerprint of the data, versions."""

    def __post_init__(self) -> None:
        """Bring the metadata to what a file would give back, too."""
        super().__post_init__()
        if not isinstance(self.metadata, Mapping):
            raise DataError(f"metadata: expected names and values, got {self.metadata!r}")
        try:
            text = json.dumps(self.metadata, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(f"metadata: expected JSON values, got: {error}") from error
        object.__setattr__(self, "metadata", json.loads(text))

    @classmethod
    def of(
        cls,
        kind: str,
        params: Any,
        *,
        mean: Any = None,
        scale: Any = None,
        low: Any = None,
        high: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> "Policy":
        """The policy of a learner's parameters, which are copied.

        Args:
            kind: How the network becomes an action, one of `puorl.nn.numpy_mlp.KINDS`.
            params: One lane's tree, as ``learner.actor(state)`` gives it: JAX or NumPy arrays.
            mean: (d,) float32. Of the observations it was trained on; zeros if None.
            scale: (d,) float32. Their deviation with its epsilon; ones if None.
            low: (m,) float32. The action where the network says -1; -1 if None.
            high: (m,) float32. The action where the network says 1; 1 if None.
            metadata: JSON values.

        Raises:
            ConfigError: No such kind.
            DataError: Arrays that do not fit together or are not finite.
        """
        arrays = _named(params)
        obs_dim, act_dim = dimensions(kind, arrays)
        return cls(
            kind,
            arrays,
            np.zeros(obs_dim) if mean is None else mean,
            np.ones(obs_dim) if scale is None else scale,
            -np.ones(act_dim) if low is None else low,
            np.ones(act_dim) if high is None else high,
            dict(metadata or {}),
        )

    @property
    def fingerprint(self) -> str:
        """Hash of all that decides its actions; the metadata is no part of it."""
        arrays = hashing.of_arrays(self._tensors())
        return hashing.of_settings({"kind": self.kind, "arrays": arrays})

    def to_numpy(self) -> NumpyPolicy:
        """The acting part alone: call it with observations; it holds arrays and no metadata.

        A policy acts in NumPy as it is; this is what to hand to a program that only acts.
        """
        return NumpyPolicy(self.kind, self.arrays, self.mean, self.scale, self.low, self.high)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a safetensors file, whole or not at all; the same policy gives the same bytes.

        Raises:
            DataError: Something is at ``path`` and ``force`` is off, or it cannot be written.
        """
        about = {
            "version": _VERSION,
            "kind": self.kind,
            "metadata": self.metadata,
            "checksum": self._checksum(),
        }
        # One entry alone: safetensors writes several in any order.
        header = {_HEADER: json.dumps(about, sort_keys=True, allow_nan=False)}
        with atomic_path(path, force=force) as part:
            # Not save_file: it makes files that their owner alone may read.
            part.write_bytes(to_bytes(self._tensors(), header))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Policy":
        """Read a policy that ``save`` wrote.

        Raises:
            DataError: The file is missing, damaged, of another kind, or of a newer puorl.
        """
        path = Path(path)
        about, tensors = _read(path)
        try:
            around = {name: tensors.pop(name) for name in _AROUND}
            policy = cls(
                kind=about["kind"],
                arrays={name.removeprefix(_NETWORK): array for name, array in tensors.items()},
                metadata=about["metadata"],
                **around,
            )
            same = policy._checksum() == about["checksum"]
        except KeyError as error:
            raise DataError(f"{path}: expected a part {error}, got none; {_AGAIN}") from error
        except (ConfigError, DataError) as error:
            raise DataError(f"{path}: expected a whole policy, got: {error}; {_AGAIN}") from error
        if not same:
            raise DataError(f"{path}: expected the bytes that were saved, got others; {_AGAIN}")
        return policy

    def __repr__(self) -> str:
        known = [f"{k}={self.metadata[k]}" for k in ("steps", "seed") if k in self.metadata]
        parts = [
            str(self.metadata.get("learner", self.kind)),
            f"obs {self.obs_dim} -> action {self.act_dim}",
            f"{sum(array.size for array in self.arrays.values()):,} weights",
            *known,
            self.fingerprint[:8],
        ]
        return f"Policy({', '.join(parts)})"

    def _tensors(self) -> dict[str, np.ndarray]:
        network = {f"{_NETWORK}{name}": array for name, array in self.arrays.items()}
        return network | {name: getattr(self, name) for name in _AROUND}

    def _checksum(self) -> str:
        return hashing.of_settings({"policy": self.fingerprint, "metadata": self.metadata})


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What stands in the header, and the tensors."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        raise DataError(f"{path}: expected a policy file, found {found}; name the file itself")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = _header(path, file.metadata())
            return about, {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, ValueError, TypeError, KeyError, safetensors.SafetensorError) as error:
        raise DataError(
            f"{path}: expected a policy in safetensors, got: {error}; is it whole, and of puorl?"
        ) from error


def _header(path: Path, entries: Mapping[str, str] | None) -> dict[str, Any]:
    text = (entries or {}).get(_HEADER)
    if text is None:
        raise DataError(
            f"{path}: expected a policy of puorl, got a safetensors file of another kind"
        )
    try:
        about = json.loads(text)
        version = int(about["version"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: expected a policy's header, got: {error!r}; {_AGAIN}") from error
    if version > _VERSION:
        raise DataError(
            f"{path}: expected a policy of version {_VERSION}, got version {version}; it was "
            "saved by a newer puorl, so update puorl to read it"
        )
    return about


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by their path: fields of named tuples, keys of mappings, numbers of positions."""
    if tree is None:
        return {}
    if isinstance(tree, Mapping):
        pairs = tree.items()
    elif isinstance(tree, tuple | list):
        pairs = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    else:
        return {"": np.asarray(tree)}
    return {
        f"{name}.{rest}" if rest else str(name): leaf
        for name, branch in pairs
        for rest, leaf in _named(branch).items()
    }
