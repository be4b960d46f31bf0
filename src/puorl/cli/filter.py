"""`puorl filter`: keep the target's rows, and say how sure that is."""

import dataclasses
import json
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from puorl import __version__
from puorl.cli.filter_files import MARKER, write_files
from puorl.cli.filter_needs import check_needs
from puorl.cli.labels import KnownRows, read_known_rows
from puorl.cli.main import INTERRUPTED
from puorl.cli.options import DataOptions, Flag, Paths
from puorl.core import hashing
from puorl.core.errors import DataError, require
from puorl.core.run_folder import RunFolder, run_folder
from puorl.data.formats import LABELLED, expand
from puorl.data.split import PUSplit
from puorl.pu.units import Unit, group, parse_unit

if TYPE_CHECKING:  # importing these loads jax
    from puorl.pu.config import FilterConfig
    from puorl.pu.filter import DomainFilter
    from puorl.pu.report import FilterReport

_SUFFIXES = {"hdf5": ".hdf5", "npz": ".npz", "parquet": ".parquet", "minari": ""}
_PACKAGES = {"parquet": "pyarrow", "minari": "minari"}


@dataclass(frozen=True)
class Filter:
    """Keep the rows that are the target's, learnt from a few that are known to be.

    Writes a folder: the kept rows, keep.csv (which rows or episodes, with scores), model/,
    report.html, report.json and settings.json. A killed run goes on when the same command is given
    again, and gives the same result.

    The known rows (--labelled) are named in one of three ways:
      - a condition over the columns: "robot == 'A7' and checked == 1"
      - a list, .txt or .csv, one a line (a second column 'score' does no harm, so that keep.csv is
        one). Its first line says what is listed: row (numbers from 0), or source_row (numbers in
        the file, from 0, header not counted) where loading drops rows, episode (ids), or a text
        column that names each episode.
      - a file of target rows and no others: any other file, or ./folder, that can be loaded

    Examples:
      puorl filter logs.csv --labelled 'checked == 1' --unit episode --out kept
      puorl filter 'logs/*.parquet' --labelled checked.csv --out kept
      puorl filter mixed.hdf5 --labelled ours.hdf5 --mode soft --out weighted
      puorl filter mixed.hdf5 --labelled 'robot == 2' --no-report --out trial
    """

    paths: Paths
    """Files, globs, or folders of Parquet or Minari."""
    labelled: Annotated[str, tyro.conf.arg(metavar="EXPR|FILE")]
    """Rows known to be the target's: a condition, or a file, as said above."""
    out: Path
    """Folder to write."""
    unit: Annotated[str, tyro.conf.arg(metavar="UNIT")] = "transition"
    """What to decide about: transition, window:50 (steps), episode, or column:NAME."""
    preset: Literal["default", "thorough", "paper"] = "default"
    """Ours, ours with larger models (wants a GPU), or as published."""
    mode: Literal["hard", "top_alpha", "soft"] = "hard"
    """Keep likely target rows; the estimated share of them; or all, with a column 'weight'."""
    inputs: Literal["sas", "sar", "sars"] = "sas"
    """What to judge by: (s, a, s') for other dynamics, (s, a, r) for another reward, or both."""
    seed: int = 0
    """Seed of parts, initial weights and batches."""
    out_format: Literal["auto", "hdf5", "npz", "parquet", "minari"] = "auto"
    """Format of the kept rows; auto is the data's own where we can write it, else hdf5."""
    no_report: Flag = False
    """Skip the checks: saves 40 to 70 % of the time, but nothing says how good the choice is."""
    force: Flag = False
    """Replace the folder if it exists; drop an unfinished run with other settings."""
    json: Flag = False
    """Print one JSON object on stdout, with the whole report, and nothing else."""
    data: DataOptions = DataOptions()

    def run(self) -> None:
        """Read, fit, judge, write, and say what was made."""
        run: RunFolder | None = None
        try:
            with run_folder(self.out, force=self.force, marker=MARKER) as run:
                report, written = self._work(run)
        except KeyboardInterrupt:
            if run is None or not run.has_progress:
                raise
            sys.stderr.write("puorl: interrupted; the same command goes on from there\n")
            raise SystemExit(INTERRUPTED) from None
        except (OSError, DataError) as error:
            # A full disk, say: what is done stays, and the user may count on it.
            by_system = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
            if run is None or not by_system or not run.has_progress:
                raise
            raise DataError(f"{error}; once repaired, the same command goes on") from error
        if self.json:
            told = None if report is None else report.to_dict()
            content = {"folder": str(self.out), "files": written, "report": told}
            sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
        else:
            _show(report, self.out, written)

    def _work(self, run: RunFolder) -> tuple["FilterReport | None", dict[str, str]]:
        """Fill the run's folder; the report if one is wanted, and what each file holds."""
        console = Console(stderr=self.json, highlight=False, markup=False, soft_wrap=True)
        unit = parse_unit(self.unit)  # wrong words are refused before anything is read
        kept_name = self._kept_name()
        known = read_known_rows(self.paths, self.data, self.labelled)
        for note in known.pool.provenance.notes:
            console.print(Text(f"note: {note}", style="dim"))
        check_needs(known.pool, unit, self.inputs)
        split = self._split(known, unit, console)
        flt, config = self._filter()
        settings = self._settings(split, config)
        if run.begin(_basis(settings)):
            console.print(f"going on from an unfinished run ({run.work})")
        console.print("learning ...")
        flt.fit(split, seed=self.seed, progress=True, checkpoint=run.checkpoint("fit"))
        report = None
        if not self.no_report:
            console.print("checking ...")
            report = flt.report(
                split, seed=self.seed, progress=True, checkpoint=run.checkpoint("report")
            )
            report = dataclasses.replace(report, settings={**report.settings, **self._made_from()})
        else:
            unchecked = f"alpha (target rows among the unlabelled): {flt.alpha_.value:.1%}; this"
            console.print(f"{unchecked} and the choice were not checked")
        written = write_files(
            run.result,
            flt,
            split,
            known,
            report,
            unit=self.unit,
            kept_name=kept_name,
            settings=settings,
        )
        return report, written

    def _kept_name(self) -> str:
        """The name chooses the format; asked for before the work, so that no hour is lost."""
        chosen = self.data.format if self.out_format == "auto" else self.out_format
        if chosen is None:
            paths = expand(list(self.paths))
            found = {"" if path.is_dir() else path.suffix.lower() for path in paths}
            chosen = next((name for name, suffix in _SUFFIXES.items() if {suffix} == found), None)
        if chosen not in _SUFFIXES:
            chosen = "hdf5"
        if chosen in _PACKAGES:
            require(_PACKAGES[chosen], extra=chosen, purpose=f"writing kept rows as {chosen}")
        return f"kept{_SUFFIXES[chosen]}"

    def _split(self, known: KnownRows, unit: Unit, console: Console) -> PUSplit:
        labelled_by = "episode" if unit.kind in ("window", "episode") else "transition"
        split = PUSplit.from_mask(
            known.pool, known.mask, sampling=known.sampling, unit=labelled_by, seed=self.seed
        )
        text = f"{len(split.labelled):,} labelled and {len(split.unlabelled):,} unlabelled rows"
        console.print(f"{text} ({known.sampling}-sample), unit {self.unit}")
        scattered = 0 if unit.kind == "transition" else group(split, unit, self.seed).num_scattered
        if scattered:
            text = f"warning: {scattered:,} unlabelled rows share their {unit.kind} with labelled "
            console.print(Text(f"{text}ones: they count as known, and are kept", style="yellow"))
        return split

    def _filter(self) -> tuple["DomainFilter", "FilterConfig"]:
        """The filter, and what its preset and inputs come to."""
        from puorl.pu.config import PRESETS
        from puorl.pu.filter import DomainFilter

        preset = PRESETS[self.preset]
        features = dataclasses.replace(preset.features, inputs=self.inputs)
        config = dataclasses.replace(preset, features=features)
        own = None if config == preset else config
        return DomainFilter(self.preset, mode=self.mode, unit=self.unit, config=own), config

    def _settings(self, split: PUSplit, config: "FilterConfig") -> dict[str, Any]:
        import jax

        columns = {k: v for k, v in split.pool.columns.items() if k != LABELLED}
        return {
            "puorl_filter_run": 1,
            "arguments": self._arguments(),
            "versions": {
                "puorl": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "jax": jax.__version__,
                "device": jax.default_backend(),
            },
            "fingerprints": {
                "data": dataclasses.replace(split.pool, columns=columns).fingerprint,
                "labels": hashing.of_arrays({"labelled": split.labelled}),
                "split": split.fingerprint,
                "config": hashing.of_settings(dataclasses.asdict(config)),
            },
        }

    def _made_from(self) -> dict[str, Any]:
        """What a reader of the report needs to find its data again."""
        return {"data": list(self.paths), "labelled": self.labelled, "version": __version__}

    def _arguments(self) -> dict[str, Any]:
        arguments = dataclasses.asdict(self)
        del arguments["json"]  # of the telling, not of the run
        fields = {name: value for name, value in arguments.pop("data").items() if value is not None}
        return {**arguments, "paths": list(self.paths), "out": str(self.out), "data": fields}


def _basis(settings: dict[str, Any]) -> dict[str, str | int]:
    """All that decides what is learnt; where it differs, a run cannot go on from another."""
    named = {
        "arguments": ("unit", "preset", "mode", "inputs", "seed"),
        "versions": ("puorl", "numpy", "jax", "device"),
        "fingerprints": ("data", "labels", "config"),
    }
    return {name: settings[group][name] for group, names in named.items() for name in names}


def _show(report: "FilterReport | None", out: Path, written: dict[str, str]) -> None:
    console = Console(highlight=False)
    if report is not None:
        from puorl.pu.report_text import as_text

        console.print(as_text(report))
    for name, text in written.items():
        console.print(Text(f"{out / name}: {text}"), soft_wrap=True)
