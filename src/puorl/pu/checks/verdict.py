"""Evidence: all that a verdict rests on, and what counts as little or rough."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from puorl.pu.alpha import AlphaEstimate
from puorl.pu.checks.behaviour import LARGE_SHARE
from puorl.pu.report import VISIBLE_AREA, ColumnShortcut, Quality, Selection, Shortcut, Verdict
from puorl.pu.units import Unit, parse_unit

FEW_LABELLED = 100
FEW_GROUPS = 10
_NO_TARGET = 0.02
_WIDE = 0.2


@dataclass(frozen=True)
class Evidence:
    """What was found out about a filter and its rows."""

    second_domain_detectable: bool
    alphas: tuple[AlphaEstimate, ...]
    alphas_agree: bool
    quality: Quality
    num_judged: int
    """Labelled rows that could be judged."""
    num_groups: int | None
    """Groups (episodes, values of a column) of labelled rows; None where rows are independent."""
    num_groups_u: int | None
    """The same of the unlabelled rows."""
    shortcut: Shortcut
    columns: tuple[ColumnShortcut, ...]
    selection: Selection
    unit: str
    """What was decided about."""
    has_episodes: bool
    num_scattered: int
    """Unlabelled rows that are known because their unit has a labelled row."""
    may_use_reward: bool
    """Whether rows have rewards that the filter did not look at."""

    @property
    def looks_separated(self) -> bool:
        """Whether the scores part the rows, be it by chance."""
        return self.shortcut.separation.value >= VISIBLE_AREA

    @property
    def groups_called(self) -> str:
        """What rows come in: episodes, the values of a column, or nothing but rows."""
        if not self.has_episodes and parse_unit(self.unit).kind != "column":
            return "rows"
        return group_words(parse_unit(self.unit))

    @property
    def alpha_ends(self) -> tuple[float, float]:
        """Of the first estimate."""
        alpha = self.alphas[0]
        return alpha.interval or (alpha.value, alpha.value)

    @property
    def alpha_is_rough(self) -> bool:
        """Whether its interval is too wide to rely on."""
        low, high = self.alpha_ends
        return high - low > _WIDE

    @property
    def precision_is_rough(self) -> bool:
        """The same of the precision; also where it is not known at all."""
        precision = self.quality.precision
        return not precision.high - precision.low <= _WIDE

    @property
    def has_no_target(self) -> bool:
        """Whether hardly any unlabelled row can be the target's."""
        return self.alpha_ends[1] < _NO_TARGET

    @property
    def has_few_labels(self) -> bool:
        """Whether labelled rows, or their groups, are too few for close numbers."""
        return self.has_few_rows or self._has_few_groups

    @property
    def has_few_rows(self) -> bool:
        """Whether it is rows that are few, and not what they come in."""
        return self.num_judged < FEW_LABELLED and not self._has_few_groups

    @property
    def _has_few_groups(self) -> bool:
        return self.num_groups is not None and self.num_groups < FEW_GROUPS

    @property
    def may_use_episodes(self) -> bool:
        """Whether deciding by whole episodes would be something new, and possible."""
        return self.unit == "transition" and self.has_episodes


def group_words(unit: Unit) -> str:
    """What the groups of rows that depend on each other are called."""
    return f"values of {unit.column}" if unit.kind == "column" else "episodes"


def cannot_tell_advice(evidence: Evidence) -> str:
    """No second domain is visible."""
    steps = [_label_more(evidence)]
    if evidence.may_use_episodes:
        steps.append("decide by whole episodes")
    if evidence.may_use_reward:
        steps.append("let the filter see rewards too (inputs sars)")
    known = evidence.quality.precision_is_known
    upper = ", and read the precision as an upper estimate" if known else ""
    return (
        "No second domain is visible with these inputs: nearly all rows are yours, or the others "
        f"look the same; the data cannot say which. To learn more, {_either(steps)}{upper}."
    )


def behaviour_advice(evidence: Evidence) -> str:
    """It is behaviour that parts the rows."""
    rejected = evidence.groups_called
    if evidence.quality.is_soft:
        said, rejected = "has a high weight", f"{rejected} of low weight"
    else:
        said, rejected = "is kept", f"rejected {rejected}"
    return (
        "State and action alone part the rows almost as well as what happens next does, so what "
        f"{said} may be a way of acting and not a domain. Check that the labelled rows hold every "
        f"way in which your system is operated, and look at some {rejected} before you train."
    )


