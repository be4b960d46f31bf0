"""Kept rows in another library: d3rlpy's TD3+BC learns from what `puorl filter` wrote.

    python benchmarks/peers/d3rlpy_on_kept.py [--kept FOLDER] [--steps 5000] [--save]

Needs `make bench-setup` and, in the same environment, the extras ``sim`` and ``minari``. Without
``--kept`` (a folder that `puorl filter` wrote, with rows of Hopper in HDF5) it writes a CSV log of
40 runs of two Hoppers, 8 of them known, and filters it. The kept rows are read by h5py and by the
package minari, and both must give d3rlpy the same transitions. The policy is run in puorl's
gymnasium environment.
"""

import argparse
import csv
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

import d3rlpy
import gymnasium
import h5py
import minari
import numpy as np
import torch

import puorl

RESULTS = Path(__file__).parents[1] / "results" / "d3rlpy-on-kept.jsonl"
ENV = "puorl.envs.gymnasium_envs:puorl/Hopper-nominal-v0"
OTHER_DOMAIN = "gravity=0.5"
NUM_OURS, NUM_OTHERS, NUM_KNOWN, LONGEST = 16, 24, 8, 250
PACKAGES = ("puorl", "d3rlpy", "torch", "minari", "gymnasium", "mujoco", "jax", "numpy")


