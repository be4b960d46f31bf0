"""One or two plain sentences on what to do, for each verdict."""

from puorl.pu.checks.evidence import Evidence


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
    if evidence.has_few_labels or not evidence.others_visible:
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
