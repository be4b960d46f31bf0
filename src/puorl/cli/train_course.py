"""The course of a training run: how far, how fast, and how good the policies are on the way."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from puorl.core.progress import Advance, progress_bar, quiet
from puorl.rl.run import RunSpec, read_spec, resume_point

if TYPE_CHECKING:  # importing it loads jax
    from puorl.rl.trainer import Progress


class Course:
    """How far a run is and how fast, over all its groups of lanes."""

    def __init__(self, out: Path, job: RunSpec) -> None:
        """Look where the run in the folder stands, if there is one."""
        plan = read_spec(out)
        finished, step = (0, 0) if plan is None else resume_point(out)
        self.resumed_step = None if plan is None else step
        """Updates behind the group in training when this process took over; None if it began."""
        self.seconds = 0.0
        """What `shown` took."""
        self._num_groups = len((plan or job.to_dict()).get("groups", []))
        self._total = self._num_groups * job.steps
        self._before = min(finished * job.steps + step, self._total)
        self._step = step
        self._made: list[int] = []
        self._took: list[float] = []
        self._advance: Advance = quiet
        self._has_bar = Console(stderr=True).is_terminal

    @property
    def logged_until(self) -> int | None:
        """The update from which on a tracker's points are void; None if it is to keep all."""
        # Steps of several groups overlap: those of a finished one must stay.
        return self.resumed_step if self._num_groups == 1 else None

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show a bar while the block runs; what was done before counts as done."""
        began = time.perf_counter()
        with progress_bar("training", total=self._total, unit="steps") as self._advance:
            if self._before:
                self._advance(self._before, earlier=True)
            yield
        self.seconds = time.perf_counter() - began

    def on_point(self, point: "Progress", lanes: int) -> None:
        """Move on to a point of the group in training."""
        # The next group begins at 0 again.
        made = point.step - self._step if point.step > self._step else point.step
        self._step = point.step
        self._made.append(made)
        self._took.append(point.seconds)
        note = f"per lane, {lanes} lanes" if lanes > 1 else "per lane"
        if not self._has_bar:  # which shows the pace by itself
            note = f"{made / point.seconds:,.0f} steps/s {note}"
        self._advance(made, note)

    @property
    def pace(self) -> float | None:
        """Updates a second of each lane; None where none was made."""
        # The first stretch includes the compiler's work: it counts only if it is all there is.
        since = 1 if len(self._made) > 1 else 0
        return sum(self._made[since:]) / sum(self._took[since:]) if self._made else None

    def told(self) -> str:
        """How long it took, in a few words."""
        if self.pace is None:
            return "the run had ended before"
        resumed = f" from step {self.resumed_step:,} on" if self.resumed_step else ""
        minutes, seconds = divmod(round(self.seconds), 60)
        hours, minutes = divmod(minutes, 60)
        took = f"{hours}:{minutes:02d}:{seconds:02d}"
        return f"trained{resumed} in {took} at {self.pace:,.0f} steps/s per lane"
