"""Read the folders and files of other commands, as the page needs them."""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puorl.bench.report import Report, make_report
from puorl.bench.store import FILE as RUNS
from puorl.core.errors import DataError, PuorlError
from puorl.core.files import read_json
from puorl.core.run_folder import (
    FILTER_MARKER,
    REPORT,
    SETTINGS,
    FilterSettings,
    decode,
    read_as,
)
from puorl.data.dataset import Dataset
from puorl.data.formats import load_kept
from puorl.pu.machines.report import MachineReport
from puorl.pu.report import FilterReport, current_keys
from puorl.rl.run import (
    METRICS,
    RECORD,
    SPEC,
    TrainRecord,
    TrainSettings,
    check_metrics,
    read_record,
    read_spec,
)
from puorl.run_report.offline_part import OfflineEvaluated

_KINDS = "a folder of puorl filter, train or bench run, or what puorl evaluate --out wrote"
_MARKS = {"step", "lane"}
_LARGEST = 1e30  # larger values fit no axis and count as unknown
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

Curve = list[tuple[int, float]]
"""Updates and a value; NaN where there was none."""


@dataclass(frozen=True, eq=False)
class Filtering:
    """A folder of `puorl filter`."""

    path: str
    report: FilterReport | MachineReport | None
    """None where the checks were skipped."""
    settings: FilterSettings
    rows: Dataset | None
    """The kept rows; None where they cannot be read here."""
    problem: str = ""
    """Reason why they cannot be read."""


@dataclass(frozen=True, eq=False)
class Training:
    """A folder of `puorl train`."""

    path: str
    settings: TrainSettings
    record: TrainRecord
    metrics: dict[str, dict[str, Curve]]
    """Metric to policy to its curve."""
    policies: dict[str, Path]
    """Files of the policies whose training ended."""
    hold_out: str | None = None
    """Condition of the rows that it left out."""


@dataclass(frozen=True)
class Scored:
    """The episodes of one policy."""

    policy: str
    group: str
    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    scores: tuple[float, ...] | None


@dataclass(frozen=True)
class Evaluated:
    """Content that `puorl evaluate` wrote (``--out``) or printed (``--json``)."""

    env: str
    episodes: int
    seed: int
    policies: tuple[Scored, ...]
    path: str = ""
    """File from which it was read."""
    command: str = "evaluate"
    """Command that made it."""

    @property
    def sources(self) -> list[str]:
        """Runs and single policies that were evaluated."""
        return list(dict.fromkeys(each.group or each.policy for each in self.policies))

    @property
    def groups(self) -> dict[str, list[Scored]]:
        """Policies by the run with whose other policies they are averaged."""
        groups: dict[str, list[Scored]] = {}
        for scored in self.policies:
            groups.setdefault(scored.group, []).append(scored)
        return groups


@dataclass(frozen=True, eq=False)
class Material:
    """Everything that the page is made of."""

    filterings: list[Filtering] = dataclasses.field(default_factory=list)
    trainings: list[Training] = dataclasses.field(default_factory=list)
    evaluations: list[Evaluated] = dataclasses.field(default_factory=list)
    offline: list[OfflineEvaluated] = dataclasses.field(default_factory=list)
    """Evaluations from a log."""
    benchmarks: dict[str, Report] = dataclasses.field(default_factory=dict)
    """Reports of folders of `puorl bench run`."""

    def kinds(self) -> dict[str, str]:
        """Return the command that made each path."""
        return {
            **{each.path: "filter" for each in self.filterings},
            **{each.path: "train" for each in self.trainings},
            **{each.path: each.command for each in self.evaluations},
            **{each.path: "evaluate" for each in self.offline},
            **dict.fromkeys(self.benchmarks, "bench run"),
        }


def read_paths(paths: Sequence[str]) -> Material:
    """Read all paths.

    Raises:
        DataError: No path, a path named twice, or one that no puorl command wrote.
    """
    if not paths:
        raise DataError(f"expected {_KINDS}; got no path")
    made, seen = Material(), set()
    for text in paths:
        path = Path(text)
        if path.resolve() in seen:
            raise DataError(f"{text}: is named twice; name it once")
        seen.add(path.resolve())
        if path.is_dir():
            _read_folder(path, made)
        elif path.suffix == ".jsonl" and path.is_file():
            made.benchmarks[str(path)] = make_report(path)
        elif path.is_file():
            _named_evaluation(path, made)
        else:
            raise DataError(f"{text}: expected {_KINDS}; found nothing there")
    # An evaluation in a named folder may be named as well.
    made.evaluations[:] = list({Path(e.path).resolve(): e for e in made.evaluations}.values())
    made.offline[:] = list({Path(e.path).resolve(): e for e in made.offline}.values())
    return made


def _read_folder(path: Path, made: Material) -> None:
    if (path / FILTER_MARKER).is_file() or (path / SETTINGS).is_file():
        made.filterings.append(_filtering(path))
    elif (path / SPEC).is_file():
        made.trainings.append(_training(path))
        _evaluations(path, made)
    elif (path / RUNS).is_file():
        made.benchmarks[str(path)] = make_report(path)
    elif not _evaluations(path, made):
        what = "a folder of other files" if any(path.iterdir()) else "an empty folder"
        if (path / "results.json").is_file() and (path / "report.html").is_file():
            what = "a folder of puorl demo, whose own report.html is such a page"
        raise DataError(f"{path}: expected {_KINDS}; found {what}")


