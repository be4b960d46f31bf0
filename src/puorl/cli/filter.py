"""`puorl filter`: keep the target's rows, learnt from a few known ones."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console, RenderableType

from puorl import __version__
from puorl.cli import options as opt
from puorl.core import hashing
from puorl.core.errors import ConfigError
from puorl.core.run_folder import FILTER_MARKER, RunFolder, announce_resume, run_folder
from puorl.data.dataset import Dataset
from puorl.data.formats import FORMATS, expand, load, writable
from puorl.data.labels import (
    NO_LABELS,
    LabelledRows,
    is_condition,
    is_split,
    read_labels,
    require_apart,
    require_kinds,
)
from puorl.data.split import PUSplit
from puorl.pu import result_folder
from puorl.pu.units import (
    Unit,
    count_scattered,
    describe_unusable,
    held_out_unit,
    needed_columns,
    number_units,
    parse_unit,
    unusable_units,
    uses_dynamics,
)

if TYPE_CHECKING:  # importing these loads jax
    from puorl.pu.config import FilterConfig
    from puorl.pu.filter import DomainFilter
    from puorl.pu.machines.report import MachineReport
    from puorl.pu.report import FilterReport

Evidence = Literal["dynamics", "rows"]
_Done = tuple["FilterReport | MachineReport | None", dict[str, str], dict[str, float] | None]
"""The report, what each file holds, and scores by the truth, where there are such."""


@dataclass(frozen=True)
class Filter(opt.Command):
    """Keep the rows of the target domain, learnt from a few that are known.

    Writes a folder: the kept rows, keep.csv (which rows, episodes or machines,
    with scores), model/, report.html, report.json and settings.json; units.csv
    where machines or episodes are decided by how they move (--evidence), for
    which one known unit is enough. After an interruption the same command
    resumes, and gives the same result.

    The labelled rows (--labelled) are given in one of three ways:
      - a condition over the columns: "robot == 'A7' and checked == 1"
      - a list, .txt or .csv, one a line (a second column 'score' is ignored, so
        that keep.csv is such a list). Its first line names what is listed: row
        (numbers from 0), source_row (numbers in the file, from 0, header not
        counted) where loading drops rows, episode (ids), or a column whose values
        are listed, such as robot.
      - a file of target rows and no others: any other file, or ./folder, that can
        be loaded

    Examples:
      puorl filter all.csv --labelled "pump == 'P-01'" --unit column:pump --out own
      puorl filter logs.csv --labelled 'checked == 1' --unit episode --out kept
      puorl filter 'logs/*.parquet' --labelled checked.csv --out kept
      puorl filter mixed.hdf5 --labelled ours.hdf5 --mode soft --out weighted
      puorl filter mixed.hdf5 --labelled 'robot == 2' --no-report --out trial
      puorl filter split0 --out found
    """

    paths: opt.Paths
    """Files, globs, folders of Parquet or Minari, or one folder of puorl split."""
    out: Path
    """Folder to write."""
    labelled: opt.Labelled = None
    """Rows known to be the target's: a condition, or a file, as described above."""
    labelled_as: Annotated[
        tuple[tuple[str, str], ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(metavar="NAME EXPR", help_behavior_hint="(may be repeated)"),
    ] = ()
    """A name for other machines, and a condition for rows of some that are known to be such."""
    unit: Annotated[str, tyro.conf.arg(metavar="UNIT")] = "transition"
    """What to decide about: transition, window:50 (steps), episode, or column:NAME."""
    evidence: Literal["auto", "dynamics", "rows"] = "auto"
    """Decide about units by how they move, or by the mean score of rows; auto: by how they move."""
    preset: Literal["default", "thorough", "robots", "paper"] = "default"
    """Ours; with larger models (needs a GPU to be fast); for episodes of robots whose whole state
    is logged without noise; or as published."""
    mode: Literal["hard", "top_alpha", "soft"] = "hard"
    """Keep likely target rows; the estimated fraction of them; or all, with a column 'weight'."""
    inputs: Literal["sas", "sar", "sars"] = "sas"
    """What to judge by: (s, a, s') for other dynamics, (s, a, r) for another reward, or both."""
    alpha_estimator: Literal["bbe", "en", "scott", "dedpul"] = "bbe"
    """How to estimate alpha, the target's fraction of the unlabelled rows, from held-out scores."""
    seed: opt.Int = 0
    """Seed of folds, initial weights and batches."""
    out_format: Annotated[str, opt.choice("auto", *writable(), "list")] = "auto"
    """Format of the kept rows; auto is the data's own where it can be written, else hdf5. Where
    data is read in partitions: parquet, or list for keep.csv alone."""
    no_report: opt.Flag = False
    """Write no report. By rows, which are then not checked, this saves 40 to 70 % of the time."""
    force: opt.Flag = False
    """Replace the folder if it exists; drop an unfinished run with other settings."""
    data: opt.DataOptions = opt.DataOptions()
    scale: opt.ScaleOptions = opt.ScaleOptions()

    def run(self) -> None:
        """Read, fit, check, write, and print what was made."""
        with (
            self.scale.started(),
            run_folder(self.out, force=self.force, marker=FILTER_MARKER) as run,
        ):
            with announce_resume(lambda: run.has_progress):
                report, written, truth = self._work(run)
        content: dict[str, Any] = {"folder": str(self.out), "files": written, "report": None}
        lines: list[RenderableType] = [f"{self.out / name}: {t}" for name, t in written.items()]
        if report is not None:
            content["report"] = report.to_dict()
        if report is not None and not self.json:
            from puorl.pu.report_text import as_text

            lines.insert(0, as_text(report))
        if truth is not None:
            content["truth"] = truth
            kept, right = (f"{truth[name]:.1%}" for name in ("recall", "precision"))
            text = f"by the truth that the split hides, {kept} of the target's unlabelled rows were"
            lines.append(f"{text} kept, and {right} of the kept ones are the target's")
        self.answer(content, *lines)

    def _work(self, run: RunFolder) -> _Done:
        """Fill the run's folder."""
        console, unit = self.console, parse_unit(self.unit)
        evidence = self._evidence(unit)
        is_split_folder = len(self.paths) == 1 and is_split(self.paths[0])
        reason = None if is_split_folder else self.scale.reason(self.paths)
        if reason is not None:
            return self._stream(run, unit, evidence, console, reason)
        name = self._kept_name()
        names = self.data.arguments()
        names["needed"] = needed_columns(unit)
        known = read_labels(self.paths, self.labelled, **names)
        split = self._split(known, unit, evidence, console)
        flt, config = self._filter(evidence)
        fingerprints = result_folder.split_fingerprints(split)
        settings = self._settings(fingerprints, split.pool.action_codes, config)
        self._begin(run, settings, console)
        report = self._fit(run, flt, split, console)
        written = result_folder.write_kept(run.result, name, flt, split, known)
        files = result_folder.finish(run.result, flt, report, settings, written)
        return report, files, result_folder.truth_scores(flt, split, known)

    def _stream(
        self, run: RunFolder, unit: Unit, evidence: Evidence, console: Console, reason: str
    ) -> _Done:
        """Do the same for data that does not fit into memory: fit on a sample, score by stream."""
        from puorl.scale.filtering import keep_rows, write_kept
        from puorl.scale.sample import draw_sample

        if self.out_format not in ("auto", "parquet", "list"):
            raise ConfigError(
                "--out-format: expected parquet or list where data is read in partitions, got "
                f"{self.out_format}"
            )
        if self.labelled is None:
            raise ConfigError(NO_LABELS)
        label = self.labelled if is_condition(self.labelled) else None
        workers, names = self.scale.make(), self.data.arguments()
        names["needed"] = needed_columns(unit)
        lazy = self.scale.open(self.paths, reason, console, label=label, **names)
        if label is None:
            require_apart(self.labelled, [source.path for source in lazy.sources])
        flt, config = self._filter(evidence)
        target = "" if label is not None else hashing.of_bytes(self.labelled)
        fingerprints = {
            "data": lazy.fingerprint,
            "labels": hashing.of_settings({"labelled": self.labelled, "file": target}),
            "sample": str(self.scale.sample),
        }
        codes = lazy.names.discrete_actions
        listed = tuple(map(str, codes)) if isinstance(codes, list) else None
        settings = self._settings(fingerprints, listed, config)
        self._begin(run, settings, console)
        rows, seed, place = self.scale.sample, self.seed, run.checkpoint("sample")
        sample = draw_sample(lazy, unit, place, workers, rows=rows, seed=seed, progress=True)
        known = LabelledRows(sample.data, sample.data, "one")
        if label is None:
            pool = Dataset.concatenate([sample.data, load(self.labelled, **names)])
            mask = np.arange(len(pool)) >= len(sample.data)
            known = LabelledRows(sample.data, pool.with_labels(mask), "two")
        else:
            require_kinds(known.pool, known.mask, condition=label, num_rows=sample.num_rows)
        opt.show_notes(lazy.notes, console)
        split = self._split(known, unit, evidence, console)
        split = dataclasses.replace(split, returns=sample.returns)
        report = self._fit(run, flt, split, console)
        console.print(sample.describe(flt.alpha_))
        parts, only_list = run.checkpoint("kept"), self.out_format == "list"
        records = keep_rows(lazy, flt, split, parts, workers, only_list=only_list, progress=True)
        num_kept, own = sum(record["num_kept"] for record in records), known.pool[known.mask]
        own = own if label is None else None
        written = write_kept(run.result, parts, num_kept, own, only_list=only_list)
        cost = sample.to_dict() | sample.cost(flt.alpha_)
        written = written._replace(returns=sample.returns, sample=cost)
        return report, result_folder.finish(run.result, flt, report, settings, written), None

    def _begin(self, run: RunFolder, settings: result_folder.Settings, console: Console) -> None:
        if run.begin(result_folder.basis_of(settings)):
            console.print(f"resuming an unfinished run ({run.work})")

    def _fit(
        self, run: RunFolder, flt: "DomainFilter", split: PUSplit, console: Console
    ) -> "FilterReport | MachineReport | None":
        """Fit the filter, and check it unless the user does without."""
        if self.labelled_as:
            self._check_names(split)
        console.print("learning ...")
        options: dict[str, Any] = {"seed": self.seed, "progress": True}
        options["engine"] = self.scale.tasks()
        names = dict(self.labelled_as)
        flt.fit(split, checkpoint=run.checkpoint("fit"), labelled_as=names, **options)
        by_rows = flt.evidence == "rows"
        if self.no_report:
            alpha = f"alpha (target rows among the unlabelled): {flt.alpha_.value:.1%}"
            checked = "this and the choice were not checked"
            console.print(f"{alpha}; {checked if by_rows else _verdict(flt)}")
            return None
        if by_rows:  # of units that move, the fit has said all there is
            console.print("checking ...")
        report = flt.report(split, checkpoint=run.checkpoint("report"), **options)
        origin = {"data": list(self.paths), "labelled": self.labelled, "version": __version__}
        return dataclasses.replace(report, settings={**report.settings, **origin})

    def _check_names(self, split: PUSplit) -> None:
        """Refuse other types whose units or names do not fit, before anything is learnt."""
        from puorl.pu.machines.fitting import labels_of_units
        from puorl.pu.machines.model import label_others

        unit = parse_unit(self.unit)
        found = number_units(split.pool, unit)
        label_others(split.pool, found, labels_of_units(split, found, unit), dict(self.labelled_as))

    def _kept_name(self) -> str:
        """Choose the file of kept rows, and with it the format, before the work begins."""
        if self.out_format == "list":
            raise ConfigError("--out-format list: expected --stream with it; keep.csv is written")
        name = self.data.format if self.out_format == "auto" else self.out_format
        if name is None and not any(is_split(path) for path in self.paths):
            found = {"" if p.is_dir() else p.suffix.lower() for p in expand(list(self.paths))}
            name = next((n for n, each in FORMATS.items() if found <= set(each.suffixes)), None)
        chosen = FORMATS["hdf5" if name not in writable() else name]
        chosen.require(f"writing kept rows as {chosen.name}")
        return f"kept{chosen.suffixes[0]}"

    def _evidence(self, unit: Unit) -> Evidence:
        """Choose what decides; how a unit moves says nothing about rewards."""
        other = f"--inputs {self.inputs}" if self.inputs != "sas" else ""
        other = other or (f"--mode {self.mode}" if self.mode == "top_alpha" else "")
        names = [name for name, _ in self.labelled_as]
        if (self.evidence == "auto" and other) or not uses_dynamics(self.evidence, unit):
            if names:
                raise ConfigError(
                    "--labelled-as: expected units that are decided by how they move, got rows; "
                    "name them with --unit column:NAME"
                )
            return "rows"
        if other:
            raise ConfigError(
                "--evidence dynamics: expected --inputs sas and --mode hard or soft, got "
                f"{other}; decide by --evidence rows"
            )
        if len(set(names)) < len(names):
            raise ConfigError("--labelled-as: expected each name once; join its conditions by or")
        return "dynamics"

    def _split(self, known: LabelledRows, unit: Unit, evidence: str, console: Console) -> PUSplit:
        """Hold rows out, and say what is known of the rows."""
        notes = known.pool.provenance.notes
        opt.show_notes(notes, console)
        result_folder.check_needs(known.pool, unit, self.inputs)
        held_out = held_out_unit(evidence, unit)
        if known.split is not None and known.split.unit == held_out:
            split = known.split
        else:
            split = PUSplit.from_mask(
                known.pool, known.mask, sampling=known.sampling, unit=held_out, seed=self.seed
            )
        text = f"{len(split.labelled):,} labelled and {len(split.unlabelled):,} unlabelled rows"
        console.print(f"{text} ({known.sampling}-sample), unit {self.unit}")
        for note in split.pool.provenance.notes[len(notes) :]:
            console.print(f"warning: {note}", style="yellow")
        if lost := unusable_units(split.pool, unit):
            console.print(f"warning: {describe_unusable(lost)}", style="yellow")
        if scattered := count_scattered(split, unit, self.seed, by_dynamics=evidence == "dynamics"):
            text = f"warning: {scattered:,} unlabelled rows share their {unit.kind} with labelled "
            console.print(f"{text}ones: they count as known, and are kept", style="yellow")
        return split

    def _filter(self, evidence: Evidence) -> tuple["DomainFilter", "FilterConfig"]:
        """Make the filter, and return its config with it."""
        self.compute_synchronously()
        from puorl.pu.config import PRESETS
        from puorl.pu.filter import DomainFilter

        preset = PRESETS[self.preset]
        changes = {"features": {"inputs": self.inputs}, "alpha_estimator": self.alpha_estimator}
        config = preset.changed(changes)
        own = None if config == preset else config
        options: dict[str, Any] = {"mode": self.mode, "unit": self.unit, "evidence": evidence}
        return DomainFilter(self.preset, config=own, **options), config

    def _settings(
        self, fingerprints: dict[str, str], codes: tuple[str, ...] | None, config: "FilterConfig"
    ) -> result_folder.Settings:
        """Collect the part of ``settings.json`` that is known before the fit."""
        arguments = dataclasses.asdict(self)
        del arguments["json"]  # it changes what is printed, not the run
        scale = arguments.pop("scale")
        arguments |= {"sample": scale["sample"]} if "sample" in fingerprints else {}
        fields = {name: value for name, value in arguments.pop("data").items() if value is not None}
        if codes is not None and not any("," in code for code in codes):
            fields["action_kind"] = f"discrete:{','.join(codes)}"  # new logs may lack some
        arguments |= {"paths": list(self.paths), "out": str(self.out), "data": fields}
        arguments["labelled_as"] = [list(pair) for pair in self.labelled_as]
        return result_folder.make_settings(arguments, fingerprints, config)


def _verdict(flt: "DomainFilter") -> str:
    from puorl.pu.report_text import MACHINE_VERDICTS

    return f"verdict: {MACHINE_VERDICTS[flt.verdict_]}"
