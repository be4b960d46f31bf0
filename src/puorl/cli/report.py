"""`puorl report`: make one page of data, filter, training and results."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from puorl.cli import options as opt
from puorl.core.files import check_free
from puorl.envs.domains import parse_domain


@dataclass(frozen=True)
class Report(opt.Command):
    """Make one page of data, filter, training, results and how to reproduce them.

    Takes what the other commands wrote, in any number and order:
      - folders of puorl filter, puorl train and puorl bench run
      - what puorl evaluate --out wrote, or --json printed: a file, or all such
        files in a folder; those in a folder of puorl train are found by
        themselves

    The page is one HTML file that needs no network. It says what was not
    recorded.

    Examples:
      puorl report kept run
      puorl report kept run --env hopper --out story.html
      puorl report run-iql run-bc hopper.json --force
      puorl report results --out benchmark.html --json
    """

    paths: opt.RunPaths
    """Folders of puorl filter, train and bench run; JSON of puorl evaluate."""
    out: Path = Path("report.html")
    """File to write."""
    env: opt.Env = None
    """Simulated domain for a filmstrip of the best policy, such as hopper or hopper/body_mass."""
    force: opt.Flag = False
    """Replace the file if it exists."""

    def run(self) -> None:
        """Read, draw, write."""
        from puorl.run_report.filmstrip import make_filmstrip
        from puorl.run_report.folders import read_paths
        from puorl.run_report.page import as_page

        spec = None if self.env is None else parse_domain(self.env)
        material = read_paths(self.paths)
        check_free(self.out, force=self.force)  # before the work
        strip = make_filmstrip(material, spec)
        html = as_page(material, strip, command=self._command())
        opt.write_page(self.out, html, force=self.force)
        kinds = material.kinds()
        lines = [f"{path}: of puorl {kind}" for path, kind in kinds.items()]
        problems = (each.problem for each in material.filterings if each.problem)
        lines += [f"note: the kept rows are not shown: {problem}" for problem in problems]
        drawn, reason = (None, strip or None) if isinstance(strip, str) else (strip.to_dict(), None)
        if drawn is None and spec is not None:
            lines.append(f"no filmstrip: {reason}")
        content = {
            "page": str(self.out),
            "paths": kinds,
            "filmstrip": drawn,
            "no_filmstrip": reason,
        }
        self.answer(content, *lines, f"wrote {self.out}; open it in a browser")

    def _command(self) -> str:
        words = ["puorl", "report", *self.paths, "--out", str(self.out)]
        return shlex.join([*words, *([] if self.env is None else ["--env", self.env])])
