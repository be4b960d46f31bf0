"""Robots of MuJoCo by episode: one policy in both domains, and two drivers with labels from one.

    python benchmarks/fleets/robots.py --list
    python benchmarks/fleets/robots.py --cells drivers/hopper/mass:torso=0.5 [--draws 5]
    python benchmarks/fleets/robots.py [--held-out] [--show]

An episode is a unit; ours are nominal. Cells are named QUESTION/BODY/SHIFT, with the behaviour at
the end where there is one policy:

- `policy`: the same policy in both domains, 30 % of the rows ours, episodes with 1 % of the rows
  known;
- `drivers`: A (the nominal medium policy) and B (the medium policy of another training, with about
  the same return) act in both domains, as many rows each; six episodes of ours/A are known.

Data is made once and kept below `--cache`. Episodes that were cut to make numbers of rows exact are
left out, and the others shuffled: neither a name nor a place says where an episode is from. Cells
of `--held-out` are for the final judgement. `--read-out` adds what a classifier over episodes can
tell that knows the truth. The filter has the preset ``robots``. Files of several runs may be joined
with `cat` and shown with `--show`.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from baseline import RESULTS, Recorded
from judged import calibration_error, judge
from machines import decided
from method import Method, Task, chosen_method, method_options
from readout import auroc, held_out_logits, one_step_coefficients

import puorl

BODIES = ("halfcheetah", "hopper", "walker2d")
TARGET_FRACTION, LABELLED_FRACTION = 0.3, 0.01
NUM_KNOWN = 6
"""Known episodes where there are two drivers."""
DRIVERS = {"A": "nominal", "B": "joint_noise"}
"""Where the medium policy of each driver was trained."""
MOST_LISTED = 1_000
"""Units up to which a row of the results lists them all."""
_LIMIT = 1_000
"""Steps of an episode that does not end by itself."""
_MOST_READ = 300
"""Episodes of a read-out."""

SHIFTS = {
    "policy": ("body_mass", "joint_noise", "gravity=0.8", "friction=0.5", "mass:torso=1.5"),
    "drivers": (
        "body_mass",
        "mass:torso=1.5",
        "mass:torso=0.5",
        "gravity=0.8",
        "friction=0.5",
        "joint_noise:all=0.05",
    ),
}
DEVELOPED_SHIFTS = ("body_mass", "joint_noise", "gravity=0.8")
"""With one policy; the others are held out."""
DEVELOPED_PAIRS = (
    ("hopper", "body_mass"),
    ("walker2d", "body_mass"),
    ("walker2d", "mass:torso=1.5"),
    ("halfcheetah", "gravity=0.8"),
    ("hopper", "mass:torso=0.5"),
    ("hopper", "friction=0.5"),
    ("halfcheetah", "joint_noise:all=0.05"),
    ("walker2d", "joint_noise:all=0.05"),
)
"""With two drivers; the other ten are held out."""


@dataclass(frozen=True)
class Cell:
    """A question about one body and one shift."""

    question: str
    body: str
    shift: str
    quality: str = "medium"

    @property
    def name(self) -> str:
        """As it is written on the command line."""
        parts = [self.question, self.body, self.shift]
        return "/".join([*parts, self.quality] if self.question == "policy" else parts)

    @property
    def held_out(self) -> bool:
        """Whether methods must not be developed on it."""
        if self.question == "policy":
            return self.shift not in DEVELOPED_SHIFTS
        return (self.body, self.shift) not in DEVELOPED_PAIRS


@dataclass(frozen=True, eq=False)
class Episodes:
    """Rows of all parts of a cell, with the truth about their episodes."""

    data: puorl.Dataset
    units: np.ndarray
    """(units,) str. Names in their order."""
    part: np.ndarray
    """(units,) str. ``ours/A`` and so on."""

    @property
    def ours(self) -> np.ndarray:
        """(units,) bool."""
        return np.char.startswith(self.part, "ours")


def all_cells() -> dict[str, Cell]:
    """Every cell by its name."""
    one = [
        Cell("policy", body, shift, quality)
        for body in BODIES
        for shift in SHIFTS["policy"]
        for quality in ("medium", "random")
    ]
    two = [Cell("drivers", body, shift) for body in BODIES for shift in SHIFTS["drivers"]]
    return {cell.name: cell for cell in (*one, *two)}


def rows_of(cell: Cell, args: argparse.Namespace) -> int:
    """Rows of the whole cell, or of each of its four parts."""
    return args.policy_rows if cell.question == "policy" else args.driver_rows


def collect(cell: Cell, rows: int, cache: Path) -> Episodes:
    """Make the episodes of a cell, or read those that were made before.

    Args:
        cell: What to make.
        rows: Of all parts together for one policy, of each part for two drivers.
        cache: Folder.
    """
    made = {}
    for domain, shift in (("ours", "nominal"), ("other", cell.shift)):
        if cell.question == "drivers":
            for driver, home in DRIVERS.items():
                made[f"{domain}/{driver}"] = _play(cell, shift, home, rows, cache)
        else:
            fraction = TARGET_FRACTION if domain == "ours" else 1.0 - TARGET_FRACTION
            home = None if cell.quality == "random" else "nominal"
            made[f"{domain}/A"] = _play(cell, shift, home, round(fraction * rows), cache)
    return joined(made)


def _play(cell: Cell, shift: str, home: str | None, rows: int, cache: Path) -> puorl.Dataset:
    return puorl.collect(
        cell.body, shift, quality=cell.quality, rows=rows, seed=0, policy_domain=home, cache=cache
    )


def joined(parts: dict[str, puorl.Dataset], *, seed: int = 0) -> Episodes:
    """Whole episodes of all parts in a random order, under names that say nothing."""
    names = ("obs", "action", "next_obs", "terminal", "timeout")
    fields: dict[str, list[np.ndarray]] = {name: [] for name in names}
    episode, part = [], []
    for name, data in parts.items():
        assert data.episode is not None
        kept = _is_whole(data)
        for field, values in fields.items():
            values.append(getattr(data, field)[kept])
        number = np.unique(data.episode[kept], return_inverse=True)[1]
        episode.append(number + len(part))
        part += [name] * (int(number.max()) + 1)
    old = np.concatenate(episode)
    order = np.random.default_rng(seed).permutation(len(part))
    # Episode order[k] becomes number k.
    new = np.argsort(order)[old]
    rows = np.argsort(new, kind="stable")
    units = np.array([f"E{k:06d}" for k in range(len(part))])
    arrays: dict[str, Any] = {name: np.concatenate(fields[name])[rows] for name in fields}
    data = puorl.Dataset.from_arrays(
        **arrays, episode=new[rows], columns={"unit": units[new[rows]]}
    )
    return Episodes(data, units, np.array(part)[order])


def _is_whole(data: puorl.Dataset) -> np.ndarray:
    """(n,) bool. Rows of episodes that ended by themselves or at the task's limit."""
    assert data.episode is not None
    last = np.flatnonzero(np.diff(data.episode, append=-1))
    length = np.diff(last, prepend=-1)
    whole = data.terminal[last] | (length == _LIMIT)
    return np.repeat(whole, length)


