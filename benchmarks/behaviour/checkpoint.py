"""What a training run leaves on disk: snapshots of the actors, and all it needs to go on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sac
import safetensors
from safetensors.numpy import load_file, save_file

from puorl.core.files import atomic_path

_REPLAY = ".replay.row"


def save_state(path: Path, state: sac.State, metadata: dict[str, Any]) -> None:
    """Write everything, the filled part of the replay buffer included."""
    capacity = state.replay.row.shape[1]
    num_envs = metadata["num_envs"]
    filled = min(int(state.replay.num_inserts) * num_envs, capacity)
    arrays = {}
    for name, leaf in _named_leaves(state):
        if name == _REPLAY:
            leaf = leaf[:, :filled]
        elif jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        arrays[name] = np.asarray(leaf, order="C")
    with atomic_path(path, force=True) as part:
        save_file(arrays, part, {"metadata": json.dumps(metadata)})


def load_state(path: Path, like: sac.State) -> tuple[sac.State, dict[str, Any]]:
    """Read what ``save_state`` wrote into the shape of a fresh state."""
    with safetensors.safe_open(path, framework="numpy") as handle:
        metadata = json.loads(handle.metadata()["metadata"])
    arrays = load_file(path)
    leaves = []
    for name, leaf in _named_leaves(like):
        array = jnp.asarray(arrays[name])
        if name == _REPLAY:
            array = jax.lax.dynamic_update_slice(leaf, array, (0, 0, 0))
        elif jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array, impl="threefry2x32")
        assert array.shape == leaf.shape, name
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves), metadata


@dataclass(frozen=True)
class Snapshot:
    """The actors of all lanes at one moment, and how they did in training just before."""

    path: Path
    num_steps: int
    returns: tuple[float | None, ...]
    """Mean return of the episodes that ended since the last snapshot, one per lane."""


def save_snapshot(
    folder: Path, num_steps: int, state: sac.State, returns: list[float | None]
) -> None:
    """Write the actors in float16."""
    arrays = {}
    for i, layer in enumerate(state.lane.params.actor):
        arrays[f"w{i}"] = np.asarray(layer.w).astype(np.float16)
        arrays[f"b{i}"] = np.asarray(layer.b).astype(np.float16)
    header = {"metadata": json.dumps({"num_steps": num_steps, "returns": returns})}
    with atomic_path(folder / f"{num_steps:09d}.safetensors", force=True) as part:
        save_file(arrays, part, header)


def list_snapshots(folder: Path) -> list[Snapshot]:
    """All snapshots of a run, in order of time."""
    found = []
    for path in sorted(folder.glob("[0-9]*.safetensors")):
        with safetensors.safe_open(path, framework="numpy") as handle:
            content = json.loads(handle.metadata()["metadata"])
        found.append(Snapshot(path, content["num_steps"], tuple(content["returns"])))
    return found


def _named_leaves(state: sac.State) -> list[tuple[str, jax.Array]]:
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
