"""The page of a run: question, data, filter, training, results, and how to reproduce them."""

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from puorl import __version__
from puorl.bench.report import Report
from puorl.bench.tables import as_html
from puorl.core.errors import ConfigError
from puorl.html import page
from puorl.html.page import Markup, Tile, as_count, escape
from puorl.pu.machines.report import MachineReport
from puorl.pu.report_page import as_sections, as_terms
from puorl.run_report import filmstrip
from puorl.run_report.filmstrip import Filmstrip
from puorl.run_report.folders import Filtering, Material, Training
from puorl.run_report.offline_part import offline_section
from puorl.run_report.training_part import (
    SCORE,
    evaluation_sections,
    final_tile,
    policies_text,
    training_sections,
)

TITLE = "puorl report"
_UNKNOWN, _DASH = "not recorded", "–"
_MOST_FILES = 5
_LANE = re.compile(r"seed-(\d+)")
_NAMED = {"paths", "labelled", "labelled_as", "out", "force", "data"}
"""Arguments of a filter that are written first, or do not change what it makes."""
_SHOWN = ("labelled", "unit", "preset", "mode", "seed")
_INPUTS = {
    "sas": "by state, action and next state",
    "sar": "by state, action and reward",
    "sars": "by state, action, next state and reward",
}


def as_page(material: Material, strip: Filmstrip | str, *, command: str) -> str:
    """Make a self-contained HTML page; the same folders give the same page.

    Args:
        material: Everything that was read.
        strip: The best policy's filmstrip, or why there is none; empty where none is expected.
        command: The command that made the page.
    """
    parts = [_in_short(material), _question(material), _data(material)]
    for number, filtering in enumerate(material.filterings, 1):
        parts += _filter(filtering, number, several=len(material.filterings) > 1)
    if material.filterings or material.trainings:
        if not material.filterings:
            words = "No folder of puorl filter was named, so this page says nothing about a filter."
            parts.append(page.section("The filter", page.paragraph(words)))
        parts += training_sections(material.trainings)
    if material.evaluations or not material.offline:
        parts += evaluation_sections(material.evaluations, material.trainings)
    parts += map(offline_section, material.offline)
    parts.append(_filmstrip(strip))
    parts += [_benchmark(*each, n) for n, each in enumerate(material.benchmarks.items(), 1)]
    if any(each.report is not None for each in material.filterings):
        parts.append(page.section("How to read this page", page.terms(_terms(material))))
    parts.append(_reproduce(material, command))
    made = [f"{path} (puorl {kind})" for path, kind in material.kinds().items()]
    return page.document(TITLE, *parts, lead=f"Made from {', '.join(made)}.")


def _in_short(material: Material) -> Markup:
    tiles = []
    for each in material.filterings:
        verdict = "not checked" if each.report is None else f"verdict: {each.report.verdict}"
        tiles.append(
            Tile(
                f"Rows kept{_of(each, material)}",
                as_count(each.settings.kept.num_rows),
                "They go on to training, labelled ones included.",
                interval=verdict.replace("_", " "),
            )
        )
    runs = material.trainings
    if runs:
        which = ", ".join(dict.fromkeys(run.settings.learner for run in runs))
        total = sum(len(run.settings.lanes) for run in runs)
        tiles.append(
            Tile(
                "Policies trained",
                as_count(sum(len(run.policies) for run in runs)),
                f"By {which}.",
                interval=f"of {as_count(total)} in {len(runs)} run{'s' * (len(runs) > 1)}",
            )
        )
    tiles += [
        final_tile(each, group, members)
        for each in material.evaluations
        for group, members in each.groups.items()
    ]
    return page.tiles(tiles) if tiles else Markup("")


def _of(filtering: Filtering, material: Material) -> str:
    """Name the filter, where there are several."""
    return f": {filtering.path}" if len(material.filterings) > 1 else ""


