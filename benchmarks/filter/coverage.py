"""How often does the 95 % interval hold the true alpha? Synthetic draws, with truth known.

    python benchmarks/filter/coverage.py [--draws 200] [--plain] [--save]

Scores are unit-variance Gaussians whose class means lie ``gap`` apart. "both" is two-sided
coverage, "upper" the share of draws with alpha below the upper end. The grouped rows give every
episode an offset of its own (standard deviation 0.5) and resample rows, the labelled episodes, or
all episodes. ``--plain`` adds the percentile bootstrap of BBE, which takes minutes.
"""

import argparse
import datetime
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import puorl
from puorl.core.hashing import generator
from puorl.pu.alpha import bbe, bootstrap_interval

RESULTS = Path(__file__).parents[1] / "results" / "coverage.jsonl"
GAPS = (8.0, 4.0, 2.0, 1.0)
SIZES = ((1000, 99_000, 29 / 99), (1000, 9_900, 29 / 99), (200, 1_980, 29 / 99),
         (100, 9_900, 0.05), (1000, 9_000, 0.7))  # fmt: skip
ROWS_PER_EPISODE = 50
OFFSET_SPREAD = 0.5


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    gap: float
    num_p: int
    num_u: int
    alpha: float
    groups: str = "none"
    """``none``: independent rows. Else rows of episodes, resampled by rows, labelled or all."""
    construction: str = "profile"


def main() -> None:
    """Draw, print the table, and append a row per line to the results if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=200, help="draws of each line")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parser.add_argument("--plain", action="store_true", help="add the percentile bootstrap")
    parser.add_argument("--save", action="store_true", help=f"append to {RESULTS.name}")
    args = parser.parse_args()
    print(f"{'gap':>4} {'n_p':>6} {'n_u':>7} {'alpha':>6} {'groups':<9} {'interval':<11} "
          f"{'both':>6} {'upper':>6} {'width':>7} {'BBE':>6} {'ms':>7}")  # fmt: skip
    for case in cases(plain=args.plain):
        row = measure(case, args.draws, args.seed)
        print(f"{case.gap:>4g} {case.num_p:>6} {case.num_u:>7} {case.alpha:>6.3f} "
              f"{case.groups:<9} {case.construction:<11} {row['coverage']:>6.1%} "
              f"{row['coverage_upper']:>6.1%} {row['median_width']:>7.4f} "
              f"{row['mean_bbe']:>6.3f} {row['milliseconds']:>7.1f}", flush=True)  # fmt: skip
        if args.save:
            save({"draws": args.draws, "seed": args.seed, **asdict(case), **row})


def percentile_interval(
    score_p: np.ndarray, score_u: np.ndarray, *, rng: np.random.Generator, reps: int = 200
) -> tuple[float, float]:
    """The plain percentile bootstrap of BBE: its spread without its bias."""
    values = [
        bbe(
            score_p[rng.integers(len(score_p), size=len(score_p))],
            score_u[rng.integers(len(score_u), size=len(score_u))],
        ).value
        for _ in range(reps)
    ]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def cases(*, plain: bool) -> list[Case]:
    """All lines of the table."""
    lines = [Case(gap, *size) for size in SIZES for gap in GAPS]
    for gap in (8.0, 4.0):
        lines += [Case(gap, 1000, 9_900, 29 / 99, groups) for groups in ("rows", "labelled", "all")]
    if plain:
        for size in SIZES[1:3]:
            lines += [Case(gap, *size, construction="percentile") for gap in GAPS]
    return lines


def measure(case: Case, draws: int, seed: int) -> dict[str, float]:
    """Coverage, width and time over many draws."""
    rng = generator(seed, "coverage", json.dumps(asdict(case)))
    num_target = round(case.alpha * case.num_u)
    alpha = num_target / case.num_u
    ends, values, seconds = [], [], []
    for _ in range(draws):
        score_p, group_p = scores(case, case.num_p, case.gap, rng)
        target_u, group_target = scores(case, num_target, case.gap, rng)
        other_u, group_other = scores(case, case.num_u - num_target, 0.0, rng)
        score_u = np.concatenate([target_u, other_u])
        group_u = np.concatenate([group_target, group_other + case.num_u])
        groups = {}
        if case.groups in ("labelled", "all"):
            groups["groups_p"] = group_p
        if case.groups == "all":
            groups["groups_u"] = group_u
        begin = time.perf_counter()
        value = bbe(score_p, score_u).value
        if case.construction == "percentile":
            ends.append(percentile_interval(score_p, score_u, rng=rng))
        else:
            ends.append(bootstrap_interval(score_p, score_u, value=value, rng=rng, **groups))
        seconds.append(time.perf_counter() - begin)
        values.append(value)
    low, high = np.array(ends).T
    return {
        "coverage": float(np.mean((low <= alpha) & (alpha <= high))),
        "coverage_upper": float(np.mean(alpha <= high)),
        "median_width": round(float(np.median(high - low)), 5),
        "mean_low": round(float(low.mean()), 5),
        "mean_high": round(float(high.mean()), 5),
        "mean_bbe": round(float(np.mean(values)), 5),
        "milliseconds": round(1000 * float(np.median(seconds)), 2),
    }


def scores(
    case: Case, num_rows: int, mean: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of so many rows of one class, and the episode of each."""
    group = np.arange(num_rows) // ROWS_PER_EPISODE
    score = rng.normal(mean, 1.0, num_rows)
    if case.groups != "none" and num_rows:
        score += rng.normal(0.0, OFFSET_SPREAD, group[-1] + 1)[group]
    return score, group


def save(content: dict) -> None:
    """Append one JSON row, stamped with versions and hardware."""
    stamp = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "puorl": puorl.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps({**stamp, **content}) + "\n")


if __name__ == "__main__":
    main()
