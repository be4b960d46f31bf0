"""Networks of policies in NumPy, and the policies that act with them; no JAX.

Arrays are named as in the learner's tree of `puorl.nn.mlp` layers: ``0.w``, ``0.b``,
``0.norm.scale``, ``0.norm.offset``, ``1.w``, ... with a prefix where a policy has several networks.
"""

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import safetensors
from safetensors.numpy import save as to_bytes

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path
from puorl.core.formatting import code_values
from puorl.core.resources import num_threads

Kind = Literal["tanh", "clip", "td7", "softmax", "greedy", "bcq"]
"""Kinds of policies, by how the network's output becomes an action.

``tanh`` and ``clip``: a ReLU network, then tanh or a cut to [-1, 1]. ``td7``: an encoder of ELU
layers, a linear layer, and a ReLU network on both, then tanh (see `puorl.rl.td7`).

For discrete actions, ``softmax``: a ReLU network of logits. ``greedy``: one of values, of which the
highest is taken. ``bcq``: the same among the actions to which a second network of logits gives at
least a fraction ``threshold`` of the likeliest one's probability (see `puorl.rl.discrete_bcq`).
"""

KINDS: tuple[str, ...] = get_args(Kind)
DISCRETE_KINDS = KINDS[3:]
_PREFIXES = {"td7": ("encoder.", "linear.", "mlp."), "bcq": ("q.", "behaviour.")}
_THRESHOLD = "threshold"

Arrays = Mapping[str, np.ndarray]

# As in puorl.nn.mlp, which cannot be imported here: it needs JAX.
_NORM_EPSILON = np.float32(1e-5)
# As in puorl.rl.td7.
_SMALLEST_SIZE = np.float32(1e-8)
_UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
    safetensors.SafetensorError,
)  # fmt: skip

# BLAS picks its code path by the shape of a product, and paths differ in the last bit. So rows
# are always multiplied in blocks of this many, the last one padded: no row's action depends on the
# other rows.
BLOCK = 8

# Multiplications up to which OpenBLAS keeps a product on one thread. Beyond, threads share what is
# far too little for them, and on a busy machine they wait for each other a hundred times as long.
_LARGEST_PRODUCT = 1 << 18
_LEAST_PER_THREAD = 8
"""Policies for which a thread of their own is worth the overhead."""
LOG_STD_RANGE = (-20.0, 2.0)


def forward(kind: str, arrays: Arrays, obs: np.ndarray) -> np.ndarray:
    """Compute the network's output.

    Args:
        kind: One of `KINDS`.
        arrays: Name to float32 array; they fit together as `dimensions` checks.
        obs: (n, d) float32. Normalised where the network was trained on normalised observations.

    Returns:
        (n, m) float32 in [-1, 1]; logits or values for discrete actions, minus infinity for an
        action that may not be taken. A row has the same bytes whatever other rows are in the batch.

    >>> arrays = {"0.w": np.full((2, 1), 0.5, np.float32), "0.b": np.zeros(1, np.float32)}
    >>> forward("clip", arrays, np.array([[0.5, 1.0], [3.0, 4.0]], np.float32)).tolist()
    [[0.75], [1.0]]
    """
    return _in_blocks(lambda x: forward_blocks(kind, arrays, x), obs)


