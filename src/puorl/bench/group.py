"""How good the policies of a group are, on the way and at the end."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np

from puorl.bench.plan import Cell, Crew
from puorl.bench.prepare import Prepared, on_one_pool
from puorl.core.errors import DataError
from puorl.core.files import read_json, write_json
from puorl.core.progress import Advance
from puorl.envs.evaluate import Evaluator
from puorl.rl import run as rl_run
from puorl.rl.run import RunSpec, checkpoint_interval
from puorl.rl.trainer import Progress

FINAL_SEED, CURVE_SEED = 0, 1
"""Start states of the final episodes and of the curve's; all policies meet the same."""


def curves(metrics: Path) -> dict[str, list[list[float]]]:
    """Steps and mean scores by lane, as a run wrote them down."""
    found: dict[str, list[list[float]]] = {}
    with open(metrics, encoding="utf-8") as lines:
        for line in lines:
            point = json.loads(line)
            if point.get("score") is not None:
                found.setdefault(point["lane"], []).append([point["step"], point["score"]])
    return found


_LANES, _DONE, _PACE = "lanes.json", "done.json", "pace.jsonl"

Key = tuple[str, str]
"""A cell's id and the label of a method in it."""


@dataclass(frozen=True)
class LaneOf:
    """A lane and the run it is for."""

    run: str
    cell: str
    """Id of the run's cell."""
    training: str
    method: str
    """The label of its method's choice."""
    seed: int
    shared: str | None
    """See `puorl.bench.plan.Cell.shared_key`."""


@dataclass(frozen=True)
class Result:
    """What became of a lane."""

    returns: np.ndarray | None
    """(episodes,) float64. None where it was given up."""
    curve: list[list[float]]
    error: str | None
    seconds: dict[str, float]


@dataclass(frozen=True)
class Group:
    """Lanes with a folder."""

    folder: Path
    lanes: tuple[LaneOf, ...]

    @property
    def name(self) -> str:
        """Unique in one store."""
        return self.folder.name

    def finish(self) -> None:
        """Say that all rows are in the store; policies and metrics stay."""
        write_json(self.folder / _DONE, {"lanes": len(self.lanes)}, force=True)
        shutil.rmtree(self.folder / "run" / "compiled", ignore_errors=True)

    def abandon(self) -> None:
        """Remove it: it cannot be trained, or no longer as it began."""
        (self.folder / _LANES).unlink()  # first, so that a kill leaves no half group
        shutil.rmtree(self.folder)


def unfinished(root: Path, crew: Crew) -> list[Group]:
    """Groups that were begun and have not ended, all of whose lanes are of a crew's cells."""
    known = {cell.id for cell in crew.cells}
    found = []
    for path in sorted(root.glob(f"*/{_LANES}")):
        if not (path.parent / _DONE).exists():
            lanes = _lanes(path)
            if lanes and {lane.cell for lane in lanes} <= known:
                found.append(Group(path.parent, lanes))
    return found


def _lanes(path: Path) -> tuple[LaneOf, ...]:
    """Who trains there; nobody where its owner just gave it up, or another version wrote it."""
    try:
        return tuple(LaneOf(**lane) for lane in read_json(path))
    except TypeError:
        return ()
    except DataError:
        if path.exists():
            raise
        return ()


def begin(root: Path, crew: Crew, lanes: Sequence[LaneOf]) -> Group:
    """A new group; only the holder of the claims of the crew's cells may begin one."""
    numbers = [int(path.name.rpartition("-")[2]) for path in root.glob(f"{crew.id}-*")]
    folder = root / f"{crew.id}-{max(numbers, default=0) + 1:03d}"
    write_json(folder / _LANES, [asdict(lane) for lane in lanes])
    return Group(folder, tuple(lanes))


