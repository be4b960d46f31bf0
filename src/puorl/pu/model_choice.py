"""Choosing between settings of a filter without labels, by the estimated risk of each.

With r the share of the target's rows that a candidate keeps and k the share of the unlabelled rows,

    risk = alpha (1 - r) + (k - alpha r) = 2 alpha (1 - r) + k - alpha

is the share of unlabelled rows that are decided wrongly. Held-out labelled rows give r, held-out
unlabelled rows give k, and only alpha has to be estimated.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import ConfigError, DataError
from puorl.data.split import PUSplit
from puorl.pu.checks.clusters import mean_error
from puorl.pu.config import FilterConfig
from puorl.pu.filter import DomainFilter
from puorl.pu.learning import learn
from puorl.pu.learnt import Learnt
from puorl.pu.units import group, parse_unit


@dataclass(frozen=True)
class Candidate:
    """What is known of one of the settings."""

    name: str
    alpha: float
    """Its own estimate of the target's share among the unlabelled."""
    recall: float
    """Share of held-out labelled rows that it keeps."""
    kept_share: float
    """Share of held-out unlabelled rows that it keeps."""
    risk: float
    """Estimated share of unlabelled rows that it decides wrongly; below 0 if alpha is too small."""
    error: float
    """Standard error of the risk, alpha taken as known."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The best of several settings, and what the choice rests on."""

    best: str
    filter: DomainFilter
    """Fitted with the best settings; its report needs the split: ``filter.report(split)``."""
    table: tuple[Candidate, ...]
    """All candidates, in the order in which they were given."""


@dataclass(frozen=True)
class _HeldOutRows:
    """Rows to compare candidates on, and which of them depend on each other."""

    p: np.ndarray
    u: np.ndarray
    group: np.ndarray | None
    """(n,) over the pool; None where rows are independent."""


def choose(
    split: PUSplit,
    configs: Mapping[str, FilterConfig],
    *,
    unit: str = "transition",
    seed: int = 0,
    progress: bool = False,
) -> Choice:
    """Fit every candidate and take the one of least estimated risk.

    A split by rows is compared on its test part, which neither training nor the estimate of alpha
    has seen. Folds have no such part: every row is judged by the lane that held it out, but these
    rows have given alpha, and the threshold of larger units, so that risks come out a little low.

    What it can do: where alpha is right, the risk is 1 - accuracy. Where alpha is off by b, a risk
    is off by b (1 - 2 recall): candidates of equal recall are off alike, and their order stays.
    What it cannot do: an alpha that is too large favours candidates that keep more. All candidates
    are given the same alpha, the smallest of their estimates: every estimate is a kept share over a
    recall, which bounds alpha from above but for noise, so that the smallest is the tightest. Where
    no candidate sees the other domain, all are near 1 and the choice says nothing. Nor does it see
    that labelled rows are no random draw of the target's rows: recall is taken from them.

    Args:
        split: Labelled and unlabelled rows.
        configs: Name of each candidate to its settings, the one to prefer in doubt first.
        unit: What is decided about, as in `DomainFilter`.
        seed: Seed of all fits.
        progress: Show bars.

    Returns:
        The least risk; of those within one standard error of it (of the difference, over the same
        rows), the earliest.

    Raises:
        ConfigError: No candidates, or an unknown unit or learner.
        DataError: Too few labelled rows, or no held-out row that all candidates can judge.
    """
    if not configs:
        raise ConfigError("configs: expected at least one candidate, got none")
    for config in configs.values():
        config.recipe()  # complains before the work
    learnt = {
        name: learn(
            split, config, unit=unit, seed=seed, checkpoint=Checkpoint(None), progress=progress
        )
        for name, config in configs.items()
    }
    held = _held_out_rows(split, unit, seed)
    kept_p, kept_u, held = _decisions(list(learnt.values()), split, held)
    recall, kept_share = kept_p.mean(axis=1), kept_u.mean(axis=1)
    alpha = min(each.alpha.value for each in learnt.values())
    risk = 2 * alpha * (1 - recall) + kept_share - alpha
    table = tuple(
        Candidate(
            name=name,
            alpha=each.alpha.value,
            recall=float(recall[k]),
            kept_share=float(kept_share[k]),
            risk=float(risk[k]),
            error=_risk_error(kept_p[k], kept_u[k], alpha, held),
        )
        for k, (name, each) in enumerate(learnt.items())
    )
    best = table[_earliest_of_the_best(risk, kept_p, kept_u, alpha, held)].name
    return Choice(best, DomainFilter.of(learnt[best]), table)


def _held_out_rows(split: PUSplit, unit: str, seed: int) -> _HeldOutRows:
    kind = parse_unit(unit)
    if kind.kind != "transition":
        grouping = group(split, kind, seed)
        p, u = np.flatnonzero(grouping.known), np.flatnonzero(~grouping.known)
        return _HeldOutRows(p, u, grouping.together)
    if split.unit == "transition":
        return _HeldOutRows(*split.part("test"), None)
    return _HeldOutRows(split.labelled, split.unlabelled, split.pool.episode)


def _decisions(
    candidates: list[Learnt], split: PUSplit, held: _HeldOutRows
) -> tuple[np.ndarray, np.ndarray, _HeldOutRows]:
    """(candidates, p) and (candidates, u) float64, 1 where kept, of rows that all can judge."""
    positions = np.concatenate([held.p, held.u])
    logits = np.stack([each.held_out_logits(split, positions) for each in candidates])
    usable = ~np.isnan(logits).any(axis=0)
    kept = np.stack(
        [each.probability(row) >= 0.5 for each, row in zip(candidates, logits, strict=True)]
    ).astype(np.float64)
    is_p = np.arange(len(positions)) < len(held.p)
    of_p, of_u = usable & is_p, usable & ~is_p
    if not of_p.any() or not of_u.any():
        raise DataError(
            f"choose: expected held-out rows of both kinds that all candidates can judge, got "
            f"{of_p.sum()} labelled and {of_u.sum()} unlabelled; label more rows"
        )
    return kept[:, of_p], kept[:, of_u], _HeldOutRows(positions[of_p], positions[of_u], held.group)


def _risk_error(
    value_p: np.ndarray, value_u: np.ndarray, alpha: float, held: _HeldOutRows
) -> float:
    """Standard error of ``mean(value_u) - 2 alpha mean(value_p)``."""
    group_p = None if held.group is None else held.group[held.p]
    group_u = None if held.group is None else held.group[held.u]
    error_p, error_u = mean_error(value_p, group_p), mean_error(value_u, group_u)
    return float(np.hypot(2 * alpha * error_p, error_u))


def _earliest_of_the_best(
    risk: np.ndarray, kept_p: np.ndarray, kept_u: np.ndarray, alpha: float, held: _HeldOutRows
) -> int:
    least = int(np.argmin(risk))
    for k in range(least):
        # Candidates decide about the same rows, so their difference is known better than either.
        error = _risk_error(kept_p[k] - kept_p[least], kept_u[k] - kept_u[least], alpha, held)
        if risk[k] - risk[least] <= error:
            return k
    return least
