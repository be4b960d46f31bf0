"""`puorl bench report`: tables, pictures and answers from a store of runs."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.text import Text

from puorl.bench.report import Report, make_report, to_json, to_latex, to_markdown
from puorl.bench.report_page import as_page
from puorl.bench.store import Store
from puorl.bench.tables import as_rich
from puorl.cli.options import Flag
from puorl.core.errors import ConfigError
from puorl.core.files import atomic_path, check_free

_WRITERS = {
    "markdown": (to_markdown, "report.md"),
    "latex": (to_latex, "report.tex"),
    "html": (as_page, "report.html"),
}
_PIPE_WIDTH = 180
"""Columns where neither COLUMNS nor a terminal sets the width."""


@dataclass(frozen=True)
class BenchReport:
    """Show the results of a benchmark: tables and figures.

    Reads the rows that puorl bench run left, and nothing else; a store that still grows may be
    read at any time. text, markdown and latex are printed unless --out names a file; html is
    written to report.html beside the rows, and all writes report.md, report.tex and report.html
    there, or into the folder --out.

    Examples:
      puorl bench report results
      puorl bench report results --format markdown --out results.md
      puorl bench report results --reference paper --format all --out tables --force
      puorl bench report results --json > results.json
    """

    results: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RESULTS")]]
    """Folder of puorl bench run, or a .jsonl file of its rows."""
    reference: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """CSV file of numbers to show beside; paper for the paper's."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """File to write; for all, the folder."""
    format: Literal["text", "markdown", "latex", "html", "all"] = "text"
    """Of what is printed or written."""
    json: Flag = False
    """Print all numbers as one JSON object, and nothing else."""
    force: Flag = False
    """Replace files that exist."""

    def run(self) -> None:
        """Read, compute, print or write."""
        places = self._places()
        for path in places.values():
            check_free(path, force=self.force)  # before the work
        report = self._report()
        if self.json:
            sys.stdout.write(to_json(report))
        elif self.format == "text":
            self._show(report, places.get("text"))
        elif not places:
            sys.stdout.write(_WRITERS[self.format][0](report))
        for name in places.keys() & _WRITERS.keys():
            with atomic_path(places[name], force=self.force) as part:
                part.write_text(_WRITERS[name][0](report), encoding="utf-8")
        console = Console(highlight=False, soft_wrap=True)
        for path in places.values():
            console.print(Text(f"wrote {path}"))

    def _places(self) -> dict[str, Path]:
        """Format to the file it goes to; nothing is in it that is to be printed."""
        if self.json:
            if self.out is not None or self.format != "text":
                raise ConfigError("--json: expected neither --out nor --format, got both ways")
            return {}
        beside = Store(self.results).path.parent
        if self.format == "all":
            folder = self.out or beside
            return {name: folder / file for name, (_, file) in _WRITERS.items()}
        if self.out is not None:
            return {self.format: self.out}
        return {"html": beside / "report.html"} if self.format == "html" else {}

    def _report(self) -> Report:
        return make_report(self.results, reference=self.reference)

    def _show(self, report: Report, path: Path | None) -> None:
        if path is None:
            _print(report, Console(highlight=False, width=_width()))
            return
        with atomic_path(path, force=self.force) as part, open(part, "w", encoding="utf-8") as file:
            _print(report, Console(file=file, highlight=False, width=_PIPE_WIDTH))


def _width() -> int:
    """What COLUMNS says, or the terminal."""
    return shutil.get_terminal_size((_PIPE_WIDTH, 0)).columns


def _print(report: Report, console: Console) -> None:
    console.print(Text(report.lead))
    console.print()
    for table in report.tables:
        console.print(as_rich(table, console.width))
    for note in report.results.notes:
        console.print(Text(f"note: {note}", style="dim"))
