"""Find out what is installed and works, in other processes: a crash there ends nothing here."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from puorl.core.resources import free_disk, free_memory, num_threads

_SECONDS = 60.0
"""Time after which a program counts as hanging."""
_ANSWER = re.compile(r"^PUORL (.*)$", re.MULTILINE)
_DRAW = """
import mujoco
scene = "<mujoco><worldbody><light pos='0 0 3'/><geom size='.3'/></worldbody></mujoco>"
model = mujoco.MjModel.from_xml_string(scene)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(data)
    if not renderer.render().any():
        raise SystemExit("the picture is black")
"""
_CUDA_PLUGIN = "jax-cuda12-plugin"
"""The extra cuda is jax with an extra of its own; this package is what it adds."""
_CUDA_MODULES = ("jax_cuda12_plugin", "jax_cuda13_plugin")
_REQUIREMENT = re.compile(
    r"([\w.-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([\d.]+))?[^;]*(?:;.*extra == ['\"]([\w-]+)['\"])?"
)
_IMPORT = """
import importlib, json, sys
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
        problem = None
    except BaseException as error:
        text = " ".join(str(error).split()) or "no reason given"
        problem = f"cannot be imported: {type(error).__name__}: {text}"
    print("\\nPUORL " + json.dumps([module, problem]), flush=True)
"""
_JAX = """
import json, jax
devices = [f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()]
print("\\nPUORL " + json.dumps({"used": jax.default_backend(), "devices": devices}))
"""


@dataclass(frozen=True)
class Package:
    """The state of one package."""

    name: str
    state: Literal["works", "missing", "broken"]
    version: str | None = None
    problem: str | None = None
    """Reason why it does not work, as the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class Device:
    """The device that jax computes on."""

    used: str | None
    """``cpu``, ``gpu`` or ``tpu``; None where jax does not work."""
    devices: tuple[str, ...]
    gpu_seen: bool
    """Whether the system has an NVIDIA GPU, used by jax or not."""
    why: str


@dataclass(frozen=True)
class CacheState:
    """The folder of collected rows and compiled programs."""

    folder: str
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


class ProbeResult(NamedTuple):
    """Output and fault of a program."""

    answers: list[str]
    """The rest of every line of its output that began with ``PUORL``."""
    problem: str | None
    """Its fault, as the end of a sentence; None without one."""


def run_python(code: str, *words: str, **variables: str) -> ProbeResult:
    """Run a small Python program."""
    try:
        run = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **variables},
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        return ProbeResult(_ANSWER.findall(text), f"does not come back within {_SECONDS:g} s")
    answers, problem = _ANSWER.findall(run.stdout), None
    if run.returncode < 0:
        problem = f"is ended by signal {-run.returncode}"
    elif run.returncode > 0:
        lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
        problem = f"fails: {lines[-1] if lines else f'exit code {run.returncode}'}"
    return ProbeResult(answers, problem)


