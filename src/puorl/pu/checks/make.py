"""Put a report together from judged rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from puorl.data.split import PUSplit
from puorl.pu.checks.auroc import group_numbers, second_domain_detectable
from puorl.pu.checks.behaviour import check_selection, check_shortcut
from puorl.pu.checks.doubtful import doubtful_episodes
from puorl.pu.checks.quality import (
    alpha_interval,
    estimates_agree,
    measure_quality,
    of_filter,
    second_alpha,
)
from puorl.pu.checks.recording import check_columns
from puorl.pu.checks.verdict import Evidence, decide, group_words
from puorl.pu.cross_fit import HeldOutScores
from puorl.pu.report import VISIBLE_AREA, FilterReport, Histogram
from puorl.pu.units import parse_unit

_NUM_BINS = 40


def make_report(
    split: PUSplit,
    judged: HeldOutScores,
    behaviour: HeldOutScores,
    *,
    kept: np.ndarray,
    weight: np.ndarray | None = None,
    num_scattered: int = 0,
    alpha_history: Sequence[float],
    settings: Mapping[str, Any],
    unit: str,
    rng: np.random.Generator,
) -> FilterReport:
    """All that can be said of a filter's choice without labels.

    Args:
        split: The rows.
        judged: What the filter says of them; labelled rows held out.
        behaviour: What the same learner says with (s, a) alone.
        kept: (u,) bool. What the filter decides about the unlabelled rows.
        weight: (u,) float. Their weights in the mode soft; None in other modes.
        num_scattered: Unlabelled rows that are known because their unit has a labelled row.
        alpha_history: The estimate of alpha after each epoch.
        settings: Of the filter, JSON-ready.
        unit: What was decided about: transitions, windows, episodes or a column.
        rng: Draws samples and resamples.

    Raises:
        DataError: No labelled or no unlabelled row could be judged.
    """
    if judged.alpha.interval is None:
        interval = alpha_interval(judged.alpha, judged, rng=rng)
        alpha = dataclasses.replace(judged.alpha, interval=interval)
        judged = dataclasses.replace(judged, alpha=alpha)
    is_kept = np.zeros(len(split.pool), bool)
    is_kept[split.unlabelled] = kept
    quality = of_filter(
        measure_quality(judged, decided=is_kept[judged.position_u], rng=rng),
        num_labelled=len(split.labelled),
        kept=kept,
        weight=weight,
    )
    shortcut = check_shortcut(judged, behaviour)
    if shortcut.separation.value < VISIBLE_AREA:
        quality = dataclasses.replace(quality, precision_is_upper=True)
    alphas = (judged.alpha, second_alpha(judged, rng=rng))
    evidence = Evidence(
        second_domain_detectable=second_domain_detectable(judged, shortcut.separation),
        alphas=alphas,
        alphas_agree=estimates_agree(*alphas),
        quality=quality,
        num_judged=len(judged.score_p),
        num_groups=_num_groups(judged.group_p),
        num_groups_u=_num_groups(judged.group_u),
        unit=unit,
        has_episodes=split.pool.episode is not None,
        num_scattered=num_scattered,
        may_use_reward=split.pool.rows.reward is not None and settings.get("inputs") == "sas",
        shortcut=shortcut,
        columns=check_columns(split, rng=rng),
        selection=check_selection(split, judged, rng=rng, groups=group_words(parse_unit(unit))),
    )
    verdict, advice, warnings = decide(evidence)
    return FilterReport(
        verdict=verdict,
        advice=advice,
        warnings=warnings,
        alphas=alphas,
        alphas_agree=evidence.alphas_agree,
        quality=quality,
        shortcut=shortcut,
        columns=evidence.columns,
        selection=evidence.selection,
        histogram=score_histogram(judged),
        alpha_history=tuple(float(a) for a in alpha_history),
        doubtful=doubtful_episodes(split, judged, kept, unit=parse_unit(unit)),
        unit=unit,
        settings=dict(settings),
    )


def score_histogram(judged: HeldOutScores) -> Histogram:
    """Scores of both sets as shares in 40 equal bins of [0, 1]."""
    edge = np.linspace(0, 1, _NUM_BINS + 1)

    def shares(score: np.ndarray) -> tuple[float, ...]:
        num_rows = np.histogram(np.clip(score, 0, 1), edge)[0]
        return tuple((num_rows / max(len(score), 1)).tolist())

    return Histogram(tuple(edge.tolist()), shares(judged.score_p), shares(judged.score_u))


def _num_groups(group: np.ndarray | None) -> int | None:
    return None if group is None else group_numbers(group, len(group))[1]