def draw_task(cell: Cell, found: Episodes, seed: int) -> Task:
    """Known episodes of one draw: six of ours/A, or as many as hold 1 % of all rows."""
    rng = np.random.default_rng([20_263, seed])
    mixed = rng.permutation(np.flatnonzero(found.part == "ours/A"))
    count = NUM_KNOWN
    if cell.question == "policy":
        size = np.unique(found.data.columns["unit"], return_counts=True)[1]
        enough = np.cumsum(size[mixed]) >= LABELLED_FRACTION * size.sum()
        count = int(np.argmax(enough)) + 1
    return Task(found.units[mixed[:count]], seed)


def cell_config(method: Method, cell: Cell, rows: int, seed: int) -> dict[str, Any]:
    """All that decides a row of the results."""
    named = {"cell": cell.name, "rows": rows, "drivers": DRIVERS, "seed": seed}
    return method.config() | named


def measure(
    method: Method, cell: Cell, found: Episodes, rows: int, draws: range, recorded: Recorded
) -> None:
    """Add the draws that are missing."""
    missing = [s for s in draws if not recorded.find(cell_config(method, cell, rows, s))]
    tasks = [draw_task(cell, found, seed) for seed in missing]
    for task, decision in zip(tasks, decided(method, found.data, tasks, cell.name), strict=False):
        asked = ~np.isin(found.units, task.known)
        measured = judge(decision, found.data, found.ours, task.known)
        units = measured["units"]
        if units["probability"] is not None:
            measured["calibration_error"] = calibration_error(
                np.array(units["probability"]), np.array(units["ours"])
            )
        if len(found.units) > MOST_LISTED:
            del measured["units"]
        measured["kept"] = {
            name: float(decision.kept[asked & (found.part == name)].mean())
            for name in np.unique(found.part[asked]).tolist()
        }
        measured["auroc_between"] = areas(decision.evidence, found.part, asked)
        measured["num_episodes"] = {n: int((found.part == n).sum()) for n in np.unique(found.part)}
        measured["num_rows"] = len(found.data)
        measured["data"] = found.data.fingerprint
        recorded.add(cell_config(method, cell, rows, task.seed), measured)
        kept = ", ".join(f"{name} {100.0 * k:.1f} %" for name, k in measured["kept"].items())
        right = f"{100.0 * measured['num_right'] / measured['num_asked']:.2f} % right"
        told = f"{right}, AUROC {measured['auroc']:.4f}, kept {kept}, {measured['seconds']} s"
        print(f"{cell.name} draw {task.seed}: {told}", flush=True)


