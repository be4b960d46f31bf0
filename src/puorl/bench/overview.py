"""Methods over many settings at once: which settings count, and what comes out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puorl.bench.comparisons import PU
from puorl.bench.results import Group, Named, Results, Task, display
from puorl.bench.stats import Aggregate, improvement_interval, iqm_interval

_ENOUGH = 0.5
"""Share of the settings that a method must have for the others to be cut down to its settings."""


class Family(NamedTuple):
    """Groups that differ in nothing but the shift."""

    learner: Named
    num_rows: int
    target_fraction: float
    num_steps: int
    labelled_fraction: float


@dataclass(frozen=True)
class Overview:
    """All methods over the settings of one shift, or of all."""

    family: Family
    scope: str
    """The shift, or ``all shifts``."""
    num_settings: int
    """With a run of any method."""
    common: tuple[Task, ...]
    """Those in which all methods of ``iqm`` have runs."""
    iqm: Mapping[Named, Aggregate]
    improvement: Mapping[Named, Aggregate]
    """Chance that PU beats the method, over the settings that both have."""


def overviews(results: Results, rng: np.random.Generator) -> tuple[Overview, ...]:
    """One for every shift of every family, and one for all its shifts where there are several.

    Args:
        results: All cells. Groups in returns are left out: there is no common scale for them.
        rng: Where the bootstrap draws from.
    """
    found = []
    for family, groups in _families(results).items():
        scopes = {display(group.shift): results.tasks_of(group) for group in groups}
        if len(groups) > 1:
            scopes["all shifts"] = tuple(task for tasks in scopes.values() for task in tasks)
        found += [_overview(results, family, *scope, rng) for scope in scopes.items()]
    return tuple(found)


def _families(results: Results) -> dict[Family, list[Group]]:
    families: dict[Family, list[Group]] = {}
    for group in results.groups:
        if group not in results.in_returns:
            families.setdefault(Family(*group[:-1]), []).append(group)
    return families


def _overview(
    results: Results,
    family: Family,
    scope: str,
    tasks: tuple[Task, ...],
    rng: np.random.Generator,
) -> Overview:
    ran = {m: [t for t in tasks if results.summary(t, m)] for m in results.methods_of(tasks)}
    seen = [task for task in tasks if any(task in each for each in ran.values())]
    methods = [m for m, each in ran.items() if each and len(each) >= _ENOUGH * len(seen)]
    common = tuple(task for task in seen if all(task in ran[m] for m in methods))
    iqms, chances = {}, {}
    for method in methods if common else ():
        iqms[method] = iqm_interval([results.cells[t, method].sample for t in common], rng)
    for method in methods if PU in ran else ():
        both = [task for task in ran[PU] if task in ran[method]]
        if method != PU and both:
            one, other = (
                [results.cells[task, each].sample for task in both] for each in (PU, method)
            )
            chances[method] = improvement_interval(one, other, rng)
    return Overview(family, scope, len(seen), common, iqms, chances)
