"""One cell of the paper's accuracy tables at full size, both presets, timed.

python benchmarks/filter/one_cell.py [--body hopper] [--shift body_mass] [--quality medium-expert]
"""

import argparse
import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

import puorl

RESULTS = Path(__file__).parents[1] / "results" / "filter-cells.jsonl"


def main() -> None:
    """Collect, split, fit, and append a row for each preset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body", default="hopper")
    parser.add_argument("--shift", default="body_mass")
    parser.add_argument("--quality", default="medium-expert")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    target = puorl.collect(given.body, quality=given.quality, rows="300k", seed=0)
    other = puorl.collect(given.body, given.shift, quality=given.quality, rows="700k", seed=0)
    split = puorl.make_split(target, other, seed=given.seed)
    is_target = split.reveal("benchmark")[split.unlabelled] == 0
    tested = split.unlabelled_part == 2
    for preset in ("default", "paper"):
        begin = time.perf_counter()
        flt = puorl.DomainFilter(preset).fit(split, seed=given.seed)
        fitted = time.perf_counter()
        right = flt.predict(split) == is_target
        row = {
            "cell": f"{given.body}/{given.shift}/{given.quality}",
            "preset": preset,
            "seed": given.seed,
            "accuracy_test": float(right[tested].mean()),
            "accuracy_all": float(right.mean()),
            "recall": float(right[is_target].mean()),
            "specificity": float(right[~is_target].mean()),
            "alpha": flt.alpha_.to_dict(),
            "true_alpha": float(np.mean(is_target)),
            "fit_seconds": round(fitted - begin, 1),
            "score_seconds": round(time.perf_counter() - fitted, 1),
            "content": [target.fingerprint, other.fingerprint],
            "split": split.fingerprint,
            "cores": len(os.sched_getaffinity(0)),
            "versions": {p: version(p) for p in ("puorl", "jax", "numpy", "mujoco")}
            | {"python": platform.python_version()},
        }
        print(json.dumps(row))
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
