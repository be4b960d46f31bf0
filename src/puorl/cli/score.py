"""`puorl score`: judge machines or rows that a filter has not seen."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from puorl.cli.options import (
    DataOptions,
    Flag,
    OptionalPath,
    Paths,
    ScaleOptions,
    compute_synchronously,
    make_console,
    partition_folder,
    print_json,
)
from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, check_free
from puorl.core.run_folder import FILTER_MARKER, MODEL, SETTINGS, FilterSettings, read_as
from puorl.data.dataset import Dataset
from puorl.data.labels import row_numbers, write_table
from puorl.pu.units import Unit, number_units

if TYPE_CHECKING:  # importing these loads jax
    from puorl.pu.filter import DomainFilter
    from puorl.pu.machines.drift import UnitCourse
    from puorl.pu.machines.report import UnitRow

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MOST_UNITS = 40


@dataclass(frozen=True)
class Score:
    """Judge machines or rows that a filter has never seen.

    Nothing is learnt anew, and no labels are needed. A filter that decides
    about machines or episodes gives each a probability to be ours, and warns
    of those that are like nothing it has seen; other filters give one for each
    row. Columns are found as they were for puorl filter, unless options say
    otherwise.

    With --by-time each unit is followed over time, and an alarm tells when it
    no longer moves as it did at first.

    Examples:
      puorl score kept new.csv
      puorl score kept 'logs/2024-*.csv' --out scores.csv
      puorl score kept new.csv --by-time 1d --page drift.html
    """

    model: tyro.conf.Positional[Path]
    """Folder of puorl filter, or its folder model."""
    paths: Paths
    """Files, globs, or folders of Parquet or Minari."""
    out: OptionalPath = None
    """CSV to write: a line for each unit, row, or window of a unit."""
    by_time: Annotated[str | None, tyro.conf.arg(metavar="SPAN", help_behavior_hint="")] = None
    """Length of windows: 1d, 6h, 30min; 3600 in the log's own unit of time; or 500rows."""
    page: OptionalPath = None
    """HTML page to write with --by-time: a time line of every unit, with band and alarm."""
    force: Flag = False
    """Replace the files if they exist."""
    json: Flag = False
    """Print one JSON object on stdout and nothing else."""
    data: DataOptions = DataOptions()
    scale: ScaleOptions = ScaleOptions()

    def run(self) -> None:
        """Read, judge, write and print."""
        span = None if self.by_time is None else parse_span(self.by_time)
        if self.page is not None and span is None:
            raise ConfigError("--page: expected --by-time with it: it shows units over time")
        for path in (self.out, self.page):
            if path is not None:
                check_free(path, force=self.force)
        options, folder = read_folder(self.model, self.data)
        if (reason := self.scale.reason(self.paths)) is not None:
            if span is not None:
                raise ConfigError("--by-time: expected data that is read as a whole, got --stream")
            self._stream(options, folder, reason)
            return
        data = options.load(self.paths)
        compute_synchronously()
        from puorl.pu.filter import DomainFilter
        from puorl.pu.machines.model import MachineModel
        from puorl.pu.machines.report import unit_rows

        flt = DomainFilter.load(folder)
        model = flt.model_
        if isinstance(model, MachineModel):
            check_sizes(data, len(model.scalings.state.mean), len(model.scalings.action.mean))
        if span is not None:
            if not isinstance(model, MachineModel):
                raise ConfigError(
                    "--by-time: expected a filter that decides about units by how they move, got "
                    "one that decides by rows; filter with --unit column:NAME"
                )
            from puorl.pu.machines.drift import follow

            self._show_courses(follow(model, data, windows(data, model.unit, span)))
        elif isinstance(model, MachineModel):
            self._show_units(unit_rows(model.predict_units(data), model.names))
        else:
            self._show_rows(flt, data)

    def _stream(self, options: DataOptions, folder: Path, reason: str) -> None:
        """Judge data partition by partition; units of a column by a sample of each unit's rows."""
        compute_synchronously()
        from puorl.pu.filter import DomainFilter
        from puorl.pu.machines.model import MachineModel
        from puorl.pu.machines.report import unit_rows
        from puorl.scale.filtering import ListScores, collect, run_partitions
        from puorl.scale.sample import draw_sample

        console = make_console(json=self.json)
        lazy = self.scale.open(self.paths, reason, console, **options.arguments())
        model, workers = DomainFilter.load(folder).model_, self.scale.make()
        if model.unit.kind == "column" and not isinstance(model, MachineModel):
            raise ConfigError(
                "score: expected a filter that decides about units by how they move, or about "
                "rows or episodes, where data is read in partitions; score it without --stream"
            )
        basis = {
            "data": lazy.fingerprint,
            "model": hashing.of_bytes(folder / Path(FILTER_MARKER).name),
            "sample": self.scale.sample,
        }
        with partition_folder(self.out, basis) as parts:
            if model.unit.kind == "column" and isinstance(model, MachineModel):
                drawn = draw_sample(
                    lazy, model.unit, parts, workers, rows=self.scale.sample, progress=True
                )
                self._show_units(unit_rows(model.predict_units(drawn.data), model.names))
                return
            task = ListScores(lazy, folder.absolute())
            records = run_partitions(task, lazy, parts, workers, "scoring", progress=True)
            if self.out is not None:
                with atomic_path(self.out, force=self.force) as part:
                    collect(parts, part, ".csv", "source_row,score,keep")
        num_rows = sum(record["num_rows"] for record in records)
        mean = sum(record["score"] for record in records) / num_rows
        self._show_counts(num_rows, sum(record["num_kept"] for record in records), mean)

    def _show_units(self, rows: "tuple[UnitRow, ...]") -> None:
        from puorl.pu.unit_table import as_table, type_of, write_units

        if self.out is not None:
            write_units(self.out, rows, force=self.force)
        outside = [row.name for row in rows if row.cluster < 0]
        if self.json:
            content = [dataclasses.asdict(row) | {"type": type_of(row)} for row in rows]
            self._print({"units": content, "outside": outside})
            return
        kept = sum(row.keep for row in rows)
        console = Console(highlight=False)
        console.print(as_table(f"{len(rows):,} units, {kept:,} like ours", rows, _MOST_UNITS))
        if outside:
            names = ", ".join(outside[:5]) + (" and others" if len(outside) > 5 else "")
            text = f"warning: {names}: unlike all units that the filter was fitted on"
            console.print(Text(text, style="yellow"), soft_wrap=True)
        self._say_written(console)

    def _show_rows(self, flt: "DomainFilter", data: Dataset) -> None:
        score = flt.predict_proba(data)
        keep = flt.predict(data)
        if self.out is not None:
            name, number = row_numbers(data)
            columns = number.tolist(), map(repr, score.tolist()), keep.astype(int).tolist()
            lines = zip(*columns, strict=True)
            write_table(self.out, (name, "score", "keep"), lines, force=self.force)
        self._show_counts(len(data), int(keep.sum()), float(np.nanmean(score)))

    def _show_counts(self, num_rows: int, num_kept: int, mean: float) -> None:
        if self.json:
            self._print({"num_rows": num_rows, "num_kept": num_kept, "mean_score": mean})
            return
        console = Console(highlight=False)
        console.print(
            f"{num_kept:,} of {num_rows:,} rows are likely the target's; mean probability "
            f"{mean:.3f}"
        )
        self._say_written(console)

    def _show_courses(self, courses: "list[UnitCourse]") -> None:
        if self.out is not None:
            lines = (
                (
                    each.name,
                    k,
                    *(_cell(v[k]) for v in (each.time, each.probability, each.distance)),
                    repr(float(each.band)),
                    int(each.alarm is not None and k >= each.alarm),
                )
                for each in courses
                for k in range(len(each.time))
            )
            names = ("unit", "window", "time", "probability", "distance", "band", "alarm")
            write_table(self.out, names, lines, force=self.force)
        if self.page is not None:
            from puorl.pu.drift_page import as_page

            with atomic_path(self.page, force=self.force) as part:
                part.write_text(as_page(courses), encoding="utf-8")
        if self.json:
            self._print({"units": [_as_content(each) for each in courses]})
            return
        console = Console(highlight=False)
        changed = [each for each in courses if each.alarm is not None]
        console.print(f"{len(courses):,} units followed, {len(changed):,} with an alarm")
        for each in changed:
            k = each.alarm
            assert k is not None
            text = (
                f"{each.name}: changed at time {each.time[k]:.15g} (window {k + 1} of "
                f"{len(each.time)}): {each.distance[k]:.2g} from its beginning, {each.band:.2g} is "
                f"usual; probability to be ours {each.probability[0]:.3f}, then "
                f"{each.probability[-1]:.3f}"
            )
            console.print(Text(text, style="yellow"), soft_wrap=True)
        self._say_written(console)

    def _print(self, content: dict[str, Any]) -> None:
        print_json({"file": None if self.out is None else str(self.out), **content})

    def _say_written(self, console: Console) -> None:
        for path in (self.out, self.page):
            if path is not None:
                console.print(Text(f"wrote {path}"), soft_wrap=True)


