"""The paper's classifier tables on our data: 56 cells, three presets, five seeds.

    python benchmarks/filter/accuracy.py [--rows 1M] [--seeds 5] [--bodies hopper]
        [--presets default told] [--show]

Percent of held-out unlabelled rows right, mean and deviation over seeds, beside the published
number; per class, over all unlabelled rows, and alpha too. ``told`` is a classifier with the inputs
of ``thorough`` that is told the true domain of every row for training: what could be reached.
Seeds are lanes of one program. It wants a GPU and many cores; rows that are in the results already
are not measured again.
"""

import argparse
import dataclasses
import time
from dataclasses import dataclass
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
    keep_when_told,
    passed_on,
    run_parts,
)
from recorded import RESULTS, Recorded

import puorl
from puorl.bench.results import Reference
from puorl.core.formatting import parse_count
from puorl.envs.domains import negatives
from puorl.pu.config import PRESETS

QUALITY = {"ME": "medium-expert", "M": "medium", "R": "random"}
TOLD = "told"
CONFIGS = {name: PRESETS[name] for name in ("paper", "default", "thorough")} | {
    TOLD: dataclasses.replace(
        PRESETS["thorough"],
        learner="pvu",
        network=dataclasses.replace(PRESETS["thorough"].network, weight_decay=0.0),
        num_warm_up=30,
    )
}
TARGET_SHARE = 0.3


@dataclass(frozen=True)
class PublishedAccuracy:
    """One cell of the paper's classifier tables: percent of held-out unlabelled rows right."""

    shift: str
    body: str
    labelled_fraction: float
    quality: str
    mean: float
    std: float


def classifier_accuracy() -> list[PublishedAccuracy]:
    """All 56 cells: 12 of body mass, 12 of mixture, 4 of entire body, at each of two ratios."""
    cells = []
    for setting, found in Reference.load("paper").accuracies.items():
        body, shift, quality, fraction = setting.split("/")
        place = (shift, body, float(fraction), quality.replace("-", "/"))
        cells.append(PublishedAccuracy(*place, found.mean, found.std))
    return cells


