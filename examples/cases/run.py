"""Run a case from the simulator's log to policies that act in the simulator.

    python examples/cases/run.py actuator --size small --out scratch/cases

All work is done by commands of `puorl`, which are printed before they run; what this program adds
is the truth beside their results. `make case CASE=actuator` sets up the case's environment first.
Result rows go to `--rows`, one for each run.
"""

import argparse
import csv
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from decidable import read_out
from tables import METHODS, summary

import puorl
from puorl.cli.main import main as run_puorl
from puorl.core.files import read_json
from puorl.rl import trainer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LOG, TRUTH, EPISODES = "log.csv.gz", "truth.csv", "episodes.csv"
STAGES = ("log", "filter", "episodes", "compare", "judge")
"""Those between need no simulator, and not each other: they can run side by side."""


@dataclass(frozen=True)
class Size:
    """How much is trained; how much is logged is a matter of the simulator."""

    steps: int
    seeds: int = 5
    hidden: str = "64,64"
    batch_size: int = 64
    judge_updates: int = 3_000
    model_updates: int = 20_000
    """Of the model of the dynamics by which policies are judged from the log, too."""
    episodes: int = 10
    """Of each policy in the simulator."""


@dataclass(frozen=True)
class Case:
    """One case: how its log is read, and what is true of it."""

    name: str
    unit: str
    """Column of the units that are decided about."""
    num_known: int
    """Units of ours that somebody looked at."""
    fields: tuple[str, ...]
    """Options that say where the fields are."""
    verdicts: tuple[str, ...]
    """Verdicts of the filter that are right."""
    learner: str = "td3_bc"
    gamma: float = 0.99
    window: str = ""
    """Length of a window, where units are watched afterwards."""
    episodes_known: float = 0.0
    """Fraction of our episodes that are known, where single ones are decided about too, by rows."""


_SIZES = {
    "small": Size(3_000, judge_updates=1_500),
    "full": Size(20_000, batch_size=128, judge_updates=5_000),
}
CASES = {
    case.name: case
    for case in (
        Case(
            name="diabetes",
            unit="patient",
            num_known=3,
            fields=("--episode", "run", "--time", "time", "--action", "insulin",
                    "--terminal", "ended"),
            verdicts=("both",),
        ),
        Case(
            name="sepsis",
            unit="ward",
            num_known=2,
            fields=("--episode", "run", "--time", "time", "--action", "dose",
                    "--reward", "survived", "--terminal", "over"),
            verdicts=("both",),
            learner="bcq",
            episodes_known=0.1,
        ),
        Case(
            name="wear",
            unit="pump",
            num_known=2,
            fields=("--episode", "run", "--time", "time",
                    "--obs", "pressure_bar,flow_m3h,bearing_temp_c,motor_current_a,speed_rpm,"
                    "ambient_temp_c", "--action", "cmd_valve_pct,cmd_speed_pct",
                    "--reward", "-abs(pressure_bar - 3) - 0.02 * motor_current_a"),
            verdicts=("dynamics",),
            window="100rows",
        ),
        Case(
            name="actuator",
            unit="robot",
            num_known=2,
            fields=("--episode", "run", "--time", "time", "--terminal", "fell"),
            verdicts=("dynamics",),
        ),
        Case(
            name="road",
            unit="car",
            num_known=2,
            fields=("--episode", "run", "--time", "time", "--action", "steering",
                    "--terminal", "left"),
            verdicts=("dynamics",),
        ),
    )
}  # fmt: skip


