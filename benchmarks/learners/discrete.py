"""Discrete actions: our learners beside d3rlpy's discrete CQL, on the same logs.

    python benchmarks/learners/discrete.py [--envs CartPole-v1] [--steps 10k] [--seeds 3] [--show]

Needs `make bench-setup` and, for LunarLander, ``Box2D`` in the same environment. Logs are made
here: simple controllers, of which each episode takes one of three fractions of random actions.
Every learner has the same rows, steps, batches and layers. A score is the mean undiscounted return
of ``--episodes`` greedy episodes after the last update; nothing is picked. Rows in the results are
not measured again.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
import types
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
from recorded import RESULTS, Recorded

import puorl
from puorl.core.formatting import parse_count
from puorl.core.stats import mean_estimate
from puorl.data.dataset import Dataset
from puorl.data.episodes import episode_returns
from puorl.envs.evaluate import evaluate

ROWS = {"CartPole-v1": 20_000, "LunarLander-v3": 40_000}
RANDOM = (0.2, 0.5, 0.8)
"""Fractions of random actions, one for each episode."""
LEARNERS = ("bc", "iql", "cql", "bcq", "d3rlpy-cql", "d3rlpy-cql-default")
COMMON = {"hidden": (128, 128), "batch_size": 128}
RATE, GAMMA, WEIGHT, TARGET_EVERY = 3e-4, 0.99, 1.0, 200
"""Of both CQLs; 200 updates between copies are as many as our soft updates average over."""


def main() -> None:
    """Make the logs, train what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    parser.add_argument("--steps", default="10k")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--episodes", type=int, default=20, help="final episodes of a seed")
    parser.add_argument("--out", type=Path, default=RESULTS / "discrete-learners.jsonl")
    parser.add_argument("--cache", type=Path, default=Path("scratch/data"), help="logs")
    parser.add_argument("--show", action="store_true", help="print the table, train nothing")
    args = parser.parse_args()
    recorded = Recorded(args.out)
    for env in () if args.show else args.envs:
        data = read_log(env, args.cache)
        for learner in args.learners:
            measure(recorded, env, data, learner, args)
    show(recorded)


def read_log(env: str, cache: Path) -> Dataset:
    """Return the log of an environment, made once."""
    path = cache / f"{env}-{ROWS[env]}.npz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        puorl.save(make_log(env, ROWS[env]), path)
    return puorl.load(path)


def make_log(
    name: str, num_rows: int, first_seed: int = 0, changed: Mapping[str, float] | None = None
) -> Dataset:
    """Run the controller until there are enough rows; whole episodes, numbered by their seeds.

    Args:
        name: Of the environment.
        num_rows: At least so many.
        first_seed: Of the first episode.
        changed: Constants of the environment that differ.
    """
    without_screen()
    env, rng = gymnasium.make(name), np.random.default_rng(first_seed)
    for constant, value in (changed or {}).items():
        setattr(env.unwrapped, constant, value)
    rows: dict[str, list[Any]] = {
        n: [] for n in ("obs", "action", "reward", "next_obs", "terminal")
    }
    rows |= {"timeout": [], "episode": []}
    number = first_seed
    while len(rows["obs"]) < num_rows:
        obs, _ = env.reset(seed=number)
        fraction, ended = RANDOM[number % len(RANDOM)], False
        while not ended:
            random = rng.random() < fraction
            action = int(rng.integers(env.action_space.n)) if random else control(env, name, obs)
            after, reward, terminal, timeout, _ = env.step(action)
            one = (obs, action, float(reward), after, terminal, timeout, number)
            for key, value in zip(rows, one, strict=True):
                rows[key].append(value)
            obs, ended = after, terminal or timeout
        number += 1
    first = int(env.action_space.start)
    codes = [str(first + i) for i in range(int(env.action_space.n))]
    arrays: dict[str, Any] = {key: np.array(values) for key, values in rows.items()}
    return Dataset.from_arrays(**arrays, discrete_actions=codes)


def without_screen() -> None:
    """Let gymnasium import its Box2D games where ``pygame``, which only draws them, is missing."""
    if "pygame" not in sys.modules and importlib.util.find_spec("pygame") is None:
        screen, drawing = types.ModuleType("pygame"), types.ModuleType("pygame.gfxdraw")
        vars(screen)["gfxdraw"] = drawing
        sys.modules.update({"pygame": screen, "pygame.gfxdraw": drawing})


