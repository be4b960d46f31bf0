"""From numbers to a verdict, a piece of advice and warnings in plain words.

The verdict is the worst thing that is true: no second domain is visible; it is behaviour that parts
the rows; something makes the numbers doubtful; nothing does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from puorl.pu.mpe.estimate import AlphaEstimate
from puorl.pu.report import ColumnShortcut, Quality, Selection, Shortcut, Verdict

FEW_LABELLED = 100
FEW_GROUPS = 10
_NO_TARGET = 0.02
_WIDE = 0.2
_LOW_PRECISION = 0.9
_LOW_RECALL = 0.8


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on."""

    others_visible: bool
    alphas: tuple[AlphaEstimate, ...]
    alphas_agree: bool
    quality: Quality
    num_groups: int | None
    """Groups (episodes, windows) of labelled rows; None where rows are independent."""
    shortcut: Shortcut
    columns: tuple[ColumnShortcut, ...]
    selection: Selection


def decide(evidence: Evidence) -> tuple[Verdict, str, tuple[str, ...]]:
    """The verdict, one or two sentences of advice, and warnings, the gravest first."""
    if not evidence.others_visible:
        warnings = (*_about_data(evidence),)
        return "cannot_tell", _CANNOT_TELL, warnings
    warnings = (*_about_data(evidence), *_about_numbers(evidence))
    if evidence.shortcut.is_shortcut:
        return "behaviour", _BEHAVIOUR, (_shortcut(evidence.shortcut), *warnings)
    if warnings:
        return "doubtful", _doubtful_advice(evidence), warnings
    return "clear", _clear_advice(evidence.quality), ()


_CANNOT_TELL = (
    "No second domain is visible with these inputs: nearly all rows are yours, or the others look "
    "the same; the data cannot say which. Decide by whole episodes or with other inputs, and read "
    "the precision as an upper estimate."
)
_BEHAVIOUR = (
    "State and action alone part the rows almost as well as what happens next does, so what is "
    "kept may be a way of acting and not a domain. Check that the labelled rows hold every way in "
    "which your system is operated, and look at some rejected episodes before you train."
)


def _about_data(evidence: Evidence) -> Iterator[str]:
    """What is wrong with the rows, whatever the scores say."""
    for column in evidence.columns:
        yield f"Recording tells labelled rows from unlabelled ones. {column.sentence}"
    num_labelled, num_groups = evidence.quality.num_labelled, evidence.num_groups
    if num_labelled < FEW_LABELLED:
        yield f"Only {num_labelled:,} labelled rows could be judged; every number here is rough."
    elif num_groups is not None and num_groups < FEW_GROUPS:
        yield (
            f"The labelled rows come from {num_groups:,} episodes or windows only; "
            "every number here is rough."
        )


def _about_numbers(evidence: Evidence) -> Iterator[str]:
    """What makes the numbers doubtful although a second domain is visible."""
    alpha, quality = evidence.alphas[0], evidence.quality
    low, high = alpha.interval or (alpha.value, alpha.value)
    if quality.num_kept == 0:
        yield "No unlabelled row is kept."
    if _has_no_target(alpha):
        yield (
            f"Hardly any unlabelled row (at most {high:.1%}) looks like a labelled one: the "
            "target may be absent, or the labelled rows were recorded differently."
        )
    if not evidence.alphas_agree:
        said = " and ".join(f"{a.method} {a.value:.2f}" for a in evidence.alphas)
        yield f"Two estimates of the target's share disagree: {said}."
    if high - low > _WIDE:
        yield f"The target's share is known roughly only: {low:.0%} to {high:.0%}."
    if quality.precision_is_upper:
        yield "The target's share is bounded from above only, and so is the precision."
    if not evidence.selection.is_random:
        yield evidence.selection.sentence
    if quality.num_kept > 0 and quality.precision.value < _LOW_PRECISION:
        yield f"About {1 - quality.precision.value:.0%} of the kept rows are not the target's."
    if quality.recall.value < _LOW_RECALL:
        yield f"About {1 - quality.recall.value:.0%} of the target's rows are thrown away."


def _has_no_target(alpha: AlphaEstimate) -> bool:
    return (alpha.interval or (alpha.value, alpha.value))[1] < _NO_TARGET


def _shortcut(shortcut: Shortcut) -> str:
    return (
        f"(s, a) alone gives {shortcut.share:.0%} of the separation "
        f"({shortcut.separation_behaviour.value:.2f} of {shortcut.separation.value:.2f})."
    )


def _doubtful_advice(evidence: Evidence) -> str:
    """What to do about the gravest cause."""
    quality = evidence.quality
    if evidence.columns:
        names = ", ".join(dict.fromkeys(column.column for column in evidence.columns[:3]))
        return (
            f"Record labelled and unlabelled rows alike first (see {names}): the filter may have "
            "learnt the recording instead of the domain."
        )
    if quality.num_kept == 0 or _has_no_target(evidence.alphas[0]):
        return (
            "Check that the labelled rows and the unlabelled ones come from the same kind of "
            "recording, and that the target is among the unlabelled at all."
        )
    if quality.num_labelled < FEW_LABELLED or (evidence.num_groups or FEW_GROUPS) < FEW_GROUPS:
        return "Label more of the target's rows, from other episodes, and fit again."
    if not evidence.selection.is_random:
        return (
            "Label rows from everywhere the target was, or expect that target rows unlike the "
            "labelled ones are lost."
        )
    return (
        f"Of the kept rows {_percent(quality.precision.low)} to {_percent(quality.precision.high)} "
        "are likely yours. Decide by whole episodes, or label more rows, and look at the doubtful "
        "episodes."
    )


def _clear_advice(quality: Quality) -> str:
    return (
        f"Use what is kept: {_percent(quality.precision.low)} to "
        f"{_percent(quality.precision.high)} of it is likely yours, and about "
        f"{_percent(quality.recall.value)} of your rows are in it."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
