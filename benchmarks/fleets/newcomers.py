"""Units that a filter was not fitted on: are ordinary ones called none of these, and strange ones?

    python benchmarks/fleets/newcomers.py [--first 0] [--count 40] [--judged]
    python benchmarks/fleets/newcomers.py --show

A filter is fitted on 60 % of the units of each type of a drawn fleet, three of ours known, and
judges the others as new logs. These are *ordinary*: units of their type were in the fit. Where a
fleet has two other types or more, one of them is left out of the fit, and all of its units are
judged as new logs, too: these are *unseen*, and should be none of these. Draws below 1,000 are for
development; `--judged` takes those from there on.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from baseline import RESULTS, Recorded, describe
from draws import JUDGED_FROM, NUM_KNOWN, NUM_SEEDS, draw_fleet
from machines import dataset_of
from method import Method, chosen_method, method_options
from readout import unit_types
from scipy import stats
from simulate import Fleet, Table, simulate

import puorl

FRACTION, LEAST = 0.6, 3
"""Units of each type that are in the fit: this part, and at least so many."""


class Parts(NamedTuple):
    """Which units are in the fit, which of them are known, and which type is not there."""

    units: np.ndarray
    """(units,) str."""
    kind: np.ndarray
    """(units,) str. Their types."""
    fitted: np.ndarray
    """(units,) bool."""
    known: np.ndarray
    """(k,) str."""
    unseen: str | None


def draw_parts(seed: int, fleet: Fleet, table: Table) -> Parts:
    """Draw what is fitted; the same seed gives the same parts."""
    rng = np.random.default_rng([20_268, seed])
    units, ours = unit_types(table, fleet)
    kind = np.array([table["type"][table["unit"] == unit][0] for unit in units])
    fitted = np.zeros(len(units), bool)
    for name in (each.name for each in fleet.kinds):
        own = rng.permutation(np.flatnonzero(kind == name))
        fitted[own[: max(round(FRACTION * len(own)), LEAST)]] = True
    known = units[rng.choice(np.flatnonzero(fitted & ours), NUM_KNOWN, replace=False)]
    others = [each.name for each in fleet.kinds[1:]]
    unseen = others[int(rng.integers(len(others)))] if len(others) > 1 else None
    return Parts(units, kind, fitted & (kind != unseen), known, unseen)


def measure(method: Method, seed: int, recorded: Recorded) -> None:
    """Fit a filter and judge the other units, unless that is there."""
    fleet = draw_fleet(seed)
    if recorded.find(newcomer_config(method, fleet)) is not None:
        return
    table = simulate(fleet)
    parts, data = draw_parts(seed, fleet, table), dataset_of(table, fleet)
    unit = np.asarray(data.columns["unit"])
    is_fitted = np.isin(unit, parts.units[parts.fitted])
    flt = puorl.DomainFilter(unit="column:unit", config=method.filter_config)
    flt.fit(data[is_fitted], np.isin(unit[is_fitted], parts.known), seed=0)
    measured = judge(flt, data[~is_fitted], parts, fleet.kinds[0].name)
    recorded.add(newcomer_config(method, fleet), measured)
    count = measured["units"]["cluster"].count(-1)
    print(f"{fleet.name} {fleet.machine.name}: {count} none of these", flush=True)


def newcomer_config(method: Method, fleet: Fleet) -> dict[str, Any]:
    """All that decides a row of the results."""
    shares = {"fraction": FRACTION, "least": LEAST, "known": NUM_KNOWN}
    return method.config() | {"question": "newcomers", "fleet": describe(fleet)} | shares


def judge(flt: puorl.DomainFilter, new: puorl.Dataset, parts: Parts, ours: str) -> dict[str, Any]:
    """All that is recorded of the units that a filter was not fitted on, JSON-ready."""
    table = flt.predict_units(new)
    kind = dict(zip(parts.units, parts.kind, strict=True))
    kinds = np.array([kind[name] for name in table.name])
    return {
        "num_fitted": int(parts.fitted.sum()),
        "unseen_type": parts.unseen,
        "verdict": flt.verdict_,
        "units": {
            "name": table.name.tolist(),
            "ours": (kinds == ours).astype(int).tolist(),
            "unseen": (kinds == parts.unseen).astype(int).tolist(),
            "kept": table.keep.astype(int).tolist(),
            "cluster": table.cluster.tolist(),
            "probability": [float(f"{value:.6g}") for value in table.probability],
        },
    }


def rate_text(count: int, total: int) -> str:
    """A count, its rate and the 95 % interval of Wilson.

    >>> rate_text(2, 100)
    '2 of 100 (2.0 %, 0.6 to 7.0)'
    """
    if not total:
        return "none asked"
    low, high = stats.binomtest(count, total).proportion_ci(method="wilson")
    return f"{count} of {total} ({100 * count / total:.1f} %, {100 * low:.1f} to {100 * high:.1f})"


def text(found: Sequence[tuple[Fleet, Mapping[str, Any]]]) -> str:
    """Rates over all fleets, by family and by number of fitted units."""
    groups: dict[str, list[Mapping[str, Any]]] = {"all": [each for _, each in found]}
    for fleet, each in found:
        size = each["num_fitted"]
        few = "up to 14 fitted" if size < 15 else "15 to 24 fitted" if size < 25 else "25 and more"
        for name in (fleet.machine.name, few):
            groups.setdefault(name, []).append(each)
    lines = []
    for name, own in groups.items():
        units = {
            key: np.concatenate([np.array(each["units"][key]) for each in own])
            for key in ("ours", "unseen", "kept", "cluster")
        }
        is_named, unseen = units["cluster"] < 0, units["unseen"] == 1
        right = units["ours"] == units["kept"]
        kept = (units["kept"] == 1) & unseen
        dropped = unseen & ~is_named & ~kept
        lines += [
            f"{name}, {len(own)} fleets",
            f"- ordinary, none of these: {rate_text(is_named[~unseen].sum(), (~unseen).sum())}",
            f"- ordinary, ours or not right: {rate_text(right[~unseen].sum(), (~unseen).sum())}",
            f"- unseen, none of these: {rate_text((is_named & unseen).sum(), unseen.sum())}",
            f"- unseen, kept as ours: {rate_text(kept.sum(), unseen.sum())}",
            f"- unseen, of another known type: {rate_text(dropped.sum(), unseen.sum())}",
        ]
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, print the rates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first fleet, counted from 0 or 1,000")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--judged", action="store_true", help="fleets kept for the end")
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-newcomers.jsonl")
    method_options(parser)
    args = parser.parse_args()
    if args.method != "dynamics":
        parser.error(f"--method: expected dynamics, which judges new logs, got {args.method}")
    first = args.first + JUDGED_FROM * args.judged
    last = first + args.count
    if last > (NUM_SEEDS if args.judged else JUDGED_FROM):
        parser.error(f"--first and --count: expected at most {JUDGED_FROM:,} fleets of either kind")
    if args.judged:
        print("WARNING: these fleets are for the final judgement; change no method after this.")
    recorded, method = Recorded(args.out), chosen_method(args)
    for seed in () if args.show else range(first, last):
        measure(method, seed, recorded)
    fleets = [draw_fleet(seed) for seed in range(first, last)]
    rows = [(fleet, recorded.find(newcomer_config(method, fleet))) for fleet in fleets]
    print(text([(fleet, row["measured"]) for fleet, row in rows if row is not None]))


if __name__ == "__main__":
    main()
