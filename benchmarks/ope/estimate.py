"""Estimate policies of known value from logs: our estimators, and d3rlpy's FQE beside them.

    python benchmarks/ope/estimate.py --tasks hopper halfcheetah walker2d   (judged)
    python benchmarks/ope/estimate.py --tasks pendulum tank                 (tuned on)
    .venv-bench/bin/python benchmarks/ope/estimate.py --side d3rlpy --tasks hopper ...
    python benchmarks/ope/estimate.py --show

One row a policy and side in ``results/ope.jsonl``: truth, estimates with intervals, settings. Rows
that are there are not made again, so the command resumes. ``--show`` prints Spearman's correlation,
regret@1 (of the range of true values), coverage and median width of the intervals, and whether what
a ranking claims is right. The d3rlpy side
needs `make bench-setup`. Every number of ``--set`` is a field of `puorl.ope.OPEConfig`.
"""

import argparse
import datetime
import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scope
import tasks
from scipy.stats import spearmanr

SIDES = ("ours", "d3rlpy", "d3rlpy_scaled", "scope_marginal")
RESULTS = Path(__file__).parents[1] / "results" / "ope.jsonl"
SPREADS = RESULTS.with_name("ope-spreads.jsonl")
"""How much logged returns differ, by task: what makes a value vague (`puorl.ope.Value`)."""
D3RLPY = {"learning_rate": 1e-4, "batch_size": 100, "n_critics": 1, "target_update_interval": 100}
"""Its defaults."""


def main() -> None:
    """Make the rows that are missing, or show what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(tasks.BODIES))
    parser.add_argument("--side", choices=SIDES, default="ours")
    parser.add_argument("--rows", type=int, default=40_000, help="of the log that judges")
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--policies", type=int, nargs=2, default=(0, 99), help="first, after last")
    parser.add_argument("--together", type=int, default=99, help="policies between two writes")
    parser.add_argument("--noise", type=float, default=0.1, help="action noise of dr, pdis, wis")
    parser.add_argument("--set", default="{}", help="JSON: settings of OPEConfig that differ")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--label", default="default", help="name of these settings in the rows")
    parser.add_argument("--critics-of", metavar="LABEL", help="roll out anew, blend with its fqe")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--cache", type=Path, default=Path("scratch/ope"), help="tasks")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--spreads", action="store_true", help="only how much returns differ")
    args = parser.parse_args()
    if args.spreads:
        add_spreads(args)
        return
    if args.show:
        show(args.out)
        return
    done = {key(row) for row in read(args.out)}
    for name in args.tasks:
        task = tasks.make(name, rows=args.rows, seed=args.seed, folder=args.cache)
        rows = [
            {
                "task": name, "policy": policy, "side": args.side, "label": args.label,
                "seed": args.seed, "rows": args.rows, "updates": args.updates,
            }
            for policy in list(task.policies)[slice(*args.policies)]
        ]  # fmt: skip
        rows = [row for row in rows if key(row) not in done]
        # Our policies share models of the machine and of the behaviour.
        size = args.together if args.side == "ours" else 1
        for group in [rows[i : i + size] for i in range(0, len(rows), size)]:
            chosen = [row["policy"] for row in group]
            began = time.perf_counter(), time.process_time()
            estimate = {"ours": ours, "scope_marginal": scope_marginal}.get(args.side, d3rlpy_fqe)
            found = estimate(task, chosen, args)
            took = time.perf_counter() - began[0], time.process_time() - began[1]
            for row in group:
                row |= {"truth": task.truth[row["policy"]], "gamma": tasks.GAMMA}
                row |= found[row["policy"]] | {"policies_together": len(chosen)}
                row["seconds"], row["cpu_seconds"] = (each / len(chosen) for each in took)
                append(args.out, row)
                shown = {key: round(value["value"], 3) for key, value in row["values"].items()}
                print(name, row["policy"], f"truth {row['truth']:.4g}", shown, flush=True)


def add_spreads(args: argparse.Namespace) -> None:
    """Append the mean and the spread of logged returns of every task."""
    from puorl.ope.logged import LoggedEpisodes

    for name in args.tasks:
        returns = LoggedEpisodes.of(tasks.log(name, args.rows, args.seed)).returns(tasks.GAMMA)
        row = {"task": name, "seed": args.seed, "rows": args.rows, "gamma": tasks.GAMMA}
        row |= {"episodes": len(returns), "mean": float(returns.mean())}
        append(SPREADS, row | {"spread": float(returns.std())})
        print(row, flush=True)


def append(path: Path, row: dict[str, Any]) -> None:
    """Append one JSON row with date, versions and load."""
    is_peer = str(row.get("side")).startswith(("d3rlpy", "scope"))
    packages = ("puorl", "numpy") + (("d3rlpy", "torch") if is_peer else ("jax",))
    row = {
        "date": datetime.date.today().isoformat(),
        **row,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": {name: version(name) for name in packages}
        | {"python": platform.python_version()},
        "machine": platform.machine(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what makes a row the same measurement."""
    names = ("task", "policy", "side", "label", "seed", "rows", "updates")
    return tuple(row[name] for name in names)