def areas(score: np.ndarray, part: np.ndarray, asked: np.ndarray) -> dict[str, float]:
    """AUROC of each part of ours against each of the others."""
    names = np.unique(part[asked]).tolist()
    return {
        f"{one}, {other}": auroc(score[pair], (part == one)[pair])
        for one in names
        for other in names
        if one.startswith("ours") and other.startswith("other")
        for pair in [asked & ((part == one) | (part == other))]
    }


def measure_read_out(
    method: Method, cell: Cell, found: Episodes, rows: int, recorded: Recorded
) -> None:
    """Add what can be told with the truth of other episodes, unless it is there.

    Seen are linear one-step models of each episode, how far they miss, and what the method knows of
    each episode when it tells; a few hundred episodes take part.
    """
    config = cell_config(method, cell, rows, 0) | {"question": "read-out", "most": _MOST_READ}
    if recorded.find(config) is not None:
        return
    rng = np.random.default_rng([20_264, 0])
    chosen = np.sort(rng.permutation(len(found.units))[:_MOST_READ])
    task = draw_task(cell, found, 0)
    decisions = decided(method, found.data, [task], cell.name)
    unit = np.asarray(found.data.columns["unit"])
    used = np.isin(unit, found.units[chosen])
    x = np.hstack([found.data.obs, found.data.action])[used].astype(np.float64)
    change = (found.data.next_obs.astype(np.float64) - found.data.obs)[used]
    own, spread = one_step_coefficients(x, change, unit[used], 1)
    miss = np.log(spread)
    inputs = [own, (miss - miss.mean(axis=0)) / miss.std(axis=0)]
    latent = decisions[0].latent if decisions else None
    if latent is not None:
        inputs.append(latent[chosen])
    ours = found.ours[chosen]
    logit = held_out_logits(inputs, (~ours).astype(int), num_draws=1)
    measured = {
        "accuracy": float(np.mean((logit > 0) == ours)),
        "auroc": auroc(logit, ours),
        "num_episodes": len(chosen),
        "with_latent": latent is not None,
    }
    recorded.add(config, measured)
    told = f"{100.0 * measured['accuracy']:.1f} %, AUROC {measured['auroc']:.4f}"
    print(f"{cell.name} read-out: {told}", flush=True)


