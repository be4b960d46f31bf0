"""`puorl filter`: keep the target's rows, learnt from a few known ones."""

import dataclasses
import difflib
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from puorl import __version__
from puorl.cli.options import (
    DataOptions,
    Flag,
    Int,
    Paths,
    SafeConsole,
    ScaleOptions,
    choice,
    compute_synchronously,
    make_console,
    print_json,
)
from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import write_json
from puorl.core.run_folder import (
    FILTER_MARKER,
    KEEP_LIST,
    KEPT_PARTS,
    MODEL,
    REPORT,
    REPORT_PAGE,
    SETTINGS,
    UNITS,
    WEIGHT,
    FilterSettings,
    KeptRows,
    RunFolder,
    announce_resume,
    run_folder,
)
from puorl.core.tasks import started
from puorl.data.dataset import Dataset
from puorl.data.formats import FORMATS, expand, load, save, writable
from puorl.data.labels import (
    LabelledRows,
    is_condition,
    is_listable,
    is_split,
    read_labels,
    write_keep_list,
)
from puorl.data.parquet import fingerprint_of_parts
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.data.validate import LABELLED
from puorl.pu.units import (
    Unit,
    group,
    held_out_unit,
    number_units,
    parse_unit,
    uses_dynamics,
)

if TYPE_CHECKING:  # importing these loads jax
    from puorl.data.lazy import LazyDataset
    from puorl.pu.config import FilterConfig
    from puorl.pu.filter import DomainFilter
    from puorl.pu.machines.report import MachineReport
    from puorl.pu.report import FilterReport


