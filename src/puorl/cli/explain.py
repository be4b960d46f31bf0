"""`puorl explain`: name the columns that tell a machine from ours."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puorl.cli.options import DataOptions, Flag, compute_synchronously, print_json
from puorl.cli.score import check_sizes, read_folder
from puorl.core.errors import ConfigError
from puorl.core.run_folder import SETTINGS, FilterSettings, read_as


@dataclass(frozen=True)
class Explain:
    """Name the columns of the next state that tell a machine or episode from ours.

    Shows for each column how many nats a row our type explains it worse than
    the unit's own numbers do: 0 is as well, 0.1 is much over a hundred rows. The
    log is the one of puorl filter, unless --log names another.

    Examples:
      puorl explain kept P-03
      puorl explain kept P-31 --log new.csv
    """

    folder: tyro.conf.Positional[Path]
    """Folder of puorl filter."""
    unit: tyro.conf.Positional[str]
    """Name of the unit, as in units.csv."""
    log: Annotated[
        tuple[str, ...] | None, tyro.conf.arg(metavar="PATH...", help_behavior_hint="")
    ] = None
    """Files with rows of the unit; by default those of puorl filter."""
    json: Flag = False
    """Print one JSON object on stdout and nothing else."""
    data: DataOptions = DataOptions()

    def run(self) -> None:
        """Read, explain, print."""
        options, model_folder = read_folder(self.folder, self.data)
        paths = self.log or tuple(read_as(FilterSettings, self.folder / SETTINGS).paths)
        data = options.load(paths)
        compute_synchronously()
        from puorl.pu.filter import DomainFilter
        from puorl.pu.machines.model import MachineModel

        model = DomainFilter.load(model_folder).model_
        if not isinstance(model, MachineModel):
            raise ConfigError(
                f"{self.folder}: expected a filter that decides about units by how they move, got "
                "one that decides by rows; filter with --unit column:NAME"
            )
        check_sizes(data, len(model.scalings.state.mean), len(model.scalings.action.mean))
        found = model.explain(data, self.unit)
        if self.json:
            print_json({"unit": self.unit, "columns": [list(pair) for pair in found]})
            return
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("column of the next state", overflow="fold")
        table.add_column("nats a row", justify="right", no_wrap=True)
        for name, nats in found:
            table.add_row(Text(name), f"{nats:+.4f}")
        console = Console(highlight=False)
        console.print(Text(f"what tells {self.unit} from ours"))
        console.print(table)
