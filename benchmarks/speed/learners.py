"""How fast is training? Lanes on a GPU, and on two cores beside d3rlpy.

    python benchmarks/speed/learners.py [--lanes 1 10 60] [--learners td3_bc iql] [--save]
    python benchmarks/speed/learners.py --against-d3rlpy [--save]      (needs `make bench-setup`)

TD3+BC as the paper sets it: 256-256, batch 256, rows of HalfCheetah's shape (17 and 6 values).
Compile time is shown apart. The second form runs both sides in turns, each in a process of its own,
on the same random rows, and says what share of the machine's float32 matrix product rate ours uses.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "learners-speed.jsonl"
BENCH_PYTHON = HERE.parents[1] / ".venv-bench" / "bin" / "python"
OBS_DIM, ACT_DIM, HIDDEN, BATCH = 17, 6, 256, 256
NUM_ROWS = 100_000
LEAST_RATIO = 3.0


def main() -> None:
    """Measure, print, and append rows to the results if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lanes", nargs="+", type=int, default=[1, 10, 60])
    parser.add_argument("--learners", nargs="+", default=["td3_bc"])
    parser.add_argument("--steps", type=int, default=5_000, help="updates in a timed stretch")
    parser.add_argument("--settings", default="{}", help="JSON: settings that differ")
    parser.add_argument("--against-d3rlpy", action="store_true")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side")
    parser.add_argument("--bench-python", type=Path, default=BENCH_PYTHON)
    parser.add_argument("--save", action="store_true", help="append to the results")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--side", choices=("ours", "d3rlpy"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        measure = time_ours if args.side == "ours" else time_d3rlpy
        print(json.dumps(measure(args.steps)))
        return
    rows = side_by_side(args) if args.against_d3rlpy else by_lanes(args)
    if args.save:
        with open(args.out, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(stamped(row)) + "\n" for row in rows)