@dataclass(frozen=True)
class Filter:
    """Keep the rows of the target domain, learnt from a few that are known.

    Writes a folder: the kept rows, keep.csv (which rows, episodes or machines,
    with scores), model/, report.html, report.json and settings.json; units.csv
    where machines or episodes are told by how they move (--evidence), for
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

    paths: Paths
    """Files, globs, folders of Parquet or Minari, or one folder of puorl split."""
    out: Path
    """Folder to write."""
    labelled: Annotated[str | None, tyro.conf.arg(metavar="EXPR|FILE", help_behavior_hint="")] = (
        None
    )
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
    preset: Literal["default", "thorough", "paper"] = "default"
    """Ours, ours with larger models (needs a GPU to be fast), or as published."""
    mode: Literal["hard", "top_alpha", "soft"] = "hard"
    """Keep likely target rows; the estimated fraction of them; or all, with a column 'weight'."""
    inputs: Literal["sas", "sar", "sars"] = "sas"
    """What to judge by: (s, a, s') for other dynamics, (s, a, r) for another reward, or both."""
    alpha_estimator: Literal["bbe", "en", "scott", "dedpul"] = "bbe"
    """How to estimate alpha, the target's fraction of the unlabelled rows, from held-out scores."""
    seed: Int = 0
    """Seed of folds, initial weights and batches."""
    out_format: Annotated[str, choice("auto", *writable(), "list")] = "auto"
    """Format of the kept rows; auto is the data's own where it can be written, else hdf5. Where
    data is read in partitions: parquet, or list for keep.csv alone."""
    no_report: Flag = False
    """Skip the checks: saves 40 to 70 % of the time, but the choice is not checked."""
    force: Flag = False
    """Replace the folder if it exists; drop an unfinished run with other settings."""
    json: Flag = False
    """Print one JSON object on stdout, with the whole report, and nothing else."""
    data: DataOptions = DataOptions()
    scale: ScaleOptions = ScaleOptions()

    def run(self) -> None:
        """Read, fit, check, write, and print what was made."""
        with (
            started(self.scale.tasks()),
            run_folder(self.out, force=self.force, marker=FILTER_MARKER) as run,
        ):
            with announce_resume(lambda: run.has_progress):
                report, written, truth = self._work(run)
        if self.json:
            content = None if report is None else report.to_dict()
            found = {"folder": str(self.out), "files": written, "report": content}
            print_json(found if truth is None else found | {"truth": truth})
            return
        console = SafeConsole(highlight=False)
        if report is not None:
            from puorl.pu.report_text import as_text

            console.print(as_text(report))
        for name, text in written.items():
            console.print(Text(f"{self.out / name}: {text}"), soft_wrap=True)
        if truth is not None:
            kept, right = (f"{truth[name]:.1%}" for name in ("recall", "precision"))
            console.print(
                f"by the truth that the split hides, {kept} of the target's unlabelled rows were "
                f"kept, and {right} of the kept ones are the target's"
            )

    def _work(
        self, run: RunFolder
    ) -> tuple["FilterReport | MachineReport | None", dict[str, str], dict[str, float] | None]:
        """Fill the run's folder; return the report, what each file holds, and the truth."""
        console = make_console(json=self.json)
        unit = parse_unit(self.unit)
        is_split_folder = len(self.paths) == 1 and is_split(self.paths[0])
        reason = None if is_split_folder else self.scale.reason(self.paths)
        if reason is not None:
            return self._stream(run, unit, console, reason)
        kept_name = self._kept_name()
        known = read_labels(self.paths, self.labelled, **self.data.arguments())
        for note in known.pool.provenance.notes:
            console.print(Text(f"note: {note}", style="dim"))
        _check_needs(known.pool, unit, self.inputs)
        evidence = self._evidence(unit)
        self._check_names(evidence)
        split = self._split(known, unit, evidence, console)
        flt, config = self._filter(evidence)
        settings = self._settings(split, config)
        if run.begin(_basis(settings)):
            console.print(f"going on from an unfinished run ({run.work})")
        report = self._fit(run, flt, split, console)
        written = self._write(run.result, kept_name, flt, split, known, report, settings)
        return report, written, _score(flt, split, known)

    def _fit(
        self, run: RunFolder, flt: "DomainFilter", split: PUSplit, console: Console
    ) -> "FilterReport | MachineReport | None":
        """Fit the filter, and check it unless the user does without."""
        console.print("learning ...")
        flt.fit(
            split,
            seed=self.seed,
            progress=True,
            checkpoint=run.checkpoint("fit"),
            labelled_as=dict(self.labelled_as),
            engine=self.scale.tasks(),
        )
        report = None
        if self.no_report:
            alpha = f"alpha (target rows among the unlabelled): {flt.alpha_.value:.1%}"
            console.print(f"{alpha}; this and the choice were not checked")
        else:
            console.print("checking ...")
            report = flt.report(
                split,
                seed=self.seed,
                progress=True,
                checkpoint=run.checkpoint("report"),
                engine=self.scale.tasks(),
            )
            origin = {"data": list(self.paths), "labelled": self.labelled, "version": __version__}
            report = dataclasses.replace(report, settings={**report.settings, **origin})
        return report

    def _stream(
        self, run: RunFolder, unit: Unit, console: Console, reason: str
    ) -> tuple["FilterReport | MachineReport | None", dict[str, str], dict[str, float] | None]:
        """Do the same for data that does not fit into memory: fit on a sample, score by stream."""
        from puorl.scale.filtering import collect, keep_rows
        from puorl.scale.sample import draw_sample

        if self.out_format not in ("auto", "parquet", "list"):
            raise ConfigError(
                "--out-format: expected parquet or list where data is read in partitions, got "
                f"{self.out_format}"
            )
        if self.labelled is None:
            raise DataError("labelled: expected labels; give --labelled a condition, or a file")
        label = self.labelled if is_condition(self.labelled) else None
        workers, evidence = self.scale.make(), self._evidence(unit)
        self._check_names(evidence)
        names = self.data.arguments()
        lazy = self.scale.open(self.paths, reason, console, label=label, **names)
        flt, config = self._filter(evidence)
        settings = self._stream_settings(lazy, config)
        if run.begin(_basis(settings)):
            console.print(f"going on from an unfinished run ({run.work})")
        sample = draw_sample(
            lazy,
            unit,
            run.checkpoint("sample"),
            workers,
            rows=self.scale.sample,
            seed=self.seed,
            progress=True,
        )
        known = LabelledRows(sample.data, sample.data, "one")
        if label is None:
            target = load(self.labelled, **names)
            pool = Dataset.concatenate([sample.data, target])
            mask = np.arange(len(pool)) >= len(sample.data)
            known = LabelledRows(sample.data, pool.with_labels(mask), "two")
        for note in (*lazy.notes, *known.pool.provenance.notes):
            console.print(Text(f"note: {note}", style="dim"))
        _check_needs(known.pool, unit, self.inputs)
        split = self._split(known, unit, evidence, console)
        split = dataclasses.replace(split, returns=sample.returns)
        report = self._fit(run, flt, split, console)
        console.print(sample.describe(flt.alpha_))
        parts, only_list = run.checkpoint("kept"), self.out_format == "list"
        records = keep_rows(lazy, flt, split, parts, workers, only_list=only_list, progress=True)
        num_kept = sum(record["num_kept"] for record in records)
        if only_list:
            collect(parts, run.result / KEEP_LIST, ".csv", "source_row,score")
            listed_hash = hashing.of_bytes(run.result / KEEP_LIST)
            kept, written = KeptRows(KEEP_LIST, num_kept, listed_hash), {}
            written[KEEP_LIST] = f"list of {num_kept:,} kept rows, counted over all files, from 0"
        else:
            folder, listed_hash = run.result / KEPT_PARTS, None
            collect(parts, folder, ".parquet")
            if label is None:
                save(known.pool[known.mask], folder / "target.parquet")
                num_kept += int(known.mask.sum())
            kept = KeptRows(KEPT_PARTS, num_kept, fingerprint_of_parts(folder))
            written = {KEPT_PARTS: f"{num_kept:,} kept rows as Parquet, with scores"}
        flt.save(run.result / MODEL)
        written |= {MODEL: "the filter; puorl.DomainFilter.load reads it"}
        written |= self._write_report(run.result, report)
        content = FilterSettings(
            **settings,
            kept=kept,
            returns=sample.returns,
            keep_list=listed_hash,
            sample=sample.to_dict() | sample.cost(flt.alpha_),
            files=_hashes_for_people(run.result),
        )
        write_json(run.result / SETTINGS, dataclasses.asdict(content))
        written |= {SETTINGS: "arguments, versions and fingerprints"}
        return report, written, None

    def _kept_name(self) -> str:
        """Choose the file of kept rows, and with it the format, before the work begins."""
        if self.out_format == "list":
            raise ConfigError("--out-format list: expected --stream with it; keep.csv is written")
        name = self.data.format if self.out_format == "auto" else self.out_format
        if name is None and not any(is_split(path) for path in self.paths):
            found = {"" if p.is_dir() else p.suffix.lower() for p in expand(list(self.paths))}
            same = (each.name for each in FORMATS.values() if found <= set(each.suffixes))
            name = next(same, None)
        chosen = FORMATS["hdf5" if name not in writable() else name]
        chosen.require(f"writing kept rows as {chosen.name}")
        return f"kept{chosen.suffixes[0]}"

    def _evidence(self, unit: Unit) -> Literal["dynamics", "rows"]:
        """Choose what decides; how a unit moves says nothing about rewards."""
        auto = self.evidence == "auto" and (self.inputs != "sas" or self.mode == "top_alpha")
        if auto or not uses_dynamics(self.evidence, unit):
            return "rows"
        if self.inputs != "sas" or self.mode == "top_alpha":
            option = f"--inputs {self.inputs}" if self.inputs != "sas" else f"--mode {self.mode}"
            raise ConfigError(
                "--evidence dynamics: expected --inputs sas and --mode hard or soft, got "
                f"{option}; decide by --evidence rows"
            )
        return "dynamics"

    def _check_names(self, evidence: str) -> None:
        names = [name for name, _ in self.labelled_as]
        if names and evidence == "rows":
            raise ConfigError(
                "--labelled-as: expected units that are decided by how they move, got rows; name "
                "them with --unit column:NAME"
            )
        if len(set(names)) < len(names):
            raise ConfigError("--labelled-as: expected each name once; join its conditions by or")

    def _split(self, known: LabelledRows, unit: Unit, evidence: str, console: Console) -> PUSplit:
        held_out = held_out_unit(evidence, unit)
        if known.split is not None and known.split.unit == held_out:
            split = known.split
        else:
            split = PUSplit.from_mask(
                known.pool, known.mask, sampling=known.sampling, unit=held_out, seed=self.seed
            )
        text = f"{len(split.labelled):,} labelled and {len(split.unlabelled):,} unlabelled rows"
        console.print(f"{text} ({known.sampling}-sample), unit {self.unit}")
        for note in split.pool.provenance.notes[len(known.pool.provenance.notes) :]:
            console.print(Text(f"warning: {note}", style="yellow"))
        if evidence == "dynamics":
            number = number_units(split.pool, unit).number
            same = np.isin(number, number[split.labelled])
            scattered = int(same.sum()) - len(split.labelled)
        else:
            grouping = group(split, unit, self.seed)
            scattered = 0 if grouping is None else grouping.num_scattered
        if scattered:
            text = f"warning: {scattered:,} unlabelled rows share their {unit.kind} with labelled "
            console.print(Text(f"{text}ones: they count as known, and are kept", style="yellow"))
        return split

    def _filter(
        self, evidence: Literal["dynamics", "rows"]
    ) -> tuple["DomainFilter", "FilterConfig"]:
        """Make the filter, and return its config with it."""
        compute_synchronously()
        from puorl.pu.config import PRESETS
        from puorl.pu.filter import DomainFilter

        preset = PRESETS[self.preset]
        changes = {"features": {"inputs": self.inputs}, "alpha_estimator": self.alpha_estimator}
        config = preset.changed(changes)
        own = None if config == preset else config
        made = DomainFilter(
            self.preset, mode=self.mode, unit=self.unit, evidence=evidence, config=own
        )
        return made, config

    def _settings(self, split: PUSplit, config: "FilterConfig") -> dict[str, Any]:
        """Collect the part of ``settings.json`` that is known before the fit."""
        columns = {k: v for k, v in split.pool.columns.items() if k != LABELLED}
        fingerprints = {
            "data": dataclasses.replace(split.pool, columns=columns).fingerprint,
            "labels": hashing.of_arrays({"labelled": split.labelled}),
            "split": split.fingerprint,
        }
        return self._collected(fingerprints, split.pool.action_codes, config)

    def _stream_settings(self, lazy: "LazyDataset", config: "FilterConfig") -> dict[str, Any]:
        """Collect the same where the data is read in partitions."""
        codes = lazy.names.discrete_actions
        target = "" if is_condition(self.labelled or "") else hashing.of_bytes(self.labelled or "")
        fingerprints = {
            "data": lazy.fingerprint,
            "labels": hashing.of_settings({"labelled": self.labelled, "file": target}),
            "sample": str(self.scale.sample),
        }
        return self._collected(
            fingerprints, tuple(map(str, codes)) if isinstance(codes, list) else None, config
        )

    def _collected(
        self, fingerprints: dict[str, str], codes: tuple[str, ...] | None, config: "FilterConfig"
    ) -> dict[str, Any]:
        import jax

        arguments = dataclasses.asdict(self)
        del arguments["json"]  # it changes what is printed, not the run
        scale = arguments.pop("scale")
        arguments |= {"sample": scale["sample"]} if "sample" in fingerprints else {}
        fields = {name: value for name, value in arguments.pop("data").items() if value is not None}
        if codes is not None and not any("," in code for code in codes):
            fields["action_kind"] = f"discrete:{','.join(codes)}"  # new logs may lack some
        arguments |= {"paths": list(self.paths), "out": str(self.out), "data": fields}
        arguments["labelled_as"] = [list(pair) for pair in self.labelled_as]
        return {
            "arguments": arguments,
            "versions": {
                "puorl": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "jax": jax.__version__,
                "device": jax.default_backend(),
            },
            "fingerprints": {**fingerprints, "config": hashing.of_settings(config.to_dict())},
        }

    def _write(
        self,
        folder: Path,
        kept_name: str,
        flt: "DomainFilter",
        split: PUSplit,
        known: LabelledRows,
        report: "FilterReport | MachineReport | None",
        settings: dict[str, Any],
    ) -> dict[str, str]:
        """Fill an empty folder; return what each file holds, in a few words."""
        training = flt.filter(split)
        kept = training.to_dataset()
        listed = self._write_list(folder / KEEP_LIST, flt, split, known, training)
        save(kept, folder / kept_name)
        flt.save(folder / MODEL)
        rows = f"{len(kept):,} kept rows, labelled ones included"
        if training.weight is not None:
            rows = f"all {len(kept):,} rows, with the column {WEIGHT}"
        written = {
            kept_name: rows,
            KEEP_LIST: f"the same as a list, by {listed}, with scores",
            MODEL: "the filter; puorl.DomainFilter.load reads it",
        }
        written |= self._write_report(folder, report)
        returns = training.returns
        if returns is not None and not np.isfinite(returns).all():
            returns = None
        outcome = KeptRows(kept_name, len(kept), kept.fingerprint)
        listed_hash = hashing.of_bytes(folder / KEEP_LIST)
        content = FilterSettings(
            **settings,
            kept=outcome,
            returns=returns,
            keep_list=listed_hash,
            files=_hashes_for_people(folder),
        )
        write_json(folder / SETTINGS, dataclasses.asdict(content))
        return written | {SETTINGS: "arguments, versions and fingerprints"}

    def _write_report(
        self, folder: Path, report: "FilterReport | MachineReport | None"
    ) -> dict[str, str]:
        if report is None:
            return {}
        from puorl.pu.machines.report import MachineReport
        from puorl.pu.report_page import as_page
        from puorl.pu.unit_table import write_units

        (folder / REPORT_PAGE).write_text(as_page(report), encoding="utf-8")
        write_json(folder / REPORT, report.to_dict())
        written = {REPORT_PAGE: "the report, for a browser", REPORT: "the same for programs"}
        if isinstance(report, MachineReport):
            write_units(folder / UNITS, report.units)
            written[UNITS] = f"all {len(report.units):,} units, with decision and evidence"
        return written

    def _write_list(
        self,
        path: Path,
        flt: "DomainFilter",
        split: PUSplit,
        known: LabelledRows,
        training: TrainingSet,
    ) -> str:
        """List the kept rows of the data (not of a file of target rows); return what is listed."""
        score = np.ones(len(split.pool), np.float32)  # labelled rows are certain
        if training.weight is not None:
            score[training.rows] = training.weight
        else:
            score[split.unlabelled] = flt.predict_proba(split)
        data = known.data
        keep = np.zeros(len(known.pool), bool)
        keep[training.rows] = True
        keep, score = keep[: len(data)], score[: len(data)]
        # A unit of which only some rows were labelled may be kept in part.
        listed = "row"
        if self.unit == "episode" and data.episode is not None and _is_whole(keep, data.episode):
            listed = "episode"
        name = self.unit.removeprefix("column:")
        if name != self.unit and is_listable(data, name) and _is_whole(keep, data.columns[name]):
            listed = self.unit
        write_keep_list(path, data, keep, unit=listed, score=score)
        return listed


def _hashes_for_people(folder: Path) -> dict[str, str]:
    """Hash the files that no command reads, so that they can be verified, too."""
    paths = [folder / name for name in (REPORT_PAGE, UNITS)]
    return {path.name: hashing.of_bytes(path) for path in paths if path.exists()}


def _basis(settings: dict[str, Any]) -> dict[str, str | int]:
    """Select everything that decides what is learnt."""
    named = {
        "arguments": ("unit", "evidence", "preset", "mode", "inputs", "alpha_estimator", "seed"),
        "versions": ("puorl", "numpy", "jax", "device"),
        "fingerprints": ("data", "labels", "config"),
    }
    basis = {name: settings[group][name] for group, names in named.items() for name in names}
    others = settings["arguments"]["labelled_as"]
    if "sample" in settings["fingerprints"]:
        basis |= {name: settings["arguments"][name] for name in ("sample", "out_format")}
    return basis | ({"labelled_as": str(others)} if others else {})


def _check_needs(data: Dataset, unit: Unit, inputs: str) -> None:
    """Refuse a unit or inputs for which the data lacks something, before anything is learnt."""
    if "r" in inputs and data.reward is None:
        raise DataError(
            f"--inputs {inputs}: expected rewards, and this data has none; name their column with "
            "--reward, or judge by --inputs sas"
        )
    if unit.kind in ("episode", "window") and data.episode is None:
        raise DataError(
            f"--unit {unit.kind}: expected rows with episode ids, and this data has none; name "
            "their column with --episode, or decide by --unit transition"
        )
    if unit.kind == "column" and unit.column not in data.columns:
        near = difflib.get_close_matches(unit.column, data.columns, n=1)
        hint = f"did you mean column:{near[0]}? " if near else ""
        raise DataError(
            f"--unit column:{unit.column}: no such column; {hint}"
            f"columns: {', '.join(data.columns) or 'none'}"
        )


def _score(flt: "DomainFilter", split: PUSplit, known: LabelledRows) -> dict[str, float] | None:
    """Compare the choice with the hidden domains of a benchmark split; None for other rows."""
    if known.split is None or known.split.truth is None:
        return None
    kept = flt.predict(split)
    is_target = known.split.reveal("scoring")[split.unlabelled] == 0
    right = int((kept & is_target).sum())
    return {
        "recall": right / max(1, int(is_target.sum())),
        "precision": right / max(1, int(kept.sum())),
    }


def _is_whole(keep: np.ndarray, ids: np.ndarray) -> bool:
    """Whether all rows of an id are kept, or none."""
    _, codes = np.unique(ids, return_inverse=True)
    fraction = np.bincount(codes, weights=keep) / np.bincount(codes)
    return bool(np.isin(fraction, (0.0, 1.0)).all())
