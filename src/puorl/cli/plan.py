"""`puorl plan`: say what filtering large data takes, before it is done."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from puorl.cli import options as opt
from puorl.core.formatting import describe_time
from puorl.core.resources import describe_size, num_threads


@dataclass(frozen=True)
class Plan(opt.Command):
    """Say how many rows, bytes, memory and time a filter takes, before it runs.

    The first partition is read, scored by a filter of the default size and
    written, in a process as a filter starts it; rates and memory are those.
    Rows and bytes of Parquet files are read from their ends. The time of the
    fit is computed from that of scoring (see the documentation on scale).

    Examples:
      puorl plan logs/
      puorl plan s3://fleet/rows --workers 64 --price 0.05
    """

    paths: opt.Paths
    """Files, globs, or folders of Parquet."""
    price: opt.Float = 0.0
    """Price of a core for an hour, in any currency."""
    data: opt.DataOptions = opt.DataOptions()
    scale: opt.ScaleOptions = opt.ScaleOptions()

    def run(self) -> None:
        """Measure, compute and print."""
        from puorl.scale.sizing import calibrate, make_plan, survey

        names = self.data.arguments()
        found = survey(list(self.paths), **names)
        with tempfile.TemporaryDirectory() as folder:
            rates = calibrate(found, Path(folder), **names)
        workers = num_threads(self.scale.workers)
        made = make_plan(found, rates, workers=workers, sample=self.scale.sample, price=self.price)
        kept = f"{describe_size(made.kept_bytes)} if all rows are kept"
        rows = {
            "rows": f"{made.num_rows:,} in {made.num_files:,} files of "
            f"{describe_size(made.num_bytes)}",
            "to write": kept,
            "memory": f"{describe_size(made.memory)} with {workers} workers",
            "keys": describe_time(made.seconds["keys"]),
            "sample": describe_time(made.seconds["sample"]),
            "fit": f"{describe_time(made.seconds['fit'])}, without the report",
            "scoring": describe_time(made.seconds["score"]),
            "in all": describe_time(sum(made.seconds.values())),
        }
        if self.price:
            rows["price"] = f"{made.price:.2f}, at {self.price:g} a core and hour"
        self.answer(made.to_dict(), opt.facts_table(rows.items()))
