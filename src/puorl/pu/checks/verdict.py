"""From evidence to a verdict, advice and warnings.

The verdict is the worst statement that holds: labelled and unlabelled rows look alike; behaviour
separates the rows; something makes the numbers doubtful; none of these. Scores that look separated
but come from too few rows are doubtful.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from puorl.core.stats import Estimate
from puorl.pu.alpha import NO_TARGET
from puorl.pu.checks.auroc import DETECTABLE_AUROC
from puorl.pu.checks.behaviour import Selection, Shortcut
from puorl.pu.checks.quality import Quality
from puorl.pu.checks.recording import ColumnShortcut
from puorl.pu.units import Unit

Verdict = Literal["clear", "behaviour", "doubtful", "cannot_tell"]

FEW_LABELLED = 100
FEW_GROUPS = 10
_WIDE = 0.2
_LOW_PRECISION = 0.9
_LOW_RECALL = 0.8


@dataclass(frozen=True)
class CheckResults:
    """Results of all checks of a filter and its rows, from which the verdict follows."""

    second_domain_detectable: bool
    alphas: tuple[Estimate, ...]
    alphas_agree: bool
    quality: Quality
    num_scored: int
    """Labelled rows that could be scored."""
    num_groups: int | None
    """Groups (episodes, values of a column) of labelled rows; None where rows are independent."""
    num_groups_u: int | None
    """The same of the unlabelled rows."""
    shortcut: Shortcut
    columns: tuple[ColumnShortcut, ...]
    selection: Selection
    unit: Unit
    has_episodes: bool
    num_scattered: int
    """Unlabelled rows that count as labelled because their unit has a labelled row."""
    may_use_reward: bool
    """Whether rows have rewards that the filter did not use."""

    @property
    def looks_separated(self) -> bool:
        """Whether the scores separate the rows, possibly by chance."""
        return self.shortcut.auroc.value >= DETECTABLE_AUROC

    @property
    def groups_name(self) -> str:
        """Plural name of groups of rows: episodes, values of a column, or just rows."""
        has_groups = self.has_episodes or self.unit.kind == "column"
        return self.unit.groups_name if has_groups else "rows"

    @property
    def alpha_ends(self) -> tuple[float, float]:
        """Interval of the first estimate."""
        alpha = self.alphas[0]
        return alpha.interval or (alpha.value, alpha.value)

    @property
    def precision_is_rough(self) -> bool:
        """Whether the precision is not known, or its interval is too wide to rely on."""
        return not self.quality.precision.high - self.quality.precision.low <= _WIDE

    @property
    def has_no_target(self) -> bool:
        """Whether hardly any unlabelled row can be the target's."""
        return self.alpha_ends[1] < NO_TARGET

    @property
    def few(self) -> Literal["rows", "groups", ""]:
        """Whether labelled rows, or their groups, are too few for precise numbers."""
        if self.num_groups is not None and self.num_groups < FEW_GROUPS:
            return "groups"
        return "rows" if self.num_scored < FEW_LABELLED else ""

    @property
    def may_use_episodes(self) -> bool:
        """Whether deciding by whole episodes is possible and not done."""
        return self.unit.is_row and self.has_episodes

    @property
    def kept_rows(self) -> str:
        """Name of the rows that recall and precision are about."""
        return "the rows of weight 0.5 or more" if self.quality.is_soft else "the kept rows"


def decide(evidence: CheckResults) -> tuple[Verdict, str, tuple[str, ...]]:
    """Return the verdict, one or two sentences of advice, and warnings, the gravest first.

    Notes that make no number doubtful come last; "clear" may have them too.
    """
    notes: tuple[str, ...] = ()
    if evidence.num_scattered:
        unit = evidence.unit
        name = unit.column if unit.kind == "column" else unit.kind
        notes = (
            f"Labels are scattered: {evidence.num_scattered:,} unlabelled rows share their {name} "
            "with labelled ones; they count as labelled, and are kept.",
        )
    data = tuple(_data_warnings(evidence))
    if not evidence.second_domain_detectable and not evidence.looks_separated:
        return "cannot_tell", _cannot_tell_advice(evidence), (*data, *notes)
    doubts = (*data, *_number_warnings(evidence))
    shortcut = evidence.shortcut
    if shortcut.is_shortcut:
        gravest = (
            f"State and action alone give an AUROC of {shortcut.auroc_behaviour.value:.2f}, all "
            f"inputs {shortcut.auroc.value:.2f}: behaviour explains {shortcut.fraction:.0%} of it."
        )
        return "behaviour", _behaviour_advice(evidence), (gravest, *doubts, *notes)
    if doubts:
        return "doubtful", _doubtful_advice(evidence), (*doubts, *notes)
    return "clear", _clear_advice(evidence.quality), notes


def _cannot_tell_advice(evidence: CheckResults) -> str:
    steps = [_label_more(evidence)]
    if evidence.may_use_episodes:
        steps.append("decide by whole episodes")
    if evidence.may_use_reward:
        steps.append("add rewards to the inputs (sars)")
    *first, last = steps
    either = f"{', '.join(first)} or {last}" if first else last
    known = evidence.quality.precision_is_known
    upper = ", and read the precision as an upper estimate" if known else ""
    return (
        "No second domain is detectable with these inputs: nearly all rows are yours, or the "
        f"others look the same; the data cannot say which. To learn more, {either}{upper}."
    )


