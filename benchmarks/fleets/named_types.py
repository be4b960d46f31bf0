"""Types of machines on drawn fleets: how many are found, and which of several named ones a unit is.

    python benchmarks/fleets/named_types.py [--first 0] [--count 40] [--judged]
    python benchmarks/fleets/named_types.py --first 0 --count 40 --show

Each fleet of `draws.py` is embedded once and asked these questions, with other known units in each:

- found: three units of ours are known. How many types are there, and who belongs together?
- named-1, named-2: one or two units of every type are known by its name.
- unnamed: the same with two, but one type has no name (fleets of three types or more).
- twice: one unit of ours, and two units of another type, which get two names.
- as-ours: two units of ours, of which one gets a name of its own.

Fleets below 1,000 are for development; `--judged` takes those from there on.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from baseline import RESULTS, Recorded, describe
from draws import JUDGED_FROM, NUM_SEEDS, draw_fleet
from judged import calibration_error
from machines import dataset_of
from method import Method, chosen_method, embedded, method_options
from simulate import Fleet, Table, simulate

from puorl.pu.machines import fitting
from puorl.pu.machines.mixture import SEEN
from puorl.pu.machines.report import unit_rows
from puorl.pu.unit_table import is_doubtful
from puorl.pu.units import parse_unit

_SEED = 0


class Question(NamedTuple):
    """Which units are known, and by which names."""

    name: str
    kinds: tuple[int, ...]
    """Types of the known units of each class: ours, then the names."""
    known: int
    """Known units of each class."""


def main() -> None:
    """Measure what is missing, print the rates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first fleet, counted from 0 or 1,000")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--judged", action="store_true", help="fleets kept for the end")
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-types.jsonl")
    method_options(parser)
    args = parser.parse_args()
    first = args.first + JUDGED_FROM * args.judged
    last = first + args.count
    if last > (NUM_SEEDS if args.judged else JUDGED_FROM):
        parser.error(f"--first and --count: expected at most {JUDGED_FROM:,} fleets of either kind")
    if args.method != "dynamics":
        parser.error("--method: expected dynamics, which alone finds types")
    if args.judged and not args.show:
        print("WARNING: these fleets are for the final judgement; change no method after this.")
    recorded, method = Recorded(args.out), chosen_method(args)
    fleets = [draw_fleet(seed) for seed in range(first, last)]
    for fleet in () if args.show else fleets:
        measure(method, fleet, recorded)
    print(text(method, recorded, fleets))


def questions(fleet: Fleet) -> list[Question]:
    """What is asked of a fleet."""
    kinds = tuple(range(len(fleet.kinds)))
    rng = np.random.default_rng([fleet.seed, len(kinds)])
    left, other = (int(k) for k in rng.integers(1, len(kinds), 2))
    asked = [
        Question("found", (0,), 3),
        Question("named-1", kinds, 1),
        Question("named-2", kinds, 2),
    ]
    if len(kinds) > 2:
        asked.append(Question("unnamed", tuple(k for k in kinds if k != left), 2))
    return [*asked, Question("twice", (0, other, other), 1), Question("as-ours", (0, 0), 1)]


def config_of(method: Method, fleet: Fleet, question: Question) -> dict[str, Any]:
    """All that decides a row of the results."""
    asked = {"question": question.name, "kinds": question.kinds, "known": question.known}
    return method.config() | {"fleet": describe(fleet), "seed": _SEED} | asked


def measure(method: Method, fleet: Fleet, recorded: Recorded) -> None:
    """Add the questions that are missing."""
    missing = [
        (number, question)
        for number, question in enumerate(questions(fleet))
        if recorded.find(config_of(method, fleet, question)) is None
    ]
    if not missing:
        return
    table = simulate(fleet)
    units, truth = true_types(table, fleet)
    made, _ = embedded(dataset_of(table, fleet), method.filter_config, _SEED)
    if not np.array_equal(made.found.name, units):
        raise ValueError(f"{fleet.name}: expected its units in the order of their names")
    for number, question in missing:
        rng = np.random.default_rng([fleet.seed, number, question.known])
        label = draw_known(question, truth, rng)
        measured = ask(method, made, label, truth, question)
        recorded.add(config_of(method, fleet, question), measured)
        alike = ", ".join(" = ".join(names) for names, _ in measured["alike"])
        told = f"gain {measured['gain']:.1f}, {measured['seconds']} s {alike}"
        print(f"{fleet.name} {fleet.machine.name} {question.name}: {told}", flush=True)


