"""`puorl score`: judge machines or rows that a filter has not seen."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.text import Text

from puorl.cli import options as opt
from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, check_free, read_json
from puorl.core.run_folder import (
    FILTER_MARKER,
    MODEL,
    SETTINGS,
    FilterSettings,
    partition_folder,
    read_as,
)
from puorl.data.dataset import Dataset
from puorl.data.formats import load
from puorl.data.labels import row_numbers, write_table
from puorl.data.transitions import Note
from puorl.pu.units import (
    count_units,
    describe_unusable,
    few_names,
    needed_columns,
    parse_unit,
    require_column,
    unusable_units,
)
from puorl.pu.windows import parse_span, windows

if TYPE_CHECKING:  # importing these loads jax
    from puorl.pu.filter import DomainFilter
    from puorl.pu.machines.drift import UnitCourse
    from puorl.pu.machines.model import MachineModel

_MOST_UNITS = 40
_Found = tuple[dict[str, Any], list[Any]]
"""JSON content, and the lines to print."""


@dataclass(frozen=True)
class Score(opt.Command):
    """Judge machines or rows that a filter has never seen.

    No model is trained, and no labels are needed. A filter that decides
    about machines or episodes gives each a probability to be ours, and warns
    of those that are like nothing it has seen; other filters give one for each
    row. Columns are found as they were for puorl filter, unless options say
    otherwise.

    With --by-time each unit is followed over time, and an alarm shows when it
    no longer moves as it did at first.

    Examples:
      puorl score kept new.csv
      puorl score kept 'logs/2024-*.csv' --out scores.csv
      puorl score kept new.csv --by-time 1d --page drift.html
    """

    model: tyro.conf.Positional[Path]
    """Folder of puorl filter, or its folder model."""
    paths: opt.Paths
    """Files, globs, or folders of Parquet or Minari."""
    out: opt.OptionalPath = None
    """CSV to write: a line for each unit, row, or window of a unit."""
    by_time: Annotated[str | None, opt.unset("SPAN")] = None
    """Length of windows: 1d, 6h, 30min; 3600 in the log's own unit of time; or 500rows."""
    page: opt.OptionalPath = None
    """HTML page to write with --by-time: a time line of every unit, with band and alarm."""
    force: opt.Flag = False
    """Replace the files if they exist."""
    data: opt.DataOptions = opt.DataOptions()
    scale: opt.ScaleOptions = opt.ScaleOptions()

    def run(self) -> None:
        """Read, judge, write and print."""
        span = None if self.by_time is None else parse_span(self.by_time)
        if self.page is not None and span is None:
            raise ConfigError("--page: expected --by-time with it: it shows units over time")
        for path in (self.out, self.page):
            if path is not None:
                check_free(path, force=self.force)
        options, folder = read_folder(self.model, self.data)
        reason = self.scale.reason(self.paths)
        if reason is not None and span is not None:
            raise ConfigError("--by-time: expected data that is read as a whole, got --stream")
        if reason is not None:
            found, left_out = self._stream(options, folder, reason)
        elif span is None:
            data = _load(options, self.paths, folder)
            found, left_out = self._score(data, folder), data.provenance.left_out
        else:
            data, model = read_machines(options, self.paths, folder, "--by-time")
            from puorl.pu.machines.drift import follow

            courses = follow(model, data, windows(data, model.unit, span))
            table = model.predict_units(data)
            names = [*table.name.tolist(), *unusable_units(data, model.unit)]
            found = self._courses(courses, names, table.name[table.cluster < 0].tolist())
            left_out = data.provenance.left_out
        content, lines = found
        notes = (Note(kind, number) for kind, number in left_out.items() if number)
        opt.show_notes(notes, self.console)
        written = [path for path in (self.out, self.page) if path is not None]
        file = None if self.out is None else str(self.out)
        content = {"file": file, **content, "left_out": left_out}
        self.answer(content, *lines, *(f"wrote {path}" for path in written))

    def _score(self, data: Dataset, folder: Path) -> _Found:
        self.compute_synchronously()
        from puorl.pu.filter import DomainFilter
        from puorl.pu.machines.model import MachineModel

        flt = DomainFilter.load(folder)
        require_column(data, flt.model_.unit)
        if isinstance(flt.model_, MachineModel):
            return self._units(flt, data)
        score, keep = flt.predict_proba(data), flt.predict(data)
        if self.out is not None:
            name, number = row_numbers(data)
            columns = number.tolist(), map(repr, score.tolist()), keep.astype(int).tolist()
            lines = zip(*columns, strict=True)
            write_table(self.out, (name, "score", "keep"), lines, force=self.force)
        return _counts(len(data), int(keep.sum()), float(np.nanmean(score)))

    def _stream(
        self, options: opt.DataOptions, folder: Path, reason: str
    ) -> tuple[_Found, dict[str, int]]:
        """Judge data partition by partition; units of a column by a sample of each unit's rows.

        Returns:
            What was found, and how many rows were left out.
        """
        self.compute_synchronously()
        from puorl.pu.filter import DomainFilter
        from puorl.pu.machines.model import MachineModel
        from puorl.scale.filtering import ListScores, collect, run_partitions
        from puorl.scale.sample import draw_sample

        names = options.arguments() | {"needed": _needed(folder)}
        lazy = self.scale.open(self.paths, reason, self.console, **names)
        flt, workers = DomainFilter.load(folder), self.scale.make()
        model = flt.model_
        by_column = model.unit.kind == "column"
        if by_column and not isinstance(model, MachineModel):
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
            if by_column:
                rows = self.scale.sample
                drawn = draw_sample(lazy, model.unit, parts, workers, rows=rows, progress=True)
                return self._units(flt, drawn.data), drawn.data.provenance.left_out
            task = ListScores(lazy, folder.absolute())
            records = run_partitions(task, lazy, parts, workers, "scoring", progress=True)
            if self.out is not None:
                with atomic_path(self.out, force=self.force) as part:
                    collect(parts, part, ".csv", "source_row,score,keep")
        num_rows = sum(record["num_rows"] for record in records)
        mean = sum(record["score"] for record in records) / num_rows
        found = _counts(num_rows, sum(record["num_kept"] for record in records), mean)
        each = [record["left_out"] for record in records]
        return found, {kind: sum(counts[kind] for counts in each) for kind in each[0]}

    def _units(self, flt: "DomainFilter", data: Dataset) -> _Found:
        from puorl.pu.machines.report import unit_rows
        from puorl.pu.unit_table import as_table, doubtful, type_of, write_units

        model: Any = flt.model_
        table = flt.predict_units(data)
        rows = unit_rows(table, model.names, is_soft=flt.mode == "soft")
        if self.out is not None:
            write_units(self.out, rows, force=self.force)
        outside = [row.name for row in rows if row.cluster < 0]
        kept = sum(row.keep for row in rows)
        lines: list[Any] = [
            as_table(f"{count_units(len(rows))}, {kept:,} like ours", rows, _MOST_UNITS)
        ]
        lines += _outside(outside)
        unsure = [row.name for row in doubtful(rows)]
        if unsure:
            text = f"{len(unsure):,} decision{'s' * (len(unsure) != 1)} in doubt"
            lines.append(Text(f"{text}: {few_names(unsure)}", style="yellow"))
        content = [dataclasses.asdict(row) | {"type": type_of(row)} for row in rows]
        lost = unusable_units(data, model.unit)
        lines += _lost(lost)
        found = {"units": content, "outside": outside, "in_doubt": unsure, "not_decided": lost}
        return found, lines

    def _courses(self, courses: "list[UnitCourse]", names: list[str], outside: list[str]) -> _Found:
        from puorl.pu.drift_page import as_page, describe, to_dict, write_courses
        from puorl.pu.machines.drift import MIN_WINDOWS

        if self.out is not None:
            write_courses(self.out, courses, force=self.force)
        if self.page is not None:
            opt.write_page(self.page, as_page(courses), force=self.force)
        changed = [each for each in courses if each.alarm is not None]
        lines: list[Any] = [f"{count_units(len(courses))} followed, {len(changed):,} with an alarm"]
        for each in changed:
            first, last = (f"{each.probability[k]:.3f}" for k in (0, -1))
            text = f"{each.name}: {describe(each)} Probability to be ours: {first}, then {last}"
            lines.append(Text(text, style="yellow"))
        lines += _outside(outside)
        short = sorted(set(names) - {each.name for each in courses})
        if short:
            text = f"{few_names(short)}: fewer than {MIN_WINDOWS} windows, so not followed"
            lines.append(Text(f"warning: {text}; choose shorter windows", style="yellow"))
        units = [to_dict(each) for each in courses]
        return {"units": units, "outside": outside, "not_followed": short}, lines


