"""How fast is the simulator? Against gymnasium's vector environments and against bare ``mj_step``.

    python benchmarks/speed/simulate.py [--seconds 1.5] [--rounds 5] [--save]

Same cores, same physics, one run. All sides take turns, round by round, and each counts with its
best round, because whatever else runs on the machine can only slow a side down. Rows per second:

- open loop: actions drawn beforehand;
- policy: the same 256-256 network in NumPy chooses the actions on both sides;
- bare: one thread per core replays recorded states and actions through ``mj_step``, nothing else.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np

import puorl
from puorl.envs import bodies
from puorl.envs.domains import domain
from puorl.envs.simulator import Simulator

RESULTS = Path(__file__).parents[1] / "results" / "simulate.jsonl"
STOCK = {"halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4"}
NUM_ENVS = 256
GYMNASIUM = (("sync", 8), ("sync", 64), ("async", 2), ("async", 16))
HORIZON = 128
BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Round = Callable[[float], float]
"""Runs for so many seconds and returns rows per second."""


def main() -> None:
    """Measure, print a table, and append a row to the results if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a side's round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side")
    parser.add_argument("--save", action="store_true", help=f"append to {RESULTS.name}")
    args = parser.parse_args()
    one_blas_thread()
    # Processes are forked before any physics thread exists.
    vectors = {body: gymnasium_vectors(body) for body in bodies.names()}
    load = os.getloadavg()[0]
    rates = {body: measure(body, vectors[body], args) for body in bodies.names()}
    for vector in (v for per_body in vectors.values() for v in per_body.values()):
        vector.close()
    rows = {body: summarise(rate) for body, rate in rates.items()}
    show(rows)
    if args.save:
        save({"settings": vars(args), "load_before": load, "rates": rates, "summary": rows})


def one_blas_thread() -> None:
    """Start again with one BLAS thread: more would spin in the way of the physics threads."""
    if any(os.environ.get(name) != "1" for name in BLAS):
        environment = {**os.environ, **dict.fromkeys(BLAS, "1")}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def gymnasium_vectors(body: str) -> dict[str, gym.vector.VectorEnv]:
    """Gymnasium's own environments of a body, vectorised in its own ways."""
    gym.logger.min_level = gym.logger.ERROR

    def make() -> gym.Env:
        return gym.make(STOCK[body])

    kinds = {"sync": gym.vector.SyncVectorEnv, "async": gym.vector.AsyncVectorEnv}
    return {f"{kind} {num}": kinds[kind]([make] * num) for kind, num in GYMNASIUM}


def measure(
    body: str, vectors: dict[str, gym.vector.VectorEnv], args: argparse.Namespace
) -> dict[str, list[float]]:
    """Rates of all sides, one per round."""
    spec = domain(body, masses="current")
    act = network(bodies.body(body))
    with Simulator([spec] * NUM_ENVS, seed=0) as simulator:
        sides: dict[str, Round] = {
            "puorl open": lambda s: run_simulator(simulator, None, s),
            "puorl policy": lambda s: run_simulator(simulator, act, s),
        }
        for name, vector in vectors.items():
            sides[f"{name} open"] = lambda s, v=vector: run_gymnasium(v, None, s)
            sides[f"{name} policy"] = lambda s, v=vector: run_gymnasium(v, act, s)
        record = record_states(body)
        sides["bare open"] = lambda s: run_bare(simulator.models[0], record, s)
        for side in sides.values():
            side(args.seconds / 10)
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(args.rounds):
            for name, side in sides.items():
                rates[name].append(round(side(args.seconds), 1))
    return rates


def network(body: bodies.Body) -> Callable[[np.ndarray], np.ndarray]:
    """A fixed random 256-256 policy in float32."""
    rng = np.random.default_rng(0)
    sizes = (body.obs_dim, 256, 256, body.act_dim)
    layers = [
        (rng.standard_normal((i, o)) / i**0.5).astype(np.float32)
        for i, o in zip(sizes[:-1], sizes[1:], strict=True)
    ]

    def act(obs: np.ndarray) -> np.ndarray:
        hidden = obs.astype(np.float32)
        for weight in layers[:-1]:
            hidden = np.maximum(hidden @ weight, 0.0)
        return np.tanh(hidden @ layers[-1])

    return act


