"""Groups: lanes that train together, in a folder of their own."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np

from puorl.bench.plan import CellBatch, Run
from puorl.bench.prepare import PreparedSet, join_pools
from puorl.bench.settings import settings_id
from puorl.bench.suites import Budget
from puorl.core.errors import DataError
from puorl.core.files import read_json, write_json
from puorl.core.progress import Advance
from puorl.envs.evaluate import Evaluator
from puorl.rl import run as rl_run
from puorl.rl.learner import Learner
from puorl.rl.run import RunSpec, checkpoint_interval
from puorl.rl.trainer import Progress

FINAL_SEED, CURVE_SEED = 0, 1
"""Start states of the final episodes and of the curve's; the same for all policies."""
_LANES, _DONE, _PACE = "lanes.json", "done.json", "pace.jsonl"

Key = tuple[str, str]
"""A cell's id and the label of a method in it."""


def training_id(run: Run, prepared: PreparedSet) -> str:
    """Hash what decides a training: the rows, the learner, the seed."""
    has_scaled_rewards = run.cell.built_learner.scale_rewards
    return settings_id(
        {
            "content": prepared.content_hash,
            "returns": prepared.set.returns if has_scaled_rewards else None,
            "seed": run.seed,
            **run.cell.training,
        }
    )


def checkpoint_every(learner: Learner, budget: Budget) -> int:
    """Return the number of updates between two checkpoints, in whole cycles of the learner."""
    # On a GPU the next point of the curve is minutes away, and a checkpoint takes seconds.
    per_eval = budget.checkpoints_per_eval if jax.default_backend() == "cpu" else 1
    return checkpoint_interval(
        learner, budget.steps, eval_interval=budget.steps // budget.points, per_eval=per_eval
    )


def read_curves(metrics: Path) -> dict[str, list[list[float]]]:
    """Read steps and mean scores by lane from the metrics of a training."""
    found: dict[str, list[list[float]]] = {}
    with open(metrics, encoding="utf-8") as lines:
        for line in lines:
            point = json.loads(line)
            if point.get("score") is not None:
                found.setdefault(point["lane"], []).append([point["step"], point["score"]])
    return found


@dataclass(frozen=True)
class RunLane:
    """The lane of a run in a group, as ``lanes.json`` has it."""

    run: str
    cell: str
    """Id of the run's cell."""
    training: str
    method: str
    """Label of the run's method."""
    seed: int
    shared: str | None
    """See `puorl.bench.plan.Cell.shared_key`."""

    @classmethod
    def of(cls, run: Run, prepared: PreparedSet) -> "RunLane":
        """Make the lane of a run."""
        training = training_id(run, prepared)
        return cls(run.id, run.cell.id, training, run.method.label, run.seed, run.shared_key)

    @property
    def key(self) -> Key:
        """Of the lane's prepared set."""
        return self.cell, self.method


@dataclass(frozen=True)
class LaneResult:
    """Result of a lane."""

    returns: np.ndarray | None
    """(episodes,) float64. None where the training was stopped before its end."""
    curve: list[list[float]]
    error: str | None
    seconds: dict[str, float]


