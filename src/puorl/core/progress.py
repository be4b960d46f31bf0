"""One progress bar for all long jobs: how far, how fast, how long still."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from puorl.core.formatting import describe_time

SECONDS_BETWEEN_LINES = 10.0
"""Where lines stand in for the bar, as in a log file."""


class Advance(Protocol):
    """Adds to what is done; a note stands beside the bar."""

    def __call__(self, amount: int, note: str = "", /, *, earlier: bool = False) -> None:
        """Say that ``amount`` more is done; ``earlier``: by an earlier run, so in no time."""


def quiet(amount: int, note: str = "", /, *, earlier: bool = False) -> None:
    """Shows nothing."""


class Pace:
    """How fast a job is and how long it will take, from the second piece of work on.

    The first says nothing: it holds what is done once, such as compiling.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.done = 0
        self._worked = 0
        self._first: tuple[int, float] | None = None
        self.rate: float | None = None
        """Of work, a second; None until there is something to tell it by."""

    def add(self, amount: int, now: float, *, earlier: bool) -> None:
        """Note that ``amount`` more is done, at the second ``now`` or by an earlier run."""
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
        """Time until the end in a few words; empty until there is something to tell it by."""
        if self.rate is None:
            return ""
        return f"about {describe_time(max(0, self._total - self.done) / self.rate)} left"


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
    """Writes a line to stderr when some seconds have passed since the last one."""
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