def main() -> None:
    """Make or take kept rows, train on both forms, print a row, append it if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kept", type=Path, help="folder of puorl filter, with kept.hdf5")
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--episodes", type=int, default=20, help="of evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="append to the results")
    args = parser.parse_args()
    kept = args.kept.resolve() if args.kept else Path("kept")
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)  # d3rlpy and MuJoCo leave files where they run
        made = {} if args.kept else make_kept(args.seed)
        row = {"kept": str(args.kept) if args.kept else "made here"} | made
        row |= learn(kept, args)
    row |= stamp()
    print(json.dumps(row, indent=2))
    if args.save:
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def make_kept(seed: int) -> dict[str, Any]:
    """Write a CSV log, let the command filter it, and say how right it was."""
    ours = write_log(Path("log.csv"), seed)
    words = ["filter", "log.csv", "--episode", "run", "--time", "clock", "--labelled"]
    words += ["checked == 1", "--unit", "episode", "--seed", str(seed), "--out", "kept"]
    began = time.perf_counter()
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=sys.stderr)
    with open("kept/keep.csv", newline="", encoding="utf-8") as file:
        kept = {row["run"] for row in csv.DictReader(file)}
    report = json.loads(Path("kept/report.json").read_text(encoding="utf-8"))
    hidden = (NUM_OURS - NUM_KNOWN) / (NUM_OURS + NUM_OTHERS - NUM_KNOWN)
    return {
        "log": {
            "ours": f"hopper/nominal, {NUM_OURS} runs, {NUM_KNOWN} known",
            "others": f"hopper/{OTHER_DOMAIN}, {NUM_OTHERS} runs",
            "behaviour": "medium of hopper/nominal",
            "longest_run": LONGEST,
        },
        "filter_seconds": time.perf_counter() - began,
        "runs_kept": len(kept),
        "runs_kept_ours": len(kept & ours),
        "verdict": report["verdict"],
        "alphas": report["alphas"],
        "share_of_hidden_runs": hidden,
    }


def write_log(path: Path, seed: int) -> set[str]:
    """A CSV log of runs in random order, without next states; the names of ours."""
    runs = runs_of("nominal", NUM_OURS, seed) + runs_of(OTHER_DOMAIN, NUM_OTHERS, seed)
    places = np.random.default_rng(seed).permutation(len(runs))
    names = [f"run-{place:02d}" for place in places]
    known = set(sorted(names[:NUM_OURS])[:NUM_KNOWN])
    num_obs, num_act = runs[0]["obs"].shape[1], runs[0]["action"].shape[1]
    with open(path, "w", newline="", encoding="utf-8") as file:
        log = csv.writer(file)
        values = [f"obs_{i}" for i in range(num_obs)] + [f"act_{i}" for i in range(num_act)]
        log.writerow(["run", "clock", *values, "reward", "terminal", "checked"])
        for name, run in sorted(zip(names, runs, strict=True), key=lambda pair: pair[0]):
            for step in range(len(run["reward"])):
                told = [*run["obs"][step], *run["action"][step], run["reward"][step]]
                ended = int(run["terminal"][step])
                log.writerow([name, step, *told, ended, int(name in known)])
    return set(names[:NUM_OURS])


def runs_of(domain: str, count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """The first rows of episodes of one policy in a domain."""
    data = puorl.collect("hopper", domain, "medium", count * 600, seed, policy_domain="nominal")
    assert data.episode is not None
    assert data.reward is not None
    found = [np.flatnonzero(data.episode == one)[:LONGEST] for one in np.unique(data.episode)]
    held = {"obs": data.obs, "action": data.action, "reward": data.reward}
    held["terminal"] = data.terminal
    return [{name: array[rows] for name, array in held.items()} for rows in found[:count]]


def learn(kept: Path, args: argparse.Namespace) -> dict[str, Any]:
    """TD3+BC by d3rlpy on the kept rows, from either form; returns in our environment."""
    hdf5 = from_hdf5(kept / "kept.hdf5")
    puorl.save(puorl.load(kept / "kept.hdf5"), "kept-minari")
    check_same(hdf5, from_minari(Path("kept-minari")))
    d3rlpy.seed(args.seed)
    torch.set_num_threads(1)  # on cores that are busy, threads that wait for each other crawl
    algo = d3rlpy.algos.TD3PlusBCConfig(
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler()
    ).create(device="cpu:0")
    began = time.perf_counter()
    quiet = d3rlpy.logging.NoopAdapterFactory()
    algo.fit(
        hdf5,
        n_steps=args.steps,
        n_steps_per_epoch=args.steps,
        logger_adapter=quiet,
        show_progress=False,
    )
    seconds = time.perf_counter() - began
    found = returns(algo, args)
    return {
        "num_transitions": int(hdf5.transition_count),
        "num_episodes": hdf5.size(),
        "learner": "d3rlpy TD3PlusBC, standardised states, else its defaults",
        "steps": args.steps,
        "seed": args.seed,
        "train_seconds": seconds,
        "env": ENV,
        "returns": found,
        "mean_return": float(np.mean(found)),
    }


def from_hdf5(path: Path) -> d3rlpy.dataset.MDPDataset:
    """D4RL's layout, as it stands: where a row's follower was left out there is a timeout."""
    with h5py.File(path) as file:
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        return as_mdp(*(np.asarray(file[name]) for name in names))


def from_minari(path: Path) -> d3rlpy.dataset.MDPDataset:
    """An episode of Minari holds one state more than actions; d3rlpy wants as many."""
    episodes = list(minari.MinariDataset(path / "data"))
    obs = np.concatenate([each.observations[:-1] for each in episodes])
    parts = ("actions", "rewards", "terminations", "truncations")
    rest = (np.concatenate([getattr(each, part) for each in episodes]) for part in parts)
    return as_mdp(obs, *rest)


def as_mdp(
    obs: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    terminal: np.ndarray,
    timeout: np.ndarray,
) -> d3rlpy.dataset.MDPDataset:
    """What d3rlpy learns from, float32 throughout."""
    values = (array.astype(np.float32) for array in (obs, action, reward, terminal, timeout))
    return d3rlpy.dataset.MDPDataset(*values, action_space=d3rlpy.ActionSpace.CONTINUOUS)


def check_same(one: d3rlpy.dataset.MDPDataset, other: d3rlpy.dataset.MDPDataset) -> None:
    """Both forms must hold the same episodes, value for value."""
    assert one.size() == other.size()
    assert one.transition_count == other.transition_count
    for left, right in zip(one.episodes, other.episodes, strict=True):
        assert left.terminated == right.terminated
        for name in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def returns(algo: Any, args: argparse.Namespace) -> list[float]:
    """Of each episode, all started by seeds of their own."""
    env = gymnasium.make(ENV)
    found = []
    for episode in range(args.episodes):
        obs, _ = env.reset(seed=1_000 * args.seed + episode)
        total, ended = 0.0, False
        while not ended:
            action = algo.predict(obs[None].astype(np.float32))[0]
            obs, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        found.append(total)
    env.close()
    return found


def stamp() -> dict[str, Any]:
    """Time, versions and machine."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "cores": len(os.sched_getaffinity(0)),
    }


if __name__ == "__main__":
    main()
