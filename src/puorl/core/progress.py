"""One progress bar for all long jobs: how far, how fast, how long still."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


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

    Nothing is shown where stderr is not a terminal, and the bar is gone afterwards: what stays on
    the screen is the caller's own last line.

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
        yield quiet
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