def _cell(value: float) -> str:
    """Write a number with all digits, and nothing where there is none."""
    return repr(float(value)) if np.isfinite(value) else ""


def _as_content(course: "UnitCourse") -> dict[str, Any]:
    """Return the course of a unit, JSON-ready; what is not finite becomes None."""
    numbers = {
        name: [float(v) if np.isfinite(v) else None for v in getattr(course, name)]
        for name in ("time", "probability", "distance")
    }
    return {"name": course.name, **numbers, "band": float(course.band), "alarm": course.alarm}


def read_folder(model: Path, given: DataOptions) -> tuple[DataOptions, Path]:
    """Return how to find columns, as the filter did where nothing is given, and the model's folder.

    Raises:
        DataError: Not a folder of `puorl filter`, nor a saved filter.
    """
    if (model / FILTER_MARKER).is_file():
        stored = read_as(FilterSettings, model / SETTINGS).arguments.get("data") or {}
        known = {each.name for each in dataclasses.fields(DataOptions)} - {"format"}
        own = {name: value for name, value in vars(given).items() if value is not None}
        used = {name: value for name, value in stored.items() if name in known}
        used.setdefault("action_kind", "continuous")  # a filter of codes has stored them
        return DataOptions(**(used | own)), model / MODEL
    if (model / Path(FILTER_MARKER).name).is_file():
        return given, model
    raise DataError(
        f"{model}: expected a folder of puorl filter, or a saved filter, got something else"
    )