class Commands:
    """The commands of a run, each printed before it works."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seconds: dict[str, float] = {}
        self.processor_seconds: dict[str, float] = {}
        """Of all threads: other work on the machine does not change them much."""

    def puorl(self, *words: str) -> None:
        """Run a command of puorl."""
        with self._timed(words[0], "puorl", *words):
            if code := run_puorl(list(words)):
                raise SystemExit(f"puorl {words[0]} ended with code {code}")

    def simulator(self, case: Case, *words: str) -> None:
        """Run the simulator in its own environment."""
        python = ROOT / ".venv-cases" / case.name / "bin" / "python"
        if not python.exists():
            raise SystemExit(f"{python} is missing; run: make case CASE={case.name}")
        script = HERE / f"{case.name}.py"
        with self._timed(f"simulator {words[0]}", "python", str(script.relative_to(ROOT)), *words):
            subprocess.run([python, "-W", "ignore", script, *words], check=True)

    def forget(self, folder: Path) -> None:
        """Take a folder out of what is kept of the commands: where it was matters to nobody."""
        self.lines = [line.replace(f"{folder}/", "") for line in self.lines]

    @contextmanager
    def _timed(self, name: str, *words: str) -> Iterator[None]:
        self.lines.append(shlex.join(words))
        print(f"\n$ {self.lines[-1]}", flush=True)
        began, worked = time.perf_counter(), sum(os.times()[:4])
        yield
        spent = time.perf_counter() - began, sum(os.times()[:4]) - worked
        for table, more in zip((self.seconds, self.processor_seconds), spent, strict=True):
            table[name] = round(table.get(name, 0.0) + more, 1)


def find(case: Case, log: Path, truth: Path, out: Path, do: Commands) -> None:
    """Inspect the log, and find what is ours; where units are watched afterwards, watch them."""
    known = known_units(case, truth)
    data = [str(log), *case.fields, "--labelled", _among(case.unit, known)]
    do.puorl("inspect", *data)
    do.puorl("filter", *data, "--unit", f"column:{case.unit}", "--out", str(out / "ours"))
    if case.window:
        do.puorl("score", str(out / "ours"), str(log.parent / "later" / LOG), "--by-time",
                 case.window, "--out", str(out / "drift.csv"), "--page",
                 str(out / "drift.html"))  # fmt: skip


def find_episodes(case: Case, log: Path, out: Path, do: Commands) -> None:
    """Find which single episodes are ours, in a case that asks for it."""
    if case.episodes_known:
        chosen = out / "known-episodes.csv"
        drawn = known_episodes(case, log.parent)
        chosen.write_text("\n".join(["run", *drawn]) + "\n", encoding="utf-8")
        do.puorl("filter", str(log), *case.fields, "--labelled", str(chosen), "--unit", "episode",
                 "--evidence", "rows", "--out", str(out / "episodes"))  # fmt: skip


def compare(case: Case, size: Size, log: Path, truth: Path, out: Path, do: Commands) -> None:
    """Train all methods, let the log judge them, and export the policies."""
    ours = [row[case.unit] for row in read_table(truth) if row["ours"] == "1"]
    known = known_units(case, truth)
    do.puorl(
        "compare", str(log), *case.fields, "--labelled", _among(case.unit, known),
        "--unit", f"column:{case.unit}", "--methods", ",".join(METHODS),
        "--truth", _among(case.unit, ours), "--learner", case.learner, "--gamma", f"{case.gamma:g}",
        "--seeds", str(size.seeds), "--steps", str(size.steps),
        "--set", f"hidden={size.hidden}", f"batch_size={size.batch_size}",
        "--judge", f"updates={size.judge_updates}", f"model_updates={size.model_updates}",
        f"hidden={size.hidden}",
        "--out", str(out / "compared"),
    )  # fmt: skip
    do.puorl("export", str(out / "compared" / "run"), "--to", "onnx", "--out",
             str(out / "policies"))  # fmt: skip


def run(case: Case, size_name: str, seed: int, out: Path, stages: Sequence[str]) -> dict[str, Any]:
    """Run the stages of a case in a folder; return its row of results after the last one."""
    size, log, truth = _SIZES[size_name], out / "log" / LOG, out / "log" / TRUTH
    actions: dict[str, Callable[[Commands], None]] = {
        "log": lambda do: do.simulator(case, "log", size_name, str(seed), str(out / "log")),
        "filter": lambda do: find(case, log, truth, out, do),
        "episodes": lambda do: find_episodes(case, log, out, do),
        "compare": lambda do: compare(case, size, log, truth, out, do),
        "judge": lambda do: do.simulator(
            case, "judge", str(out / "policies"), str(out / "returns.csv"), "--episodes",
            str(size.episodes)
        ),
    }  # fmt: skip
    for stage in (each for each in STAGES if each in stages):
        do = Commands()
        actions[stage](do)
        do.forget(out)
        (out / f"{stage}.json").write_text(json.dumps(
            {"commands": do.lines, "seconds": do.seconds,
             "processor_seconds": do.processor_seconds, "versions": trainer.versions()}
        ))  # fmt: skip
    if "judge" not in stages:
        return {}
    files = (out / f"{stage}.json" for stage in STAGES)
    notes = [read_json(file) for file in files if file.exists()]
    told = told_the_truth(case, log, truth)
    return {
        "case": case.name,
        "size": size_name,
        "seed": seed,
        "settings": {**asdict(size), "learner": case.learner, "gamma": case.gamma},
        "known": known_units(case, truth),
        "told": told,
        "filter": beside_truth(case, out / "ours", truth),
        "episodes": _episodes(case, out, log.parent),
        "log_judges": _judged_from_log(read_json(out / "compared" / "compare.json")),
        "simulator_judges": _judged_in_simulator(read_table(out / "returns.csv")),
        "drift": _drift(case, out, log.parent / "later" / TRUTH) if case.window else None,
        "commands": [line for note in notes for line in note["commands"]],
        **{
            kind: _sums([note[kind] for note in notes]) for kind in ("seconds", "processor_seconds")
        },
        "versions": read_json(out / "compare.json")["versions"],
    }


def told_the_truth(case: Case, log: Path, truth: Path) -> dict[str, Any]:
    """Say how well one simple classifier tells units apart that is told the truth."""
    names = (word.removeprefix("--") for word in case.fields[::2])
    options: dict[str, Any] = dict(zip(names, case.fields[1::2], strict=True))
    return read_out(puorl.load(log, **options), case.unit, read_table(truth))


def beside_truth(case: Case, folder: Path, truth: Path) -> dict[str, Any]:
    """Compare a filter's decisions and its report with the truth, unlabelled units alone."""
    report, kinds = read_json(folder / "report.json"), {}
    for row in read_table(truth):
        kinds[row[case.unit]] = (row["ours"] == "1", row["kind"])
    units = [
        {"unit": each["name"], "kind": kinds[each["name"]][1], "ours": kinds[each["name"]][0],
         "rows": each["num_rows"],
         **{name: each[name] for name in ("labelled", "keep", "probability", "x", "y", "spread")}}
        for each in report["units"]
    ]  # fmt: skip
    asked = [each for each in units if not each["labelled"]]
    ours, kept = ([each[name] for each in asked] for name in ("ours", "keep"))
    rows = np.array([each["rows"] for each in asked])
    ours, kept = np.array(ours), np.array(kept)
    true = {
        "alpha": float(rows[ours].sum() / rows.sum()),
        "recall": float(rows[ours & kept].sum() / max(1, rows[ours].sum())),
        "precision": float(rows[ours & kept].sum() / max(1, rows[kept].sum())),
    }
    return {
        "verdict": report["verdict"],
        "verdict_is_right": report["verdict"] in case.verdicts,
        "num_rows": int(sum(each["rows"] for each in units)),
        "num_asked": len(asked),
        "num_right": int((ours == kept).sum()),
        "rows_right": float(rows[ours == kept].sum() / rows.sum()),
        "estimated": {name: report[name] for name in true},
        "true": true,
        "units": units,
    }


