"""Estimate policies of known value from logs: our estimators, and d3rlpy's FQE beside them.

    python benchmarks/ope/estimate.py --tasks hopper halfcheetah walker2d   (judged)
    python benchmarks/ope/estimate.py --tasks pendulum tank                 (tuned on)
    .venv-bench/bin/python benchmarks/ope/estimate.py --side d3rlpy --tasks hopper ...
    python benchmarks/ope/estimate.py --show

One row a policy and side in ``results/ope.jsonl``: truth, estimates with intervals, settings. Rows
that are there are not made again, so the command resumes. ``--show`` prints Spearman's correlation,
regret@1 (of the range of true values), coverage and median width of the intervals. The d3rlpy side
needs `make bench-setup`. Every number of ``--set`` is a field of `puorl.ope.OPEConfig`.
"""

import argparse
import datetime
import json
import os
import platform
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tasks
from scipy.stats import spearmanr

RESULTS = Path(__file__).parents[1] / "results" / "ope.jsonl"
D3RLPY = {"learning_rate": 1e-4, "batch_size": 100, "n_critics": 1, "target_update_interval": 100}
"""Its defaults."""


def main() -> None:
    """Make the rows that are missing, or show what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(tasks.BODIES))
    parser.add_argument("--side", choices=("ours", "d3rlpy"), default="ours")
    parser.add_argument("--rows", type=int, default=40_000, help="of the log that judges")
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--most", type=int, default=20, help="policies of a task")
    parser.add_argument("--noise", type=float, default=0.1, help="action noise of dr, pdis, wis")
    parser.add_argument("--set", default="{}", help="JSON: settings of OPEConfig that differ")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--label", default="default", help="name of these settings in the rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    if args.show:
        show(args.out)
        return
    done = {key(row) for row in read(args.out)}
    for name in args.tasks:
        task = tasks.make(name, rows=args.rows, seed=args.seed)
        for policy in list(task.policies)[: args.most]:
            row = {
                "task": name, "policy": policy, "side": args.side, "label": args.label,
                "seed": args.seed, "rows": args.rows, "updates": args.updates,
            }  # fmt: skip
            if key(row) in done:
                continue
            began = time.perf_counter(), time.process_time()
            found = (
                ours(task, policy, args) if args.side == "ours" else d3rlpy_fqe(task, policy, args)
            )
            row |= {"truth": task.truth[policy], "gamma": tasks.GAMMA} | found
            row["seconds"] = time.perf_counter() - began[0]
            row["cpu_seconds"] = time.process_time() - began[1]
            append(args.out, row)
            shown = {name: round(value["value"], 3) for name, value in found["values"].items()}
            print(name, policy, f"truth {row['truth']:.4g}", shown, flush=True)


def append(path: Path, row: dict[str, Any]) -> None:
    """Append one JSON row with date, versions and load."""
    packages = ("puorl", "numpy") + (("d3rlpy", "torch") if row.get("side") == "d3rlpy" else ())
    row = {
        "date": datetime.date.today().isoformat(),
        **row,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": {name: version(name) for name in packages}
        | {"python": platform.python_version()},
    }
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what makes a row the same measurement."""
    names = ("task", "policy", "side", "label", "seed", "rows", "updates")
    return tuple(row[name] for name in names)


