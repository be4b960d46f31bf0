"""Load 200 messy CSV logs as a user would: read the message, give the option that it names, go on.

Each log is a small fleet (pump, run, time, two states, an action, text) that is written with a
random mixture of what logs suffer from: missing cells, cells that are no numbers, gaps in time,
time zones and stamps of other formats, separators, quotes, decimal commas, encodings, unnamed
columns, lines before the header, interleaved runs, other line ends and compression. The trial gives
no option beforehand but the names of the columns. An option is given only if the last message, or a
note of what was loaded, names it; the answer (which zone, which format) is what a user knows about
the log.

The oracle does not use puorl: it walks over the rows as they were before they were written, drops
those with a bad cell or holds their values, and joins each row with the next of its run unless time
jumped. Outcomes:

- ``right``: the log loads and has exactly the transitions of the oracle, their values, their time
  and their text;
- ``wrong``: it loads with others; ``stuck``: a message names no option that helps;
- ``traceback``: any other exception.

    python benchmarks/reliability/messy.py --logs 200 --seed 0 --save
"""

import argparse
import csv
import datetime
import gzip
import io
import json
import os
import platform
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

import puorl
from puorl.core.errors import PuorlError

RESULTS = Path(__file__).parents[1] / "results" / "reliability-messy.jsonl"
NAMES = {"obs": ["flow", "pressure"], "action": "speed", "episode": "run", "time": "when"}
NOTES = ("ok", "Motor läuft", 'a "b"', "x;y,z", "two\nlines")
NO_NUMBERS = ("", "n/a", "NA", "null", "-", "#N/A", "err", "12 bar", "ON", "nan")
FORMAT, ZONE = "%d.%m.%Y %H:%M:%S.%f", "Europe/Berlin"
MOST_ROUNDS = 8
OPTION = re.compile(r"--(missing|time-zone|time-format|decimal|encoding)\b")


@dataclass
class Log:
    """A log before it is written, and what its user knows about it."""

    rows: list[dict[str, Any]]
    """In the order of the file; numbers as numbers, None where a cell will be bad."""
    answers: dict[str, Any] = field(default_factory=dict)
    """What the user answers to an option that a message names."""
    mess: list[str] = field(default_factory=list)
    content: bytes = b""
    suffix: str = ".csv"


def make_log(rng: np.random.Generator) -> Log:
    """Draw a log and write it in a messy way."""

    def chance(name: str, probability: float) -> bool:
        found = bool(rng.random() < probability)
        log.mess += [name] if found else []
        return found

    log = Log([])
    start = datetime.datetime(2026, 3, 28, 23, 30, tzinfo=datetime.UTC)  # a clock change follows
    num_pumps, num_runs = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    gaps = chance("gaps", 0.4)
    for pump in range(num_pumps):
        for run in range(num_runs):
            seconds = 0.0
            for _ in range(int(rng.integers(4, 20))):
                numbers = {k: round(float(rng.normal()) * 100, 3) for k in ("flow", "pressure")}
                log.rows.append(
                    {
                        "pump": f"P-{pump:02d}",
                        "run": f"{pump}/{run}",
                        "when": seconds,
                        **numbers,
                        "speed": round(float(rng.uniform(-1, 1)), 2),
                        "power": int(rng.integers(0, 1000)),
                        "note": str(
                            rng.choice(["ok", "Motor läuft", 'a "b"', "x;y,z", "two\nlines"])
                        ),
                    }
                )
                seconds += 1.0 if not gaps or rng.random() < 0.85 else float(rng.integers(5, 500))
    if chance("interleaved", 0.3):
        place = {run: iter(np.sort(rng.random(40))) for run in {row["run"] for row in log.rows}}
        log.rows.sort(key=lambda row: next(place[row["run"]]))
    if chance("bad cells", 0.6):
        log.answers["missing"] = str(rng.choice(["drop", "hold", "hold:2"]))
        for row in log.rows:
            for name in ("flow", "pressure", "speed"):
                row[name] = None if rng.random() < 0.03 else row[name]
    _write(log, rng, chance, start)
    return log


