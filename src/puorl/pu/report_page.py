"""A filter report as HTML: its pictures, its sections and the whole page."""

import json
import math
from dataclasses import replace
from typing import Any

from puorl.core.stats import Estimate
from puorl.html import charts, page
from puorl.html.page import Markup, Tile, as_count, as_percent, as_percent_range, shorten
from puorl.pu.checks.auroc import CHANCE
from puorl.pu.checks.verdict import Verdict
from puorl.pu.machines.findings import Verdict as MachineVerdict
from puorl.pu.machines.mixture import SEEN
from puorl.pu.machines.report import MachineReport
from puorl.pu.report import FilterReport, Histogram, Quality
from puorl.pu.report_text import (
    ALPHA,
    LONGEST_NAME,
    MACHINE_VERDICTS,
    MEANINGS,
    VERDICT_NAMES,
    describe_alphas,
    describe_shortcut,
    describe_types,
    mostly_sure,
    tells_nothing,
)
from puorl.pu.unit_table import (
    AGREEMENT,
    COLUMNS,
    NONE,
    OF_TYPE,
    cells,
    doubtful,
    heads,
    in_order,
    type_of,
)

_SPIKY = 0.25  # a bin this full flattens all others on a linear axis
_MOST_DOUBTFUL = 10
_NARROWEST = 0.1  # of the axis of alpha: small differences should look small


def alpha_picture(report: FilterReport) -> Markup:
    """Draw the filter's alpha and the checks of it; empty without an estimate."""
    named = [(f"check: {shorten(each.method, LONGEST_NAME)}", each) for each in report.alphas]
    if report.alpha is not None:
        named = [("alpha, the filter's own", report.alpha), *named]
    if not named:
        return Markup("")
    dots = []
    for name, each in named:
        ends = as_percent_range(each.low, each.high)
        text = as_percent(each.value) + (f" ({ends})" if ends else "")
        dots.append(charts.Dot(name, each, text))
    values = [end for _, each in named for end in (each.value, each.low, each.high)]
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    air = max(0.15 * (high - low), (_NARROWEST - (high - low)) / 2)
    return charts.dots(
        "Estimates of alpha",
        dot=dots,
        low=max(low - air, 0.0),
        high=min(high + air, 1.0),
        x_label="alpha, fraction of the unlabelled rows",
        percent=True,
    )


def history_picture(report: FilterReport) -> Markup:
    """Draw alpha after each epoch, with the band of the final estimate; empty if none is known."""
    history = report.alpha_history
    known = [value for value in history if math.isfinite(value)]
    if not known:
        return Markup("")
    num_epochs = len(history)
    interval = report.alphas[0].interval if report.alphas else None
    line = charts.Line(
        "alpha after each epoch",
        tuple(range(1, num_epochs + 1)),
        history,
        low=(interval[0],) * num_epochs if interval else (),
        high=(interval[1],) * num_epochs if interval else (),
        end=as_percent(known[-1]),
    )
    return charts.lines(
        "Alpha over the epochs",
        f"Alpha after each of {num_epochs} epochs; the last is {as_percent(known[-1])}.",
        line=[line],
        x_label="epoch",
        y_label="alpha",
        percent=True,
    )


def score_picture(bins: Histogram) -> Markup:
    """Draw the scores of labelled and unlabelled rows; empty without bins."""
    if len(bins.edge) < 2:
        return Markup("")
    spiky = max((*bins.labelled, *bins.unlabelled)) > _SPIKY
    return charts.histogram(
        "Scores of labelled and unlabelled rows",
        f"In bins from 0.5 upwards lie {_upper_fraction(bins, bins.labelled)} of the labelled and "
        f"{_upper_fraction(bins, bins.unlabelled)} of the unlabelled rows.",
        edge=bins.edge,
        fraction={"labelled (held out)": bins.labelled, "unlabelled": bins.unlabelled},
        x_label="score",
        y_label="fraction of rows" + (", square-root axis" if spiky else ""),
        scale="sqrt" if spiky else "linear",
    )


def auroc_picture(title: str, estimates: dict[str, Estimate]) -> Markup:
    """Draw AUROCs between chance and 1, each with its name."""
    dots = []
    for name, each in estimates.items():
        text = f"{each.value:.3f}" if math.isfinite(each.value) else "not known"
        if each.interval is not None:
            text += f" ({each.low:.3f}–{each.high:.3f})"
        dots.append(charts.Dot(name, each, text))
    ends = [end for each in estimates.values() for end in (each.value, each.low)]
    known = [end for end in ends if math.isfinite(end)]
    return charts.dots(
        title,
        dot=dots,
        low=math.floor(20 * min((CHANCE, *known))) / 20,
        high=1.0,
        x_label="AUROC",
        mark=(CHANCE, "chance"),
    )