def true_types(table: Table, fleet: Fleet) -> tuple[np.ndarray, np.ndarray]:
    """(units,) names in their order, and (units,) int: their types, 0 for ours."""
    units, first = np.unique(table["unit"], return_index=True)
    kinds = [kind.name for kind in fleet.kinds]
    return units, np.array([kinds.index(name) for name in table["type"][first]])


def draw_known(question: Question, truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(units,) int. Class of each known unit, -1 for others; a unit is known once."""
    label = np.full(len(truth), -1)
    for number, kind in enumerate(question.kinds):
        free = np.flatnonzero((truth == kind) & (label < 0))
        label[rng.choice(free, question.known, replace=False)] = number
    return label


def ask(
    method: Method,
    made: Any,
    label: np.ndarray,
    truth: np.ndarray,
    question: Question,
) -> dict[str, Any]:
    """What the filter says of all units, beside the truth, JSON-ready."""
    names = [f"name-{k}" for k in range(1, len(question.kinds))]
    unit, begin = parse_unit("column:unit"), time.perf_counter()
    found = fitting.find_types(
        made, label, "", method.filter_config, unit=unit, seed=_SEED, names=names
    ).model
    rows = {row.name: row for row in unit_rows(found.units, names)}
    ordered = [rows[name] for name in found.units.name.tolist()]
    return {
        "gain": found.finding.gain,
        "verdict": found.finding.verdict,
        "alike": found.finding.alike,
        "seconds": round(time.perf_counter() - begin, 2),
        "label": label.tolist(),
        "truth": truth.tolist(),
        "cluster": found.units.cluster.tolist(),
        "kept": found.units.keep.astype(int).tolist(),
        "in_doubt": [int(is_doubtful(row)) for row in ordered],
        "classes": [[float(f"{v:.6g}") for v in unit] for unit in found.units.classes.tolist()],
    }


def num_found(row: Mapping[str, Any]) -> int:
    """Types that are seen: one where the evidence for a second is too weak."""
    return len(set(row["cluster"]) - {-1}) if row["gain"] >= SEEN else 1


def grouped(row: Mapping[str, Any]) -> np.ndarray:
    """(units,) int. Types as found; all alike where no second one is seen."""
    cluster = np.array(row["cluster"])
    return cluster if row["gain"] >= SEEN else np.zeros_like(cluster)


def purity(found: np.ndarray, truth: np.ndarray) -> float:
    """Fraction of units of which the majority of their group is of their type."""
    count = table_of(found, truth)
    return float(count.max(axis=1).sum() / count.sum())


def rand_index(found: np.ndarray, truth: np.ndarray) -> float:
    """Adjusted Rand index (Hubert and Arabie 1985): 1 for the same groups, 0 for chance."""

    def pairs(n: np.ndarray) -> float:
        return float((n * (n - 1) / 2.0).sum())

    count = table_of(found, truth)
    one, two = pairs(count.sum(axis=1)), pairs(count.sum(axis=0))
    chance, most = one * two / pairs(count.sum()[None]), 0.5 * (one + two)
    return 1.0 if most == chance else (pairs(count) - chance) / (most - chance)


def table_of(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(groups, types) float64. Units of each."""
    rows, columns = (np.unique(each, return_inverse=True)[1] for each in (found, truth))
    count = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(count, (rows, columns), 1.0)
    return count


class Told(NamedTuple):
    """Classes of the units that were not known; the last is none of these."""

    told: np.ndarray
    right: np.ndarray
    """(units,) int. The true class."""
    chance: np.ndarray
    """(units,) float. Of the class that was told."""
    in_doubt: np.ndarray
    """(units,) bool."""


def told_of(row: Mapping[str, Any], kinds: Sequence[int]) -> Told:
    """What was told of the units that were asked about."""
    asked, last = np.array(row["label"]) < 0, len(kinds)
    cluster, truth = np.array(row["cluster"])[asked], np.array(row["truth"])[asked]
    told = np.where((cluster < 0) | (cluster >= last), last, cluster)
    right = np.array([kinds.index(k) if k in kinds else last for k in truth.tolist()])
    classes = np.array(row["classes"])[asked]
    doubt = np.array(row["in_doubt"], bool)[asked]
    return Told(told, right, classes[np.arange(len(told)), told], doubt)


def text(method: Method, recorded: Recorded, fleets: Sequence[Fleet]) -> str:
    """Rates over all fleets."""
    by_question: dict[str, list[tuple[Fleet, dict[str, Any], Question]]] = {}
    for fleet in fleets:
        for question in questions(fleet):
            row = recorded.find(config_of(method, fleet, question))
            if row is not None:
                by_question.setdefault(question.name, []).append((fleet, row["measured"], question))
    lines = []
    for name, found in by_question.items():
        lines += [
            f"{name}: {len(found)} fleets",
            *(f"- {line}" for line in _SUMMARIES[name](found)),
        ]
    return "\n".join(lines)


_Found = Sequence[tuple[Fleet, Mapping[str, Any], Question]]


def _summary_of_found(found: _Found) -> list[str]:
    """Number of types against the truth, and how well groups match."""
    lines = []
    for number in sorted({len(fleet.kinds) for fleet, *_ in found}):
        rows = [row for fleet, row, _ in found if len(fleet.kinds) == number]
        count = np.bincount([num_found(row) for row in rows])
        seen = ", ".join(
            f"{n} in {count[k]}" for k, n in enumerate(map(str, range(len(count)))) if count[k]
        )
        lines.append(f"{number} true types, {len(rows)} fleets: found {seen}; {_match(rows)}")
    right = sum(num_found(row) == len(fleet.kinds) for fleet, row, _ in found)
    rows = [row for _, row, _ in found]
    lines.append(f"number right in {right} of {len(found)}; {_match(rows)}")
    for family in dict.fromkeys(fleet.machine.name for fleet, *_ in found):
        own = [(fleet, row) for fleet, row, _ in found if fleet.machine.name == family]
        right = sum(num_found(row) == len(fleet.kinds) for fleet, row in own)
        match = _match([row for _, row in own])
        lines.append(f"{family}: number right in {right} of {len(own)}; {match}")
    return lines


def _match(rows: Sequence[Mapping[str, Any]]) -> str:
    pairs = [(grouped(row), np.array(row["truth"])) for row in rows]
    pure = np.mean([purity(*pair) for pair in pairs])
    return f"purity {pure:.3f}, adjusted Rand index {np.mean([rand_index(*p) for p in pairs]):.3f}"


def _summary_of_names(found: _Found) -> list[str]:
    """Class accuracy, calibration, none of these, and names that were said to be alike."""
    told = [told_of(row, question.kinds) for _, row, question in found]
    every = Told(*(np.concatenate(part) for part in zip(*told, strict=True)))
    ok = every.told == every.right
    error = calibration_error(every.chance, ok)
    sure = ~every.in_doubt
    lines = [
        f"class right {100.0 * ok.mean():.1f} % of {len(ok)} units; calibration error {error:.3f}",
        f"not in doubt {100.0 * sure.mean():.1f} %, of these right {100.0 * ok[sure].mean():.1f} %",
    ]
    none = [each.told == len(q.kinds) for each, (*_, q) in zip(told, found, strict=True)]
    truly = [each.right == len(q.kinds) for each, (*_, q) in zip(told, found, strict=True)]
    said, is_none = np.concatenate(none), np.concatenate(truly)
    if is_none.any():
        lines.append(
            f"none of these: said of {100.0 * said[is_none].mean():.1f} % of {is_none.sum()} units "
            f"without a name, wrongly of {100.0 * said[~is_none].mean():.1f} % of the others"
        )
    elif said.any():
        lines.append(f"none of these: said wrongly of {100.0 * said.mean():.1f} % of the units")
    num_alike = sum(bool(row["alike"]) for _, row, _ in found)
    unclear = sum(row["gain"] < SEEN for _, row, _ in found)
    lines.append(
        f"some names not told apart in {num_alike} fleets; no second type seen in {unclear}"
    )
    return lines


def _summary_of_alike(found: _Found) -> list[str]:
    """How often two names on one type are said to be alike, and what is sure all the same."""
    said, sure, wrong = 0, 0, 0
    for _, row, question in found:
        two = {len(question.kinds) - 2, len(question.kinds) - 1}  # the last two are one type
        names = {"ours" if k == 0 else f"name-{k}" for k in two}
        is_said = any(names <= set(alike) for alike, _ in row["alike"])
        told = told_of(row, question.kinds)
        both = (told.right == min(two)) & np.isin(told.told, list(two))
        said += is_said
        sure += int((both & ~told.in_doubt).sum())
        wrong += int(both.sum())
    return [
        f"said in {said} of {len(found)}",
        f"of {wrong} units of that type with either name, {sure} are not in doubt",
    ]


_SUMMARIES: dict[str, Callable[[_Found], list[str]]] = {
    "found": _summary_of_found,
    "named-1": _summary_of_names,
    "named-2": _summary_of_names,
    "unnamed": _summary_of_names,
    "twice": _summary_of_alike,
    "as-ours": _summary_of_alike,
}


if __name__ == "__main__":
    main()
