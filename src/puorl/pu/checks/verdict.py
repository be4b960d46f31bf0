"""From numbers to a verdict, a piece of advice and warnings in plain words.

The verdict is the worst thing that is true: labelled and unlabelled rows look alike; it is
behaviour that parts the rows; something makes the numbers doubtful; nothing does. Scores that look
separated but come from too few rows to be sure are doubtful: nothing says that rows look alike.
"""

import math
from collections.abc import Iterator

from puorl.pu.checks.advice import (
    behaviour_advice,
    cannot_tell_advice,
    clear_advice,
    doubtful_advice,
    kept_rows,
)
from puorl.pu.checks.evidence import Evidence
from puorl.pu.checks.shortcut import LARGE_SHARE
from puorl.pu.report import Shortcut, Verdict
from puorl.pu.units import parse_unit

_LOW_PRECISION = 0.9
_LOW_RECALL = 0.8


def decide(evidence: Evidence) -> tuple[Verdict, str, tuple[str, ...]]:
    """The verdict, one or two sentences of advice, and warnings, the gravest first.

    What should be known but makes no number doubtful stands last, and may stand beside "clear".
    """
    notes = (*_about_labels(evidence),)
    if not evidence.others_visible and not evidence.looks_separated:
        warnings = (*_about_data(evidence), *notes)
        return "cannot_tell", cannot_tell_advice(evidence), warnings
    doubts = (*_about_data(evidence), *_about_numbers(evidence))
    if evidence.shortcut.is_shortcut:
        warnings = (_shortcut(evidence.shortcut), *doubts, *notes)
        return "behaviour", behaviour_advice(evidence), warnings
    if doubts:
        return "doubtful", doubtful_advice(evidence), (*doubts, *notes)
    return "clear", clear_advice(evidence), notes


def _about_labels(evidence: Evidence) -> Iterator[str]:
    """What was made of the labels, without harm to the numbers."""
    if evidence.num_scattered:
        unit = parse_unit(evidence.unit)
        name = unit.column if unit.kind == "column" else unit.kind
        yield (
            f"Labels are scattered: {evidence.num_scattered:,} unlabelled rows share their {name} "
            "with labelled ones; they count as known, and are kept."
        )


def _about_data(evidence: Evidence) -> Iterator[str]:
    """What is wrong with the rows, whatever the scores say."""
    for column in evidence.columns:
        yield f"Recording tells labelled rows from unlabelled ones. {column.sentence}"
    if not evidence.has_few_labels:
        return
    if evidence.has_few_rows:
        yield (
            f"Only {evidence.num_judged:,} labelled rows could be judged; every number here is "
            "rough."
        )
    else:
        yield (
            f"The labelled rows come from {evidence.num_groups:,} {evidence.groups_called} only; "
            "every number here is rough."
        )


def _about_numbers(evidence: Evidence) -> Iterator[str]:
    """What makes the numbers doubtful although a second domain is visible."""
    quality = evidence.quality
    low, high = evidence.alpha_ends
    if not evidence.others_visible:
        area = evidence.shortcut.separation
        yield (
            f"The separation is known roughly only: {area.low:.2f} to {area.high:.2f}, and 0.50 is "
            "none at all."
        )
    if evidence.shortcut.share >= LARGE_SHARE and not evidence.shortcut.is_sure:
        yield (
            f"(s, a) alone gives {evidence.shortcut.share:.0%} of the separation, but the "
            "intervals are too wide to call it a shortcut."
        )
    if quality.num_kept == 0:
        yield f"No unlabelled row {'weighs 0.5 or more' if quality.is_soft else 'is kept'}."
    if evidence.has_no_target:
        yield (
            f"Hardly any unlabelled row (at most {high:.1%}) looks like a labelled one: the "
            "target may be absent, or the labelled rows were recorded differently."
        )
    if not evidence.alphas_agree:
        said = " and ".join(f"{a.method} {a.value:.2f}" for a in evidence.alphas)
        yield f"Two estimates of the target's share disagree: {said}."
    if evidence.alpha_is_rough:
        yield f"The target's share is known roughly only: {low:.0%} to {high:.0%}."
    if quality.precision_is_upper:
        also = ", and so is the precision" if quality.precision_is_known else ""
        yield f"The target's share is bounded from above only{also}."
    if not evidence.selection.is_random:
        yield evidence.selection.sentence
    if quality.num_kept > 0:
        yield from _about_precision(evidence)
    if quality.recall.value < _LOW_RECALL:
        lost = "get a weight below 0.5" if quality.is_soft else "are thrown away"
        yield f"About {1 - quality.recall.value:.0%} of the target's rows {lost}."


def _about_precision(evidence: Evidence) -> Iterator[str]:
    precision, kept = evidence.quality.precision, kept_rows(evidence)
    if not math.isfinite(precision.value):
        yield f"How many of {kept} are the target's is not known: held-out networks keep none."
        return
    if evidence.quality.precision_is_open:
        yield f"How many of {kept} are the target's is not known: any share of them fits the data."
        return
    if evidence.precision_is_rough:
        yield (
            f"The precision is known roughly only: {precision.low:.0%} to "
            f"{precision.high:.0%} of {kept} are the target's."
        )
    if precision.value < _LOW_PRECISION:
        yield f"About {1 - precision.value:.0%} of {kept} are not the target's."


def _shortcut(shortcut: Shortcut) -> str:
    return (
        f"(s, a) alone gives {shortcut.share:.0%} of the separation "
        f"({shortcut.separation_behaviour.value:.2f} of {shortcut.separation.value:.2f})."
    )
