"""Does `puorl.compare` pick the method that is best in truth, or say that it cannot?

    python benchmarks/ope/compare_truth.py --tasks tanks hopper cartpole --seeds 0 1 2 [--show]

Each task mixes rows of our machine, some of them labelled, with rows of another one that was run in
the same way; ``compare`` sees no simulator. Afterwards every policy acts in our machine's simulator
from the starts of the whole log of ours. A row holds the verdict, all values and all true returns.

tanks: a fleet of twelve tanks, six of which have another valve. hopper: bodies with another mass.
cartpole: carts with a quarter of the force and longer poles, codes as actions.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tasks

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
from recorded import RESULTS, Recorded

import puorl
from puorl.core.hashing import generator
from puorl.envs.domains import parse_domain

JUDGE = {"hidden": (64, 64), "updates": 5_000, "target_interval": 10, "model_updates": 5_000}
TRAIN = {"hidden": (64, 64), "batch_size": 128}
NAMES = ("obs", "action", "reward", "next_obs", "terminal", "timeout")


def main() -> None:
    """Measure what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(MAKERS), choices=list(MAKERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=10_000, help="of each machine")
    parser.add_argument("--steps", type=int, default=5_000, help="updates of a policy")
    parser.add_argument("--policies", type=int, default=3, help="of each method")
    parser.add_argument("--out", type=Path, default=RESULTS / "ope-compare.jsonl")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    recorded = Recorded(args.out)
    for name in () if args.show else args.tasks:
        for seed in args.seeds:
            measure(recorded, name, seed, args)
    show(recorded)


def measure(recorded: Recorded, name: str, seed: int, args: argparse.Namespace) -> None:
    """Compare on one task, then let all policies act."""
    config = {
        "task": name, "seed": seed, "rows": args.rows, "steps": args.steps,
        "policies": args.policies, "judge": JUDGE, "train": TRAIN, "report": True,
    }  # fmt: skip
    if recorded.find(config) is not None:
        return
    data, labelled, truth, unit, true_return = MAKERS[name](args.rows, seed)
    began = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        seen = puorl.compare(
            data, labelled, truth=truth, unit=unit, seeds=args.policies, steps=args.steps,
            seed=seed, out=Path(folder) / "compare", judge=JUDGE, **TRAIN,
        )  # fmt: skip
        paths = sorted((Path(folder) / "compare/run/policies").glob("*.safetensors"))
        found = {path.stem: true_return(puorl.Policy.load(path)) for path in paths}
    took = time.perf_counter() - began[0], time.process_time() - began[1]
    real: dict[str, list[float]] = {}
    for lane, value in found.items():
        real.setdefault(lane.rpartition("-seed-")[0], []).append(value)
    recorded.add(config, {
        "verdict": seen.verdict,
        "first": seen.candidates[0].method,
        "rivals": [each.method for each in seen.rivals],
        "values": {each.method: each.scores for each in seen.outcomes},
        "true": real,
        "rows": {each.method: each.num_rows for each in seen.outcomes},
        "doubtful": {each.method: each.num_doubtful for each in seen.outcomes},
        "draws": {each.method: each.draws for each in seen.outcomes},
        "minus_first": {
            each.method: seen.difference(each, seen.candidates[0]).to_dict()
            for each in seen.candidates[1:]
        },
        "filter": seen.to_dict()["filter"],
        "behaviour": None if seen.behaviour is None else seen.behaviour.value,
        "seconds": took[0], "cpu_seconds": took[1],
    })  # fmt: skip


def show(recorded: Recorded) -> None:
    """Print what was picked, and what is best in truth among the methods that need no truth."""
    for row in recorded.rows:
        seen = row["measured"]
        true = {m: float(np.mean(v)) for m, v in seen["true"].items() if m != "oracle"}
        best = max(true, key=lambda method: true[method])
        reach = max(true.values()) - min(true.values())
        lost = (true[best] - true[seen["first"]]) / (reach or 1.0)
        if seen["rivals"]:
            known = best in [seen["first"], *seen["rivals"]]
            text = "cannot tell" + ("" if known else f", and leaves {best} out")
        else:
            text = "right" if seen["first"] == best else "WRONG"
        print(f"{row['config']['task']:10} seed {row['config']['seed']}: first {seen['first']:12} "
              f"best in truth {best:12} lost {lost:4.0%} of the range; {text}; true "
              + ", ".join(f"{m} {v:.4g}" for m, v in true.items()))  # fmt: skip