def read(path: Path) -> list[dict[str, Any]]:
    """Read all rows."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ours(task: tasks.Task, policy: str, args: argparse.Namespace) -> dict[str, Any]:
    """Estimate by all of our estimators."""
    from puorl import ope

    settings = json.loads(args.set)
    seen = ope.evaluate(
        {policy: task.policies[policy]}, task.judge, gamma=tasks.GAMMA, action_noise=args.noise,
        seed=args.seed, updates=args.updates, **settings,
    )  # fmt: skip
    values = {
        name: {**value.estimate.to_dict(), "effective_size": value.effective_size,
               "is_doubtful": value.is_doubtful}
        for name, value in seen.values[policy].items()
    }  # fmt: skip
    return {
        "values": values,
        "outside": seen.outside[policy],
        "behaviour": seen.behaviour.estimate.value,
        "settings": {**seen.settings, "noise": args.noise},
    }


def d3rlpy_fqe(task: tasks.Task, policy: str, args: argparse.Namespace) -> dict[str, Any]:
    """Estimate by d3rlpy's FQE with its defaults, and with standardised states and rewards."""
    import d3rlpy
    import torch

    rows = task.judge
    # An episode that the log cuts without a flag would be refused.
    last = np.append(rows.episode[1:] != rows.episode[:-1], True)
    ends = (rows.timeout | last) & ~rows.terminal
    starts = rows.obs[np.unique(rows.episode, return_index=True)[1]]
    act = task.policies[policy].act
    values = {}
    for name, scaled in (("d3rlpy", False), ("d3rlpy_scaled", True)):
        centre = rows.obs.mean(axis=0) * scaled
        scale = rows.obs.std(axis=0) + 1e-6 if scaled else np.ones_like(centre)
        factor = float(rows.reward.std()) if scaled else 1.0  # no shift: tasks may end

        class Algo:
            """What d3rlpy asks for actions: here, in units of the rows that it was given."""

            def __init__(self, centre: np.ndarray, scale: np.ndarray) -> None:
                self.centre, self.scale, self.impl = centre, scale, self

            def predict_best_action(self, x: torch.Tensor) -> torch.Tensor:
                obs = (x.numpy() * self.scale + self.centre).astype(np.float32)
                return torch.as_tensor(np.asarray(act(obs), np.float32))

        data = d3rlpy.dataset.MDPDataset(
            ((rows.obs - centre) / scale).astype(np.float32),
            rows.action.astype(np.float32),
            (rows.reward / factor).astype(np.float32),
            rows.terminal.astype(np.float32),
            ends.astype(np.float32),
        )
        d3rlpy.seed(args.seed)
        config = d3rlpy.ope.FQEConfig(**D3RLPY, gamma=tasks.GAMMA)
        fqe = d3rlpy.ope.FQE(algo=Algo(centre, scale), config=config)
        fqe.fit(
            data,
            n_steps=args.updates,
            n_steps_per_epoch=args.updates,
            show_progress=False,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )
        first = ((starts - centre) / scale).astype(np.float32)
        action = np.asarray(act(starts.astype(np.float32)), np.float32)
        values[name] = {"value": factor * float(fqe.predict_value(first, action).mean())}
    return {"values": values, "settings": D3RLPY}


def show(path: Path) -> None:
    """Print a table of all tasks and estimators."""
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    truth: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for row in read(path):
        where = row["task"], row["label"], row["seed"], row["rows"], row["updates"]
        truth[where][row["policy"]] = row["truth"]
        for name, value in row["values"].items():
            groups[where, name][row["policy"]] = value
    head = ("task", "label", "estimator", "policies", "Spearman", "regret@1", "coverage", "width")
    print(f"{head[0]:<13}{head[1]:<10}{head[2]:<15}" + "".join(f"{h:>10}" for h in head[3:]))
    for (where, name), values in sorted(groups.items(), key=str):
        shared = [p for p in values if values[p]["value"] is not None]
        true = np.array([truth[where][p] for p in shared])
        found = np.array([values[p]["value"] for p in shared])
        if len(true) < 3:
            continue
        reach = true.max() - true.min()
        regret = (true.max() - true[found.argmax()]) / reach
        ends = [(values[p].get("low"), values[p].get("high")) for p in shared]
        known = [(t, e) for t, e in zip(true, ends, strict=True) if e[0] is not None]
        inside = np.mean([e[0] <= t <= e[1] for t, e in known]) if known else np.nan
        width = np.median([e[1] - e[0] for _, e in known]) / reach if known else np.nan
        print(f"{where[0]:<13}{where[1]:<10}{name:<15}{len(true):>10}"
              f"{spearmanr(true, found).statistic:>10.2f}{regret:>10.2f}{inside:>10.2f}"
              f"{width:>10.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