def _outside(names: list[str]) -> list[Text]:
    """Warn of units that are like nothing that was seen, in a line or none."""
    text = f"warning: {few_names(names, 5)}: unlike all units that the filter was fitted on"
    return [Text(text, style="yellow")] if names else []


def _lost(names: list[str]) -> list[Text]:
    """Warn of units without usable rows, in a line or none."""
    return [Text(f"warning: {describe_unusable(names)}", style="yellow")] if names else []


def _counts(num_rows: int, num_kept: int, mean: float) -> _Found:
    text = f"{num_kept:,} of {num_rows:,} rows are likely the target's; mean probability {mean:.3f}"
    return {"num_rows": num_rows, "num_kept": num_kept, "mean_score": mean}, [text]


def read_folder(model: Path, given: opt.DataOptions) -> tuple[opt.DataOptions, Path]:
    """Return how to find columns, as the filter did where nothing is given, and the model's folder.

    Raises:
        DataError: Not a folder of `puorl filter`, nor a saved filter.
    """
    if (model / FILTER_MARKER).is_file():
        stored = read_as(FilterSettings, model / SETTINGS).arguments.get("data") or {}
        known = {each.name for each in dataclasses.fields(opt.DataOptions)} - {"format"}
        own = {name: value for name, value in vars(given).items() if value is not None}
        used = {name: value for name, value in stored.items() if name in known}
        used.setdefault("action_kind", "continuous")  # a filter of codes has stored them
        return opt.DataOptions(**(used | own)), model / MODEL
    if (model / Path(FILTER_MARKER).name).is_file():
        return given, model
    raise DataError(
        f"{model}: expected a folder of puorl filter, or a saved filter, got something else"
    )


