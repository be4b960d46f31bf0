"""Units right with few known units: today's filter, and a linear model of the known units.

    python benchmarks/fleets/baseline.py [--known 1 3 5] [--draws 2] [--fleets ...] [--show]

For each draw, some of our units are known; every other unit is to be called ours or not. The
filter is `puorl.DomainFilter` with its default preset. It decides about units; with one known unit
it refuses that, decides about runs, and a unit is ours when most of its rows are kept. The linear
model of s' - s given (s, a) is fitted to the known units; units are ranked by how likely it makes
their rows, and cut where the ratio of misfit between neighbours is largest. Rows that are in the
results already are not measured again.
"""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from readout import auroc, read_out, unit_types
from simulate import FLEETS, VERSION, Fleet, Table, followed, simulate, stack

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
from recorded import RESULTS, Recorded

import puorl
from puorl.pu.config import PRESETS

METHODS = ("filter", "linear")
_RIDGE = 1e-3
"""Of the linear model, as a part of the rows."""


def main() -> None:
    """Measure what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", nargs="+", choices=list(FLEETS), default=list(FLEETS))
    parser.add_argument("--known", nargs="+", type=int, default=[1, 2, 3, 5, 10])
    parser.add_argument("--draws", type=int, default=2, help="of the filter")
    parser.add_argument("--linear-draws", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-baseline.jsonl")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    args = parser.parse_args()
    recorded = Recorded(args.out)
    draws = {"filter": args.draws, "linear": args.linear_draws}
    if not args.show:
        tables = {name: simulate(FLEETS[name]) for name in args.fleets}
        for name, table in tables.items():
            measure_read_out(FLEETS[name], table, recorded)
        # The rows that are asked for first come first, so that a stopped run is of use.
        for method in reversed(METHODS):
            for known in args.known:
                for name, table in tables.items():
                    for seed in range(draws[method]):
                        measure(method, FLEETS[name], table, known, seed, recorded)
    print(text_table(recorded, args.fleets, args.known))


def measure_read_out(fleet: Fleet, table: Table, recorded: Recorded) -> None:
    """Add the read-out of a fleet, unless it is there."""
    config = {"method": "read-out", "fleet": describe(fleet)}
    if recorded.find(config) is None:
        found = read_out(table, fleet)
        recorded.add(config, {**asdict(found), "is_decidable": found.is_decidable})


def measure(
    method: str, fleet: Fleet, table: Table, known: int, seed: int, recorded: Recorded
) -> None:
    """Add one draw, unless it is there or the fleet has too few units of ours."""
    if fleet.kinds[0].count <= known:
        return
    config = config_of(method, fleet, known, seed)
    if recorded.find(config) is not None:
        return
    units, ours = unit_types(table, fleet)
    chosen = np.random.default_rng([fleet.seed, known, seed]).choice(
        np.flatnonzero(ours), known, replace=False
    )
    begin = time.perf_counter()
    if method == "filter":
        score, kept = decide_by_filter(table, fleet, units[chosen], seed)
    else:
        score = linear_scores(table, fleet, units[chosen])
        kept = None
    asked = np.setdiff1d(np.arange(len(units)), chosen)
    truth = ours[asked]
    called = above_largest_gap(score[asked]) if kept is None else kept[asked]
    measured = {
        "num_asked": len(asked),
        "num_right": int((called == truth).sum()),
        "num_ours_kept": int(called[truth].sum()),
        "num_ours": int(truth.sum()),
        "num_others_kept": int(called[~truth].sum()),
        "auroc": auroc(score[asked], truth),
        "seconds": round(time.perf_counter() - begin, 2),
        "known_units": units[chosen].tolist(),
    }
    recorded.add(config, measured)
    right = f"{measured['num_right']} of {len(asked)} right, AUROC {measured['auroc']:.3f}"
    print(f"{fleet.name} {method} {known} known, draw {seed}: {right}", flush=True)


def config_of(method: str, fleet: Fleet, known: int, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    config = {"method": method, "fleet": describe(fleet), "known": known, "seed": seed}
    if method == "filter":
        config |= {"preset": "default", "unit": unit_of(known)}
        config |= {"filter": asdict(PRESETS["default"])}
    return config


def describe(fleet: Fleet) -> dict[str, Any]:
    """The settings of a fleet, JSON-ready."""
    return asdict(fleet) | {"machine": fleet.machine.name, "version": VERSION}


def unit_of(known: int) -> str:
    """What the filter decides about: it wants at least two known units."""
    return "episode" if known < 2 else "column:unit"


def decide_by_filter(
    table: Table, fleet: Fleet, known: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(units,) float: mean score; (units,) bool: kept.

    Args:
        table: As `simulate` makes it; types and operators are not passed on.
        fleet: Names its sensors and commands.
        known: Names of known units.
        seed: Of the filter.
    """
    data = puorl.Dataset.from_arrays(
        obs=stack(table, fleet.sensors),
        action=stack(table, fleet.commands),
        episode=table["run"],
        time=table["time"],
        columns={"unit": table["unit"]},
    )
    unit = data.columns["unit"]
    mask = np.isin(unit, known)
    split = puorl.PUSplit.from_mask(data, mask, unit="episode", seed=seed)
    flt = puorl.DomainFilter(unit=unit_of(len(known)), evidence="rows").fit(split, seed=seed)
    score, kept = np.ones(len(unit)), np.ones(len(unit))
    score[split.unlabelled] = flt.predict_proba(split)
    kept[split.unlabelled] = flt.predict(split)
    number = np.unique(unit, return_inverse=True)[1]
    size = np.bincount(number)
    return np.bincount(number, score) / size, np.bincount(number, kept) / size > 0.5


