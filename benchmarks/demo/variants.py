"""How steady is the demo's message? Its seeds with other data, training settings and filter modes.

    python benchmarks/demo/variants.py [--seeds 0 1 2 3 4] [--variants as-is top-alpha]

One fit of the filter for each seed and data, then all variants on the same rows. What is in the
results is not measured again. Results that name no plan are of the demo before its runs were short
(20,000 rows, runs of 1,000 steps, 8,000 updates).
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
from recorded import RESULTS, Recorded

from puorl.bench.settings import Setting
from puorl.demo import study
from puorl.pu.filter import DomainFilter

SLOW = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}
LONGER = {"steps": 8_000}
VARIANTS: dict[str, dict[str, Any]] = {
    "as-is": {},
    "8k-updates": {"plan": LONGER},
    "16k-updates": {"plan": {"steps": 16_000}},
    "former": {"setting": {"rows": 20_000, "horizon": None}, "plan": LONGER},
    "20k-rows-100-steps": {"setting": {"rows": 20_000, "horizon": 100}, "plan": LONGER},
    "20k-rows-200-steps": {"setting": {"rows": 20_000, "horizon": 200}, "plan": LONGER},
    "40k-rows-500-steps": {"setting": {"horizon": 500}, "plan": LONGER},
    "batch-128": {"plan": {"batch_size": 128}},
    "rates-3e-4": {"learner": SLOW},
    "actor-3e-4": {"learner": {"actor_learning_rate": 3e-4}},
    "top-alpha": {"mode": "top_alpha"},
    "soft": {"mode": "soft"},
}
LOW = 30.0
"""A policy below this has not learnt to run."""


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=range(5))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--out", type=Path, default=RESULTS / "demo-variants.jsonl")
    parser.add_argument("--show", action="store_true", help="print the table, train nothing")
    args = parser.parse_args()
    recorded = Recorded(args.out)
    if not args.show:
        for seed in args.seeds:
            measure(recorded, seed, args.variants)
    show(recorded)


def config_of(seed: int, variant: str) -> dict[str, Any]:
    """All that decides a row of the results."""
    return {"seed": seed, "variant": variant, "settings": VARIANTS[variant], "plan": _base()}


def _base() -> dict[str, Any]:
    """What a variant changes: the demo as it is."""
    plan = study.PLAN
    return {"rows": plan.setting.rows, "horizon": plan.setting.horizon, "steps": plan.steps}


def measure(recorded: Recorded, seed: int, variants: list[str]) -> None:
    """All variants of one seed that have no row yet."""
    missing = [name for name in variants if recorded.find(config_of(seed, name)) is None]
    made = study.learners.make
    fitted: dict[Setting, tuple[study.Data, DomainFilter]] = {}
    for name in missing:
        settings = VARIANTS[name]
        plan = study.PLAN.seeded(seed)
        plan = dataclasses.replace(
            plan, setting=dataclasses.replace(plan.setting, **settings.get("setting", {}))
        )
        if plan.setting not in fitted:
            data = study.make_data(plan)
            fitted[plan.setting] = data, DomainFilter().fit(data.split, seed=seed)
        data, flt = fitted[plan.setting]
        began = time.perf_counter()
        study.learners.make = lambda *a, s=settings, **k: made(*a, **k | s.get("learner", {}))
        flt.mode = settings.get("mode", "hard")
        own = dataclasses.replace(plan, **settings.get("plan", {}))
        # Training asks nothing of the report, which takes longer than the rest together.
        filtered = study.Filtered(flt, cast(Any, None), cast(Any, None), 0.0)
        trained = study.train(own, data, filtered)
        measured = {
            "scores": trained.scores,
            "rows": trained.num_rows,
            "share": trained.target_fraction,
            "pu-oracle": trained.against("oracle").to_dict(),
            "seconds": time.perf_counter() - began,
        }
        recorded.add(config_of(seed, name), measured)
        print(f"seed {seed} {name}: {trained.scores['pu']}", flush=True)
    study.learners.make = made


def show(recorded: Recorded) -> None:
    """PU's and Oracle's mean by seed, and how many policies did not learn."""
    print("| variant | PU / Oracle, seed by seed | policies below 30 | Sharing-All at most |")
    print("|---|---|--:|--:|")
    configs = [row["config"] for row in recorded.rows]
    kinds = dict.fromkeys((each["variant"], json.dumps(each.get("plan"))) for each in configs)
    for name, plan in kinds:
        chosen = [
            row
            for row in recorded.rows
            if row["config"]["variant"] == name and json.dumps(row["config"].get("plan")) == plan
        ]
        chosen.sort(key=lambda row: row["config"]["seed"])
        rows = [row["measured"]["scores"] for row in chosen]
        pairs = [f"{mean(row['pu']):.1f} / {mean(row['oracle']):.1f}" for row in rows]
        low = [sum(x < LOW for row in rows for x in row[m]) for m in ("pu", "oracle")]
        most = max((mean(row["sharing_all"]) for row in rows), default=0.0)
        when = " (before short runs)" if plan == "null" else ""
        print(f"| {name}{when} | {', '.join(pairs)} | {low[0]} / {low[1]} | {most:.1f} |")


def mean(values: list[float]) -> float:
    """Of one method's policies."""
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