def _sums(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: round(sum(table.get(name, 0.0) for table in tables), 1) for name in names}


def known_units(case: Case, truth: Path) -> list[str]:
    """Return the known ones of our units: the first by their place in the log."""
    ours = [row[case.unit] for row in read_table(truth) if row["ours"] == "1"]
    return ours[: case.num_known]


def known_episodes(case: Case, folder: Path) -> list[str]:
    """Draw the known ones of our episodes."""
    ours = [row["run"] for row in read_table(folder / EPISODES) if row["ours"] == "1"]
    drawn = np.random.default_rng(0).choice(
        ours, round(case.episodes_known * len(ours)), replace=False
    )
    return sorted(map(str, drawn))


def _episodes(case: Case, out: Path, folder: Path) -> dict[str, Any] | None:
    """Compare the choice of single episodes with the truth, and with who knows the simulator."""
    if not case.episodes_known:
        return None
    report, known = read_json(out / "episodes" / "report.json"), set(known_episodes(case, folder))
    kept = {row["run"] for row in read_table(out / "episodes" / "keep.csv")}
    asked = [row for row in read_table(folder / EPISODES) if row["run"] not in known]
    ours = np.array([row["ours"] == "1" for row in asked])
    return {
        "verdict": report["verdict"],
        "alpha": report["alpha"],
        "num_known": len(known),
        "num_asked": len(asked),
        "num_ours": int(ours.sum()),
        "num_right": int(sum((row["run"] in kept) == (row["ours"] == "1") for row in asked)),
        "num_right_by_truth": int((ours == [float(row["log_ratio"]) > 0 for row in asked]).sum()),
    }


def _judged_from_log(compared: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("method", "num_rows", "scores", "estimate", "num_doubtful", "outside", "num_stopped")
    return {
        "verdict": compared["verdict"],
        "behaviour": compared["behaviour"],
        "methods": [{name: each[name] for name in kept} for each in compared["outcomes"]],
    }


def _drift(case: Case, out: Path, truth: Path) -> list[dict[str, Any]]:
    """Return for each watched unit the windows in which it changed and in which the alarm came."""
    windows: dict[str, list[dict[str, str]]] = {}
    for row in read_table(out / "drift.csv"):
        windows.setdefault(row["unit"], []).append(row)
    made = []
    for row in read_table(truth):
        own = windows[row[case.unit]]
        since = float(row["worn_since"]) if row["worn_since"] else None
        begun = None if since is None else sum(float(each["time"]) <= since for each in own) - 1
        alarms = [k for k, each in enumerate(own) if each["alarm"] == "1"]
        made.append({"unit": row[case.unit], "kind": row["kind"], "num_windows": len(own),
                     "changed": begun, "alarm": alarms[0] if alarms else None,
                     "distance": [float(each["distance"]) if each["distance"] else None
                                  for each in own],
                     "band": float(own[0]["band"])})  # fmt: skip
    return made


def _judged_in_simulator(rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        own = found.setdefault(row["policy"], {})
        for name, value in row.items():
            if name not in ("policy", "episode"):
                own.setdefault(name, []).append(float(value))
    return found


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _among(column: str, names: Sequence[str]) -> str:
    return f"{column} in [{', '.join(repr(name) for name in names)}]"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="by default all")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "scratch" / "cases")
    parser.add_argument("--rows", type=Path, help="folder for the rows of results")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    given = parser.parse_args()
    for name in given.cases or CASES:
        out = given.out / f"{name}-{given.size}-{given.seed}"
        row = run(CASES[name], given.size, given.seed, out, given.stages)
        if not row:
            continue
        print(summary(row))
        folder = given.rows or out
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
