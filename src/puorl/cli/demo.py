"""`puorl demo`: run the whole method at small scale, with a page of results."""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from puorl.cli import options as opt
from puorl.core.errors import ConfigError, DataError, require
from puorl.core.files import atomic_path, check_reachable, make_folder
from puorl.core.formatting import describe_time
from puorl.core.run_folder import REPORT_PAGE as PAGE

RESULTS = "results.json"
_LARGEST_SEED = 2_000_000  # a thousand training seeds for each must fit 31 bits


@dataclass(frozen=True)
class Demo(opt.Command):
    """Run the whole method at small scale: data, filter, training, result.

    Records a fleet of robots in the simulator, some with a weak motor, lets the
    filter find the sound ones from one that is known, compares its report with
    the truth, trains policies on four choices of rows (OLP, Sharing-All, PU,
    Oracle) and evaluates them. Needs no GPU and no download; a few minutes on
    two cores. The folder of an earlier demo is renamed, not replaced.

    Examples:
      puorl demo
      puorl demo --seed 1 --out second
      puorl demo --json > results.json
    """

    out: Path = Path("demo")
    """Folder to make: report.html, units.csv, results.json and the policies."""
    seed: opt.Int = 0
    """Seed of robots, runs, filter and training; the same seed gives the same results."""

    def run(self) -> None:
        """Run all stages; the folder appears when all of them are done."""
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise ConfigError(f"--seed: expected 0 to {_LARGEST_SEED:,}, got {self.seed}")
        require("mujoco", extra="sim", purpose="puorl demo")
        out = self.out.resolve() if self.out.name in ("", "..") else self.out
        _check_old(out)
        make_folder(out.parent)
        self.compute_synchronously()
        # Made first, so that a folder that cannot be written is refused before the work.
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as work:
            made = Path(work) / "made"
            made.mkdir()
            console = Console(stderr=self.json, highlight=False, markup=False)
            results = self._run_stages(made, console)
            moved = _rename_old(out)
            with atomic_path(out) as part:
                os.replace(made, part)
        if moved is not None:
            console.print(f"{out} was there already: renamed to {moved}", soft_wrap=True)
        text = f"open {out / PAGE} in a browser; numbers are in {out / RESULTS}"
        self.answer(results, text)

    def _run_stages(self, folder: Path, console: Console) -> dict[str, Any]:
        """Run and print each stage, and fill the folder; return all results."""
        from puorl.demo import page, study
        from puorl.pu.report_text import as_text

        began = time.perf_counter()
        settings = study.SETTINGS.seeded(self.seed)
        _heading(f"puorl demo, seed {self.seed}", console)
        console.print(opt.columns_table(("scaled down", "demo", "paper"), page.sizes(settings)))
        data = study.make_data(settings, show=True)
        _heading(f"1  data ({describe_time(data.seconds)})", console)
        _paragraph(page.question(settings, data), console)
        filtered = study.fit_filter(settings, data, show=True)
        _heading(f"2  filter ({describe_time(filtered.seconds)})", console)
        _paragraph(f"{page.filter_settings(filtered)} Its report, from one known robot:", console)
        console.print(as_text(filtered.report))
        _paragraph(f"{page.decisions(data, filtered)}. The truth is known here:", console)
        header = ("", "estimate", "95 % interval", "truth", "truth is")
        console.print(opt.columns_table(header, page.estimates(filtered)))
        trained = study.train(settings, data, filtered, show=True)
        _heading(f"3  training ({describe_time(trained.seconds)})", console)
        for name, title in study.TITLES.items():
            _paragraph(f"{title}: {page.MEANINGS[name]}", console)
        for line in page.given_up(trained):
            console.print(Text(f"given up: {line}", style="yellow"))
        header = ("method", "rows", "truly sound", "score", "PU minus it")
        table = opt.columns_table(header, page.results(trained), bold=study.TITLES["pu"])
        over = f"Means and 95 % intervals over {settings.num_seeds} policies"
        table.caption = f"{page.SCORE} {over}, {page.evaluation(settings)}."
        table.caption_justify = "left"
        console.print(table)
        _paragraph(page.conclusion(trained), console, style="bold")
        command = f"puorl demo --seed {self.seed}"
        results = page.write(folder, settings, data, filtered, trained, command=command)
        console.print(f"done in {describe_time(time.perf_counter() - began)}")
        return results


def _check_old(folder: Path) -> None:
    """Refuse a folder of other files, which must not be renamed."""
    check_reachable(folder)
    if not folder.exists():
        return
    ours = folder.is_dir() and ((folder / RESULTS).is_file() or not any(folder.iterdir()))
    if not ours:
        raise DataError(
            f"{folder}: expected nothing, or the folder of an earlier demo (with {RESULTS}); "
            "choose another --out"
        )


def _rename_old(folder: Path) -> Path | None:
    """Rename an existing folder to the first free name folder-1, folder-2, ..."""
    if not folder.exists():
        return None
    number = 1
    while (free := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    os.replace(folder, free)
    return free


def _heading(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, style="bold cyan"))


def _paragraph(text: str, console: Console, *, style: str = "") -> None:
    from puorl.pu.report_text import WIDTH

    console.print(Text(text, style=style), width=WIDTH)