def train(
    group: Group, crew: Crew, sets: Mapping[Key, Prepared], advance: Advance
) -> dict[str, Result]:
    """Train a group from where it stands to its end, and look at its policies; by run.

    Args:
        group: From `begin` or `unfinished`.
        crew: Whose lanes they are.
        sets: What was prepared, for every cell's id and method's label among the lanes.
        advance: Is told of every stretch.
    """
    job, names = _job(group, crew, sets)
    bodies = {names[lane.run]: crew.cell(lane.cell).setting.body for lane in group.lanes}
    budget = crew.cells[0].budget
    interval = Fraction(budget.steps, budget.points)
    curve = Evaluator(bodies, budget.curve_episodes, CURVE_SEED, budget.steps, interval)
    last = Evaluator(bodies, budget.episodes, FINAL_SEED, budget.steps)
    pace = _Pace(group.folder / _PACE, crew.title, len(group.lanes), advance, group.folder / "run")
    outcome = rl_run.run(
        group.folder / "run",
        job,
        evaluate=curve,
        on_checkpoint=pace.on_point,
        in_background=jax.default_backend() != "cpu",
    )
    began = time.perf_counter()
    returns = dict(zip(outcome.policies, last.evaluate(outcome.policies).returns, strict=True))
    evaluated = time.perf_counter() - began
    drawn = curves(group.folder / "run" / rl_run.METRICS)
    found = {}
    seconds = pace.seconds() | {"evaluate": round(evaluated, 2)}
    for lane in group.lanes:
        name = names[lane.run]
        stop = outcome.stopped.get(name)
        error = None if stop is None else f"given up at step {stop.step:,}: {stop.reason}"
        found[lane.run] = Result(returns.get(name), drawn.get(name, []), error, seconds)
    return found


def _job(group: Group, crew: Crew, sets: Mapping[Key, Prepared]) -> tuple[RunSpec, dict[str, str]]:
    """What to train, and the name of every run's lane in it."""
    keys = list(dict.fromkeys((lane.cell, lane.method) for lane in group.lanes))
    alone = len({cell for cell, _ in keys}) == 1
    called = {key: key[1] if alone else f"{_slug(crew.cell(key[0]))}-{key[1]}" for key in keys}
    cell, budget = crew.cells[0], crew.cells[0].budget
    # On a GPU the next point of the curve is minutes away, and to rest takes seconds.
    rests = budget.rests if jax.default_backend() == "cpu" else 1
    job = RunSpec(
        cell.made,
        on_one_pool({called[key]: sets[key].set for key in keys}),
        {
            called[key]: [lane.seed for lane in group.lanes if (lane.cell, lane.method) == key]
            for key in keys
        },
        budget.steps,
        checkpoint_interval(
            cell.made, budget.steps, eval_interval=budget.steps // budget.points, per_eval=rests
        ),
        most_lanes=len(group.lanes),
    )
    lines = list(job.sets)
    names = {(lines[lane.line], lane.seed): name for name, lane in job.lanes.items()}
    return job, {lane.run: names[called[lane.cell, lane.method], lane.seed] for lane in group.lanes}


def _slug(cell: Cell) -> str:
    """In names of files; the id, all of it, tells settings of one name apart."""
    return f"{cell.setting.name.replace('/', '-')}-{cell.id}"


class _Pace:
    """Writes down how long every stretch took, so that a resumed group knows its whole time."""

    def __init__(self, path: Path, title: str, lanes: int, advance: Advance, folder: Path) -> None:
        self._path, self._title, self._lanes, self._advance = path, title, lanes, advance
        self._step = rl_run.resume_point(folder)[1] if folder.exists() else 0
        self._last = time.perf_counter()
        if self._step:
            advance(self._step * lanes, self._title, earlier=True)

    def on_point(self, point: Progress, lanes: int) -> None:
        now = time.perf_counter()
        line = {"step": point.step, "train": point.seconds, "wall": now - self._last}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._advance((point.step - self._step) * lanes, self._title)
        self._step, self._last = point.step, now

    def seconds(self) -> dict[str, float]:
        stretches = {}  # one that was lost in a kill is overwritten by its repetition
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                stretch = json.loads(line)
                stretches[stretch["step"]] = stretch
            except (ValueError, KeyError, TypeError):
                continue  # torn by a kill
        trained = sum(each["train"] for each in stretches.values())
        wall = sum(each["wall"] for each in stretches.values())
        return {
            "train": round(trained / self._lanes, 3),
            "group": round(wall, 2),
            "lanes": self._lanes,
        }
