"""Progress of long jobs on stderr: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from puorl.core.formatting import describe_time

SECONDS_BETWEEN_LINES = 10.0
"""Shortest time between two lines, where stderr is not a terminal."""


class Advance(Protocol):
    """Function that adds to the amount done; the note is shown next to the bar."""

    def __call__(self, amount: int, note: str = "", /, *, earlier: bool = False) -> None:
        """Add ``amount``; ``earlier`` if an earlier run did it, so that it took no time."""


def quiet(amount: int, note: str = "", /, *, earlier: bool = False) -> None:
    """Show nothing."""


class Pace:
    """Rate of a job and time left, estimated from the second amount of work on.

    The first is left out: it includes work that is done once, such as compilation.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.done = 0
        self._worked = 0
        self._first: tuple[int, float] | None = None
        self.rate: float | None = None
        """Work a second; None until it can be estimated."""

    def add(self, amount: int, now: float, *, earlier: bool) -> None:
        """Add ``amount`` done by second ``now``, or by an earlier run."""
        self.done += amount
        if earlier or not amount:
            return
        self._worked += amount
        if self._first is None:
            self._first = self._worked, now
            return
        begun, since = self._first
        self.rate = (self._worked - begun) / max(now - since, 1e-9)

    @property
    def left(self) -> str:
        """Time left as text; empty until it can be estimated."""
        if self.rate is None:
            return ""
        return f"about {describe_time(max(0, self._total - self.done) / self.rate)} left"


@contextmanager
def progress_bar(
    title: str, *, total: int, unit: str = "rows", show: bool = True
) -> Iterator[Advance]:
    """Show progress while the block runs; yield a function that adds to the amount done.

    On a terminal the bar disappears at the end. Elsewhere a line is written now and then, and none
    for a job of seconds.
    """
    if not show:
        yield quiet
        return
    # Imported here: it takes a tenth of a second, which silent callers save.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    pace = Pace(total)
    if not console.is_terminal:
        yield _lines(title, total, pace)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[note]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(title, total=total, rate="", note="", left="")

        def advance(amount: int, note: str = "", /, *, earlier: bool = False) -> None:
            pace.add(amount, time.monotonic(), earlier=earlier)
            rate = "" if pace.rate is None else f"{pace.rate:,.0f} {unit}/s"
            shown.update(task, completed=pace.done, rate=rate, left=pace.left)
            if note:
                shown.update(task, note=note)

        yield advance


def _lines(title: str, total: int, pace: Pace) -> Advance:
    """Return a function that writes a line to stderr when some seconds have passed."""
    written = time.monotonic()

    def advance(amount: int, note: str = "", /, *, earlier: bool = False) -> None:
        nonlocal written
        now = time.monotonic()
        pace.add(amount, now, earlier=earlier)
        if now - written < SECONDS_BETWEEN_LINES:
            return
        written = now
        parts = [f"{pace.done / total:.0%}", note, pace.left]
        sys.stderr.write(f"{title}: {', '.join(part for part in parts if part)}\n")
        sys.stderr.flush()

    return advance
