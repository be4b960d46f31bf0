"""How good are the policies? Learners on our own data, beside the paper's Oracle column.

    python benchmarks/learners/scores.py [--parts hopper/td3_bc] [--steps 1M] [--seeds 5] [--show]

300,000 nominal rows of medium and of medium-expert behaviour, three bodies. Both sets of a body and
all seeds are lanes of one program, and bodies of one shape may share it (halfcheetah+walker2d/iql).
Final: the mean of ``--episodes`` episodes a seed after the last update; nothing is picked. Rows in
the results are not measured again. It wants a GPU and many cores.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
from many import Source, collect_all, device
from recorded import RESULTS, Recorded

from puorl.bench import published
from puorl.bench.stats import Summary
from puorl.core.formatting import parse_count
from puorl.data.dataset import Dataset
from puorl.data.episodes import episode_returns, return_range
from puorl.data.training_set import TrainingSet
from puorl.envs.evaluate import evaluate, normalised_score
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.trainer import Lane

BODIES = ("hopper", "halfcheetah", "walker2d")
QUALITIES = ("medium", "medium-expert")
ROWS = 300_000
CURVE_EPISODES = 3
SHORT = {"medium": "M/M", "medium-expert": "ME/ME"}


def main() -> None:
    """Collect, train what is missing in one process for each part, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=[], help="BODY/LEARNER, side by side")
    parser.add_argument("--qualities", nargs="+", default=list(QUALITIES), choices=QUALITIES)
    parser.add_argument("--rows", default=str(ROWS))
    parser.add_argument("--steps", default="1M")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument("--points", type=int, default=5, help="points of the curve")
    parser.add_argument("--episodes", type=int, default=10, help="final episodes of a seed")
    parser.add_argument("--out", type=Path, default=RESULTS / "learners.jsonl")
    parser.add_argument("--cache", type=Path, default=Path("scratch/data"), help="datasets")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--collect", action="store_true", help="only make the datasets")
    parser.add_argument("--show", action="store_true", help="print the table, train nothing")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        train_part(*args.part.split("/"), args)
        return
    if not args.show:
        rows = parse_count(args.rows)
        sources = [Source(b, "nominal", q, rows, 0) for b in BODIES for q in QUALITIES]
        collect_all(sources, args.cache, args.workers)
        if not args.collect:
            run_parts(args.parts or [f"{b}/td3_bc" for b in BODIES])
    show(Recorded(args.out))


def run_parts(parts: list[str]) -> None:
    """Every part in a process of its own with the same options; they share the GPU."""
    words = [word for word in sys.argv[1:] if word not in parts and word != "--parts"]
    running = [
        subprocess.Popen([sys.executable, __file__, *words, "--part", part]) for part in parts
    ]
    failed = [part for part, each in zip(parts, running, strict=True) if each.wait() != 0]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


class Cell(NamedTuple):
    """A lane: what it learns from, and its seed."""

    body: str
    quality: str
    seed: int


