"""Checkpoints of a fit, so that a killed one resumes with the same result."""

import os
import time
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from puorl.core.errors import DataError
from puorl.core.files import atomic_path

Tree = TypeVar("Tree")


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
        self._folder = None if folder is None else Path(folder)
        self._identity = identity
        self._seconds = seconds
        self._last = time.monotonic()
        self._prefix = ""

    def named(self, job: str) -> "Checkpoint":
        """Return a checkpoint for a part of the job, with a prefix for the names of its stages."""
        made = Checkpoint(self._folder, self._identity, seconds=self._seconds)
        made._prefix = f"{self._prefix}{job}-"
        return made

    def restore(self, stage: str, fresh: Tree) -> tuple[Tree, int]:
        """Return the stored state and the number of steps done, or the fresh state and 0.

        Raises:
            DataError: The state belongs to another job, or is damaged.
        """
        path = None if self._folder is None else self._folder / f"{self._prefix}{stage}.safetensors"
        if path is None or not path.exists():
            return fresh, 0
        leaves, shape = jax.tree.flatten(fresh)
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("identity") != self._identity:
                    raise DataError(
                        f"{path}: expected a checkpoint of this job, got one with other data or "
                        "settings; remove it, or name another folder"
                    )
                stored = [file.get_tensor(str(i)) for i in range(len(leaves))]
                done = int(metadata["done"])
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise DataError(
                f"{path}: expected a whole checkpoint, got: {error}; remove it to start again"
            ) from error
        pairs = zip(leaves, stored, strict=True)
        return jax.tree.unflatten(shape, [_like(leaf, array) for leaf, array in pairs]), done

    def store(self, stage: str, state: Any, done: int, *, now: bool = False) -> None:
        """Write the state if ``seconds`` have passed since the last write, or if ``now`` is set."""
        if self._folder is None or not (now or time.monotonic() - self._last > self._seconds):
            return
        arrays = {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        metadata = {"identity": self._identity, "done": str(done)}
        with atomic_path(self._folder / f"{self._prefix}{stage}.safetensors", force=True) as part:
            save_file(arrays, part, metadata=metadata)
        self._last = time.monotonic()


def _plain(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def _like(leaf: Any, array: np.ndarray) -> Any:
    if isinstance(leaf, np.ndarray):
        return array
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array)
