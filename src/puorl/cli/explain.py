"""`puorl explain`: name the columns that tell a machine from ours."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from puorl.cli import options as opt
from puorl.cli.score import read_folder, read_machines
from puorl.core.run_folder import SETTINGS, FilterSettings, read_as


@dataclass(frozen=True)
class Explain(opt.Command):
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
    log: Annotated[tuple[str, ...] | None, opt.unset("PATH...")] = None
    """Files with rows of the unit; by default those of puorl filter."""
    data: opt.DataOptions = opt.DataOptions()

    def run(self) -> None:
        """Read, explain, print."""
        options, folder = read_folder(self.folder, self.data)
        paths = self.log or tuple(read_as(FilterSettings, self.folder / SETTINGS).paths)
        data, model = read_machines(options, paths, folder, str(self.folder))
        found = model.explain(data, self.unit)
        content = {"unit": self.unit, "columns": [list(pair) for pair in found]}
        head = ("column of the next state", "nats a row")
        rows = ((name, f"{nats:+.4f}") for name, nats in found)
        is_ours = self.log is None and self.unit in model.units.name[model.units.keep]
        says = f"what tells {self.unit} from ours"
        if is_ours:
            says = (
                f"nothing tells {self.unit} from ours: it is known, or was decided, to be one. "
                "Its own differences, as units of one type have them:"
            )
        self.answer(content, says, opt.columns_table(head, rows))
