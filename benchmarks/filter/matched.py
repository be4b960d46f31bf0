"""Only the dynamics differ: the same policy in both domains.

    python benchmarks/filter/matched.py [--rows 1M] [--seeds 5] [--bodies hopper] [--show]

Body mass and joint noise, three bodies, medium and random behaviour, 1 % labelled. By transition:
percent of held-out unlabelled rows right. By episode (whole episodes labelled, every episode held
out once): percent of unlabelled episodes right and the chance that a target episode scores above
another. And whether the report's "cannot tell" is right. It wants a GPU and many cores.
"""

import argparse
import itertools
from typing import Any

import numpy as np
from graded import grade, is_target, origin, summary
from many import (
    Source,
    behaviours,
    collect_all,
    common_options,
    device,
    fit_seeds,
    guarded,
    passed_on,
    run_parts,
)
from recorded import RESULTS, Recorded

import puorl
from puorl.core.formatting import parse_count
from puorl.core.run_folder import Checkpoint
from puorl.pu.checks.auroc import auroc, second_domain_detectable
from puorl.pu.config import PRESETS
from puorl.pu.cross_fit import cross_fit

SHIFTS = ("body_mass", "joint_noise")
QUALITIES = ("medium", "random")
BY_TRANSITION = ("thorough", "default", "paper")
BY_EPISODE = ("thorough", "default")
TARGET_SHARE, LABELLED_SHARE = 0.3, 0.01
NUM_JUDGED = 2
"""Seeds whose report is asked whether it can tell."""