def is_installed(module: str) -> bool:
    """Return whether a module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def find_renderer() -> tuple[str | None, str | None]:
    """Find a value of MUJOCO_GL with which MuJoCo draws a picture; else return why none does."""
    if not is_installed("mujoco"):
        return None, "MuJoCo is not installed"
    chosen = os.environ.get("MUJOCO_GL")
    names = (
        [chosen] if chosen else ["egl", "osmesa", *(["glfw"] if "DISPLAY" in os.environ else [])]
    )
    problems = []
    for name in names:
        problem = run_python(_DRAW, MUJOCO_GL=name).problem
        if problem is None:
            return name, None
        problems.append(f"MUJOCO_GL={name} {problem}")
    return None, "; ".join(problems)


def requirements() -> dict[str, dict[str, str]]:
    """Read extra to its packages and their oldest versions; ``""`` is what puorl always needs."""
    try:
        lines = importlib.metadata.requires("puorl") or []
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        lines = []
    found: dict[str, dict[str, str]] = {"": {}}
    for line in lines:
        if match := _REQUIREMENT.match(line):
            extra, package = match[3] or "", _CUDA_PLUGIN if match[3] == "cuda" else match[1]
            found.setdefault(extra, {})[package] = match[2] or "0"
    # The first broken package is the verdict, and most others need numpy.
    found[""] = dict(sorted(found[""].items(), key=lambda item: item[0] != "numpy"))
    return found


def install_line(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'puorl[{extra}]'"


def try_packages(oldest: Mapping[str, str]) -> dict[str, Package]:
    """Import every installed package in another process; return the state of each."""
    modules = {name: found for name in oldest if (found := _module(name)) is not None}
    problems = _import_all(list(modules.values()))
    found = {name: Package(name, "missing") for name in oldest}
    for name, module in modules.items():
        problem, version, need = problems[module], _version(name), oldest[name]
        if problem is None and version and _numbers(version) < _numbers(need):
            problem = f"is too old: expected {need} or later, got {version}"
        state = "works" if problem is None else "broken"
        found[name] = Package(name, state, version, problem)
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _module(package: str) -> str | None:
    """Return the module of an installed package, or None where it is not installed."""
    plain = package.replace("-", "_")
    if _version(package) is None:
        return plain if is_installed(plain) else None
    files = importlib.metadata.files(package) or ()
    names = {file.parts[0] for file in files if file.name == "__init__.py" and len(file.parts) == 2}
    return plain if plain in names or not names else min(names)


def _import_all(modules: Sequence[str]) -> dict[str, str | None]:
    """Return module to why it cannot be imported, or None.

    One process imports all, since most of the time goes into starting it and into what they share;
    where one ends the process, another continues behind it.
    """
    problems: dict[str, str | None] = {}
    left = list(modules)
    while left:
        tried = run_python(_IMPORT, *left)
        problems |= dict(json.loads(answer) for answer in tried.answers)
        left = [module for module in left if module not in problems]
        if left:
            problems[left.pop(0)] = tried.problem or "ends the process that imports it"
    return problems


def _numbers(version: str) -> tuple[int, ...]:
    """Parse the first three numbers, so that 2.0 is 2.0.0.

    >>> _numbers("2.0") == _numbers("2.0.0rc1") < _numbers("2.10.1")
    True
    """
    found = [int(digits) for digits in re.findall(r"\d+", version.partition("+")[0])]
    return tuple((found + [0, 0, 0])[:3])


def find_device() -> tuple[str | None, Device]:
    """Return what is wrong with jax, or None, and the device that it computes on."""
    # The driver's own list; where a container hides it, the files of the devices.
    listed = Path("/proc/driver/nvidia/gpus").glob("*")
    seen = any(listed) or any(Path("/dev").glob("nvidia[0-9]*"))
    if not is_installed("jax"):
        return None, Device(None, (), seen, "jax is not installed")
    tried = run_python(_JAX)
    if not tried.answers:
        return tried.problem, Device(None, (), seen, "jax does not work")
    answer = json.loads(tried.answers[0])
    used, devices = answer["used"], tuple(answer["devices"])
    return tried.problem, Device(used, devices, seen, reason(used, len(devices), seen))


def reason(used: str, num_devices: int, seen: bool) -> str:
    """Say why jax computes on ``used``."""
    chosen = os.environ.get("JAX_PLATFORMS")
    if chosen:
        return f"the variable JAX_PLATFORMS={chosen} says so"
    if used == "gpu":
        return "jax sees " + ("a GPU" if num_devices == 1 else f"{num_devices} GPUs")
    if used != "cpu":
        return f"jax sees a {used}"
    if not seen:
        return f"no NVIDIA GPU is seen here, so {install_line('cuda')} would add nothing"
    if not any(map(is_installed, _CUDA_MODULES)):
        return f"there is an NVIDIA GPU, but jax has no CUDA; {install_line('cuda')} would use it"
    return "there is an NVIDIA GPU, but jax cannot use it; its driver may be too old for CUDA"


def examine(cache: Path) -> Findings:
    """Try everything, three things at a time; ``cache`` is that of `CacheState`."""
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
        cache=_cache_state(cache),
    )


def _cache_state(folder: Path) -> CacheState:
    files = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    sizes = [os.path.getsize(file) for file in files if file.exists()]
    return CacheState(str(folder), len(sizes), sum(sizes), free_disk(folder))