def machine_picture(report: MachineReport) -> Markup:
    """Draw the map of the machines: their places, types, and how well the places are known."""
    clusters = sorted({row.cluster for row in report.units}, key=lambda k: (k < 0, k))
    named = {row.cluster: type_of(row) for row in report.units}
    count = {named[k]: sum(row.cluster == k for row in report.units) for k in clusters}
    return charts.scatter(
        "Map of the machines",
        "; ".join(f"{name}: {number} units" for name, number in count.items()),
        points=[
            charts.ScatterPoint(
                shorten(row.name, LONGEST_NAME),
                row.x,
                row.y,
                2 * row.spread,
                clusters.index(row.cluster),
                row.labelled,
            )
            for row in report.units
        ],
        groups=[f"{name} ({number})" for name, number in count.items()],
        x_label=(
            "from ours to the nearest other type, in deviations"
            if _has_types(report)
            else "along the likeliest cut in two, in deviations"
        ),
        y_label="across, in deviations",
    )


def _has_types(report: MachineReport) -> bool:
    """Return whether the map shows types other than ours that do not rest on weak evidence."""
    return any(row.cluster > 0 for row in report.units) and not report.is_weak


def describe_gain(gain: float, one: str) -> str:
    """Describe the evidence for more than one of something, in nats.

    >>> describe_gain(9.0, "one type"), describe_gain(-5.5, "one type")
    ('9.0 nats (4 are needed)', 'none (one type explains the units better, by 5.5 nats)')
    """
    if gain < 0:
        return f"none ({one} explains the units better, by {-gain:.1f} nats)"
    return f"{gain:.1f} nats ({SEEN:.0f} are needed)"


def _upper_fraction(bins: Histogram, fraction: tuple[float, ...]) -> str:
    # A bin counts by its left edge, so that none is counted in part.
    pairs = zip(fraction, bins.edge[:-1], strict=True)
    # Rounding may lift the sum of all bins above 1.
    return as_percent(min(sum(each for each, left in pairs if left >= CHANCE), 1.0))


_HEADLINES: dict[Verdict, tuple[page.Tone, str]] = {
    "clear": ("good", "The target's rows stand out"),
    "behaviour": ("caution", "The rows differ in behaviour, not in dynamics"),
    "doubtful": ("caution", "Check what was kept"),
    "cannot_tell": ("neutral", "No second domain is detectable with these inputs"),
}
_TERMS = {
    "Target": "The domain that the labelled rows come from, and that the policy is meant for.",
    "Alpha": "Fraction of the target's rows among the unlabelled ones.",
    "Recall": "Of the target's unlabelled rows, the fraction that was kept.",
    "Precision": "Of the unlabelled rows that were kept, the fraction that is the target's.",
    "Purity": "Of all rows to train on, labelled ones included, the fraction of the target's.",
    "Score": "Probability that a row is the target's, from 0 to 1.",
    "AUROC": (
        "Probability that a labelled row scores above an unlabelled one; 0.5 is chance. The "
        "target's rows among the unlabelled keep it below 1 even for a perfect filter."
    ),
    "95 % interval": (
        "A range that holds the true number in 19 of 20 cases, if the labelled rows are a random "
        "draw of the target's rows."
    ),
}


_MACHINE_HEADLINES: dict[MachineVerdict, tuple[page.Tone, str]] = {
    "dynamics": ("good", "There are machines of other types, which move differently"),
    "both": ("good", "There are machines of other types, driven in other ways"),
    "behaviour": ("caution", "Units are driven differently, but move alike"),
    "neither": ("neutral", "No second type of machine is visible"),
    "confounded": ("caution", "Machine and driver cannot be separated"),
}
_MACHINE_TERMS = {
    "Unit": "What is decided about: a machine, or an episode, with all its rows.",
    "Known": "Labelled as ours, and kept in any case.",
    "Type": f"Units that move alike: ours, A, B and so on by number of units, or {NONE}.",
    "Evidence": "Log of how much likelier ours is than all other types, in nats: +3 is 20 to 1.",
    "Probability": "Of a unit to be ours, given how many units are.",
    OF_TYPE.capitalize(): "Of a unit to be of its type, where other types are named.",
    "Agreement": (
        "Fraction of the models' votes for a decision. Models differ by size and seed; those that "
        f"see types more clearly count more. Below {AGREEMENT} the decision is in doubt."
    ),
    "Alpha": "Fraction of our rows among the unlabelled ones.",
    "95 % interval": (
        "From draws of models and of units by their probabilities; it holds if the known units "
        "are typical of ours."
    ),
}


