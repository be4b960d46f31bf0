"""`puorl plan`: say what filtering large data takes, before it is done."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from puorl.cli import options as opt
from puorl.core.formatting import describe_time
from puorl.core.resources import describe_size, num_threads
from puorl.pu.units import parse_unit, uses_dynamics


@dataclass(frozen=True)
class Plan(opt.Command):
    """Say how many rows, bytes, memory and time a filter takes, before it runs.

    The first partition is read, scored by a filter of the default size and
    written, in a process as a filter starts it; rates and memory are those.
    Rows and bytes of Parquet files are read from their ends. The time of the
    fit is computed from that of scoring (see the documentation on scale); with
    --unit it is that measured on two cores of another machine.

    Examples:
      puorl plan logs/
      puorl plan logs/ --unit column:pump
      puorl plan s3://fleet/rows --workers 64 --price 0.05
    """

    paths: opt.Paths
    """Files, globs, or folders of Parquet."""
    unit: Annotated[str, tyro.conf.arg(metavar="UNIT")] = "transition"
    """What the filter decides about: transition, window:50, episode, or column:NAME."""
    price: opt.Float = 0.0
    """Price of a core for an hour, in any currency."""
    data: opt.DataOptions = opt.DataOptions()
    scale: opt.ScaleOptions = opt.ScaleOptions()

    def run(self) -> None:
        """Measure, compute and print."""
        from puorl.scale.sizing import calibrate, make_plan, survey

        names, by_units = self.data.arguments(), uses_dynamics("auto", parse_unit(self.unit))
        found = survey(list(self.paths), **names)
        with tempfile.TemporaryDirectory() as folder:
            rates = calibrate(found, Path(folder), **names)
        workers = num_threads(self.scale.workers)
        sizes: dict[str, Any] = {"workers": workers, "sample": self.scale.sample}
        made = make_plan(found, rates, **sizes, price=self.price, by_units=by_units)
        by_row = "without the report; for decisions by row, those about units (--unit) take longer"
        by_unit = "with the report, as measured on two cores elsewhere"
        kept = f"{describe_size(made.kept_bytes)} if all rows are kept"
        rows = {
            "rows": f"{made.num_rows:,} in {made.num_files:,} "
            f"file{'s' * (made.num_files != 1)} of {describe_size(made.num_bytes)}",
            "to write": kept,
            "memory": f"{describe_size(made.memory)} with {workers} workers",
            "keys": describe_time(made.seconds["keys"]),
            "sample": describe_time(made.seconds["sample"]),
            "fit": f"{describe_time(made.seconds['fit'])}, {by_unit if by_units else by_row}",
            "scoring": describe_time(made.seconds["score"]),
            "in all": describe_time(sum(made.seconds.values())),
        }
        if self.price:
            rows["price"] = f"{made.price:.2f}, at {self.price:g} a core and hour"
        self.answer(made.to_dict(), opt.facts_table(rows.items()))