def _write(log: Log, rng: np.random.Generator, chance: Any, start: datetime.datetime) -> None:
    """Fill ``content``, ``suffix`` and ``answers``."""
    delimiter = str(rng.choice([",", ";", "\t", "|"]))
    log.mess.append({",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[delimiter])
    comma = chance("decimal commas", 0.3)
    log.answers |= {"decimal": ","} if comma else {}
    stamps = str(rng.choice(["seconds", "utc", "zones", "local", "mixed", "german"]))
    log.mess.append(f"time {stamps}")
    if stamps in ("mixed", "local", "german"):
        log.answers["time-zone"] = ZONE
    log.answers |= {"time-format": FORMAT} if stamps == "german" else {}

    def number(value: float | None) -> str:
        if value is None:
            return str(rng.choice(NO_NUMBERS))
        text = str(value) if rng.random() < 0.9 else f"{value:e}"
        return text.replace(".", ",") if comma else text

    def stamp(seconds: float) -> str:
        if stamps == "seconds":
            return number(seconds)
        moment = start + datetime.timedelta(seconds=seconds)
        local = moment.astimezone(ZoneInfo(ZONE))
        if stamps == "utc":
            return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        if stamps == "german":
            return local.strftime("%d.%m.%Y %H:%M:%S.%f")
        naive = stamps == "local" or (stamps == "mixed" and rng.random() < 0.5)
        return (local.replace(tzinfo=None) if naive else local).isoformat(sep=" ")

    text = io.StringIO(newline="")
    lines = "\r\n" if chance("CRLF", 0.3) else "\n"
    quoting = csv.QUOTE_ALL if chance("all quoted", 0.2) else csv.QUOTE_MINIMAL
    if chance("lines before the header", 0.15):
        text.write(f"# logger 3.1{lines}{lines}")
    if chance("sep=", 0.1):
        text.write(f"sep={delimiter}{lines}")
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=lines)
    index, trailing = chance("unnamed index", 0.15), chance("trailing separator", 0.15)
    pad = " " if chance("spaces in the header", 0.2) and quoting == csv.QUOTE_MINIMAL else ""
    names = [f"{name}{pad}" for name in log.rows[0]]
    writer.writerow([*([""] if index else []), *names, *([""] if trailing else [])])
    for i, row in enumerate(log.rows):
        cells = [row["pump"], row["run"], stamp(row["when"])]
        cells += [number(row[name]) for name in ("flow", "pressure", "speed")]
        cells += [str(row["power"]), row["note"]]
        writer.writerow([*([i] if index else []), *cells, *([""] if trailing else [])])
    encoding = str(rng.choice(["utf-8", "utf-8-sig", "latin-1", "utf-16"], p=[0.5, 0.2, 0.2, 0.1]))
    log.mess.append(encoding)
    content = text.getvalue().encode(encoding)
    if encoding == "utf-16" or (encoding == "latin-1" and not content.isascii()):
        log.answers["encoding"] = encoding
    packed = chance("gzip", 0.15)
    log.content, log.suffix = (gzip.compress(content), ".csv.gz") if packed else (content, ".csv")


def expected(log: Log, missing: str) -> list[tuple[Any, ...]]:
    """List the transitions that the log holds, row by row and without puorl."""
    rows = [dict(row) for row in log.rows]
    if missing.startswith("hold"):
        steps = int(missing.partition(":")[2] or 5)
        for name in ("flow", "pressure", "speed"):
            last: dict[str, tuple[int, float]] = {}  # run to the place in it and the value
            place: Counter[str] = Counter()
            for row in rows:
                now = place[row["run"]]
                place[row["run"]] += 1
                if row[name] is not None:
                    last[row["run"]] = (now, row[name])
                elif row["run"] in last and now - last[row["run"]][0] <= steps:
                    row[name] = last[row["run"]][1]
    by_run: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)

    def whole(row: dict[str, Any]) -> bool:
        return None not in (row["flow"], row["pressure"], row["speed"])

    pairs = [pair for run in by_run.values() for pair in zip(run[:-1], run[1:], strict=True)]
    pairs = [(a, b) for a, b in pairs if whole(a) and whole(b)]
    steps_of_time = [b["when"] - a["when"] for a, b in pairs]
    limit = 1.5 * float(np.median(steps_of_time)) if pairs else 0.0
    return sorted(
        (a["run"], a["when"] - by_run[a["run"]][0]["when"], a["flow"], a["pressure"], a["speed"],
         b["flow"], b["pressure"], a["pump"], a["power"], a["note"])
        for a, b in pairs
        if b["when"] - a["when"] <= limit
    )  # fmt: skip


