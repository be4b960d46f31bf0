"""`puorl.train`: from rows to a policy in one call."""

import os
import warnings
from collections.abc import Sequence
from typing import Any

from puorl.core.errors import ConfigError, TrainingError
from puorl.core.formatting import parse_count
from puorl.core.hashing import checked_seed
from puorl.core.progress import progress_bar
from puorl.data.dataset import Dataset
from puorl.data.episodes import return_range
from puorl.data.training_set import TrainingSet
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.learner import Learner
from puorl.rl.policy import Policy
from puorl.rl.pool import reward_factor
from puorl.rl.run import Job, policies
from puorl.rl.run import run as run_in
from puorl.rl.trainer import Lane, Progress, Stopped

POINT_EVERY = 5_000
"""Updates between two lines of metrics."""


def train(
    learner: str,
    data: TrainingSet | Dataset,
    *,
    steps: int | str = 100_000,
    seeds: int = 1,
    seed: int = 0,
    preset: str = "default",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Any:
    """Train a policy on rows, offline.

    >>> import numpy as np
    >>> action = np.linspace(-1, 1, 64)[:, None]
    >>> obs = np.zeros((64, 2))
    >>> data = Dataset.from_arrays(obs=obs, next_obs=obs, action=action, reward=action[:, 0])
    >>> policy = train("bc", data, steps=200, hidden=(8,), batch_size=32)
    >>> policy.act(np.zeros(2)).shape
    (1,)

    Args:
        learner: td3_bc, iql, bc, cql, rebrac or td7.
        data: What a filter kept, or any rows with rewards.
        steps: Updates; the papers train for a million.
        seeds: How many policies to train, side by side.
        seed: Of the first; the others count on from it.
        preset: Named settings of the learner to start from.
        out: A folder to keep the run in: checkpoints, metrics and policies.
        resume: Go on with the run in that folder.
        progress: Show a bar with the time left.
        **settings: Fields of the learner's config that are to differ, e.g. ``batch_size=64``.

    Returns:
        A `Policy`; a list of them for several seeds, without those that were given up.

    Raises:
        ConfigError: An unknown learner, preset or setting, or numbers that make no sense.
        DataError: Rows without rewards, or a folder that cannot be used.
        TrainingError: Every seed was given up, e.g. because values grew without bound.
    """
    total = parse_count(steps, name="steps")
    if seeds < 1:
        raise ConfigError(f"seeds: expected 1 or more policies, got {seeds}")
    if resume and out is None:
        raise ConfigError("resume: expected a folder out= to go on in, got none")
    made = learners.make(learner, num_steps=total, preset=preset, **settings)
    trainer.check_steps(made, steps=total)
    chosen = as_training_set(data)
    check_rewards(made, chosen)
    every = point_every(made, total)
    numbers = range(checked_seed(seed), checked_seed(seed + seeds - 1) + 1)
    with progress_bar("training", total=total, unit="steps", show=progress) as advance:

        def on_point(point: Progress, lanes: int) -> None:
            length = point.step % every or every  # the last stretch may be shorter
            pace = f"{lanes * length / point.seconds:,.0f} steps/s over {lanes} lane(s)"
            advance(length, pace)

        if out is not None:
            asked = {"parts": [rows_told(chosen.pool, chosen.pool.provenance.source)]}
            job = Job(made, {"data": chosen}, {"data": numbers}, total, every, asked=asked)
            outcome = run_in(out, job, resume=resume, on_point=on_point)
            found, lost = list(outcome.policies.values()), outcome.stopped
        else:
            found, lost = _in_memory(made, chosen, numbers, total, every, on_point)
    return _handed_over(found, lost, seeds)


def as_training_set(data: TrainingSet | Dataset) -> TrainingSet:
    """Rows as a learner takes them; a dataset's own complete episodes scale IQL's rewards."""
    if isinstance(data, TrainingSet):
        return data
    if isinstance(data, Dataset):
        return TrainingSet.whole(data, return_range([data.rows]))
    raise ConfigError(
        f"train: expected a Dataset or what DomainFilter.filter gives, got {type(data).__name__}"
    )


def rows_told(rows: Dataset, files: Sequence[str]) -> dict[str, Any]:
    """What a run records of the rows it read: from where, how many, and their fingerprint."""
    return {"files": list(files), "num_rows": len(rows), "fingerprint": rows.fingerprint}


def check_rewards(learner: Learner, chosen: TrainingSet) -> None:
    """Warn where a learner would scale rewards and nothing says how."""
    if learner.scale_rewards and reward_factor(chosen) is None:
        warnings.warn(
            f"{learner.name}: rewards are not scaled, since fewer than two complete episodes with "
            "different returns are known; scale them yourself if they are far from 1 a step",
            stacklevel=3,
        )


def point_every(learner: Learner, steps: int) -> int:
    """Updates between two points: whole cycles, at most `POINT_EVERY`."""
    whole = min(steps, POINT_EVERY)
    return max(learner.cycle, whole - whole % learner.cycle)


def _in_memory(
    learner: Learner,
    chosen: TrainingSet,
    numbers: range,
    steps: int,
    every: int,
    on_point: Any,
) -> tuple[list[Policy], dict[str, Stopped]]:
    lanes = [Lane(0, number) for number in numbers]
    work = trainer.prepare(learner, [chosen], lanes)
    train_state = trainer.fresh(work)
    for point in trainer.train(work, steps=steps, point_every=every, train_state=train_state):
        on_point(point, len(lanes))
        train_state = point.train_state
    made = [policy for policy in policies(work, train_state, steps=steps) if policy is not None]
    pairs = zip(numbers, trainer.stopped(work, train_state), strict=True)
    return made, {f"seed-{number}": stop for number, stop in pairs if stop is not None}


def _handed_over(found: list[Policy], lost: dict[str, Stopped], seeds: int) -> Any:
    told = "; ".join(f"{name} at step {stop.step:,}: {stop.reason}" for name, stop in lost.items())
    if not found:
        raise TrainingError(
            f"training was given up ({told}); look at the rewards' size with `puorl inspect`, or "
            "lower the learning rate"
        )
    if lost:
        warnings.warn(f"given up: {told}", stacklevel=3)
    return found[0] if seeds == 1 else found
