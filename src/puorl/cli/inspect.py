"""`puorl inspect`: show what is in a file, and what is wrong with it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from puorl.cli import options as opt
from puorl.core.errors import ConfigError, DataError
from puorl.core.resources import cache_folder, describe_size
from puorl.core.run_folder import partition_folder
from puorl.data.formats import expand, format_of
from puorl.data.inspect import (
    MOST_RAW_ROWS,
    ColumnProfile,
    Inspection,
    find,
    inspect,
    raw_columns,
)
from puorl.data.labels import is_condition, is_split, read_labels
from puorl.rl.policy import Policy

_STYLES = {"problem": "bold red", "warning": "yellow", "info": "cyan"}
_NAME_WIDTH = 11
_UNKNOWN = "under one of its usual names"
"""Part of the error where a field is not found, and was not named."""


@dataclass(frozen=True)
class Inspect(opt.Command):
    """Show what is in a file: sizes, columns, ends, time, and what looks wrong.

    Several paths are read as one dataset. Of a table whose columns have no usual
    names, it lists the columns, to choose --obs and --action from. Nothing is
    changed. Of policies, it shows which columns they take and give, in order.

    Examples:
      puorl inspect hopper-medium.hdf5
      puorl inspect 'logs/*.csv' --obs 'pos_*' --episode trip --time clock
      puorl inspect logs.parquet --labelled 'checked == 1' --json > logs.json
      puorl inspect run/policies/seed-0.safetensors
    """

    paths: opt.Paths
    """Files, globs, folders of Parquet or Minari, of puorl filter, or one of puorl split; or files
    of policies."""
    labelled: opt.Labelled = None
    """Rows known to be the target's: a condition, or a file, as for puorl filter."""
    data: opt.DataOptions = opt.DataOptions()
    scale: opt.ScaleOptions = opt.ScaleOptions()

    def run(self) -> None:
        """Read, inspect, print."""
        if self.paths and all(path.endswith(".safetensors") for path in self.paths):
            self._policies()
            return
        try:
            seen = self._inspect()
        except DataError as error:
            if _UNKNOWN in str(error):
                with contextlib.suppress(DataError):  # the first error says more
                    self._show_columns()
            raise
        if self.data.missing is not None:
            seen = replace(seen, findings=tuple(find(seen, leaves_out=True)))
        self.answer(seen.to_dict(), *_lines(seen))

    def _inspect(self) -> Inspection:
        data = self.data
        if data.missing is None:
            data = replace(data, missing="drop")  # what is missing is shown, and no reason to stop
        names = data.arguments()
        has_own = len(self.paths) == 1 and is_split(self.paths[0])
        reason = None if has_own else self.scale.reason(self.paths)
        if reason is not None:
            return self._stream(names, reason)
        if self.labelled is None and not has_own:
            return inspect(data.load(self.paths))
        known = read_labels(self.paths, self.labelled, require_both=False, **names)
        return inspect(known.pool)

    def _show_columns(self) -> None:
        """List the columns of a table whose fields have no usual names."""
        is_remote = any("://" in path for path in self.paths)
        path = Path() if is_remote else expand(list(self.paths))[0]
        found = format_of(path)
        if self.json or found is None or found.name not in ("csv", "parquet"):
            return
        columns = raw_columns(path, is_parquet=found.name == "parquet", encoding=self.data.encoding)
        table = Table("column", "kind", "empty", "examples", box=box.SIMPLE_HEAD, pad_edge=False)
        for name, kind, examples, num_empty in columns:
            table.add_row(*map(Text, (name, kind, f"{num_empty:,}", ", ".join(examples))))
        head = f"{path} (its first {MOST_RAW_ROWS:,} rows at most):"
        last = "say which is which: --obs A,B --action C,D, and --reward, --episode, --time NAME"
        self.answer({}, head, table, last)

    def _policies(self) -> None:
        """Show what policies take and give."""
        policies = {path: Policy.load(path) for path in self.paths}
        lines: list[Any] = []
        for path, policy in policies.items():
            facts = (
                (k.replace("_", " "), ", ".join(map(str, v)) if isinstance(v, list) else str(v))
                for k, v in policy.describe().items()
            )
            lines += [Text(path, style="bold"), opt.facts_table(facts, _NAME_WIDTH)]
        found = [{"policy": path} | policy.describe() for path, policy in policies.items()]
        self.answer({"policies": found}, *lines)

    def _stream(self, names: dict[str, Any], reason: str) -> Inspection:
        """Inspect data partition by partition."""
        from puorl.scale.inspection import inspect as inspect_lazy

        if self.labelled is not None and not is_condition(self.labelled):
            raise ConfigError("--labelled: expected a condition where data is read in partitions")
        console = opt.make_console(json=True)
        opened = self.scale.open(self.paths, reason, console, label=self.labelled, **names)
        with partition_folder(cache_folder() / "inspect", {"data": opened.fingerprint}) as parts:
            return inspect_lazy(opened, parts, self.scale.make(), progress=True)