def control(env: Any, name: str, obs: np.ndarray) -> int:
    """A controller that solves the task, or nearly so."""
    if name.startswith("CartPole"):
        return int(obs[2] + 0.3 * obs[3] + 0.05 * obs[0] + 0.1 * obs[1] > 0)
    if name.startswith("Acrobot"):
        return 2 if obs[5] > 0 else 0
    from gymnasium.envs.box2d.lunar_lander import heuristic

    return int(heuristic(env.unwrapped, obs))


def measure(
    recorded: Recorded, env: str, data: Dataset, learner: str, args: argparse.Namespace
) -> None:
    """Train and evaluate the seeds that are missing, each a row."""
    steps = parse_count(args.steps)

    def config(seed: int) -> dict[str, Any]:
        common = {"hidden": COMMON["hidden"], "batch_size": COMMON["batch_size"]}
        return {
            "env": env,
            "log": data.fingerprint,
            "num_rows": len(data),
            "learner": learner,
            "steps": steps,
            "seed": seed,
            "episodes": args.episodes,
        } | ({} if learner.endswith("default") else common)

    missing = [seed for seed in range(args.seeds) if recorded.find(config(seed)) is None]
    if not missing:
        return
    began = time.perf_counter()
    if learner.startswith("d3rlpy"):
        policies = {seed: d3rlpy_cql(env, data, learner, steps, seed) for seed in missing}
    else:
        settings = dict(COMMON)
        if learner in ("cql", "bcq"):
            settings |= {"critic_learning_rate": RATE, "gamma": GAMMA}
        if learner == "cql":
            settings |= {"conservative_weight": WEIGHT}
        made = puorl.train_many(learner, data, args.seeds, steps=steps, **settings).policies
        policies = {seed: made[f"seed-{seed}"].act for seed in missing}
    seconds = time.perf_counter() - began
    found = evaluate(list(policies.values()), gymnasium.make(env), episodes=args.episodes, seed=7)
    behaviour = float(np.mean(episode_returns(data.rows)))
    for row, seed in enumerate(policies):
        measured = {
            "return": float(found.mean[row]),
            "returns": found.returns[row].tolist(),
            "behaviour": behaviour,
            "seconds_of_all_seeds": seconds,
            "seeds_together": len(policies),
            "packages": {n: version(n) for n in ("gymnasium", "d3rlpy", "torch")},
        }
        recorded.add(config(seed), measured)
        print(f"{env} {learner} seed {seed}: {found.mean[row]:.1f}", flush=True)


def d3rlpy_cql(env: str, data: Dataset, learner: str, steps: int, seed: int) -> Any:
    """Train d3rlpy's discrete CQL; return a function from observations to actions."""
    import d3rlpy
    import torch

    d3rlpy.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rows = d3rlpy.dataset.MDPDataset(
        observations=data.obs,
        actions=data.action_index[:, None],
        rewards=data.reward[:, None],
        terminals=data.terminal.astype(np.float32),
        timeouts=data.timeout.astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=len(data.action_codes or ()),
    )
    scaler = d3rlpy.preprocessing.StandardObservationScaler()
    settings: dict[str, Any] = {"observation_scaler": scaler}
    if not learner.endswith("default"):
        encoder = d3rlpy.models.VectorEncoderFactory(list(COMMON["hidden"]))
        settings |= {
            "learning_rate": RATE,
            "batch_size": COMMON["batch_size"],
            "gamma": GAMMA,
            "alpha": WEIGHT,
            "target_update_interval": TARGET_EVERY,
            "encoder_factory": encoder,
        }
    algorithm = d3rlpy.algos.DiscreteCQLConfig(**settings).create(device="cpu:0")
    with tempfile.TemporaryDirectory():
        algorithm.fit(
            rows,
            n_steps=steps,
            n_steps_per_epoch=steps,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
            show_progress=False,
        )
    return algorithm.predict


def show(recorded: Recorded) -> None:
    """Print mean returns with their 95 % intervals over seeds."""
    table: dict[tuple[str, str, int], list[float]] = {}
    behaviour: dict[str, float] = {}
    for row in recorded.rows:
        config = row["config"]
        place = config["env"], config["learner"], config["steps"]
        table.setdefault(place, []).append(row["measured"]["return"])
        behaviour[config["env"]] = row["measured"]["behaviour"]
    for env in dict.fromkeys(env for env, _, _ in table):
        print(f"{env}: behaviour {behaviour[env]:.1f}")
        for (of, learner, steps), returns in table.items():
            if of == env:
                mean = mean_estimate(np.array(returns))
                print(
                    f"  {learner:20} {steps:>7,} steps {mean.value:8.1f} "
                    f"[{mean.low:.1f}, {mean.high:.1f}] ({len(returns)} seeds)"
                )


if __name__ == "__main__":
    main()
