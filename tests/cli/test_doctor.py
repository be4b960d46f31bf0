import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

import puorl
from puorl.cli import doctor
from puorl.cli.main import main
from puorl.core import installation
from puorl.core.installation import (
    CacheState,
    Device,
    Findings,
    Package,
    examine,
    requirements,
    try_packages,
)
from puorl.data.formats import FORMATS

INSTALL = "pip install 'puorl[cuda]'"
REQUIRED = requirements()
EXTRAS = [name for name in REQUIRED if name]


def findings(**changes):
    works = Findings(
        python="3.11.7",
        system="Linux x86_64",
        packages=tuple(Package(name, "works", "1.0") for name in ("jax", "numpy")),
        extras={
            name: tuple(Package(package, "works", "2.0") for package in REQUIRED[name])
            for name in EXTRAS
        },
        device=Device("cpu", ("cpu:0 cpu",), False, "no NVIDIA GPU is seen here"),
        rendering="egl",
        rendering_problem=None,
        num_cores=2,
        memory_bytes=8_000_000_000,
        cache=CacheState("/cache", 3, 2_500_000, 10**10),
    )
    return replace(works, **changes)


@pytest.fixture
def found(monkeypatch):
    """Lets the doctor find what the test says."""

    def find(**changes):
        monkeypatch.setattr(doctor, "examine", lambda _: findings(**changes))
        monkeypatch.setenv("COLUMNS", "200")

    return find


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder of modules that other processes find, too."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


# ------------------------------------------------------------------------- the real thing