def _lines(seen: Inspection) -> Iterator[RenderableType]:
    """Yield an inspection as texts and tables."""
    size = f"{describe_size(seen.num_bytes)} in memory"
    first, *others = seen.source
    more = f" and {len(others):,} more" if others else ""
    source = f"{first}{more} ({seen.format}, {size})"
    yield Text.assemble((f"{'source':<{_NAME_WIDTH}}", "bold"), "  ", source)
    yield opt.facts_table(_facts(seen), _NAME_WIDTH)
    yield ""
    yield _column_table(seen.columns)
    yield from (_hanging("note", "dim", note) for note in seen.notes)
    yield from (_hanging(each.level, _STYLES[each.level], each.text) for each in seen.findings)
    if not seen.findings:
        yield Text("nothing conspicuous", style="green")


def _facts(seen: Inspection) -> Iterator[tuple[str, str]]:
    yield "fingerprint", seen.fingerprint
    yield "rows", f"{seen.num_rows:,} ({seen.num_duplicated_rows:,} of them copies of others)"
    if seen.episodes is None:
        yield "episodes", "unknown"
    else:
        e = seen.episodes
        lengths = f"rows each: min {e.shortest:,}, median {e.median:,g}, max {e.longest:,}"
        yield "episodes", f"{e.count:,} ({lengths})"
    yield "sizes", f"obs {seen.obs_dim}, action {seen.action_dim}, {seen.dtype}"
    ends = seen.ends
    yield "ends", f"{ends.num_terminal:,} terminal, {ends.num_timeout:,} timeout"
    if seen.continuity is not None:
        c = seen.continuity
        yield (
            "next_obs",
            f"differs from the following obs in {c.num_different:,} of {c.num_pairs:,}",
        )
    if seen.clock is not None and seen.clock.step_median is not None:
        k = seen.clock
        text = f"median step {k.step_median:g}, {k.num_gaps:,} gaps, {k.num_resets:,} resets, "
        yield "time", text + f"{k.num_duplicated:,} equal"
    if seen.labels is not None:
        n = seen.labels
        episodes = "" if n.num_episodes is None else f", in {n.num_episodes:,} episodes"
        yield "labelled", f"{n.num_rows:,} rows ({n.fraction:.2%}){episodes}"
    if seen.missing:
        yield "missing", ", ".join(seen.missing)


def _column_table(columns: tuple[ColumnProfile, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("column", overflow="fold")
    for name in ("min", "max", "mean", "std"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("remarks", overflow="fold")
    for c in columns:
        values = (c.min, c.max, c.mean, c.std)
        numbers = ["" if value is None else f"{value:.4g}" for value in values]
        table.add_row(Text(c.name), *numbers, Text("; ".join(c.remarks())))
    return table


def _hanging(label: str, style: str, text: str) -> Table:
    """Return a label and a text whose wrapped lines are aligned."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=8)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style=style), Text(text))
    return grid
