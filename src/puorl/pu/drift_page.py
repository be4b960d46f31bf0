"""Units followed over time: as an HTML page with a time line for each, as CSV and as JSON."""

import math
import os
from collections.abc import Sequence
from typing import Any

from puorl.core.formatting import as_dates
from puorl.data.labels import write_table
from puorl.html import charts, page
from puorl.html.page import Markup, as_count, shorten
from puorl.pu.machines.drift import FALSE_ALARMS, UnitCourse
from puorl.pu.report_text import LONGEST_NAME
from puorl.pu.unit_table import natural

_MOST_DRAWN = 24
"""Units whose time lines are drawn: those with an alarm first."""


def time_line(course: UnitCourse) -> Markup:
    """Draw how far a unit is from its own beginning, the usual band, and the alarm."""
    name, count = shorten(course.name, LONGEST_NAME), len(course.time)
    lines = [
        charts.Line(
            "distance from its beginning",
            course.time.tolist(),
            course.distance.tolist(),
            low=(0.0,) * count,
            high=(course.band,) * count,
            end=f"{course.distance[-1]:.1f}",
        )
    ]
    if course.alarm is not None:
        k = course.alarm
        beyond = [value if i >= k else float("nan") for i, value in enumerate(course.distance)]
        lines.append(charts.Line("after the alarm", course.time.tolist(), beyond))
    return charts.lines(
        f"Time line of {name}",
        f"{name}: {describe(course)}",
        line=lines,
        x_label=_time_label(course),
        y_label="in deviations",
        within=(0.0, 1.5 * course.band),
        x_scale="dates" if course.is_dated else "linear",
    )


def _time_label(course: UnitCourse) -> str:
    if not course.is_dated:
        return "time"
    first, last = (as_dates([course.time[k]])[0].partition("T")[0] for k in (0, -1))
    return f"UTC, {first}" + (f" to {last}" if last != first else "")


def _moments(course: UnitCourse) -> list[str]:
    """Write the times of all windows: as dates, or as numbers with all digits."""
    if course.is_dated:
        return as_dates(course.time.tolist())
    return [f"{time:.15g}" for time in course.time]


def describe(course: UnitCourse) -> str:
    """Say in a sentence whether and when a unit left its own kind."""
    if course.alarm is None:
        return f"no alarm in {as_count(len(course.time))} windows."
    k, first, moments = course.alarm, course.first_beyond or 0, _moments(course)
    return (
        f"beyond its band from {moments[first]} on, alarm at {moments[k]} (window {k + 1} of "
        f"{len(moments)}): {course.distance[k]:.2g} from its beginning, {course.band:.2g} is the "
        "bound."
    )


def to_dict(course: UnitCourse) -> dict[str, Any]:
    """Return the course of a unit, JSON-ready; what is not finite becomes None."""
    numbers = {
        name: [float(v) if math.isfinite(v) else None for v in getattr(course, name)]
        for name in ("time", "probability", "distance")
    }
    ends = {"alarm": course.alarm, "first_beyond": course.first_beyond}
    dates = {"date": _moments(course)} if course.is_dated else {}
    return {"name": course.name, **numbers, **dates, "band": float(course.band), **ends}


def write_courses(
    path: str | os.PathLike[str], courses: Sequence[UnitCourse], *, force: bool = False
) -> None:
    """Write a line of CSV for each window of each unit, with all digits.

    Where time is in seconds since 1970, a last column has it as a date.

    Raises:
        DataError: ``path`` exists, and ``force`` is off.
    """
    names = ("unit", "window", "time", "probability", "distance", "band", "alarm")
    is_dated = any(each.is_dated for each in courses)
    lines = (
        (
            each.name,
            k,
            *map(_cell, values),
            int(each.alarm is not None and k >= each.alarm),
            *([moments[k]] if is_dated else []),
        )
        for each in courses
        for moments in [_moments(each)]
        for k, values in enumerate(
            (t, p, d, each.band)
            for t, p, d in zip(each.time, each.probability, each.distance, strict=True)
        )
    )
    write_table(path, (*names, *["date"] * is_dated), lines, force=force)


def _cell(value: float) -> str:
    """Write a number with all digits, and nothing where there is none."""
    return repr(float(value)) if math.isfinite(value) else ""


def as_page(courses: Sequence[UnitCourse]) -> str:
    """Make a self-contained page of all units, those with an alarm first."""
    order = sorted(courses, key=lambda each: (each.alarm is None, natural(each.name)))
    changed = [each.name for each in order if each.alarm is not None]
    names = shorten(", ".join(changed), 10 * LONGEST_NAME)
    headline = f"{names}: not as they were" if changed else "No unit has changed"
    num_windows = sum(len(each.time) for each in courses)
    sentence = (
        f"{as_count(len(courses))} units were followed over {as_count(num_windows)} windows. The "
        f"band is made to be exceeded by chance in {1000 * FALSE_ALARMS:g} of 1,000 windows; an "
        "alarm needs two windows in a row beyond it. An alarm says that a unit no longer moves as "
        "it did at first, not why."
    )
    drawn = [
        page.figure(
            time_line(each),
            (text := describe(each))[:1].upper() + text[1:],
            heading=shorten(each.name, LONGEST_NAME),
        )
        for each in order[:_MOST_DRAWN]
    ]
    table = page.table(
        "All units; a click on a head sorts",
        ("Unit", "Windows", "Alarm at", "Largest distance", "Band", "Probability, first", "Last"),
        (
            (
                each.name,
                as_count(len(each.time)),
                "" if each.alarm is None else _moments(each)[each.alarm],
                f"{max(v for v in each.distance if v == v):.2f}",
                f"{each.band:.2f}",
                f"{each.probability[0]:.3f}",
                f"{each.probability[-1]:.3f}",
            )
            for each in order
        ),
        numeric=(1, 2, 3, 4, 5, 6),
        sortable=True,
    )
    return page.document(
        "Units over time",
        page.banner("caution" if changed else "good", "Drift", headline, sentence),
        page.section("Time lines", page.side_by_side(*drawn)),
        page.section("All units", page.movable(table, "All units")),
    )
