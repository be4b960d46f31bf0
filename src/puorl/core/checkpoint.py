"""Checkpoints of a fit, so that a killed one resumes with the same result."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.files import atomic_path

Tree = TypeVar("Tree")
_REPAIR = "remove it to go on from the one before, or from the beginning"


class Checkpoint:
    """States of the stages of a job, one file each; without a folder nothing is stored."""

    def __init__(
        self, folder: str | os.PathLike[str] | None, identity: str = "", *, seconds: float = 5.0
    ) -> None:
        """Set the folder and the identity of the job.

        Args:
            folder: Folder of the files, or None.
            identity: Hash of all inputs of the job; a state of another job is refused.
            seconds: Shortest time between two writes of a stage.
        """
        self._folder = None if folder is None else Path(folder).absolute()
        self._identity = identity
        self._seconds = seconds
        self._last = time.monotonic()
        self._prefix = ""
        self.notes: dict[str, str] = {}
        """Of the state that was restored last; with its hash, unless version 0.1 wrote it."""

    def named(self, job: str) -> "Checkpoint":
        """Return a checkpoint for a part of the job, with a prefix for the names of its stages."""
        made = Checkpoint(self._folder, self._identity, seconds=self._seconds)
        made._prefix = f"{self._prefix}{job}-"
        return made

    def restore(self, stage: str, fresh: Tree) -> tuple[Tree, int]:
        """Return the stored state and the number of steps done, or the fresh state and 0."""
        path = None if self._folder is None else self._folder / f"{self._prefix}{stage}.safetensors"
        if path is None or not path.exists():
            return fresh, 0
        leaves, shape = jax.tree.flatten(fresh)
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                stored = {name: file.get_tensor(name) for name in file.keys()}
            found = _hash(stored, metadata)
            hashing.check(path, metadata.get(hashing.HASH), found, repair=_REPAIR)
            if metadata.get("identity") != self._identity:
                raise DataError(
                    f"{path}: expected a checkpoint of this job, got one with other data or "
                    "settings; remove it, or name another folder"
                )
            done = int(metadata["done"])
            pairs = [(leaf, stored[str(i)]) for i, leaf in enumerate(leaves)]
            for place, (leaf, array) in enumerate(pairs):
                if (array.dtype, array.shape) != ((wanted := _data(leaf)).dtype, wanted.shape):
                    raise ValueError(f"array {place} is {array.dtype} {array.shape}")
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            message = f"{path}: expected a whole checkpoint, got: {error}; {_REPAIR}"
            raise DataError(message) from error
        self.notes = metadata
        return jax.tree.unflatten(shape, [_like(leaf, array) for leaf, array in pairs]), done

    def store(self, stage: str, state: Any, done: int, *, now: bool = False, **notes: str) -> None:
        """Write the state if ``seconds`` have passed since the last write, or if ``now`` is set."""
        if self._folder is None or not (now or time.monotonic() - self._last > self._seconds):
            return
        arrays = {
            str(i): np.asarray(_data(leaf), order="C")
            for i, leaf in enumerate(jax.tree.leaves(state))
        }
        metadata = {**notes, "identity": self._identity, "done": str(done)}
        metadata[hashing.HASH] = _hash(arrays, metadata)
        with atomic_path(self._folder / f"{self._prefix}{stage}.safetensors", force=True) as part:
            save_file(arrays, part, metadata=metadata)
        self._last = time.monotonic()


def _hash(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    noted = {name: text for name, text in metadata.items() if name != hashing.HASH}
    return hashing.of_settings(noted | {"arrays": hashing.of_arrays(arrays)})


def _data(leaf: Any) -> Any:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _like(leaf: Any, array: np.ndarray) -> Any:
    if isinstance(leaf, np.ndarray):
        return array
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array)