def check_sizes(data: Dataset, num_states: int, num_actions: int) -> None:
    """Refuse rows of other sizes than those that a filter was fitted on.

    Raises:
        DataError: They differ.
    """
    got = data.obs.shape[1], data.action.shape[1]
    if got != (num_states, num_actions):
        raise DataError(
            f"expected {num_states} state and {num_actions} action components, as the filter was "
            f"fitted on, got {got[0]} and {got[1]}; name the same columns with --obs and --action"
        )


@dataclass(frozen=True)
class Span:
    """Length of a window: rows, or time in the log's unit."""

    length: float
    by_rows: bool


def parse_span(text: str) -> Span:
    """Read ``500rows``, ``3600`` (in the log's unit of time), or ``1d``, ``6h``, ``30min``, ``5s``.

    >>> parse_span("6h"), parse_span("500rows")
    (Span(length=21600.0, by_rows=False), Span(length=500.0, by_rows=True))

    Raises:
        ConfigError: None of these.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(rows|s|min|h|d)?", text)
    length = float(found[1]) if found else 0.0
    by_rows = found is not None and found[2] == "rows"
    if found is None or length <= 0 or (by_rows and not length.is_integer()):
        raise ConfigError(
            f"--by-time: expected a span such as 1d, 6h, 30min, 3600 or 500rows, got {text!r}"
        )
    return Span(length if by_rows else length * _SECONDS.get(found[2], 1.0), by_rows)


def windows(data: Dataset, unit: Unit, span: Span) -> np.ndarray:
    """(n,) int64. Number of each row's window in its unit, from 0 at the unit's first row.

    Raises:
        DataError: Spans of time without a clock, or with one that starts anew in a unit.
    """
    number, time = number_units(data, unit).number, data.rows.time
    if time is None and not span.by_rows:
        raise DataError(
            "--by-time: expected rows with a time, and this data has none; name its column with "
            "--time, or give a number of rows such as 500rows"
        )
    clock = np.arange(len(data), dtype=float) if time is None else np.asarray(time, float)
    order = np.lexsort((np.arange(len(data)), clock, number))
    same = number[order][1:] == number[order][:-1]
    if bool((same & (np.diff(clock[order]) == 0)).any()):
        if not span.by_rows:
            raise DataError(
                "--by-time: expected a clock that runs on within a unit, got one that shows the "
                "same time twice; give a number of rows such as 500rows"
            )
        order = np.argsort(number, kind="stable")  # as they are in the file
    size = np.bincount(number)
    first = np.cumsum(size) - size
    place = np.empty(len(data))
    place[order] = np.arange(len(data)) - first[number[order]]
    if not span.by_rows:
        place = clock - clock[order][first][number]
    return np.floor(place / span.length).astype(np.int64)