def as_page(report: FilterReport | MachineReport) -> str:
    """Make a self-contained HTML page; the same report gives the same page."""
    decided = f"Decided by {shorten(report.unit, LONGEST_NAME)}"
    if isinstance(report, MachineReport):
        num_units, num_rows = len(report.units), sum(row.num_rows for row in report.units)
        lead = f"Units: {as_count(num_units)} with {as_count(num_rows)} rows. {decided}, from how "
        lead += "they move."
    else:
        labelled, unlabelled = report.quality.num_labelled, report.quality.num_unlabelled
        lead = f"Labelled rows: {as_count(labelled)}. Unlabelled rows: {as_count(unlabelled)}. "
        lead += f"{decided}."
    return page.document(
        "Domain filter report",
        *as_sections(report),
        page.section("How to read this page", page.terms(as_terms(report))),
        _settings(report),
        lead=lead,
    )


def as_sections(
    report: FilterReport | MachineReport, *, anchor: str = "warnings"
) -> tuple[Markup, ...]:
    """Make all sections of the report, the verdict first, for a page that may have more.

    Args:
        report: The report.
        anchor: Anchor of the warnings, unique in the page.
    """
    if isinstance(report, MachineReport):
        return _machine_sections(report)
    return (
        _verdict(report, anchor),
        _kept(report),
        page.section("Warnings", page.warning_list(report.warnings), anchor=anchor),
        _alpha(report),
        _scores(report),
        _shortcut(report),
        _selection(report),
        _doubtful(report),
    )


def _machine_sections(report: MachineReport) -> tuple[Markup, ...]:
    tone, headline = _MACHINE_HEADLINES[report.verdict]
    if report.is_weak:
        tone, headline = "caution", "A second type of machine is hardly visible"
    if tone == "good" and not mostly_sure(report):
        tone, headline = "caution", f"{headline}, but which units are whose is in doubt"
    name = MACHINE_VERDICTS[report.verdict]
    finding = report.finding
    kept = [row for row in report.units if row.keep and not row.labelled]
    asked = sum(not row.labelled for row in report.units)
    tiles = (
        Tile(
            "Weight 0.5 or more" if report.is_soft else "Units kept",
            as_count(len(kept)),
            "Units that move like the known ones.",
            interval=f"of {as_count(asked)} unlabelled",
            picture=charts.interval_strip(len(kept) / max(asked, 1), math.nan, math.nan),
        ),
        _tile("Alpha", report.alpha, ALPHA),
        _tile("Recall", report.recall, MEANINGS[report.is_soft]["Recall"]),
        _tile("Precision", report.precision, MEANINGS[report.is_soft]["Precision"]),
    )
    places = "units of one type lie together"
    if not _has_types(report):
        places = (
            "the first direction is the one in which they could best be cut in two. No such cut is "
            "clearly visible, so that units may lie apart in it by chance"
        )
    driving = describe_gain(finding.behaviour_gain, "one way")
    words = page.group(
        page.paragraph(
            f"Each mark is a unit, placed by how it moves; {places}. Filled marks are known to be "
            "ours. Units with few rows have wide rings. Point at a mark for its name."
        ),
        page.paragraph(
            "Evidence for more than one type of machine: "
            f"{describe_gain(finding.gain, 'one type')}. The clearest view: {report.view}. "
            f"Evidence for more than one way of driving: {driving}. {_overlap(report)}"
        ),
    )
    unsure = doubtful(report.units)
    names = heads(report.units)
    texts = ("unit", "labelled", "decision", "type")
    numeric = tuple(k for k, name in enumerate(names) if name not in texts)
    header = tuple(k.capitalize() for k in names)
    look = page.paragraph("No decision is in doubt.")
    if unsure and len(unsure) == asked:
        look = page.paragraph("Every decision is in doubt: see the table of all units.")
    elif unsure:
        shown = page.table(
            "Units near even odds, or on which models disagree; the most doubtful first",
            header,
            map(cells, unsure[:_MOST_DOUBTFUL]),
            numeric=numeric,
        )
        look = page.movable(shown, "Units worth a look")
    every = page.table(
        "All units; a click on a head sorts. units.csv in the same folder holds the same.",
        header,
        map(cells, in_order(report.units)),
        numeric=numeric,
        sortable=True,
    )
    drawn = page.figure(machine_picture(report), "Rings are twice the standard error.")
    return (
        page.banner(tone, f"Verdict: {name}", headline, report.advice),
        page.section("What was kept", page.tiles(tiles), page.paragraph(describe_types(report))),
        page.section("Map of the machines", page.side_by_side(words, drawn)),
        page.section("Units worth a look", look),
        page.section("All units", page.movable(every, "All units")),
    )


