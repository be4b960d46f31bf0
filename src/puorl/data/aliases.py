"""Which key of a file is which field: the names a user gives win, then the usual names.

The one table of usual names; every reader asks here.
"""

import difflib
from collections.abc import Collection, Sequence

from puorl.core.errors import DataError
from puorl.data.raw import FIELDS, FieldNames

USUAL = {
    "obs": ("obs", "observations", "observation", "state", "states"),
    "action": ("action", "actions", "act", "acts"),
    "reward": ("reward", "rewards", "rew"),
    "next_obs": (
        "next_obs",
        "next_observations",
        "next_observation",
        "next_state",
        "next_states",
    ),
    "terminal": ("terminal", "terminals", "terminated", "termination", "terminations"),
    "timeout": ("timeout", "timeouts", "truncated", "truncation", "truncations"),
    "episode": (
        "episode",
        "episodes",
        "episode_id",
        "episode_index",
        "ep",
        "traj",
        "trajectory",
        "traj_id",
        "trajectory_id",
        "run",
        "run_id",
        "rollout",
        "rollout_id",
    ),
    "time": ("time", "timestamp", "timestamps", "t", "step", "timestep", "time_step"),
    "next_action": ("next_action", "next_actions", "next_act"),
}
"""Field to the names it usually has, the most telling first; capitals do not matter."""

AMBIGUOUS_END = ("done", "dones")
"""Names that may mean the task's end or the record's: used only when the user says which."""

_MOST_LISTED = 20


def resolve(available: Sequence[str], names: FieldNames, source: str) -> dict[str, str]:
    """Find every field's key: named ones must be there, the others may be under a usual name.

    Args:
        available: The keys of the file.
        names: What the user said; one key a field.
        source: Where the keys are from; messages start with it.

    Raises:
        DataError: A named key is not there, one key is named for two fields, or obs or action
            cannot be found.
    """
    found = named(available, names, source)
    for field in FIELDS:
        if field not in found:
            key = find(field, available, taken=found.values())
            if key is not None:
                found[field] = key
    for field in ("obs", "action"):
        if field not in found:
            raise absent(field, available, source)
    return found


def named(available: Sequence[str], names: FieldNames, source: str) -> dict[str, str]:
    """The keys that the user named, each checked to be there.

    Raises:
        DataError: A key is not there, or is named for two fields.
    """
    found: dict[str, str] = {}
    for field in FIELDS:
        given = getattr(names, field)
        if given is None:
            continue
        key = given if isinstance(given, str) else _only_key(field, given, source)
        if key not in available:
            raise DataError(
                f"{source}: expected the key {key!r} (named for {field}), "
                f"found: {listed(available, near=key)}; name one of these with {field}="
            )
        for other, taken in found.items():
            if taken == key:
                raise DataError(
                    f"{source}: {key!r} is named for both {other} and {field}; "
                    f"a key can be only one of them, name another with {field}="
                )
        found[field] = key
    return found


def find(field: str, available: Sequence[str], *, taken: Collection[str] = ()) -> str | None:
    """The key under which ``field`` usually stands, or None; a key in ``taken`` is not offered."""
    free = [key for key in available if key not in taken]
    folded = {key.lower(): key for key in reversed(free)}  # the first of equal spellings wins
    for name in USUAL[field]:
        if name in free:
            return name
        if name in folded:
            return folded[name]
    return None


def notes_on_ends(available: Sequence[str], found: Collection[str]) -> list[str]:
    """Say which keys were left alone because they do not tell a task's end from a cut record.

    Args:
        available: The keys of the file.
        found: The keys that became fields.
    """
    return [
        f"{key}: not used, it may mean the task's end or a cut record; if it is the task's end, "
        f"name it with terminal={key!r}, if it is only the record's, with timeout={key!r}"
        for key in available
        if key.lower() in AMBIGUOUS_END and key not in found
    ]


def absent(field: str, available: Sequence[str], source: str) -> DataError:
    """The error for a required field that has none of its usual names."""
    return DataError(
        f"{source}: expected {field} under one of its usual names ({', '.join(USUAL[field])}), "
        f"found: {listed(available, near=field)}; name it with {field}="
    )


def listed(available: Sequence[str], *, near: str) -> str:
    """The keys as text, those spelt most like ``near`` first, cut when there are very many."""
    close = difflib.get_close_matches(near, available, n=_MOST_LISTED, cutoff=0.4)
    every = list(dict.fromkeys([*close, *available]))
    more = f" and {len(every) - _MOST_LISTED} more" if len(every) > _MOST_LISTED else ""
    return (", ".join(every[:_MOST_LISTED]) or "nothing") + more


def _only_key(field: str, given: Sequence[str], source: str) -> str:
    if len(given) == 1:
        return given[0]
    raise DataError(
        f"{source}: expected one key for {field} in an array file, got {len(given)} "
        f"({', '.join(given)}); lists of columns are for tables"
    )