def run_simulator(simulator: Simulator, act: Callable | None, seconds: float) -> float:
    """Rows per second of ours."""
    action = drawn_actions(simulator.num_envs, simulator.act_dim)
    begin, step = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        simulator.step(act(simulator.obs) if act else action[step % HORIZON])
        step += 1
    return step * simulator.num_envs / elapsed


def run_gymnasium(vector: gym.vector.VectorEnv, act: Callable | None, seconds: float) -> float:
    """Rows per second of gymnasium's."""
    action = drawn_actions(vector.num_envs, vector.single_action_space.shape[0])
    obs, _ = vector.reset(seed=0)
    begin, step = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        obs = vector.step(act(obs) if act else action[step % HORIZON])[0]
        step += 1
    return step * vector.num_envs / elapsed


def run_bare(model: mujoco.MjModel, record: tuple, seconds: float) -> float:
    """Control steps per second of ``mj_step`` alone, one thread per core."""
    state, action, frame_skip = record
    num_threads = len(os.sched_getaffinity(0))
    counts = [0] * num_threads
    full = mujoco.mjtState.mjSTATE_FULLPHYSICS

    def work(thread: int) -> None:
        data, row = mujoco.MjData(model), thread
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            mujoco.mj_setState(model, data, state[row % len(state)], full)
            data.ctrl[:] = action[row % len(state)]
            mujoco.mj_step(model, data, frame_skip)
            counts[thread] += 1
            row += num_threads

    threads = [threading.Thread(target=work, args=(i,)) for i in range(num_threads)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def record_states(body: str) -> tuple[np.ndarray, np.ndarray, int]:
    """States and actions of the open loop, for the bare replay."""
    with Simulator([domain(body, masses="current")] * NUM_ENVS, seed=0) as simulator:
        action = drawn_actions(NUM_ENVS, simulator.act_dim).astype(np.float64)
        states = []
        for t in range(HORIZON):
            clock = np.zeros((NUM_ENVS, 1))
            states.append(np.concatenate([clock, simulator.qpos, simulator.qvel], axis=1))
            simulator.step(action[t])
        flat = np.concatenate(states), action.reshape(-1, simulator.act_dim)
        return *flat, simulator.body.frame_skip


def drawn_actions(num_envs: int, act_dim: int) -> np.ndarray:
    """(HORIZON, n, m) float32, uniform in [-1, 1]."""
    rng = np.random.default_rng(1)
    return rng.uniform(-1, 1, (HORIZON, num_envs, act_dim)).astype(np.float32)


def summarise(rates: dict[str, list[float]]) -> dict[str, float | str]:
    """Best rounds and their ratios."""
    best = {name: max(values) for name, values in rates.items()}
    summary: dict[str, float | str] = {"bare": best["bare open"]}
    for loop in ("open", "policy"):
        rivals = {n: r for n, r in best.items() if n.endswith(loop) and n[:4] in ("sync", "asyn")}
        rival = max(rivals, key=lambda name: rivals[name])
        ours = best[f"puorl {loop}"]
        summary |= {
            f"puorl_{loop}": ours,
            f"gymnasium_{loop}": rivals[rival],
            f"gymnasium_{loop}_kind": rival.removesuffix(f" {loop}"),
            f"ratio_{loop}": round(ours / rivals[rival], 2),
            f"share_of_bare_{loop}": round(ours / best["bare open"], 3),
        }
    return summary


def show(rows: dict[str, dict[str, float | str]]) -> None:
    """Print the table."""
    print(f"{'rows/s':<12} {'loop':<7} {'puorl':>8} {'gymnasium':>10} {'(kind)':<9} "
          f"{'ratio':>6} {'bare':>8} {'share':>6}")  # fmt: skip
    for body, row in rows.items():
        for loop in ("open", "policy"):
            print(f"{body:<12} {loop:<7} {row[f'puorl_{loop}']:>8.0f} "
                  f"{row[f'gymnasium_{loop}']:>10.0f} {row[f'gymnasium_{loop}_kind']:<9} "
                  f"{row[f'ratio_{loop}']:>5.2f}x {row['bare']:>8.0f} "
                  f"{row[f'share_of_bare_{loop}']:>6.1%}")  # fmt: skip


def save(content: dict) -> None:
    """Append one JSON row, stamped with versions and hardware."""
    stamp = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "puorl": puorl.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mujoco": mujoco.__version__,
        "gymnasium": gym.__version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "num_envs": NUM_ENVS,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps({**stamp, **content}) + "\n")


if __name__ == "__main__":
    main()
