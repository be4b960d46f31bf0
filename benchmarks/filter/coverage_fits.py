"""How often do the intervals of fitted filters hold the truth with few labels? Synthetic rows.

    python benchmarks/filter/coverage_fits.py [--draws 12] [--labels 200] [--gaps 1.5 2.5 4]

States, actions and steps are independent standard normal numbers; the steps of target rows are
shifted so that the domains lie ``gap`` standard deviations apart along one direction, which a
classifier has to find. Every draw is another sample and another fit (unit transition, the default
preset, smaller and without models of the dynamics, since steps do not depend on states here).
Judged are the filter's own alpha (from the labelled rows that it held out, a tenth) and alpha,
recall and precision of the report. Rows go to ``coverage-fits.jsonl``; draws that are there already
are not repeated.
"""

import argparse
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from coverage_real import RULE, line, one_draw
from recorded import RESULTS, Recorded

import puorl
from puorl.core.hashing import generator
from puorl.pu.config import PRESETS, FilterConfig

RECALL_RULE = "0.15 of the disputed, by the root of 1000 / labels"
"""How the interval of recall is made; rows without it have the factor 0.15 for any labels."""


def main() -> None:
    """Measure what is missing, then print the table of all that was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=12, help="draws of each line")
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--labels", type=int, nargs="+", default=[200])
    parser.add_argument("--gaps", type=float, nargs="+", default=[1.5, 2.5, 4.0])
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--rows", type=int, default=6_000, help="unlabelled rows")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 64], help="units of layers")
    args = parser.parse_args()
    network = replace(PRESETS["default"].network, hidden=tuple(args.hidden))
    settings = replace(PRESETS["default"], residuals=None, network=network)
    recorded = Recorded(RESULTS / "coverage-fits.jsonl")
    for gap in args.gaps:
        for num_labels in args.labels:
            found = []
            for seed in range(args.first, args.first + args.draws):
                config = config_of(gap, num_labels, args, settings, seed)
                row = recorded.find(config)
                if row is None:
                    split, truth = draw(gap, num_labels, args.rows, args.alpha, seed)
                    flt = puorl.DomainFilter(config=settings)
                    row = recorded.add(config, one_draw(flt, split, truth, config))
                found.append(row["measured"]["intervals"])
            for name in found[0]:
                print(f"{gap:>4g} {num_labels:>5} {name:<13}" + line([m[name] for m in found]),
                      flush=True)  # fmt: skip


def config_of(
    gap: float, num_labels: int, args: argparse.Namespace, settings: FilterConfig, seed: int
) -> dict[str, Any]:
    """All that decides a row of the results."""
    return {
        "gap": gap,
        "labels": num_labels,
        "unlabelled": args.rows,
        "alpha": args.alpha,
        "seed": seed,
        "report": True,
        "rule": RULE,
        "recall": RECALL_RULE,
        "preset": "default",
        "filter": asdict(settings),
    }


def draw(
    gap: float, num_labels: int, num_rows: int, alpha: float, seed: int
) -> tuple[puorl.PUSplit, np.ndarray]:
    """Labelled rows, the target's unlabelled rows, the others; and which of U are the target's."""
    num_target = num_labels + round(alpha * num_rows)
    num_all = num_labels + num_rows
    rng = generator(seed, "coverage fits", f"{gap} {num_labels} {num_rows} {alpha}")
    obs, step = rng.normal(size=(2, num_all, 3))
    step[:num_target] += gap / 3**0.5
    data = puorl.Dataset.from_arrays(
        obs=obs,
        action=np.clip(0.3 * rng.normal(size=(num_all, 2)), -1, 1),
        next_obs=obs + 0.1 * step,
        reward=np.zeros(num_all),
        terminal=np.zeros(num_all, bool),
    )
    labelled = np.arange(num_all) < num_labels
    split = puorl.PUSplit.from_mask(data, labelled=labelled, seed=seed)
    return split, split.unlabelled < num_target


if __name__ == "__main__":
    main()