def main() -> None:
    """Collect, measure what is missing in one process for each cell and unit, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    common_options(parser, RESULTS / "filter-matched.jsonl")
    args = parser.parse_args()
    rows = parse_count(args.rows, name="rows")
    cells = [(s, b, q) for b in args.bodies for s in SHIFTS for q in QUALITIES]
    if args.part:
        *names, unit = args.part.split("/")
        cell = names[0], names[1], names[2]
        work = by_transition if unit == "transition" else by_episode
        raise SystemExit(0 if guarded(args.part, lambda: work(cell, args)) else 1)
    if not args.show:
        collect_all([s for c in cells for s in sources_of(c, rows)], args.cache, args.workers)
        parts = ["/".join([*cell, unit]) for unit in ("transition", "episode") for cell in cells]
        run_parts(__file__, parts, passed_on(args))
    show(Recorded(args.out), cells, rows, args.seeds)


def sources_of(cell: tuple[str, str, str], rows: int) -> tuple[Source, Source]:
    """The target's rows and the others', with the same policy."""
    shift, body, quality = cell
    home = None if quality == "random" else "nominal"
    num_target = round(TARGET_SHARE * rows)
    return (
        Source(body, "nominal", quality, num_target, 0, home),
        Source(body, shift, quality, rows - num_target, 1, home),
    )


def config_of(cell: tuple[str, str, str], rows: int, unit: str, preset: str, seed: int) -> dict:
    """All that decides a row of the results."""
    shift, body, quality = cell
    return {
        "shift": shift,
        "body": body,
        "quality": quality,
        "labelled_fraction": LABELLED_SHARE,
        "rows": rows,
        "unit": unit,
        "seed": seed,
        "preset": preset,
        "filter": PRESETS[preset].to_dict(),
        # Rows of an earlier rule for whole episodes are in the file; they must not stand in.
        **({"rule": "valley"} if unit == "episode" else {}),
        **behaviours(sources_of(cell, rows)),
    }


def by_transition(cell: tuple[str, str, str], args: argparse.Namespace) -> None:
    """All seeds as lanes, each preset."""
    rows, seeds = parse_count(args.rows, name="rows"), range(args.seeds)
    recorded = Recorded(args.out)
    target, other = (source.collect(args.cache) for source in sources_of(cell, rows))
    splits = [
        puorl.make_split(
            target,
            other,
            rows=rows,
            labelled_fraction=LABELLED_SHARE,
            seed=seed,
            parts="stratified",
        )
        for seed in seeds
    ]
    for preset in BY_TRANSITION:
        configs = [config_of(cell, rows, "transition", preset, seed) for seed in seeds]
        if all(recorded.find(config) is not None for config in configs):
            continue
        filters, seconds = fit_seeds(splits, PRESETS[preset], seeds)
        for seed, split, flt in zip(seeds, splits, filters, strict=True):
            truth, tested = is_target(split), split.unlabelled_part == 2
            score = flt.predict_proba(split)
            measured: dict[str, Any] = {
                "test": grade(score[tested] >= 0.5, truth[tested]),
                "all": grade(score >= 0.5, truth),
                "auc": area(score[tested], truth[tested]),
                "alpha": flt.alpha_.to_dict(),
                "true_alpha": float(truth.mean()),
                "visible": visible(flt, split, seed) if seed < NUM_JUDGED else None,
                "fit_seconds": round(seconds, 2),
                "device": device(),
                "origin": origin(split, target, other),
            }
            recorded.add(configs[seed], measured)


def by_episode(cell: tuple[str, str, str], args: argparse.Namespace) -> None:
    """Whole episodes are labelled and decided; five folds are the lanes."""
    rows = parse_count(args.rows, name="rows")
    recorded = Recorded(args.out)
    target, other = (source.collect(args.cache) for source in sources_of(cell, rows))
    for preset, seed in itertools.product(BY_EPISODE, range(args.seeds)):
        config = config_of(cell, rows, "episode", preset, seed)
        if recorded.find(config) is not None:
            continue
        split = puorl.make_split(
            target, other, rows=rows, labelled_fraction=LABELLED_SHARE, unit="episode", seed=seed
        )
        flt = puorl.DomainFilter(preset, unit="episode", evidence="rows").fit(split, seed=seed)
        truth, score = is_target(split), flt.predict_proba(split)
        assert split.pool.episode is not None
        _, first = np.unique(split.pool.episode[split.unlabelled], return_index=True)
        measured = {
            "rows": grade(score >= 0.5, truth),
            "episodes": grade(score[first] >= 0.5, truth[first]),
            "auc": area(score[first], truth[first]),
            "num_labelled_episodes": len(np.unique(split.pool.episode[split.labelled])),
            "alpha": flt.alpha_.to_dict(),
            "true_alpha": float(truth.mean()),
            "device": device(),
            "origin": origin(split, target, other),
        }
        recorded.add(config, measured)


def visible(flt: puorl.DomainFilter, split: puorl.PUSplit, seed: int) -> bool:
    """Would the report see a second domain?"""
    scores = cross_fit(flt.model_, split, "hard", seed=seed, checkpoint=Checkpoint(None))
    return bool(second_domain_detectable(scores, auroc(scores.score_p, scores.score_u)))


def area(score: np.ndarray, truth: np.ndarray) -> float:
    """Chance that a target row scores above another one; ties count half."""
    return auroc(score[truth], score[~truth]).value


def show(recorded: Recorded, cells: list[tuple[str, str, str]], rows: int, seeds: int) -> None:
    """Two tables in Markdown, and how often "cannot tell" was right."""
    told: list[tuple[float, bool]] = []
    for unit, presets, part in (
        ("transition", BY_TRANSITION, "test"),
        ("episode", BY_EPISODE, "episodes"),
    ):
        names = "".join(f" {p} | area | alpha |" for p in presets)
        print(f"\n| by {unit} | true alpha |{names}\n|---|--:|{'--:|' * 3 * len(presets)}")
        for cell in cells:
            text, truth = "", None
            for preset in presets:
                found = [
                    row["measured"]
                    for seed in range(seeds)
                    if (row := recorded.find(config_of(cell, rows, unit, preset, seed)))
                ]
                if not found:
                    text += " – | – | – |"
                    continue
                truth = found[0]["true_alpha"]
                told += [(m["auc"], m["visible"]) for m in found if m.get("visible") is not None]
                text += (
                    f" {summary([m[part]['accuracy'] for m in found])} "
                    f"| {np.mean([m['auc'] for m in found]):.4f} "
                    f"| {np.mean([m['alpha']['value'] for m in found]):.3f} |"
                )
            if truth is not None:
                shift, body, quality = cell
                print(f"| {body} {quality}, {shift} | {truth:.3f} |{text}")
    for low, high in ((0.0, 0.6), (0.6, 0.9), (0.9, 1.01)):
        seen = [sees for auc, sees in told if low <= auc < high]
        if seen:
            silent = len(seen) - sum(seen)
            print(f'area {low} to {min(high, 1.0)}: "cannot tell" in {silent} of {len(seen)}')


if __name__ == "__main__":
    main()
