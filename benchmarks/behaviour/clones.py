"""What is left of an expert's return in a clone of it; README.md says of how many rows and updates.

    python benchmarks/behaviour/clones.py --out FILE.json    # the shipped experts, as they act

Experts whose states and actions have the same lengths are lanes of one training.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from puorl.core.files import write_json
from puorl.data.dataset import Dataset
from puorl.data.training_set import TrainingSet
from puorl.envs import behaviour, bodies
from puorl.envs.collect import collect
from puorl.envs.evaluate import evaluate
from puorl.nn.numpy_mlp import SquashedGaussianActor
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.trainer import policies

ROWS = 300_000
UPDATES = 300_000
EPISODES = 100
BODIES = ("hopper", "halfcheetah", "walker2d")
DOMAINS = ("nominal", "body_mass", "joint_noise")


class Expert(NamedTuple):
    """A policy to clone, in the domain it acts in."""

    body: str
    domain: str
    policy: SquashedGaussianActor


class Size(NamedTuple):
    """How much is spent on a clone."""

    rows: int = ROWS
    updates: int = UPDATES
    episodes: int = EPISODES


def rows_of(expert: Expert, rows: int, cache: Path) -> Dataset:
    """The expert's rows, made once."""
    return collect(
        expert.body, expert.domain, rows=rows, policy=expert.policy, threads=1, cache=cache
    )


def _make(job: tuple[Expert, int, Path]) -> None:
    rows_of(*job)


def make_rows(experts: Sequence[Expert], rows: int, cache: Path, workers: int) -> None:
    """Collect for all experts, one a core."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(experts)), spawn) as pool:
        for _ in pool.map(_make, [(expert, rows, cache) for expert in experts]):
            pass


def clone_returns(
    experts: Sequence[Expert], size: Size, cache: Path, workers: int
) -> list[np.ndarray]:
    """Returns (episodes,) of a clone of each expert, deterministic, in the expert's domain."""
    make_rows(experts, size.rows, cache, workers)
    found: dict[int, np.ndarray] = {}
    for shape in dict.fromkeys(_shape(expert) for expert in experts):
        own = [i for i, expert in enumerate(experts) if _shape(expert) == shape]
        found |= dict(zip(own, _train([experts[i] for i in own], size, cache), strict=True))
    return [found[i] for i in range(len(experts))]


def _train(experts: Sequence[Expert], size: Size, cache: Path) -> list[np.ndarray]:
    data = [rows_of(expert, size.rows, cache) for expert in experts]
    pool = Dataset.concatenate(data)
    edges = np.cumsum([0, *map(len, data)])
    sets = [TrainingSet(pool, np.arange(edges[i], edges[i + 1])) for i in range(len(data))]
    learner = learners.make("bc", num_steps=size.updates)
    work = trainer.prepare(learner, sets, [trainer.Lane(i, 0) for i in range(len(sets))])
    train_state = trainer.fresh(work)
    for point in trainer.train(work, steps=size.updates, interval=size.updates):
        train_state = point.train_state
    made = policies(work, train_state, steps=size.updates)
    result: list[np.ndarray | None] = [None] * len(experts)
    for place in dict.fromkeys((expert.body, expert.domain) for expert in experts):
        own = [i for i, expert in enumerate(experts) if (expert.body, expert.domain) == place]
        alive = [clone for i in own if (clone := made[i]) is not None]
        assert len(alive) == len(own), f"{place}: a clone was given up"
        returns = evaluate(alive, "/".join(place), episodes=size.episodes, seed=3).returns
        for i, row in zip(own, returns, strict=True):
            result[i] = row
    return [row for row in result if row is not None]


def _shape(expert: Expert) -> tuple[int, int]:
    robot = bodies.body(expert.body)
    return robot.obs_dim, robot.act_dim


def main() -> None:
    """Clone the shipped experts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bodies", nargs="+", default=BODIES, choices=BODIES)
    parser.add_argument("--domains", nargs="+", default=DOMAINS, choices=DOMAINS)
    parser.add_argument("--version", type=int, help="of the policies; the standard one by default")
    parser.add_argument("--out", type=Path, default=Path("scratch/behaviour/out/clones.json"))
    parser.add_argument("--cache", type=Path, default=Path("scratch/data"), help="datasets")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--collect", action="store_true", help="only make the rows")
    given = parser.parse_args()
    shipped = [
        behaviour.find(body, domain, "expert", version=given.version)
        for body in given.bodies
        for domain in given.domains
    ]
    experts = [Expert(e.body, e.domain, SquashedGaussianActor.load(e.path)) for e in shipped]
    size = Size(given.rows, given.updates, given.episodes)
    if given.collect:
        make_rows(experts, size.rows, given.cache, given.workers)
        return
    found = clone_returns(experts, size, given.cache, given.workers)
    table: dict[str, Any] = {
        each.name: {
            "expert": each.mean,
            "clone": float(returns.mean()),
            "clone_std": float(returns.std()),
            "kept": float(returns.mean() / each.mean),
            "fingerprint": each.fingerprint,
            **size._asdict(),
        }
        for each, returns in zip(shipped, found, strict=True)
    }
    write_json(given.out, table, force=True)
    for name, row in table.items():
        print(f"{name:32} {row['expert']:7.0f} clone {row['clone']:7.0f} {row['kept']:.3f}")


if __name__ == "__main__":
    main()
