"""`puorl report`: one page that tells the whole story of the folders it is given."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.text import Text

from puorl.cli.options import Flag
from puorl.core.files import atomic_path, check_free
from puorl.envs.domains import DomainSpec, parse_domain

if TYPE_CHECKING:
    from puorl.report.filmstrip import Film
    from puorl.report.run_folders import Material

_NO_ENV = "it needs --env, a simulated domain to run the policy in"
_NO_POLICY = "no folder named here holds a policy that came to its end"


@dataclass(frozen=True)
class Report:
    """Tell the whole story on one page: data, filter, training, results, how to do it again.

    Takes what the other commands left, in any number and order:
      - folders of puorl filter, puorl train and puorl bench run
      - what puorl evaluate --out wrote, or --json printed: a file, or all such files in a folder;
        those in a folder of puorl train are found by themselves

    The page is one HTML file that needs no network. What was not recorded is said to be missing.

    Examples:
      puorl report kept run
      puorl report kept run --env hopper --out story.html
      puorl report run-iql run-bc hopper.json --force
      puorl report results --out benchmark.html --json
    """

    paths: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR|FILE...", help_behavior_hint="")]
    ]
    """Folders of puorl filter, train and bench run; JSON of puorl evaluate."""
    out: Path = Path("report.html")
    """File to write."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ENV", help_behavior_hint="")] = None
    """Simulated domain to film the best policy in, such as hopper or hopper/body_mass."""
    force: Flag = False
    """Replace the file if it exists."""
    json: Flag = False
    """Print one JSON object on stdout that says what was made of what, and nothing else."""

    def run(self) -> None:
        """Read, draw, write."""
        from puorl.report.run_folders import read_paths
        from puorl.report.run_page import as_page

        spec = None if self.env is None else parse_domain(self.env)
        check_free(self.out, force=self.force)  # before the work
        material = read_paths(self.paths)
        film = self._film(material, spec)
        html = as_page(material, film, command=self._command())
        with atomic_path(self.out, force=self.force) as part:
            part.write_text(html, encoding="utf-8")
        if self.json:
            sys.stdout.write(json.dumps(self._content(material, film), indent=2) + "\n")
            return
        console = Console(highlight=False, soft_wrap=True)
        for path, kind in material.kinds().items():
            console.print(Text(f"{path}: of puorl {kind}"))
        if isinstance(film, str) and spec is not None:
            console.print(Text(f"no film: {film}"))
        console.print(Text(f"wrote {self.out}; open it in a browser"))

    def _film(self, material: "Material", spec: DomainSpec | None) -> "Film | str":
        """The film, or why there is none; empty where nothing was trained and none asked for."""
        from puorl.report.filmstrip import choose, shoot

        if spec is None:
            return _NO_ENV if material.trainings else ""
        choice = choose(material, spec)
        return _NO_POLICY if choice is None else shoot(choice, spec)

    def _command(self) -> str:
        words = ["puorl", "report", *self.paths, "--out", str(self.out)]
        return shlex.join([*words, *([] if self.env is None else ["--env", self.env])])

    def _content(self, material: "Material", film: "Film | str") -> dict[str, object]:
        shown = None
        if not isinstance(film, str):
            shown = {
                "policy": str(film.choice.file),
                "env": film.env,
                "steps": list(film.steps),
                "return": film.total,
            }
        return {
            "page": str(self.out),
            "paths": material.kinds(),
            "film": shown,
            "no_film": film or None if isinstance(film, str) else None,
        }