def main() -> None:
    """Collect, measure what is missing in one process for each body and ratio, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    common_options(parser, RESULTS / "filter-accuracy.jsonl")
    parser.add_argument("--presets", nargs="+", default=list(CONFIGS), choices=list(CONFIGS))
    args = parser.parse_args()
    rows = parse_count(args.rows, name="rows")
    cells = [cell for cell in classifier_accuracy() if cell.body in args.bodies]
    if args.part:
        own = [cell for cell in cells if part_of(cell) == args.part]
        names = [f"{cell.shift} {cell.body} {cell.quality}" for cell in own]
        pairs = zip(names, own, strict=True)
        done = [guarded(name, lambda c=cell: run(c, args)) for name, cell in pairs]
        raise SystemExit(0 if all(done) else 1)
    if not args.show:
        sources = [target_of(cell, rows) for cell in cells]
        sources += [source for cell in cells for source, _ in others_of(cell, rows)]
        collect_all(sources, args.cache, args.workers)
        parts = list(dict.fromkeys(part_of(cell) for cell in cells))
        run_parts(__file__, parts, [*passed_on(args), "--presets", *args.presets])
    show(Recorded(args.out), cells, rows, args.seeds)


def part_of(cell: PublishedAccuracy) -> str:
    """Cells of one process: they share shapes, and so programs."""
    group = "entire" if cell.shift == "entire_body" else cell.body
    return f"{group}/{cell.labelled_fraction}"


def target_of(cell: PublishedAccuracy, rows: int) -> Source:
    """Where the target rows come from."""
    ours = QUALITY[cell.quality.partition("/")[0]]
    return Source(cell.body, "nominal", ours, round(TARGET_SHARE * rows), 0)


def others_of(cell: PublishedAccuracy, rows: int) -> list[tuple[Source, float]]:
    """Where the other rows come from, and how they share."""
    ours, theirs = (QUALITY[word] for word in cell.quality.split("/"))
    count = rows - round(TARGET_SHARE * rows)
    return [
        (
            Source(n.domain.body, n.domain.name, n.quality, round(count * n.proportion), 0),
            n.proportion,
        )
        for n in negatives(cell.shift, cell.body, ours, theirs)
    ]


def config_of(cell: PublishedAccuracy, rows: int, preset: str, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    return {
        "shift": cell.shift,
        "body": cell.body,
        "quality": cell.quality,
        "labelled_fraction": cell.labelled_fraction,
        "rows": rows,
        "seed": seed,
        "preset": preset,
        "filter": CONFIGS[preset].to_dict(),
        **behaviours([target_of(cell, rows), *(source for source, _ in others_of(cell, rows))]),
    }


def run(cell: PublishedAccuracy, args: argparse.Namespace) -> None:
    """Fit all seeds of a cell with each preset, and write their rows."""
    rows, seeds = parse_count(args.rows, name="rows"), range(args.seeds)
    recorded = Recorded(args.out)
    wanted = [
        preset
        for preset in args.presets
        if any(recorded.find(config_of(cell, rows, preset, seed)) is None for seed in seeds)
    ]
    if not wanted:
        return
    target = target_of(cell, rows).collect(args.cache)
    found = others_of(cell, rows)
    others = [source.collect(args.cache) for source, _ in found]
    splits = [
        puorl.make_split(
            target,
            others,
            rows=rows,
            labelled_fraction=cell.labelled_fraction,
            seed=seed,
            proportions=[share for _, share in found],
            parts="stratified",
        )
        for seed in seeds
    ]
    for preset in wanted:
        begin = time.perf_counter()
        if preset == TOLD:
            kept_rows = keep_when_told(splits, CONFIGS[preset], seeds=seeds)
            alphas = [None] * len(splits)
        else:
            filters, _ = fit_seeds(splits, CONFIGS[preset], seeds)
            kept_rows = [flt.predict(split) for flt, split in zip(filters, splits, strict=True)]
            alphas = [flt.alpha_.to_dict() for flt in filters]
        seconds = (time.perf_counter() - begin) / len(splits)
        for seed, split, kept, alpha in zip(seeds, splits, kept_rows, alphas, strict=True):
            truth, tested = is_target(split), split.unlabelled_part == 2
            measured = {
                "test": grade(kept[tested], truth[tested]),
                "all": grade(kept, truth),
                "alpha": alpha,
                "true_alpha": float(truth.mean()),
                "fit_seconds": round(seconds, 2),
                "device": device(),
                "origin": origin(split, target, *others),
            }
            recorded.add(config_of(cell, rows, preset, seed), measured)


def show(recorded: Recorded, cells: list[PublishedAccuracy], rows: int, seeds: int) -> None:
    """The table in Markdown, ours beside the published number."""
    head = ["shift", "target", "labelled", "behaviour", "published", *CONFIGS]
    print(f"| {' | '.join([*head, 'ours kept', 'others refused', 'alpha error'])} |")
    print(f"|---|---|--:|---|{'--:|' * (len(CONFIGS) + 4)}")
    for cell in cells:
        found = {
            preset: [
                row["measured"]
                for seed in range(seeds)
                if (row := recorded.find(config_of(cell, rows, preset, seed))) is not None
            ]
            for preset in CONFIGS
        }
        ours = found["default"]
        if not ours:
            continue
        accuracy = [
            summary([m["test"]["accuracy"] for m in measured]) if measured else "–"
            for measured in found.values()
        ]
        error = np.mean([abs(m["alpha"]["value"] - m["true_alpha"]) for m in ours])
        print(
            f"| {cell.shift} | {cell.body} | {cell.labelled_fraction:.0%} | {cell.quality} "
            f"| {cell.mean:.2f} ± {cell.std:.2f} | {' | '.join(accuracy)} "
            f"| {100 * np.mean([m['test']['recall'] for m in ours]):.2f} "
            f"| {100 * np.mean([m['test']['specificity'] for m in ours]):.2f} | {error:.3f} |"
        )


if __name__ == "__main__":
    main()