def _filtering(folder: Path) -> Filtering:
    settings = read_as(FilterSettings, folder / SETTINGS)
    report = None if settings.arguments.get("no_report") is True else _report(folder / REPORT)
    try:
        rows, problem = load_kept(folder, settings.kept), ""
    except PuorlError as error:  # moved away to save space, or an extra is not installed
        rows, problem = None, str(error)
    return Filtering(str(folder), report, settings, rows, problem)


def _report(path: Path) -> FilterReport | MachineReport:
    content = read_json(path)
    if isinstance(content, dict) and content.get("kind") == "machines":
        return decode(MachineReport, content, path)
    if isinstance(content, dict):
        content = current_keys(content)
    report = decode(FilterReport, content, path)
    if not all(math.isfinite(each.value) for each in report.alphas):
        raise DataError(f"{path}: expected finite estimates of alpha, got one that is not")
    bins = report.histogram
    num_bins = max(len(bins.edge) - 1, 0)
    if {len(bins.labelled), len(bins.unlabelled)} != {num_bins}:
        raise DataError(f"{path}: expected {num_bins} bins in the histogram, got another number")
    return report


def _training(folder: Path) -> Training:
    settings = decode(TrainSettings, read_spec(folder), folder / SPEC)
    if not (settings.learner and settings.steps and settings.data and settings.groups):
        raise DataError(f"{folder / SPEC}: expected learner, steps, data and groups, got less")
    stored = read_record(folder)
    check_metrics(folder, stored)
    record = decode(TrainRecord, stored, folder / RECORD)
    hold_out = stored["invocations"][-1].get("hold_out") if record.invocations else None
    if not isinstance(hold_out, str | None):
        raise DataError(f"{folder / RECORD}: expected what puorl wrote, got hold_out {hold_out!r}")
    files = {name: folder / "policies" / f"{name}.safetensors" for name in settings.lanes}
    policies = {name: file for name, file in files.items() if file.is_file()}
    metrics = _metrics(folder / METRICS)
    return Training(str(folder), settings, record, metrics, policies, hold_out)


def _metrics(path: Path) -> dict[str, dict[str, Curve]]:
    if not path.exists():
        return {}
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path}: expected a readable file, got: {error}") from error
    found: dict[str, dict[str, Curve]] = {}
    # The text after the last line break is a line that is being written.
    for number, line in enumerate(lines[:-1], 1):
        try:
            values = json.loads(line)
            step, lane = int(values["step"]), str(values["lane"])
            for name in values.keys() - _MARKS:
                value = math.nan if values[name] is None else float(values[name])
                shown = value if abs(value) < _LARGEST else math.nan
                found.setdefault(name, {}).setdefault(lane, []).append((step, shown))
        except _UNREADABLE as error:
            raise DataError(
                f"{path}: expected step, lane and numbers in line {number}, got something else; "
                "the file is damaged"
            ) from error
    return {name: found[name] for name in sorted(found)}


def _evaluations(folder: Path, made: Material) -> bool:
    """Read the evaluations in a folder, under any name; other JSON is ignored."""
    own = (SPEC, RECORD)
    paths = [path for path in sorted(folder.glob("*.json")) if path.name not in own]
    return any([_add(path, made) for path in paths])


def _named_evaluation(path: Path, made: Material) -> None:
    if path.suffix != ".json" or not _add(path, made):
        raise DataError(f"{path}: expected {_KINDS} (.json); got a file of another kind")


def _add(path: Path, made: Material) -> bool:
    """Add what evaluate wrote; return False for JSON of another kind."""
    content = read_json(path)
    if isinstance(content, dict) and content.get("kind") == "offline":
        seen = decode(OfflineEvaluated, {**content, "path": str(path)}, path)
        if not seen.policies:
            raise DataError(f"{path}: expected policies and their values, got none")
        made.offline.append(seen)
        return True
    if (seen := _evaluated(path, content)) is not None:
        made.evaluations.append(seen)
    return seen is not None


def _evaluated(path: Path, content: Any) -> Evaluated | None:
    """Read what evaluate printed, or train with --env; None for JSON of another kind."""
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object, got {type(content).__name__}")
    inner: Any = content.get("evaluation", content)
    if not (isinstance(inner, dict) and {"env", "policies"} <= inner.keys()):
        return None
    command = "train" if "evaluation" in content else "evaluate"
    seen = decode(Evaluated, {**inner, "path": str(path), "command": command}, path)
    for each in seen.policies:
        counts = {len(each.returns), len(each.lengths), len(each.scores or each.returns)}
        if counts != {seen.episodes} or not np.isfinite(each.returns).all():
            raise DataError(
                f"{path}: expected {seen.episodes} returns of {each.policy}, got others"
            )
    if not seen.policies or seen.episodes < 1:
        raise DataError(f"{path}: expected policies and their returns, got none")
    return seen
