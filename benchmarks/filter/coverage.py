"""How often does the 95 % interval hold the true alpha? Synthetic scores, with truth known.

    python benchmarks/filter/coverage.py [--draws 300] [--only grid shapes groups] [--save]
    python benchmarks/filter/coverage.py --draws 4000 --only grid --gaps 4 --labels 1000 [--save]
    python benchmarks/filter/coverage.py --only estimators [--save]

The grid is over the number of labels, the distance ``gap`` of the class means (unit variances) and
alpha. "both" is two-sided coverage, "upper" and "lower" that of one end, "open" the share of draws
whose lower end is 0. ``shapes`` leaves the Gaussians, also to where the assumption of the lower end
is wrong; ``groups`` gives every episode an offset of its own (standard deviation 0.5) and weights
rows, labelled episodes, or all episodes. ``estimators`` measures point estimates, and DEDPUL
without its third deviation.
"""

import argparse
import datetime
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from coverage_real import RULE

import puorl
from puorl.core.hashing import generator
from puorl.pu import alpha as estimators
from puorl.pu.alpha import bbe, bootstrap_interval, density_ratio, estimate_from_logits

RESULTS = Path(__file__).parents[1] / "results" / "coverage.jsonl"
LABELS = (20, 50, 100, 200, 500, 1000)
GAPS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0)
ALPHAS = (0.1, 0.3, 0.6)
NUM_U = 10_000
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
    """``none``: independent rows. Else rows of episodes, weighted by rows, labelled or all."""
    shape: str = "gauss"
    """``logistic`` tails; ``close``: a tenth of the others 1.5 from the target; ``wide``: others
    of standard deviation 2, so that even the highest scores are not of target rows alone."""