def _overlap(report: MachineReport) -> str:
    """Say how far states and actions of groups overlap; nothing where none were compared."""
    overlap = min(max(report.finding.overlap, 0.0), 1.0)
    if any(not row.keep for row in report.units):
        chosen = "units that weigh 0.5 or more" if report.is_soft else "kept"
        groups = f"{chosen} and of other units"
    elif overlap < 1.0:
        groups = "units that are driven differently, or in different ranges,"
    else:
        return ""
    return f"States and actions of {groups} overlap by {as_percent(overlap, digits=0)}."


def _verdict(report: FilterReport, anchor: str) -> Markup:
    tone, headline = _HEADLINES[report.verdict]
    number = len(report.warnings)
    more = page.link(f"{number} warning{'s' * (number > 1)} below", anchor)
    parts = (more,) if number else ()
    return page.banner(
        tone, f"Verdict: {VERDICT_NAMES[report.verdict]}", headline, report.advice, *parts
    )


def _kept(report: FilterReport) -> Markup:
    quality = report.quality
    upper = quality.precision_is_upper and quality.precision_is_known
    precision, purity = quality.precision, quality.purity
    if quality.precision_is_open:
        precision, purity = (replace(each, value=math.nan) for each in (precision, purity))
    meaning = MEANINGS[quality.is_soft]
    tiles = (
        _rows_tile(quality),
        _tile("Recall", quality.recall, meaning["Recall"]),
        _tile("Precision", precision, meaning["Precision"], upper=upper),
        _tile("Purity", purity, meaning["Purity"], upper=upper),
    )
    notes = []
    if quality.mean_weight is not None:
        notes.append(
            f"All {as_count(quality.num_unlabelled)} unlabelled rows go on to training, each with "
            f"a weight; the mean weight is {quality.mean_weight:.3f}. Recall, precision and purity "
            f"are of the {as_count(quality.num_kept)} rows that weigh 0.5 or more."
        )
    if upper:
        notes.append(
            "Precision and purity are upper estimates: the data bounds alpha from above only, so "
            "both may be lower than shown."
        )
    return page.section("What was kept", page.tiles(tiles), *map(page.paragraph, notes))


def _rows_tile(quality: Quality) -> Tile:
    """Show how many unlabelled rows are kept, or weigh 0.5 or more."""
    fraction = quality.num_kept / quality.num_unlabelled if quality.num_unlabelled else math.nan
    name, meaning = "Rows kept", "Unlabelled rows that go on to training."
    if quality.is_soft:
        name, meaning = "Weight 0.5 or more", "Unlabelled rows that are likely the target's."
    return Tile(
        name,
        as_count(quality.num_kept),
        meaning,
        interval=f"{as_percent(fraction)} of {as_count(quality.num_unlabelled)} unlabelled",
        picture=charts.interval_strip(fraction, math.nan, math.nan),
    )


def _tile(name: str, estimate: Estimate, meaning: str, *, upper: bool = False) -> Tile:
    ends = as_percent_range(estimate.low, estimate.high)
    if tells_nothing(estimate):
        estimate = replace(estimate, value=math.nan)
    return Tile(
        name,
        as_percent(estimate.value),
        meaning,
        interval=f"95 % interval: {ends}" if ends else "no interval",
        qualifier="at most" if upper and math.isfinite(estimate.value) else "",
        picture=charts.interval_strip(estimate.value, estimate.low, estimate.high),
    )


def _alpha(report: FilterReport) -> Markup:
    estimates, history = alpha_picture(report), history_picture(report)
    dots_mean = "Each dot is an estimate, the bar its 95 % interval."
    line_means = "A level line has converged."
    if report.alphas and report.alphas[0].interval:
        line_means += " The band is the first estimate's interval."
    left = page.group(
        page.paragraph(describe_alphas(report)),
        page.figure(estimates, dots_mean) if estimates else Markup(""),
    )
    right = page.figure(history, line_means) if history else Markup("")
    return page.section(
        "How many of the unlabelled rows are the target's", page.side_by_side(left, right)
    )


