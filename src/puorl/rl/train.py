"""`puorl.train`: from rows to a policy in one call."""

import os
from pathlib import Path
from typing import Any

from puorl.core.errors import ConfigError
from puorl.core.formatting import parse_count
from puorl.core.hashing import checked_seed
from puorl.data.dataset import Dataset
from puorl.data.training_files import as_training_set, describe_rows
from puorl.data.training_set import TrainingSet
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.policy import Policy
from puorl.rl.pool import check_rows, with_action_bounds
from puorl.rl.run import (
    RunSpec,
    TrainProgress,
    TrainResult,
    checkpoint_interval,
    run,
    run_in_memory,
)

_MOVED = {
    "seeds": "train returns one policy; use puorl.train_many(learner, data, seeds) for several",
    "resume": "a run in the folder out= is always resumed; leave resume away",
}


def train(
    learner: str,
    data: TrainingSet | Dataset,
    *,
    steps: int | str = 100_000,
    seed: int = 0,
    preset: str = "default",
    out: str | os.PathLike[str] | None = None,
    action_bounds: tuple[Any, Any] | None = None,
    progress: bool = False,
    **settings: Any,
) -> Policy:
    """Train a policy on rows, offline.

    >>> import numpy as np
    >>> action = np.linspace(-1, 1, 64)[:, None]
    >>> obs = np.zeros((64, 2))
    >>> data = Dataset.from_arrays(obs=obs, next_obs=obs, action=action, reward=action[:, 0])
    >>> policy = train("bc", data, steps=200, hidden=(8,), batch_size=32)
    >>> policy.act(np.zeros(2)).shape
    (1,)

    Args:
        learner: A name in `puorl.rl.learner.NAMES`, e.g. ``td3_bc`` or ``iql``; for discrete
            actions ``bc``, ``iql``, ``cql`` or ``bcq``.
        data: What a filter kept, or any rows; all learners but ``bc`` need rewards.
        steps: Updates; the papers train for a million.
        seed: Decides all randomness.
        preset: Named settings of the learner to start from.
        out: Folder to keep the run in: checkpoints, metrics and policies. A run that was killed
            there is resumed, a finished one is returned.
        action_bounds: (low, high) of actions, numbers or one a column: what the machine can do.
            By default those that the data states, else -1 to 1 or what occurs in the rows.
        progress: Show a bar with the time left.
        **settings: Fields of the learner's config to change, e.g. ``batch_size=64``.

    Raises:
        ConfigError: An unknown learner, preset or setting, numbers that make no sense, or a folder
            that holds another run.
        DataError: Rows without rewards, or a folder that cannot be used.
        TrainingError: The training was given up, e.g. because values grew without bound.
    """
    options = {"steps": steps, "preset": preset, "out": out, "progress": progress}
    result = _train(learner, data, 1, seed, action_bounds=action_bounds, **options, **settings)
    return result.policies[f"seed-{seed}"]


def train_many(
    learner: str, data: TrainingSet | Dataset, seeds: int, *, seed: int = 0, **options: Any
) -> TrainResult:
    """Train ``seeds`` policies side by side: ``seed-0``, ``seed-1``, ... counted from ``seed``.

    ``options`` are those of `train`. Policies that were given up are in ``stopped`` of the result,
    with a warning; if all were, a `TrainingError` is raised.
    """
    return _train(learner, data, seeds, seed, **options)


def _train(
    learner: str,
    data: TrainingSet | Dataset,
    seeds: int,
    seed: int,
    /,
    *,
    steps: int | str = 100_000,
    preset: str = "default",
    out: str | os.PathLike[str] | None = None,
    action_bounds: tuple[Any, Any] | None = None,
    progress: bool = False,
    **settings: Any,
) -> TrainResult:
    for name in sorted(_MOVED.keys() & settings):
        raise ConfigError(f"{name}: {_MOVED[name]}")
    total = parse_count(steps, name="steps")
    if seeds < 1:
        raise ConfigError(f"seeds: expected 1 or more policies, got {seeds}")
    chosen = with_action_bounds(as_training_set(data), action_bounds)
    form = learners.form_of(learner, chosen.pool.action_codes)
    made = learners.make(form, num_steps=total, preset=preset, **settings)
    trainer.check_steps(made, steps=total)
    check_rows(made, chosen)
    interval = checkpoint_interval(made, total)
    numbers = range(checked_seed(seed), checked_seed(seed + seeds - 1) + 1)
    rows = describe_rows(chosen.pool, chosen.pool.provenance.source)
    spec = RunSpec(
        made, {"data": chosen}, {"data": numbers}, total, interval, invocation={"parts": [rows]}
    )
    shown = TrainProgress(None if out is None else Path(out), spec)
    with shown.bar(show=progress):
        if out is None:
            result = run_in_memory(spec, on_checkpoint=shown.on_checkpoint)
        else:
            result = run(out, spec, on_checkpoint=shown.on_checkpoint)
    result.check()
    return result