def _question(material: Material) -> Markup:
    texts = {each.path: _filter_question(each) for each in material.filterings}
    for each in material.trainings:
        made, steps = policies_text(len(each.settings.lanes)), as_count(each.settings.steps)
        texts[each.path] = f"{made} by {each.settings.learner}, {steps} updates each."
    for each in material.evaluations:
        texts[each.path] = (
            f"How good are the policies of {', '.join(each.sources)} in {each.env}, over "
            f"{as_count(each.episodes)} episodes each?"
        )
    for each in material.offline:
        count = policies_text(len(each.policies))
        texts[each.path] = (
            f"What are {count} worth, judged from {as_count(each.num_episodes)} logged episodes?"
        )
    texts |= {path: f"A benchmark. {each.lead}" for path, each in material.benchmarks.items()}
    return page.section("The question", page.terms(texts))


def _filter_question(filtering: Filtering) -> str:
    given = {**dict.fromkeys(_SHOWN, _UNKNOWN), **filtering.settings.arguments}
    inputs = _INPUTS.get(str(given.get("inputs")), "by inputs that are not recorded")
    return (
        f"Which rows of {', '.join(filtering.settings.paths)} are the target's? Known to be: "
        f"{given['labelled']}. Decided by {given['unit']}, {inputs}, preset {given['preset']}, "
        f"mode {given['mode']}, seed {given['seed']}."
    )


# ------------------------------------------------------------------------------ the data


def _data(material: Material) -> Markup:
    if not (material.filterings or material.trainings):
        words = "Neither a folder of puorl filter nor one of puorl train was named."
        if material.benchmarks:
            words = "The rows of a benchmark are described in its own tables below."
        return page.section("The data", page.paragraph(words))
    rows, hashes, notes = [], [], []
    for each in material.filterings:
        rows += _counts(each, _of(each, material))
        prints = each.settings.fingerprints
        hashes += [(f"{each.path}/: {name}", text) for name, text in prints.items()]
        hashes.append((f"{each.path}/: kept rows", each.settings.kept.fingerprint))
        notes += _about_kept(each)
    for run in material.trainings:
        hashes.append((f"{run.path}/: rows it learnt from", run.settings.data))
        notes.append(_learnt_from(run, _source_of(run, material.filterings)))
    header = ("Rows", "Number", "Episodes", "Domain")
    counts = (
        page.table("A dash: not recorded", header, rows, numeric=(1, 2)) if rows else Markup("")
    )
    prints = page.table("Fingerprints: the same content has the same", ("Of", "Hash"), hashes)
    return page.section("The data", counts, *map(page.paragraph, dict.fromkeys(notes)), prints)


def _learnt_from(run: Training, source: Filtering | None) -> str:
    """Say from which rows a run learnt, as far as that is known."""
    held_out = f" without those that were held out ({run.hold_out})" if run.hold_out else ""
    if source is not None:
        return (
            f"The run in {run.path}/ learnt from the rows in {source.path}/{held_out}: "
            "fingerprints agree."
        )
    parts = run.record.last.parts
    if not parts:
        return (
            f"The run in {run.path}/ does not record how many rows it learnt from, nor their "
            "files; no filter named here kept rows with that fingerprint."
        )
    text = "; ".join(f"{as_count(part.num_rows)} rows of {_listed(part.files)}" for part in parts)
    return (
        f"The run in {run.path}/ learnt from {text}{held_out}. No filter named here kept such rows."
    )


def _listed(files: Sequence[str]) -> str:
    more = len(files) - _MOST_FILES
    return ", ".join(files[:_MOST_FILES]) + (f" and {as_count(more)} more" if more > 0 else "")


def _counts(filtering: Filtering, which: str) -> list[tuple[str, ...]]:
    report, rows = filtering.report, filtering.rows
    labelled, unlabelled = _DASH, _DASH
    if isinstance(report, MachineReport):
        count = [
            sum(row.num_rows for row in report.units if row.labelled is k) for k in (True, False)
        ]
        labelled, unlabelled = map(as_count, count)
    elif report is not None:
        quality = report.quality
        labelled, unlabelled = as_count(quality.num_labelled), as_count(quality.num_unlabelled)
    episodes, domain = _DASH, _DASH
    if rows is not None:
        domain = rows.provenance.domain or _DASH
        episodes = _DASH if rows.episode is None else as_count(len(np.unique(rows.episode)))
    return [
        (f"labelled{which}", labelled, _DASH, _DASH),
        (f"unlabelled{which}", unlabelled, _DASH, _DASH),
        (f"kept{which}", as_count(filtering.settings.kept.num_rows), episodes, domain),
    ]


