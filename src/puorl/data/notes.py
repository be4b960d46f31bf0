"""The notes of several files as those of one dataset."""

import re
from collections.abc import Iterable

from puorl.data.episodes import DROPPED, GAPS, REPEATS, UNKNOWN

_PATTERNS = {
    form: re.compile(re.escape(form).replace(r"\{\}", "([0-9]{1,15})"))
    for form in (GAPS, REPEATS, UNKNOWN, DROPPED)
}


def join_notes(notes: Iterable[str]) -> tuple[str, ...]:
    """The notes of all parts of a dataset, each once, with their counts added up.

    >>> join_notes(["a", DROPPED.format(14), "a", DROPPED.format(14)])
    ('a', 'next_obs: 28 last rows before a break have none and were dropped')
    """
    found: dict[str, list[int]] = {}
    for note in notes:
        form, counts = _counted(note)
        before = found.get(form, [0] * len(counts))
        # A file may hold any text as a note, a bare form too.
        found[form] = [a + b for a, b in zip(before, counts, strict=False)]
    return tuple(form.format(*counts) if counts else form for form, counts in found.items())


def num_dropped(notes: Iterable[str]) -> int:
    """How many rows loading dropped, by its notes."""
    seen = map(_counted, notes)
    return sum(counts[0] for form, counts in seen if form == DROPPED)


def _counted(note: str) -> tuple[str, list[int]]:
    """A note as a form and its counts, or as itself and none."""
    for form, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(note):
            return form, [int(count) for count in match.groups()]
    return note, []
