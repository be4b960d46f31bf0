"""How fast is fitted Q evaluation beside d3rlpy's, with one critic and with five?

    python benchmarks/ope/speed.py [--updates 2000] [--rounds 3] [--save]   (`make bench-setup`)

Both sides in turns, each in a process of its own, on the same random rows of HalfCheetah's shape:
256-256, batches of 100 rows (d3rlpy's default), one policy of two layers that acts in NumPy. Five
critics of ours are lanes of one program; d3rlpy's are five runs, one after the other, or as if they
filled all cores without loss (packed). Times include drawing rows and the policy's actions, and
leave out the first stretch (compilation, warm-up). Run it alone; where that cannot be, seconds of
computation with one thread (``OMP_NUM_THREADS=1``) still compare.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "ope-speed.jsonl"
BENCH_PYTHON = HERE.parents[1] / ".venv-bench" / "bin" / "python"
OBS_DIM, ACT_DIM, BATCH, LENGTH, EPISODES = 17, 6, 100, 500, 100


def main() -> None:
    """Measure both sides in turns, print, and append a row if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=2_000, help="of a timed stretch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bench-python", type=Path, default=BENCH_PYTHON)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--side", choices=("ours", "d3rlpy"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        measure = time_ours if args.side == "ours" else time_d3rlpy
        print(json.dumps(measure(args.updates)))
        return
    sides: dict[str, list[dict[str, float]]] = {"ours": [], "d3rlpy": []}
    for _ in range(args.rounds):
        for side, python in (("ours", sys.executable), ("d3rlpy", str(args.bench_python))):
            words = [python, __file__, "--side", side, "--updates", str(args.updates)]
            run = subprocess.run(words, capture_output=True, text=True, check=True)
            sides[side].append(json.loads(run.stdout.splitlines()[-1]))
            print(side, sides[side][-1], flush=True)
    best = {side: {k: min(r[k] for r in rows) for k in rows[0]} for side, rows in sides.items()}
    num_cores = min(5, len(os.sched_getaffinity(0)))
    row: dict[str, Any] = {
        "what": "fqe", "updates": args.updates, "rounds": sides,
        "one_critic": best["d3rlpy"]["one"] / best["ours"]["one"],
        "five_critics": 5 * best["d3rlpy"]["one"] / best["ours"]["five"],
        "five_critics_packed": 5 / num_cores * best["d3rlpy"]["one"] / best["ours"]["five"],
        "one_critic_cpu": best["d3rlpy"]["one_cpu"] / best["ours"]["one_cpu"],
        "five_critics_cpu": 5 * best["d3rlpy"]["one_cpu"] / best["ours"]["five_cpu"],
        "threads": os.environ.get("OMP_NUM_THREADS", "as each library chooses"),
    }  # fmt: skip
    print(f"one critic: {row['one_critic']:.2f} x d3rlpy's; five against five runs: "
          f"{row['five_critics']:.2f} x ({row['five_critics_packed']:.2f} x packed); in seconds "
          f"of computation {row['one_critic_cpu']:.2f} x and {row['five_critics_cpu']:.2f} x; "
          f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
    if args.save:
        from estimate import append

        append(args.out, row)


def rows() -> dict[str, np.ndarray]:
    """Draw random rows of both sides."""
    rng, num = np.random.default_rng(0), LENGTH * EPISODES
    obs = rng.normal(size=(num, OBS_DIM)).astype(np.float32)
    action = rng.uniform(-1, 1, (num, ACT_DIM)).astype(np.float32)
    return {"obs": obs, "action": action, "reward": rng.normal(size=num).astype(np.float32)}


class Actor:
    """A policy of two layers."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.w = [rng.normal(size=s).astype(np.float32) / s[0] ** 0.5
                  for s in ((OBS_DIM, 256), (256, 256), (256, ACT_DIM))]  # fmt: skip

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return actions (n, 6)."""
        hidden = np.maximum(np.asarray(obs, np.float32) @ self.w[0], 0)
        return np.tanh(np.maximum(hidden @ self.w[1], 0) @ self.w[2])


def time_ours(updates: int) -> dict[str, float]:
    """Time the fit of one policy, its actions in all rows included."""
    import jax

    import puorl
    from puorl.ope.config import OPEConfig
    from puorl.ope.fqe import fit_critics
    from puorl.ope.logged import LoggedEpisodes, draw_lanes

    # As the commands do: else jax computes one lane at a time, whatever threads ask for.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    held, policy = rows(), Actor()
    data = puorl.Dataset.from_arrays(
        **held, next_obs=held["obs"], episode=np.repeat(np.arange(EPISODES), LENGTH)
    )
    logged, found = LoggedEpisodes.of(data), {}
    for name, critics in (("one", 1), ("five", 5)):
        config = OPEConfig(critics=critics, updates=updates, batch_size=BATCH)
        drawn = draw_lanes(EPISODES, critics, 0)
        for _ in range(2):  # the first also compiles
            began = time.perf_counter(), time.process_time()
            there = logged.choices(policy, logged.next_state)
            here = logged.choices(policy, logged.state[logged.starts])
            fit_critics(logged, (there, here), drawn, config, gamma=0.99, seed=0)
            found[name] = time.perf_counter() - began[0]
            found[f"{name}_cpu"] = time.process_time() - began[1]
    return found


def time_d3rlpy(updates: int) -> dict[str, float]:
    """Time as many updates of d3rlpy's FQE."""
    import d3rlpy
    import torch

    policy, held = Actor(), rows()

    class Impl:
        def predict_best_action(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(policy.act(x.numpy()))

    class Algo:
        impl = Impl()

    ends = np.zeros(LENGTH * EPISODES, np.float32)
    ends[LENGTH - 1 :: LENGTH] = 1.0
    data = d3rlpy.dataset.MDPDataset(
        held["obs"], held["action"], held["reward"], np.zeros_like(ends), ends
    )
    fqe = d3rlpy.ope.FQE(algo=Algo(), config=d3rlpy.ope.FQEConfig(batch_size=BATCH))
    took = 0.0, 0.0
    for length in (200, updates):
        began = time.perf_counter(), time.process_time()
        fqe.fit(data, n_steps=length, n_steps_per_epoch=length, show_progress=False,
                logger_adapter=d3rlpy.logging.NoopAdapterFactory())  # fmt: skip
        took = time.perf_counter() - began[0], time.process_time() - began[1]
    return {"one": took[0], "one_cpu": took[1]}


if __name__ == "__main__":
    main()
