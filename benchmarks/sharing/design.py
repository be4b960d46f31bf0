"""Which parts of sharing pay? Variants with true domain labels, in the settings of `few`.

    python benchmarks/sharing/design.py collect --bodies hopper walker2d --out FOLDER
    python benchmarks/sharing/design.py prepare --bodies hopper --part ME/ME,3000 --out FOLDER
    python benchmarks/sharing/design.py train --bodies hopper --out FOLDER
    python benchmarks/sharing/design.py show --out benchmarks/results/sharing-design

``collect`` and ``prepare`` may be left out: ``train`` does what is missing of them, in one process.
True labels separate two questions: whether the others' rows help, asked here, and whether a filter
finds ours. Rows are those of `puorl bench run`; a score is the mean of ten episodes after the last
update.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import ttest_1samp

from puorl.bench import make_plan, run
from puorl.bench import plan as plans
from puorl.bench.prepare import collect_all
from puorl.bench.runner import _trainings
from puorl.bench.settings import Setting
from puorl.bench.stats import SampleSummary, difference
from puorl.bench.suites import TD3_BC, Budget, MethodChoice, Part, Suite
from puorl.core.stats import mean_estimate

QUALITIES, OWN = ("ME/ME", "M/R"), (3_000, 10_000, 30_000)
_PLAIN = {"move": False, "tolerance": 1e3}
"""Others' rows as they are, all trusted."""
VARIANTS = {
    "25": {"share": 0.25, "imitate": "better"},
    "50": {"share": 0.5, "imitate": "better"},
    "75": {"share": 0.75, "imitate": "better"},
    "90": {"share": 0.9, "imitate": "better"},
    "all-50": {"share": 0.5, "imitate": "all"},
    "all-90": {"share": 0.9, "imitate": "all"},
    "none-50": {"share": 0.5, "imitate": "none"},
    "none-90": {"share": 0.9, "imitate": "none"},
    "trusted-all-90": {"share": 0.9, "imitate": "all", "tolerance": 1e3},
    "stay-50": {"share": 0.5, "imitate": "better", "move": False},
    "plain-50": {"share": 0.5, "imitate": "all", **_PLAIN},
    "plain-90": {"share": 0.9, "imitate": "all", **_PLAIN},
    "plain-none-90": {"share": 0.9, "imitate": "none", **_PLAIN},
    "plain-better-90": {"share": 0.9, "imitate": "better", **_PLAIN},
    "whole-all-90": {"share": 0.9, "imitate": "all", "most_others": 10**6},
}


