"""How steady is the demo's message? Its seeds with other training settings and filter modes.

    python benchmarks/demo/variants.py [--seeds 0 1 2 3 4] [--variants as-is top-alpha]

One fit of the filter for each seed, then all variants on the same rows. Rows in the results are not
measured again.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
from recorded import RESULTS, Recorded

from puorl.demo import study
from puorl.pu.filter import DomainFilter

SLOW = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}
VARIANTS: dict[str, dict[str, Any]] = {
    "as-is": {},
    "16k-updates": {"plan": {"steps": 16_000}},
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
    return {"seed": seed, "variant": variant, "settings": VARIANTS[variant]}


def measure(recorded: Recorded, seed: int, variants: list[str]) -> None:
    """All variants of one seed that have no row yet."""
    missing = [name for name in variants if recorded.find(config_of(seed, name)) is None]
    if not missing:
        return
    plan = study.PLAN.seeded(seed)
    data = study.make_data(plan)
    flt = DomainFilter().fit(data.split, seed=seed)
    made = study.learners.make
    for name in missing:
        settings = VARIANTS[name]
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
            "share": trained.target_share,
            "pu-oracle": dataclasses.asdict(trained.against("oracle")),
            "seconds": time.perf_counter() - began,
        }
        recorded.add(config_of(seed, name), measured)
        print(f"seed {seed} {name}: {trained.scores['pu']}", flush=True)
    study.learners.make = made


def show(recorded: Recorded) -> None:
    """PU's and Oracle's mean by seed, and how many policies did not learn."""
    print("| variant | PU / Oracle, seed by seed | policies below 30 | Sharing-All at most |")
    print("|---|---|--:|--:|")
    for name in VARIANTS:
        chosen = [row for row in recorded.rows if row["config"]["variant"] == name]
        rows = [row["measured"]["scores"] for row in chosen]
        pairs = [f"{mean(row['pu']):.1f} / {mean(row['oracle']):.1f}" for row in rows]
        low = [sum(x < LOW for row in rows for x in row[m]) for m in ("pu", "oracle")]
        most = max((mean(row["sharing_all"]) for row in rows), default=0.0)
        print(f"| {name} | {', '.join(pairs)} | {low[0]} / {low[1]} | {most:.1f} |")


def mean(values: list[float]) -> float:
    """Of one method's policies."""
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