def _about_kept(filtering: Filtering) -> list[str]:
    if filtering.rows is None:
        return [f"{filtering.path}/: the kept rows cannot be read here: {filtering.problem}"]
    rows = filtering.rows
    return [
        f"Each row has {rows.obs.shape[1]} state and {rows.action.shape[1]} action components. Of "
        "rows that were not kept only the number is recorded."
    ]


# ----------------------------------------------------------------------------- the parts


def _filter(filtering: Filtering, number: int, *, several: bool) -> list[Markup]:
    title = f"The filter: {filtering.path}" if several else "The filter"
    if filtering.report is None:
        words = (
            "No report was written (--no-report), so nothing here says how good this choice is. "
            "The same command without --no-report and with --force writes one."
        )
        return [page.section(title, page.paragraph(words))]
    anchor = f"warnings-{number}" if several else "warnings"
    verdict, *rest = as_sections(filtering.report, anchor=anchor)
    return [page.section(title, verdict), *rest]


def _terms(material: Material) -> dict[str, str]:
    """Explain the filter's terms; a score may be a row's or a policy's here."""
    reports = [each.report for each in material.filterings if each.report is not None]
    words = {
        {"Score": "Score of a row"}.get(name, name): meaning
        for report in reports[:1]
        for name, meaning in as_terms(report).items()
    }
    return {**words, "Score of a policy": SCORE} if material.trainings else words


def _filmstrip(strip: Filmstrip | str) -> Markup:
    if not strip:
        return Markup("")
    missing = isinstance(strip, str)
    shown = page.paragraph(f"No filmstrip: {strip}.") if missing else filmstrip.as_html(strip)
    return page.section("The best policy at work", shown)


def _benchmark(path: str, report: Report, number: int) -> Markup:
    # Names become ids, of which a page may have each but once.
    tables = [dataclasses.replace(t, name=f"bench-{number}-{t.name}") for t in report.tables]
    words = (
        f"Pictures and settings of it: puorl bench report {path} --format html makes a page of its "
        "own."
    )
    return page.section(
        f"Benchmark: {path}",
        page.paragraph(report.lead),
        *map(as_html, tables),
        page.warning_list(report.results.notes) if report.results.notes else Markup(""),
        page.paragraph(words),
    )


# -------------------------------------------------------------------- how to reproduce it


def _reproduce(material: Material, command: str) -> Markup:
    """Show commands, versions and hashes."""
    commands = [filter_command(each) for each in material.filterings]
    commands += [train_command(each, material.filterings) for each in material.trainings]
    for each in (seen for seen in material.evaluations if seen.command == "evaluate"):
        words = _options({"env": each.env, "episodes": each.episodes, "seed": each.seed})
        words = ["puorl", "evaluate", *each.sources, *words, "--out", each.path]
        commands.append(shlex.join(words))
    for path in material.benchmarks:
        commands.append(shlex.join(["puorl", "bench", "run", "SUITE", "--out", path]))
    commands.append(command)
    # Lines that are to be copied are not broken; a box that scrolls must be reachable by keyboard.
    listing = Markup(
        '<pre style="white-space:pre;overflow-x:auto;margin-bottom:.8rem" tabindex="0" '
        f'role="region" aria-label="Commands">\n{escape(chr(10).join(commands))}</pre>'
    )
    return page.section(
        "How to reproduce this",
        page.paragraph("The same commands, versions and rows give the same numbers."),
        listing,
        *map(page.paragraph, _gaps(material)),
        page.table("Versions", ("What", "Value"), _versions(material)),
        page.folded("All settings as JSON", json.dumps(_settings(material), indent=2)),
    )


def filter_command(filtering: Filtering) -> str:
    """Rebuild the command that made a folder, with all arguments, as defaults may change."""
    given = filtering.settings.arguments
    words = ["puorl", "filter", *filtering.settings.paths]
    if given.get("labelled") is not None:
        words += ["--labelled", str(given["labelled"])]
    for name, rows in given.get("labelled_as", ()):
        words += ["--labelled-as", str(name), str(rows)]
    for name, value in given.items():
        if name not in _NAMED and value is not False:
            words += [_option(name)] if value is True else [_option(name), str(value)]
    fields = given.get("data", {})
    words += _options(fields) if isinstance(fields, Mapping) else []
    return shlex.join([*words, "--out", str(given.get("out", filtering.path))])


