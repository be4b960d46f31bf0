"""Comparisons of two numbers: is one method above another, does it fall, by how much."""

import math
from collections.abc import Callable
from typing import NamedTuple

from puorl.bench.results import Named, Task
from puorl.bench.stats import SampleSummary, difference

Lookup = Callable[[Task, Named], SampleSummary | None]
"""Source of numbers: our rows, or the paper's tables."""
Test = Callable[[Task, Task, Lookup], bool | None]
"""Whether a claim holds in a setting, or from one setting to another; None: not known."""

OLP, SHARING_ALL, DARA, IGDF, PU, ORACLE = (
    Named(name) for name in ("olp", "sharing_all", "dara", "igdf", "pu", "oracle")
)
FEASIBLE = (OLP, SHARING_ALL, DARA, IGDF, PU)
"""Methods that need no truth."""


class Size(NamedTuple):
    """A difference of means: its name, and its value between two settings."""

    name: str
    of: Callable[[Task, Task, Lookup], float | None]


def gap(one: Named, other: Named) -> Size:
    """One method minus another in a setting."""

    def of(task: Task, _: Task, source: Lookup) -> float | None:
        a, b = source(task, one), source(task, other)
        return None if a is None or b is None else a.mean - b.mean

    return Size(f"{one.title} minus {other.title}", of)


def change(method: Named) -> Size:
    """Change of a method from one setting to another."""

    def of(before: Task, after: Task, source: Lookup) -> float | None:
        a, b = source(before, method), source(after, method)
        return None if a is None or b is None else b.mean - a.mean

    return Size("change", of)


def above(one: Named, other: Named) -> Test:
    """Whether one method is clearly above another."""

    def test(task: Task, _: Task, source: Lookup) -> bool | None:
        return _compared(source(task, one), source(task, other), 1)

    return test


def lower(one: Named, other: Named) -> Test:
    """Whether one method's mean is below another's."""

    def test(task: Task, _: Task, source: Lookup) -> bool | None:
        a, b = source(task, one), source(task, other)
        return None if a is None or b is None else a.mean < b.mean

    return test


def holds(method: Named) -> Test:
    """Whether a method does not clearly fall from one setting to another."""

    def test(before: Task, after: Task, source: Lookup) -> bool | None:
        fell = _compared(source(after, method), source(before, method), -1)
        return None if fell is None else not fell

    return test


def falls(method: Named) -> Test:
    """Whether a method clearly falls from one setting to another."""

    def test(before: Task, after: Task, source: Lookup) -> bool | None:
        return _compared(source(after, method), source(before, method), -1)

    return test


def gains(method: Named) -> Test:
    """Whether a method clearly rises from one setting to another."""

    def test(before: Task, after: Task, source: Lookup) -> bool | None:
        return _compared(source(after, method), source(before, method), 1)

    return test


def _compared(one: SampleSummary | None, other: SampleSummary | None, side: int) -> bool | None:
    """Whether the first is clearly above (1) or below (-1); None where no interval is known."""
    if one is None or other is None:
        return None
    seen = difference(one, other)
    if math.isnan(seen.low):
        return None
    return seen.is_above_zero if side > 0 else seen.is_below_zero


def nearly_best(task: Task, _: Task, source: Lookup) -> bool | None:
    """Whether no other method that needs no truth is clearly above PU."""
    ours = source(task, PU)
    seen = [_compared(source(task, each), ours, 1) for each in FEASIBLE if each != PU]
    known = [above for above in seen if above is not None]
    return not any(known) if known else None


def reaches_oracle(task: Task, _: Task, source: Lookup) -> bool | None:
    """Whether PU's mean is not below Oracle's interval."""
    ours, oracle = source(task, PU), source(task, ORACLE)
    if ours is None or oracle is None or math.isnan(oracle.half_width):
        return None
    return ours.mean >= oracle.estimate.low


def beyond_oracle(task: Task, source: Lookup) -> bool:
    """Whether PU's mean is above Oracle's interval."""
    ours, oracle = source(task, PU), source(task, ORACLE)
    return ours is not None and oracle is not None and ours.mean > oracle.estimate.high
