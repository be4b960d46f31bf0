"""Whether the plan of a kept run is the one that is asked for, and if not, in which settings."""

from collections.abc import Mapping
from typing import Any

from puorl.core import differences

_MOST_NAMED = 5


def differing(kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The settings that differ with both values; empty for one and the same run.

    Which lanes train together is no matter: that is chosen for the device, as a run begins.
    """
    # The settings of two learners have little in common: that they are two says it all.
    same = kept.get("learner") == wanted.get("learner")
    told = differences.told(_settings(kept, config=same), _settings(wanted, config=same))
    before, now = _lanes(kept), _lanes(wanted)
    parts = [told, _some("the run has also", before - now), _some("the run has no", now - before)]
    return "; ".join(part for part in parts if part)


def _settings(plan: Mapping[str, Any], *, config: bool) -> dict[str, Any]:
    """Setting by setting, under the names that users know them by."""
    plain = {k: v for k, v in plan.items() if k not in ("config", "sets", "groups")}
    if config:
        plain |= _named(plan, "config")
    return plain | {f"rows of {name}": mark for name, mark in _named(plan, "sets").items()}


def _lanes(plan: Mapping[str, Any]) -> set[str]:
    groups = plan.get("groups")
    return {name for group in groups for name in group} if isinstance(groups, list) else set()


def _some(what: str, names: set[str]) -> str:
    shown = sorted(names)[:_MOST_NAMED]
    more = ", ..." if len(names) > len(shown) else ""
    return f"{what} {', '.join(shown)}{more}" if names else ""


def _named(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = plan.get(name)
    return dict(found) if isinstance(found, Mapping) else {name: found}