def _in_blocks(network: Callable[[np.ndarray], np.ndarray], obs: np.ndarray) -> np.ndarray:
    num_blocks, width = -(-len(obs) // BLOCK), obs.shape[1]
    x = np.zeros((num_blocks * BLOCK, width), np.float32)
    x[: len(obs)] = obs
    y = network(x.reshape(num_blocks, BLOCK, width))
    return y.reshape(num_blocks * BLOCK, y.shape[2])[: len(obs)]


def forward_blocks(kind: str, arrays: Arrays, x: np.ndarray) -> np.ndarray:
    """Compute the output of `forward` for whole blocks (..., BLOCK, d), as (..., BLOCK, m).

    Arrays may have leading axes too, for several networks.
    """
    if kind == "bcq":
        return _bcq(arrays, x)
    if kind in DISCRETE_KINDS:
        return _mlp(arrays, "", x)
    y = _td7(arrays, x) if kind == "td7" else _mlp(arrays, "", x)
    return np.clip(y, np.float32(-1), np.float32(1)) if kind == "clip" else np.tanh(y)


def dimensions(kind: str, arrays: Arrays) -> tuple[int, int]:
    """Return the lengths of an observation and of an action.

    Raises:
        ConfigError: No such kind.
        DataError: The arrays are not those of such a policy.
    """
    if kind not in KINDS:
        raise ConfigError(f"policy: expected a kind among {', '.join(KINDS)}, got {kind!r}")
    checked = [_checked(arrays, prefix) for prefix in _PREFIXES.get(kind, ("",))]
    names = set().union(*(found for _, found in checked))
    if kind == "bcq":
        names.add(_THRESHOLD)
        if _THRESHOLD not in arrays or arrays[_THRESHOLD].shape != (1,):
            raise DataError(f"policy: expected an array {_THRESHOLD} of one number")
    others = sorted(set(arrays) - names)
    if others:
        raise DataError(
            f"policy: expected the arrays {', '.join(sorted(names))} alone, got {', '.join(others)}"
        )
    widths = [found for found, _ in checked]
    if kind == "td7":
        encoder, linear, mlp = widths
        if encoder[0] != linear[0] or mlp[0] != encoder[-1] + linear[-1]:
            raise DataError(
                f"policy: expected encoder and linear of one input and mlp of both outputs, got "
                f"widths {encoder}, {linear} and {mlp}"
            )
    if kind == "bcq" and (widths[0][0], widths[0][-1]) != (widths[1][0], widths[1][-1]):
        raise DataError(
            f"policy: expected q and behaviour of one input and output, got widths {widths[0]} "
            f"and {widths[1]}"
        )
    return widths[0][0], widths[-1][-1]


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0, out=x)


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _mlp(
    arrays: Arrays,
    prefix: str,
    x: np.ndarray,
    activation: Callable[[np.ndarray], np.ndarray] = _relu,
    product: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Apply a network of which ``prefix`` begins the names; ``product`` multiplies rows by w."""
    last = _num_layers(arrays, prefix) - 1
    for i in range(last + 1):
        x = (product or _product)(x, arrays[f"{prefix}{i}.w"])
        x += arrays[f"{prefix}{i}.b"]
        if i == last:
            break
        if f"{prefix}{i}.norm.scale" in arrays:
            x = _normalised(x)
            x *= arrays[f"{prefix}{i}.norm.scale"]
            x += arrays[f"{prefix}{i}.norm.offset"]
        x = activation(x)
    return x


def _td7(arrays: Arrays, obs: np.ndarray) -> np.ndarray:
    z = _avg_l1_norm(_mlp(arrays, "encoder.", obs, _elu))
    x = _avg_l1_norm(_mlp(arrays, "linear.", obs))
    return _mlp(arrays, "mlp.", np.concatenate([x, z], axis=-1))


def _bcq(arrays: Arrays, obs: np.ndarray) -> np.ndarray:
    q, logits = _mlp(arrays, "q.", obs), _mlp(arrays, "behaviour.", obs)
    with np.errstate(divide="ignore"):
        least = np.log(arrays[_THRESHOLD])
    allowed = logits - logits.max(axis=-1, keepdims=True) >= least
    return np.where(allowed, q, np.float32(-np.inf))


def _avg_l1_norm(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.abs(x).mean(axis=-1, keepdims=True), _SMALLEST_SIZE)


def _product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    columns = max(1, _LARGEST_PRODUCT // (BLOCK * w.shape[-2]))
    y = np.empty((*x.shape[:-1], w.shape[-1]), np.float32)
    for start in range(0, w.shape[-1], columns):
        part = slice(start, start + columns)
        np.matmul(x, w[..., part], out=y[..., part])
    return y


def _normalised(x: np.ndarray) -> np.ndarray:
    x = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(variance + _NORM_EPSILON)


def _num_layers(arrays: Arrays, prefix: str) -> int:
    number = 0
    while f"{prefix}{number}.w" in arrays:
        number += 1
    return number


def _checked(arrays: Arrays, prefix: str) -> tuple[list[int], set[str]]:
    """Return the widths from input to output, and the names of the network's arrays."""
    num_layers = _num_layers(arrays, prefix)
    if num_layers == 0:
        raise DataError(
            f"policy: expected an array {prefix}0.w, got {', '.join(sorted(arrays)) or 'none'}"
        )
    widths, names = [], set()
    for i in range(num_layers):
        name = f"{prefix}{i}"
        w = arrays[f"{name}.w"]
        fan_in = widths[-1] if widths else "fan_in"
        if w.ndim != 2 or 0 in w.shape or (widths and w.shape[0] != fan_in):
            raise DataError(f"{name}.w: expected shape ({fan_in}, fan_out), got {w.shape}")
        widths = [*(widths or w.shape[:1]), w.shape[1]]
        has_norm = i < num_layers - 1 and f"{name}.norm.scale" in arrays
        vectors = ("b", "norm.scale", "norm.offset") if has_norm else ("b",)
        for vector in vectors:
            found = arrays[f"{name}.{vector}"].shape if f"{name}.{vector}" in arrays else "none"
            if found != (widths[-1],):
                raise DataError(f"{name}.{vector}: expected shape ({widths[-1]},), got {found}")
        names |= {f"{name}.{part}" for part in ("w", *vectors)}
    return widths, names


@dataclass(frozen=True, eq=False, repr=False)
class NumpyPolicy:
    """A policy that acts: a network with the normaliser of its input and the range of its output.

    >>> layer = {"0.w": np.eye(2, dtype=np.float32), "0.b": np.zeros(2, np.float32)}
    >>> act = NumpyPolicy("clip", layer, mean=[1, 1], scale=[2, 2], low=[0, 0], high=[10, 10])
    >>> act([1.0, 2.0]).tolist()
    [5.0, 7.5]
    """

    kind: str
    """One of `KINDS`."""
    arrays: dict[str, np.ndarray]
    """Name to float32 array."""
    mean: np.ndarray
    """(d,) float32. Subtracted from an observation."""
    scale: np.ndarray
    """(d,) float32. Divides the difference; it includes its epsilon."""
    low: np.ndarray
    """(m,) float32. The action for an output of -1."""
    high: np.ndarray
    """(m,) float32. The action for an output of 1."""
    codes: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Codes of the outputs of a policy of discrete actions; None for continuous actions."""

    def __post_init__(self) -> None:
        """Make read-only copies, and refuse arrays that do not fit together."""
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
        if (self.kind in DISCRETE_KINDS) != (self.codes is not None):
            kind = "codes" if self.codes is None else "no codes"
            raise DataError(f"codes: expected {kind} for a policy of the kind {self.kind}")
        if self.codes is not None:
            codes = tuple(self.codes) if isinstance(self.codes, list | tuple) else ()
            if len(codes) != act_dim or not all(isinstance(code, str) for code in codes):
                raise DataError(f"codes: expected {act_dim} texts, got {self.codes!r}")
            object.__setattr__(self, "codes", codes)

    @property
    def obs_dim(self) -> int:
        """Length of an observation."""
        return len(self.mean)

    @property
    def act_dim(self) -> int:
        """Length of an action; the number of codes if actions are discrete."""
        return len(self.low)

    def act(self, obs: np.ndarray, *, rng: np.random.Generator | None = None) -> np.ndarray:
        """Choose actions; a row's action has the same bytes whatever batch the row is in.

        Args:
            obs: (d,) or (n, d), float32 or float64.
            rng: Draw discrete actions from their probabilities; the likeliest are taken without.

        Returns:
            (m,) or (n, m) float32 within [low, high]. If actions are discrete, () or (n,) codes as
            in the data: int64 if all codes are whole numbers, else text.

        Raises:
            DataError: Another shape, or a number that is not finite (or too large for float32).
        """
        given = np.asarray(obs)
        if self.codes is not None:
            return np.array(code_values(self.codes))[self.act_index(given, rng=rng)]
        if rng is not None:
            raise DataError("act: expected no rng, since this policy is deterministic")
        action = _in_range(self.low, self.high, self._forward(given))
        return action[0] if given.ndim == 1 else action

    def act_index(self, obs: np.ndarray, *, rng: np.random.Generator | None = None) -> np.ndarray:
        """() or (n,) int64. Choose discrete actions as `act`, by their positions among the codes.

        Raises:
            DataError: As `act`; or actions are continuous.
        """
        chances = np.atleast_2d(self.probabilities(obs))
        if rng is None:
            index = chances.argmax(axis=1)
        else:
            total = np.cumsum(chances, axis=1, dtype=np.float64)
            index = (rng.random((len(chances), 1)) * total[:, -1:] >= total).sum(axis=1)
        return index[0] if np.ndim(obs) == 1 else index

    def probabilities(self, obs: np.ndarray) -> np.ndarray:
        """(A,) or (n, A) float32. Return the probability of each code; 1 for a greedy choice.

        Raises:
            DataError: As `act`; or actions are continuous.
        """
        if self.codes is None:
            raise DataError("probabilities: expected a policy of discrete actions, got amounts")
        given = np.asarray(obs)
        y = self._forward(given)
        best = y.max(axis=1, keepdims=True)
        if not np.isfinite(best).all():
            raise DataError("obs: expected values of a usual size, got some that overflow inside")
        if self.kind == "softmax":
            chances = np.exp(y - best)
            chances /= chances.sum(axis=1, keepdims=True)
        else:
            chances = np.eye(len(self.codes), dtype=np.float32)[y.argmax(axis=1)]
        return chances[0] if given.ndim == 1 else chances

    def _forward(self, obs: np.ndarray) -> np.ndarray:
        rows = _checked_rows(obs, self.obs_dim)
        with np.errstate(over="ignore", invalid="ignore"):
            return forward(self.kind, self.arrays, (rows - self.mean) / self.scale)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Call `act`."""
        return self.act(obs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind}, obs {self.obs_dim} -> action {self.act_dim})"

    @property
    def network_shape(self) -> tuple[str, dict[str, tuple[int, ...]]]:
        """Kind and shapes of the network."""
        return self.kind, {name: array.shape for name, array in self.arrays.items()}