def test_the_doctor_looks_at_this_installation(tmp_path):
    (tmp_path / "rows.hdf5").write_bytes(bytes(1234))
    environ = {**os.environ, "PUORL_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-c", "from puorl.cli.main import main; main()", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    assert (run.returncode, run.stderr) == (0, "")
    told = json.loads(run.stdout)
    assert told["puorl"] == puorl.__version__
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {part["name"]: part["state"] for part in told["packages"]} == dict.fromkeys(
        REQUIRED[""], "works"
    )
    assert [part["name"] for part in told["packages"]][0] == "numpy"
    assert told["device"]["used"] == "cpu"
    assert told["device"]["why"] == "the variable JAX_PLATFORMS=cpu says so"
    assert told["cache"]["folder"] == str(tmp_path)
    assert (told["cache"]["num_files"], told["cache"]["num_bytes"]) == (1, 1234)
    assert told["num_cores"] >= 1
    assert told["memory_bytes"] is None or told["memory_bytes"] > 10**6
    assert told["rendering"] is not None or told["rendering_problem"]
    assert list(told["extras"]) == EXTRAS
    assert told["broken"] == []


def test_what_it_looks_at_is_what_the_installation_asks_for(monkeypatch):
    lines = [
        "jax>=0.9",
        "numpy>=2.0",
        "jax[cuda12]>=0.9; extra == 'cuda'",
        "pillow>=10; extra == 'minari'",
        'wandb; extra == "wandb"',
    ]
    monkeypatch.setattr(installation.importlib.metadata, "requires", lambda _: lines)
    assert requirements() == {
        "": {"numpy": "2.0", "jax": "0.9"},
        "cuda": {"jax-cuda12-plugin": "0.9"},
        "minari": {"pillow": "10"},
        "wandb": {"wandb": "0"},
    }
    assert list(requirements()[""]) == ["numpy", "jax"]


def test_every_extra_has_a_purpose():
    assert {each.extra for each in FORMATS.values()} - {None} <= set(EXTRAS)
    for name, each in FORMATS.items():
        if each.extra is not None:
            assert doctor.purpose(name) == each.description
    assert doctor.purpose("sim").startswith("simulated robots")
    assert doctor.purpose("wandb") == "puorl train --logger wandb"
    assert "logger" not in doctor.purpose("unheard-of")


def test_looking_at_it_loads_nothing_heavy():
    code = (
        "import sys, puorl.cli.doctor; heavy = {'jax', 'numpy', 'mujoco'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


# ------------------------------------------------------------------------------ packages


def test_broken_packages_are_told_from_missing_ones(modules):
    (modules / "puorl_t_good.py").write_text("print('says something')")
    (modules / "puorl_t_lib.py").write_text("raise ImportError('libodd.so:\\n cannot open')")
    (modules / "puorl_t_needs.py").write_text("import puorl_t_none")
    (modules / "puorl_t_exit.py").write_text("import os; os._exit(3)")
    (modules / "puorl_t_crash.py").write_text("import os, signal; os.kill(os.getpid(), 11)")
    (modules / "puorl_t_last.py").write_text("")
    tried = "good none lib needs exit crash last".split()
    found = try_packages({f"puorl_t_{name}": "0" for name in tried})
    fared = {name.removeprefix("puorl_t_"): part for name, part in found.items()}
    states = {name: part.state for name, part in fared.items()}
    assert states.pop("good") == states.pop("last") == "works"
    assert states.pop("none") == "missing"
    assert set(states.values()) == {"broken"}
    assert fared["lib"].problem == "cannot be imported: ImportError: libodd.so: cannot open"
    assert "No module named 'puorl_t_none'" in (fared["needs"].problem or "")
    assert fared["crash"].problem == "is ended by signal 11"
    assert fared["exit"].problem == "fails: exit code 3"


def test_one_that_hangs_does_not_hang_the_doctor(modules, monkeypatch):
    monkeypatch.setattr(installation, "_SECONDS", 1.0)
    (modules / "puorl_t_hangs.py").write_text("import time; time.sleep(60)")
    (part,) = try_packages({"puorl_t_hangs": "0"}).values()
    assert (part.state, part.problem) == ("broken", "does not come back within 1 s")


def test_one_that_is_too_old_is_broken():
    part = try_packages({"rich": "99.1"})["rich"]
    assert part.state == "broken"
    assert (part.problem or "").startswith("is too old: expected 99.1 or later, got ")
    assert try_packages({"rich": "1.0"})["rich"].state == "works"


def test_the_module_of_a_package_may_have_another_name():
    pytest.importorskip("PIL")
    assert try_packages({"pillow": "0"})["pillow"].state == "works"


# ------------------------------------------------------------------------ device, drawing


@pytest.mark.parametrize(
    ("used", "seen", "cuda", "says"),
    [
        ("gpu", True, True, "jax sees 2 GPUs"),
        ("tpu", False, False, "jax sees a tpu"),
        ("cpu", False, False, f"no NVIDIA GPU is seen here, so {INSTALL} would add nothing"),
        ("cpu", True, False, f"an NVIDIA GPU, but jax has no CUDA; {INSTALL} would use it"),
        ("cpu", True, True, "there is an NVIDIA GPU, but jax cannot use it"),
    ],
)
def test_why_this_device(monkeypatch, used, seen, cuda, says):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(installation, "is_installed", lambda _: cuda)
    assert says in installation.reason(used, 2, seen)


def test_no_jax_and_no_mujoco_are_no_crash(monkeypatch):
    monkeypatch.setattr(installation, "is_installed", lambda _: False)
    assert installation.find_device()[1].used is None
    assert installation.find_renderer() == (None, "MuJoCo is not installed")


def test_a_jax_that_fails_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "_JAX", "raise RuntimeError('no backend')")
    problem, device = installation.find_device()
    assert problem == "fails: RuntimeError: no backend"
    assert (device.used, device.why) == (None, "jax does not work")
    monkeypatch.setattr(installation, "requirements", lambda: {"": {"jax": "0"}})
    monkeypatch.setattr(installation, "find_renderer", lambda: ("egl", None))
    assert examine(tmp_path).verdict == "broken: jax fails: RuntimeError: no backend"


def test_drawing_tries_the_next_way(monkeypatch):
    code = "import os; os.environ['MUJOCO_GL'] == 'osmesa' or os.abort()"
    monkeypatch.setattr(installation, "_DRAW", code)
    monkeypatch.setattr(installation, "is_installed", lambda _: True)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert installation.find_renderer() == ("osmesa", None)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert installation.find_renderer() == (None, "MUJOCO_GL=egl is ended by signal 6")


# ---------------------------------------------------------------------------- the answer


def test_all_well(found, capsys):
    found()
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "all that is installed works; computes on the CPU"
    for text in ("jax 1.0, numpy 1.0", "MUJOCO_GL=egl", "2 cores, 8.0 GB", "3 files, 2.5 MB"):
        assert text in out
    assert "pip install" not in out


def test_missing_extras_come_with_their_install_line(found, capsys):
    extras = {**findings().extras, "wandb": (Package("wandb", "missing"),)}
    extras["sim"] = (Package("gymnasium", "works", "1.0"), Package("mujoco", "missing"))
    found(extras=extras, rendering=None, rendering_problem="MuJoCo is not installed")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "pip install 'puorl[wandb]' adds: puorl train --logger wandb" in out
    assert "gymnasium 1.0; the rest: pip install 'puorl[sim]' adds: simulated robots" in out
    assert "not available: MuJoCo is not installed" in out
    assert out.splitlines()[-1].endswith("; extras not installed: sim, wandb")


def test_an_unused_gpu_is_in_the_verdict(found, capsys):
    found(device=Device("cpu", ("cpu:0 cpu",), True, "there is an NVIDIA GPU"))
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("CPU, and not on the GPU")


def test_cuda_from_elsewhere_is_enough(found, capsys):
    extras = {**findings().extras, "cuda": (Package("jax-cuda12-plugin", "missing"),)}
    found(extras=extras, device=Device("gpu", ("gpu:0 H200",), True, "jax sees a GPU"))
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "not needed: jax has CUDA from elsewhere" in out
    assert out.splitlines()[-1] == "all that is installed works; computes on the GPU"


@pytest.mark.parametrize(
    ("package", "says"),
    [
        (Package("h5py", "broken", "3.1", "cannot be imported: X"), "h5py cannot be imported: X"),
        (Package("h5py", "missing"), "h5py is not installed"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_what_is_broken_ends_in_1(found, capsys, package, says, words):
    found(packages=(*findings().packages, package))
    with pytest.raises(SystemExit) as leaving:
        main(["doctor", *words])
    assert leaving.value.code == 1
    out = capsys.readouterr().out
    if words:
        assert json.loads(out)["broken"] == [says]
    else:
        assert out.splitlines()[-1] == f"broken: {says}"


def test_a_broken_extra_is_broken(found, capsys):
    extras = {**findings().extras, "parquet": (Package("pyarrow", "broken", "2", "is odd"),)}
    found(extras=extras)
    with pytest.raises(SystemExit):
        main(["doctor"])
    assert capsys.readouterr().out.splitlines()[-1] == "broken: pyarrow is odd"


def test_the_first_of_several_is_named():
    parts = (Package("numpy", "broken", "1", "is odd"), Package("jax", "broken", "1", "fails"))
    assert findings(packages=parts).verdict == "broken: numpy is odd (and 1 more)"