def _scores(report: FilterReport) -> Markup:
    picture = score_picture(report.histogram)
    words = page.group(
        page.paragraph(
            "Labelled rows are the target's and should score high. Unlabelled rows are a mixture: "
            "a second peak at low scores is what the filter takes for other domains."
        ),
        page.paragraph(
            "Two clear peaks with little between them make a safe choice. Where both histograms "
            "have the same shape, the filter found no difference."
        ),
    )
    caption = "Labelled rows were scored by networks that had not seen them."
    if not picture:
        return page.section("Scores", page.paragraph("No scores were recorded."))
    return page.section("Scores", page.side_by_side(words, page.figure(picture, caption)))


def _shortcut(report: FilterReport) -> Markup:
    check = report.shortcut
    picture = auroc_picture(
        "AUROC with all inputs and with behaviour alone",
        {"all inputs": check.auroc, "behaviour (s, a) alone": check.auroc_behaviour},
    )
    words = page.group(
        page.paragraph(describe_shortcut(check)),
        page.paragraph(
            "The same learner was trained on states and actions alone. It sees the behaviour "
            "policy and where it went, but not the dynamics: how the system responded."
        ),
    )
    caption = "Probability that a labelled row scores above an unlabelled one, with 95 % intervals."
    columns = page.paragraph("No column separates labelled from unlabelled rows by its recording.")
    if report.columns:
        columns = page.table(
            "Columns that tell labelled from unlabelled rows by how they were recorded",
            ("Column", "AUROC", "Finding"),
            [
                (
                    shorten(c.column, LONGEST_NAME),
                    f"{c.auroc:.3f}",
                    f"{c.kind.capitalize()}: {c.sentence}",
                )
                for c in report.columns
            ],
            numeric=(1,),
        )
    return page.section(
        "Is it dynamics, or a shortcut?",
        page.side_by_side(words, page.figure(picture, caption)),
        columns,
    )


def _selection(report: FilterReport) -> Markup:
    check = report.selection
    answer = "Yes, as far as is known." if check.is_random else "No, they do not look like one."
    if not math.isfinite(check.auroc.value):
        answer = "This could not be checked."
    elif not check.is_known:
        answer = "Unsure."
    picture = auroc_picture(
        "Labelled rows against kept unlabelled rows", {"labelled against kept": check.auroc}
    )
    caption = "At 0.5, labelled rows look like any other row that was kept."
    return page.section(
        "Are the labelled rows a random draw?",
        page.side_by_side(
            page.group(page.paragraph(answer), page.paragraph(check.sentence)),
            page.figure(picture, caption),
        ),
    )


def _doubtful(report: FilterReport) -> Markup:
    column = shorten(report.unit_column, LONGEST_NAME)
    groups = f"values of {column}" if column else "episodes"
    heading = f"{groups[0].upper()}{groups[1:]} worth a look"
    if not report.doubtful:
        words = "None is listed: rows carry no episodes, or no episode is in doubt."
        if column:
            words = "None is listed: no value is in doubt."
        return page.section(heading, page.paragraph(words))
    rows = [
        (
            shorten(each.episode, LONGEST_NAME),
            as_count(each.num_rows),
            f"{each.mean_score:.3f}" if math.isfinite(each.mean_score) else "not known",
            as_percent(each.kept_fraction),
        )
        for each in report.doubtful
    ]
    caption = f"The {groups} about which the filter is least sure, the most doubtful first"
    kept = "Weight 0.5 or more" if report.quality.is_soft else "Rows kept"
    header = (column or "Episode", "Rows", "Mean score", kept)
    return page.section(heading, page.table(caption, header, rows, numeric=(1, 2, 3)))


def as_terms(report: FilterReport | MachineReport) -> dict[str, str]:
    """Return the terms of the sections with their meanings."""
    if isinstance(report, MachineReport):
        named = MEANINGS[True] if report.is_soft else _TERMS
        terms = {**_MACHINE_TERMS, **{k: named[k] for k in ("Recall", "Precision")}}
        if heads(report.units) == COLUMNS:
            del terms[OF_TYPE.capitalize()]
        return terms
    if not report.quality.is_soft:
        return _TERMS
    kept = "Here, an unlabelled row that weighs 0.5 or more; all others go on to training too."
    return {"Kept": kept, **_TERMS, "Purity": MEANINGS[True]["Purity"]}


def _settings(report: FilterReport | MachineReport) -> Markup:
    whole = report.to_dict()
    rows = _flat({"unit": report.unit} | whole["settings"])
    return page.section(
        "Settings and provenance",
        page.table("What made this report", ("Setting", "Value"), rows),
        page.folded("The whole report as JSON", json.dumps(whole, indent=2, ensure_ascii=False)),
    )


def _flat(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested settings to dotted names."""
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows.append((shorten(f"{prefix}{key}", LONGEST_NAME), text))
    return rows