def main() -> None:
    """Draw, print the tables, and append a row per line to the results if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=300, help="draws of each line")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parts = ("grid", "shapes", "groups", "estimators")
    parser.add_argument("--only", nargs="+", default=parts[:3], choices=parts)
    parser.add_argument("--gaps", type=float, nargs="+", help="lines with these gaps alone")
    parser.add_argument("--labels", type=int, nargs="+", help="lines with so many labels alone")
    parser.add_argument("--save", action="store_true", help=f"append to {RESULTS.name}")
    args = parser.parse_args()
    print(f"{'gap':>4} {'n_p':>5} {'n_u':>6} {'alpha':>6} {'groups':<9} {'shape':<9} {'both':>6} "
          f"{'upper':>6} {'lower':>6} {'open':>6} {'width':>7} {'ms':>6}")  # fmt: skip
    for case in cases(args.only):
        if args.gaps and case.gap not in args.gaps or args.labels and case.num_p not in args.labels:
            continue
        row = measure(case, args.draws, args.seed)
        print(f"{case.gap:>4g} {case.num_p:>5} {case.num_u:>6} {case.alpha:>6.3f} "
              f"{case.groups:<9} {case.shape:<9} {row['coverage']:>6.1%} "
              f"{row['coverage_upper']:>6.1%} {row['coverage_lower']:>6.1%} {row['open']:>6.1%} "
              f"{row['median_width']:>7.4f} {row['milliseconds']:>6.1f}", flush=True)  # fmt: skip
        if args.save:
            save({"rule": RULE, "draws": args.draws, "seed": args.seed, **asdict(case), **row})
    if "estimators" in args.only:
        compare_estimators(args)


def cases(parts: list[str]) -> Iterator[Case]:
    """All lines of the tables."""
    if "grid" in parts:
        for alpha in ALPHAS:
            for num_p in LABELS:
                yield from (Case(gap, num_p, NUM_U, alpha) for gap in GAPS)
        yield from (Case(gap, 1000, 99_000, 29 / 99) for gap in GAPS)
        yield from (Case(gap, 200, 2_000, 0.3) for gap in GAPS)
        yield from (Case(gap, num_p, NUM_U, 0.002) for num_p in (100, 1000) for gap in (2.0, 4.0))
        yield from (Case(gap, num_p, NUM_U, 0.9) for num_p in (100, 1000) for gap in (2.0, 4.0))
    if "shapes" in parts:
        for shape, gaps in (("logistic", (3.0, 6.0)), ("close", (4.0, 8.0)), ("wide", (3.0, 6.0))):
            for alpha in (0.1, 0.6):
                for num_p in (100, 1000):
                    yield from (Case(g, num_p, NUM_U, alpha, shape=shape) for g in gaps)
    if "groups" in parts:
        for gap in (8.0, 4.0):
            for num_p in (1000, 5000):
                for groups in ("rows", "labelled", "all"):
                    yield Case(gap, num_p, NUM_U, 0.3, groups)


def measure(case: Case, draws: int, seed: int) -> dict[str, float]:
    """Coverage, width and time over many draws."""
    rng = generator(seed, "coverage", json.dumps(asdict(case)))
    num_target = round(case.alpha * case.num_u)
    alpha = num_target / case.num_u
    ends, values, seconds = [], [], []
    for _ in range(draws):
        score_p, group_p = scores(case, case.num_p, rng, is_target=True)
        target_u, group_target = scores(case, num_target, rng, is_target=True)
        other_u, group_other = scores(case, case.num_u - num_target, rng, is_target=False)
        score_u = np.concatenate([target_u, other_u])
        group_u = np.concatenate([group_target, group_other + case.num_u])
        groups = {}
        if case.groups in ("labelled", "all"):
            groups["groups_p"] = group_p
        if case.groups == "all":
            groups["groups_u"] = group_u
        begin = time.perf_counter()
        value = bbe(score_p, score_u).value
        ends.append(bootstrap_interval(score_p, score_u, value=value, rng=rng, **groups))
        seconds.append(time.perf_counter() - begin)
        values.append(value)
    low, high = np.array(ends).T
    return {
        "coverage": float(np.mean((low <= alpha) & (alpha <= high))),
        "coverage_upper": float(np.mean(alpha <= high)),
        "coverage_lower": float(np.mean(low <= alpha)),
        "open": float(np.mean(low == 0)),
        "median_width": round(float(np.median(high - low)), 5),
        "median_low": round(float(np.median(low)), 5),
        "median_high": round(float(np.median(high)), 5),
        "mean_bbe": round(float(np.mean(values)), 5),
        "milliseconds": round(1000 * float(np.median(seconds)), 2),
    }


def scores(
    case: Case, num_rows: int, rng: np.random.Generator, *, is_target: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of so many rows of one class, and the episode of each."""
    mean = case.gap if is_target else 0.0
    group = np.arange(num_rows) // ROWS_PER_EPISODE
    score = rng.normal(mean, 1.0, num_rows)
    if case.shape == "logistic":
        score = rng.logistic(mean, 3**0.5 / np.pi, num_rows)
    elif case.shape == "close" and not is_target:
        score[: num_rows // 10] += case.gap - 1.5
    elif case.shape == "wide":
        x = score if is_target else 2 * score
        score = x**2 / 8 - (x - case.gap) ** 2 / 2  # the logarithm of the likelihood ratio
    if case.groups != "none" and num_rows:
        score += rng.normal(0.0, OFFSET_SPREAD, group[-1] + 1)[group]
    return score, group


def compare_estimators(args: argparse.Namespace) -> None:
    """Bias and root mean square error of every estimator on logits of an optimal classifier."""
    names = (*estimators.ESTIMATORS, "dedpul, not lifted")
    print(f"\n{'gap':>4} {'alpha':>6} " + " ".join(f"{name:>20}" for name in names))
    for gap in (1.5, 2.0, 3.0, 4.0):
        for alpha in ALPHAS:
            rng = generator(args.seed, "estimators", f"{gap} {alpha}")
            num_target = round(alpha * NUM_U)
            found = {name: [] for name in names}
            for _ in range(args.draws):
                x_p = rng.normal(gap, 1, 1000)
                x_u = np.r_[rng.normal(gap, 1, num_target), rng.normal(0, 1, NUM_U - num_target)]
                logit_p, logit_u = (gap * (x - gap / 2) for x in (x_p, x_u))
                for name in estimators.ESTIMATORS:
                    value = estimate_from_logits(name, logit_p, logit_u).value
                    found[name].append(value - alpha)
                found[names[-1]].append(not_lifted(logit_p, logit_u) - alpha)
            row = {
                name: {
                    "bias": float(np.mean(error)),
                    "rmse": float(np.mean(np.square(error)) ** 0.5),
                }
                for name, error in found.items()
            }
            shown = (f"{it['bias']:>+12.3f} ± {it['rmse']:.3f}" for it in row.values())
            print(f"{gap:>4g} {alpha:>6.2f} " + " ".join(shown), flush=True)
            if args.save:
                save({"kind": "estimators", "draws": args.draws, "seed": args.seed, "gap": gap,
                      "alpha": alpha, "num_p": 1000, "num_u": NUM_U, **row})  # fmt: skip


def not_lifted(logit_p: np.ndarray, logit_u: np.ndarray) -> float:
    """DEDPUL without its deviation 3: the fixed point alone, or the bend where that is trivial."""
    pair = (1 / (1 + np.exp(-logit)) for logit in (logit_p, logit_u))
    ratio = density_ratio(*pair, bandwidth_p=0.1, bandwidth_u=0.05)
    others = estimators._fixed_point(ratio)
    return 1 - (others if others < 0.999 else estimators._bend(ratio))


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
