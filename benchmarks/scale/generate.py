"""Write a synthetic log of Hopper's shape as Parquet: 11 state and 3 action columns, two machines.

Both machines are linear systems with noise, driven by the same noisy controller; in the other one,
which has 70 % of the episodes, the third motor gives 60 % of its torque. Episodes have 200 to 1,000
steps and cross the borders of the files. `checked` marks about 20,000 rows of the target, drawn at
random; `machine` is the truth, which no filter reads.

    python benchmarks/scale/generate.py FOLDER --rows 10M
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from puorl.core.formatting import parse_count
from puorl.core.hashing import generator

STATES, ACTIONS, LONGEST, SHORTEST = 11, 3, 1_000, 200
TARGET_FRACTION, WEAK = 0.3, 0.6
FILE_ROWS, GROUP_ROWS = 1_000_000, 131_072


def dynamics(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a stable system, its inputs, and the controller."""
    rng = generator(seed, "scale", "system")
    turn, _ = np.linalg.qr(rng.normal(size=(STATES, STATES)))
    return 0.97 * turn, rng.normal(size=(ACTIONS, STATES)) * 0.3, rng.normal(size=(STATES, ACTIONS))


def episodes(first: int, count: int, seed: int) -> dict[str, np.ndarray]:
    """Simulate some episodes side by side; return their rows, one episode after the other."""
    rng = generator(seed, "scale", "episodes", first)
    system, inputs, controller = dynamics(seed)
    length = rng.integers(SHORTEST, LONGEST + 1, count)
    is_target = rng.random(count) < TARGET_FRACTION
    gain = np.ones((count, ACTIONS))
    gain[~is_target, 2] = WEAK
    state = rng.normal(size=(count, STATES))
    obs = np.empty((count, LONGEST, STATES), np.float32)
    action = np.empty((count, LONGEST, ACTIONS), np.float32)
    for t in range(LONGEST):
        command = np.tanh(0.3 * state @ controller + 0.5 * rng.normal(size=(count, ACTIONS)))
        obs[:, t], action[:, t] = state, command
        state = state @ system + (gain * command) @ inputs
        state += 0.05 * rng.normal(size=state.shape)
    inside = np.arange(LONGEST) < length[:, None]
    step = np.broadcast_to(np.arange(LONGEST), inside.shape)[inside]
    number = np.repeat(np.arange(first, first + count), length)
    last = step == np.repeat(length, length) - 1
    rows: dict[str, np.ndarray] = {f"obs_{i}": obs[..., i][inside] for i in range(STATES)}
    rows |= {f"act_{i}": action[..., i][inside] for i in range(ACTIONS)}
    rows["reward"] = 1.0 - np.square(action[inside]).sum(axis=1) * np.float32(0.1)
    rows["terminal"] = last & (np.repeat(length, length) < LONGEST)
    rows["timeout"] = last & ~rows["terminal"]
    rows["episode"], rows["step"] = number, step.astype(np.int32)
    rows["machine"] = np.repeat(~is_target, length).astype(np.int8)
    return rows


def main() -> None:
    """Write files until there are enough rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", default="1M")
    parser.add_argument("--labelled", default="20000")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    total, labelled = parse_count(given.rows), parse_count(given.labelled)
    given.folder.mkdir(parents=True)
    begun, first, file, held = time.perf_counter(), 0, 0, {}
    chance = labelled / (total * TARGET_FRACTION)
    while file * FILE_ROWS < total:
        size = min(FILE_ROWS, total - file * FILE_ROWS)
        while not held or len(held["episode"]) < size:
            made = episodes(first, 200, given.seed)
            first += 200
            held = {k: np.concatenate([held[k], v]) if held else v for k, v in made.items()}
        rows = {name: values[:size] for name, values in held.items()}
        held = {name: values[size:] for name, values in held.items()}
        rng = generator(given.seed, "scale", "labels", file)
        rows["checked"] = (rng.random(size) < chance) & (rows["machine"] == 0)
        table = pa.table(rows)
        path = given.folder / f"part-{file:05d}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)
        file += 1
    size = sum(path.stat().st_size for path in given.folder.iterdir())
    print(f"{total:,} rows, {file} files, {size / 1e9:.2f} GB, {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