def train_part(bodies: str, name: str, args: argparse.Namespace) -> None:
    """All seeds of both sets of bodies that have one shape, with one learner."""
    rows, steps = parse_count(args.rows), parse_count(args.steps)
    names = bodies.split("+")
    learner = learners.make(name, num_steps=steps, **settings_of(name, names))
    recorded = Recorded(args.out)
    configs = {
        Cell(body, quality, seed): {
            "body": body,
            "quality": quality,
            "rows": rows,
            "learner": name,
            "config": dataclasses.asdict(learner.config),
            "steps": steps,
            "seed": seed,
            "episodes": args.episodes,
        }
        for body in names
        for quality in args.qualities
        for seed in range(args.seeds)
    }
    if all(recorded.find(config) for config in configs.values()):
        return
    data = {
        (body, quality): Source(body, "nominal", quality, rows, 0).collect(args.cache)
        for body in names
        for quality in args.qualities
    }
    sets = training_sets(data)
    lanes = [Lane(list(sets).index((cell.body, cell.quality)), cell.seed) for cell in configs]
    began = time.perf_counter()
    work = trainer.prepare(learner, list(sets.values()), lanes)
    curves: list[list[Any]] = [[] for _ in lanes]
    spent, standing = [], trainer.fresh(work)
    for point in trainer.train(work, steps=steps, interval=steps // args.points):
        spent.append(point.seconds)
        standing = point.standing
        if point.step < steps:
            found = scores_of(work, standing, point.step, list(configs), CURVE_EPISODES, seed=1)
            for curve, (score, _) in zip(curves, found, strict=True):
                curve.append((point.step, score))
        print(f"{bodies} {name}: {point.step:,} in {point.seconds:.0f} s", flush=True)
    final = scores_of(work, standing, steps, list(configs), args.episodes, seed=0)
    total = time.perf_counter() - began
    for i, (cell, config) in enumerate(configs.items()):
        score, returns = final[i]
        stop = trainer.stopped(work, standing)[i]
        source = data[cell.body, cell.quality]
        recorded.add(
            config,
            {
                "returns": returns,
                "score": score,
                "curve": curves[i],
                "stopped": None if stop is None else stop._asdict(),
                "lanes": len(lanes),
                "seconds": [round(s, 2) for s in spent],
                "total_seconds": round(total, 1),
                "device": device(),
                "shared_device": bool(os.environ.get("CUDA_MPS_PIPE_DIRECTORY")),
                "data": source.fingerprint,
                "behaviour_score": behaviour_score(cell.body, source),
            },
        )


def settings_of(name: str, bodies: list[str]) -> dict[str, Any]:
    """A preset made for this body and medium-expert behaviour, where a learner has one."""
    preset = f"{bodies[0]}-medium-expert"
    return {"preset": preset} if preset in learners.presets(name) else {}


def training_sets(data: dict[tuple[str, str], Dataset]) -> dict[tuple[str, str], TrainingSet]:
    """One pool, one training set for each source; each keeps its own returns."""
    pool = Dataset.concatenate(list(data.values()))
    sets, start = {}, 0
    for source, part in data.items():
        rows = np.arange(start, start + len(part))
        sets[source] = TrainingSet(pool, rows, returns=return_range([part.rows]))
        start += len(part)
    return sets


def scores_of(
    work: trainer.TrainJob,
    standing: trainer.Standing,
    step: int,
    cells: list[Cell],
    episodes: int,
    seed: int,
) -> list[tuple[float | None, list[float] | None]]:
    """Mean normalised score and returns of every lane; None for one that was given up."""
    made = trainer.policies(work, standing, steps=step)
    result: list[tuple[float | None, list[float] | None]] = [(None, None)] * len(made)
    for body in dict.fromkeys(cell.body for cell in cells):
        own = [i for i, cell in enumerate(cells) if cell.body == body and made[i] is not None]
        if own:
            found = evaluate([made[i] for i in own], body, episodes=episodes, seed=seed).returns
            for i, returns in zip(own, found, strict=True):
                result[i] = (float(normalised_score(body, returns).mean()), returns.tolist())
    return result


def behaviour_score(body: str, data: Dataset) -> float:
    """Normalised score of the policies that made the data: of its complete episodes."""
    return float(normalised_score(body, episode_returns(data.rows)).mean())


def paper_oracle(name: str, body: str, quality: str) -> str:
    """The published score of this learner on as many rows of D4RL, where there is one."""
    wanted = (name, "body_mass", "0.01", body, SHORT[quality], "oracle")
    columns = ("learner", "shift", "labeled_ratio", "env", "quality", "method")
    found = [r for r in published.rows("policy_scores") if tuple(r[c] for c in columns) == wanted]
    return f"{found[0]['mean']} ± {found[0]['ci95']}" if found else ""


def show(recorded: Recorded) -> None:
    """A line for each learner and set: mean and 95 % interval over seeds."""
    cells: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in recorded.rows:
        c = row["config"]
        cells.setdefault((c["learner"], c["body"], c["quality"], str(c["steps"])), []).append(row)
    print("| learner | data | steps | seeds | score | behaviour | paper's Oracle |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for (name, body, quality, steps), rows in sorted(cells.items()):
        scores = Summary.of([row["measured"]["score"] for row in rows])
        oracle = paper_oracle(name, body, quality)
        print(
            f"| {name} | {body} {quality} | {int(steps):,} | {len(rows)} "
            f"| {scores.mean:.1f} ± {scores.half:.1f} "
            f"| {rows[0]['measured']['behaviour_score']:.1f} | {oracle} |"
        )


if __name__ == "__main__":
    main()
