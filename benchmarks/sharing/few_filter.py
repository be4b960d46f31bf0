"""The filter where few rows are ours: what it keeps, by the way it decides.

    python benchmarks/sharing/few_filter.py --bodies hopper --qualities ME/ME --own 3000 --out FILE

Settings are those of the suite `few` (records of 50 steps, a tenth of ours labelled) in pools of
``--rows``, whose fraction of ours is larger than among a million unless ``--own`` is smaller.
Rows in the file are not measured again. Ways that are not listed here are of earlier versions:
`rows, TEDn alone` could not choose to reject nothing, and `records by dynamics, unmatched` took
parts of a gait for machines.
"""

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from puorl.bench.prepare import SettingData
from puorl.bench.settings import Setting
from puorl.pu.config import preset_config
from puorl.pu.filter import DomainFilter
from puorl.pu.model import keep

_PLAIN = {"learner": "pvu", "alpha_estimator": "scott"}
"""Without rejection of rows that may be ours: few labelled rows give a poor alpha to reject by."""
WAYS: dict[str, dict[str, Any]] = {
    "rows": {},
    "rows, pvu, scott": {"changes": _PLAIN},
    "records by dynamics, robots": {"preset": "robots", "unit": "episode"},
    "records by rows, pvu, scott": {"changes": _PLAIN, "unit": "episode", "evidence": "rows"},
    "records by dynamics": {"unit": "episode"},
    "rows, scott": {"changes": {"alpha_estimator": "scott"}},
}


def main() -> None:
    """Fit, grade, append."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bodies", nargs="+", default=["hopper", "walker2d"])
    parser.add_argument("--qualities", nargs="+", default=["ME/ME", "M/R"])
    parser.add_argument("--own", type=int, nargs="+", default=[3_000])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    done = set()
    if args.out.exists():
        lines = args.out.read_text(encoding="utf-8").splitlines()
        done = {tuple(json.loads(line)["key"]) for line in lines}
    for body, quality, own in product(args.bodies, args.qualities, args.own):
        rows = args.rows
        setting = Setting("body_mass", body, quality, own / rows / 10, rows, own / rows, record=50)
        for way in args.ways:
            key = (body, quality, own, rows, way)
            if key not in done:
                row = {"key": key, **measure(setting, **WAYS[way])}
                with open(args.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def measure(
    setting: Setting,
    *,
    preset: str = "default",
    changes: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fit one filter and grade the rows that it keeps in either mode."""
    split = SettingData.load(setting).split
    truth = split.reveal("benchmark")[split.unlabelled] == 0
    if changes:
        options["config"] = preset_config(preset).changed(changes)
    start = time.perf_counter()
    try:
        fitted = DomainFilter(preset, **options).fit(split, seed=0)
        kept = fitted.predict(split)
        fitted.mode = "top_alpha"
        top = fitted.predict(split)
        score = fitted.predict_proba(split)
    except Exception as error:
        return {"setting": setting.to_dict(), "error": f"{type(error).__name__}: {error}"}
    return {
        "setting": setting.to_dict(),
        "settings": {"preset": preset, "changes": changes, **_plain(options)},
        "seed": 0,
        "true_alpha": float(truth.mean()),
        "alpha": fitted.alpha_.value,
        "interval": [fitted.alpha_.low, fitted.alpha_.high],
        "hard": _grade(kept, truth),
        "top_alpha": _grade(top, truth),
        # As if alpha were surely above 0: what the filter would keep if it did not refuse to.
        "unguarded": {
            mode: _grade(keep(score, mode, fitted.alpha_.value), truth)
            for mode in ("hard", "top_alpha")
        },
        "auc": _auc(score, truth),
        "learner": fitted.model_.config.learner,
        "seconds": round(time.perf_counter() - start, 1),
        "error": None,
    }


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "config"}


def _grade(kept: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    num_right = int((kept & truth).sum())
    return {
        "kept": int(kept.sum()),
        "recall": num_right / int(truth.sum()),
        "precision": num_right / max(1, int(kept.sum())),
    }


def _auc(score: np.ndarray, truth: np.ndarray) -> float:
    """Probability that a row of ours has a higher score than another's; ties count half."""
    ascending = np.sort(score[~truth])
    below = np.searchsorted(ascending, score[truth], side="left")
    up_to = np.searchsorted(ascending, score[truth], side="right")
    return float(((below + up_to) / 2).mean() / len(ascending))


if __name__ == "__main__":
    main()
