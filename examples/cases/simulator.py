"""What the simulators of all cases share: the log, policies from ONNX files, the command line.

A case runs its simulator in an environment of its own, without puorl. It writes a log, and later
lets the policies act that were trained from it:

    python examples/cases/actuator.py log small 0 FOLDER
    python examples/cases/actuator.py judge POLICIES RETURNS.csv --episodes 10
"""

import argparse
import csv
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

LOG, TRUTH, EPISODES = "log.csv.gz", "truth.csv", "episodes.csv"
Act = Callable[[np.ndarray], np.ndarray]
"""From a state (d,) to an action: (m,) amounts, or the code that is taken."""


@dataclass
class Log:
    """Rows as a site would log them, and beside them what the site does not know."""

    unit: str
    """Column that names the unit of a row."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    truth: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    """What is true of single episodes, where they are decided about too: ``run``, ``ours``, and
    ``log_ratio``, the evidence that they are ours for somebody who knows the simulator."""
    later: "Log | None" = None
    """What other units did afterwards."""

    def add_unit(self, name: str, kind: str, *, is_ours: bool, **more: Any) -> None:
        """Note the truth about a unit."""
        self.truth.append({self.unit: name, "ours": int(is_ours), "kind": kind, **more})

    def add(self, unit: str, run: str, time: float | str, values: Mapping[str, Any]) -> None:
        """Add a row."""
        self.rows.append({self.unit: unit, "run": run, "time": time, **values})

    def write(self, folder: Path) -> None:
        """Write both tables."""
        folder.mkdir(parents=True, exist_ok=True)
        # Without its name and time in the header, the same rows are the same bytes.
        with (
            (folder / LOG).open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        ):
            packed.write(_as_csv(self.rows).encode())
        (folder / TRUTH).write_text(_as_csv(self.truth), encoding="utf-8")
        if self.episodes:
            (folder / EPISODES).write_text(_as_csv(self.episodes), encoding="utf-8")
        if self.later is not None:
            self.later.write(folder / "later")


def numbered(prefix: str, values: Sequence[float] | np.ndarray, digits: int = 4) -> dict[str, Any]:
    """Name the numbers of a vector, rounded as a logger would."""
    return {f"{prefix}_{k:02d}": round(float(value), digits) for k, value in enumerate(values)}


def load_policy(path: Path) -> Act:
    """Return the policy of an ONNX file; of codes it takes the likeliest."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    codes = session.get_modelmeta().custom_metadata_map.get("puorl.codes")

    def act(obs: np.ndarray) -> np.ndarray:
        [[found]] = session.run(None, {"obs": np.asarray(obs, np.float32)[None]})
        return found if codes is None else np.array(json.loads(codes)[int(np.argmax(found))])

    return act


def judge(
    policies: Path, out: Path, play: Callable[[Act, int], Mapping[str, float]], episodes: int
) -> None:
    """Let every policy of a folder act, all from the same starts, and write what came of it."""
    found = []
    for path in sorted(policies.glob("*.onnx")):
        act = load_policy(path)
        found += [{"policy": path.stem, "episode": k, **play(act, k)} for k in range(episodes)]
    if not found:
        raise SystemExit(f"{policies}: expected ONNX files, got none")
    out.write_text(_as_csv(found), encoding="utf-8")


def main(
    record: Callable[[str, int], Log],
    play: Callable[[Act, int], Mapping[str, float]],
    arguments: Sequence[str] | None = None,
) -> None:
    """Do what the command line asks.

    Args:
        record: From size and seed to a log.
        play: One episode of a policy on a unit of ours: policy and number of the start.
        arguments: In place of those of the program.
    """
    parser = argparse.ArgumentParser(description="Write a log, or judge policies in the simulator.")
    commands = parser.add_subparsers(dest="command", required=True)
    log = commands.add_parser("log")
    log.add_argument("size", choices=("small", "full"))
    log.add_argument("seed", type=int)
    log.add_argument("folder", type=Path)
    judged = commands.add_parser("judge")
    judged.add_argument("policies", type=Path)
    judged.add_argument("out", type=Path)
    judged.add_argument("--episodes", type=int, default=10)
    given = parser.parse_args(arguments)
    if given.command == "log":
        record(given.size, given.seed).write(given.folder)
    else:
        judge(given.policies, given.out, play, given.episodes)


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    lines: list[str] = []

    class Lines:
        def write(self, text: str) -> None:
            lines.append(text)

    writer = csv.DictWriter(Lines(), list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return "".join(lines)
