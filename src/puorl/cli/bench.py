"""`puorl bench`: run the paper's benchmark, and report what was found."""

import io
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puorl.bench.store import Store
from puorl.bench.suites import find_suite, suite_names
from puorl.cli import options as opt
from puorl.cli.main import help_text
from puorl.core.errors import ConfigError, require
from puorl.core.files import check_free
from puorl.core.formatting import check_positive, describe_time
from puorl.core.run_folder import announce_resume

if TYPE_CHECKING:  # importing these loads jax
    from puorl.bench.plan import Plan
    from puorl.bench.report import Report
    from puorl.core.tasks import Workers

_FILES = {
    "markdown": "report.md",
    "latex": "report.tex",
    "html": "report.html",
    "csv": "report.csv",
}
"""Format of a report to its usual file."""
_PIPE_WIDTH = 180
"""Columns where neither COLUMNS nor a terminal sets the width."""


@dataclass(frozen=True)
class BenchRun(opt.Command):
    """Run what is missing of a suite: collect, prepare, train, evaluate.

    Each run appends one row to OUT/runs.jsonl; rows are never rewritten. After an
    interruption the same command resumes; several processes may share one OUT. A
    run that fails becomes a row with an error and is repeated only with --retry.

    Examples:
      puorl bench run smoke --seeds 2 --out scratch/smoke
      puorl bench run core --seeds 5 --out results --dry-run
      puorl bench run core --seeds 5 --out results
      puorl bench run paper --only 'hopper iql' --seeds 5 --out results
      puorl bench run paper --only 'body_mass td3_bc,mixture td3_bc' --out results
      puorl bench run core --seeds 2 --split-seeds 3 --out results
      puorl bench run control+core --seeds 5 --lanes 80 --out results
      puorl bench run paper --engine ray --num-gpus 1 --out /shared/paper
    """

    suite: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="SUITE")]]
    """Part of the grid; puorl bench list shows them. Several are joined by +."""
    out: Path
    """Folder of results; it is made, or added to."""
    seeds: opt.Int = 5
    """Training seeds of every method, from 0, on the same split."""
    split_seeds: opt.Int = 1
    """Split seeds, from 0; each draws other labels, on which every method is trained."""
    only: Annotated[str, opt.unset("TEXT")] = ""
    """Keep runs whose setting, learner and method contain all these words; commas mean or."""
    steps: opt.OptionalCount = None
    """Updates of every training, instead of the suite's."""
    lanes: opt.OptionalInt = None
    """Most trainings side by side, also of several settings; 40, on a CPU of one setting only."""
    workers: opt.OptionalInt = None
    """Cores that collect data; all by default."""
    retry: opt.Flag = False
    """Also repeat runs that ended in an error."""
    dry_run: opt.Flag = False
    """Print what is to do and how long it may take, and do nothing."""
    where: opt.EngineOptions = opt.EngineOptions()

    def run(self) -> None:
        """Plan, run, and print what was done."""
        engine = self.where.tasks()
        check_positive("--workers", self.workers)
        check_positive("--lanes", self.lanes)
        suite = find_suite(self.suite)
        require("mujoco", extra="sim", purpose="puorl bench run")
        self.compute_synchronously()
        if engine is not None:
            opt.keep_off_gpus()
        from puorl.bench.plan import make_plan
        from puorl.bench.runner import survey

        plan = make_plan(
            suite,
            seeds=self.seeds,
            split_seeds=self.split_seeds,
            only=self.only,
            steps=self.steps,
        )
        ahead = survey(plan, self.out, retry=self.retry, lanes=self.lanes)
        console = self.console
        console.print(f"{plan.name}: {ahead}")
        if self.dry_run:
            console.print(self._cells(plan))
            self._answer(asdict(ahead))
            return
        self._work(plan, engine, console)

    def _work(self, plan: "Plan", engine: "Workers | None", console: Console) -> None:
        from puorl.bench.runner import run

        with announce_resume(lambda: True):
            done = run(
                plan,
                self.out,
                retry=self.retry,
                lanes=self.lanes,
                workers=self.workers or os.cpu_count() or 1,
                engine=engine,
                show=True,
                on_message=lambda line: console.print(line),
            )
        parts = [f"{done.num_trained} trained", f"{done.num_copied} the same as another"]
        if done.num_failed:
            parts.append(f"{done.num_failed} failed (--retry runs them again)")
        console.print(f"{self.out}: {', '.join(parts)}, in {describe_time(done.seconds)}")
        self._answer(asdict(done), f"puorl bench report {self.out} shows the results")

    def _cells(self, plan: "Plan") -> Table:
        from puorl.bench.plan import missing

        todo = {run.id for run in missing(plan.runs, Store(self.out).latest())}
        table = Table("setting", "learner", "split", "runs", "to do", box=None)
        for cell in plan.cells:
            runs = plan.runs_of(cell)
            left = sum(run.id in todo for run in runs)
            where = str(cell.setting.split_seed)
            table.add_row(cell.setting.name, cell.learner.name, where, str(len(runs)), str(left))
        return table

    def _answer(self, content: dict[str, Any], *lines: str) -> None:
        self.answer({"suite": self.suite, "out": str(self.out), **content}, *lines)