@dataclass(frozen=True)
class Group:
    """Lanes with a folder."""

    folder: Path
    lanes: tuple[RunLane, ...]

    @property
    def name(self) -> str:
        """Unique in one store."""
        return self.folder.name

    @property
    def keys(self) -> list[Key]:
        """Cells and methods of its lanes, each once."""
        return list(dict.fromkeys(lane.key for lane in self.lanes))

    def finish(self) -> None:
        """Mark that all rows are in the store; policies and metrics stay."""
        write_json(self.folder / _DONE, {"lanes": len(self.lanes)}, force=True)
        shutil.rmtree(self.folder / "run" / "compiled", ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder of a group that cannot be trained, or no longer as it began."""
        (self.folder / _LANES).unlink()  # first, so that a kill leaves no incomplete group
        shutil.rmtree(self.folder)


def unfinished_groups(root: Path, batch: CellBatch) -> list[Group]:
    """List the unfinished groups whose lanes are all of a batch's cells."""
    known = {cell.id for cell in batch.cells}
    found = []
    for path in sorted(root.glob(f"*/{_LANES}")):
        if not (path.parent / _DONE).exists():
            lanes = _read_lanes(path)
            if lanes and {lane.cell for lane in lanes} <= known:
                found.append(Group(path.parent, lanes))
    return found


def _read_lanes(path: Path) -> tuple[RunLane, ...]:
    """Read the lanes of a group; none if it was just removed, or written by another version."""
    try:
        content = read_json(path)
        # Version 0.1 wrote the list alone, without a hash.
        lanes = content["lanes"] if isinstance(content, dict) else content
        return tuple(RunLane(**lane) for lane in lanes)
    except (TypeError, KeyError):
        return ()
    except DataError:
        if path.exists():
            raise
        return ()


def begin_group(root: Path, batch: CellBatch, lanes: Sequence[RunLane]) -> Group:
    """Make the folder of a new group; requires the locks of the batch's cells."""
    numbers = [int(path.name.rpartition("-")[2]) for path in root.glob(f"{batch.id}-*")]
    folder = root / f"{batch.id}-{max(numbers, default=0) + 1:03d}"
    write_json(folder / _LANES, {"lanes": [asdict(lane) for lane in lanes]})
    return Group(folder, tuple(lanes))


def train_group(
    group: Group, batch: CellBatch, sets: Mapping[Key, PreparedSet], advance: Advance
) -> dict[str, LaneResult]:
    """Train a group from its last checkpoint to the end, and evaluate its policies.

    Args:
        group: From `begin_group` or `unfinished_groups`.
        batch: Its cells.
        sets: Prepared sets of its lanes.
        advance: Callback for progress, in updates of all lanes.

    Returns:
        Results by the run's id.
    """
    spec, names = _run_spec(group, batch, sets)
    bodies = {names[lane.run]: batch.cell(lane.cell).setting.body for lane in group.lanes}
    budget = batch.cells[0].budget
    interval = Fraction(budget.steps, budget.points)
    curve = Evaluator(bodies, budget.curve_episodes, CURVE_SEED, budget.steps, interval)
    last = Evaluator(bodies, budget.episodes, FINAL_SEED, budget.steps)
    pace = _Pace(group, batch.title, advance)
    outcome = rl_run.run(
        group.folder / "run",
        spec,
        evaluate=curve,
        on_checkpoint=pace.on_checkpoint,
        in_background=jax.default_backend() != "cpu",
    )
    start = time.perf_counter()
    returns = dict(zip(outcome.policies, last.evaluate(outcome.policies).returns, strict=True))
    evaluated = time.perf_counter() - start
    curves = read_curves(group.folder / "run" / rl_run.METRICS)
    seconds = pace.seconds() | {"evaluate": round(evaluated, 2)}
    found = {}
    for lane in group.lanes:
        name = names[lane.run]
        stop = outcome.stopped.get(name)
        error = None if stop is None else f"given up at step {stop.step:,}: {stop.reason}"
        found[lane.run] = LaneResult(returns.get(name), curves.get(name, []), error, seconds)
    return found


def _run_spec(
    group: Group, batch: CellBatch, sets: Mapping[Key, PreparedSet]
) -> tuple[RunSpec, dict[str, str]]:
    """Make the specification of a group's training, and map every run to the name of its lane."""
    keys = group.keys
    is_alone = len({cell for cell, _ in keys}) == 1
    # The whole id in names of files: settings that differ in their seeds have one name.
    titles = {cell.id: f"{cell.setting.name.replace('/', '-')}-{cell.id}" for cell in batch.cells}
    called = {key: key[1] if is_alone else f"{titles[key[0]]}-{key[1]}" for key in keys}
    cell = batch.cells[0]
    spec = RunSpec(
        cell.built_learner,
        join_pools({called[key]: sets[key].set for key in keys}),
        {called[key]: [lane.seed for lane in group.lanes if lane.key == key] for key in keys},
        cell.budget.steps,
        checkpoint_every(cell.built_learner, cell.budget),
        most_lanes=len(group.lanes),
    )
    lines = list(spec.sets)
    names = {(lines[lane.line], lane.seed): name for name, lane in spec.lanes.items()}
    return spec, {lane.run: names[called[lane.key], lane.seed] for lane in group.lanes}


class _Pace:
    """Records the time of every interval, so that a resumed group has its whole time."""

    def __init__(self, group: Group, title: str, advance: Advance) -> None:
        self._path, self._lanes = group.folder / _PACE, len(group.lanes)
        self._title, self._advance = title, advance
        folder = group.folder / "run"
        self._step = rl_run.resume_point(folder)[1] if folder.exists() else 0
        self._last = time.perf_counter()
        if self._step:
            advance(self._step * self._lanes, self._title, earlier=True)

    def on_checkpoint(self, point: Progress, lanes: int) -> None:
        now = time.perf_counter()
        line = {"step": point.step, "train": point.seconds, "wall": now - self._last}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._advance((point.step - self._step) * lanes, self._title)
        self._step, self._last = point.step, now

    def seconds(self) -> dict[str, float]:
        intervals = {}  # one that was lost in a kill is replaced by its repetition
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                interval = json.loads(line)
                pair = float(interval["train"]), float(interval["wall"])
                intervals[int(interval["step"])] = pair
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue  # incomplete after a kill
        train, wall = map(sum, zip(*intervals.values(), strict=True)) if intervals else (0.0, 0.0)
        return {
            "train": round(train / self._lanes, 3),
            "group": round(wall, 2),
            "lanes": self._lanes,
        }
