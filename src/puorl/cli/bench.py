"""`puorl bench`: run the benchmark, say what there is to run, report what was found."""

import json
import os
import sys
from dataclasses import asdict, dataclass
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from puorl.bench.suites import Part, find_suite, suite_names
from puorl.cli.bench_report import BenchReport
from puorl.cli.main import INTERRUPTED
from puorl.cli.options import Count, Flag
from puorl.core.errors import ConfigError, DataError, require

if TYPE_CHECKING:  # importing these loads jax
    from puorl.bench.plan import Plan, PlanStatus

_GOES_ON = "the same command goes on from there"
_DAY = 86_400
_Steps = Annotated[Count | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")]
_Number = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]


@dataclass(frozen=True)
class BenchRun:
    """Run what is missing of a suite: collect, prepare, train, evaluate, append one row a run.

    Rows go to OUT/runs.jsonl and are never rewritten. A killed run goes on when the same command is
    given again; several processes may share one OUT. A run that fails becomes a row with an error
    and is not tried again without --retry.

    Examples:
      puorl bench run smoke --seeds 2 --out scratch/smoke
      puorl bench run core --seeds 5 --out results --dry-run
      puorl bench run core --seeds 5 --out results
      puorl bench run paper --only 'hopper iql' --seeds 5 --out results
      puorl bench run paper --only 'body_mass td3_bc,mixture td3_bc' --out results
      puorl bench run core --seeds 2 --split-seeds 3 --out results
      puorl bench run control+core --seeds 5 --lanes 80 --out results
    """

    suite: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="SUITE")]]
    """Which part of the grid; puorl bench list shows them. Several are joined by +."""
    out: Path
    """Folder of results; it is made, or added to."""
    seeds: int = 5
    """Training seeds of every method, from 0, on the same split."""
    split_seeds: int = 1
    """Split seeds, from 0; each draws its labels anew, and every method learns anew."""
    only: Annotated[str, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = ""
    """Keep runs in whose setting, learner and method all these words occur; commas mean or."""
    steps: _Steps = None
    """Updates of every training, instead of the suite's."""
    lanes: _Number = None
    """Most trainings side by side, of several settings too; 40, on a CPU of one setting only."""
    workers: _Number = None
    """Cores that collect data; all by default."""
    retry: Flag = False
    """Also run again what ended in an error."""
    dry_run: Flag = False
    """Say what is to do and how long it may take, and do nothing."""
    json: Flag = False
    """Print one JSON object on stdout and nothing else."""

    def run(self) -> None:
        """Plan, tell, run, and say what came of it."""
        for name, count in (("--workers", self.workers), ("--lanes", self.lanes)):
            if count is not None and count < 1:
                raise ConfigError(f"{name}: expected 1 or more, got {count}")
        suite = find_suite(self.suite)
        require("mujoco", extra="sim", purpose="puorl bench run")
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
        console = Console(stderr=self.json, highlight=False, markup=False, soft_wrap=True)
        console.print(_told(plan, ahead))
        if self.dry_run:
            console.print(self._cells(plan))
            self._print_json(asdict(ahead))
            return
        self._work(plan, console)

    def _work(self, plan: "Plan", console: Console) -> None:
        from puorl.bench.runner import run

        try:
            done = run(
                plan,
                self.out,
                retry=self.retry,
                lanes=self.lanes,
                workers=self.workers or os.cpu_count() or 1,
                show=True,
                on_message=lambda line: console.print(line),
            )
        except KeyboardInterrupt:
            sys.stderr.write(f"puorl: interrupted; {_GOES_ON}\n")
            raise SystemExit(INTERRUPTED) from None
        except (OSError, DataError) as error:
            if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
                raise DataError(f"{error}; once repaired, {_GOES_ON}") from error
            raise
        parts = [f"{done.num_trained} trained", f"{done.num_copied} the same as another"]
        if done.num_failed:
            parts.append(f"{done.num_failed} failed (--retry runs them again)")
        console.print(f"{self.out}: {', '.join(parts)}, in {_clock(done.seconds)}")
        if not self.json:
            console.print(f"puorl bench report {self.out} shows what was found")
        self._print_json(asdict(done))

    def _cells(self, plan: "Plan") -> Table:
        from puorl.bench.plan import missing
        from puorl.bench.store import Store

        todo = {run.id for run in missing(plan.runs, Store(self.out).latest())}
        table = Table("setting", "learner", "split", "runs", "to do", box=None)
        for cell in plan.cells:
            runs = plan.runs_of(cell)
            left = sum(run.id in todo for run in runs)
            where = str(cell.setting.split_seed)
            table.add_row(cell.setting.name, cell.learner.name, where, str(len(runs)), str(left))
        return table

    def _print_json(self, content: dict[str, Any]) -> None:
        if self.json:
            told = {"suite": self.suite, "out": str(self.out), **content}
            sys.stdout.write(json.dumps(told, indent=2, allow_nan=False) + "\n")


@dataclass(frozen=True)
class BenchList:
    """Show the suites: what is in them, and how much that is.

    Examples:
      puorl bench list
      puorl bench list --json
    """

    json: Flag = False
    """Print one JSON object on stdout and nothing else."""

    def run(self) -> None:
        """Print a line for every suite."""
        known = [find_suite(name) for name in suite_names()]
        if self.json:
            content = {
                suite.name: {
                    "description": suite.description,
                    "steps": suite.budget.steps,
                    "parts": [_as_json(part) for part in suite.parts],
                }
                for suite in known
            }
            sys.stdout.write(json.dumps(content, indent=2) + "\n")
            return
        table = Table("suite", "settings", "runs a seed", "updates", "what", box=None)
        for suite in known:
            runs = sum(len(part.methods) for part in suite.parts)
            updates = f"{suite.budget.steps:,}"
            table.add_row(suite.name, str(len(suite.parts)), str(runs), updates, suite.description)
        Console(highlight=False).print(table)


def _as_json(part: Part) -> dict[str, Any]:
    methods = [method.label for method in part.methods]
    return {"setting": part.setting.name, "learner": part.learner.name, "methods": methods}


_Command = (
    Annotated[BenchRun, tyro.conf.subcommand("run", description=cleandoc(BenchRun.__doc__ or ""))]
    | Annotated[
        BenchReport,
        tyro.conf.subcommand("report", description=cleandoc(BenchReport.__doc__ or "")),
    ]
    | Annotated[
        BenchList, tyro.conf.subcommand("list", description=cleandoc(BenchList.__doc__ or ""))
    ]
)


@dataclass(frozen=True)
class Bench:
    """Run the paper's benchmark, or a part of it, and report what was found.

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


def _told(plan: "Plan", ahead: "PlanStatus") -> str:
    """What is done and to do, in one line."""
    failed = f", {ahead.num_failed} of them with an error" if ahead.num_failed else ""
    done = f"{plan.name}: {ahead.num_runs:,} runs, {ahead.num_done:,} done{failed}"
    if not ahead.num_trainings:
        left = ahead.num_runs - ahead.num_done
        return f"{done}; " + (f"{left:,} to be copied" if left else "nothing to do")
    how = "by earlier groups here" if ahead.measured else "a guess, nothing was measured here yet"
    return (
        f"{done}; {ahead.num_trainings:,} trainings to do, {ahead.lane_steps:,} lane-steps, "
        f"about {_clock(ahead.seconds)} ({how})"
    )


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds; from a day on, days and hours.

    >>> [_clock(s) for s in (59.6, 86_399, 86_400, 312_943)]
    ['0:01:00', '23:59:59', '1 day 0 h', '3 days 15 h']
    """
    if round(seconds) >= _DAY:
        days, hours = divmod(round(seconds / 3600), 24)
        return f"{days:,} day{'s' * (days > 1)} {hours} h"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
