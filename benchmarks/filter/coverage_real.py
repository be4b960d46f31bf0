"""How often do the 95 % intervals hold the truth on real rows? Collected data, fitted networks.

    python benchmarks/filter/coverage_real.py [--draws 40] [--rows 100k] [--no-report]

Body mass, medium, each domain with its own policy, 1 % labelled. A draw is another split of a pool
that is ten times as large, and another fit. Judged are

- ``alpha``: the filter's own interval, from the labelled rows that it held out (a tenth of them);
- ``report alpha``, ``recall``, ``precision``: those of the report, which cross-fits and so uses
  every labelled row. What is kept is known here, and so are its true recall and precision.

"both" is two-sided coverage, "upper" the share of draws whose truth is below the upper end, "lower"
the share above the lower end.
"""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from graded import grade, is_target, origin
from recorded import RESULTS, Recorded

import puorl
from puorl.core.formatting import parse_count
from puorl.pu.config import PRESETS

BODIES = ("hopper", "halfcheetah", "walker2d")
TARGET_SHARE = 0.3
LABELLED_SHARE = 0.01
JUDGES = "cut alike"
"""How the report's networks decide; rows without it are of an earlier rule, each by its own cut."""
RULE = "order statistics, thresholds chosen with 4 % of the error"
"""How intervals of alpha are made; "order statistics" had one critical value for all thresholds of
the upper end, rows without a rule are of a bootstrap in bins."""
POOLS = 10
"""Rows collected for each row drawn: draws are to be nearly independent."""


def main() -> None:
    """Measure what is missing, then print the table of all that was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="100k", help="rows of a split")
    parser.add_argument("--draws", type=int, default=40, help="draws of each body, seeds from 0")
    parser.add_argument("--bodies", nargs="+", default=BODIES, choices=BODIES)
    parser.add_argument("--preset", default="default", choices=PRESETS)
    parser.add_argument("--labelled-fraction", type=float, default=LABELLED_SHARE)
    parser.add_argument("--no-report", action="store_true", help="the filter's own alpha alone")
    parser.add_argument("--out", type=Path, default=RESULTS / "coverage-real.jsonl")
    args = parser.parse_args()
    recorded = Recorded(args.out)
    for body in args.bodies:
        measure(recorded, body, args)
    show(recorded, args)


def config_of(body: str, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    return {
        "body": body,
        "shift": "body_mass",
        "quality": "medium",
        "rows": parse_count(args.rows, name="rows"),
        "labelled_fraction": args.labelled_fraction,
        "seed": seed,
        "report": not args.no_report,
        "judges": JUDGES,
        "rule": RULE,
        "preset": args.preset,
        "filter": asdict(PRESETS[args.preset]),
    }


def measure(recorded: Recorded, body: str, args: argparse.Namespace) -> None:
    """All draws of one body that have no row yet."""
    configs = [config_of(body, args, seed) for seed in range(args.draws)]
    missing = [config for config in configs if recorded.find(config) is None]
    if not missing:
        return
    num_rows = missing[0]["rows"]
    num_target = round(TARGET_SHARE * num_rows)
    target = puorl.collect(body, quality="medium", rows=POOLS * num_target, seed=0)
    other = puorl.collect(
        body, "body_mass", quality="medium", rows=POOLS * (num_rows - num_target), seed=0
    )
    for config in missing:
        split = puorl.make_split(
            target,
            other,
            rows=num_rows,
            labelled_fraction=config["labelled_fraction"],
            seed=config["seed"],
            parts="stratified",
        )
        flt, truth = puorl.DomainFilter(config["preset"]), is_target(split)
        measured = one_draw(flt, split, truth, config) | {"origin": origin(split, target, other)}
        recorded.add(config, measured)
        found = ", ".join(
            f"{name} {it['true']:.3f} in [{it['low']:.3f}, {it['high']:.3f}]"
            for name, it in measured["intervals"].items()
        )
        print(f"{body} draw {config['seed']}: {found}", flush=True)


def one_draw(
    flt: puorl.DomainFilter, split: puorl.PUSplit, truth: np.ndarray, config: dict[str, Any]
) -> dict[str, Any]:
    """Every interval of one fit beside what it should hold; ``truth`` is (u,) bool."""
    flt.fit(split, seed=config["seed"])
    grades = grade(flt.predict(split), truth)
    alpha = float(truth.mean())
    intervals = {"alpha": interval(flt.alpha_.value, flt.alpha_.interval, alpha)}
    measured: dict[str, Any] = {"grades": grades, "intervals": intervals}
    if config["report"]:
        report = flt.report(split, seed=config["seed"])
        quality, first = report.quality, report.alphas[0]
        intervals["report alpha"] = interval(first.value, first.interval, alpha)
        for name in ("recall", "precision"):
            said = getattr(quality, name)
            intervals[name] = interval(said.value, (said.low, said.high), grades[name])
        measured |= {"verdict": report.verdict, "disputed": quality.disputed}
    return measured


def interval(
    value: float, ends: tuple[float, float] | None, true: float | None
) -> dict[str, float | None]:
    """One estimate, its interval, and the truth."""
    low, high = (None, None) if ends is None else ends
    return {"value": value, "low": low, "high": high, "true": true}


def show(recorded: Recorded, args: argparse.Namespace) -> None:
    """Coverage and median width, body by body."""
    print(f"\n{'body':<12} {'interval':<13}{'draws':>6}{'both':>8}{'upper':>8}{'lower':>8}"
          f"{'width':>8}{'bias':>9}{'truth':>8}")  # fmt: skip
    for body in args.bodies:
        found = [recorded.find(config_of(body, args, seed)) for seed in range(args.draws)]
        measured = [row["measured"]["intervals"] for row in found if row is not None]
        for name in measured[0]:
            print(f"{body:<12} {name:<13}" + line([m[name] for m in measured]))


def line(said: list[dict[str, Any]]) -> str:
    """A line of the table; draws in which the truth does not exist (nothing kept) are left out."""
    said = [s for s in said if s["true"] is not None and s["low"] is not None]
    if not said:
        return f"{0:>6}"
    value, low, high, true = (
        np.array([s[k] for s in said]) for k in ("value", "low", "high", "true")
    )
    below, above = true <= high, low <= true
    return (
        f"{len(said):>6}{np.mean(below & above):>8.1%}{np.mean(below):>8.1%}{np.mean(above):>8.1%}"
        f"{np.median(high - low):>8.4f}{np.mean(value - true):>+9.4f}{np.mean(true):>8.4f}"
    )


if __name__ == "__main__":
    main()
