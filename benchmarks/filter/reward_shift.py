"""Another reward, everything else alike: does (s, a, r) tell the domains apart?

    python benchmarks/filter/reward_shift.py [--rows 200k] [--seeds 3]

The other domain pays for running backward. The same policy acts in both, and so dynamics and
behaviour are the same: ``sas`` stands beside ``sar`` as a control that must not be able to tell
(always saying "not ours" scores 70.7 %). 30 % target rows, 1 % labelled, accuracy on held-out
unlabelled rows.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from graded import grade, is_target, origin, summary
from recorded import RESULTS, Recorded

import puorl
from puorl.core.formatting import parse_count
from puorl.pu.config import PRESETS, FilterConfig

BODIES = ("hopper", "halfcheetah", "walker2d")
TARGET_SHARE = 0.3
LABELLED_SHARE = 0.01


def main() -> None:
    """Measure what is missing, then print the table of all that was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="200k", help="rows of a split")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--bodies", nargs="+", default=BODIES, choices=BODIES)
    parser.add_argument("--inputs", nargs="+", default=("sar", "sas"), choices=("sar", "sas"))
    parser.add_argument("--quality", default="medium")
    parser.add_argument("--out", type=Path, default=RESULTS / "filter-reward.jsonl")
    args = parser.parse_args()
    rows = parse_count(args.rows, name="rows")
    recorded = Recorded(args.out)
    for body in args.bodies:
        for seed in range(args.seeds):
            configs = [config_of(body, args.quality, i, rows, seed) for i in args.inputs]
            measure(recorded, configs)
    show(recorded, args, rows)


def filter_config(inputs: str) -> FilterConfig:
    """The default preset with other inputs."""
    default = PRESETS["default"]
    return replace(default, features=replace(default.features, inputs=inputs))


def config_of(body: str, quality: str, inputs: str, rows: int, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    return {
        "body": body,
        "shift": "reward",
        "quality": quality,
        "policy_domain": "nominal",
        "rows": rows,
        "labelled_fraction": LABELLED_SHARE,
        "seed": seed,
        "inputs": inputs,
        "filter": filter_config(inputs).to_dict(),
    }


def measure(recorded: Recorded, configs: list[dict[str, Any]]) -> None:
    """Fit those configs of one split that have no row yet."""
    missing = [config for config in configs if recorded.find(config) is None]
    if not missing:
        return
    body, quality, rows, seed = (missing[0][k] for k in ("body", "quality", "rows", "seed"))
    num_target = round(TARGET_SHARE * rows)
    settings = {"quality": quality, "policy_domain": "nominal", "seed": 0}
    target = puorl.collect(body, rows=num_target, **settings)
    other = puorl.collect(body, "reward", rows=rows - num_target, **settings)
    split = puorl.make_split(
        target, other, rows=rows, labelled_fraction=LABELLED_SHARE, seed=seed, parts="stratified"
    )
    truth, tested = is_target(split), split.unlabelled_part == 2
    for config in missing:
        flt = puorl.DomainFilter(config=filter_config(config["inputs"])).fit(split, seed=seed)
        kept = flt.predict(split)
        measured = {
            "test": grade(kept[tested], truth[tested]),
            "all": grade(kept, truth),
            "alpha": flt.alpha_.to_dict(),
            "true_alpha": float(truth.mean()),
            "origin": origin(split, target, other),
        }
        recorded.add(config, measured)
        print(
            f"{body} {config['inputs']} seed {seed}: {measured['test']['accuracy']:.2%}, "
            f"alpha {flt.alpha_.value:.3f} (true {measured['true_alpha']:.3f})",
            flush=True,
        )


def show(recorded: Recorded, args: argparse.Namespace, rows: int) -> None:
    """Percent of held-out rows right and alpha, mean and deviation over seeds."""
    print(f"\n{'body':<12} {'inputs':<7}{'accuracy':>16}{'recall':>16}{'alpha':>17}{'true':>7}")
    for body in args.bodies:
        for inputs in args.inputs:
            found = [
                recorded.find(config_of(body, args.quality, inputs, rows, seed))
                for seed in range(args.seeds)
            ]
            measured = [row["measured"] for row in found if row is not None]
            print(
                f"{body:<12} {inputs:<7}"
                f"{summary([m['test']['accuracy'] for m in measured]):>16}"
                f"{summary([m['test']['recall'] for m in measured]):>16}"
                f"{summary([m['alpha']['value'] for m in measured], percent=False):>17}"
                f"{measured[0]['true_alpha']:>7.3f}"
            )


if __name__ == "__main__":
    main()