@dataclass(frozen=True)
class BenchList(opt.Command):
    """List the suites and their sizes.

    Examples:
      puorl bench list
      puorl bench list --json
    """

    def run(self) -> None:
        """Print a line for every suite."""
        known = [find_suite(name) for name in suite_names()]
        table = Table("suite", "settings", "runs a seed", "updates", "what", box=None)
        for suite in known:
            runs = sum(len(part.methods) for part in suite.parts)
            updates = f"{suite.budget.steps:,}"
            table.add_row(suite.name, str(len(suite.parts)), str(runs), updates, suite.description)
        self.answer({suite.name: suite.to_dict() for suite in known}, table)


@dataclass(frozen=True)
class BenchReport(opt.Command):
    """Show the results of a benchmark: tables and figures.

    Reads the rows of puorl bench run, which may still be running. text, markdown,
    latex and csv (the scores) are printed unless --out names a file; html is
    written to report.html next to the rows, and all writes report.md, report.tex,
    report.html and report.csv there, or into the folder --out.

    Examples:
      puorl bench report results
      puorl bench report results --format markdown --out results.md
      puorl bench report results --reference paper --format all --out tables --force
      puorl bench report results --json > results.json
    """

    results: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RESULTS")]]
    """Folder of puorl bench run, or a .jsonl file of its rows."""
    reference: opt.OptionalPath = None
    """CSV file of published numbers to compare with; paper for the paper's."""
    out: opt.OptionalPath = None
    """File to write; for all, the folder."""
    format: Literal["text", "markdown", "latex", "html", "csv", "all"] = "text"
    """Format to print or write."""
    force: opt.Flag = False
    """Replace files that exist."""

    def run(self) -> None:
        """Read, compute, print or write."""
        places = self._places()
        for path in places.values():
            check_free(path, force=self.force)  # before the work
        from puorl.bench.report import make_report, to_json

        report = make_report(self.results, reference=self.reference)
        if self.json:
            sys.stdout.write(to_json(report))
        elif not places and self.format == "text":
            width = shutil.get_terminal_size((_PIPE_WIDTH, 0)).columns
            _print(report, opt.SafeConsole(highlight=False, width=width))
        elif not places:
            sys.stdout.write(_written(report, self.format))
        for name, path in places.items():
            opt.write_page(path, _written(report, name), force=self.force)
            self.console.print(f"wrote {path}")

    def _places(self) -> dict[str, Path]:
        """Map each format that is written to its file; a format that is printed has none."""
        if self.json:
            if self.out is not None or self.format != "text":
                raise ConfigError("--json: expected neither --out nor --format, got both ways")
            return {}
        beside = Store(self.results).path.parent
        if self.format == "all":
            folder = self.out or beside
            return {name: folder / file for name, file in _FILES.items()}
        if self.out is not None:
            return {self.format: self.out}
        return {"html": beside / "report.html"} if self.format == "html" else {}


_Command = (
    Annotated[BenchRun, tyro.conf.subcommand("run", description=help_text(BenchRun))]
    | Annotated[BenchReport, tyro.conf.subcommand("report", description=help_text(BenchReport))]
    | Annotated[BenchList, tyro.conf.subcommand("list", description=help_text(BenchList))]
)


@dataclass(frozen=True)
class Bench:
    """Run the paper's benchmark, or a part of it, and report the results.

    puorl bench run --help, report --help and list --help show their options.

    Examples:
      puorl bench list
      puorl bench run core --seeds 5 --out results
      puorl bench report results --reference paper
    """

    command: tyro.conf.OmitSubcommandPrefixes[_Command]

    def run(self) -> None:
        """Run the command that was chosen."""
        self.command.run()


def _written(report: "Report", name: str) -> str:
    """Return the report in one of the formats of files."""
    from puorl.bench.report import to_csv, to_latex, to_markdown
    from puorl.bench.report_page import as_page

    if name == "text":
        file = io.StringIO()
        _print(report, opt.SafeConsole(file=file, highlight=False, width=_PIPE_WIDTH))
        return file.getvalue()
    writers = {"markdown": to_markdown, "latex": to_latex, "html": as_page, "csv": to_csv}
    return writers[name](report)


def _print(report: "Report", console: Console) -> None:
    from puorl.bench.tables import as_rich

    console.print(Text(report.lead))
    console.print()
    for table in report.tables:
        console.print(as_rich(table, console.width))
    opt.show_notes(report.results.notes, console)