def train_command(training: Training, filterings: Sequence[Filtering]) -> str:
    """Rebuild a command that trains the same policies; DATA stands for unknown paths."""
    settings, given = training.settings, training.record.last
    source = _source_of(training, filterings)
    paths = given.paths or ("DATA",) if source is None else (source.path,)
    words = ["puorl", "train", *paths, "--learner", settings.learner.removeprefix("discrete_")]
    seeds = [int(match[1]) for name in settings.lanes if (match := _LANE.fullmatch(name))]
    words += ["--seeds", str(len(settings.lanes))]
    words += ["--seed", str(min(seeds))] if seeds and min(seeds) else []
    words += ["--steps", str(settings.steps)]
    changed = _changed(settings.learner, settings.config)
    if changed:
        words += ["--set", *(f"{name}={_text(value)}" for name, value in changed.items())]
    words += _options(given.fields) if source is None else []
    words += ["--hold-out", training.hold_out] if training.hold_out else []
    if given.env is not None:
        more = {name: getattr(given, name) for name in ("env", "eval_every", "eval_episodes")}
        words += _options({name: value for name, value in more.items() if value is not None})
    return shlex.join([*words, "--out", training.path])


def _options(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (_option(name), str(value))]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _source_of(training: Training, filterings: Sequence[Filtering]) -> Filtering | None:
    """Find the filter whose kept rows a run learnt from, by their fingerprint.

    Where rows were held out, all rows that were read count: the record has their fingerprint.
    """
    parts, learnt = training.record.last.parts, training.settings.data
    if training.hold_out and len(parts) == 1:
        learnt = parts[0].fingerprint
    same = (each for each in filterings if each.settings.kept.fingerprint == learnt)
    return next(same, None)


def _changed(learner: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Select settings that differ from the learner's defaults; all if the learner is unknown."""
    from puorl.rl.learner import presets  # loads jax

    try:
        usual = dataclasses.asdict(presets(learner)["default"])
    except ConfigError:
        return dict(config)
    return {n: value for n, value in config.items() if _text(value) != _text(usual.get(n))}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gaps(material: Material) -> list[str]:
    """Say what the folders do not record, and a reader needs."""
    notes = []
    for each in material.trainings:
        if not each.record.last.paths and _source_of(each, material.filterings) is None:
            notes.append(
                f"{each.path}/: DATA stands for rows with the fingerprint {each.settings.data}; "
                "the folder does not record the paths from which they were read, and no filter "
                "named here kept them."
            )
    if any(not each.record.last.paths for each in material.trainings):
        notes.append(
            "Whether policies were evaluated while they were trained is not recorded everywhere; "
            "it does not change them."
        )
    if material.benchmarks:
        notes.append("Which suite a benchmark was is not recorded; puorl bench list names them.")
    return notes


def _versions(material: Material) -> list[tuple[str, str]]:
    found = [(f"puorl filter: {each.path}", each.settings.versions) for each in material.filterings]
    found += [(f"puorl train: {each.path}", each.record.versions) for each in material.trainings]
    rows = [(name, ", ".join(f"{k} {v}" for k, v in versions.items())) for name, versions in found]
    rows = [(name, text or "not recorded") for name, text in rows]
    for path, report in material.benchmarks.items():
        seen = [row.get("versions") or {} for row in report.results.rows]
        texts = dict.fromkeys(f"{k} {v}" for versions in seen for k, v in versions.items())
        rows.append((f"puorl bench run: {path}", ", ".join(texts) or "not recorded"))
    return [*rows, ("this page", f"puorl {__version__}")]


def _settings(material: Material) -> dict[str, Any]:
    filters = {each.path: dataclasses.asdict(each.settings) for each in material.filterings}
    runs = {
        each.path: {
            "settings": dataclasses.asdict(each.settings),
            "record": dataclasses.asdict(each.record),
        }
        for each in material.trainings
    }
    return {name: part for name, part in (("filter", filters), ("train", runs)) if part}
