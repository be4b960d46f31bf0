"""Does the start of an episode make Walker2d's rows hard to learn from? TD3+BC on such rows.

    python benchmarks/behaviour/check.py --arms as_is no_start new_pair --pair MEDIUM EXPERT
    python benchmarks/behaviour/check.py --arms as_is --units float32

300,000 nominal medium-expert rows, ten seeds each:

- ``as_is``: version 1 of the policies.
- ``no_start``: the same rows without the medium's first 20 steps of every episode.
- ``new_pair``: a medium and an expert that agree at the start (``--pair``, two policy files).
- ``as_is`` with ``--units float32``: on a GPU hidden units are bfloat16 unless this is said.

The arms of one call are lanes of one program. One row for each lane is added to ``--out``; nothing
is picked, the last policies count. ``--show`` prints the table.
"""

import argparse
import dataclasses
import inspect
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))

from recorded import RESULTS, Recorded
from starts import NUM_STEPS

from puorl.bench.stats import SampleSummary
from puorl.data.dataset import Dataset
from puorl.data.episodes import episode_returns
from puorl.data.training_set import TrainingSet
from puorl.envs import behaviour
from puorl.envs.collect import collect
from puorl.envs.evaluate import evaluate, normalised_score
from puorl.nn.numpy_mlp import SquashedGaussianActor
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.trainer import policies

BODY = "walker2d"
ARMS = ("as_is", "no_start", "new_pair")
ROWS = 300_000


