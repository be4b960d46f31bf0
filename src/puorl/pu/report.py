"""FilterReport: the estimated quality of a filter's choice, without further labels.

`make_report` runs the checks of `puorl.pu.checks`; `report_text` and `report_page` show the result.
Free of jax, so that stored reports are read fast.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puorl.core.formatting import fields_as_json
from puorl.core.stats import Estimate, group_numbers
from puorl.data.split import PUSplit
from puorl.pu.alpha import current_estimate
from puorl.pu.checks.auroc import (
    DETECTABLE_AUROC,
    DoubtfulEpisode,
    HeldOutScores,
    doubtful_episodes,
    second_domain_detectable,
)
from puorl.pu.checks.behaviour import Selection, Shortcut, check_selection, check_shortcut
from puorl.pu.checks.quality import (
    Quality,
    estimates_agree,
    measure_quality,
    of_filter,
    second_alpha,
)
from puorl.pu.checks.recording import ColumnShortcut, check_columns
from puorl.pu.checks.verdict import CheckResults, Verdict, decide
from puorl.pu.units import Unit

_NEARLY_ANY = 0.8
"""Intervals of alpha wider than this overlap any other."""
_NUM_BINS = 40


@dataclass(frozen=True)
class Histogram:
    """Scores of labelled (held out) and unlabelled rows, as fractions in equal bins of [0, 1]."""

    edge: tuple[float, ...]
    labelled: tuple[float, ...]
    unlabelled: tuple[float, ...]


@dataclass(frozen=True)
class FilterReport:
    """The results of all checks."""

    verdict: Verdict
    advice: str
    """One or two sentences: what to do."""
    warnings: tuple[str, ...]
    alphas: tuple[Estimate, ...]
    """Checks of the filter's alpha: its own estimator in other folds, and another estimator."""
    alphas_agree: bool
    quality: Quality
    shortcut: Shortcut
    columns: tuple[ColumnShortcut, ...]
    selection: Selection
    histogram: Histogram
    alpha_history: tuple[float, ...]
    """The estimate after each epoch."""
    doubtful: tuple[DoubtfulEpisode, ...]
    """Empty where rows carry no episode; values of the column where that is the unit."""
    unit: str
    settings: dict[str, Any]
    """Preset, learner, inputs, seed, fingerprint of the split: JSON-ready."""
    alpha: Estimate | None = None
    """The filter's own; None in reports that were stored without it."""

    @property
    def unit_column(self) -> str:
        """The column whose values were decided about; empty for other units."""
        return self.unit.removeprefix("column:") if self.unit.startswith("column:") else ""

    @property
    def alphas_comparable(self) -> bool:
        """False where an interval spans nearly everything, so that agreement means nothing."""
        return not any(2 * alpha.half_width > _NEARLY_ANY for alpha in self.alphas)

    def to_dict(self) -> dict[str, Any]:
        """Return all content, JSON-ready; numbers that are not finite become None."""
        return fields_as_json(self)


def make_report(
    split: PUSplit,
    scores: HeldOutScores,
    behaviour: HeldOutScores,
    *,
    kept: np.ndarray,
    weight: np.ndarray | None = None,
    num_scattered: int = 0,
    alpha_history: Sequence[float],
    settings: Mapping[str, Any],
    unit: Unit,
    rng: np.random.Generator,
) -> FilterReport:
    """Run all checks on a filter's choice.

    Args:
        split: The rows.
        scores: Held-out scores of the filter.
        behaviour: Held-out scores of the same learner with (s, a) alone.
        kept: (u,) bool. The filter's decisions about the unlabelled rows.
        weight: (u,) float. Their weights in the mode soft; None in other modes.
        num_scattered: Unlabelled rows that count as labelled because a row of their unit is.
        alpha_history: The estimate of alpha after each epoch.
        settings: Of the filter, JSON-ready.
        unit: What was decided about.
        rng: Draws samples and resamples.

    Raises:
        DataError: No labelled or no unlabelled row could be scored.
    """
    is_kept = np.zeros(len(split.pool), bool)
    is_kept[split.unlabelled] = kept
    quality = of_filter(
        measure_quality(scores, decided=is_kept[scores.position_u], rng=rng),
        num_labelled=len(split.labelled),
        kept=kept,
        weight=weight,
    )
    shortcut = check_shortcut(scores, behaviour)
    if shortcut.auroc.value < DETECTABLE_AUROC:
        quality = dataclasses.replace(quality, precision_is_upper=True)
    alphas = (scores.alpha, second_alpha(scores, rng=rng))
    checks: dict[str, Any] = {
        "alphas": alphas,
        "alphas_agree": estimates_agree(*alphas),
        "quality": quality,
        "shortcut": shortcut,
        "columns": check_columns(split, rng=rng),
        "selection": check_selection(split, scores, rng=rng, groups=unit.groups_name),
    }
    num_groups, num_groups_u = (
        None if group is None else group_numbers(group, len(group))[1]
        for group in (scores.group_p, scores.group_u)
    )
    evidence = CheckResults(
        **checks,
        second_domain_detectable=second_domain_detectable(scores, shortcut.auroc),
        num_scored=len(scores.score_p),
        num_groups=num_groups,
        num_groups_u=num_groups_u,
        unit=unit,
        has_episodes=split.pool.episode is not None,
        num_scattered=num_scattered,
        may_use_reward=split.pool.rows.reward is not None and settings.get("inputs") == "sas",
    )
    return FilterReport(
        *decide(evidence),
        **checks,
        histogram=score_histogram(scores),
        alpha_history=tuple(float(a) for a in alpha_history),
        doubtful=doubtful_episodes(split, scores, kept, unit=unit),
        unit=str(unit),
        settings=dict(settings),
    )


def score_histogram(scores: HeldOutScores) -> Histogram:
    """Count the scores of both sets in 40 equal bins of [0, 1]."""
    edge = np.linspace(0, 1, _NUM_BINS + 1)

    def fractions(score: np.ndarray) -> tuple[float, ...]:
        num_rows = np.histogram(np.clip(score, 0, 1), edge)[0]
        return tuple((num_rows / max(len(score), 1)).tolist())

    return Histogram(tuple(edge.tolist()), fractions(scores.score_p), fractions(scores.score_u))


_RENAMED = {
    "shortcut": {
        "separation": "auroc",
        "separation_behaviour": "auroc_behaviour",
        "share": "fraction",
    },
    "selection": {"separation": "auroc"},
    "columns": {"separation": "auroc"},
    "doubtful": {"share_kept": "kept_fraction"},
}
"""Names of fields in stored reports of version 0.1, and their names now."""


def current_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a stored report with today's names; it may be older or damaged."""
    made = {name: _rename(value, _RENAMED.get(name, {})) for name, value in content.items()}
    if isinstance(made.get("alphas"), list):
        made["alphas"] = [
            current_estimate(alpha) if isinstance(alpha, dict) and "interval" in alpha else alpha
            for alpha in made["alphas"]
        ]
    return made


def _rename(part: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(part, list):
        return [_rename(each, renamed) for each in part]
    if not isinstance(part, dict):
        return part
    return {renamed.get(name, name): value for name, value in part.items()}
