"""`puorl demo`: the whole method at small scale, from raw rows to policies, in a few minutes."""

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from puorl.cli.options import Flag
from puorl.core.errors import ConfigError, DataError, require
from puorl.core.files import check_reachable, write_json

if TYPE_CHECKING:  # importing it loads jax
    from puorl.demo.study import Data, Filtered, Plan, Trained

RESULTS, PAGE, POLICIES = "results.json", "report.html", "policies"
_LARGEST_SEED = 2_000_000  # a thousand training seeds for each must fit 31 bits


@dataclass(frozen=True)
class Demo:
    """Show the whole method at small scale: data, filter, training, result.

    Records two machines in the simulator, hides which row is whose, lets the filter find ours from
    a few labelled rows, says how good that is without labels and with the truth beside it, trains
    policies on four choices of rows (OLP, Sharing-All, PU, Oracle) and runs them. Needs no GPU and
    no download; a few minutes on two cores. A folder of an earlier demo is renamed, not replaced.

    Examples:
      puorl demo
      puorl demo --seed 1 --out second
      puorl demo --json > results.json
    """

    out: Path = Path("demo")
    """Folder to make: report.html, results.json and the policies."""
    seed: int = 0
    """Seed of rows, labels, filter and training; the same seed gives the same results."""
    json: Flag = False
    """Print the results as one JSON object on stdout, and all else on stderr."""

    def run(self) -> None:
        """Tell the story; the folder appears when all of it is done."""
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise ConfigError(f"--seed: expected 0 to {_LARGEST_SEED:,}, got {self.seed}")
        require("mujoco", extra="sim", purpose="puorl demo")
        out = self.out.resolve() if self.out.name in ("", "..") else self.out
        _check_old(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        # Made first: that nothing can be written here must not be found out after minutes.
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as work:
            made = Path(work) / "made"
            made.mkdir()
            console = Console(stderr=self.json, highlight=False, markup=False)
            results = self._tell(made, console)
            moved = _step_aside(out)
            os.replace(made, out)
        if moved is not None:
            console.print(f"{out} was there already: renamed to {moved}", soft_wrap=True)
        console.print(
            f"open {out / PAGE} in a browser; numbers are in {out / RESULTS}", soft_wrap=True
        )
        if self.json:
            sys.stdout.write(json.dumps(results, indent=2, allow_nan=False) + "\n")

    def _tell(self, folder: Path, console: Console) -> dict[str, Any]:
        """Chapter by chapter; all results, as they stand in the folder."""
        from puorl.cli import demo_text
        from puorl.demo import study

        began = time.perf_counter()
        plan = self._plan()
        demo_text.begin(plan, console)
        data = study.make_data(plan, show=True)
        demo_text.data(data, console)
        filtered = study.fit_filter(plan, data, show=True)
        demo_text.filtered(plan, data, filtered, console)
        trained = study.train(plan, data, filtered, show=True)
        demo_text.trained(plan, trained, console)
        results = self._write(folder, plan, data, filtered, trained)
        console.print(f"done in {demo_text.clock(time.perf_counter() - began)}")
        return results

    def _plan(self) -> "Plan":
        from puorl.demo.study import PLAN

        return PLAN.seeded(self.seed)

    def _write(
        self, folder: Path, plan: "Plan", data: "Data", filtered: "Filtered", trained: "Trained"
    ) -> dict[str, Any]:
        from puorl.demo.page import as_page
        from puorl.demo.study import to_dict

        results = to_dict(plan, data, filtered, trained)
        write_json(folder / RESULTS, results)
        told = as_page(plan, data, filtered, trained, command=f"puorl demo --seed {self.seed}")
        (folder / PAGE).write_text(told, encoding="utf-8")
        for name, made in trained.policies.items():
            for policy in made:
                number = policy.metadata["seed"]
                policy.save(folder / POLICIES / f"{name}-seed-{number}.safetensors")
        return results


def _check_old(folder: Path) -> None:
    """A slip in --out must not rename a folder of other things."""
    check_reachable(folder)
    if not folder.exists():
        return
    ours = folder.is_dir() and ((folder / RESULTS).is_file() or not any(folder.iterdir()))
    if not ours:
        raise DataError(
            f"{folder}: expected nothing, or the folder of an earlier demo (with {RESULTS}); "
            "choose another --out"
        )


def _step_aside(folder: Path) -> Path | None:
    """Rename what stands at ``folder`` to the first free name folder-1, folder-2, ..."""
    if not folder.exists():
        return None
    number = 1
    while (free := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    os.replace(folder, free)
    return free
