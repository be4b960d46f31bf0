"""The course of a training run: how far, how fast, and how good the policies are on the way."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from puorl.core.errors import DataError
from puorl.core.files import read_json
from puorl.core.progress import Advance, progress_bar, quiet
from puorl.envs.domains import DomainSpec
from puorl.envs.evaluate import Evaluation, evaluate
from puorl.rl.policy import Policy

if TYPE_CHECKING:  # importing these loads jax
    from puorl.rl.learner import Learner
    from puorl.rl.run import Job
    from puorl.rl.trainer import Progress


class Course:
    """How far a run is and how fast, over all its groups of lanes."""

    def __init__(self, out: Path, job: "Job") -> None:
        """Look where the run in the folder stands, if there is one."""
        from puorl.rl.run import resume_point

        plan = _kept_plan(out)
        finished, step = (0, 0) if plan is None else resume_point(out)
        self.resumed_step = None if plan is None else step
        """Updates behind the group in training when this process took over; None if it began."""
        self.seconds = 0.0
        """What `shown` took."""
        self._num_groups = len((plan or job.plan()).get("groups", []))
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


@dataclass(eq=False)
class Trial:
    """Evaluations of the policies in training."""

    spec: DomainSpec
    episodes: int
    seed: int
    steps: int
    """Updates in all; there is always an evaluation after the last."""
    point_every: int
    every: int | None
    """Updates between two evaluations."""
    _last: dict[tuple[str, ...], Evaluation] = field(default_factory=dict)
    """After the last update, by the names of the policies."""

    def measure(
        self, step: int, policies: Mapping[str, Policy]
    ) -> Mapping[str, Mapping[str, float]]:
        """Returns in the domain by policy, where it is time for them."""
        due = self.every is not None and (
            step // self.every > (step - self.point_every) // self.every
        )
        if not policies or not (due or step == self.steps):
            return {}
        seen = self._evaluate(policies)
        if step == self.steps:
            self._last[tuple(policies)] = seen
        found: dict[str, dict[str, float]] = {}
        for row, name in enumerate(policies):
            found[name] = {"return": float(seen.mean[row]), "return_std": float(seen.std[row])}
            if seen.mean_score is not None:
                found[name]["score"] = float(seen.mean_score[row])
        return found

    def final(self, policies: Mapping[str, Policy]) -> Evaluation | None:
        """The evaluation after the last update; None without policies."""
        if not policies:
            return None
        # Several groups, or a run that had ended before, have not been evaluated together.
        return self._last.get(tuple(policies)) or self._evaluate(policies)

    def _evaluate(self, policies: Mapping[str, Policy]) -> Evaluation:
        members = list(policies.values())
        return evaluate(members, self.spec, episodes=self.episodes, seed=self.seed)


def point_every(out: Path, learner: "Learner", steps: int, eval_every: int | None) -> int:
    """Updates between two points: as for any run, but such that evaluations fall on points.

    A resumed run keeps its own, so that it may be evaluated otherwise than before.
    """
    from puorl.rl import train

    kept = (_kept_plan(out) or {}).get("point_every")
    if isinstance(kept, int) and kept > 0:
        return kept
    if eval_every is None or eval_every >= steps:
        return train.point_every(learner, steps)
    parts = -(-eval_every // train.POINT_EVERY)
    return train.point_every(learner, eval_every // parts)


def _kept_plan(out: Path) -> dict[str, Any] | None:
    """The plan of the run that a folder holds, or None."""
    from puorl.rl.run import PLAN

    if not (out / PLAN).exists():
        return None
    plan = read_json(out / PLAN)
    if not isinstance(plan, dict):
        raise DataError(f"{out / PLAN}: expected the plan of a run, got something else")
    return plan
