"""What is handed out: a wheel and an sdist with all that is needed, and nothing else."""

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import puorl

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "puorl"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SDIST_TOP = {
    "src",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    "requirements",
    "Makefile",
    "LICENSE",
}
SDIST_TOP |= {
    "CITATION.cff",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "pyproject.toml",
    "PKG-INFO",
}
NO_SIMULATOR = (
    "puorl: error: puorl demo needs the package 'mujoco', which cannot be imported here; "
    "install it with: pip install 'puorl[sim]'\n"
)


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path

    def in_wheel(self):
        with zipfile.ZipFile(self.wheel) as file:
            return set(file.namelist())

    def in_sdist(self):
        """Names below the folder that stands for the version."""
        with tarfile.open(self.sdist) as file:
            return {name.partition("/")[2] for name in file.getnames()}


def build(folder, *more):
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *more, ROOT]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """As ``make build`` does it: the sdist from here, the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def test_the_wheel_is_the_package_and_nothing_else(built):
    here = {
        f"puorl/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    about = f"puorl-{puorl.__version__}.dist-info/"
    assert {name for name in built.in_wheel() if not name.startswith(about)} == here


def test_policies_and_published_numbers_are_inside(built):
    names = built.in_wheel()
    policies = [name for name in names if name.startswith("puorl/envs/policies/")]
    for body in ("hopper", "halfcheetah", "walker2d"):
        for domain in ("nominal", "body_mass", "joint_noise"):
            for quality in ("medium", "expert"):
                file = f"puorl/envs/policies/{body}-{domain}-{quality}.safetensors"
                assert file in policies
    assert {"puorl/bench/paper.csv", "puorl/envs/contents.json", "puorl/py.typed"} <= names


def test_a_wheel_from_the_sdist_is_a_wheel_from_here(built, tmp_path):
    build(tmp_path, "--wheel")
    (straight,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(straight) as ours, zipfile.ZipFile(built.wheel) as theirs:
        sums = [{each.filename: each.CRC for each in file.infolist()} for file in (ours, theirs)]
    assert sums[0] == sums[1]


def test_the_sdist_holds_sources_and_no_scratch(built):
    names = built.in_sdist()
    assert {name.partition("/")[0] for name in names} - {"", ".gitignore"} == SDIST_TOP
    parts = {part for name in names for part in Path(name).parts}
    assert parts.isdisjoint({"scratch", "dist", ".git", ".venv", ".venv-bench", "__pycache__"})
    assert {"tests/conftest.py", "docs/walk.md", "requirements/py311.txt"} <= names


def test_the_version_stands_in_one_place(built):
    assert "version" in PROJECT["dynamic"]
    assert built.wheel.name == f"puorl-{puorl.__version__}-py3-none-any.whl"
    assert built.sdist.name == f"puorl-{puorl.__version__}.tar.gz"
    stated = re.compile(r"^_*version_*\s*=\s*[\"']", re.MULTILINE)
    files = [ROOT / "pyproject.toml", *PACKAGE.rglob("*.py")]
    found = [path for path in files if stated.search(path.read_text(encoding="utf-8"))]
    assert found == [PACKAGE / "__init__.py"]


def test_the_metadata_says_what_pip_needs(built):
    about = f"puorl-{puorl.__version__}.dist-info"
    with zipfile.ZipFile(built.wheel) as file:
        metadata = email.message_from_bytes(file.read(f"{about}/METADATA"))
        scripts = file.read(f"{about}/entry_points.txt").decode()
        licence = file.read(f"{about}/licenses/LICENSE")
    assert metadata["Version"] == puorl.__version__
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata.get_all("Provides-Extra") == sorted(PROJECT["optional-dependencies"])
    assert metadata.get_payload().startswith("# puorl")
    assert "puorl = puorl.cli.main:main" in scripts
    assert licence == (ROOT / "LICENSE").read_bytes()


class Installation:
    """An environment with nothing of this one in it."""

    def __init__(self, folder):
        self.bin, self.work = folder / "venv" / "bin", folder / "work"
        self.work.mkdir()
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        self.environ = {name: value for name, value in os.environ.items() if name not in hidden}
        self.base = Path(sys.base_prefix) / "bin" / "python3"  # ours may be without pip
        self.check([self.base, "-m", "venv", "--without-pip", folder / "venv"])

    def install(self, wheel, extras=""):
        pip = [self.base, "-m", "pip", "--python", self.bin / "python", "install", "--quiet"]
        self.check([*pip, "--root-user-action=ignore", f"{wheel}{extras}"])

    def check(self, command):
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environ)
        assert run.returncode == 0, run.stderr

    def puorl(self, command):
        return subprocess.run(
            [self.bin / "puorl", *command.split()],
            capture_output=True,
            text=True,
            check=False,
            env=self.environ,
            cwd=self.work,
        )

    def works(self, command):
        run = self.puorl(command)
        assert run.returncode == 0, run.stderr
        return run.stdout


@pytest.mark.slow  # a minute, and packages are fetched from an index
def test_a_clean_installation_works(built, tmp_path):
    clean = Installation(tmp_path)
    clean.install(built.wheel)
    refused = clean.puorl("demo")
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", NO_SIMULATOR)
    assert list(clean.work.iterdir()) == []
    found = json.loads(clean.works("doctor --json"))
    assert (found["puorl"], found["broken"]) == (puorl.__version__, [])
    clean.install(built.wheel, "[sim,report]")
    found = json.loads(clean.works("doctor --json"))
    for name in ("sim", "report"):
        assert {each["state"] for each in found["extras"][name]["packages"]} == {"works"}
    assert found["broken"] == []
    assert "usage: puorl demo" in clean.works("demo --help")
    clean.works("collect --env hopper --rows 500 --seed 0 --out rows.npz --no-cache")
    clean.works("train rows.npz --learner bc --steps 20 --set hidden=8,8 batch_size=32 --out run")
    tried = json.loads(clean.works("evaluate run --env hopper --episodes 2 --json"))
    assert len(tried["policies"][0]["returns"]) == 2


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "puorl", "collect"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "puorl collect" in done.stderr