def _load(options: opt.DataOptions, paths: Sequence[str], folder: Path) -> Dataset:
    """Read rows to judge."""
    names = options.arguments()
    names["needed"] = _needed(folder)
    return load(list(paths), **names)


def _needed(folder: Path) -> tuple[str, ...]:
    """Return the columns in which an empty cell counts as missing for a saved filter."""
    with contextlib.suppress(DataError, ConfigError, KeyError, TypeError):
        content = read_json(folder / Path(FILTER_MARKER).name)
        return needed_columns(parse_unit(content["unit"]))
    return ()  # a damaged file: reading the filter has the better message


def read_machines(
    options: opt.DataOptions, paths: tuple[str, ...], folder: Path, subject: str
) -> "tuple[Dataset, MachineModel]":
    """Read rows, and a filter that decides about units by how they move.

    Raises:
        ConfigError: The filter decides by rows.
        DataError: Other columns than those that it was fitted on.
    """
    data = _load(options, paths, folder)
    opt.Command.compute_synchronously()
    from puorl.pu.filter import DomainFilter
    from puorl.pu.machines.model import MachineModel

    model = DomainFilter.load(folder).model_
    if not isinstance(model, MachineModel):
        raise ConfigError(
            f"{subject}: expected a filter that decides about units by how they move, got one that "
            "decides by rows; filter with --unit column:NAME"
        )
    require_column(data, model.unit)
    return model.in_order(data), model