def doubtful_advice(evidence: Evidence) -> str:
    """What to do about the gravest cause of doubt."""
    if evidence.columns:
        names = ", ".join(dict.fromkeys(column.column for column in evidence.columns[:3]))
        return (
            f"Record labelled and unlabelled rows alike first (see {names}): the filter may have "
            "learnt the recording instead of the domain."
        )
    if evidence.quality.num_kept == 0 or evidence.has_no_target:
        return (
            "Check that the labelled rows and the unlabelled ones come from the same kind of "
            "recording, and that the target is among the unlabelled at all."
        )
    if evidence.has_few_labels or not evidence.second_domain_detectable:
        return _few_advice(evidence)
    if not evidence.selection.is_random:
        return (
            "Label rows from everywhere the target was, or expect that target rows unlike the "
            "labelled ones are lost."
        )
    return f"{_share_of_target(evidence)} {_to_learn_more(evidence)}"


def clear_advice(evidence: Evidence) -> str:
    """Nothing speaks against the choice."""
    quality = evidence.quality
    ends = f"{_percent(quality.precision.low)} to {_percent(quality.precision.high)}"
    recall = _percent(quality.recall.value)
    if quality.is_soft:
        return (
            f"Train with the weights: of the rows that weigh 0.5 or more {ends} are likely yours, "
            f"and about {recall} of your rows are among them."
        )
    return (
        f"Use what is kept: {ends} of it is likely yours, and about {recall} of your rows are in "
        "it."
    )


def _few_advice(evidence: Evidence) -> str:
    """There is too little to be sure; what it looks like comes first."""
    few, more = f"{evidence.num_judged:,} labelled rows", _label_more(evidence)
    num_p, num_u = evidence.num_groups, evidence.num_groups_u
    if num_p is not None and num_u is not None and not evidence.has_few_rows:
        few = f"{num_p:,} labelled {evidence.groups_called}"
        if not evidence.has_few_labels and num_u < num_p:
            few = f"{num_u:,} unlabelled {evidence.groups_called}"
            more = f"add unlabelled rows of more {evidence.groups_called}"
    if not evidence.looks_separated:
        return f"{few} are too few to be sure: {more} and fit again."
    area = f"{evidence.shortcut.separation.value:.2f}"
    return f"Scores look separated (area {area}), but {few} are too few to be sure: {more}."


def _label_more(evidence: Evidence) -> str:
    groups = evidence.groups_called
    if groups == "rows":
        return "label more rows"
    of = "of" if groups.startswith("values") else "in"
    if evidence.num_groups is None:
        return f"label more rows, {of} other {groups} too"
    return f"label rows {of} more {groups}"


def _either(steps: list[str]) -> str:
    *first, last = steps
    return f"{', '.join(first)} or {last}" if first else last


def _share_of_target(evidence: Evidence) -> str:
    """How many of the kept rows are the target's, no surer than is known."""
    precision = evidence.quality.precision
    kept = kept_rows(evidence)
    if not evidence.quality.precision_is_known:
        return f"How many of {kept} are yours cannot be said."
    low, high = _percent(precision.low), _percent(precision.high)
    if evidence.precision_is_rough:
        return (
            f"How many of {kept} are yours cannot be said closely: anything from {low} to {high} "
            "fits the data."
        )
    if evidence.quality.precision_is_upper:
        return f"At most {high} of {kept} are yours, and it may be far fewer."
    return f"Of {kept} {low} to {high} are likely yours."


def _to_learn_more(evidence: Evidence) -> str:
    by_episode = "Decide by whole episodes, or label" if evidence.may_use_episodes else "Label"
    groups = evidence.groups_called
    looked_at = "" if groups == "rows" else f", and look at the doubtful {groups}"
    before = " before you rely on them" if evidence.precision_is_rough else ""
    return f"{by_episode} more rows{looked_at}{before}."


def kept_rows(evidence: Evidence) -> str:
    """What recall and precision are of."""
    return "the rows of weight 0.5 or more" if evidence.quality.is_soft else "the kept rows"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


_LOW_PRECISION = 0.9
_LOW_RECALL = 0.8


def decide(evidence: Evidence) -> tuple[Verdict, str, tuple[str, ...]]:
    """The verdict, one or two sentences of advice, and warnings, the gravest first.

    What should be known but makes no number doubtful stands last, and may stand beside "clear".
    """
    notes = (*_about_labels(evidence),)
    if not evidence.second_domain_detectable and not evidence.looks_separated:
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
    if not evidence.second_domain_detectable:
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
