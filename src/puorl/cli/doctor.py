"""`puorl doctor`: check what is installed, and which device is used."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puorl import __version__
from puorl.core.installation import Device, Findings, Package, examine, install_line
from puorl.core.resources import cache_folder, describe_size

BROKEN = 1
"""Exit code where an installed package does not work, or one that puorl needs is missing."""
_PURPOSES = {
    "cuda": "training on an NVIDIA GPU",
    "ray": "--engine ray: work on several machines",
    "sim": "simulated robots: puorl demo, collect, evaluate, bench run and train --env",
    **{name: f"puorl train --logger {name}" for name in ("tensorboard", "wandb", "mlflow")},
}


@dataclass(frozen=True)
class Doctor:
    """Check what is installed and works, which device is used, and what extras add.

    An extra that is not installed is no failure: it is shown with its install
    line. The exit code is 1 where an installed package does not work, or one that
    puorl needs is missing; else 0.

    Examples:
      puorl doctor
      puorl doctor --json > installation.json
    """

    json: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Print one JSON object on stdout and nothing else."""

    def run(self) -> None:
        """Examine, print, and exit with 1 where something is broken."""
        found = examine(cache_folder())
        if self.json:
            sys.stdout.write(json.dumps(to_dict(found), indent=2, allow_nan=False) + "\n")
        else:
            _show(found, Console(highlight=False))
        if found.broken:
            sys.stdout.flush()
            raise SystemExit(BROKEN)


def purpose(extra: str) -> str:
    """Describe what an extra adds."""
    try:
        from puorl.data.formats import FORMATS
    except Exception:  # what it imports may be the very thing that is broken
        FORMATS = {}
    formats = [each.description for each in FORMATS.values() if each.extra == extra]
    return _PURPOSES.get(extra) or ", ".join(formats) or "something that is not described here"


# ------------------------------------------------------------------------------ printing


def to_dict(found: Findings) -> dict[str, object]:
    """Return all findings, JSON-ready."""
    content = asdict(found)
    for name, packages in content["extras"].items():
        own = {"adds": purpose(name), "install": install_line(name), "packages": packages}
        content["extras"][name] = own
    return {"puorl": __version__, **content, "broken": found.broken, "verdict": found.verdict}


def _show(found: Findings, console: Console) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _facts(found):
        table.add_row(name, text)
    table.add_row("", "")
    for name, packages in found.extras.items():
        table.add_row(Text(f"puorl[{name}]"), _describe_extra(name, packages, found.device))
    console.print(table)
    console.print()
    console.print(Text(found.verdict, style="bold red" if found.broken else "green"))


def _facts(found: Findings) -> Iterator[tuple[str, Text]]:
    yield "puorl", Text(f"{__version__}, Python {found.python}, {found.system}")
    yield "needs", _describe(found.packages)
    device = found.device
    devices = f" ({', '.join(device.devices)})" if device.devices else ""
    yield "device", Text(f"{device.used or 'none'}{devices}: {device.why}")
    works = Text(f"works (MUJOCO_GL={found.rendering})")
    fails = Text(f"not available: {found.rendering_problem}", style="yellow")
    yield "rendering", fails if found.rendering is None else works
    cores = "1 core" if found.num_cores == 1 else f"{found.num_cores} cores"
    free = found.memory_bytes
    memory = "" if free is None else f", {describe_size(free)} of memory free"
    yield "machine", Text(f"{cores}{memory}")
    cache = found.cache
    left = "" if cache.free_bytes is None else f"; {describe_size(cache.free_bytes)} free there"
    held = f"{cache.num_files:,} files, {describe_size(cache.num_bytes)}"
    yield "cache", Text(f"{cache.folder} ($PUORL_CACHE): {held}{left}")


def _describe_extra(name: str, packages: Sequence[Package], device: Device) -> Text:
    there = [package for package in packages if package.state != "missing"]
    if len(there) == len(packages):
        return _describe(packages).append(f" - {purpose(name)}")
    if name == "cuda" and device.used == "gpu":
        return Text("not needed: jax has CUDA from elsewhere")
    text = Text(f"{install_line(name)} adds: {purpose(name)}", style="dim")
    return Text.assemble(_describe(there), "; the rest: ", text) if there else text


def _describe(packages: Sequence[Package]) -> Text:
    """List names with versions, and why a package does not work."""
    texts = []
    for package in packages:
        text = f"{package.name} {package.version or ''}".strip()
        if package.state == "works":
            texts.append(Text(text))
        else:
            why = "is not installed" if package.state == "missing" else package.problem
            texts.append(Text(f"{text} {why}", style="red"))
    return Text(", ").join(texts)
