"""`puorl doctor`: check what is installed, and which device is used."""

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puorl import __version__
from puorl.core.probe import (
    Device,
    Package,
    find_device,
    find_renderer,
    install_line,
    requirements,
    try_packages,
)
from puorl.core.resources import describe_size, free_disk, free_memory, num_threads

BROKEN = 1
"""Exit code where an installed package does not work, or one that puorl needs is missing."""
_PURPOSES = {
    "cuda": "training on an NVIDIA GPU",
    "ray": "--engine ray: work on several machines",
    "sim": "simulated robots: puorl demo, collect, evaluate, bench run and train --env",
    **{name: f"puorl train --logger {name}" for name in ("tensorboard", "wandb", "mlflow")},
}


@dataclass(frozen=True)
class CacheState:
    """The folder of collected rows."""

    folder: str | None
    num_files: int = 0
    num_bytes: int = 0
    free_bytes: int | None = None


@dataclass(frozen=True)
class Findings:
    """Everything that was found."""

    python: str
    system: str
    packages: tuple[Package, ...]
    """Those that puorl needs."""
    extras: Mapping[str, tuple[Package, ...]]
    device: Device
    rendering: str | None
    """Value of MUJOCO_GL with which MuJoCo can draw, or None."""
    rendering_problem: str | None
    num_cores: int
    memory_bytes: int | None
    """Free memory, within the limit of a container."""
    cache: CacheState

    @property
    def broken(self) -> tuple[str, ...]:
        """One text for each package that does not work or is missing and needed."""
        every = [*self.packages, *(one for parts in self.extras.values() for one in parts)]
        absent = [f"{one.name} is not installed" for one in self.packages if one.state == "missing"]
        return *absent, *(f"{one.name} {one.problem}" for one in every if one.state == "broken")

    @property
    def verdict(self) -> str:
        """The findings in one line."""
        if self.broken:
            more = len(self.broken) - 1
            return f"broken: {self.broken[0]}" + (f" (and {more} more)" if more else "")
        absent = [n for n, parts in self.extras.items() if "missing" in {p.state for p in parts}]
        if self.device.used == "gpu":
            absent = [name for name in absent if name != "cuda"]  # jax has it from elsewhere
        text = f"all that is installed works; computes on the {(self.device.used or '').upper()}"
        if self.device.gpu_seen and self.device.used == "cpu":
            text += ", and not on the GPU"
        return f"{text}; extras not installed: {', '.join(absent)}" if absent else text


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
        found = examine()
        if self.json:
            sys.stdout.write(json.dumps(to_dict(found), indent=2, allow_nan=False) + "\n")
        else:
            _show(found, Console(highlight=False))
        if found.broken:
            sys.stdout.flush()
            raise SystemExit(BROKEN)


# ----------------------------------------------------------------------------- examining


def purpose(extra: str) -> str:
    """Describe what an extra adds."""
    try:
        from puorl.data.formats import FORMATS
    except Exception:  # what it imports may be the very thing that is broken
        FORMATS = {}
    formats = [each.description for each in FORMATS.values() if each.extra == extra]
    return _PURPOSES.get(extra) or ", ".join(formats) or "something that is not described here"


def examine() -> Findings:
    """Try everything, three things at a time."""
    needed = requirements()
    extras = {name: tuple(found) for name, found in needed.items() if name}
    oldest = {package: version for found in needed.values() for package, version in found.items()}
    with ThreadPoolExecutor(max_workers=3) as pool:
        finding_device = pool.submit(find_device)
        trying = pool.submit(try_packages, oldest)
        rendering, problem = find_renderer()
        jax_problem, device = finding_device.result()
        tried = trying.result()
    if jax_problem is not None and "jax" in tried and tried["jax"].state == "works":
        tried["jax"] = Package("jax", "broken", tried["jax"].version, jax_problem)
    return Findings(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        packages=tuple(tried[name] for name in needed[""]),
        extras={name: tuple(tried[one] for one in found) for name, found in extras.items()},
        device=device,
        rendering=rendering,
        rendering_problem=problem,
        num_cores=num_threads(None),
        memory_bytes=free_memory(),
        cache=_cache(),
    )


def _cache() -> CacheState:
    try:
        from puorl.envs.collect import default_folder
    except Exception:  # what it imports may be the very thing that is broken
        return CacheState(None)
    folder = default_folder()
    files = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    sizes = [os.path.getsize(file) for file in files if file.exists()]
    return CacheState(str(folder), len(sizes), sum(sizes), free_disk(folder))


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
    if cache.folder is None:
        yield "cache", Text("cannot be looked at until the above is repaired", style="yellow")
        return
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