def text_table(method: Method, recorded: Recorded, cells: list[Cell], args: Any) -> str:
    """Each draw and means over draws, as Markdown, one table for each question."""
    lines = []
    for question in ("policy", "drivers"):
        asked = [cell for cell in cells if cell.question == question]
        if not asked:
            continue
        parts = ["ours/A", "other/A"]
        parts = ["ours/A", "ours/B", "other/A", "other/B"] if question == "drivers" else parts
        heads = ["draws", "right in each, %", "AUROC", *(f"{p} kept, %" for p in parts)]
        heads += ["alpha held", "verdicts", "read-out AUROC"]
        lines += ["", f"| {question} | " + " | ".join(heads) + " |"]
        lines.append("|---" + "|--:" * len(heads) + "|")
        for cell in asked:
            rows = rows_of(cell, args)
            rows_found = [
                recorded.find(cell_config(method, cell, rows, s)) for s in range(args.draws)
            ]
            found = [row["measured"] for row in rows_found if row is not None]
            read = recorded.find(
                cell_config(method, cell, rows, 0) | {"question": "read-out", "most": _MOST_READ}
            )
            told = "–" if read is None else f"{read['measured']['auroc']:.3f}"
            cells_of = _means(found, parts) if found else ["–"] * (len(heads) - 1)
            mark = " *" if cell.held_out else ""
            lines.append(f"| {cell.name}{mark} | " + " | ".join([*cells_of, told]) + " |")
    return "\n".join([*lines, "", "* held out"])


def _means(found: list[dict[str, Any]], parts: list[str]) -> list[str]:
    right = [f"{100.0 * m['num_right'] / m['num_asked']:.4g}" for m in found]
    area = np.mean([m["auroc"] for m in found])
    kept = [100.0 * np.mean([m["kept"].get(part, np.nan) for m in found]) for part in parts]
    verdicts = ", ".join(sorted({str(m["verdict"]) for m in found}))
    return [
        str(len(found)),
        ", ".join(right),
        f"{area:.4f}",
        *(f"{k:.1f}" for k in kept),
        f"{sum(m['alpha_held'] for m in found)} of {len(found)}",
        verdicts,
    ]


def main() -> None:
    """Make data, measure what is missing, print the tables."""
    cells = all_cells()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", nargs="+", choices=list(cells), metavar="CELL")
    parser.add_argument("--questions", nargs="+", choices=list(SHIFTS), default=list(SHIFTS))
    parser.add_argument("--held-out", action="store_true", help="the cells kept for the end")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--first-draw", type=int, default=0, help="leave out those before it")
    parser.add_argument("--policy-rows", type=int, default=200_000, help="of a cell")
    parser.add_argument("--driver-rows", type=int, default=10_000, help="of each of four parts")
    parser.add_argument("--read-out", action="store_true", help="with the truth told, as well")
    parser.add_argument("--cache", type=Path, default=Path("scratch/robots"))
    parser.add_argument("--out", type=Path, default=RESULTS / "fleets-robots.jsonl")
    parser.add_argument("--list", action="store_true", help="print the cells")
    parser.add_argument("--collect", action="store_true", help="make the data alone")
    method_options(parser)
    parser.set_defaults(preset="robots")
    args = parser.parse_args()
    chosen = [
        cell
        for name, cell in cells.items()
        if cell.question in args.questions
        and (args.list or cell.held_out == args.held_out)
        and (args.cells is None or name in args.cells)
    ]
    if args.list:
        print("\n".join(f"{cell.name}{' *' if cell.held_out else ''}" for cell in chosen))
        return
    if args.cells and len(chosen) != len(set(args.cells)):
        parser.error("--cells: expected cells that are not held out, or all held out (--held-out)")
    if args.held_out:
        print("WARNING: held-out cells are for the final judgement; change no method after this.")
    recorded, method = Recorded(args.out), chosen_method(args)
    for cell in [] if args.show else chosen:
        rows = rows_of(cell, args)
        found = collect(cell, rows, args.cache)
        if args.collect:
            print(
                f"{cell.name}: {len(found.data):,} rows, {len(found.units):,} episodes", flush=True
            )
            continue
        measure(method, cell, found, rows, range(args.first_draw, args.draws), recorded)
        if args.read_out:
            measure_read_out(method, cell, found, rows, recorded)
    if not args.collect:
        print(text_table(method, recorded, chosen, args))


if __name__ == "__main__":
    main()
