"""What an audit means: plain sentences, each with a level.

``problem``: results will be wrong; ``warning``: look at it; ``info``: good to know.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from puorl.data.column_profile import STUCK_RUN, ColumnProfile
from puorl.data.episodes import NO_KEY

if TYPE_CHECKING:
    from puorl.data.inspect import Continuity, Ends, Inspection

Level = Literal["info", "warning", "problem"]
_MANY_DUPLICATES = 0.001
_OFTEN_AT_BOUND = 0.01
_ENOUGH_TERMINALS = 5
_MOST_NAMED = 8
_DRAWN = "the rows were drawn at random: checks that need their order were skipped"


@dataclass(frozen=True)
class Finding:
    """One sentence of the audit."""

    level: Level
    text: str


def find(seen: "Inspection") -> list[Finding]:
    """All findings, the gravest first."""
    found = [
        *_on_missing(seen),
        *_on_ends(seen),
        *_on_continuity(seen),
        *_on_columns(seen),
        *_on_clock(seen),
        *_on_duplicates(seen),
        *_on_labels(seen),
    ]
    rank = {"problem": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: rank[finding.level])


def _on_missing(seen: "Inspection") -> Iterator[Finding]:
    sentences: dict[str, tuple[Level, str]] = {
        "reward": ("warning", "no reward: the filter works without it, training needs one"),
        "terminal": ("warning", "no terminal flags: every row is taken as if the task went on"),
        "timeout": ("info", "no timeout flags: where the record was cut is not marked"),
        "next_obs": ("info", "no next states: taken from the following row of the episode"),
    }
    if "next_obs" in seen.missing and any(note.startswith(NO_KEY) for note in seen.notes):
        # The one silent way to a transition that never happened.
        sentences["next_obs"] = (
            "warning",
            "no next states, episode key or cuts: every row is taken to follow the row before it",
        )
    if seen.ends.num_timeout:
        cuts = f"{_count(seen.ends.num_timeout)} rows"
        text = f"no timeout flags: a cut is marked only where the record breaks off ({cuts})"
        sentences["timeout"] = ("info", text)
    for name, (level, text) in sentences.items():
        if name in seen.missing:
            yield Finding(level, text)
    if seen.episodes is None and seen.format == "split":
        yield Finding("info", _DRAWN)
    elif seen.episodes is None:
        yield Finding("warning", "episodes are unknown: nothing that needs their order was checked")


def _on_ends(seen: "Inspection") -> Iterator[Finding]:
    ends = seen.ends
    if ends.num_both:
        yield Finding(
            "warning", f"{_rows(ends.num_both)} both terminal and timeout; terminal counts"
        )
    if ends.num_terminal_inside:
        yield Finding(
            "problem",
            f"{_rows(ends.num_terminal_inside)} terminal but not the last of their episode: "
            "check the terminal flag and the episode key",
        )
    if ends.num_timeout_inside:
        yield Finding("info", f"{_rows(ends.num_timeout_inside)} cut (timeout) inside an episode")
    if ends.num_next_unknown:
        yield Finding(
            "info", f"the next state is unknown in {_count(ends.num_next_unknown)} terminal rows"
        )
    flags_known = not {"terminal", "timeout"} <= set(seen.missing)
    if ends.num_open and seen.episodes is not None and flags_known:
        # A file's last episode is often open; more than that asks for a look.
        level: Level = "info" if ends.num_open == 1 else "warning"
        yield Finding(
            level,
            f"{_count(ends.num_open)} of {_count(seen.episodes.count)} episodes end with neither "
            "terminal nor timeout",
        )
    if _terminals_look_like_limits(ends, seen):
        yield Finding(
            "warning",
            f"all {_count(ends.num_terminal)} terminal rows come after exactly "
            f"{_count(seen.episodes.longest if seen.episodes else 0)} rows: these look like time "
            "limits, which belong in timeout",
        )


def _terminals_look_like_limits(ends: "Ends", seen: "Inspection") -> bool:
    return (
        seen.episodes is not None
        and ends.num_terminal >= _ENOUGH_TERMINALS
        and ends.num_terminal_inside == 0
        and seen.episodes.longest > 1
        and ends.terminal_lengths == (seen.episodes.longest, seen.episodes.longest)
    )


def _on_continuity(seen: "Inspection") -> Iterator[Finding]:
    joint = seen.continuity
    if joint is None or joint.num_different == 0:
        return
    share = f"{_count(joint.num_far)} of {_count(joint.num_pairs)} steps inside episodes"
    if not joint.in_order and seen.format == "split":
        yield Finding("info", _DRAWN)
    elif not joint.in_order:
        yield Finding(
            "warning",
            f"next_obs is not the following row's obs in {share}: the rows stand in random order, "
            "or next_obs is wrong; checks that need the order were skipped",
        )
    elif joint.num_far:
        first = ", ".join(map(str, joint.first_far))
        yield Finding(
            "problem",
            f"next_obs is not the following row's obs in {share} (first rows: {first}; largest "
            f"difference {joint.largest:.3g}): breaks that no flag marks, or a wrong next_obs",
        )
    else:
        yield Finding("info", _rounding_only(joint))


def _rounding_only(joint: "Continuity") -> str:
    return (
        f"next_obs and the following row's obs differ by rounding in {_count(joint.num_different)} "
        f"of {_count(joint.num_pairs)} steps (largest difference {joint.largest:.3g})"
    )


def _on_columns(seen: "Inspection") -> Iterator[Finding]:
    columns = seen.columns
    unknown = [c for c in columns if c.num_unknown or c.num_infinite]
    if unknown:
        yield Finding("warning", f"NaN or infinite values in {_named(unknown)}")
    constant = [c for c in columns if c.constant]
    if constant:
        yield Finding("warning", f"constant, so without information: {_named(constant)}")
    for c in columns:
        if c.stuck:
            yield Finding(
                "warning",
                f"{c.name} seems stuck: the same value up to {_count(c.longest_run or 0)} rows in "
                f"a row, and {c.stuck_share or 0:.2%} of rows in runs of {STUCK_RUN} or more",
            )
    rounded = [c for c in columns if c.step is not None and c.step != 1]
    if rounded:
        texts = [f"{c.name} ({c.step:g})" for c in rounded]
        yield Finding("info", f"rounded, with their steps: {_listed(texts)}")
    bound = [c for c in columns if (c.bound_share or 0) >= _OFTEN_AT_BOUND and c.decimals is None]
    if bound:
        texts = [f"{c.name} ({c.bound_share:.1%} of rows)" for c in bound]
        yield Finding("info", f"often exactly at their minimum or maximum: {_listed(texts)}")


def _on_clock(seen: "Inspection") -> Iterator[Finding]:
    clock = seen.clock
    if clock is None:
        return
    if clock.num_gaps:
        yield Finding(
            "warning",
            f"{_count(clock.num_gaps)} gaps in time inside episodes (median step "
            f"{clock.step_median:g}, longest {clock.step_max:g})",
        )
    if clock.num_resets:
        yield Finding("warning", f"the clock runs backwards {_count(clock.num_resets)} times")
    if clock.num_duplicated:
        yield Finding(
            "warning", f"{_rows(clock.num_duplicated)} at the same time as the row before"
        )


def _on_duplicates(seen: "Inspection") -> Iterator[Finding]:
    if seen.num_duplicated_rows:
        share = seen.num_duplicated_rows / seen.num_rows
        level: Level = "warning" if share > _MANY_DUPLICATES else "info"
        yield Finding(
            level, f"{_rows(seen.num_duplicated_rows)} exact copies of others ({share:.2%})"
        )


def _on_labels(seen: "Inspection") -> Iterator[Finding]:
    labels = seen.labels
    if labels is None:
        return
    if labels.num_rows in (0, seen.num_rows):
        which = "no row is" if labels.num_rows == 0 else "all rows are"
        yield Finding("problem", f"{which} labelled: a filter needs labelled and unlabelled rows")


def _named(columns: Iterable[ColumnProfile]) -> str:
    return _listed([c.name for c in columns])


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


def _rows(number: int) -> str:
    return f"{_count(number)} row is" if number == 1 else f"{_count(number)} rows are"


def _count(number: int) -> str:
    return f"{number:,}"
