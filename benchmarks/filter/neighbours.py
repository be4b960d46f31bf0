"""What do neighbours give away? Held-out rows beside rows of episodes that were never seen.

    python benchmarks/filter/neighbours.py [--rows 200k] [--seeds 3]

The paper holds out single rows at random, so that the rows before and after a test row are in
training. Three protocols on the same data (body mass, medium, each domain with its own policy),
with as many labelled rows and the same share of target rows in each:

- ``rows``: labels and test rows drawn row by row, as in the paper;
- ``fresh``: the same fit, judging rows of episodes collected apart (no neighbour, no label, and not
  even the same episode in training). Beside ``rows`` it shows what neighbours alone give;
- ``episodes``: whole episodes labelled, folds by episode, every row judged by the network that saw
  nothing of its episode. Beside ``fresh`` it shows what is lost because as many labelled rows come
  from few episodes.

A training set is 80 % of the rows in all three.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from graded import grade, is_target, origin, summary
from recorded import RESULTS, Recorded

import puorl
from puorl.core.formatting import parse_count
from puorl.pu.config import PRESETS

BODIES = ("hopper", "halfcheetah", "walker2d")
PROTOCOLS = ("rows", "fresh", "episodes")
TARGET_SHARE = 0.3
LABELLED_SHARE = 0.05
SPARE = 1.5
"""Rows collected for each row drawn, so that seeds draw other episodes, too."""


def main() -> None:
    """Measure what is missing, then print the table of all that was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="200k", help="rows of a split")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--bodies", nargs="+", default=BODIES, choices=BODIES)
    parser.add_argument("--presets", nargs="+", default=("paper", "default"), choices=PRESETS)
    parser.add_argument("--out", type=Path, default=RESULTS / "filter-neighbours.jsonl")
    args = parser.parse_args()
    rows = parse_count(args.rows, name="rows")
    recorded = Recorded(args.out)
    for body in args.bodies:
        for seed in range(args.seeds):
            measure(recorded, body, args.presets, rows, seed)
    show(recorded, args.bodies, args.presets, rows, args.seeds)


def config_of(body: str, preset: str, rows: int, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    return {
        "body": body,
        "shift": "body_mass",
        "quality": "medium",
        "rows": rows,
        "labelled_fraction": LABELLED_SHARE,
        "seed": seed,
        "preset": preset,
        "filter": PRESETS[preset].to_dict(),
    }


def measure(recorded: Recorded, body: str, presets: list[str], rows: int, seed: int) -> None:
    """All protocols of one seed, for those presets that have no row yet."""
    missing = [p for p in presets if recorded.find(config_of(body, p, rows, seed)) is None]
    if not missing:
        return
    sources = collected(body, round(SPARE * rows), seed=0)
    by_episode = puorl.make_split(
        *sources, rows=rows, labelled_fraction=LABELLED_SHARE, unit="episode", seed=seed
    )
    by_row = alike(by_episode, sources, seed)
    fresh_sources = collected(body, rows, seed=1)
    # Its labels are not used: one row is labelled because a split without any is none.
    fresh = puorl.make_split(
        *fresh_sources,
        rows=rows // 2,
        target_fraction=float(is_target(by_row).mean()),
        labelled_fraction=2 / rows,
        seed=seed,
        parts="stratified",
    )
    for preset in missing:
        flt = puorl.DomainFilter(preset).fit(by_row, seed=seed)
        tested = by_row.unlabelled_part == 2
        crossed = puorl.DomainFilter(preset).fit(by_episode, seed=seed)
        measured = {
            "rows": grade(flt.predict(by_row)[tested], is_target(by_row)[tested]),
            "fresh": grade(flt.predict(fresh), is_target(fresh)),
            "episodes": grade(crossed.predict(by_episode), is_target(by_episode)),
            "num_labelled": len(by_episode.labelled),
            "num_labelled_episodes": count_episodes(by_episode, by_episode.labelled),
            "num_episodes": count_episodes(by_episode, np.arange(len(by_episode.pool))),
            "alpha_rows": flt.alpha_.to_dict(),
            "alpha_episodes": crossed.alpha_.to_dict(),
            "true_alpha": float(is_target(by_row).mean()),
            "origin": {
                "rows": origin(by_row, *sources),
                "fresh": origin(fresh, *fresh_sources),
                "episodes": origin(by_episode, *sources),
            },
        }
        recorded.add(config_of(body, preset, rows, seed), measured)
        found = ", ".join(f"{p} {measured[p]['accuracy']:.2%}" for p in PROTOCOLS)
        print(f"{body} {preset} seed {seed}: {found}", flush=True)


def collected(body: str, rows: int, *, seed: int) -> tuple[puorl.Dataset, puorl.Dataset]:
    """Rows of both domains, the target's first."""
    num_target = round(TARGET_SHARE * rows)
    target = puorl.collect(body, quality="medium", rows=num_target, seed=seed)
    other = puorl.collect(body, "body_mass", quality="medium", rows=rows - num_target, seed=seed)
    return target, other


def alike(
    by_episode: puorl.PUSplit, sources: tuple[puorl.Dataset, puorl.Dataset], seed: int
) -> puorl.PUSplit:
    """A split by rows with as many rows of each kind as a split by episodes came to."""
    rows, num_labelled = len(by_episode.pool), len(by_episode.labelled)
    num_target = num_labelled + int(is_target(by_episode).sum())
    made = puorl.make_split(
        *sources,
        rows=rows,
        target_fraction=num_target / rows,
        labelled_fraction=num_labelled / rows,
        seed=seed,
        parts="stratified",
    )
    assert len(made.labelled) == num_labelled
    assert is_target(made).sum() == is_target(by_episode).sum()
    return made


def count_episodes(split: puorl.PUSplit, positions: np.ndarray) -> int:
    """How many episodes these rows come from."""
    assert split.pool.episode is not None
    return len(np.unique(split.pool.episode[positions]))


def show(
    recorded: Recorded, bodies: list[str], presets: list[str], rows: int, num_seeds: int
) -> None:
    """Percent of rows right, mean and deviation over seeds."""
    print(f"\n{'body':<12} {'preset':<8} {'labelled':>18}" + "".join(f"{p:>16}" for p in PROTOCOLS))
    for body in bodies:
        for preset in presets:
            found = [recorded.find(config_of(body, preset, rows, s)) for s in range(num_seeds)]
            measured = [row["measured"] for row in found if row is not None]
            labelled = np.mean([m["num_labelled"] for m in measured])
            episodes = np.mean([m["num_labelled_episodes"] for m in measured])
            cells = [summary([m[p]["accuracy"] for m in measured]) for p in PROTOCOLS]
            print(
                f"{body:<12} {preset:<8} {f'{labelled:,.0f} of {episodes:.0f} ep.':>18}"
                + "".join(f"{cell:>16}" for cell in cells)
            )


if __name__ == "__main__":
    main()
