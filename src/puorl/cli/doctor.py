"""`puorl doctor`: what is installed, which device is used and why, what each extra would add."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from puorl import __version__
from puorl.cli.doctor_trials import (
    Device,
    Package,
    Part,
    oldest_versions,
    try_jax,
    try_packages,
    try_rendering,
)
from puorl.cli.options import Flag
from puorl.core.resources import describe_size, free_memory, num_threads

BROKEN = 1
"""Exit code where a package that is installed does not work, or one that puorl needs is missing."""


class Extra(NamedTuple):
    """Packages that are installed together, and what for."""

    parts: tuple[Part, ...]
    adds: str


def _parts(*names: str) -> tuple[Part, ...]:
    """``"pillow:PIL"`` where the module has another name than the package."""
    pairs = [name.partition(":") for name in names]
    return tuple(Part(package, module or package) for package, _, module in pairs)


NEEDED = _parts("numpy", "optax", "h5py", "tyro", "rich", "safetensors")
"""Beside jax, which is looked at more closely."""
EXTRAS = {
    "sim": Extra(
        _parts("gymnasium", "imageio", "mujoco"),
        "simulated robots: puorl demo, collect, evaluate, bench run and train --env",
    ),
    "parquet": Extra(_parts("pyarrow"), "reading and writing Parquet files"),
    "minari": Extra(_parts("minari", "pillow:PIL"), "reading and writing Minari datasets"),
    "report": Extra(
        _parts("matplotlib"), "matplotlib, for figures of your own (puorl's own pages need nothing)"
    ),
    "cuda": Extra(_parts("jax-cuda12-plugin:jax_cuda12_plugin"), "training on an NVIDIA GPU"),
    "tensorboard": Extra(_parts("tensorboardX"), "puorl train --logger tensorboard"),
    "wandb": Extra(_parts("wandb"), "puorl train --logger wandb"),
    "mlflow": Extra(_parts("mlflow-skinny:mlflow"), "puorl train --logger mlflow"),
}
"""As pyproject.toml has them; of cuda, the package by which jax finds the GPU."""


@dataclass(frozen=True)
class Cache:
    """Where collected rows are kept."""

    folder: str | None
    num_files: int = 0
    num_bytes: int = 0
    free_bytes: int | None = None


@dataclass(frozen=True)
class Findings:
    """All that the doctor found."""

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
    """Free, or what the container still allows."""
    cache: Cache

    @property
    def broken(self) -> tuple[str, ...]:
        """What does not work although it should, one text each."""
        every = [*self.packages, *(part for parts in self.extras.values() for part in parts)]
        texts = [f"{part.name} {part.problem}" for part in every if part.state == "broken"]
        lacking = [f"{part.name} is not installed" for part in self.packages if _lacks(part)]
        return (*lacking, *texts)

    @property
    def verdict(self) -> str:
        """One line."""
        if self.broken:
            more = len(self.broken) - 1
            return f"broken: {self.broken[0]}" + (f" (and {more} more)" if more else "")
        absent = [name for name, parts in self.extras.items() if any(map(_lacks, parts))]
        if self.device.used == "gpu":
            absent = [name for name in absent if name != "cuda"]  # jax has it from elsewhere
        text = f"all that is installed works; computes on the {(self.device.used or '').upper()}"
        if self.device.gpu_seen and self.device.used == "cpu":
            text += ", and not on the GPU"
        return f"{text}; extras not installed: {', '.join(absent)}" if absent else text


def _lacks(part: Package) -> bool:
    return part.state == "missing"


@dataclass(frozen=True)
class Doctor:
    """Say what is installed and works, which device is used and why, and what each extra would add.

    What is missing is no failure: an extra that is not installed is shown with its install line.
    The exit code is 1 where a package is installed and does not work, or one that puorl needs is
    not there; else 0.

    Examples:
      puorl doctor
      puorl doctor --json > installation.json
    """

    json: Flag = False
    """Print one JSON object on stdout and nothing else."""

    def run(self) -> None:
        """Look, tell; leave with 1 where something is broken."""
        found = examine()
        if self.json:
            sys.stdout.write(json.dumps(to_dict(found), indent=2, allow_nan=False) + "\n")
        else:
            _show(found, Console(highlight=False))
        if found.broken:
            sys.stdout.flush()
            raise SystemExit(BROKEN)


# ------------------------------------------------------------------------------- looking


def examine() -> Findings:
    """Try everything, three things at a time."""
    oldest = oldest_versions()
    optional = [part for extra in EXTRAS.values() for part in extra.parts]
    with ThreadPoolExecutor(max_workers=3) as pool:
        trying_jax = pool.submit(try_jax, oldest, install=_install("cuda"))
        trying_needed = pool.submit(try_packages, NEEDED, oldest)
        tried = dict(zip(optional, try_packages(optional, oldest), strict=True))
        rendering, problem = try_rendering()
        jax, device = trying_jax.result()
        # What others rest on comes first, as the first that is broken is the verdict.
        numpy, *others = trying_needed.result()
    return Findings(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        packages=(numpy, jax, *others),
        extras={name: tuple(tried[p] for p in extra.parts) for name, extra in EXTRAS.items()},
        device=device,
        rendering=rendering,
        rendering_problem=problem,
        num_cores=num_threads(None),
        memory_bytes=free_memory(),
        cache=_cache(),
    )


def _cache() -> Cache:
    try:
        from puorl.envs.collect import default_folder
    except Exception:  # what it imports may be the very thing that is broken
        return Cache(None)
    folder = default_folder()
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(place, name)).st_size)
            except OSError:  # just removed by another process
                continue
    there = next((path for path in (folder, *folder.absolute().parents) if path.is_dir()), None)
    free = None if there is None else shutil.disk_usage(there).free
    return Cache(str(folder), len(sizes), sum(sizes), free)


# ------------------------------------------------------------------------------- telling


def to_dict(found: Findings) -> dict[str, object]:
    """All findings as JSON can hold them."""
    extras = {
        name: {
            "adds": EXTRAS[name].adds,
            "install": _install(name),
            "packages": [asdict(part) for part in parts],
        }
        for name, parts in found.extras.items()
    }
    return {
        "puorl": __version__,
        **asdict(found),
        "extras": extras,
        "broken": found.broken,
        "verdict": found.verdict,
    }


def _install(extra: str) -> str:
    return f"pip install 'puorl[{extra}]'"


def _show(found: Findings, console: Console) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _facts(found):
        table.add_row(name, text)
    table.add_row("", "")
    for name, parts in found.extras.items():
        table.add_row(Text(f"puorl[{name}]"), _extra_told(name, parts, found.device))
    console.print(table)
    console.print()
    console.print(Text(found.verdict, style="bold red" if found.broken else "green"))


def _facts(found: Findings) -> Iterator[tuple[str, Text]]:
    yield "puorl", Text(f"{__version__}, Python {found.python}, {found.system}")
    yield "needs", _told(found.packages)
    device = found.device
    devices = f" ({', '.join(device.devices)})" if device.devices else ""
    yield "device", Text(f"{device.used or 'none'}{devices}: {device.why}")
    if found.rendering is None:
        yield "rendering", Text(f"not available: {found.rendering_problem}", style="yellow")
    else:
        yield "rendering", Text(f"works (MUJOCO_GL={found.rendering})")
    free = found.memory_bytes
    memory = "" if free is None else f", {describe_size(free)} of memory free"
    cores = "1 core" if found.num_cores == 1 else f"{found.num_cores} cores"
    yield "machine", Text(f"{cores}{memory}")
    cache = found.cache
    if cache.folder is None:
        yield "cache", Text("cannot be looked at until the above is repaired", style="yellow")
    else:
        free = "" if cache.free_bytes is None else f"; {describe_size(cache.free_bytes)} free there"
        held = f"{cache.num_files:,} files, {describe_size(cache.num_bytes)}"
        yield "cache", Text(f"{cache.folder} ($PUORL_CACHE): {held}{free}")


def _extra_told(name: str, parts: Sequence[Package], device: Device) -> Text:
    adds = EXTRAS[name].adds
    if name == "cuda" and device.used == "gpu" and any(map(_lacks, parts)):
        return Text("not needed: jax has CUDA from elsewhere")
    if not any(map(_lacks, parts)):
        return _told(parts).append(f" - {adds}")
    there = [part for part in parts if not _lacks(part)]
    text = Text(f"{_install(name)} adds: {adds}", style="dim")
    return Text.assemble(_told(there), "; the rest: ", text) if there else text


def _told(parts: Sequence[Package]) -> Text:
    """Names with versions; what does not work says why."""
    told = []
    for part in parts:
        if part.state == "works":
            told.append(Text(f"{part.name} {part.version or ''}".strip()))
        else:
            why = "is not installed" if _lacks(part) else part.problem
            told.append(Text(f"{part.name} {part.version or ''} {why}", style="red"))
    return Text(", ").join(told)