def mixed(
    ours: puorl.Dataset, theirs: puorl.Dataset, seed: int, share: float, **options: Any
) -> tuple[puorl.Dataset, np.ndarray, np.ndarray]:
    """Join two logs; label some episodes of ours. Return rows, labelled rows and rows of ours."""
    arrays = {n: np.concatenate([getattr(x, n) for x in (ours, theirs)]) for n in NAMES}
    number = [np.unique(x.episode, return_inverse=True)[1] for x in (ours, theirs)]
    episode = np.concatenate([number[0], number[1] + number[0].max() + 1])
    is_ours = np.arange(len(episode)) < len(ours)
    known = generator(seed, "compare").permutation(number[0].max() + 1)
    labelled = np.isin(episode, known[: max(8, round(share * len(known)))])
    data = puorl.Dataset.from_arrays(**arrays, episode=episode, **options)
    return data, labelled, is_ours


def tanks(rows: int, seed: int) -> Any:
    """A fleet of tanks in which six of twelve have a narrow outlet; three of ours are labelled."""
    start, step, observe, controller = tasks.TANK
    rng, length, number = generator(seed, "tanks"), 100, 0
    kept: list[Any] = []
    for unit in range(12):
        narrow = unit >= 6
        for _ in range(rows // (6 * length)):
            state, acting = start(1, rng), tasks.Controller(controller(rng))
            for place in range(length):
                obs = observe(state)
                action = np.clip(acting.act(obs) + 0.3 * rng.normal(size=(1, 1)), -1, 1)
                pushed = 0.4 * action - 0.5 if narrow else action
                state, reward, terminal = step(state, pushed[:, 0])
                ended = bool(terminal[0])
                kept.append((obs[0], action[0], reward[0], observe(state)[0], ended,
                             place == length - 1 and not ended, number, unit))  # fmt: skip
                if ended:
                    break
            number += 1
    obs, action, reward, after, terminal, timeout, episode, unit = map(
        np.array, zip(*kept, strict=True)
    )
    data = puorl.Dataset.from_arrays(
        obs=obs, action=action, reward=reward, next_obs=after, terminal=terminal,
        timeout=timeout, episode=episode, columns={"unit": unit.astype(np.int64)},
    )  # fmt: skip
    first = obs[np.unique(episode[unit < 6], return_index=True)[1]]
    return (
        data,
        unit < 3,
        unit < 6,
        "column:unit",
        lambda policy: tasks.in_system("tank", policy, first),
    )


def hopper(rows: int, seed: int) -> Any:
    """Hoppers as usual, and as many with another mass."""
    ours, theirs = (
        puorl.collect("hopper", domain, quality="medium-expert", rows=rows, seed=seed)
        for domain in ("nominal", "body_mass")
    )
    data, labelled, is_ours = mixed(ours, theirs, seed, 0.15)
    starts = ours.obs[np.unique(ours.episode, return_index=True)[1]]
    spec = parse_domain("hopper")
    return (
        data,
        labelled,
        is_ours,
        "transition",
        lambda policy: tasks.in_simulator(policy, spec, starts),
    )


def cartpole(rows: int, seed: int) -> Any:
    """Carts as usual, and weaker ones with longer poles."""
    make_log = tasks.learners().make_log
    first = 10_000 * seed
    ours = make_log("CartPole-v1", rows, first_seed=first)
    weaker = {"force_mag": 2.5, "length": 1.0}
    theirs = make_log("CartPole-v1", rows, first_seed=first + 5_000, changed=weaker)
    codes = list(ours.action_codes or ())
    data, labelled, is_ours = mixed(ours, theirs, seed, 0.15, discrete_actions=codes)
    seeds = np.unique(ours.episode).tolist()
    return (
        data,
        labelled,
        is_ours,
        "transition",
        lambda policy: tasks.in_game(tasks.Greedy(policy), "CartPole-v1", seeds),
    )


MAKERS = {"tanks": tanks, "hopper": hopper, "cartpole": cartpole}

if __name__ == "__main__":
    main()