def by_lanes(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every learner with every number of lanes; the best of three stretches."""
    import jax

    settings = json.loads(args.settings)
    device, rows = jax.devices()[0].device_kind, []
    print(f"{device}\n{'learner':<8}{'lanes':>6}{'compile s':>11}{'us/step':>9}{'lane-steps/s':>14}"
          f"{'1M steps in s':>15}")  # fmt: skip
    for name in args.learners:
        for lanes in args.lanes:
            first, best = stretches(name, lanes, args.steps, settings)
            rate = lanes * args.steps / best
            rows.append(
                {
                    "what": "lanes",
                    "learner": name,
                    "settings": settings,
                    "lanes": lanes,
                    "steps": args.steps,
                    "compile_seconds": first - best,
                    "seconds": best,
                    "lane_steps_per_second": rate,
                    "device": device,
                }
            )
            print(f"{name:<8}{lanes:>6}{first - best:>11.1f}{best / args.steps * 1e6:>9.1f}"
                  f"{rate:>14,.0f}{best / args.steps * 1e6:>15.0f}", flush=True)  # fmt: skip
    return rows


def stretches(name: str, lanes: int, steps: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Seconds of the first stretch, which compiles, and of the fastest of three others."""
    from puorl.data.dataset import Dataset
    from puorl.data.training_set import TrainingSet
    from puorl.rl import learner as learners
    from puorl.rl import trainer

    data = Dataset.from_arrays(**arrays())
    learner = learners.make(name, num_steps=1_000_000, **settings)
    each = [trainer.Lane(0, seed) for seed in range(lanes)]
    work = trainer.prepare(learner, [TrainingSet.whole(data)], each)
    seconds = [p.seconds for p in trainer.train(work, steps=4 * steps, interval=steps)]
    return seconds[0], min(seconds[1:])


def side_by_side(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Ours and d3rlpy in turns; the best round of each."""
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "d3rlpy": []}
    for _ in range(args.rounds):
        for side, done in found.items():
            python = sys.executable if side == "ours" else str(args.bench_python)
            command = [python, __file__, "--side", side, "--steps", str(args.steps)]
            with tempfile.TemporaryDirectory() as folder:
                run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if run.returncode:
                raise SystemExit(f"{side}: {run.stderr[-2000:]}")
            done.append(json.loads(run.stdout.splitlines()[-1]))
    rate = {side: max(one["steps_per_second"] for one in done) for side, done in found.items()}
    ratio = rate["ours"] / rate["d3rlpy"]
    share = rate["ours"] * flops_of_a_step() / matmul_rate()
    print(f"ours {rate['ours']:.1f} steps/s, d3rlpy {rate['d3rlpy']:.1f}: ratio {ratio:.2f} "
          f"(wanted {LEAST_RATIO}); {share:.0%} of the machine's matrix product rate")  # fmt: skip
    return [{"what": "d3rlpy", "rounds": found, "ratio": ratio, "matmul_share": share}]


def arrays() -> dict[str, np.ndarray]:
    """The rows that both sides learn from."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(NUM_ROWS, OBS_DIM)).astype(np.float32)
    return {
        "obs": obs,
        "next_obs": obs + rng.normal(0.0, 0.1, obs.shape).astype(np.float32),
        "action": rng.uniform(-1, 1, (NUM_ROWS, ACT_DIM)).astype(np.float32),
        "reward": rng.normal(size=NUM_ROWS).astype(np.float32),
        "terminal": np.arange(NUM_ROWS) % 1_000 == 999,
    }


def time_ours(steps: int) -> dict[str, Any]:
    """One lane."""
    first, best = stretches("td3_bc", 1, steps, {})
    return {"steps_per_second": steps / best, "first_seconds": first}


def time_d3rlpy(steps: int) -> dict[str, Any]:
    """d3rlpy's own TD3+BC, its own loop without logs, on the same rows."""
    import d3rlpy

    held = arrays()
    data = d3rlpy.dataset.MDPDataset(
        held["obs"], held["action"], held["reward"], held["terminal"].astype(np.float32)
    )
    made = d3rlpy.algos.TD3PlusBCConfig(
        batch_size=BATCH,
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(),
    ).create(device="cpu:0")
    made.build_with_dataset(data)
    made.fit_scalers(data) if hasattr(made, "fit_scalers") else None
    if made.observation_scaler is not None and not made.observation_scaler.built:
        made.observation_scaler.fit_with_transition_picker(data.episodes, data.transition_picker)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(steps):
            made.update(data.sample_transition_batch(BATCH))
        best = min(best, time.perf_counter() - began)
    return {"steps_per_second": steps / best, "version": version("d3rlpy")}


def flops_of_a_step() -> float:
    """Multiplications and additions of the matrix products of one update, the actor's half."""
    actor = OBS_DIM * HIDDEN + HIDDEN * HIDDEN + HIDDEN * ACT_DIM
    critic = (OBS_DIM + ACT_DIM) * HIDDEN + HIDDEN * HIDDEN + HIDDEN
    # Target actor and both target critics forward; both critics forward and twice backward, where
    # the first layer needs no gradient of its input.
    update = actor + 2 * critic + 2 * (3 * critic - (OBS_DIM + ACT_DIM) * HIDDEN)
    # Actor forward and backward, one critic forward and back to its input.
    policy = 3 * actor - OBS_DIM * HIDDEN + 2 * critic
    return 2.0 * BATCH * (update + policy / 2)


def matmul_rate() -> float:
    """Floating point operations a second of large float32 products in NumPy."""
    a = np.ones((2048, 2048), np.float32)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    return 2.0 * len(a) ** 3 / best


def stamped(row: dict[str, Any]) -> dict[str, Any]:
    """The row with time, versions and machine."""
    return row | {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("puorl", "jax", "numpy")}
        | {"python": platform.python_version()},
        "cores": len(os.sched_getaffinity(0)),
    }


if __name__ == "__main__":
    main()