def linear_scores(table: Table, fleet: Fleet, known: np.ndarray) -> np.ndarray:
    """(units,) float. How well a linear model of the known units explains each unit's rows.

    Minus the logarithm of the mean squared error in units of the model's own spread: it orders
    units as their mean Gaussian log likelihood does, and a gap in it is a ratio of misfits.
    """
    kept = followed(table, fleet.machine.step)
    state, action = stack(table, fleet.sensors), stack(table, fleet.commands)
    change = (np.roll(state, -1, axis=0) - state)[kept]
    return one_step_scores(np.hstack([state, action])[kept], change, table["unit"][kept], known)


def one_step_scores(
    x: np.ndarray, change: np.ndarray, unit: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """(units,) float. As `linear_scores`, from rows.

    Args:
        x: (n, d). States and actions.
        change: (n, s). Next states less states.
        unit: (n,) str. Whose row it is.
        known: (k,) str. Known units.
    """
    x = np.hstack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones((len(x), 1))])
    ours = np.isin(unit, known)
    own = x[ours]
    penalty = _RIDGE * len(own) * np.eye(x.shape[1])
    residual = change - x @ np.linalg.solve(own.T @ own + penalty, own.T @ change[ours])
    spread = residual[ours].T @ residual[ours] / len(own)
    distance = np.einsum("ni,ij,nj->n", residual, np.linalg.inv(spread), residual)
    number = np.unique(unit, return_inverse=True)[1]
    return -np.log(np.bincount(number, distance) / np.bincount(number))


def above_largest_gap(score: np.ndarray) -> np.ndarray:
    """(n,) bool. Which scores lie above the largest gap between neighbours."""
    ordered = np.sort(score)
    cut = int(np.argmax(np.diff(ordered)))
    return score > ordered[cut]


def text_table(recorded: Recorded, fleets: list[str], known: list[int]) -> str:
    """Percent of asked units right, mean over draws, as Markdown; AUROC in brackets."""
    heads = [f"{method} {k}" for k in known for method in METHODS]
    lines = [
        "| fleet | read-out | " + " | ".join(heads) + " |",
        "|---|--:" + "|--:" * len(heads) + "|",
    ]
    for name in fleets:
        fleet = FLEETS[name]
        told = recorded.find({"method": "read-out", "fleet": describe(fleet)})
        cells = ["–" if told is None else f"{100.0 * told['measured']['accuracy']:.1f}"]
        for k in known:
            for method in METHODS:
                cells.append(_cell(recorded, config_of(method, fleet, k, 0)))
        lines.append(f"| {name}{' *' if fleet.held_out else ''} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "* held out"])


def _cell(recorded: Recorded, config: dict[str, Any]) -> str:
    """The draws of a config, seed aside."""
    found = []
    while (row := recorded.find(config)) is not None:
        found.append(row["measured"])
        config = config | {"seed": config["seed"] + 1}
    return mean_cell(found)


def mean_cell(found: list[dict[str, Any]]) -> str:
    """Percent right and AUROC, mean over draws, as a table shows them."""
    if not found:
        return "–"
    right = 100.0 * np.mean([row["num_right"] / row["num_asked"] for row in found])
    area = np.mean([row["auroc"] for row in found])
    return f"{right:.1f} ({area:.3f})"


if __name__ == "__main__":
    main()
