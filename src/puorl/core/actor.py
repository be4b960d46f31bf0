"""The acting side of a trained policy, in NumPy: small, exact, without JAX.

A shipped actor is stored in float16 and acts in float32: the rounded policy is the policy.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from puorl.core import fingerprint
from puorl.core.errors import DataError
from puorl.core.files import atomic_path

LOG_STD_RANGE = (-20.0, 2.0)

# BLAS picks its code path by the shape of a product, and paths differ in the last bit (one row goes
# another way than two). So rows always travel in blocks of this many, the last one padded.
_BLOCK = 8

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", _checked(self.layers))

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
        """Hash of the weights it acts with."""
        return fingerprint.of_arrays(_named(self.layers, np.float32))

    def act(self, obs: np.ndarray, *, rng: np.random.Generator | None = None) -> np.ndarray:
        """Choose actions.

        Args:
            obs: (n, obs_dim) float.
            rng: Source of the noise of a stochastic policy; without it the action is tanh(mean).

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
        """The noise that ``act_with_noise`` takes, (num_rows, act_dim) float32."""
        return rng.standard_normal((num_rows, self.act_dim), dtype=np.float32)

    def rounded(self) -> "SquashedGaussianActor":
        """The same policy with every weight rounded to float16, as a file would hold it."""
        layers = tuple((w.astype(np.float16), b.astype(np.float16)) for w, b in self.layers)
        return SquashedGaussianActor(layers)

    def cut(self, obs_dim: int, act_dim: int) -> "SquashedGaussianActor":
        """The policy of a body with shorter vectors, learnt with zeros behind their ends."""
        layers = list(self.layers)
        layers[0] = (layers[0][0][:obs_dim], layers[0][1])
        w, b = layers[-1]
        columns = np.r_[0:act_dim, self.act_dim : self.act_dim + act_dim]
        layers[-1] = (w[:, columns], b[columns])
        return SquashedGaussianActor(tuple(layers))

    def save(
        self,
        path: str | os.PathLike[str],
        metadata: Mapping[str, Any] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Write float16 weights and JSON metadata as a safetensors file, whole or not at all."""
        header = {"metadata": json.dumps(dict(metadata or {}), sort_keys=True, allow_nan=False)}
        with atomic_path(path, force=force) as part:
            # Not save_file: it makes files that their owner alone may read.
            part.write_bytes(to_bytes(_named(self.layers, np.float16), header))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SquashedGaussianActor":
        """Read an actor from a file that ``save`` wrote.

        Raises:
            DataError: The file is missing, is no safetensors file, or holds no actor.
        """
        path = Path(path)
        try:
            arrays = load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise DataError(f"{path}: expected a policy in safetensors, got: {error}") from error
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
        num_blocks = -(-len(obs) // _BLOCK)
        x = np.zeros((num_blocks * _BLOCK, self.obs_dim), np.float32)
        x[: len(obs)] = obs
        x = x.reshape(num_blocks, _BLOCK, self.obs_dim)
        for i, (w, b) in enumerate(self.layers):
            x = np.matmul(x, w)
            x += b
            if i < len(self.layers) - 1:
                np.maximum(x, 0, out=x)
        return x.reshape(num_blocks * _BLOCK, x.shape[2])[: len(obs)]


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON metadata that a policy was saved with.

    Raises:
        DataError: The file has none.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as handle:
            return json.loads(handle.metadata()["metadata"])
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise DataError(f"{path}: expected a policy with metadata, got: {error!r}") from error


def _named(layers: Layers, dtype: type[np.floating]) -> dict[str, np.ndarray]:
    return {
        f"{kind}{i}": np.ascontiguousarray(array, dtype)
        for i, pair in enumerate(layers)
        for kind, array in zip("wb", pair, strict=True)
    }


def _checked(layers: Sequence[Sequence[np.ndarray]]) -> Layers:
    checked = []
    width = None
    for i, (w, b) in enumerate(layers):
        if w.ndim != 2 or b.shape != w.shape[1:] or width not in (None, w.shape[0]):
            raise DataError(
                f"layer {i}: expected w ({width or 'fan_in'}, fan_out) and b (fan_out,), "
                f"got {w.shape} and {b.shape}"
            )
        if not (np.isfinite(w).all() and np.isfinite(b).all()):
            raise DataError(f"layer {i}: expected finite weights; float16 holds up to 65,504")
        width = w.shape[1]
        checked.append((np.ascontiguousarray(w, np.float32), np.ascontiguousarray(b, np.float32)))
    if width is None or width % 2:
        raise DataError(f"layers: expected a last layer 2 * act_dim wide, got {width}")
    return tuple(checked)
