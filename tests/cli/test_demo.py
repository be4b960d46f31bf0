import builtins
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from puorl.cli.main import main
from puorl.core.files import read_json
from puorl.demo import study
from puorl.rl.policy import Policy

sys.path.insert(0, str(Path(__file__).parents[1] / "demo"))
from tiny_demo import TINY

TINY_FOLDER = str(Path(__file__).parents[1] / "demo")


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "SETTINGS", TINY)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_times(path):
    content = read_json(path)
    assert set(content.pop("seconds")) == {"data", "filter", "training"}
    return content


def test_demo_tells_all_keeps_the_old_folder_and_repeats_exactly(tiny, capsys):
    assert main(["demo", "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert "error" not in err  # a slow machine shows how far it is
    assert "\x1b" not in out + err
    for said in ("scaled down", "1  data", "2  filter", "truth is", "3  training", "PU minus it"):
        assert said in out
    assert "demo/report.html" in out
    folder = tiny / "demo"
    made = ["policies", "report.html", "results.json", "units.csv"]
    assert sorted(p.name for p in folder.iterdir()) == made
    assert len(list((folder / "policies").iterdir())) == 8
    first = without_times(folder / "results.json")
    policy = Policy.load(folder / "policies" / "pu-seed-1000.safetensors")
    assert policy.fingerprint == first["methods"]["pu"]["policies"][0]

    # JSON alone on stdout; the folder of before steps aside; same seed, same numbers.
    assert main(["demo", "--seed", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == read_json(folder / "results.json")
    assert "demo was there already: renamed to demo-1" in err
    assert sorted(p.name for p in tiny.iterdir()) == ["demo", "demo-1"]
    assert without_times(tiny / "demo-1" / "results.json") == first
    assert without_times(folder / "results.json") == first


def test_another_seed_gives_other_rows(tiny):
    one, two = (study.make_data(TINY.seeded(seed)).split for seed in (0, 1))
    assert one.fingerprint != two.fingerprint


def test_folders_of_other_things_are_left_alone(tiny, capsys):
    (tiny / "mine").mkdir()
    (tiny / "mine" / "thesis.txt").write_text("years")
    for out in ("mine", ".", "mine/thesis.txt"):
        assert main(["demo", "--out", out]) == 2
        assert "choose another --out" in capsys.readouterr().err
    assert [p.name for p in tiny.iterdir()] == ["mine"]


@pytest.mark.parametrize("seed", ["-1", "2000001", "99999999999999999999"])
def test_an_impossible_seed_is_refused_at_once(seed, tiny, capsys):
    assert main(["demo", "--seed", seed]) == 2
    assert f"--seed: expected 0 to 2,000,000, got {seed}" in capsys.readouterr().err
    assert list(tiny.iterdir()) == []


def test_without_the_simulator_the_install_line_is_printed(tiny, capsys, monkeypatch):
    real = builtins.__import__

    def no_mujoco(name, *rest):
        if name.partition(".")[0] == "mujoco":
            raise ImportError(name)
        return real(name, *rest)

    for name in [name for name in sys.modules if name.partition(".")[0] == "mujoco"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.setattr(builtins, "__import__", no_mujoco)
    assert main(["demo"]) == 2
    err = capsys.readouterr().err
    assert "pip install 'puorl[sim]'" in err
    assert err.count("\n") == 1
    assert list(tiny.iterdir()) == []


def test_an_interrupted_demo_leaves_nothing(tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {TINY_FOLDER!r}); "
        "import dataclasses, tiny_demo; from puorl.demo import study; "
        "study.SETTINGS = dataclasses.replace(tiny_demo.TINY, steps=10_000_000); "
        "from puorl.cli.main import main; sys.exit(main())"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, "demo", "--out", str(tmp_path / "demo")],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("1  data"):
            break
    else:
        pytest.fail(f"the demo ended early: {run.communicate()}")
    assert len(list(tmp_path.iterdir())) == 1  # what is half done is out of sight
    assert next(tmp_path.iterdir()).name.startswith(".demo.")
    os.kill(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.endswith("puorl: interrupted\n")
    assert list(tmp_path.iterdir()) == []