def main() -> None:
    """Train the arms that were asked for, or print what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arms", nargs="+", default=[], choices=ARMS)
    parser.add_argument("--pair", nargs=2, type=Path, metavar=("MEDIUM", "EXPERT"))
    parser.add_argument("--units", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--curve-episodes", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--threads", type=int, help="of the simulator; all cores by default")
    parser.add_argument("--cache", type=Path, default=Path("scratch/data"), help="datasets")
    parser.add_argument("--out", type=Path, default=RESULTS / "walker2d-check.jsonl")
    parser.add_argument("--collect", action="store_true", help="only make the rows")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if given.show:
        show(Recorded(given.out))
    elif given.collect:
        for arm in given.arms:
            rows_of(arm, given)
    else:
        train(given)


def rows_of(arm: str, given: argparse.Namespace) -> tuple[Dataset, list[str]]:
    """The rows an arm is made from, and the fingerprints of medium and expert."""
    if arm == "new_pair":
        actors = [SquashedGaussianActor.load(path) for path in given.pair]
        parts = [
            collect(
                BODY, rows=given.rows // 2, policy=actor, threads=given.threads, cache=given.cache
            )
            for actor in actors
        ]
        return Dataset.concatenate(parts), [actor.fingerprint for actor in actors]
    marks = [behaviour.find(BODY, level=w, version=1).fingerprint for w in ("medium", "expert")]
    made = collect(
        BODY,
        quality="medium-expert",
        rows=given.rows,
        policy_version=1,
        threads=given.threads,
        cache=given.cache,
    )
    return made, marks


def kept_rows(arm: str, data: Dataset) -> np.ndarray:
    """Positions of the rows that are learnt from; the medium's are the first half."""
    rows = np.arange(len(data))
    if arm != "no_start":
        return rows
    assert data.episode is not None
    first = np.searchsorted(data.episode, data.episode)
    return rows[(rows >= len(data) // 2) | (rows - first >= NUM_STEPS)]


def train(given: argparse.Namespace) -> None:
    """All seeds of the arms side by side."""
    if given.units == "float32":
        # The same program, traced outside of the context that makes a GPU's units bfloat16.
        trainer.run_chunk = inspect.unwrap(trainer.run_chunk)
    sources = {arm: rows_of(arm, given) for arm in given.arms}
    distinct: dict[str, Dataset] = {data.fingerprint: data for data, _ in sources.values()}
    pool = Dataset.concatenate(list(distinct.values()))
    begins = dict(zip(distinct, np.cumsum([0, *map(len, distinct.values())]), strict=False))
    sets = [
        TrainingSet(pool, begins[data.fingerprint] + kept_rows(arm, data))
        for arm, (data, _) in sources.items()
    ]
    learner = learners.make("td3_bc", num_steps=given.steps)
    lanes = [trainer.Lane(i, seed) for i in range(len(sets)) for seed in range(given.seeds)]
    began = time.perf_counter()
    work = trainer.prepare(learner, sets, lanes)
    train_state = trainer.fresh(work)
    curves: list[tuple[int, Future[Any]]] = []
    spent = []
    with ThreadPoolExecutor(1) as beside:
        for point in trainer.train(work, steps=given.steps, interval=given.steps // given.points):
            train_state = point.train_state
            spent.append(round(point.seconds, 2))
            last = point.step == given.steps
            made = policies(work, train_state, steps=point.step)
            episodes = given.episodes if last else given.curve_episodes
            looked = beside.submit(_returns, made, episodes, 0 if last else 1, given.threads)
            curves.append((point.step, looked))
            print(f"{point.step:,} in {point.seconds:.1f} s", flush=True)
        found = [(step, looked.result()) for step, looked in curves]
    total = time.perf_counter() - began
    recorded = Recorded(given.out)
    for i, lane in enumerate(lanes):
        arm = given.arms[lane.line]
        data, marks = sources[arm]
        returns = found[-1][1][i]
        recorded.add(
            {
                "arm": arm,
                "body": BODY,
                "domain": "nominal",
                "quality": "medium-expert",
                "policies": marks,
                "rows": given.rows,
                "learner": "td3_bc",
                "config": dataclasses.asdict(learner.config),
                "units": given.units,
                "steps": given.steps,
                "seed": lane.seed,
                "episodes": given.episodes,
                "curve_episodes": given.curve_episodes,
            },
            {
                "score": _score(returns),
                "returns": None if returns is None else returns.tolist(),
                "curve": [(step, _score(each[i])) for step, each in found[:-1]],
                "rows_kept": len(sets[lane.line].rows),
                "behaviour_score": _behaviour_score(data),
                "lanes": len(lanes),
                "seconds": spent,
                "total_seconds": round(total, 1),
                "device": jax.devices()[0].device_kind,
                "data": data.fingerprint,
            },
        )
    show(recorded)


def _returns(
    made: list[Any], episodes: int, seed: int, threads: int | None
) -> list[np.ndarray | None]:
    alive = [policy for policy in made if policy is not None]
    result = iter(evaluate(alive, BODY, episodes=episodes, seed=seed, threads=threads).returns)
    return [None if policy is None else next(result) for policy in made]


def _score(returns: np.ndarray | None) -> float | None:
    return None if returns is None else float(normalised_score(BODY, returns).mean())


def _behaviour_score(data: Dataset) -> float:
    return float(normalised_score(BODY, episode_returns(data.rows)).mean())


def show(recorded: Recorded) -> None:
    """A line for each arm: mean and 95 % interval over seeds, and every seed's score."""
    arms: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in recorded.rows:
        c = row["config"]
        arms.setdefault((c["arm"], c["units"], c["steps"]), []).append(row)
    print("| rows | units | updates | seeds | score | lowest, highest | behaviour | on the way |")
    print("|---|---|--:|--:|--:|--:|--:|---|")
    for (arm, units, steps), rows in arms.items():
        scores = [row["measured"]["score"] for row in rows]
        known = [score for score in scores if score is not None]
        made = SampleSummary.of(known)
        way = np.array([[s for _, s in row["measured"]["curve"]] for row in rows], float)
        print(
            f"| {arm} | {units} | {steps:,} | {len(rows)} "
            f"| {made.mean:.1f} ± {made.half_width:.1f} | {min(known):.1f}, {max(known):.1f} "
            f"| {rows[0]['measured']['behaviour_score']:.1f} "
            f"| {', '.join(f'{s:.1f}' for s in way.mean(axis=0))} |"
        )


if __name__ == "__main__":
    main()