def make_suite(
    bodies: list[str],
    qualities: list[str],
    own_rows: list[int],
    rows: int,
    quick: bool,
    part: str | None,
    variants: list[str],
    data_seeds: int,
) -> Suite:
    """Make the suite; ``part`` is a quality and a number of own rows, None for all."""
    small = {"num_steps": 20, "hidden": (16,), "num_members": 2} if quick else {}
    chosen = {name: VARIANTS[name] for name in variants}
    choices = (
        MethodChoice("oracle"),
        MethodChoice("sharing_all"),
        *(MethodChoice("oracle_share", {**v, **small}, variant=n) for n, v in chosen.items()),
    )
    pairs = [(q, own) for q in qualities for own in own_rows]
    if part is not None:
        quality, _, own = part.partition(",")
        pairs = [(quality, int(own))]
    settings = (
        Setting(
            *("body_mass", body, q, own / rows / 10, rows, own / rows), record=50, data_seed=seed
        )
        for body in bodies
        for q, own in pairs
        for seed in range(data_seeds)
    )
    budget = Budget(steps=100_000, curve_episodes=5)
    parts = tuple(Part(setting, TD3_BC, choices) for setting in settings)
    return Suite("sharing-design", "variants of sharing with true labels", parts, budget)


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=("collect", "prepare", "train", "show"))
    parser.add_argument("--bodies", nargs="+", default=["hopper", "walker2d"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", help="such as ME/ME,3000")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--data-seeds", type=int, default=1, help="independent logs of every setting"
    )
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--qualities", nargs="+", default=QUALITIES, choices=QUALITIES)
    parser.add_argument("--own", type=int, nargs="+", default=OWN)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny networks, to test the script")
    args = parser.parse_args()
    if args.step == "show":
        show(args.out / "runs.jsonl")
        return
    named = args.quick, args.part, args.variants, args.data_seeds
    suite = make_suite(args.bodies, args.qualities, args.own, args.rows, *named)
    plan = make_plan(suite, seeds=args.seeds, steps=args.steps)
    if args.step == "collect":
        collect_all(plans.needed_sources(plan.cells), workers=args.workers, show=False)
    elif args.step == "prepare":
        print(len(_trainings(args.out, plan)), "runs prepared", flush=True)
    else:
        print(run(plan, args.out, lanes=300, workers=args.workers, on_message=print), flush=True)


PAIRS = (
    *(("none-50", "50"), ("none-50", "all-50"), ("none-90", "90"), ("none-90", "all-90")),
    *(("50", "stay-50"), ("trusted-all-90", "plain-90")),
    *(("all-90", "trusted-all-90"), ("all-90", "whole-all-90")),
)
"""Pairs that differ in one thing: whom to imitate, the move, the trust, the number of rows."""


def show(path: Path) -> None:
    """Print mean scores by setting, final and (mean of the last three points), and differences.

    Differences are of means over settings, and then of each setting over its seeds (Welch).
    """
    found = defaultdict(lambda: defaultdict(list))
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["error"] is None:
            setting, label = row["setting"], row["variant"] or row["method"]
            own = round(setting["rows"] * setting["target_fraction"])
            late = np.mean(row["curve"][-3:], axis=0)[1]
            key = setting["body"], setting["quality"], own
            found[label][key].append([np.mean(row["scores"]), late])
    keys = list(found["oracle"])
    means = {label: np.array([np.mean(of[k], axis=0) for k in keys]) for label, of in found.items()}
    print("variant | " + " | ".join(f"{b[:2]} {q} {n // 1000}k" for b, q, n in keys) + " | mean")
    for label, values in means.items():
        cells = [f"{final:.0f} ({late:.0f})" for final, late in values]
        print(" | ".join([label, *cells, "{:.1f} ({:.1f})".format(*values.mean(axis=0))]))
    others = [label for label in means if label != "oracle"]
    families = [
        [(label, "oracle") for label in others],
        [pair for pair in PAIRS if set(pair) <= set(means)],
    ]
    for pairs in filter(None, families):
        print("\npair | final | p by Holm | last three points | p by Holm")
        gains = np.array([means[a] - means[b] for a, b in pairs])
        corrected = [_holm(np.asarray(ttest_1samp(gains[:, :, k], 0, axis=1)[1])) for k in (0, 1)]
        for i, (a, b) in enumerate(pairs):
            cells = [f"{a} - {b}"]
            for k in (0, 1):
                gain = mean_estimate(gains[i, :, k])
                cells += [f"{gain.value:+.1f} ± {gain.half_width:.1f}", f"{corrected[k][i]:.2f}"]
            print(" | ".join(cells))
    print("\nminus oracle | " + " | ".join(f"{b[:2]} {q} {n // 1000}k" for b, q, n in keys))
    for label in others:
        print(" | ".join([label, *(_gain(found[label][k], found["oracle"][k]) for k in keys)]))


def _gain(one: list[list[float]], other: list[list[float]]) -> str:
    """Difference of final scores between seeds of two variants, with Welch's interval."""
    first, second = (SampleSummary.of([final for final, _ in runs]) for runs in (one, other))
    gain = difference(first, second)
    return f"{gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"


def _holm(p: np.ndarray) -> np.ndarray:
    order = np.argsort(p)
    scaled = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected


if __name__ == "__main__":
    main()
