"""JSON of our own files as the dataclasses it was made of; what does not fit is named."""

import dataclasses
import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from puorl.bench.report import Report, make_report
from puorl.bench.store import FILE as RUNS
from puorl.cli.filter_files import MARKER, REPORT, SETTINGS
from puorl.core.errors import DataError, PuorlError
from puorl.data.dataset import Dataset
from puorl.data.formats import load
from puorl.pu.report import FilterReport
from puorl.rl.run import METRICS, RECORD, read_record, read_spec
from puorl.rl.run import SPEC as PLAN

T = TypeVar("T")
_PLAIN = {int: "a whole number", str: "text", bool: "true or false"}


class _Misfit(Exception):
    """A value is not what its place is for."""


def read_object(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object.

    Raises:
        DataError: Missing, unreadable, no JSON, or something else than an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected a JSON file, got: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def decoded(kind: type[T], content: Any, path: Path) -> T:
    """A dataclass made of JSON; null is NaN where a number is due, unknown names are passed over.

    Args:
        kind: The dataclass.
        content: What was read.
        path: From where; messages start with it.

    Raises:
        DataError: Something is missing or of another type.
    """
    try:
        return _decoded(kind, content, "")
    except (_Misfit, PuorlError, RecursionError) as error:
        raise DataError(
            f"{path}: expected what puorl wrote, got: {error}; the file is damaged or of another "
            "version, so make it again"
        ) from error


def _decoded(kind: Any, value: Any, place: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _made(kind, value, place)
    if origin in (Union, types.UnionType):
        return None if value is None else _decoded(inner[0], value, place)
    if origin is tuple:
        return _listed(inner, value, place)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _misfit(place, "named values", value)
        return {name: _decoded(inner[1], each, f"{place}.{name}") for name, each in value.items()}
    if origin is Literal:
        if value not in inner:
            raise _misfit(place, f"one of {', '.join(inner)}", value)
        return value
    if kind is float:
        return _number(value, place)
    if type(value) is not kind:  # a flag is no number here
        raise _misfit(place, _PLAIN[kind], value)
    return value


def _made(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise _misfit(place, "named values", value)
    hints, given = get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        inside = f"{place}.{field.name}" if place else field.name
        if field.name in value:
            given[field.name] = _decoded(hints[field.name], value[field.name], inside)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Misfit(f"no {inside}")
    return kind(**given)


def _listed(inner: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _misfit(place, "a list", value)
    kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
    if len(kinds) != len(value):
        raise _misfit(place, f"{len(kinds)} values", value)
    pairs = enumerate(zip(kinds, value, strict=True))
    return tuple(_decoded(kind, each, f"{place}[{number}]") for number, (kind, each) in pairs)


def _number(value: Any, place: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _misfit(place, "a number", value)
    try:
        return float(value)
    except OverflowError as error:
        raise _misfit(place, "a number", value) from error


def _misfit(place: str, expected: str, value: Any) -> _Misfit:
    return _Misfit(f"{place or 'the file'} is not {expected} but {str(value)[:60]!r}")


_KINDS = "a folder of puorl filter, train or bench run, or what puorl evaluate --out wrote"
_MARKS = {"step", "lane"}
_LARGEST = 1e30  # no axis has room for more; it counts as not known
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Kept:
    """What a filter says of its file of kept rows."""

    file: str
    num_rows: int
    fingerprint: str


@dataclass(frozen=True)
class FilterSettings:
    """``settings.json`` of a filter."""

    arguments: dict[str, Any]
    versions: dict[str, str]
    fingerprints: dict[str, str]
    kept: Kept

    def __post_init__(self) -> None:
        """Look at the one argument that is a list.

        Raises:
            DataError: It is none.
        """
        paths = self.arguments.get("paths")
        if not (isinstance(paths, list) and all(isinstance(path, str) for path in paths)):
            raise DataError(f"arguments.paths is not a list of paths but {paths!r}")

    @property
    def paths(self) -> list[str]:
        """What was filtered."""
        return self.arguments["paths"]


@dataclass(frozen=True, eq=False)
class Filtering:
    """A folder of `puorl filter`."""

    path: str
    report: FilterReport | None
    """None where the filter was told to check nothing."""
    settings: FilterSettings
    rows: Dataset | None
    """What was kept; None where it cannot be read here."""
    problem: str = ""
    """Why it cannot."""


@dataclass(frozen=True)
class Plan:
    """``run.json`` of a training run."""

    learner: str
    config: dict[str, Any]
    steps: int
    data: str
    """Fingerprint of the rows it learns from."""
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Stop:
    """Where and why a policy was given up."""

    step: int
    reason: str


@dataclass(frozen=True)
class Part:
    """Rows that were read together."""

    files: tuple[str, ...]
    num_rows: int
    fingerprint: str


@dataclass(frozen=True)
class Asked:
    """What one command asked of a run; less is known where it was begun from Python."""

    paths: tuple[str, ...] = ()
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    env: str | None = None
    eval_every: int | None = None
    eval_episodes: int | None = None


@dataclass(frozen=True)
class Record:
    """``record.json`` of a training run."""

    invocations: tuple[Asked, ...] = ()
    """By the first command, then by those that went on otherwise."""
    stopped: dict[str, Stop] = dataclasses.field(default_factory=dict)
    resumed: tuple[dict[str, Any], ...] = ()
    versions: dict[str, str] = dataclasses.field(default_factory=dict)


Course = list[tuple[int, float]]
"""Updates and a value; NaN where there was none."""


@dataclass(frozen=True, eq=False)
class Training:
    """A folder of `puorl train`."""

    path: str
    plan: Plan
    record: Record
    metrics: dict[str, dict[str, Course]]
    """Metric to policy to its course."""
    policies: dict[str, Path]
    """Of those that came to their end."""

    @property
    def asked(self) -> Asked:
        """What was asked last; all of it unknown where nothing is recorded."""
        return self.record.invocations[-1] if self.record.invocations else Asked()

    @property
    def lanes(self) -> list[str]:
        """Names of all policies that were to be trained."""
        return [name for group in self.plan.groups for name in group]


@dataclass(frozen=True)
class Scored:
    """One policy's episodes."""

    policy: str
    group: str
    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    scores: tuple[float, ...] | None


@dataclass(frozen=True)
class Evaluated:
    """What `puorl evaluate` wrote (``--out``) or printed (``--json``)."""

    env: str
    episodes: int
    seed: int
    policies: tuple[Scored, ...]
    path: str = ""
    """From where it was read."""
    command: str = "evaluate"
    """What made it."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A folder of `puorl bench run`."""

    path: str
    report: Report


@dataclass(frozen=True, eq=False)
class Material:
    """All that the page is made of."""

    filterings: list[Filtering] = dataclasses.field(default_factory=list)
    trainings: list[Training] = dataclasses.field(default_factory=list)
    evaluations: list[Evaluated] = dataclasses.field(default_factory=list)
    benchmarks: list[Benchmark] = dataclasses.field(default_factory=list)

    def kinds(self) -> dict[str, str]:
        """Path to the command that made it."""
        return {
            **{each.path: "filter" for each in self.filterings},
            **{each.path: "train" for each in self.trainings},
            **{each.path: each.command for each in self.evaluations},
            **{each.path: "bench run" for each in self.benchmarks},
        }


def read_paths(paths: Sequence[str]) -> Material:
    """Read everything that is named.

    Raises:
        DataError: Nothing is named, something twice, or it is not what our commands leave.
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
            made.benchmarks.append(_benchmark(path))
        elif path.is_file():
            made.evaluations.append(_named_evaluation(path))
        else:
            raise DataError(f"{text}: expected {_KINDS}; found nothing there")
    # One that lies in a named folder may be named as well.
    single = {Path(each.path).resolve(): each for each in made.evaluations}
    made.evaluations[:] = single.values()
    return made


def _read_folder(path: Path, made: Material) -> None:
    if (path / MARKER).is_file() or (path / SETTINGS).is_file():
        made.filterings.append(_filtering(path))
    elif (path / PLAN).is_file():
        made.trainings.append(_training(path))
        made.evaluations.extend(_evaluations(path))
    elif (path / RUNS).is_file():
        made.benchmarks.append(_benchmark(path))
    elif found := _evaluations(path):
        made.evaluations.extend(found)
    else:
        what = "a folder of other files" if any(path.iterdir()) else "an empty folder"
        if (path / "results.json").is_file() and (path / "report.html").is_file():
            what = "a folder of puorl demo, whose own report.html is such a page"
        raise DataError(f"{path}: expected {_KINDS}; found {what}")


def _filtering(folder: Path) -> Filtering:
    settings = decoded(FilterSettings, read_object(folder / SETTINGS), folder / SETTINGS)
    report = None if settings.arguments.get("no_report") is True else _report(folder / REPORT)
    try:
        rows, problem = load(folder / settings.kept.file), ""
    except PuorlError as error:  # moved away to save room, or an extra is not installed
        rows, problem = None, str(error)
    return Filtering(str(folder), report, settings, rows, problem)


def _report(place: Path) -> FilterReport:
    report = decoded(FilterReport, read_object(place), place)
    bins = report.histogram
    num_bins = max(len(bins.edge) - 1, 0)
    if {len(bins.labelled), len(bins.unlabelled)} != {num_bins}:
        raise DataError(f"{place}: expected {num_bins} shares in the histogram, got another number")
    return report


def _training(folder: Path) -> Training:
    plan = decoded(Plan, read_spec(folder), folder / PLAN)
    record = decoded(Record, read_record(folder), folder / RECORD)
    names = (name for group in plan.groups for name in group)
    files = {name: folder / "policies" / f"{name}.safetensors" for name in names}
    policies = {name: file for name, file in files.items() if file.is_file()}
    return Training(str(folder), plan, record, _metrics(folder / METRICS), policies)


def _metrics(path: Path) -> dict[str, dict[str, Course]]:
    if not path.exists():
        return {}
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path}: expected a readable file, got: {error}") from error
    found: dict[str, dict[str, Course]] = {}
    # What stands after the last line break is a line that is being written.
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


def _evaluations(folder: Path) -> list[Evaluated]:
    """Evaluations that were kept in a folder, under any name; other JSON is passed over."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if path.name in (PLAN, RECORD):
            continue
        seen = _evaluated(path, read_object(path))
        if seen is not None:
            found.append(seen)
    return found


def _named_evaluation(path: Path) -> Evaluated:
    found = _evaluated(path, read_object(path)) if path.suffix == ".json" else None
    if found is None:
        raise DataError(f"{path}: expected {_KINDS} (.json); got a file of another kind")
    return found


def _evaluated(path: Path, content: dict[str, Any]) -> Evaluated | None:
    """What evaluate printed, or train with an --env; None for JSON of another kind."""
    inner = content.get("evaluation", content)
    if not (isinstance(inner, dict) and {"env", "policies"} <= inner.keys()):
        return None
    command = "train" if "evaluation" in content else "evaluate"
    seen = decoded(Evaluated, {**inner, "path": str(path), "command": command}, path)
    for each in seen.policies:
        counts = {len(each.returns), len(each.lengths), len(each.scores or each.returns)}
        if counts != {seen.episodes} or not np.isfinite(each.returns).all():
            raise DataError(
                f"{path}: expected {seen.episodes} returns of {each.policy}, got others"
            )
    if not seen.policies or seen.episodes < 1:
        raise DataError(f"{path}: expected policies and their returns, got none")
    return seen


def _benchmark(path: Path) -> Benchmark:
    return Benchmark(str(path), make_report(path))
