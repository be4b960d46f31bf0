"""The architecture, as tests: who may import whom, and who may see the truth."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "puorl"
ALLOWED = {
    "core": "",
    "nn": "core",
    "html": "core",
    "data": "core",
    "envs": "core nn data",
    "pu": "core nn html data",
    "rl": "core nn data",
    "ope": "core nn data pu rl",
    "methods": "core nn data pu",
    "scale": "core nn html data pu",
    "comparison": "core nn html data envs pu rl ope methods",
    "bench": "core nn html data envs pu rl methods",
    "run_report": "core nn html data envs pu rl methods bench",
    "demo": "core nn html data envs pu rl methods bench",
    "cli": "core nn html data envs pu rl ope methods scale comparison bench run_report demo",
}
SUB_ROOMS = {"pu/checks": {"alpha", "units"}, "pu/machines": {"config", "model", "units"}}
"""Files of the room that a sub-room may import; these import no sub-room."""
MAY_REVEAL = {"data/split.py", "methods/baselines.py", "pu/report.py", "pu/result_folder.py"}


def imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # Modules that are imported by name when first used count as well.
        return [node.value] if node.value.startswith("puorl.") else []
    return []


def sources():
    return sorted(SRC.glob("*/**/*.py"))


def test_there_is_something_to_check():
    assert {p.relative_to(SRC).parts[0] for p in sources()} == set(ALLOWED)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(SRC)))
def test_rooms_import_downwards(path):
    room = path.relative_to(SRC).parts[0]
    allowed = {room, *ALLOWED[room].split()}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for name in imported(node):
            other = name.split(".")[1] if name.startswith("puorl.") else ""
            if other in ALLOWED:
                assert other in allowed, f"{room} may not import {other} ({name})"


@pytest.mark.parametrize("name", SUB_ROOMS)
def test_sub_rooms_import_downwards(name):
    below, own = SUB_ROOMS[name], name.split("/")
    for path in (SRC / name).glob("*.py"):
        for other in imports_of(path):
            room, *rest = other.split(".")[1:]
            if room == own[0] and rest[:1] != own[1:]:
                assert rest[0] in below, f"{name} may not import {other}"
    for each in below:
        inside = [other for other in imports_of(SRC / own[0] / f"{each}.py") if own[1] in other]
        assert inside == [], f"{each} may not import {name}"


def test_files_import_each_other_in_one_direction():
    files = {"puorl." + ".".join(p.relative_to(SRC).with_suffix("").parts): p for p in sources()}
    graph = {name: {n for n in imports_of(path) if n in files} for name, path in files.items()}
    assert list(TopologicalSorter(graph).static_order())  # raises an error that names a cycle


def imports_of(path):
    """Modules that a file imports at its top, whole names of what it imports included."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [name for name in imported(node) if name.startswith("puorl.")]
            found += [node.module] if isinstance(node, ast.ImportFrom) else []
    return [name for name in found if name.startswith("puorl.")]


def test_only_oracle_scoring_and_benchmark_code_reveals_the_truth():
    calls = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            opened = isinstance(node, ast.Attribute) and node.attr in ("reveal", "_origin")
            if opened:
                calls.add(str(path.relative_to(SRC)))
    allowed = {c for c in calls if c in MAY_REVEAL or c.startswith(("bench/", "demo/"))}
    # Storage writes the truth to its own file and reads it back.
    allowed |= calls & {"data/split_files.py"}
    assert calls == allowed


def test_no_utils():
    assert not [p for p in SRC.rglob("*.py") if p.stem in ("utils", "util", "helpers", "misc")]


def test_import_is_quiet_fast_and_free_of_jax():
    code = (
        "import os, sys, time; before = dict(os.environ); start = time.perf_counter(); "
        "import puorl; took = time.perf_counter() - start; "
        "assert before == dict(os.environ); assert 'jax' not in sys.modules; "
        "assert 'numpy' not in sys.modules; assert took < 0.5, took"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def test_data_room_works_without_jax():
    code = (
        "import sys, puorl; puorl.load, puorl.save, puorl.make_split; "
        "assert 'jax' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"")


def test_public_names_exist_and_are_listed():
    import puorl

    assert set(dir(puorl)) == set(puorl.__all__)
    for name in puorl.__all__:
        assert getattr(puorl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = puorl.nothing