def found(data: puorl.Dataset, log: Log) -> list[tuple[Any, ...]]:
    """List the transitions of a dataset in the same way."""
    first = {}
    for row in log.rows:
        first.setdefault(row["run"], row["when"])
    start = datetime.datetime(2026, 3, 28, 23, 30, tzinfo=datetime.UTC).timestamp()
    time_of = np.asarray(data.time)
    absolute = time_of.min() > 1e9
    made = []
    for i in range(len(data)):
        run = str(data.columns["run"][i])
        seconds = round(float(time_of[i]) - (start if absolute else 0.0), 3) - first[run]
        values = [*data.obs[i], *data.action[i], *data.next_obs[i]]
        flow, pressure, speed, then_flow, then_pressure = (float(v) for v in values)
        texts = (str(data.columns["pump"][i]), int(data.columns["power"][i]))
        made.append((run, seconds, flow, pressure, speed, then_flow, then_pressure, *texts,
                     str(data.columns["note"][i])))  # fmt: skip
    return sorted(made)


def attempt(log: Log, folder: Path) -> dict[str, Any]:
    """Load one log, option by option; return the outcome."""
    path = folder / f"log{log.suffix}"
    path.write_bytes(log.content)
    given: dict[str, Any] = {}
    row: dict[str, Any] = {"mess": log.mess, "rows": len(log.rows)}
    for _ in range(MOST_ROUNDS):
        try:
            options = {name.replace("-", "_"): value for name, value in given.items()}
            data = puorl.load(path, **NAMES, **options)
        except PuorlError as error:
            named = [name for name in OPTION.findall(str(error)) if name not in given]
            useful = [name for name in named if name in log.answers]
            if not useful:
                none = not expected(log, given.get("missing", "error"))
                outcome = "right" if none and "no row" in str(error) else "stuck"
                return row | {"outcome": outcome, "options": list(given), "message": str(error)}
            given[useful[0]] = log.answers[useful[0]]
        except Exception as error:  # the point of the exercise
            text = f"{type(error).__name__}: {error}"
            return row | {"outcome": "traceback", "options": list(given), "message": text}
        else:
            notes = " ".join(data.provenance.notes)
            told = [name for name in OPTION.findall(notes) if name in log.answers.keys() - given]
            if told:  # what loads under an assumption says so in a note, with the option
                given[told[0]] = log.answers[told[0]]
                continue
            same = found(data, log) == expected(log, given.get("missing", "error"))
            return row | {"outcome": "right" if same else "wrong", "options": list(given)}
    return row | {"outcome": "stuck", "options": list(given), "message": "too many rounds"}


def run(num_logs: int, seed: int) -> list[dict[str, Any]]:
    """Try logs; the same seed and number give the same log."""
    made = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(num_logs):
            log = make_log(np.random.default_rng([seed, number]))
            row = attempt(log, Path(name))
            made.append({"seed": seed, "log": number, **row})
    return made


def main() -> None:
    """Try logs, print a summary, append rows if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="append to the results")
    args = parser.parse_args()
    began = time.perf_counter()
    rows = run(args.logs, args.seed)
    stamp = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - began, 1),
        "load": os.getloadavg(),
        "versions": {name: version(name) for name in ("puorl", "numpy")}
        | {"python": platform.python_version()},
    }
    for row in rows:
        if row["outcome"] != "right":
            print(json.dumps(row))
    print(Counter(row["outcome"] for row in rows))
    print(Counter(option for row in rows for option in row["options"]))
    print(Counter(mess for row in rows for mess in row["mess"]))
    if args.save:
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps({"summary": Counter(r["outcome"] for r in rows), **stamp}) + "\n")
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
