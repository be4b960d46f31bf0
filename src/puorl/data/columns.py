"""Find fields among columns and array keys by given, usual and pattern names; parse text cells.

Names that the user gives have priority; the other fields are searched among the remaining columns.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.data.transitions import MATRICES
from puorl.data.validate import FIELDS, FieldNames, RawRows, listed

_NAMES_IN_TABLES = {
    "obs": "observation.state",
    "reward": "next.reward",
    "next_obs": "next.observation.state",
    "terminal": "next.terminated",
    "timeout": "next.truncated",
}
"""Names in tables of robot learning that array files do not use."""
_BEFORE = {"next_obs": "obs", "next_action": "action"}
_MOST_NAMED = 3


@dataclass(frozen=True)
class Claims:
    """Columns of every field of a table."""

    fields: dict[str, tuple[str, ...]]
    """Field to its columns, in order; one column for a field that is not a matrix."""
    notes: tuple[str, ...] = ()
    """Notes on how fields without given names were found."""

    def rest(self, header: Sequence[str]) -> list[str]:
        """Return the columns that belong to no field."""
        taken = {name for names in self.fields.values() for name in names}
        return [name for name in header if name not in taken]


def claim(header: Sequence[str], names: FieldNames, source: str) -> Claims:
    """Find the columns of every field."""
    claimed = named(header, names, source)
    given = set(claimed)
    _search(claimed, header, source, "column", names.unused)
    guessed = []
    for field, found in claimed.items():
        if field not in given:
            few = ", ".join(found)
            many = f"{found[0]} … {found[-1]} ({len(found)})"
            guessed.append(f"{field} = {few if len(found) <= _MOST_NAMED else many}")
    notes = [f"fields found by their usual names: {', '.join(guessed)}"] if guessed else []
    notes += notes_on_ends(header, [name for columns in claimed.values() for name in columns])
    for field in names.unused:
        columns = _usual(field, Claims(claimed).rest(header), claimed) or ()
        notes += [f"{name}: not used as {field}, as asked" for name in columns]
    return Claims({field: claimed[field] for field in FIELDS if field in claimed}, tuple(notes))


def named(
    header: Sequence[str], names: FieldNames, source: str, kind: str = "column"
) -> dict[str, tuple[str, ...]]:
    """Return the columns of a table, or the keys of an array file, that the user named."""
    claimed: dict[str, tuple[str, ...]] = {}
    owner: dict[str, str] = {}
    for field in FIELDS:
        given = getattr(names, field)
        if given is None:
            continue
        if field in MATRICES and kind == "column":
            claimed[field] = _matched(header, given, field, source)
        else:
            keys = [given] if isinstance(given, str) else given
            if len(keys) != 1:
                raise DataError(
                    f"{source}: expected one key for {field} in an array file, got {len(keys)} "
                    f"({', '.join(keys)}); lists of columns are for tables"
                )
            claimed[field] = (_present(header, keys[0], field, source, kind),)
        for name in claimed[field]:
            if name in owner:
                raise DataError(
                    f"{source}: the {kind} {name!r} is named for {owner[name]} and again for "
                    f"{field}; name another for {field}"
                )
            owner[name] = field
    return claimed


def _search(
    claimed: dict[str, tuple[str, ...]],
    available: Sequence[str],
    source: str,
    kind: str,
    unused: Sequence[str] = (),
) -> None:
    """Add the fields that were not named and have a usual name."""
    for field in FIELDS:
        if field in claimed or (field in unused and field not in ("obs", "action")):
            continue
        free = Claims(claimed).rest(available)
        if kind == "column" and (found := _usual(field, free, claimed)):
            claimed[field] = found
        elif kind == "key" and (key := find(field, free)) is not None:
            claimed[field] = (key,)
        elif field in ("obs", "action"):
            which = "the one that is" if kind == "key" else "one or more, as A,B, that are"
            raise DataError(
                f"{source}: expected {field} under one of its usual names "
                f"({', '.join(USUAL[field])}), found: {listed(available, near=field)}; name "
                f"{which} {field} with --{field} ({field}= in Python)"
            )


def require_distinct(header: Sequence[str], source: str) -> None:
    """Refuse a table with two columns of one name."""
    twice, count = next(iter(Counter(header).most_common(1)), ("", 0))
    if count > 1:
        raise DataError(
            f"{source}: expected column names to differ, got {twice!r} twice; rename one"
        )


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that puts ``obs_10`` after ``obs_9``.

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
    """Return the columns of names and patterns: matches in natural order, lists as given."""
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
                f"found: {listed(header, near=item)}; name others for {field}"
            )
        found += sorted(matches, key=natural_key)
    if not found:
        raise DataError(f"{source}: expected columns for {field}, got an empty list; name them")
    return tuple(found)


def _present(
    header: Sequence[str], name: str, field: str, source: str, kind: str = "column"
) -> str:
    if name in header:
        return name
    raise DataError(
        f"{source}: expected the {kind} {name!r} (named for {field}), "
        f"found: {listed(header, near=name)}; name one of these for {field}"
    )


def _usual(
    field: str, free: Sequence[str], claimed: dict[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    """Return the columns of a field by its usual names, or None."""
    if field in MATRICES:
        beside = tuple(f"next_{name}" for name in claimed.get(_BEFORE.get(field, ""), ()))
        if beside and all(name in free for name in beside):
            return beside
        numbered = _with_suffix(field, free, r"[_. /-]?\[?\d+(?:[_,.x]\d+)*\]?")
        if numbered:
            return numbered
    found = find(field, free)
    if found is None and _NAMES_IN_TABLES.get(field) in free:
        found = _NAMES_IN_TABLES[field]
    if found is not None:
        return (found,)
    return _with_suffix(field, free, r"[_./].+") if field in MATRICES else None


def _with_suffix(field: str, free: Sequence[str], suffix: str) -> tuple[str, ...] | None:
    """Return all columns made of one usual name and a suffix of the given form."""
    for base in USUAL[field]:
        pattern = re.compile(re.escape(base) + suffix, re.IGNORECASE)
        matches = [name for name in free if pattern.fullmatch(name)]
        if matches:
            return tuple(sorted(matches, key=natural_key))
    return None


_USUAL = {
    "obs": "obs observations observation state states",
    "action": "action actions act acts",
    "reward": "reward rewards rew",
    "next_obs": "next_obs next_observations next_observation next_state next_states",
    "terminal": "terminal terminals terminated termination terminations",
    "timeout": "timeout timeouts truncated truncation truncations",
    "episode": "episode episodes episode_id episode_index ep traj trajectory traj_id trajectory_id "
    "run run_id rollout rollout_id",
    "time": "time timestamp timestamps t step timestep time_step",
    "next_action": "next_action next_actions next_act",
}
USUAL = {field: tuple(names.split()) for field, names in _USUAL.items()}
"""Field to its usual names, the most specific first; case does not matter."""

AMBIGUOUS_END = ("done", "dones", "next.done")
"""Names that may mean the end of the task or of the record: used only if the user names them."""


def resolve(available: Sequence[str], names: FieldNames, source: str) -> dict[str, str]:
    """Find the key of every field by given and usual names."""
    found = named(available, names, source, "key")
    _search(found, available, source, "key")
    return {field: keys[0] for field, keys in found.items()}


def named_arrays(available: Sequence[str], names: FieldNames, source: str) -> dict[str, str]:
    """Return the keys of an array file that the user named."""
    return {field: keys[0] for field, keys in named(available, names, source, "key").items()}


def read_arrays(
    rows: RawRows,
    keys: Sequence[str],
    names: FieldNames,
    source: str,
    *,
    own: Mapping[str, str],
    read: Callable[[str, str], np.ndarray],
    describe: Callable[[str], tuple[tuple[int, ...], str]],
) -> list[str]:
    """Add the fields and extra columns of an array file to its rows.

    Args:
        rows: Without arrays yet; with the provenance of a file that puorl wrote.
        keys: Keys of the file.
        names: Names that the user gave.
        source: The file; messages start with it.
        own: Field to key in a file that puorl wrote.
        read: Function from a key and its field ("" for an extra column) to the array.
        describe: Function from a key to the array's shape and kind of dtype.

    Returns:
        Keys that do not hold one plain value a row.
    """
    if rows.provenance is None:
        found = resolve(keys, names, source)
    else:
        found = named_arrays(keys, names, source)
        found |= {f: k for f, k in own.items() if f not in found and k not in found.values()}
    rows.arrays = {field: read(found[field], field) for field in FIELDS if field in found}
    rows.keys = {field: key for field, key in found.items() if field not in MATRICES}
    rows.notes += notes_on_ends(keys, found.values())
    if "episode" in found and rows.arrays["episode"].dtype.kind in "SU":
        rows.columns[found["episode"]] = rows.arrays["episode"]
    obs, skipped = rows.arrays["obs"], []
    for key in (key for key in keys if key not in found.values()):
        shape, kind = describe(key)
        if obs.shape and shape in ((len(obs),), (len(obs), 1)) and kind in "biufSU":
            rows.columns[key] = read(key, "")
        else:
            skipped.append(key)
    return skipped


def find(field: str, free: Sequence[str]) -> str | None:
    """Return the key of a field by its usual names, or None."""
    folded = {key.lower(): key for key in reversed(free)}  # the first of equal spellings wins
    for name in USUAL[field]:
        if name in free:
            return name
        if name in folded:
            return folded[name]
    return None


def notes_on_ends(available: Sequence[str], found: Collection[str]) -> list[str]:
    """Return notes on unused keys that may mean the end of the task or of the record."""
    return [
        f"{key}: not used, it may mean the task's end or a cut record; if it is the task's end, "
        f"name it with terminal={key!r}, if it is only the record's, with timeout={key!r}"
        for key in available
        if key.lower() in AMBIGUOUS_END and key not in found
    ]


_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(
    r"[+-]?(?:(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
_FLAGS = {"true": True, "false": False}
_EXACT_IN_FLOAT = 2**53
_LARGEST = 2**63 - 1


def typed(cells: Sequence[str]) -> np.ndarray:
    """Convert a column to the narrowest kind that keeps all cells exactly.

    Returns:
        (n,) bool, int64, float64 or text.

    >>> typed(["1", "2"]).dtype, typed(["1", ""]).tolist(), typed(["007", "1"]).tolist()
    (dtype('int64'), [1.0, nan], ['007', '1'])
    """
    kind = _kind({cell.strip() for cell in set(cells)})
    if kind == "text":
        return np.array(cells, dtype=str) if cells else np.empty(0, "U1")
    stripped = map(str.strip, cells)
    if kind == "flag":
        return np.fromiter((_FLAGS[cell.lower()] for cell in stripped), bool, len(cells))
    if kind == "whole":
        return np.fromiter(map(int, stripped), np.int64, len(cells))
    values = (float(_FLAGS.get(cell.lower(), cell or "nan")) for cell in stripped)
    return np.fromiter(values, np.float64, len(cells))


def seconds(
    cells: Sequence[str], where: str, zone: str | None = None, form: str | None = None
) -> tuple[np.ndarray, list[int], tuple[str, ...]]:
    """Convert time stamps to seconds since 1970.

    Args:
        cells: The stamps.
        where: File and column; messages start with it.
        zone: Name of the zone of stamps that have none, such as ``Europe/Berlin``; UTC by default.
        form: Format of the stamps, as for ``strptime``; ISO 8601 by default.

    Returns:
        (n,) float64, NaN for empty cells; the rows that hold something else, NaN too; and notes.
    """
    result, wrong = np.full(len(cells), np.nan), []
    other, zoned = _zone(zone), None
    for row, cell in enumerate(cells):
        if not cell.strip():
            continue
        try:
            text = cell.strip()
            stamp = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
        except ValueError:
            wrong.append(row)
            continue
        zoned = stamp.tzinfo is not None if zoned is None else zoned
        if zone is None and zoned != (stamp.tzinfo is not None):
            raise DataError(
                f"{where}: expected stamps all with or all without a zone, got {cell!r} in row "
                f"{row}; name the zone of those without one with --time-zone (time_zone= in Python)"
            )
        result[row] = (stamp if stamp.tzinfo else stamp.replace(tzinfo=other)).timestamp()
    if zoned is None:
        row = wrong[0] if wrong else 0
        expected = f"stamps of the format {form!r}" if form else "numbers or ISO 8601 stamps"
        repair = "describe such stamps with --time-format (time_format= in Python)"
        if has_decimal_comma(cells[row]):
            repair = "read decimal commas with --decimal , (decimal=',' in Python)"
        raise DataError(f"{where}: expected {expected}, got {cells[row]!r} in row {row}; {repair}")
    if zoned or zone is not None:
        return result, wrong, ()
    column = where.rpartition(": column ")[2].partition(" (")[0]
    note = (
        f"{column}: stamps without a zone count as UTC; name theirs with --time-zone, if it differs"
    )
    return result, wrong, (note,)


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"time_zone: expected the name of a zone, such as Europe/Berlin, got {name!r}"
        ) from error


def is_number(cell: str) -> bool:
    """Return whether a cell is one number, written with a decimal point."""
    # Unlike ids, numbers may have leading zeros.
    cell = cell.strip()
    return bool(_NUMBER.fullmatch(re.sub(r"^([+-]?)0+(?=[0-9])", r"\1", cell)))


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell looks like a number with a decimal comma."""
    return bool(_DECIMAL_COMMA.fullmatch(cell.strip()))


def with_points(cells: Sequence[str]) -> list[str]:
    """Write numbers that have a decimal comma with a point; one with a point becomes no number.

    >>> with_points(["1,5", "2", "1.234", "P,1"])
    ['1.5', '2', '1.234?', 'P,1']
    """
    # With decimal commas, a point is that of thousands, or a slip: neither may be taken for 1.234.
    return [
        cell.replace(",", ".") if has_decimal_comma(cell)
        else f"{cell}?" if "." in cell and is_number(cell)
        else cell
        for cell in cells
    ]  # fmt: skip


def _kind(values: Collection[str]) -> str:
    empty = "" in values
    filled = [value for value in values if value]
    if filled and all(value.lower() in _FLAGS for value in filled):
        return "number" if empty else "flag"
    if not all(_NUMBER.fullmatch(value) for value in filled):
        return "text"
    if not filled or not all(_WHOLE.fullmatch(value) for value in filled):
        return "number"
    # A whole number that the kind cannot hold exactly is an id: it stays text.
    limit = _EXACT_IN_FLOAT if empty else _LARGEST
    if any(len(value) > 20 or abs(int(value)) > limit for value in filled):
        return "text"
    return "number" if empty else "whole"
