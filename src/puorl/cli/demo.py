"""`puorl demo`: the first walk, on data made here in a few seconds."""

import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from puorl.cli.inspect import show
from puorl.cli.options import Count
from puorl.cli.split import describe
from puorl.core.errors import ConfigError
from puorl.core.extras import require
from puorl.core.prng import generator
from puorl.data.dataset import Dataset
from puorl.data.inspect import inspect
from puorl.data.load import load
from puorl.data.provenance import Provenance
from puorl.data.save import save
from puorl.data.split import make_split

ENVIRONMENT = "Hopper-v4"
EARTH = -9.81
DOMAINS = {"target": EARTH, "other": EARTH / 2}
"""Name of each file to the gravity in which its rows were recorded."""
_FEWEST_ROWS = 200


@dataclass(frozen=True)
class Demo:
    """Make two small datasets, hide one in the other, and look at the result.

    Records gymnasium's Hopper-v4 with random actions, once at normal and once at half
    gravity; draws a pool in which 30 % of the rows are the target's and a few of those are
    labelled; inspects the pool. An older folder of the same name is renamed, not replaced.

    Examples:
      puorl demo
      puorl demo --rows 20k --seed 1 --out walk
    """

    out: Path = Path("demo")
    """Folder to make."""
    seed: int = 0
    """Seed of the actions, the resets and the split."""
    rows: Count = 4_000
    """Rows to record in each domain, and size of the pool."""

    def run(self) -> None:
        """Record, split, save, inspect; the folder appears when all of it is done."""
        if self.rows < _FEWEST_ROWS:
            raise ConfigError(f"rows: expected at least {_FEWEST_ROWS}, got {self.rows}")
        console = Console(highlight=False)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.out.parent, prefix=f".{self.out.name}.") as work:
            made = Path(work) / "made"
            made.mkdir()
            self._record(made, console)
            target, other = (load(made / f"{name}.hdf5") for name in DOMAINS)
            split = make_split(target, other, rows=self.rows, labelled_share=0.05, seed=self.seed)
            split.save(made / "split")
            save(split.pool, made / "pool.npz")
            moved = _step_aside(self.out)
            os.replace(made, self.out)
        if moved is not None:
            console.print(f"{self.out} was there already: renamed to {moved}", soft_wrap=True)
        for name, gravity in DOMAINS.items():
            text = f"{self.rows:,} rows of {ENVIRONMENT}, gravity {gravity:g} m/s^2, random actions"
            console.print(f"{self.out / name}.hdf5: {text}", soft_wrap=True)
        console.print(f"{self.out / 'split'}: {describe(split)}", soft_wrap=True)
        console.print(f"{self.out / 'pool.npz'}: all of these rows, mixed\n", soft_wrap=True)
        show(inspect(split.pool), console)

    def _record(self, folder: Path, console: Console) -> None:
        bar = Progress(
            TextColumn("recording {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        with bar:
            for name, gravity in DOMAINS.items():
                task = bar.add_task(name, total=self.rows)
                dataset = record(
                    gravity,
                    rows=self.rows,
                    seed=self.seed,
                    name=name,
                    on_step=lambda task=task: bar.advance(task),
                )
                save(dataset, folder / f"{name}.hdf5")


def record(gravity: float, *, rows: int, seed: int, name: str, on_step: Any = None) -> Dataset:
    """Rows of Hopper-v4 at ``gravity`` under uniformly random actions.

    Args:
        gravity: Vertical acceleration in m/s^2, negative is down.
        rows: How many.
        seed: Seed; domains with other names get other randomness.
        name: Name of the domain.
        on_step: Called after every step.
    """
    env = _make_environment()
    env.unwrapped.model.opt.gravity[2] = gravity
    rng = generator(seed, "demo", name)
    low, high = env.action_space.low, env.action_space.high
    held: dict[str, list[Any]] = {
        key: [] for key in ("obs", "action", "reward", "next_obs", "terminal", "timeout")
    }
    obs, _ = env.reset(seed=int(rng.integers(2**31)))
    for _ in range(rows):
        action = rng.uniform(low, high).astype(np.float32)
        next_obs, reward, terminal, timeout, _ = env.step(action)
        row = (obs, action, reward, next_obs, terminal, timeout)
        for values, value in zip(held.values(), row, strict=True):
            values.append(value)
        obs = next_obs
        if terminal or timeout:
            obs, _ = env.reset()
        if on_step is not None:
            on_step()
    env.close()
    if not held["terminal"][-1]:
        held["timeout"][-1] = True  # the record ends here although the task went on
    fields: dict[str, Any] = {key: np.asarray(values) for key, values in held.items()}
    return Dataset.from_arrays(
        **fields,
        provenance=Provenance(
            source=(f"{ENVIRONMENT}, gravity {gravity:g}, seed {seed}",),
            format="gymnasium",
            domain=name,
            behaviour="random",
        ),
    )


def _make_environment() -> Any:
    for module in ("mujoco", "imageio"):  # gymnasium imports both for every MuJoCo environment
        require(module, extra="sim", purpose="the demo's simulator")
    gymnasium = require("gymnasium", extra="sim", purpose="the demo's simulator")
    with warnings.catch_warnings():
        # v4 is meant: it is the task behind the D4RL files.
        warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
        return gymnasium.make(ENVIRONMENT)


def _step_aside(folder: Path) -> Path | None:
    """Rename what stands at ``folder`` to the first free name folder.1, folder.2, ..."""
    if not folder.exists():
        return None
    number = 1
    while (free := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    os.replace(folder, free)
    return free