def read(path: Path) -> list[dict[str, Any]]:
    """Read all rows."""
    return parsed(path.read_text(encoding="utf-8").splitlines()) if path.exists() else []


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    """Parse rows."""
    return [json.loads(line) for line in lines]


def ours(task: tasks.Task, chosen: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Estimate policies by all of our estimators."""
    import jax

    from puorl import ope

    settings = json.loads(args.set)
    if args.critics_of:
        settings["estimators"] = ["model"]
    seen = ope.evaluate(
        {name: task.policies[name] for name in chosen}, task.judge, gamma=tasks.GAMMA,
        action_noise=args.noise, seed=args.seed, updates=args.updates, **settings,
    )  # fmt: skip
    found = {
        policy: {
            "values": {
                name: {**value.estimate.to_dict(), "effective_size": value.effective_size,
                       "is_doubtful": value.is_doubtful,
                       "draws": value.draws if name in ("blend", "fqe", "model") else ()}
                for name, value in seen.values[policy].items()
            },
            "default": seen.default,
            "outside": seen.outside[policy],
            "behaviour": seen.behaviour.estimate.value,
            "settings": {**seen.settings, "noise": args.noise},
            "device": jax.default_backend(),
        }
        for policy in chosen
    }  # fmt: skip
    return blended(task, found, args) if args.critics_of else found


def blended(task: tasks.Task, found: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Add the critics of stored rows, which are the same, and blend them with the new model."""
    from puorl.ope.offline import over_lanes

    wanted = task.name, args.critics_of, args.seed, args.rows, args.updates
    names = "task", "label", "seed", "rows", "updates"
    for row in read(RESULTS):
        if (
            row["policy"] in found
            and tuple(row[n] for n in names) == wanted
            and "fqe" in row["values"]
        ):
            values = found[row["policy"]]["values"]
            values["fqe"] = row["values"]["fqe"]
            draws = [*values["fqe"]["draws"], *values["model"]["draws"]]
            values["blend"] = {**over_lanes(np.array(draws)).to_dict(), "draws": draws}
    return {policy: each | {"critics_of": args.critics_of} for policy, each in found.items()}


def actor(task: tasks.Task, policy: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return a policy as a function from states to codes or actions."""
    given = task.policies[policy]
    if task.name in tasks.GAMES:
        return lambda obs: given.probabilities(obs).argmax(axis=1)
    return given.act


def scope_marginal(task: tasks.Task, chosen: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Estimate by SCOPE-RL's marginalised estimators."""
    (policy,) = chosen
    return {policy: scope.by_marginals(task.judge, actor(task, policy), seed=args.seed)}


def d3rlpy_fqe(task: tasks.Task, chosen: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Estimate by d3rlpy's FQE with its defaults; or with standardised rows, and by SCOPE-RL."""
    import d3rlpy
    import torch

    (policy,) = chosen
    rows, scaled = task.judge, args.side == "d3rlpy_scaled"
    discrete = task.name in tasks.GAMES
    torch.set_num_threads(1)
    # An episode that the log cuts without a flag would be refused.
    last = np.append(rows.episode[1:] != rows.episode[:-1], True)
    ends = (rows.timeout | last) & ~rows.terminal
    centre = rows.obs.mean(axis=0) * scaled
    scale = rows.obs.std(axis=0) + 1e-6 if scaled else np.ones_like(centre)
    factor = float(rows.reward.std()) or 1.0 if scaled else 1.0  # no shift: tasks may end

    act = actor(task, policy)

    class Algo:
        """What d3rlpy asks for actions: here, in units of the rows that it was given."""

        def __init__(self) -> None:
            self.impl = self

        def predict_best_action(self, x: torch.Tensor) -> torch.Tensor:
            obs = (x.numpy() * scale + centre).astype(np.float32)
            return torch.as_tensor(act(obs) if discrete else np.asarray(act(obs), np.float32))

    data = d3rlpy.dataset.MDPDataset(
        ((rows.obs - centre) / scale).astype(np.float32),
        rows.action_index[:, None] if discrete else rows.action.astype(np.float32),
        (rows.reward / factor).astype(np.float32),
        rows.terminal.astype(np.float32),
        ends.astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE if discrete else d3rlpy.ActionSpace.CONTINUOUS,
        action_size=len(rows.action_codes or ()) if discrete else rows.action.shape[1],
    )
    d3rlpy.seed(args.seed)
    config = d3rlpy.ope.FQEConfig(**D3RLPY, gamma=tasks.GAMMA)
    fqe = (d3rlpy.ope.DiscreteFQE if discrete else d3rlpy.ope.FQE)(algo=Algo(), config=config)
    fqe.fit(
        data,
        n_steps=args.updates,
        n_steps_per_epoch=args.updates,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )

    def q(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        units = ((obs - centre) / scale).astype(np.float32)
        return factor * fqe.predict_value(units, action)

    starts = rows.obs[np.unique(rows.episode, return_index=True)[1]].astype(np.float32)
    values = {args.side: {"value": float(q(starts, act(starts)).mean())}}
    found = {"values": values, "settings": D3RLPY}
    if scaled:
        found["scope_rl"] = scope.by_products(rows, act, q, values, seed=args.seed)
    return {policy: found}


def show(path: Path) -> None:
    """Print a table of all tasks and estimators."""
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    truth: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for row in read(path):
        if "values" not in row:  # a trial of the model alone
            continue
        where = row["task"], row["label"], row["seed"], row["rows"], row["updates"]
        for name, value in row["values"].items():
            truth[where, name][row["policy"]] = row["truth"]  # tasks may have been made again
            groups[where, name][row["policy"]] = value
    head = ("task", "label", "estimator", "policies", "Spearman", "regret@1", "coverage", "width")
    print(f"{head[0]:<13}{head[1]:<10}{head[2]:<15}" + "".join(f"{h:>10}" for h in head[3:]))
    for (where, name), values in sorted(groups.items(), key=str):
        shared = [p for p in values if values[p]["value"] is not None]
        true = np.array([truth[where, name][p] for p in shared])
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
    show_claims(groups, truth)


def show_claims(groups: dict[Any, Any], truth: dict[Any, Any]) -> None:
    """Print how often what a ranking claims is right, and whether it leaves the true best open.

    A pair is told apart where the interval of its difference does not contain 0 and neither value
    is vague, as a ranking of these two says. Errors and regrets in parts of the range of true
    values.
    """
    from itertools import combinations

    from puorl.core.stats import Estimate
    from puorl.ope.values import Value, rank

    spread = {
        (row["task"], row["seed"], row["rows"]): max(row["spread"], 0.1 * abs(row["mean"]))
        for row in read(SPREADS)
    }
    head = (
        "vague",
        "told",
        "right",
        "worst error",
        "left open",
        "best open",
        "said cost",
        "true cost",
    )
    print("\nWhen it says that it can tell, is it right? Told: pairs of policies told apart.")
    print(f"{'task':<13}{'label':<10}{'estimator':<10}" + "".join(f"{h:>12}" for h in head))
    for (where, name), values in sorted(groups.items(), key=str):
        if name not in ("blend", "fqe", "model") or not all(
            v.get("draws") for v in values.values()
        ):
            continue
        width = spread.get((where[0], *where[2:4]), np.inf)
        known = {
            policy: Value(found := Estimate(each["value"], each["low"], each["high"]), 0.0,
                          bool(each.get("is_doubtful")), "", tuple(each["draws"]),
                          found.half_width > width)
            for policy, each in values.items()
        }  # fmt: skip
        true = {policy: truth[where, name][policy] for policy in known}
        best, reach = max(true, key=true.__getitem__), max(true.values()) - min(true.values())
        errors = []
        for pair in combinations(known, 2):
            seen = rank({policy: known[policy] for policy in pair}, name)
            if not seen.rivals:
                errors.append((true[seen.order[1]] - true[seen.order[0]]) / reach)
        all_of = rank(known, name)
        first = all_of.order[0]
        cells = (
            str(sum(value.is_vague for value in known.values())) if width < np.inf else "?",
            f"{len(errors)} of {len(known) * (len(known) - 1) // 2}",
            str(sum(error <= 0 for error in errors)),
            f"{max([0.0, *errors]):.2f}",
            f"{len(all_of.rivals)} of {len(known) - 1}",
            "yes" if best == first or best in all_of.rivals else "NO",
            f"{all_of.regret / reach:.2f}",
            f"{(true[best] - true[first]) / reach:.2f}",
        )
        print(f"{where[0]:<13}{where[1]:<10}{name:<10}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