def _own(name: str, values: Any) -> np.ndarray:
    # Always a copy: NumPy's view of a JAX array is its memory, which training uses again.
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, np.float32, order="C")
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: expected numbers, got: {error}") from error
    if not np.isfinite(array).all():
        raise DataError(f"{name}: expected finite numbers, got NaN or infinity; did it diverge?")
    array.flags.writeable = False
    return array


def stack_policies(
    policies: Sequence[Any], *, rows: int, threads: int | None = None
) -> "PolicyStack | None":
    """Stack policies so that they act together; return None if that is impossible or no gain.

    Args:
        policies: All must be `NumpyPolicy` with networks of one kind and shape.
        rows: Most observations at a time of one policy; many keep a network busy alone.
        threads: All cores if None.
    """
    first = policies[0]
    # A subclass may act otherwise.
    plain = all(
        isinstance(policy, NumpyPolicy)
        and type(policy).act is NumpyPolicy.act
        and policy.codes is None
        and policy.network_shape == first.network_shape
        for policy in policies
    )
    return PolicyStack(policies, threads=threads) if plain and rows <= 2 * BLOCK else None


class PolicyStack:
    """Policies of one kind and shape that act together.

    Rows are multiplied in the same blocks as by each policy alone, so that every action has the
    same bytes.
    """

    def __init__(self, policies: Sequence[NumpyPolicy], *, threads: int | None = None) -> None:
        self._num_threads = num_threads(threads)
        self._threads = ThreadPoolExecutor(self._num_threads)
        self._kind = policies[0].kind
        self._scaling = {
            name: np.stack([getattr(policy, name) for policy in policies])
            for name in ("mean", "scale", "low", "high")
        }
        arrays = [policy.arrays for policy in policies]
        self._arrays = {name: np.stack([own[name] for own in arrays]) for name in arrays[0]}
        self._select(np.arange(len(policies)))

    def act(self, obs: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Choose the action of one of the policies for every row.

        Args:
            obs: (n, d) float32.
            number: (n,) int. Number of each row's policy, in ascending order.

        Returns:
            (n, m) float32.

        Raises:
            DataError: Another shape, or a number that is not finite.
        """
        mean = self._scaling["mean"]
        rows = _checked_rows(np.asarray(obs), mean.shape[1])
        present, policy, count = np.unique(number, return_inverse=True, return_counts=True)
        if not np.array_equal(present, self._present):
            self._select(present)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        num_blocks = -(-int(count.max()) // BLOCK)
        x = np.zeros((len(present), num_blocks * BLOCK, mean.shape[1]), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            x[policy, place] = (rows - mean[number]) / self._scaling["scale"][number]
        y = self._forward(x.reshape(len(present), num_blocks, BLOCK, mean.shape[1]))
        unit = y.reshape(len(present), num_blocks * BLOCK, y.shape[-1])[policy, place]
        return _in_range(self._scaling["low"][number], self._scaling["high"][number], unit)

    def _select(self, present: np.ndarray) -> None:
        """Take the arrays of these policies, with axes for blocks and rows."""
        self._present = present
        num_parts = min(self._num_threads, max(1, len(present) // _LEAST_PER_THREAD))
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
        """Compute all outputs; each thread has some networks, so that its caches hold them."""

        def one(number: int) -> np.ndarray:
            with np.errstate(over="ignore", invalid="ignore"):
                own = blocks[self._parts[number]]
                return forward_blocks(self._kind, self._chosen[number], own)

        if len(self._parts) == 1:
            return one(0)
        return np.concatenate(list(self._threads.map(one, range(len(self._parts)))))


def _checked_rows(obs: np.ndarray, obs_dim: int) -> np.ndarray:
    """Return observations as rows (n, d) float32.

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


def _in_range(low: np.ndarray, high: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Scale a network's output in [-1, 1] to the range of the actions.

    Raises:
        DataError: It is not finite.
    """
    # Halves first: the whole range may be too large for float32. -1 and 1 change nothing.
    middle, reach = high / 2 + low / 2, high / 2 - low / 2
    action = np.clip(middle + reach * unit, low, high)
    if not np.isfinite(action).all():
        raise DataError("obs: expected values of a usual size, got some that overflow inside")
    return action


Layers = tuple[tuple[np.ndarray, np.ndarray], ...]


@dataclass(frozen=True, eq=False)
class SquashedGaussianActor:
    """A Gaussian policy squashed by tanh; a ReLU network gives its mean and log standard deviation.

    A row's action has the same bytes whatever other rows are in the batch.

    Attributes:
        layers: Pairs of w (fan_in, fan_out) and b (fan_out,) float32; the last layer is
            2 * act_dim wide: means, then log standard deviations.
    """

    layers: Layers
    _arrays: dict[str, np.ndarray] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make read-only copies, and refuse layers that do not fit together."""
        arrays = {
            f"{i}.{kind}": _own(f"layer {i}", array)
            for i, pair in enumerate(self.layers)
            for kind, array in zip("wb", pair, strict=True)
        }
        width = _checked(arrays, "")[0][-1]
        if width % 2:
            raise DataError(f"layers: expected a last layer 2 * act_dim wide, got {width}")
        pairs = ((arrays[f"{i}.w"], arrays[f"{i}.b"]) for i in range(len(self.layers)))
        object.__setattr__(self, "layers", tuple(pairs))
        object.__setattr__(self, "_arrays", arrays)

    @property
    def obs_dim(self) -> int:
        """Length of an observation."""
        return self.layers[0][0].shape[0]

    @property
    def act_dim(self) -> int:
        """Length of an action."""
        return self.layers[-1][0].shape[1] // 2

    @property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return hashing.of_arrays(_named_layers(self.layers, np.float32))

    def act(self, obs: np.ndarray, *, rng: np.random.Generator | None = None) -> np.ndarray:
        """Choose actions.

        Args:
            obs: (n, obs_dim) float.
            rng: Source of the noise; the action is tanh(mean) without it.

        Returns:
            (n, act_dim) float32 in [-1, 1].
        """
        if rng is None:
            return np.tanh(self._forward(obs)[:, : self.act_dim])
        return self.act_with_noise(obs, self.draw_noise(rng, len(obs)))

    def act_with_noise(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Choose actions with the caller's own standard normal noise, (n, act_dim)."""
        out = self._forward(obs)
        mean, log_std = out[:, : self.act_dim], out[:, self.act_dim :]
        std = np.exp(np.clip(log_std, *LOG_STD_RANGE))
        return np.tanh(mean + std * noise.astype(np.float32, copy=False))

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> np.ndarray:
        """Draw the noise of ``act_with_noise``, (num_rows, act_dim) float32."""
        return rng.standard_normal((num_rows, self.act_dim), dtype=np.float32)

    def save(
        self,
        path: str | os.PathLike[str],
        metadata: Mapping[str, Any] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Write float16 weights and JSON metadata as a safetensors file, whole or not at all."""
        arrays = _named_layers(self.layers, np.float16)
        content = json.loads(json.dumps(dict(metadata or {}), allow_nan=False))
        content[hashing.HASH] = _file_hash(arrays, content)
        # One entry alone: safetensors writes several in any order.
        header = {"metadata": json.dumps(content, sort_keys=True)}
        with atomic_path(path, force=force) as part:
            # Not save_file, whose files only their owner may read.
            part.write_bytes(to_bytes(arrays, header))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SquashedGaussianActor":
        """Read an actor from a file that ``save`` wrote.

        Raises:
            DataError: The file is missing, damaged, is no safetensors file, or holds no actor.
        """
        arrays, _ = read_actor_file(path)
        num_layers = len(arrays) // 2
        names = {f"{kind}{i}" for i in range(num_layers) for kind in "wb"}
        if not arrays or set(arrays) != names:
            raise DataError(
                f"{path}: expected the tensors w0, b0, w1, ... of a policy, got "
                f"{', '.join(sorted(arrays)) or 'none'}; is this a file of another kind?"
            )
        return cls(tuple((arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(num_layers)))

    def _forward(self, obs: np.ndarray) -> np.ndarray:
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise DataError(f"obs: expected shape (n, {self.obs_dim}), got {obs.shape}")
        # Whole products, as when the data was collected: parts of them might differ in a bit.
        return _in_blocks(lambda x: _mlp(self._arrays, "", x, product=np.matmul), obs)


def read_actor_file(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return arrays and metadata of an actor's file, once they fit to its hash."""
    try:
        with safetensors.safe_open(path, framework="numpy") as handle:
            entries = handle.metadata()
            content = json.loads(entries["metadata"]) if entries else {}
            arrays = {name: handle.get_tensor(name) for name in handle.keys()}
        stored = content.pop(hashing.HASH, None)
        found = _file_hash(arrays, content)
    except _UNREADABLE as error:
        raise DataError(f"{path}: expected a policy in safetensors, got: {error!r}") from error
    hashing.check(path, stored, found, repair="take another copy")
    return arrays, content


def _file_hash(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> str:
    return hashing.of_settings({"metadata": metadata, "arrays": hashing.of_arrays(arrays)})


def _named_layers(layers: Layers, dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {
        f"{kind}{i}": np.ascontiguousarray(array, dtype)
        for i, pair in enumerate(layers)
        for kind, array in zip("wb", pair, strict=True)
    }
