"""The page: what was asked, the data, the filter, training, results, how to do it again."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from puorl.bench.tables import as_html
from puorl.html import page
from puorl.html.page import Markup, Tile, as_count, as_percent, as_percent_range
from puorl.pu.report_page import as_sections, as_terms
from puorl.report.filmstrip import Film, strip
from puorl.report.reproducing import reproduce_section, source_of
from puorl.report.run_folders import Benchmark, Filtering, Material, Training
from puorl.report.training_part import (
    SCORE,
    evaluation_sections,
    final_tile,
    groups_of,
    training_sections,
)

TITLE = "puorl report"
_UNKNOWN, _DASH = "not recorded", "–"
_MOST_FILES = 5
_INPUTS = {
    "sas": "by state, action and next state",
    "sar": "by state, action and reward",
    "sars": "by state, action, next state and reward",
}


def as_page(material: Material, film: Film | str, *, command: str) -> str:
    """Everything as a self-contained HTML page; the same folders give the same page.

    Args:
        material: What was read.
        film: The best policy's film, or why there is none; empty where nobody would expect one.
        command: What was typed, for those who want to do it again.
    """
    parts = [_in_short(material), _asked(material), _data(material)]
    for number, filtering in enumerate(material.filterings, 1):
        parts += _filter(filtering, number, several=len(material.filterings) > 1)
    if material.filterings or material.trainings:
        if not material.filterings:
            words = "No folder of puorl filter was named, so nothing is said about a filter here."
            parts.append(page.section("The filter", page.paragraph(words)))
        parts += training_sections(material.trainings)
    parts += evaluation_sections(material.evaluations, material.trainings)
    parts.append(_film(film))
    parts += [_benchmark(each, number) for number, each in enumerate(material.benchmarks, 1)]
    if any(each.report is not None for each in material.filterings):
        parts.append(page.section("How to read this page", page.terms(_terms(material))))
    parts.append(reproduce_section(material, command))
    made = [f"{path} (puorl {kind})" for path, kind in material.kinds().items()]
    return page.document(TITLE, *parts, lead=f"Made from {', '.join(made)}.")


def _in_short(material: Material) -> Markup:
    tiles = []
    for each in material.filterings:
        report = each.report
        verdict = "not checked" if report is None else f"verdict: {report.verdict}"
        tiles.append(
            Tile(
                f"Rows kept{_of(each, material)}",
                as_count(each.settings.kept.num_rows),
                "They go on to training, labelled ones included.",
                interval=verdict.replace("_", " "),
            )
        )
        if report is None:
            continue
        quality = report.quality
        purity = math.nan if quality.precision_is_open else quality.purity.value
        upper = quality.precision_is_upper and math.isfinite(purity)
        ends = as_percent_range(quality.purity.low, quality.purity.high)
        tiles.append(
            Tile(
                "Of these the target's",
                as_percent(purity),
                "Estimated without labels.",
                interval=f"95 % interval: {ends}" if ends else "no interval",
                qualifier="at most" if upper else "",
            )
        )
    runs = material.trainings
    if runs:
        which = ", ".join(dict.fromkeys(run.plan.learner for run in runs))
        total = sum(len(run.lanes) for run in runs)
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
        for group, members in groups_of(each).items()
    ]
    return page.tiles(tiles) if tiles else Markup("")


def _of(filtering: Filtering, material: Material) -> str:
    """Which filter it is, where there are several."""
    return f": {filtering.path}" if len(material.filterings) > 1 else ""


def _asked(material: Material) -> Markup:
    told = {each.path: _asked_of_filter(each) for each in material.filterings}
    told |= {each.path: _asked_of_training(each) for each in material.trainings}
    for each in material.evaluations:
        paths = dict.fromkeys(scored.group or scored.policy for scored in each.policies)
        told[each.path] = (
            f"How good are the policies of {', '.join(paths)} in {each.env}, over "
            f"{as_count(each.episodes)} episodes each?"
        )
    told |= {each.path: f"A benchmark. {each.report.lead}" for each in material.benchmarks}
    return page.section("What was asked", page.terms(told))


def _asked_of_filter(filtering: Filtering) -> str:
    asked = filtering.settings.arguments
    paths = ", ".join(filtering.settings.paths)
    names = ("labelled", "unit", "preset", "mode", "seed")
    told = {name: asked.get(name, _UNKNOWN) for name in names}
    inputs = _INPUTS.get(str(asked.get("inputs")), "by inputs that are not recorded")
    return (
        f"Which rows of {paths} are the target's? Known to be: {told['labelled']}. Decided by "
        f"{told['unit']}, {inputs}, preset {told['preset']}, mode {told['mode']}, seed "
        f"{told['seed']}."
    )


def _asked_of_training(training: Training) -> str:
    plan, number = training.plan, len(training.lanes)
    which = "policy" if number == 1 else "policies"
    return f"{number} {which} by {plan.learner}, {as_count(plan.steps)} updates each."


# ------------------------------------------------------------------------------ the data


def _data(material: Material) -> Markup:
    if not (material.filterings or material.trainings):
        words = "Neither a folder of puorl filter nor one of puorl train was named."
        if material.benchmarks:
            words = "The rows of a benchmark are said in its own tables below."
        return page.section("The data", page.paragraph(words))
    rows, hashes, notes = [], [], []
    for each in material.filterings:
        rows += _counts(each, _of(each, material))
        prints = each.settings.fingerprints
        hashes += [(f"{each.path}/: {name}", text) for name, text in prints.items()]
        hashes.append((f"{each.path}/: kept rows", each.settings.kept.fingerprint))
        notes += _about_kept(each)
    for run in material.trainings:
        hashes.append((f"{run.path}/: rows it learnt from", run.plan.data))
        notes.append(_learnt_from(run, source_of(run, material.filterings)))
    header = ("Rows", "Number", "Episodes", "Domain")
    counts = (
        page.table("A dash: not recorded", header, rows, numeric=(1, 2)) if rows else Markup("")
    )
    prints = page.table("Fingerprints: the same content has the same", ("Of", "Hash"), hashes)
    return page.section("The data", counts, *map(page.paragraph, dict.fromkeys(notes)), prints)


def _learnt_from(run: Training, source: Filtering | None) -> str:
    """From which rows a run learnt, as far as that is known."""
    if source is not None:
        return f"The run in {run.path}/ learnt from the rows in {source.path}/: fingerprints agree."
    parts = run.asked.parts
    if not parts:
        return (
            f"The run in {run.path}/ does not record how many rows it learnt from, nor their "
            "files; no filter named here kept rows with that fingerprint."
        )
    told = "; ".join(f"{as_count(part.num_rows)} rows of {_listed(part.files)}" for part in parts)
    return f"The run in {run.path}/ learnt from {told}. No filter named here kept such rows."


def _listed(files: Sequence[str]) -> str:
    more = len(files) - _MOST_FILES
    return ", ".join(files[:_MOST_FILES]) + (f" and {as_count(more)} more" if more > 0 else "")


def _counts(filtering: Filtering, which: str) -> list[tuple[str, ...]]:
    report, rows = filtering.report, filtering.rows
    labelled, unlabelled = _DASH, _DASH
    if report is not None:
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
    notes = [
        f"Each row has {rows.obs.shape[1]} state and {rows.action.shape[1]} action components. Of "
        "rows that were not kept only the number is recorded."
    ]
    if rows.fingerprint != filtering.settings.kept.fingerprint:
        notes.append(
            f"{filtering.path}/: the file of kept rows has another fingerprint than the filter "
            "wrote down: it has been changed since."
        )
    return notes


# ----------------------------------------------------------------------------- the parts


def _filter(filtering: Filtering, number: int, *, several: bool) -> list[Markup]:
    title = f"The filter: {filtering.path}" if several else "The filter"
    if filtering.report is None:
        words = (
            "Nothing was checked (--no-report), so nothing says how good this choice is. The same "
            "command without --no-report and with --force makes up for it."
        )
        return [page.section(title, page.paragraph(words))]
    anchor = f"warnings-{number}" if several else "warnings"
    verdict, *rest = as_sections(filtering.report, anchor=anchor)
    return [page.section(title, verdict), *rest]


def _terms(material: Material) -> dict[str, str]:
    """The filter's words; a score may be a row's or a policy's here."""
    reports = [each.report for each in material.filterings if each.report is not None]
    words = {
        {"Score": "Score of a row"}.get(name, name): meaning
        for report in reports[:1]
        for name, meaning in as_terms(report).items()
    }
    return {**words, "Score of a policy": SCORE} if material.trainings else words


def _film(film: Film | str) -> Markup:
    if not film:
        return Markup("")
    said = page.paragraph(f"No film: {film}.") if isinstance(film, str) else strip(film)
    return page.section("The best policy at work", said)


def _benchmark(benchmark: Benchmark, number: int) -> Markup:
    report = benchmark.report
    # Names become ids, of which a page may have each but once.
    tables = [dataclasses.replace(t, name=f"bench-{number}-{t.name}") for t in report.tables]
    words = (
        f"Pictures and settings of it: puorl bench report {benchmark.path} --format html makes a "
        "page of its own."
    )
    return page.section(
        f"Benchmark: {benchmark.path}",
        page.paragraph(report.lead),
        *map(as_html, tables),
        page.warning_list(report.results.notes) if report.results.notes else Markup(""),
        page.paragraph(words),
    )