def _behaviour_advice(evidence: CheckResults) -> str:
    said, rejected = "is kept", f"rejected {evidence.groups_name}"
    if evidence.quality.is_soft:
        said, rejected = "has a high weight", f"{evidence.groups_name} of low weight"
    return (
        "State and action alone tell the rows apart almost as well as all inputs do, so what "
        f"{said} may be a behaviour policy and not a domain. Check that the labelled rows hold "
        f"every way in which your system is operated, and look at some {rejected} before you train."
    )


def _doubtful_advice(evidence: CheckResults) -> str:
    """Advise about the gravest cause of doubt."""
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
    if evidence.few or not evidence.second_domain_detectable:
        return _few_advice(evidence)
    if not evidence.selection.is_random:
        return (
            "Label rows from everywhere the target was, or expect that target rows unlike the "
            "labelled ones are lost."
        )
    label = "Decide by whole episodes, or label" if evidence.may_use_episodes else "Label"
    groups = evidence.groups_name
    looked_at = "" if groups == "rows" else f", and look at the doubtful {groups}"
    before = " before you rely on them" if evidence.precision_is_rough else ""
    return f"{_target_fraction(evidence)} {label} more rows{looked_at}{before}."


def _clear_advice(quality: Quality) -> str:
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


def _few_advice(evidence: CheckResults) -> str:
    """Advise where there are too few rows or groups."""
    few, more = f"{evidence.num_scored:,} labelled rows", _label_more(evidence)
    num_p, num_u = evidence.num_groups, evidence.num_groups_u
    if num_p is not None and num_u is not None and evidence.few != "rows":
        few = f"{num_p:,} labelled {evidence.groups_name}"
        if not evidence.few and num_u < num_p:
            few = f"{num_u:,} unlabelled {evidence.groups_name}"
            more = f"add unlabelled rows of more {evidence.groups_name}"
    if not evidence.looks_separated:
        return f"{few} are too few to be sure: {more} and fit again."
    auroc = f"{evidence.shortcut.auroc.value:.2f}"
    return f"The scores differ (AUROC {auroc}), but {few} are too few to be sure: {more}."


def _label_more(evidence: CheckResults) -> str:
    groups = evidence.groups_name
    if groups == "rows":
        return "label more rows"
    of = "of" if groups.startswith("values") else "in"
    if evidence.num_groups is None:
        return f"label more rows, {of} other {groups} too"
    return f"label rows {of} more {groups}"


def _target_fraction(evidence: CheckResults) -> str:
    """State how many of the kept rows are the target's, as far as it is known."""
    precision = evidence.quality.precision
    kept = evidence.kept_rows
    if not evidence.quality.precision_is_known:
        return f"How many of {kept} are yours is not known."
    low, high = _percent(precision.low), _percent(precision.high)
    if evidence.precision_is_rough:
        return f"The precision is uncertain: anything from {low} to {high} of {kept} may be yours."
    if evidence.quality.precision_is_upper:
        return f"At most {high} of {kept} are yours, and it may be far fewer."
    return f"Of {kept} {low} to {high} are likely yours."


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


def _data_warnings(evidence: CheckResults) -> Iterator[str]:
    """Warn about the rows, whatever the scores are."""
    if evidence.columns:
        first, *others = evidence.columns
        more = f" Likewise {len(others)} more, listed with the columns." if others else ""
        yield f"Labelled and unlabelled rows were recorded differently. {first.sentence}{more}"
    rough = "all numbers here are uncertain."
    if evidence.few == "rows":
        yield f"Only {evidence.num_scored:,} labelled rows could be scored; {rough}"
    elif evidence.few:
        groups = f"{evidence.num_groups:,} {evidence.groups_name}"
        yield f"The labelled rows come from {groups} only; {rough}"


def _number_warnings(evidence: CheckResults) -> Iterator[str]:
    """Warn about numbers that are doubtful although a second domain is detectable."""
    quality = evidence.quality
    low, high = evidence.alpha_ends
    if not evidence.second_domain_detectable:
        auroc = evidence.shortcut.auroc
        yield (
            f"The 95 % interval of the AUROC is wide: {auroc.low:.2f} to {auroc.high:.2f}; 0.50 is "
            "chance."
        )
    if evidence.shortcut.is_large and not evidence.shortcut.is_sure:
        yield (
            f"State and action alone explain {evidence.shortcut.fraction:.0%} of the AUROC above "
            "chance, but the intervals are too wide to call it a shortcut."
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
        yield f"Two estimates of alpha disagree: {said}."
    if high - low > _WIDE:
        yield f"The 95 % interval of alpha is wide: {low:.0%} to {high:.0%}."
    if quality.precision_is_upper:
        also = ", and so is the precision" if quality.precision_is_known else ""
        yield f"Alpha is an upper bound{also}."
    if not evidence.selection.is_random:
        yield evidence.selection.sentence
    precision, kept = quality.precision, evidence.kept_rows
    if quality.num_kept > 0 and not math.isfinite(precision.value):
        yield f"How many of {kept} are the target's is not known: held-out networks keep none."
    elif quality.num_kept > 0 and quality.precision_is_open:
        yield f"How many of {kept} are the target's is not known: any fraction fits the data."
    elif quality.num_kept > 0:
        if evidence.precision_is_rough:
            ends = f"{precision.low:.0%} to {precision.high:.0%}"
            yield f"The 95 % interval of the precision is wide: {ends}."
        if precision.value < _LOW_PRECISION:
            yield f"About {1 - precision.value:.0%} of {kept} are not the target's."
    if quality.recall.value < _LOW_RECALL:
        lost = "get a weight below 0.5" if quality.is_soft else "are dropped"
        yield f"About {1 - quality.recall.value:.0%} of the target's rows {lost}."
