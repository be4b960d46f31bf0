"""Draw the map of the machines for docs/machines.md, from the report of the README's command.

    python docs/images/draw_machines.py ours/report.json

`ours` is the folder that `puorl filter` wrote for the README's log. The map is the report's own;
here it only gets colours, as it leaves its page.
"""

import sys
from pathlib import Path

from sheet import write

from puorl.core.run_folder import read_as
from puorl.pu.machines.report import MachineReport
from puorl.pu.report_page import machine_picture

HEIGHT = 400.0


def main(path: Path) -> None:
    """Read the report and write the picture beside this file."""
    report = read_as(MachineReport, path)
    write("machines-map.svg", "Map of the machines", machine_picture(report), height=HEIGHT)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
