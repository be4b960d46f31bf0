import signal
import subprocess
import sys
import time
from dataclasses import fields

import numpy as np
import pytest

from puorl.cli.collect import Collect
from puorl.cli.main import main
from puorl.data.formats import load
from puorl.envs.collect import collect
from puorl.nn.numpy_mlp import SquashedGaussianActor


def words(out, *more, rows="600"):
    base = ["collect", "--env", "hopper", "--quality", "random", "--rows", rows, "--seed", "0"]
    return [*base, "--out", str(out), *more]


@pytest.fixture
def start():
    """Start Python code in a process of its own, which is gone when the test is."""
    processes = []

    def begin(code, arguments):
        pipe = subprocess.PIPE
        words = [sys.executable, "-c", code, *arguments]
        processes.append(subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_writes_the_data_and_says_so_in_one_line(tmp_path, capsys):
    out = tmp_path / "rows.hdf5"
    assert main(words(out, "--domain", "body_mass", "--threads", "2")) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    (line,) = printed.out.splitlines()
    assert line.startswith(f"{out}: 600 rows, ")
    assert "mean return" in line
    assert "normalised score" in line
    expected = collect("hopper", "body_mass", "random", rows=600, cache=False)
    assert load(out).fingerprint == expected.fingerprint


def test_other_formats_and_a_policy_file(tmp_path):
    rng = np.random.default_rng(0)
    layers = ((rng.normal(size=(11, 8)), np.zeros(8)), (rng.normal(size=(8, 6)), np.zeros(6)))
    SquashedGaussianActor(layers).save(tmp_path / "p.safetensors")
    arguments = words(tmp_path / "rows.npz", "--policy", str(tmp_path / "p.safetensors"))
    assert main(arguments) == 0
    made = load(tmp_path / "rows.npz")
    expected = collect("hopper", rows=600, policy=tmp_path / "p.safetensors", cache=False)
    assert made.fingerprint == expected.fingerprint
    assert made.provenance == expected.provenance


def test_short_runs(tmp_path):
    assert main(words(tmp_path / "rows.npz", "--horizon", "15")) == 0
    expected = collect("hopper", quality="random", rows=600, horizon=15, cache=False)
    made = load(tmp_path / "rows.npz")
    assert made.fingerprint == expected.fingerprint
    assert np.bincount(made.episode).max() == 15


def test_nothing_is_overwritten_or_even_simulated_without_force(tmp_path, capsys, monkeypatch):
    out = tmp_path / "rows.hdf5"
    out.write_text("precious")
    with monkeypatch.context() as patch:
        patch.setattr("puorl.cli.collect.collect", None)
        assert main(words(out)) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "precious"
    assert main(words(out, "--force")) == 0
    assert len(load(out)) == 600


def test_no_cache_leaves_the_cache_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path / "cache"))
    assert main(words(tmp_path / "a.npz", "--no-cache")) == 0
    assert not (tmp_path / "cache").exists()
    assert main(words(tmp_path / "b.npz")) == 0
    assert sorted(p.suffix for p in (tmp_path / "cache").iterdir()) == [".hdf5", ".json"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--env", "ant"], "halfcheetah, hopper, walker2d"),
        (["--domain", "windy"], "body_mass"),
        (["--rows", "several"], "1M"),
        (["--horizon", "2000"], "horizon: expected 1 to 1,000"),
        (["--quality", "superb"], "medium-expert"),
        (["--out", "rows.doc"], "cannot tell the format to write"),
    ],
)
def test_wrong_settings_end_with_one_clear_message(tmp_path, capsys, monkeypatch, more, said):
    monkeypatch.chdir(tmp_path)
    assert main(words("rows.hdf5", *more)) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_shows_examples(capsys):
    assert main(["collect", "--help"]) == 0
    text = capsys.readouterr().out
    assert "puorl collect --env hopper" in text
    assert "--policy-domain" in text


def test_interrupt_leaves_no_file(tmp_path, start, monkeypatch):
    """Ctrl-C in the middle of the simulation."""
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path / "cache"))
    out, mark = tmp_path / "rows.hdf5", tmp_path / "begun"
    code = (
        "import pathlib, sys; from puorl.envs import collect; from puorl.cli.main import main\n"
        "record = collect.record\n"
        "def marked(*args, **kwargs):\n"
        "    pathlib.Path(sys.argv[1]).touch()\n"
        "    return record(*args, **kwargs)\n"
        "collect.record = marked\n"
        "sys.exit(main(sys.argv[2:]))"
    )
    process = start(code, [str(mark), *words(out, rows="10M")])
    wait_until(mark.exists)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=60)
    assert (process.returncode, printed, said) == (130, "", "puorl: interrupted\n")
    assert list(tmp_path.iterdir()) == [mark]


def test_kill_in_the_middle_of_writing_leaves_no_half_file(tmp_path, start):
    out = tmp_path / "rows.hdf5"
    code = (
        "import sys, time; from puorl.data import hdf5; from puorl.cli.main import main\n"
        "def half(dataset, path):\n"
        "    path.write_bytes(b'half of it')\n"
        "    time.sleep(60)\n"
        "hdf5.write = half\n"
        "main(sys.argv[1:])"
    )
    process = start(code, words(out, "--no-cache"))
    wait_until(lambda: any(tmp_path.iterdir()))
    process.kill()
    process.wait()
    assert not out.exists()
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())
    assert main(words(out)) == 0  # what was left does not stand in the way
    assert len(load(out)) == 600


def test_command_and_function_have_the_same_defaults():
    command = Collect(env="hopper", seed=0, out="x")  # type: ignore[arg-type]
    defaults = collect.__kwdefaults__ | dict(
        zip(("domain", "quality", "rows", "seed"), collect.__defaults__, strict=True)
    )
    assert set(defaults) - {field.name for field in fields(command)} == {"cache", "progress"}
    for name in set(defaults) - {"cache", "progress"}:
        assert getattr(command, name) == defaults[name]


def test_a_version_of_the_policies_is_chosen(tmp_path):
    out = tmp_path / "rows.npz"
    first = ("--policy-version", "1", "--no-cache")
    assert main(["collect", "--env", "walker2d", "--rows", "20", "--out", str(out), *first]) == 0
    recipe = load(out).provenance.recipe
    assert recipe is not None
    assert recipe["policies"][0]["name"] == "walker2d/nominal/medium"
