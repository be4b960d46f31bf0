"""Which columns of a table are which field: names, patterns such as ``obs_*``, and usual names.

What the user names wins; a field left unnamed is looked for among the columns that are still free.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from puorl.core.errors import DataError
from puorl.data import aliases
from puorl.data.raw import FIELDS, MATRICES, FieldNames

_NAMES_IN_TABLES = {"obs": "observation.state", "reward": "next.reward"}
"""Names that robot-learning tables use and array files do not."""
_AMBIGUOUS_END = "next.done"
_BEFORE = {"next_obs": "obs", "next_action": "action"}
_MOST_NAMED = 3


@dataclass(frozen=True)
class Claims:
    """The columns of every field that a table has."""

    fields: dict[str, tuple[str, ...]]
    """Field to its columns, in order; one column for a field that is not a matrix."""
    notes: tuple[str, ...] = ()
    """How unnamed fields were found."""

    def rest(self, header: Sequence[str]) -> list[str]:
        """The columns that no field took."""
        taken = {name for names in self.fields.values() for name in names}
        return [name for name in header if name not in taken]


def claim(header: Sequence[str], names: FieldNames, source: str) -> Claims:
    """Find the columns of every field.

    Args:
        header: The table's column names, no two equal.
        names: What the user said.
        source: Where the table is; messages start with it.

    Raises:
        DataError: A named column is not there, a column is named for two fields, or there is
            nothing for obs or action.
    """
    claimed = named(header, names, source)
    guessed = []
    for field in FIELDS:
        if field in claimed:
            continue
        taken = {name for columns in claimed.values() for name in columns}
        free = [name for name in header if name not in taken]
        found = _usual(field, free, claimed)
        if found:
            claimed[field] = found
            guessed.append(f"{field} = {_shortened(found)}")
        elif field in ("obs", "action"):
            raise aliases.absent(field, header, source)
    notes = [f"fields found by their usual names: {', '.join(guessed)}"] if guessed else []
    found_names = [name for columns in claimed.values() for name in columns]
    notes += aliases.notes_on_ends(header, found_names)
    if _AMBIGUOUS_END in header and _AMBIGUOUS_END not in found_names:
        notes.append(
            f"{_AMBIGUOUS_END}: not used, it may mean the task's end or a cut record; "
            f"name it with terminal={_AMBIGUOUS_END!r} or timeout={_AMBIGUOUS_END!r}"
        )
    return Claims({field: claimed[field] for field in FIELDS if field in claimed}, tuple(notes))


def named(header: Sequence[str], names: FieldNames, source: str) -> dict[str, tuple[str, ...]]:
    """The columns that the user named, each checked to be there and named once.

    Raises:
        DataError: A column is not there, or is named twice.
    """
    claimed: dict[str, tuple[str, ...]] = {}
    owner: dict[str, str] = {}
    for field in FIELDS:
        given = getattr(names, field)
        if given is None:
            continue
        if field in MATRICES:
            claimed[field] = _matched(header, given, field, source)
        else:
            claimed[field] = (_present(header, given, field, source),)
        for name in claimed[field]:
            if name in owner:
                raise DataError(
                    f"{source}: the column {name!r} is named for {owner[name]} and again for "
                    f"{field}; a column can be one thing only"
                )
            owner[name] = field
    return claimed


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort key that puts ``obs_10`` after ``obs_9``.

    >>> sorted(["obs_10", "obs_9"], key=natural_key)
    ['obs_9', 'obs_10']
    """
    parts = re.split(r"(\d+)", name)  # text and digits in turn
    digits = [part.lstrip("0") for part in parts[1::2]]
    parts[1::2] = digits
    # Of two numbers without leading zeros, the one with more digits is the larger.
    return [(len(part) if i % 2 else 0, part) for i, part in enumerate(parts)], name


def _matched(
    header: Sequence[str], given: str | Sequence[str], field: str, source: str
) -> tuple[str, ...]:
    """Columns for names and patterns: patterns in natural order, lists in the order given."""
    if isinstance(given, str):
        split = [part.strip() for part in given.split(",")]
        given = [given] if given in header else split
    found: list[str] = []
    for item in given:
        if item in header or not re.search(r"[*?]", item):
            found.append(_present(header, item, field, source))
            continue
        pattern = re.escape(item).replace(r"\*", ".*").replace(r"\?", ".")
        matches = [name for name in header if re.fullmatch(pattern, name, re.DOTALL)]
        if not matches:
            raise DataError(
                f"{source}: expected columns that match {item!r} (named for {field}), "
                f"found: {aliases.listed(header, near=item)}; name others with {field}="
            )
        found += sorted(matches, key=natural_key)
    if not found:
        raise DataError(f"{source}: expected columns for {field}, got an empty list; name them")
    return tuple(found)


def _present(header: Sequence[str], name: str, field: str, source: str) -> str:
    if name in header:
        return name
    raise DataError(
        f"{source}: expected the column {name!r} (named for {field}), "
        f"found: {aliases.listed(header, near=name)}; name one of these with {field}="
    )


def _usual(
    field: str, free: Sequence[str], claimed: dict[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    """The columns under which a field usually stands, or None."""
    if field in MATRICES:
        beside = tuple(f"next_{name}" for name in claimed.get(_BEFORE.get(field, ""), ()))
        if beside and all(name in free for name in beside):
            return beside
        numbered = _with_suffix(field, free, r"[_. /-]?\[?\d+(?:[_,.x]\d+)*\]?")
        if numbered:
            return numbered
    found = aliases.find(field, free)
    if found is None and _NAMES_IN_TABLES.get(field) in free:
        found = _NAMES_IN_TABLES[field]
    if found is not None:
        return (found,)
    return _with_suffix(field, free, r"[_./].+") if field in MATRICES else None


def _with_suffix(field: str, free: Sequence[str], suffix: str) -> tuple[str, ...] | None:
    """All columns made of one usual name and a suffix of the given form."""
    for base in aliases.USUAL[field]:
        pattern = re.compile(re.escape(base) + suffix, re.IGNORECASE)
        matches = [name for name in free if pattern.fullmatch(name)]
        if matches:
            return tuple(sorted(matches, key=natural_key))
    return None


def _shortened(names: tuple[str, ...]) -> str:
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)})"
