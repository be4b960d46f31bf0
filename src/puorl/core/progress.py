"""One progress bar for all long jobs: how far, how fast, how long still."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_BETWEEN_LINES = 10.0
"""Where lines stand in for the bar, as in a log file."""


class Advance(Protocol):
    """Adds to what is done; a note stands beside the bar."""

    def __call__(self, amount: int, note: str = "", /) -> None:
        """Say that ``amount`` more is done."""


def quiet(amount: int, note: str = "", /) -> None:
    """Shows nothing."""


@contextmanager
def progress_bar(
    title: str, *, total: int, unit: str = "rows", show: bool = True
) -> Iterator[Advance]:
    """Show a bar on stderr while the block runs; yields a function that adds to what is done.

    The bar is gone afterwards: what stays on the screen is the caller's own last line. Where stderr
    is not a terminal there is a plain line now and then instead, and none for a job of seconds.

    Args:
        title: What is being done, in a word or two.
        total: How much there is to do.
        unit: What is counted.
        show: Whether to show anything at all.
    """
    if not show:
        yield quiet
        return
    # A tenth of a second that silent callers need not pay.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(title, total=total, rate="", note="")

        def advance(amount: int, note: str = "", /) -> None:
            shown.advance(task, amount)
            if note:
                shown.update(task, note=note)
            speed = shown.tasks[0].speed
            if speed:
                shown.update(task, rate=f"{speed:,.0f} {unit}/s")

        yield advance


def _lines(title: str, total: int) -> Advance:
    """Writes a line to stderr when some seconds have passed since the last one."""
    written = time.monotonic()
    done = 0
    first: tuple[int, float] | None = None

    def advance(amount: int, note: str = "", /) -> None:
        nonlocal done, written, first
        done += amount
        now = time.monotonic()
        # What came first says nothing of the pace: compiling, or what an earlier run had done.
        first = first or (done, now)
        if now - written < SECONDS_BETWEEN_LINES:
            return
        written = now
        parts = [f"{done / total:.0%}", *([note] if note else [])]
        if done > first[0]:
            left = (now - first[1]) * (total - done) / (done - first[0])
            parts.append(f"about {_clock(left)} left")
        sys.stderr.write(f"{title}: {', '.join(parts)}\n")
        sys.stderr.flush()

    return advance


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
